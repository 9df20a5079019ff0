"""The source of IDX files, such as MNIST's: each has a header and one array, read by position."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.records.fixed import ImageAxes, OpenFixed, Part
from standpipe.source.records.fixed_file import GZIP, opened_file, settled_stamp
from standpipe.source.records.npy import MOST_AXES
from standpipe.spec import RESERVED
from standpipe.system.paths import AnyPath, absolute, open_for_reading, path_text, reading

# Dtypes by the third byte of a file; the format is big-endian.
DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_RECORD_BYTES = 1 << 30
SIZE_BYTES = 4  # of an axis's size in the header, and of the bytes before


class IdxFiles:
    """Records in IDX files, the format of MNIST: one file per field.

    ``IdxFiles(image="train-images-idx3-ubyte", label="train-labels-idx1-ubyte", image_axes="HW")`` is MNIST,
    with images of (28, 28, 1). All files have the same number of records. Records are read by position, a
    batch at a time. A field with one integer per record becomes int64. The digest covers fields, file sizes
    and up to 1 MiB of each file, not the paths.

    Parameters
    ----------
    image_axes : str, default "HWC"
        How the field ``image`` is stored: ``"HWC"``; ``"CHW"``, which becomes (H, W, C); ``"HW"`` for grey
        images, which become (H, W, 1).
    **fields : path
        Fields by name: an uncompressed IDX file each.

    Raises
    ------
    PlanError
        By ``plan()``, if a file is missing, compressed, damaged or not an IDX file, or if files differ in
        their number of records.

    Examples
    --------
    >>> import pathlib, struct
    >>> _ = pathlib.Path("labels.idx").write_bytes(struct.pack(">HBBI", 0, 8, 1, 3) + bytes([7, 2, 1]))
    >>> with sp.Pipeline(sp.IdxFiles(label="labels.idx")).batch(3).loader() as loader:
    ...     print(loader.peek()["label"])
    [7 2 1]
    """

    __slots__ = ("_axes", "_fields")

    def __init__(self, *, image_axes: ImageAxes = "HWC", **fields: AnyPath) -> None:
        self._axes, self._fields = image_axes, fields

    def open(self) -> OpenSource:
        """Read the files' headers, and a part of each file for the digest.

        Raises ``PlanError`` for a file that is missing, compressed, cut or not an IDX file, or that has
        another number of records than the first.
        """
        if not self._fields:
            raise PlanError(
                'IdxFiles has no fields; give it paths by name, such as IdxFiles(image="train-images-idx3-ubyte")'
            )
        parts = [_opened(name, path) for name, path in self._fields.items()]
        for part in parts[1:]:
            if part.records != parts[0].records:
                raise PlanError(
                    f"IdxFiles: {parts[0].names[0]!r} has {parts[0].records:,} records and {part.names[0]!r} has "
                    f"{part.records:,}; all files must have the same number"
                )
        return OpenFixed(tuple(parts), self._axes, None)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return f"IdxFiles({', '.join(f'{name}={path_text(path)!r}' for name, path in self._fields.items())})"


@dataclass(frozen=True, slots=True)
class Header:
    """The header of an IDX file.

    size   of the header, in bytes
    dtype  of a value
    shape  of the array, records first
    """

    size: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _opened(name: str, path: AnyPath) -> Part:
    if name == RESERVED:
        raise PlanError(
            f"IdxFiles: {name!r} is the name of a field that standpipe adds to every batch; use another name"
        )
    file = absolute(path, field=f"IdxFiles: {name!r}")
    with open_for_reading(file) as opened, reading(file):
        before = settled_stamp(opened.fileno())
        begin = os.pread(opened.fileno(), SIZE_BYTES * (1 + MOST_AXES), 0)
    header = read_header(f"IdxFiles: {name!r}, {path_text(file)},", begin)
    size, expected = before[0], header.size + math.prod(header.shape) * header.dtype.itemsize
    if size != expected:
        raise PlanError(
            f"IdxFiles: {name!r}, {path_text(file)}, has {size:,} bytes, but its header says {header.shape} "
            f"{header.dtype.name}, which makes {expected:,}: the file is {'cut' if size < expected else 'damaged'}"
        )
    if (each := (size - header.size) // header.shape[0]) > MOST_RECORD_BYTES:
        raise PlanError(
            f"IdxFiles: {name!r}, {path_text(file)}, has records of {each:,} bytes; a record may have at most 1 GiB"
        )
    record = np.dtype([(name, header.dtype, header.shape[1:])])
    return Part((replace(opened_file(file, header.size, record), stamp=before),), record)


def read_header(where: str, begin: bytes) -> Header:
    """Read the header from a file's first bytes. Raises ``PlanError``, whose message begins with ``where``."""
    if begin.startswith(GZIP):
        raise PlanError(f"{where} is compressed with gzip; decompress it first, for example with gunzip")
    if len(begin) < SIZE_BYTES or begin[:2] != b"\0\0" or begin[2] not in DTYPES:
        raise PlanError(
            f"{where} isn't an IDX file: it begins with {begin[:4].hex(' ') or 'nothing'}, but an IDX file of bytes "
            "begins with 00 00 08; for other files of fixed-size records use FixedRecords"
        )
    axes = begin[3]
    size = SIZE_BYTES * (1 + axes)
    if not 1 <= axes <= MOST_AXES or len(begin) < size:
        raise PlanError(
            f"{where} is cut or damaged: its header says {axes} axes, but ends after {len(begin)} bytes"
        )
    shape = tuple(np.frombuffer(begin, ">u4", axes, SIZE_BYTES).tolist())
    if 0 in shape:
        raise PlanError(f"{where} has the shape {shape}: it has no records, or its records are empty")
    return Header(size, np.dtype(DTYPES[begin[2]]), shape)
