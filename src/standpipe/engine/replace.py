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
    valid       (rows,) bool: False for rows that don't count as bad: they pad the batch, or are partners of others
    tracer      repeats what transforms draw for an image; None if nobody needs it
    first       (rows,) the attempts of the first records; None: 0
    bad         the bad samples that were replaced, in order
    error       the error of the last bad sample; None without one
    records     the present record of each row
    """

    plan: Plan
    ledger: Ledger
    assignment: Assignment
    valid: NDArray[np.bool_]
    tracer: Tracer | None = None
    first: Int64Array | None = None
    bad: list[BadSample] = field(default_factory=list)
    error: SampleError | None = None
    records: Records = field(init=False)
    _attempts: Int64Array = field(init=False)  # (rows,): of ``records``
    _left_out: frozenset[int] = frozenset()
    _lost: tuple[Failure, ...] = ()
    _unread: tuple[Failure, ...] = ()  # rows of the present records whose bytes couldn't be fetched

    def __post_init__(self) -> None:
        self.records = self.assignment.records
        self._attempts = (
            np.zeros(len(self.records.index), np.int64) if self.first is None else self.first.copy()
        )

    def placed(self) -> Assignment:
        """Return the first assignment with the places of its rows, without pictures that are too large for them."""
        first = self.assignment
        return self._place(Canvases.of(self.plan, first.at, first.traced))

    def lose(self, unread: Sequence[Failure]) -> None:
        """Leave out rows whose bytes couldn't be fetched, before ``placed`` is called."""
        self._unread = tuple(unread)

    def without(self, new: Substitutes, unread: Sequence[Failure]) -> Substitutes:
        """Return replacement records without those whose bytes couldn't be fetched.

        unread  their failures, with their rows' numbers in ``new.records``
        """
        if not unread:
            return new
        lost = [replace(each, row=int(new.rows[each.row])) for each in unread]
        self._lost = (*self._lost, *lost)
        self.assignment = replace(
            self.assignment, without=self.assignment.without | {each.row for each in lost}
        )
        kept = np.setdiff1d(np.arange(len(new.rows)), [each.row for each in unread])
        return Substitutes(self.assignment, new.rows[kept], new.records.take(kept), new.attempts[kept])

    def move(self, assignment: Assignment, failure: Failure) -> Assignment:
        """Return an assignment that makes the batch again in another slot, without the failed row.

        The assignment also leaves out rows that were replaced before. When all other rows are made,
        ``substitutes`` returns the records for the rows that were left out.

        assignment  the batch in the new slot
        """
        self._left_out = frozenset(np.flatnonzero(self._attempts).tolist())
        self._lost = (*self._lost, failure)
        self.assignment = replace(assignment, without=self._left_out | {each.row for each in self._lost})
        return self.assignment

    def trace(self, records: Records) -> None:
        """Find what transforms do to the images of all rows, if it is needed and the sizes of the images are known.

        records  the instances of the rows, and the sizes of their images
        """
        if self.tracer is not None and records.sizes is not None:
            at, positions = self.assignment.at, self.assignment.positions
            traced = self.tracer.trace(at, records, positions, self._attempts)
            self.assignment = replace(self.assignment, traced=traced)

    def error_of(self, failures: Sequence[Failure]) -> StandpipeError | None:
        """Return the error of the failed row with the lowest number, or None without failures."""
        failures = [*self._lost, *failures]
        if not failures:
            return None
        first = min(failures, key=lambda failure: failure.row)
        return raised_for(first, self.records, first.row, self.plan.source)

    def substitutes(self, failures: Sequence[Failure]) -> Substitutes | None:
        """Return records for rows that failed or were left out; None if there are none or a row can't be replaced.

        Where other pictures need another canvas, all rows of the batch are made again: it is the same however its
        records were found. Raises ``TooManyBadSamples`` if the batch has more bad samples than ``Replace`` allows for
        an epoch.
        """
        failures = [*self._lost, *failures]
        failed = {failure.row: failure for failure in failures}
        rows = np.array(sorted({*failed, *self._left_out}))
        policy = self.plan.pipeline.bad
        if not isinstance(policy, Replace) or not len(rows) or not all(map(is_replaced, failures)):
            return None
        tried = self._attempts if self.first is None else self._attempts - self.first
        if tried[[*failed]].max(initial=0) >= MOST_ATTEMPTS:
            return None
        indices = self.records.index.copy()
        for row in sorted(failed):
            indices[row] = self._substitute(failed[row])
        if self.error is not None:
            self.ledger.check(self.bad, self.error)
        self._attempts[[*failed]] += 1
        self.records = located(self.plan, indices)
        self._left_out, self._unread, old = frozenset(), (), self.assignment.canvases
        self.assignment.views["index"][...] = indices
        self.trace(self.records)
        canvases = Canvases.of(self.plan, self.assignment.at, self.assignment.traced)
        if old is not None and canvases.shapes != old.shapes:
            rows = np.arange(len(indices))
        new = self._place(canvases)
        rows = rows[~np.isin(rows, [*new.without])]
        return Substitutes(new, rows, self.records.take(rows), self._attempts[rows])

    def _place(self, canvases: Canvases) -> Assignment:
        too_large = (Failure(row, "batch", reason) for row, reason in canvases.too_large.items())
        self._lost = (*self._unread, *too_large)
        without = frozenset(failure.row for failure in self._lost)
        self.assignment = replace(self.assignment, canvases=canvases, without=without)
        return self.assignment

    def _substitute(self, failure: Failure) -> int:
        """Return the record that replaces a failed row, and record the bad sample."""
        row, at = failure.row, self.assignment.at
        self.error = error = error_of(failure, self.records, row, self.plan.source)
        attempt = int(self._attempts[row])
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
