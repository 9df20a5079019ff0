"""Read records of one size from a file, by position."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.errors import PlanError, StandpipeError
from standpipe.source._index_file import read_fully
from standpipe.source._paths import open_regular, reading, shown
from standpipe.spec import Int64Array, UInt8Array

MOST_AT_ONCE = 512  # buffers of one preadv call; systems allow at least 1,024
DIGEST_PIECES, DIGEST_PIECE_BYTES = 16, 1 << 16  # number and size of the pieces of each file in the digest
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class FixedFile:
    """A file of records of one size, in the state of its opening.

    begin    offset of the first record, in bytes
    records  number of records
    stamp    size, modification and change time in ns, inode
    sample   digest of up to 1 MiB of the file
    """

    path: bytes
    begin: int
    records: int
    stamp: tuple[int, int, int, int]
    sample: str

    def read_into(
        self, memory: UInt8Array, rows: Int64Array, numbers: Int64Array, *, at: int, step: int
    ) -> None:
        """Read a range of bytes from each of the records ``numbers``, (n,) ascending, into ``rows``, (n,), of
        ``memory``.

        at    offset of the range in a record; its length is a row of ``memory``
        step  size of a record in bytes

        Neighbours are read together. Raises ``StandpipeError`` if the file can't be read, or has changed.
        """
        size = memory.shape[1]
        follows = (np.diff(numbers) == 1) & (size == step)
        follows[MOST_AT_ONCE - 1 :: MOST_AT_ONCE] = False
        starts = np.flatnonzero(np.r_[True, ~follows])
        begins = (self.begin + numbers[starts] * step + at).tolist()
        views = memory.reshape(-1).data
        places = [views[row * size : (row + 1) * size] for row in rows.tolist()]
        try:
            with open_regular(self.path) as file:
                descriptor = file.fileno()
                if _stamp(os.fstat(descriptor)) != self.stamp:
                    raise StandpipeError(
                        f"{shown(self.path)} has changed since the loader was planned; plan again"
                    )
                _advise(descriptor, begins, size)
                for start, stop, begin in zip(starts, [*starts[1:], len(numbers)], begins, strict=True):
                    _read(descriptor, places[start:stop], begin)
        except (OSError, EOFError) as error:
            raise StandpipeError(f"can't read records of {shown(self.path)}: {error}") from error


def _read(descriptor: int, places: list[memoryview], begin: int) -> None:
    """Fill the equally long buffers ``places``, one after another, with the file's bytes from offset
    ``begin`` on.
    """
    if os.preadv(descriptor, places, begin) == len(places) * len(places[0]):
        return
    for number, place in enumerate(places):  # the file is too short, or the system read less than was asked
        place[:] = read_fully(descriptor, len(place), begin + number * len(place))


def _advise(descriptor: int, begins: list[int], size: int) -> None:
    """Advise the kernel to start reading ``size`` bytes at each offset, so that slow storage reads in
    parallel.
    """
    if len(begins) > 1 and hasattr(os, "posix_fadvise"):
        for begin in begins:
            os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_WILLNEED)


def _stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def opened_file(path: bytes, begin: int, record: np.dtype[Any]) -> FixedFile:
    """Open a file of records. Raises ``PlanError`` if its size isn't a multiple of a record's."""
    with open_regular(path) as file, reading(path):
        descriptor = file.fileno()
        status = os.fstat(descriptor)
        size, each = status.st_size, record.itemsize
        records, over = divmod(size - begin, each)
        is_gzip = os.pread(descriptor, len(GZIP), 0) == GZIP
        if is_gzip and (path.endswith((b".gz", b".tgz")) or over or records < 1):
            raise PlanError(
                f"{shown(path)} is compressed with gzip; decompress it first, for example with gunzip"
            )
        if size <= begin:
            raise PlanError(
                f"{shown(path)} has {size:,} bytes, so no record follows its header of {begin:,} bytes"
            )
        if over:
            raise PlanError(
                f"{shown(path)} has {size:,} bytes: after a header of {begin:,} bytes and {records:,} records of "
                f"{each:,} bytes, {over:,} bytes are left; the file is cut, or fields= describes another format"
            )
        return FixedFile(path, begin, records, _stamp(status), _sample(descriptor, size))


def _sample(descriptor: int, size: int) -> str:
    """Return a digest of pieces of a file, evenly spaced from its first to its last byte."""
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    digest = blake2b(f"{size} bytes;".encode(), digest_size=16)
    last = max(size - DIGEST_PIECE_BYTES, 0)
    for begin in sorted({last * piece // (DIGEST_PIECES - 1) for piece in range(DIGEST_PIECES)}):
        digest.update(read_fully(descriptor, min(DIGEST_PIECE_BYTES, size - begin), begin))
    return digest.hexdigest()
