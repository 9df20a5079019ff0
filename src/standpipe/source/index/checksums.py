"""Checksums of records' bytes, which an index can have."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.contracts import Files, OpenSource
from standpipe.errors import ReadError
from standpipe.source.index.store import Progress
from standpipe.spec import AnyArray, Int64Array
from standpipe.system.machine import cpu_count
from standpipe.system.paths import path_text

ROWS_AT_ONCE = 256  # records that one thread reads


@dataclass(frozen=True, slots=True)
class FieldSums:
    """The CRC-32C of a byte field of some records.

    sums    (n,) int64; -1 for a record that can't be read
    errors  an error for each of these
    """

    name: str
    files: Files
    sums: Int64Array
    errors: list[ReadError]


def read_sums(
    source: OpenSource, threads: int, on_progress: Progress | None
) -> Generator[FieldSums, None, None]:
    """Read all records in threads; yield the checksums of each byte field, block by block in the records' order.

    A record whose bytes have another checksum than the source knows is an error too.
    """
    rows = source.num_records

    def read(start: int) -> list[FieldSums]:
        indices = np.arange(start, min(start + ROWS_AT_ONCE, rows))
        return [_summed(name, files, indices) for name, files in source.locate(indices).files.items()]

    pool = ThreadPoolExecutor(threads, "standpipe checksums")
    try:
        for number, block in enumerate(pool.map(read, range(0, rows, ROWS_AT_ONCE)), 1):
            yield from block
            if on_progress is not None:
                on_progress("records", min(number * ROWS_AT_ONCE, rows), rows)
    finally:
        pool.shutdown(cancel_futures=True)


def _summed(name: str, files: Files, indices: Int64Array) -> FieldSums:
    paths, known = files.paths, (files.file_bytes, files.mtime_ns, files.crc32c)
    sums, faults = _native.crc32c_of_ranges(paths.blob, paths.ends, files.offset, files.length, *known)
    errors = [
        ReadError(
            text,
            place="read",
            index=int(indices[row]),
            path=path_text(paths[row]),
            offset=int(files.offset[row]),
        )
        for row, text in faults
    ]
    return FieldSums(name, files, sums, errors)


def checksums_of(source: OpenSource, on_progress: Progress | None) -> Iterator[tuple[str, AnyArray]]:
    """Yield the name of a byte field and the CRC-32C of the next records. Raises ``ReadError`` for the first fault."""
    with closing(read_sums(source, cpu_count(), on_progress)) as blocks:
        for each in blocks:
            if each.errors:
                raise each.errors[0]
            yield each.name, each.sums
