"""Write instances into an index: ragged columns, of which one instance is one value each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from standpipe.contracts import RaggedRows
from standpipe.source.index.file import (
    BYTES_AT_ONCE,
    ENDS,
    POINT_BYTES,
    SHAPE_ENDS,
    SHAPES,
    Column,
    instance_section,
)
from standpipe.source.index.writer import IndexWriter
from standpipe.spec import AnyArray, Int64Array

SHAPES_AT_ONCE = 1 << 12


def write_instances(
    writer: IndexWriter, ends: Int64Array, values: Mapping[str, AnyArray]
) -> dict[str, Column]:
    """Write ragged columns, and return their descriptions by name.

    ends    (records,) int64: end of each record's instances among all
    values  (instances, …) of each column
    """
    writer.add(ENDS, ends.astype("<u8"))
    columns = {}
    for name, array in values.items():
        dtype = array.dtype.newbyteorder("<")
        columns[name] = Column(dtype.str, array.shape[1:], "")
        step = max(1, BYTES_AT_ONCE // columns[name].spec.row_bytes)
        for start in range(0, max(1, len(array)), step):
            writer.add(instance_section(name), np.ascontiguousarray(array[start : start + step], dtype))
    return columns


def write_shapes(writer: IndexWriter, shapes: RaggedRows, numbers: Int64Array) -> None:
    """Write the shapes of the next instances.

    shapes   points (total, 2) float32, and the end of each shape's
    numbers  (instances,) int64: the shape of each instance
    """
    for start in range(0, max(1, len(numbers)), SHAPES_AT_ONCE):
        found = shapes.take(numbers[start : start + SHAPES_AT_ONCE])
        before = writer.bytes_of(SHAPES) // POINT_BYTES
        writer.add(SHAPE_ENDS, (before + found.ends).astype("<u8"))
        writer.add(SHAPES, found.values.astype("<f4"))
