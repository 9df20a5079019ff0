"""A set of record numbers, stored as one bit per record of the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.order.table import IN_MEMORY_BYTES, ROWS_AT_ONCE, Table
from standpipe.spec import Int64Array, UInt64Array

MOST_RECORDS = IN_MEMORY_BYTES * 8  # records
BLOCK = 512  # bits whose count is kept


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """A sorted list of record numbers, stored as bits: 9/64 of a byte per record of the source.

    words  (blocks × 8,) uint64: bit i % 64 of word i // 64 is 1 if record i is in the list
    ranks  (blocks + 1,) int64: how many records of the list are before each block of 512 records
    """

    words: UInt64Array
    ranks: Int64Array

    @classmethod
    def from_chunks(cls, chunks: Iterable[NDArray[np.bool_]], num_records: int) -> Marks:
        """Build the list from a mask over all 1 to 2^26 records, given in pieces.

        chunks  masks of 2^18 records each; the last one may be shorter
        """
        packed = np.zeros(-(-num_records // BLOCK) * (BLOCK // 8), np.uint8)
        counts = [np.zeros(1, np.int64)]
        end = 0
        for chunk in chunks:
            some = np.packbits(chunk, bitorder="little")
            packed[end : end + len(some)] = some
            end += len(some)
            counts.append(np.add.reduceat(chunk, np.arange(0, len(chunk), BLOCK), dtype=np.int64))
        words = packed.view("<u8").astype(np.uint64, copy=False)
        return cls(words, np.cumsum(np.concatenate(counts)))

    def __len__(self) -> int:
        return int(self.ranks[-1])

    def at(self, places: Int64Array) -> Int64Array:
        """Return the record numbers at ``places`` of the list, (m,) int64, in the order of ``places``.

        Raises ``IndexError`` for a place outside of the list.
        """
        return _native.marked_at(self.words, self.ranks, places)

    def chunks(self) -> Iterator[Int64Array]:
        """Yield all record numbers in ascending order, in pieces."""
        bits = self.words.astype("<u8", copy=False).view(np.uint8)
        for start in range(0, len(bits), ROWS_AT_ONCE // 8):
            some = np.unpackbits(bits[start : start + ROWS_AT_ONCE // 8], bitorder="little")
            yield start * 8 + np.flatnonzero(some)


def numbers_of(marks: Iterable[NDArray[np.bool_]], num_records: int) -> Table | Marks:
    """Return the record numbers where a mask is True: as ``Marks``, or as a ``Table`` if that is smaller or
    needed.

    marks        masks of 2^18 records each; the last one may be shorter
    num_records  number of records
    """
    if num_records > MOST_RECORDS:
        starts = range(0, num_records, ROWS_AT_ONCE)
        numbers = (start + np.flatnonzero(chunk) for start, chunk in zip(starts, marks, strict=True))
        return Table.from_chunks(numbers, below=num_records)
    marked = Marks.from_chunks(marks, num_records)
    if 4 * len(marked) > IN_MEMORY_BYTES:
        return marked
    return Table.from_chunks(marked.chunks(), below=num_records)
