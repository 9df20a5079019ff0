"""Check packed shards: every member's bytes and header, by their CRC-32C."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from standpipe import _native
from standpipe.errors import StandpipeError
from standpipe.jobs.packing.layout import (
    BLOCK,
    Progress,
    Sums,
    packed_facts,
    shard_path,
    sums_path,
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
        Number of threads. Each reads one shard at a time. Default: one per CPU that this process may use.
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
    members, size_bytes, differences = 0, 0, []
    with ThreadPoolExecutor(threads_of(num_workers), "standpipe verify") as pool:
        for number, found in enumerate(pool.map(partial(_checked, path), range(facts.shards or 0)), 1):
            members += found.members
            size_bytes += found.size_bytes
            differences += found.differences
            if on_progress is not None:
                on_progress("shards", number, facts.shards)
    return ShardCheckReport(facts.shards or 0, members, size_bytes, tuple(differences))


@dataclass(frozen=True, slots=True)
class _Found:
    """The result for one shard."""

    differences: list[str]
    members: int = 0
    size_bytes: int = 0


def _checked(folder: Path, number: int) -> _Found:
    """Check one shard."""
    path = shard_path(folder, number)
    try:
        sums = Sums.read(sums_path(folder, number))
    except FileNotFoundError:
        return _Found([f"{sums_path(folder, number).name} is missing"])
    except (StandpipeError, OSError) as error:
        return _Found([str(error)])
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return _Found([f"{path.name} is missing"])
    try:
        return _compared(path.name, file, sums)
    except (OSError, EOFError) as error:
        raise StandpipeError(f"can't read {path}: {getattr(error, 'strerror', error)}") from error
    finally:
        os.close(file)


def _compared(name: str, file: int, sums: Sums) -> _Found:
    """Compare the members of an open shard with their checksums."""
    members = sums.members
    size, whole = os.fstat(file).st_size, members.shard_bytes
    differences = [] if size == whole else [f"{name} has {size:,} bytes, and should have {whole:,}"]
    count = int(np.searchsorted(members.ends, size, "right"))
    begins, sizes = members.begins[:count], members.sizes[:count]
    # A header and its content, one after the other, as they are in the file.
    parts = np.stack([begins - BLOCK, begins], axis=1).reshape(-1)
    lengths = np.stack([np.full(count, BLOCK), sizes], axis=1).reshape(-1)
    found = _native.crc32c_of_file(file, parts, lengths).reshape(count, 2)
    header, content = found[:, 0] != sums.headers[:count], found[:, 1] != sums.content[:count]
    wrong = np.flatnonzero(header | content)
    for member in wrong[:MOST_NAMED].tolist():
        what = "the header" if header[member] else "the content"
        differences.append(f"{name}: {what} of {members.names[member].decode()} has changed")
    if len(wrong) > MOST_NAMED:
        differences.append(f"{name}: {len(wrong) - MOST_NAMED:,} more members have changed")
    return _Found(differences, count, int(sizes.sum()))
