"""Read ``.npy`` files by position, without unpickling, and check their headers against their size."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from standpipe.errors import PlanError
from standpipe.source.records.fixed_file import FixedFile, settled_stamp
from standpipe.spec import NUMBER_KINDS, AnyArray, Int64Array
from standpipe.system.paths import open_for_reading, reading

HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}  # bytes of the number before the header that says its length
MOST_HEADER_BYTES = 10_000  # NumPy refuses longer headers, but only after reading them, up to 4 GiB
MOST_AXES = 32  # the limit of every NumPy version
LONG_DOUBLES = "gG"  # their size depends on the platform


@dataclass(frozen=True, slots=True)
class NpyFile:
    """The array of a ``.npy`` file, whose rows are read by position.

    file   its rows one after another
    shape  rows first
    dtype  of a value, as stored
    """

    file: FixedFile
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all rows in bytes."""
        return len(self) * self.row_bytes

    def __getitem__(self, rows: Int64Array | slice) -> AnyArray:
        """Read rows: (n, …), read-only, as stored. Raises ``StandpipeError`` if the file has changed."""
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        data = self.file.read(numbers, size=self.row_bytes)
        array = data.view(self.dtype).reshape(len(numbers), *self.shape[1:])
        array.flags.writeable = False
        return array


def opened_npy(where: str, path: bytes) -> NpyFile:
    """Open a ``.npy`` file of one array, and check its header.

    where  beginning of error messages

    Raises ``PlanError`` for a file that isn't a ``.npy`` file of numbers in C order, or is cut.
    """
    with open_for_reading(path) as file, reading(path):
        begin_stamp = settled_stamp(file.fileno())
        shape, is_fortran, dtype = _header(where, file)
        begin = file.tell()
    check_dtype(where, dtype)
    if 0 in shape:
        raise PlanError(f"{where} has shape {shape}: it has no rows, or its rows are empty")
    expected_bytes, actual_bytes = begin + math.prod(shape) * dtype.itemsize, begin_stamp[0]
    if any(size < 0 for size in shape) or expected_bytes > actual_bytes:
        raise PlanError(
            f"{where} is cut: its header says {shape} {dtype}, {expected_bytes} bytes, "
            f"but it has {actual_bytes}"
        )
    if not shape:
        raise PlanError(f"{where} is a single value; it needs one row per record")
    if is_fortran and sum(size > 1 for size in shape) > 1:
        raise PlanError(f"{where} isn't in C order; save np.ascontiguousarray(array)")
    return NpyFile(FixedFile(path, begin, shape[0], begin_stamp), shape, dtype)


def _header(where: str, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return the shape, True for Fortran order, and the dtype from the file's header."""
    try:
        version = npy.read_magic(file)
        size = int.from_bytes(file.read(LENGTH_BYTES[version]), "little")
        if size > MOST_HEADER_BYTES:
            raise ValueError(f"a header of {size:,} bytes; at most {MOST_HEADER_BYTES:,}")
        file.seek(-LENGTH_BYTES[version], os.SEEK_CUR)
        shape, is_fortran, dtype = HEADER_READERS[version](file)
        if len(shape) > MOST_AXES or not all(type(size) is int for size in shape):
            raise ValueError(f"the shape {shape}")
    except OSError:
        raise
    except Exception as error:  # the header is a Python literal: parsing it fails in many ways
        raise PlanError(
            f"{where} isn't a .npy file of one array; make it with np.save, one array per file"
        ) from error
    return shape, is_fortran, dtype


def check_dtype(where: str, dtype: np.dtype[np.generic]) -> None:
    """Raise ``PlanError`` for a dtype that isn't a number, or whose size depends on the platform."""
    if dtype.kind in NUMBER_KINDS and dtype.char not in LONG_DOUBLES:
        return
    match dtype.kind:
        case "O":
            advice = "Python objects are never loaded; convert them to numbers"
        case "V":
            advice = "give each of its fields as an array of its own, or view it as numbers"
        case "M" | "m":
            advice = "convert it with array.astype(np.int64)"
        case "S" | "U" | "T":
            advice = "convert text to numbers, for example with np.unique(array, return_inverse=True)"
        case _:
            advice = "convert it with array.astype(np.float64)"
    raise PlanError(f"{where} has dtype {dtype}; {advice}")
