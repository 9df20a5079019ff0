"""Fill a slot: turn a cursor into tasks for the workers, and their results into a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Records
from standpipe.engine.canvases import NO_CANVASES
from standpipe.engine.composing import Composing
from standpipe.engine.fetching import drawn_at
from standpipe.engine.instances import instances_of, put_instances
from standpipe.engine.mixes import unmixable
from standpipe.engine.moves import tracer_of
from standpipe.engine.python.collating import Collated, collated
from standpipe.engine.queue import Fetching, Filled, Filling, FramesOfOthers, RunParts
from standpipe.engine.replace import BatchRecords, advise, is_replaced
from standpipe.engine.watchdog.watch import OwnTask
from standpipe.engine.workers import Assignment, Failure, Substitutes
from standpipe.errors import StalledError, batch_name
from standpipe.order import Cursor
from standpipe.order.steps import Drawn
from standpipe.spec import AnyArray, Int64Array, LastBatch, Replace

Made = TypeVar("Made")

NO_SLOT = "no slot was free to make the batch again with another sample: raise memory="


class Filler:
    """The steps of the filling thread for one slot: begin a batch, and finish it.

    The queue gets the error if the filling thread hangs.
    """

    def __init__(self, run: RunParts) -> None:
        self._queue, self._workers, self._ring = run.queue, run.workers, run.queue.ring
        self._ledger, self._watch, self._times = run.ledger, run.watch, run.times
        self._fetches = run.fetches
        plan = run.queue.plan
        self._streams = plan.samples.stream is not None
        self._tracer = tracer_of(plan)
        self._handed_over = () if plan.batch.instances is None else plan.batch.instances.handed_over
        self._composing = None
        if plan.samples.composed is not None:
            assert self._tracer is not None
            self._composing = Composing(run, self._tracer)
        self._collates, self._mixes = bool(plan.batch.collated), bool(plan.samples.mixings)

    def forget(self) -> None:
        """Forget what was kept for later batches, since others come next."""
        if self._fetches is not None:
            self._fetches.forget()
        if self._composing is not None:
            self._composing.forget()

    def begin(self, slot: int, at: Cursor) -> Filling | Filled | Fetching:
        """Begin to fill a slot with the batch that starts at ``at``. If that fails, the error is in a ``Filled``."""
        self._times.order.begin()
        filling = self._timed(slot, at, "looking up its records", partial(self._begun, slot, at))
        self._times.order.end(0 if isinstance(filling, Fetching) else filling.rows)
        return filling

    def go_on(self, fetching: Fetching) -> Filling | Filled:
        """Return a batch whose bytes have arrived, or a ``Filled`` with the error that this raises."""
        return self._timed(fetching.slot, fetching.at, "beginning its rows", fetching.goes_on)

    def again(self, filling: Filling, failure: Failure) -> Filling | Filled:
        """Begin to make a batch again in another slot, with another record in place of the failed row's.

        Return a ``Filled`` with the row's error if bad samples aren't replaced, or if no slot is free.
        """
        at, batch_records, plan = filling.at, filling.batch_records, self._queue.plan
        self._count([failure])
        replaces = isinstance(plan.pipeline.bad, Replace) and not failure.whole
        slot = self._ring.take(grow=True) if replaces else -1
        if slot < 0:
            error = batch_records.error_of([failure])
            assert error is not None
            if replaces:
                error.add_note(NO_SLOT)
            else:
                advise(error, plan, [failure])
            return Filled(None, at, error=error)

        def begun() -> Filling:
            old = batch_records.assignment
            views = self._views(slot, at, old.records.index, batch_records.valid)
            assignment = batch_records.move(replace(old, slot=slot, views=views), failure)
            job = self._workers.begin(assignment, self._ring)
            filling.others.traced = None
            return Filling(slot, at, filling.rows, batch_records, job, filling.others)

        return self._timed(slot, at, "making it again in another slot", begun)

    def outcome(self, filling: Filling | Filled | Fetching) -> Filled | Fetching | None:
        """Return the finished slot, or None while rows are missing.

        If bad samples are replaced, this starts to make their rows from other records. It returns a ``Fetching`` if
        their bytes are fetched first.
        """
        if isinstance(filling, Fetching):
            return None
        if not filling.is_over:
            return None
        self._times.batch.begin()
        filled: Filled | Fetching | None
        if isinstance(filling, Filled):
            filled = filling
        else:
            filled = self._timed(
                filling.slot, filling.at, "putting it together", partial(self._made, filling)
            )
        if isinstance(filled, Filled):
            self._times.batch.end(filled.rows)
            if self._fetches is not None:
                self._fetches.free(filling.at)
        return filled

    def _begun(self, slot: int, at: Cursor) -> Filling | Fetching:
        if self._fetches is None:
            return self._with_records(slot, at, *drawn_at(self._queue.plan, at), ())
        drawn, fetched = self._fetches.take(at)
        fetched.needed()
        return Fetching(
            slot,
            at,
            fetched,
            lambda: self._with_records(slot, at, drawn, fetched.records, fetched.failures()),
        )

    def _with_records(
        self, slot: int, at: Cursor, drawn: Drawn, records: Records, unread: Sequence[Failure]
    ) -> Filling:
        plan = self._queue.plan
        views = self._views(slot, at, drawn.indices, drawn.valid)
        assignment = Assignment(slot, at, records, drawn.positions, views)
        batch_records = BatchRecords(plan, self._ledger, assignment, drawn.valid, self._tracer)
        batch_records.trace(records)
        batch_records.lose(unread)
        placed = batch_records.placed()
        others = FramesOfOthers() if self._composing is None else self._composing.others(batch_records)
        job = self._workers.begin(placed, self._ring)
        return Filling(slot, at, len(drawn.indices), batch_records, job, others)

    def _exchanged(self, filling: Filling, new: Substitutes) -> Fetching | None:
        """Begin to make rows from replacement records, once their bytes are here."""
        if self._fetches is None:
            self._workers.exchange(filling.job, new, self._ring)
            return None
        fetched = self._fetches.now(filling.at, new.records)

        def begun() -> Filling:
            moved = replace(new, records=fetched.records)
            rest = filling.batch_records.without(moved, fetched.failures())
            self._workers.exchange(filling.job, rest, self._ring)
            return filling

        return Fetching(filling.slot, filling.at, fetched, begun)

    def _made(self, filling: Filling) -> Filled | Fetching | None:
        plan, job, batch_records = self._queue.plan, filling.job, filling.batch_records
        slot, rows = filling.slot, filling.rows
        failures = list(job.failures())
        made = Collated({name: job.lists[name] for name in job.lists if name not in self._handed_over})
        canvases = batch_records.assignment.canvases or NO_CANVASES
        complete = not batch_records.assignment.without
        traced = filling.others.traced
        if self._composing is not None and traced is None and not failures and complete:
            if self._composing.is_complete(filling):
                self._composing.compose(filling)
            return None
        if self._collates and not failures and complete and job.ended_after != 0:
            made = collated(plan, self._ring.view(slot), job.lists)
            failures += made.failures
        shapes = dict(made.shapes)
        if self._tracer is not None and not failures and complete:
            if self._handed_over:
                batch_records.trace(instances_of(plan, job.lists, batch_records.records.index))
            assignment = batch_records.assignment
            assignment = assignment if traced is None else replace(assignment, traced=traced)
            pictures = {**shapes, **canvases.shapes}
            put = put_instances(plan, assignment, self._ring.view(slot), pictures)
            shapes, failures = {**shapes, **put.shapes}, list(put.failures)
            made = replace(made, lists={**made.lists, **put.lists})
        if self._mixes and not failures:
            layout = plan.layout_at(filling.at)
            failures += unmixable(plan, layout.views(self._ring.view(slot), rows))
        if failures or not complete:
            self._count(failures)
            self._times.bad += len(canvases.too_large)
            filling.others.traced = None
            if (substitutes := batch_records.substitutes(failures)) is not None:
                return self._exchanged(filling, substitutes)
            if (error := batch_records.error_of(failures)) is not None:
                raise advise(error, plan, failures)
        ended = job.ended_after is not None
        rows = rows if job.ended_after is None else job.ended_after
        if ended and plan.steps.last_batch is LastBatch.DROP:
            rows = 0
        canvases.write_lengths(plan.batch.layout.shaped(self._ring.view(slot), canvases.shapes))
        return Filled(
            slot,
            filling.at,
            rows,
            made.lists,
            {**shapes, **canvases.shapes},
            job.made,
            ended=ended,
            batch_records=batch_records if batch_records.bad else None,
            position=int(batch_records.assignment.positions[0]),
        )

    def _count(self, failures: Sequence[Failure]) -> None:
        """Count each bad row once, even if several fields or workers reported it."""
        self._times.bad += len({failure.row for failure in failures if is_replaced(failure)})

    def _views(
        self, slot: int, at: Cursor, indices: Int64Array, valid: NDArray[np.bool_]
    ) -> dict[str, AnyArray]:
        """Return views of a slot's fields in the shapes of a step, with ``index`` and ``valid`` written."""
        views = self._queue.plan.layout_at(at).views(self._ring.view(slot), len(indices))
        views["index"][...] = indices
        if "valid" in views:
            views["valid"][...] = valid
        return views

    def _timed(self, slot: int, at: Cursor, doing: str, make: Callable[[], Made]) -> Made | Filled:
        """Return ``make()``, or a ``Filled`` with the error that it raises.

        The watchdog times it as this thread's own work on the batch at ``at``. While it takes too long, ``queue.stuck``
        is the error.
        """
        task = OwnTask(
            self._watch,
            batch_name(at.epoch, at.consumed),
            doing,
            "the thread that fills batches",
            end=self._give_up,
        )
        try:
            with task:
                return make()
        except Exception as error:
            return Filled(slot, at, error=error)
        finally:
            self._queue.stuck = None

    def _give_up(self, error: StalledError) -> None:
        self._queue.stuck = error
        self._queue.tell()
