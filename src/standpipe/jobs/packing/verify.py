"""Check packed shards: every member's bytes and header, by their CRC-32C."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from standpipe import _native
from standpipe.errors import StandpipeError
from standpipe.jobs.packing.layout import (
    BLOCK,
    Members,
    OpenShard,
    Progress,
    in_parts,
    packed_facts,
    threads_of,
)

MOST_NAMED = 10  # members of a shard


@dataclass(frozen=True, slots=True)
class ShardCheckReport:
    """The result of ``verify_shards``.

    Attributes
    ----------
    shards, members : int
        Number of shards, and of members that were checked.
    size_bytes : int
        Bytes of these members.
    differences : tuple of str
        What isn't as it was packed; up to ten members of a shard are named.

    Examples
    --------
    >>> report = sp.pack_shards(sp.ImageFolder("photos"), "shards")
    >>> found = sp.verify_shards("shards")
    >>> found.ok, found.members, found.differences
    (True, 72, ())
    """

    shards: int
    members: int
    size_bytes: int
    differences: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if nothing differs."""
        return not self.differences


def verify_shards(
    folder: str | os.PathLike[str], *, num_workers: int | None = None, on_progress: Progress | None = None
) -> ShardCheckReport:
    """Read all shards of a folder, and compare each member with the CRC-32C that it had when it was packed.

    Parameters
    ----------
    folder : path
        A folder that ``pack_shards`` wrote.
    num_workers : int, optional
        Number of threads. Default: one per CPU that this process may use.
    on_progress : callable, optional
        Called with the name of the counted things, the number done, and the total.

    Returns
    -------
    standpipe.reports.ShardCheckReport

    Raises
    ------
    PlanError
        If the folder has no complete shards of ``pack_shards``.
    StandpipeError
        If a shard can't be read.

    Examples
    --------
    >>> report = sp.pack_shards(sp.ImageFolder("photos"), "shards")
    >>> with open("shards/shard-000000.tar", "r+b") as shard:
    ...     place = shard.seek(3000)
    ...     written = shard.write(b"damage")
    >>> sp.verify_shards("shards").ok
    False
    """
    path, facts = Path(folder), packed_facts(folder)
    shards = facts.shards or 0
    members, size_bytes, differences = 0, 0, []
    with closing(in_parts(path, facts, threads_of(num_workers), _compared)) as parts:
        for number, found in enumerate(parts, 1):
            if isinstance(found, StandpipeError):
                differences.append(str(found))
            else:
                members += sum(part.members for part in found)
                size_bytes += sum(part.size_bytes for part in found)
                differences += _named([each for part in found for each in part.differences])
            if on_progress is not None:
                on_progress("shards", number, shards)
    return ShardCheckReport(shards, members, size_bytes, tuple(differences))


@dataclass(frozen=True, slots=True)
class _Found:
    """The result for some records of a shard."""

    members: int
    size_bytes: int
    differences: list[str]


def _named(differences: list[str]) -> list[str]:
    """Return the first differences, and how many more there are."""
    more = len(differences) - MOST_NAMED
    return [
        *differences[:MOST_NAMED],
        *([f"{more:,} more members of the same shard have changed"] if more > 0 else []),
    ]


def _compared(shard: OpenShard, records: slice) -> _Found:
    """Compare the members of some records with their checksums."""
    each, members, name = shard.each, shard.sums.members, shard.path.name
    part = slice(records.start * each, records.stop * each)
    ends, begins, sizes = members.ends[part], members.begins[part], members.sizes[part]
    differences = []
    try:
        size, whole = os.fstat(shard.file).st_size, members.shard_bytes
        if size != whole and records.start == 0:
            differences.append(f"{name} has {size:,} bytes, and should have {whole:,}")
        last = records.stop * each == len(members.sizes)
        if size == whole and last and any(os.pread(shard.file, whole - int(ends[-1]), int(ends[-1]))):
            differences.append(f"{name}: the zeros after its last member have changed")
        count = int(np.searchsorted(ends, size, "right"))
        begins, sizes = begins[:count], sizes[:count]
        # A header and its content, one after the other, as they are in the file.
        places = np.stack([begins - BLOCK, begins], axis=1).reshape(-1)
        lengths = np.stack([np.full(count, BLOCK), sizes], axis=1).reshape(-1)
        found = _native.crc32c_of_file(shard.file, places, lengths).reshape(count, 2)
    except (OSError, EOFError) as error:
        raise StandpipeError(f"can't read {shard.path}: {getattr(error, 'strerror', error)}") from error
    named = Members(members.names[part][:count], sizes).headers()
    named_sums = _native.crc32c_of(named.reshape(-1), np.arange(count) * BLOCK, np.full(count, BLOCK))
    header = (found[:, 0] != shard.sums.headers[part][:count]) | (found[:, 0] != named_sums)
    wrong = header | (found[:, 1] != shard.sums.content[part][:count])
    for member in np.flatnonzero(wrong).tolist():
        what = "the header" if header[member] else "the content"
        differences.append(f"{name}: {what} of {members.names[part][member].decode()} has changed")
    return _Found(count, int(sizes.sum()), differences)
