"""Slots filled by Python code in threads, or in the thread that waits for the batch."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from penstock import _native
from penstock.engine.draws import GlobalGenerators
from penstock.engine.samples import Inputs, Recipe, Rows, SampleMaker
from penstock.engine.workers import Assignment, Failure, Stats

PIECE_S = 0.5e-3  # of work that a thread takes from the queue at once: handing it over costs some 10 µs


class SampleJob:
    """The rows of one slot, and how far they are."""

    def __init__(self, assignment: Assignment, fields: Sequence[str], listed: Sequence[str]) -> None:
        self.rows = len(assignment.positions)
        self.content = Rows(
            assignment.at.epoch,
            assignment.records.index.tolist(),
            assignment.positions.tolist(),
            Inputs(assignment.records),
            {name: assignment.views[name] for name in fields},
            {name: [None] * self.rows for name in listed},
        )
        self.next_row = 0
        self.unfinished = self.rows
        self.bad: list[Failure] = []

    @property
    def done(self) -> bool:
        """Whether nobody works on it any more."""
        return self.unfinished == 0

    @property
    def lists(self) -> Mapping[str, list[Any]]:
        """Fields that are in no slot."""
        return self.content.lists

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
                job.bad += self._helper.fill(job.content, first, stop)
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
                job.bad += maker.fill(job.content, first, stop)
                self._finish(job, stop - first, time.perf_counter() - begin)

    def _wait_and_take(self) -> tuple[SampleJob, int, int] | None:
        with self._lock:
            begin = time.perf_counter()
            while not self._closed:
                if (
                    taken := self._take(int(PIECE_S * self._made / self._busy_s) if self._busy_s else 1)
                ) is not None:
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
            share = -(-(job.rows - first) // self._per_thread)
            stop = first + max(1, min(most, share))
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
