"""Restore the files that were packed into shards."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError, StandpipeError
from standpipe.jobs.packing.layout import (
    PART_BYTES,
    OpenShard,
    Progress,
    in_parts,
    packed_facts,
    threads_of,
    write_all,
)
from standpipe.source import shown
from standpipe.spec import UInt8Array

MOST_TEXT_BYTES = 1 << 20  # of a record's JSON
MARK = ".standpipe-unpacking"  # a file with the shards' facts, until all files are there


@dataclass(frozen=True, slots=True)
class UnpackReport:
    """The result of ``unpack_shards``.

    Attributes
    ----------
    files : int
        Number of files.
    size_bytes : int
        Bytes of all files.

    Examples
    --------
    >>> report = sp.pack_shards(sp.ImageFolder("photos"), "shards")
    >>> sp.unpack_shards("shards", "restored").files
    24
    """

    files: int
    size_bytes: int


def unpack_shards(
    folder: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    num_workers: int | None = None,
    on_progress: Progress | None = None,
) -> UnpackReport:
    """Restore the files that ``pack_shards`` packed, with the same names and bytes.

    Each file's bytes are compared with the CRC-32C that they had when they were packed. If it is interrupted, the same
    call writes all files again.

    Parameters
    ----------
    folder : path
        A folder that ``pack_shards`` wrote.
    to : path
        The folder in which the files get their paths as they were below the packed folder. It is created, and must be
        empty, or have what an interrupted call left.
    num_workers : int, optional
        Number of threads. Default: one per CPU that this process may use.
    on_progress : callable, optional
        Called with the name of the counted things, the number done, and the total.

    Returns
    -------
    standpipe.reports.UnpackReport

    Raises
    ------
    PlanError
        If the folder has no complete shards of ``pack_shards``, or ``to`` isn't empty.
    StandpipeError
        If a shard is damaged or can't be read, or if a file can't be written.

    Examples
    --------
    >>> report = sp.pack_shards(sp.ImageFolder("photos"), "shards")
    >>> sp.unpack_shards("shards", "restored").files
    24
    >>> sp.ImageFolder("restored").open().digest == sp.ImageFolder("photos").open().digest
    True
    """
    facts = packed_facts(folder)
    target = Path(to)
    _begin(target, json.dumps(asdict(facts)))
    files = size_bytes = 0
    unpacking = _Unpacking(os.fsencode(os.path.join(target, "")))  # noqa: PTH118 (as bytes)
    for found in in_parts(Path(folder), facts, threads_of(num_workers), unpacking.restored):
        if isinstance(found, StandpipeError):
            raise found
        for count, size in found:
            files, size_bytes = files + count, size_bytes + size
        if on_progress is not None:
            on_progress("records", files, facts.records)
    (target / MARK).unlink(missing_ok=True)
    return UnpackReport(files, size_bytes)


def _begin(target: Path, facts: str) -> None:
    """Create the folder of the files, and mark it as incomplete. Raises ``PlanError`` if it has other files."""
    mark = target / MARK
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()) and not (
            mark.is_file() and facts.startswith(mark.read_text("utf-8", "replace"))
        ):
            raise PlanError(f"{target} has files in it; use an empty folder")
        mark.write_text(facts, "utf-8")
    except OSError as error:
        raise StandpipeError(f"can't write to {target}: {error.strerror}") from error


class _Unpacking:
    """Restores files below a folder, ``base``, which has a slash at the end."""

    def __init__(self, base: bytes) -> None:
        self._base = base
        self._buffers = threading.local()

    def restored(self, shard: OpenShard, records: slice) -> tuple[int, int]:
        """Restore the files of some records of a shard; return how many, and their bytes."""
        each, sums, path = shard.each, shard.sums, shard.path
        part = slice(records.start * each, records.stop * each)
        count = records.stop - records.start
        # The first member of a record is the JSON, the last one the file.
        begins, sizes = (
            values[part].reshape(count, each) for values in (sums.members.begins, sums.members.sizes)
        )
        expected, names = (values[part].reshape(count, each) for values in (sums.content, sums.members.names))
        for row, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
            if size[0] > MOST_TEXT_BYTES:
                raise _damaged(path, names[row, 0])
            text = self._read(path, shard.file, begin[0], size[0])
            if _native.crc32c(text) != expected[row, 0]:
                raise _damaged(path, names[row, 0])
            target = self._base + _relative(path, text.tobytes())
            if self._copied(path, shard.file, begin[-1], size[-1], target) != expected[row, -1]:
                raise _damaged(path, names[row, -1])
        return count, int(sizes[:, -1].sum())

    def _copied(self, path: Path, file: int, begin: int, size: int, target: bytes) -> int:
        """Copy bytes of a shard to the file ``target``; return their CRC-32C."""
        crc = 0
        try:
            out = _created(target)
            try:
                for at in range(0, size, PART_BYTES):
                    part = self._read(path, file, begin + at, min(PART_BYTES, size - at))
                    crc = _native.crc32c(part, crc)
                    write_all(out, part.data, at)
            finally:
                os.close(out)
        except OSError as error:
            raise StandpipeError(f"can't write {shown(target)}: {error.strerror}") from error
        return crc

    def _read(self, path: Path, file: int, begin: int, size: int) -> UInt8Array:
        """Return bytes of a shard in this thread's buffer, which the next call uses again."""
        if not hasattr(self._buffers, "own"):
            self._buffers.own = np.empty(PART_BYTES, np.uint8)
        part: UInt8Array = self._buffers.own[:size]
        data, at = part.data, begin
        while data:
            try:
                got = os.preadv(file, [data], at)
            except OSError as error:
                raise StandpipeError(f"can't read {path}: {error.strerror}") from error
            if got == 0:
                raise StandpipeError(f"{path} ends too soon")
            data, at = data[got:], at + got
        return part


def _relative(path: Path, text: bytes) -> bytes:
    """Return the path of a record from its JSON. Raises ``StandpipeError`` if it could be outside of the folder."""
    try:
        found = json.loads(text)["path"].encode("utf-8", "surrogateescape")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StandpipeError(f"{path} has a record without a path: {text[:80]!r}") from error
    parts = found.split(b"/")
    if b"\0" in found or not {b"", b".", b"..", MARK.encode()}.isdisjoint(parts):
        raise StandpipeError(f"{path} has a record whose path leads out of its folder: {shown(found)}")
    return bytes(found)


def _created(path: bytes) -> int:
    """Create a file, and the folders above it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 (bytes)
        return os.open(path, flags, 0o644)


def _damaged(path: Path, name: bytes) -> StandpipeError:
    return StandpipeError(
        f"{path} is damaged: {name.decode()} has changed; standpipe verify lists all such members"
    )
