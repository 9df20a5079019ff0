"""Read records of one size from a file, by position."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError, StandpipeError
from standpipe.source.index.file import read_fully
from standpipe.spec import Int64Array, UInt8Array
from standpipe.system.paths import open_for_reading, path_text, reading

DIGEST_PIECES, DIGEST_PIECE_BYTES = 16, 1 << 16  # number and size of the pieces of each file in the digest
GZIP = b"\x1f\x8b"
READ_TRIES = 3  # of a read during which the file's change time changes

Stamp: TypeAlias = tuple[int, int, int, int]  # size, modification and change time in ns, inode


@dataclass(frozen=True, slots=True)
class FixedFile:
    """A file of records of one size, in the state of its opening.

    begin    offset of the first record, in bytes
    records  number of records
    stamp    as ``settled_stamp`` returns it
    sample   digest of up to 1 MiB of the file; empty if the source doesn't need it
    """

    path: bytes
    begin: int
    records: int
    stamp: Stamp
    sample: str = ""

    def read(self, numbers: Int64Array, *, size: int, at: int = 0, step: int = 0) -> UInt8Array:
        """Read a range of bytes from each of the records ``numbers``, (n,); return (n, size).

        at, size  offset of the range in a record, and its length
        step      size of a record in bytes; 0: ``size``

        Neighbours are read together. Raises ``StandpipeError`` if the file can't be read, or has changed since it
        was opened for the plan.
        """
        step = step or size
        try:
            with open_for_reading(self.path) as file:
                before = self._unchanged(file.fileno())
                for _ in range(READ_TRIES):
                    section = (file.fileno(), self.begin + at, self.records * step - at, None)
                    data = _native.packed_rows(section, size, numbers, step)
                    after = self._unchanged(file.fileno())
                    if after == before:
                        return data.reshape(len(numbers), size)
                    before = after
        except (OSError, ValueError) as error:
            raise StandpipeError(f"can't read records of {path_text(self.path)}: {error}") from error
        raise StandpipeError(
            f"{path_text(self.path)} changes while it is read; plan again when it is complete"
        )

    def _unchanged(self, descriptor: int) -> Stamp:
        """Return the file's stamp. Raises ``StandpipeError`` if more than its change time is another one.

        Another name or mode changes that time too.
        """
        now = stamp_of(os.fstat(descriptor))
        if now[:2] + now[3:] != self.stamp[:2] + self.stamp[3:]:
            raise StandpipeError(
                f"{path_text(self.path)} has changed since the loader was planned; plan again"
            )
        return now


def settled_stamp(descriptor: int) -> Stamp:
    """Return an open file's stamp, once whatever changes the file from now on gives it another one."""
    _native.settle(descriptor)
    return stamp_of(os.fstat(descriptor))


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file with this status."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def opened_file(path: bytes, begin: int, record: np.dtype[Any]) -> FixedFile:
    """Open a file of records. Raises ``PlanError`` if its size isn't a multiple of a record's."""
    with open_for_reading(path) as file, reading(path):
        descriptor = file.fileno()
        now = settled_stamp(descriptor)
        size, each = now[0], record.itemsize
        records, over = divmod(size - begin, each)
        is_gzip = os.pread(descriptor, len(GZIP), 0) == GZIP
        if is_gzip and (path.endswith((b".gz", b".tgz")) or over or records < 1):
            raise PlanError(
                f"{path_text(path)} is compressed with gzip; decompress it first, for example with gunzip"
            )
        if size <= begin:
            raise PlanError(
                f"{path_text(path)} has {size:,} bytes, so no record follows its header of {begin:,} bytes"
            )
        if over:
            raise PlanError(
                f"{path_text(path)} has {size:,} bytes: after a header of {begin:,} bytes and {records:,} records of "
                f"{each:,} bytes, {over:,} bytes are left; the file is cut, or fields= describes another format"
            )
        return FixedFile(path, begin, records, now, _sample(descriptor, size))


def _sample(descriptor: int, size: int) -> str:
    """Return a digest of pieces of a file, evenly spaced from its first to its last byte."""
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    digest = blake2b(f"{size} bytes;".encode(), digest_size=16)
    last = max(size - DIGEST_PIECE_BYTES, 0)
    for begin in sorted({last * piece // (DIGEST_PIECES - 1) for piece in range(DIGEST_PIECES)}):
        digest.update(read_fully(descriptor, min(DIGEST_PIECE_BYTES, size - begin), begin))
    return digest.hexdigest()
