"""Slots filled by Python code in threads, or in the thread that waits for the batch."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock import _native
from penstock.engine.draws import GlobalGenerators
from penstock.engine.samples import Inputs, Recipe, RowFailed, RowKey, SampleMaker, write_row
from penstock.engine.workers import Assignment, Failure, Stats
from penstock.spec import AnyArray

ROWS_AT_ONCE = 16  # at most, that a thread takes from the queue


class SampleJob:
    """The rows of one slot, and how far they are."""

    def __init__(self, assignment: Assignment, fields: Sequence[str], listed: Sequence[str]) -> None:
        self.rows = len(assignment.positions)
        self.epoch = assignment.at.epoch
        self.indices: list[int] = assignment.records.index.tolist()
        self.positions: list[int] = assignment.positions.tolist()
        self.inputs = Inputs(assignment.records)
        self.views: dict[str, AnyArray] = {name: assignment.views[name] for name in fields}
        self.lists: dict[str, list[Any]] = {name: [None] * self.rows for name in listed}
        self.next_row = 0
        self.unfinished = self.rows
        self.cancelled = False
        self.bad: list[Failure] = []

    @property
    def done(self) -> bool:
        """Whether nobody works on it any more."""
        return self.unfinished == 0

    def failures(self) -> Sequence[Failure]:
        """Rows that can't be made."""
        return self.bad


class ThreadWorkers:
    """``threads`` Python threads; with none, whoever waits for a batch makes its rows in ``help()``."""

    def __init__(
        self,
        recipe: Recipe,
        generators: GlobalGenerators,
        threads: int,
        fields: Sequence[str],
        listed: Sequence[str],
        bell: _native.Bell,
    ) -> None:
        self._recipe, self._fields, self._listed, self._bell = recipe, tuple(fields), tuple(listed), bell
        self._generators = generators
        self._lock = (
            threading.RLock()
        )  # entered itself: an interrupt inside a condition's methods leaves it locked
        self._changed = threading.Condition(self._lock)
        self._queue: deque[SampleJob] = deque()
        self._closed = False
        self._made = 0
        self._busy_s = self._wait_s = 0.0
        self._helper = SampleMaker(recipe, generators) if threads == 0 else None
        self._per_thread = max(threads, 1)
        self._threads = [
            threading.Thread(target=self._work, name=f"penstock-worker-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def helps(self) -> bool:
        """Whether the caller's thread does the work."""
        return self._helper is not None

    def begin(self, assignment: Assignment, ring: _native.SlotRing) -> SampleJob:
        """Take down what the rows are made of."""
        return SampleJob(assignment, self._fields, self._listed)

    def submit(self, job: SampleJob) -> None:
        """Work on it after those before."""
        with self._lock:
            self._queue.append(job)
            self._changed.notify_all()

    def cancel(self, job: SampleJob) -> None:
        """Give up what nobody has begun."""
        with self._lock:
            job.cancelled = True
            if job in self._queue:
                self._queue.remove(job)
            job.unfinished -= job.rows - job.next_row
            job.next_row = job.rows
        self._bell.ring()

    def help(self) -> bool:
        """Make a row in this thread, if there are no others."""
        if self._helper is None or (taken := self._take(1)) is None:
            return False
        job, first, stop = taken
        try:
            with self._helper.own:
                make_rows(self._helper, job, first, stop)
        except BaseException:  # an interrupt: whoever asks for this batch again has it made again
            job.bad.append(Failure(first, "transform", "interrupted"))
            raise
        finally:
            self._finish(job, 1)
        return True

    def stats(self) -> Stats:
        """Rows, and seconds of work and of waiting."""
        with self._lock:
            return Stats(rows=self._made, decode_s=self._busy_s, wait_s=self._wait_s)

    def close(self, patience_s: float) -> bool:
        """End the threads; one that is inside a function ends when that returns."""
        ends = time.monotonic() + patience_s
        with self._lock:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(ends - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        maker = SampleMaker(self._recipe, self._generators)
        with maker.own:
            while (taken := self._wait_and_take()) is not None:
                job, first, stop = taken
                begin = time.perf_counter()
                make_rows(maker, job, first, stop)
                self._finish(job, stop - first, time.perf_counter() - begin)

    def _wait_and_take(self) -> tuple[SampleJob, int, int] | None:
        with self._lock:
            begin = time.perf_counter()
            while not self._closed:
                if (taken := self._take(ROWS_AT_ONCE)) is not None:
                    self._wait_s += time.perf_counter() - begin
                    return taken
                self._changed.wait()
        return None

    def _take(self, most: int) -> tuple[SampleJob, int, int] | None:
        """The next rows that nobody has begun."""
        with self._lock:
            if not self._queue:
                return None
            job = self._queue[0]
            first = job.next_row
            share = (job.rows - first) // (2 * self._per_thread)  # fewer and fewer, so that all end together
            stop = min(first + max(1, min(most, share)), job.rows)
            job.next_row = stop
            if stop == job.rows:
                self._queue.popleft()
            return job, first, stop

    def _finish(self, job: SampleJob, rows: int, seconds: float = 0.0) -> None:
        with self._lock:
            self._made += rows
            self._busy_s += seconds
            job.unfinished -= rows
            done = job.unfinished == 0
        if done:
            self._bell.ring()


def make_rows(maker: SampleMaker, job: SampleJob, first: int, stop: int) -> None:
    """Make rows [first, stop) of a job, noting those that can't be made."""
    image = job.views.get("image")
    for row in range(first, stop):
        if job.cancelled:
            return
        key = RowKey(job.indices[row], job.epoch, job.positions[row])
        out = {} if image is None else {"image": image[row]}
        try:
            sample = maker.make(key, job.inputs.row(row), out)
            write_row(sample, row, job.views, job.lists, out)
        except RowFailed as failed:
            job.bad.append(Failure(row, failed.place, failed.reason, failed.cause))
