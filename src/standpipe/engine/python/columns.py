"""Many samples of a dataset at once, field by field: nothing is done for each but what the dataset itself does.

Only where a sample is nothing but what the dataset gives. What doesn't fit, or fails, is left to the path that makes
one sample after another, which names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from standpipe import _native
from standpipe.engine.rows import Rows
from standpipe.engine.watchdog.board import TOGETHER, Heartbeat
from standpipe.spec import AnyArray
from standpipe.system.faults import FAULTY, faultpoint

Column = Sequence[Any] | AnyArray  # (samples, …): one field's values
Columns = Mapping[str, Column]


class HasColumns(Protocol):
    """A dataset that gives many samples at once."""

    def __getcolumns__(self, indices: Iterable[int]) -> Columns:
        """The samples of these records, field by field; ``indices`` is asked for each when its turn comes."""


class Uneven(Exception):
    """Samples don't fit the slot as they are."""


def has_columns(dataset: Any) -> TypeGuard[HasColumns]:
    """Return True if a dataset can give many samples at once."""
    return hasattr(dataset, "__getcolumns__")


def in_turn(indices: list[int], first: int, heartbeat: Heartbeat) -> Iterator[int]:
    """Give ``indices``, and write down that the row of each begins, from ``first`` on; at their end, all together."""
    rows = _native.in_turn(indices, first, heartbeat, TOGETHER)
    return map(_passed, rows) if FAULTY else rows


def _passed(index: int) -> int:
    faultpoint("worker.row", index)
    return index


def samples_of(columns: Columns, number: int) -> list[dict[str, Any]]:
    """Return samples, each a dict by field, from columns of ``number`` values. Raises ``Uneven``."""
    if any(len(values) != number for values in columns.values()):
        raise Uneven
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def write_columns(columns: Columns, rows: Rows, first: int, stop: int) -> None:
    """Write the values of rows [first, stop). Raises ``Uneven``."""
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
