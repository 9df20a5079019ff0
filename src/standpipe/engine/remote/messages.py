"""Tasks for makers outside the trainer, and their answers. An answer's arrays can travel without being pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standpipe.engine.moves import Tracer
from standpipe.engine.rows import located
from standpipe.engine.workers import Assignment, BatchMade, Failure, Substitutes
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.spec import AnyArray, Int64Array
from standpipe.stats.counters import SlowSample


@dataclass(frozen=True, slots=True)
class Task:
    """A batch to make. The result depends on nothing else, so any maker may make it, and several may.

    epoch      the epoch
    consumed   ``Cursor.consumed`` where the batch begins
    indices    (rows,) int64: record numbers
    positions  (rows,) int64: positions in the epoch's global order
    attempts   (rows,) int64: 0; 1 and more for a record that replaces a bad one
    valid      (rows,) bool: False for padding
    """

    epoch: int
    consumed: int
    indices: Int64Array
    positions: Int64Array
    attempts: Int64Array
    valid: NDArray[np.bool_]

    @property
    def at(self) -> Cursor:
        """The cursor where the batch begins."""
        return Cursor(self.epoch, self.consumed)


@dataclass(frozen=True, slots=True)
class Answer:
    """A batch that a maker has made, or the reasons why it can't.

    arrays    (rows, …) by field, for fields that are stored in a slot
    lists     values by field, for fields that are stored outside the slot
    made      the result of the batch's functions; None without functions
    failures  the rows that can't be made; all of ``arrays`` is missing then
    counts    what the maker has counted since its last answer, by counter
    slow      samples that the maker's watchdog has logged as slow since its last answer
    """

    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    lists: Mapping[str, list[Any]] = field(default_factory=dict)
    made: BatchMade | None = None
    failures: tuple[Failure, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    slow: tuple[SlowSample, ...] = ()


def assigned(
    plan: Plan, task: Task, slot: int, views: Mapping[str, AnyArray], tracer: Tracer | None
) -> tuple[Assignment, Substitutes | None]:
    """Return the work on a task in a slot: all rows without the replaced ones, and then the latter, if there are any.

    views   the slot's fields, (rows, …) each; ``index`` and ``valid`` are written
    tracer  repeats what transforms draw for an image; None if rows are made without that
    """
    views["index"][...] = task.indices
    if "valid" in views:
        views["valid"][...] = task.valid
    replaced = np.flatnonzero(task.attempts)
    records = located(plan, task.indices)
    traced = None
    if tracer is not None:
        traced = tracer.trace(task.at, records, task.positions, task.attempts)
    whole = Assignment(slot, task.at, records, task.positions, views, traced=traced)
    if not len(replaced):
        return whole, None
    again = Substitutes(whole, replaced, records.take(replaced), task.attempts[replaced])
    return replace(whole, without=frozenset(replaced.tolist())), again
