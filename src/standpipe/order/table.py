"""Lists of integers with one value per record, in memory while they are small, else in an unnamed file."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, Int64Array
from standpipe.system.files import read_all, write_all

IN_MEMORY_BYTES = 8 << 20  # a larger table is in a file
ROWS_AT_ONCE = 1 << 18  # of a pass over a file: 4 MiB of pairs
DIGIT_BITS = 11  # 2,048 runs to write per pass and chunk


class Table:
    """A list of n integers that is built from a stream, and read by index from any thread.

    Up to 8 MiB are kept in memory. A larger table is in an unnamed file in the temp folder, which disappears
    with the table or the process. The file is read by position, and not mapped.
    """

    __slots__ = ("_dtype", "_file", "_length", "_values")

    def __init__(self, values: AnyArray | None, file: _File | None, length: int, dtype: np.dtype) -> None:
        self._values, self._file, self._length, self._dtype = values, file, length, dtype

    @classmethod
    def from_chunks(cls, chunks: Iterable[AnyArray], *, below: int | None = None) -> Table:
        """Build a table from arrays of integers, which are joined.

        below  an upper limit: all values are in [0, below); up to 2^31 a value takes 4 bytes instead of 8

        Raises ``PlanError`` if the temp folder has no room.
        """
        dtype = np.dtype(np.int32 if below is not None and below <= 1 << 31 else np.int64)
        parts: list[AnyArray] = []
        file: _File | None = None
        length = 0
        for chunk in chunks:
            parts.append(np.array(chunk, dtype))
            length += len(chunk)
            if length * dtype.itemsize > IN_MEMORY_BYTES:
                file = file or _File()
                for part in parts:
                    file.append(part)
                parts.clear()
        if file is not None:
            for part in parts:
                file.append(part)
            return cls(None, file, length, dtype)
        return cls(np.concatenate([np.empty(0, dtype), *parts]), None, length, dtype)

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the table takes; 0 if it is in a file."""
        return 0 if self._values is None else self._values.nbytes

    def at(self, places: Int64Array) -> Int64Array:
        """Return the values at ``places``, (m,) int64, in the order of ``places``.

        Raises ``IndexError`` for a place outside [0, n).
        """
        if len(places) == 0:
            return np.empty(0, np.int64)
        if int(places.view(np.uint64).max()) >= self._length:  # as unsigned, a negative place is too large
            raise IndexError(f"places {places.min()} to {places.max()} of a table of {self._length}")
        if self._file is None:
            assert self._values is not None
            return self._values[places].astype(np.int64)
        return self._file.rows(places, self._length, self._dtype).astype(np.int64)

    def read(self, start: int, stop: int) -> Int64Array:
        """Return the values at places [start, stop), (stop − start,) int64."""
        if not 0 <= start <= stop <= self._length:
            raise IndexError(f"places [{start}, {stop}) of a table of {self._length}")
        if self._file is None:
            assert self._values is not None
            return self._values[start:stop].astype(np.int64)
        values = np.empty(stop - start, self._dtype)
        self._file.read(values, start * self._dtype.itemsize)
        return values.astype(np.int64)


def sorted_by(keys: Iterable[AnyArray]) -> Table:
    """Return the places that sort keys in ascending order, like a stable ``argsort``.

    keys  arrays of integers, which are joined

    Many keys are sorted by a radix sort through files of 16 bytes per key, in constant memory.
    """
    table, _ = _sorted(keys, 0)
    return table


def grouped_by(keys: Iterable[AnyArray], num_groups: int) -> tuple[Int64Array, Table]:
    """Return the groups' sizes, (num_groups,) int64, and a table of the keys' places, group after group.

    keys        arrays of group numbers in [0, num_groups), which are joined; a group keeps their order
    num_groups  number of groups; each takes 8 bytes of memory
    """
    table, counts = _sorted(keys, num_groups)
    return counts, table


def _sorted(keys: Iterable[AnyArray], num_groups: int) -> tuple[Table, Int64Array]:
    counts = np.zeros(num_groups, np.int64)

    def counted() -> Iterator[Int64Array]:
        for chunk in keys:
            values = np.asarray(chunk).astype(np.int64)
            if num_groups:
                counts[:] += np.bincount(values, minlength=num_groups)
            yield values

    table = Table.from_chunks(counted())
    if table._file is None:
        places = np.argsort(table.read(0, len(table)), kind="stable")
        return Table.from_chunks([places], below=max(len(places), 1)), counts
    return _sorted_through_files(table), counts


def _sorted_through_files(keys: Table) -> Table:
    """Sort many keys as ``sorted_by`` does: one stable pass over all keys for each digit, the lowest digit
    first.
    """
    lowest, highest = _limits(keys)
    pairs = _File()
    for start, stop in _ranges(len(keys)):
        distance = keys.read(start, stop) - np.int64(lowest)  # wraps around, and is right as unsigned
        pairs.append(np.column_stack([distance, np.arange(start, stop)]))
    for shift in range(0, (highest - lowest).bit_length(), DIGIT_BITS):
        pairs = _one_pass(pairs, len(keys), shift)
    places = (_pairs(pairs, start, stop)[:, 1] for start, stop in _ranges(len(keys)))
    return Table.from_chunks(places, below=len(keys))


def _one_pass(pairs: _File, number: int, shift: int) -> _File:
    """Return the ``number`` pairs, sorted stably by one digit of each pair's first value: 11 bits from
    ``shift`` on.
    """
    counts = np.zeros(1 << DIGIT_BITS, np.int64)
    for start, stop in _ranges(number):
        counts += np.bincount(_digits(_pairs(pairs, start, stop), shift), minlength=len(counts))
    at = np.cumsum(counts) - counts
    passed = _File()
    for start, stop in _ranges(number):
        chunk = _pairs(pairs, start, stop)
        digits = _digits(chunk, shift)
        order = np.argsort(digits, kind="stable")
        chunk, digits = chunk[order], digits[order]
        begins = np.flatnonzero(np.append(True, digits[1:] != digits[:-1]))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(digits)], strict=True):
            digit = digits[begin]
            passed.write(chunk[begin:end], int(at[digit]) * chunk.itemsize * 2)
            at[digit] += end - begin
    return passed


def _digits(pairs: Int64Array, shift: int) -> NDArray[np.uint16]:
    first = np.ascontiguousarray(pairs[:, 0]).view(np.uint64)
    return ((first >> np.uint64(shift)) & np.uint64((1 << DIGIT_BITS) - 1)).astype(np.uint16)


def _pairs(file: _File, start: int, stop: int) -> Int64Array:
    pairs = np.empty((stop - start, 2), np.int64)
    file.read(pairs, start * 16)
    return pairs


def _limits(keys: Table) -> tuple[int, int]:
    """Return the lowest and the highest key."""
    limits = [
        (int(chunk.min()), int(chunk.max())) for chunk in (keys.read(*each) for each in _ranges(len(keys)))
    ]
    return min(low for low, _ in limits), max(high for _, high in limits)


def _ranges(number: int) -> Iterator[tuple[int, int]]:
    for start in range(0, number, ROWS_AT_ONCE):
        yield start, min(start + ROWS_AT_ONCE, number)


class _File:
    """An unnamed temporary file. It is closed, and so deleted, when this object is garbage-collected."""

    __slots__ = ("__weakref__", "_fd", "_size_bytes")

    def __init__(self) -> None:
        import tempfile  # loads OpenSSL, which importing standpipe needn't

        with _writing(), tempfile.TemporaryFile(prefix="standpipe-") as file:
            self._fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self._size_bytes = 0

    def append(self, values: AnyArray) -> None:
        self.write(values, self._size_bytes)
        self._size_bytes += values.nbytes

    def write(self, values: AnyArray, at_byte: int) -> None:
        with _writing():
            write_all(self._fd, np.ascontiguousarray(values).reshape(-1).view(np.uint8).data, at_byte)

    def read(self, out: AnyArray, at_byte: int) -> None:
        """Fill ``out``, in C order, with the file's bytes from offset ``at_byte`` on."""
        read_all(self._fd, out.reshape(-1).view(np.uint8).data, at_byte)

    def rows(self, places: Int64Array, count: int, dtype: np.dtype) -> AnyArray:
        """Return the values at ``places`` of a file with ``count`` values."""
        section = (self._fd, 0, count * dtype.itemsize, None)
        return _native.packed_rows(section, dtype.itemsize, places).view(dtype)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PlanError(
            f"the order needs a file in the temp folder, and it can't be written: {error.strerror}; "
            "set TMPDIR to a folder with room"
        ) from error
