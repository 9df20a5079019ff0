"""A maker of batches outside the trainer: it runs a plan's workers, and makes the batches that it is asked for."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any

import cloudpickle

from standpipe import _native
from standpipe.engine.moves import tracer_of_windows
from standpipe.engine.remote.messages import Answer, Task, assigned
from standpipe.engine.start import started
from standpipe.engine.start_common import refusals
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.watchdog.watch import OwnTask, Watch, Work
from standpipe.engine.workers import Failure, Job, Substitutes
from standpipe.errors import PlanError, StandpipeError, batch_name
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.stats.counters import Counts, SlowSample, counts_of, counts_since

PATIENCE_S = 1.0  # seconds that closing waits for threads


@dataclass(slots=True, eq=False)
class _Wanted:
    """A task, and its outcome.

    outcome  gets the answer, or the error if there is none; the first one counts
    again    the records of the rows that replace bad ones, which are made after the other rows; None without any
    """

    task: Task
    outcome: SimpleQueue[Answer | Exception] = field(default_factory=SimpleQueue)
    slot: int = -1
    job: Job | None = None
    again: Substitutes | None = None


class BatchMaker:
    """Makes batches by number of record, in the workers of one plan. ``Plan.maker`` makes it.

    It needs no order: a task has the records and their positions, and the batch depends on nothing else. Several
    threads may call ``make`` at the same time. One thread of its own fills slots.
    """

    def __init__(self, plan: Plan) -> None:
        """Start the workers. Raises the errors of ``started``."""
        self._bell = _native.Bell()
        self._watch = Watch(plan.options.slow_sample_s, plan.options.stall_timeout_s, self._bell)
        self._plan, self._workers, self._ring = started(plan, Cursor(), self._bell, self._watch)
        self._tracer = tracer_of_windows(self._plan)
        self._awaited: set[_Wanted] = set()  # whose caller waits
        self._ended: StandpipeError | None = None  # why no thread makes batches any more
        self._tasks: deque[_Wanted] = deque()
        self._filling: list[_Wanted] = []
        self._hanging: list[tuple[int, Job]] = []  # slots that a hanging thread may still write to
        self._counted: Counts = {}
        self._logged = 0  # slow samples that answers have told of
        self._closed = False
        self._thread = guarded("standpipe-make", self._work, self._end)
        with refusals(plan):
            self._workers.start()
            self._watch.add(self)
            self._thread.start()

    def facts(self) -> dict[str, Any]:
        """Return what a trainer must know about this maker, and what must be the same on both sides."""
        plan = self._plan
        return {
            "version": version("standpipe"),
            "recipe": dict(plan.recipe),
            "decoder": plan.decoder,
            "rows": plan.batch.layout.rows,
            "fields": forms_of(plan),
            "measured": plan.batch.measured,
            "known_from": plan.batch.known_from,
            "process": os.getpid(),
        }

    def make(self, task: Task) -> Answer:
        """Return the batch of a task; it has failures instead of arrays if a row can't be made.

        The arrays are views of a slot, which is free again when the last of them is gone. Raises the error because
        of which this maker can't work any more.
        """
        wanted = _Wanted(task)
        self._awaited.add(wanted)
        if self._ended is not None:
            wanted.outcome.put(self._ended)
        self._tasks.append(wanted)
        self._bell.ring()
        try:
            outcome = wanted.outcome.get()
        finally:
            self._awaited.discard(wanted)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def in_flight(self) -> bool:
        """True if a batch is being made."""
        return bool(self._filling)

    def at_work(self) -> Sequence[Work]:
        """Return the current work of each worker, for the watchdog."""
        return self._workers.at_work()

    def close(self) -> None:
        """End all threads and worker processes. Tasks that aren't done fail."""
        self._closed = True
        self._watch.close(PATIENCE_S)
        self._bell.ring()
        self._thread.join(PATIENCE_S)
        if self._workers.close(PATIENCE_S):
            self._ring.retire()

    # In the thread.

    def _work(self) -> None:
        seen = 0
        while not self._closed and self._watch.ended is None:
            self._give_up_lost()
            self._collect()
            self._begin()
            seen = self._workers.wait(seen)
        self._end(self._watch.ended or StandpipeError("the maker of batches is closed"))
        self._workers.settle()

    def _end(self, error: StandpipeError) -> None:
        """Fail all tasks from now on, as the thread that answers them ends."""
        self._ended = error
        for wanted in list(self._awaited):
            wanted.outcome.put(error)

    def _begin(self) -> None:
        """Begin the tasks that slots are free for."""
        while self._tasks and (slot := self._ring.take(grow=False)) >= 0:
            wanted = self._tasks.popleft()
            try:
                wanted.slot, wanted.job, wanted.again = slot, *self._begun(slot, wanted)
            except Exception as error:
                self._ring.release(slot)
                wanted.outcome.put(error)
                continue
            self._filling.append(wanted)
            self._workers.submit(wanted.job)
            self._watch.wake()

    def _begun(self, slot: int, wanted: _Wanted) -> tuple[Job, Substitutes | None]:
        plan, task = self._plan, wanted.task
        rows = len(task.indices)
        layout = plan.layout_at(task.at)
        if rows > layout.rows:
            raise PlanError(
                f"a batch of {rows} rows was asked of a maker whose batches have {layout.rows} rows"
            )
        with OwnTask(
            self._watch,
            batch_name(task.epoch, task.consumed),
            "looking up its records",
            "the thread that makes batches",
            end=wanted.outcome.put,
        ):
            assignment, again = assigned(
                plan, task, slot, layout.views(self._ring.view(slot), rows), self._tracer
            )
        return self._workers.begin(assignment, self._ring), again

    def _collect(self) -> None:
        """Answer the tasks whose rows are made."""
        for wanted in list(self._filling):
            assert wanted.job is not None
            if not wanted.job.done:
                continue
            try:
                failures = tuple(wanted.job.failures())
                if not failures and wanted.again is not None:
                    again, wanted.again = wanted.again, None
                    self._workers.exchange(wanted.job, again, self._ring)
                    continue
                answer = self._failed(failures) if failures else self._answer(wanted)
            except Exception as error:
                self._filling.remove(wanted)
                self._ring.release(wanted.slot)
                wanted.outcome.put(error)
                continue
            self._filling.remove(wanted)
            if failures:
                self._ring.release(wanted.slot)
            wanted.job = None
            wanted.outcome.put(answer)
        for each in [each for each in self._hanging if each[1].done]:
            self._hanging.remove(each)
            self._ring.release(each[0])

    def _give_up_lost(self) -> None:
        """Answer the tasks in which a worker hangs, with the failure of its row."""
        for job, failure in self._workers.take_lost():
            wanted = next((each for each in self._filling if each.job is job), None)
            if wanted is not None:
                self._filling.remove(wanted)
                self._ring.quarantine(wanted.slot)
                self._hanging.append((wanted.slot, job))
                wanted.outcome.put(self._failed((failure,)))

    def _failed(self, failures: Sequence[Failure]) -> Answer:
        return Answer(failures=tuple(map(_portable, failures)), counts=self._counts(), slow=self._slow())

    def _answer(self, wanted: _Wanted) -> Answer:
        assert wanted.job is not None
        made, rows = wanted.job.made, len(wanted.task.indices)
        self._ring.mark_ready(wanted.slot)
        views = self._plan.layout_at(wanted.task.at).views(self._ring.lend(wanted.slot), rows)
        arrays = {
            name: array
            for name, array in views.items()
            if name not in self._plan.batch.added and (made is None or name in made.kept)
        }
        return Answer(arrays, dict(wanted.job.lists), made, counts=self._counts(), slow=self._slow())

    def _slow(self) -> tuple[SlowSample, ...]:
        """Return the slow samples that are new since the last call."""
        logged, self._logged = self._logged, self._watch.slow
        return tuple(self._watch.slow_samples[-new:]) if (new := self._logged - logged) else ()

    def _counts(self) -> Counts:
        """Return what was counted since the last call."""
        watch, before = self._watch, self._counted
        self._counted = counts_of(self._workers.stats()) | {"slow": watch.slow, "stalled": watch.stalled}
        return counts_since(self._counted, before)


def forms_of(plan: Plan) -> dict[str, str]:
    """Return the form of each field of a slot, by name, without those that each batch has."""
    return {name: str(spec) for name, spec in plan.fields.items() if name not in plan.batch.added}


def _portable(failure: Failure) -> Failure:
    """Return a failure that can be pickled: without its cause, if that can't."""
    if failure.cause is None:
        return failure
    try:
        cloudpickle.loads(cloudpickle.dumps(failure.cause))
    except Exception:
        return replace(failure, cause=None)
    return failure
