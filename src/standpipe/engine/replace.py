"""Replace the bad samples of a batch by other samples of the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Records
from standpipe.engine.canvases import Canvases
from standpipe.engine.moves import Tracer
from standpipe.engine.rows import END, located
from standpipe.engine.workers import Assignment, Failure, Substitutes, error_of, raised_for
from standpipe.errors import SampleError, StandpipeError
from standpipe.order import substitute
from standpipe.plan.plan import Plan
from standpipe.spec import Int64Array, Replace
from standpipe.stats.bad_samples import BadSample, Ledger

HOW_TO_REPLACE = "to replace bad samples: .on_error(sp.Replace(at_most=0.001))"
MOST_ATTEMPTS = 100  # replacements of one row; it bounds the wait if ``at_most`` allows a wholly bad epoch


@dataclass(slots=True)
class BatchRecords:
    """The records from which one batch is made, with replacements for bad records.

    ledger      the limit of bad samples
    assignment  the slot to fill, and the batch's first records
    valid       (rows,) bool: False for rows that only pad the batch
    tracer      repeats what transforms draw for an image; None if nobody needs it
    bad         the bad samples that were replaced, in order
    error       the error of the last bad sample; None without one
    """

    plan: Plan
    ledger: Ledger
    assignment: Assignment
    valid: NDArray[np.bool_]
    tracer: Tracer | None = None
    bad: list[BadSample] = field(default_factory=list)
    error: SampleError | None = None
    _now: dict[int, tuple[Records, int, int]] = field(default_factory=dict)
    _left_out: frozenset[int] = frozenset()
    _lost: tuple[Failure, ...] = ()

    def placed(self) -> Assignment:
        """Return the first assignment with the places of its rows, without pictures that are too large for them."""
        first = self.assignment
        return self._place(Canvases.of(self.plan, first.at.epoch, first.traced))

    def move(self, assignment: Assignment, failure: Failure) -> Assignment:
        """Return an assignment that makes the batch again in another slot, without the failed row.

        The assignment also leaves out rows that were replaced before. When all other rows are made,
        ``substitutes`` returns the records for the rows that were left out.

        assignment  the batch in the new slot
        """
        self._left_out = frozenset(self._now)
        self._lost = (*self._lost, failure)
        self.assignment = replace(assignment, without=self._left_out | {each.row for each in self._lost})
        return self.assignment

    @property
    def indices(self) -> Int64Array:
        """The present record of each row, (rows,) int64."""
        return np.array([self._index(row) for row in range(len(self.assignment.positions))], np.int64)

    def trace(self, records: Records) -> None:
        """Find what transforms do to the images of all rows. ``records``: their instances, and images' sizes."""
        if self.tracer is None:
            return
        at, positions = self.assignment.at, self.assignment.positions
        attempts = np.array([self._attempt(row) for row in range(len(positions))])
        traced = self.tracer.trace(at.epoch, records, positions, attempts)
        self.assignment = replace(self.assignment, traced=traced)

    def error_of(self, failures: Sequence[Failure]) -> StandpipeError | None:
        """Return the error of the failed row with the lowest number, or None without failures."""
        failures = [*self._lost, *failures]
        if not failures:
            return None
        first = min(failures, key=lambda failure: failure.row)
        return raised_for(first, *self._record(first.row), self.plan.source)

    def substitutes(self, failures: Sequence[Failure]) -> Substitutes | None:
        """Return records for rows that failed or were left out; None if there are none or a row can't be replaced.

        Raises ``TooManyBadSamples`` if the batch has more bad samples than ``Replace`` allows for an epoch.
        """
        failures = [*self._lost, *failures]
        failed = {failure.row: failure for failure in failures}
        rows = np.array(sorted({*failed, *self._left_out}))
        policy = self.plan.pipeline.bad
        if not isinstance(policy, Replace) or not len(rows) or not all(map(is_replaced, failures)):
            return None
        attempts = np.array([self._attempt(row) + (row in failed) for row in rows.tolist()])
        if attempts.max() > MOST_ATTEMPTS:
            return None
        indices = [
            self._substitute(failed[row]) if row in failed else self._index(row) for row in rows.tolist()
        ]
        self._left_out, self._lost = frozenset(), ()
        self.assignment = replace(self.assignment, without=frozenset())
        records = located(self.plan, np.array(indices))
        for number, row in enumerate(rows.tolist()):
            self._now[row] = records, number, int(attempts[number])
        if self.error is not None:
            self.ledger.check(self.bad, self.error)
        self.assignment.views["index"][rows] = indices
        if self.tracer is not None and self.assignment.traced is not None and records.sizes is not None:
            positions = self.assignment.positions[rows]
            traced = self.tracer.trace(self.assignment.at.epoch, records, positions, attempts)
            self.assignment = replace(self.assignment, traced=self.assignment.traced.with_rows(rows, traced))
        return self._placed_again(rows, records, attempts)

    def _placed_again(self, rows: Int64Array, records: Records, attempts: Int64Array) -> Substitutes:
        """Return these substitutes with the places of their rows, without pictures that are too large for them.

        Where other pictures need another canvas, all rows of the batch are made again: it is the same however its
        records were found.
        """
        old = self.assignment
        canvases = Canvases.of(self.plan, old.at.epoch, old.traced)
        if old.canvases is not None and canvases.shapes != old.canvases.shapes:
            rows = np.arange(len(old.positions))
            records = located(self.plan, np.array([self._index(row) for row in rows.tolist()]))
            attempts = np.array([self._attempt(row) for row in rows.tolist()])
        new = self._place(canvases)
        some = np.flatnonzero(~np.isin(rows, [*new.without]))
        traced = None if old.traced is None else old.traced.take(rows[some])
        return Substitutes(new, rows[some], records.take(some), attempts[some], traced)

    def _place(self, canvases: Canvases) -> Assignment:
        self._lost = tuple(Failure(row, "batch", reason) for row, reason in canvases.too_large.items())
        self.assignment = replace(self.assignment, canvases=canvases, without=frozenset(canvases.too_large))
        return self.assignment

    def _substitute(self, failure: Failure) -> int:
        """Return the record that replaces a failed row, and record the bad sample."""
        row, at = failure.row, self.assignment.at
        self.error = error = self._error(failure)
        attempt = self._attempt(row)
        position = int(self.assignment.positions[row])
        index = substitute_of(self.plan, at.epoch, position, attempt + 1, error.index)
        self.bad.append(
            BadSample(
                epoch=at.epoch,
                position=position,
                attempt=attempt,
                index=error.index,
                path=error.path,
                offset=error.offset,
                place=error.place,
                reason=error.reason,
                replacement=index,
                counts=bool(self.valid[row]),
            )
        )
        return index

    def _attempt(self, row: int) -> int:
        return self._now[row][2] if row in self._now else 0

    def _error(self, failure: Failure) -> SampleError:
        return error_of(failure, *self._record(failure.row), self.plan.source)

    def _index(self, row: int) -> int:
        records, number = self._record(row)
        return int(records.index[number])

    def _record(self, row: int) -> tuple[Records, int]:
        """Return the ``Records`` that contain the current record of a row, and the record's number in them."""
        return self._now[row][:2] if row in self._now else (self.assignment.records, row)


def advise(error: StandpipeError, plan: Plan, failures: Sequence[Failure]) -> StandpipeError:
    """Add a note to ``error`` about how to replace bad samples, or why replacing them failed; return ``error``.

    Errors of streams, and of failures that no other sample can replace, get no note.
    """
    if plan.samples.stream is not None or not all(map(is_replaced, failures)):
        return error
    replaced = isinstance(plan.pipeline.bad, Replace)
    error.add_note(f"{MOST_ATTEMPTS} replacement samples were bad too" if replaced else HOW_TO_REPLACE)
    return error


def substitute_of(plan: Plan, epoch: int, position: int, attempt: int, index: int) -> int:
    """Return the number of the record that replaces record ``index``, as ``order.substitute`` computes it.

    position  the sample's position in the epoch
    attempt   1 for the first replacement of the sample, 2 for the second one
    """
    return substitute(
        plan.order, seed=plan.pipeline.seed, epoch=epoch, position=position, attempt=attempt, index=index
    )


def is_replaced(failure: Failure) -> bool:
    """Return True if another sample can replace the failed one."""
    return not failure.whole and failure.place not in ("cancelled", END)
