"""Get many samples of a dataset at once, field by field, which takes less time than one sample after another.

The dataset has a method ``__getcolumns__(indices)`` for that. It returns the samples of these records, field by field,
and takes each index only when its sample begins, as this writes the heartbeat. This works only if no transform or check
follows the dataset. If a sample doesn't fit the slot, or the dataset raises an error, all samples of the task are made
one by one, so that the error names the sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.engine.rows import BatchRows
from standpipe.engine.watchdog.board import TOGETHER, Heartbeat
from standpipe.spec import AnyArray
from standpipe.system.faults import FAULTY, faultpoint

Column = Sequence[Any] | AnyArray  # (samples, …): one field's values
Columns = Mapping[str, Column]


class Uneven(Exception):
    """Raised if samples from ``__getcolumns__`` don't fit the slot: another field, shape, dtype or number."""


def in_turn(indices: list[int], first: int, heartbeat: Heartbeat) -> Iterator[int]:
    """Yield ``indices``, and write into the heartbeat that the row of each one begins, from row ``first`` on.

    After the last one, the heartbeat says ``TOGETHER``: the dataset works on all rows.
    """
    rows = _native.in_turn(indices, first, heartbeat, TOGETHER)
    return map(_passed, rows) if FAULTY else rows


def _passed(index: int) -> int:
    faultpoint("worker.row", index)
    return index


def samples_of(columns: Columns, number: int) -> list[dict[str, Any]]:
    """Return ``number`` samples as dicts. Raises ``Uneven`` if a column doesn't have ``number`` values."""
    if any(len(values) != number for values in columns.values()):
        raise Uneven
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def write_columns(columns: Columns, rows: BatchRows, first: int, stop: int) -> None:
    """Write columns into rows [first, stop) of a slot. Raises ``Uneven`` if they don't fit."""
    if len(columns) != len(rows.views) + len(rows.lists):
        raise Uneven
    for name, values in columns.items():
        if len(values) != stop - first:
            raise Uneven
        if name in rows.lists:
            rows.lists[name][first:stop] = values
        elif name in rows.views:
            _write(values, rows.views[name][first:stop])
        else:
            raise Uneven


def _write(values: Column, target: AnyArray) -> None:
    if isinstance(values, np.ndarray):
        if values.shape != target.shape or values.dtype != target.dtype:
            raise Uneven
        target[...] = values
        return
    for value, row in zip(values, target, strict=True):
        if value.shape != row.shape or value.dtype != row.dtype:
            raise Uneven
        row[...] = value
