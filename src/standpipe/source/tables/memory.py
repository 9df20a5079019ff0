"""Find the places of Arrow tables' buffers in mapped files, and read single values of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standpipe.spec import AnyArray, Int64Array, UInt8Array

MAPS = Path("/proc/self/maps")
MAP_LINE = re.compile(rb"(\w+)-(\w+) r\S+ (\w+) \S+ [1-9]\d* +(/.*)")  # begin, end, offset, inode, path
DELETED = b" (deleted)"
ESCAPED = rb"\012"  # a line end in a path


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file, or a part of one, in this process's memory.

    begin, stop  addresses
    offset       the place of ``begin`` in the file
    """

    path: bytes
    begin: int
    stop: int
    offset: int = 0


def mapped_files() -> list[MappedFile]:
    """Return all files that are mapped into this process and still exist; none if the system doesn't list them."""
    lines = MAPS.read_bytes().splitlines() if MAPS.exists() else []
    return [
        MappedFile(found[4].replace(ESCAPED, b"\n"), int(found[1], 16), int(found[2], 16), int(found[3], 16))
        for found in map(MAP_LINE.fullmatch, lines)
        if found is not None and not found[4].endswith(DELETED)
    ]


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a column's chunks, each in a mapped file or in memory of its own.

    arrays  memory by number: a whole mapped file, by its place among ``Buffers.files``, or a buffer's own
    which   (chunks,) int64: the number of each chunk's memory
    at      (chunks,) int64: the place there of each chunk's first value
    """

    arrays: Mapping[int, AnyArray]
    which: Int64Array
    at: Int64Array

    def take(self, chunks: Int64Array, rows: Int64Array) -> AnyArray:
        """Return the values of rows, (n,).

        chunks, rows  (n,) int64: the chunk of each, and its number in the chunk
        """
        which, places = self.which[chunks], self.at[chunks] + rows
        found = np.empty(len(rows), self.dtype)
        for number in np.unique(which).tolist():
            mine = which == number
            found[mine] = self.arrays[number][places[mine]]
        return found

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of a value."""
        return next(iter(self.arrays.values())).dtype


@dataclass(frozen=True, slots=True)
class Bits:
    """Bits of a column's chunks: which rows have a value, or values that are True or False.

    first  (chunks,) int64: the number of each chunk's first bit
    known  (chunks,) bool: False for chunks whose bits are all 1
    """

    values: Values
    first: Int64Array
    known: NDArray[np.bool_]
    dtype = np.dtype(np.bool_)

    def take(self, chunks: Int64Array, rows: Int64Array) -> NDArray[np.bool_]:
        """Return the bits of rows, (n,) bool; arguments as for ``Values.take``."""
        found = np.ones(len(rows), np.bool_)
        some = np.flatnonzero(self.known[chunks])
        if len(some):
            chunks, numbers = chunks[some], self.first[chunks[some]] + rows[some]
            found[some] = np.right_shift(self.values.take(chunks, numbers >> 3), numbers & 7) & 1
        return found


@dataclass(frozen=True, slots=True)
class ByteStrings:
    """Byte strings of a column's chunks.

    offsets  the limits of the strings in a chunk's bytes
    sizes    (chunks,) int64: the number of a chunk's bytes
    valid    which rows aren't null
    indices  the number of each row's string, if a chunk has only different ones
    counts   (chunks,) int64: the number of a chunk's different strings
    """

    offsets: Values
    data: Values
    sizes: Int64Array
    valid: Bits
    indices: Values | None
    counts: Int64Array

    def ranges(self, chunks: Int64Array, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the number of each row's memory, its first byte there, and its length, or -1 for null; (n,) int64.

        A row whose limits can't be is null, so that no bytes of others are read.
        """
        valid = self.valid.take(chunks, rows)
        if self.indices is not None:
            rows = self.indices.take(chunks, rows).astype(np.int64)
            valid &= (rows >= 0) & (rows < self.counts[chunks])
            rows = np.where(valid, rows, 0)
        begins, ends = (self.offsets.take(chunks, each).astype(np.int64) for each in (rows, rows + 1))
        valid &= (begins >= 0) & (begins <= ends) & (ends <= self.sizes[chunks])
        return (
            self.data.which[chunks],
            self.data.at[chunks] + np.where(valid, begins, 0),
            np.where(valid, ends - begins, -1),
        )

    def read(self, which: Int64Array, at: Int64Array, lengths: Int64Array) -> tuple[UInt8Array, Int64Array]:
        """Return the bytes of strings, one after another, and the end of each; arguments as from ``ranges``."""
        sizes = np.maximum(lengths, 0)
        places = zip(which.tolist(), at.tolist(), (at + sizes).tolist(), strict=True)
        arrays = self.data.arrays
        found = [arrays[number][begin:end].tobytes() for number, begin, end in places if begin < end]
        return np.frombuffer(b"".join(found), np.uint8), np.cumsum(sizes)


class Buffers:
    """The mapped files in which Arrow tables have their buffers.

    files  sorted by address
    owner  the table, which keeps the files mapped

    ``offsets`` has the place of each one's first byte in its file, (files,) int64. ``nbytes`` is the memory that the
    places of all columns take, with the values that aren't in mapped files.
    """

    def __init__(self, files: Sequence[MappedFile], owner: Any) -> None:
        self.files = sorted(files, key=lambda file: file.begin)
        self.owner, self.nbytes = owner, 0
        self._begins, self._stops, self.offsets = (
            np.array([getattr(file, name) for file in self.files], np.int64)
            for name in ("begin", "stop", "offset")
        )

    def values(self, buffers: Sequence[Any], firsts: Sequence[int], dtype: Any) -> Values:
        """Return the values of one column, given each chunk's buffer, or None, and its first value there."""
        import pyarrow as pa

        dtype = np.dtype(dtype)
        nothing = pa.py_buffer(bytes(2 * dtype.itemsize))  # for a chunk without rows or bytes
        held = [nothing if each is None or each.size == 0 else each for each in buffers]
        addresses, sizes = (
            np.array([getattr(each, name) for each in held], np.int64) for name in ("address", "size")
        )
        which = np.searchsorted(self._begins, addresses, side="right") - 1
        begins, stops = (np.append(each, 0)[which] for each in (self._begins, self._stops))
        inside = (which >= 0) & (addresses + sizes <= stops) & ((addresses - begins) % dtype.itemsize == 0)
        at = np.where(inside, (addresses - begins) // dtype.itemsize, 0) + np.array(firsts, np.int64)
        arrays = {}
        for number in np.unique(which[inside]).tolist():
            file = self.files[number]
            arrays[number] = _viewed(pa.foreign_buffer(file.begin, file.stop - file.begin, self.owner), dtype)
        alone: dict[tuple[int, int], int] = {}
        for chunk in np.flatnonzero(~inside).tolist():
            number = alone.setdefault((held[chunk].address, held[chunk].size), len(self.files) + len(alone))
            which[chunk] = number
            if number not in arrays:
                arrays[number] = _viewed(held[chunk], dtype)
        self.nbytes += which.nbytes + at.nbytes + sum(arrays[number].nbytes for number in alone.values())
        return Values(arrays, which, at)

    def bits(self, arrays: Sequence[Any], place: int = 0) -> Bits:
        """Return bits of arrays. ``place``: of their buffer; 0: those that say which rows aren't null."""
        known = [place > 0 or each.null_count > 0 for each in arrays]
        buffers = [each.buffers()[place] if has else None for each, has in zip(arrays, known, strict=True)]
        first = np.array([each.offset for each in arrays], np.int64)
        return Bits(self.values(buffers, [0] * len(arrays), np.uint8), first, np.array(known, np.bool_))

    def texts(self, arrays: Sequence[Any]) -> ByteStrings:
        """Return the byte strings of arrays: binary, string, the large ones of both, and dictionaries of them."""
        import pyarrow as pa

        valid, indices = self.bits(arrays), None
        if pa.types.is_dictionary(arrays[0].type):
            indices = self.numbers([each.indices for each in arrays])
            arrays = [each.dictionary for each in arrays]
        large = pa.types.is_large_binary(arrays[0].type) or pa.types.is_large_string(arrays[0].type)
        buffers = [each.buffers() for each in arrays]
        firsts = [each.offset for each in arrays]
        offsets = self.values([each[1] for each in buffers], firsts, np.int64 if large else np.int32)
        data = self.values([each[2] for each in buffers], [0] * len(arrays), np.uint8)
        sizes = np.array([0 if each[2] is None else each[2].size for each in buffers], np.int64)
        data = replace(data, which=np.where(sizes > 0, data.which, offsets.which))
        counts = np.array([len(each) for each in arrays], np.int64)
        return ByteStrings(offsets, data, sizes, valid, indices, counts)

    def numbers(self, arrays: Sequence[Any]) -> Values:
        """Return the values of arrays of numbers."""
        buffers = [each.buffers()[1] for each in arrays]
        return self.values(buffers, [each.offset for each in arrays], arrays[0].type.to_pandas_dtype())

    def versions(self, numbers: Int64Array) -> Int64Array:
        """Return the sizes in bytes and modification times in nanoseconds of files, (files, 2) int64.

        numbers  the files to look at; -1 stands for others
        """
        found = np.full((len(self.files), 2), -1)
        for number in np.unique(numbers).tolist():
            info = os.stat(self.files[number].path)  # noqa: PTH116 (bytes)
            found[number] = info.st_size, info.st_mtime_ns
        return found


def _viewed(buffer: Any, dtype: np.dtype[Any]) -> AnyArray:
    return np.frombuffer(buffer, dtype, buffer.size // dtype.itemsize)
