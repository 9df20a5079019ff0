"""Map ``.npy`` files into memory, without unpickling, and check their headers against their size."""

from __future__ import annotations

import math
import mmap
import os
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from standpipe.errors import PlanError
from standpipe.spec import AnyArray

HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}  # bytes of the number before the header that says its length
MOST_HEADER_BYTES = 10_000  # NumPy refuses longer headers, but only after reading them, up to 4 GiB
MOST_AXES = 32  # the limit of every NumPy version
NUMBER_KINDS = "biufc"
LONG_DOUBLES = "gG"  # their size depends on the platform


def mapped_npy(where: str, file: BinaryIO) -> AnyArray:
    """Map a ``.npy`` file of one array into memory, after checking its header.

    where  beginning of error messages

    Raises ``PlanError`` for a file that isn't a ``.npy`` file of numbers, or is cut.
    """
    shape, is_fortran, dtype = _header(where, file)
    check_dtype(where, dtype)
    if 0 in shape:
        raise PlanError(f"{where} has shape {shape}: it has no rows, or its rows are empty")
    offset = file.tell()
    expected_bytes = offset + math.prod(shape) * dtype.itemsize
    actual_bytes = os.fstat(file.fileno()).st_size
    if any(size < 0 for size in shape) or expected_bytes > actual_bytes:
        raise PlanError(
            f"{where} is cut: its header says {shape} {dtype}, {expected_bytes} bytes, "
            f"but it has {actual_bytes}"
        )
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    array: AnyArray = np.frombuffer(mapped, dtype, math.prod(shape), offset)
    return array.reshape(shape, order="F" if is_fortran else "C")


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
