"""Write instances into an index: ragged columns, of which one instance is one value each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from standpipe.source.index.file import BYTES_AT_ONCE, ENDS, Column, instance_section
from standpipe.source.index.writer import IndexWriter
from standpipe.spec import AnyArray, Int64Array


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
