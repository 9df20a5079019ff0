"""Slots filled by Python code in worker processes, which write rows into the slots themselves."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from penstock import _native
from penstock.counters import Stats
from penstock.engine.apart import Apart
from penstock.engine.drivers import Driver
from penstock.engine.jobs import QueueWorkers, SlotJob
from penstock.engine.processes import WorkerProcess, WorkerServer
from penstock.engine.watch import Watch, Work
from penstock.engine.workers import Assignment, Use, WorkersMemory, has_ended
from penstock.errors import PenstockError
from penstock.plan import Plan
from penstock.sizing import GROWTH_BYTES

SHARED = "what they share"


class ProcessWorkers(QueueWorkers):
    """Worker processes, each with a driver."""

    helps = False

    def __init__(
        self,
        server: WorkerServer,
        workers: Sequence[WorkerProcess],
        plan: Plan,
        ring: _native.SlotRing,
        bell: _native.Bell,
        watch: Watch,
    ) -> None:
        super().__init__(plan, len(workers), 2, bell)
        self._server, self._ring, self._watch = server, ring, watch
        self._apart = Apart(ring)
        self._unsaid = threading.Lock()
        self._lock = threading.Lock()
        self._drivers: Sequence[Driver] = [
            self._new_driver(worker) for worker in workers
        ]  # replaced, under it
        self._wanted = len(workers)
        self._starter: threading.Thread | None = None
        self._starts = False
        self._closed = False

    def _new_driver(self, worker: WorkerProcess) -> Driver:
        return Driver(
            worker,
            self._server,
            self._plan,
            self._ring,
            self._queue,
            self._watch,
            self._apart,
            lambda: len(self._drivers),
            self._unsaid,
        )

    def start(self) -> None:
        """Start the drivers."""
        for driver in self._drivers:
            driver.start()

    def employ(self, number: int) -> None:
        """Let so many workers work. A thread starts those that there aren't, and all of them share the same memory."""
        with self._lock:
            self._wanted = number = min(number, self._most())
            self._queue.employ(min(number, len(self._drivers)))
            if number > len(self._drivers) and not self._starts and not self._closed:
                self._starter = threading.Thread(target=self._start_more, name="penstock-start", daemon=True)
                with contextlib.suppress(RuntimeError):  # the system allows no more threads
                    self._starter.start()
                    self._starts = True

    def begin(self, assignment: Assignment, ring: _native.SlotRing) -> SlotJob:
        """Take down what the rows are made of."""
        self._apart.begin(assignment.slot)
        return super().begin(assignment, ring)

    def help(self) -> bool:
        """The caller's thread makes no rows."""
        return False

    def stats(self) -> Stats:
        """Rows, seconds of work and of waiting, as seen from here, deaths, and workers that gave way to new ones."""
        deaths = sum(driver.deaths for driver in self._drivers)
        recycled = sum(driver.recycled for driver in self._drivers)
        side_peak = self._server.side.peak_bytes
        workers = tuple(driver.stats() for driver in self._drivers)
        return replace(
            super().stats(), deaths=deaths, recycled=recycled, side_peak_bytes=side_peak, workers=workers
        )

    def at_work(self) -> Sequence[Work]:
        """What every worker has in hand."""
        return [work for driver in self._drivers if (work := driver.at_work()) is not None]

    def memory(self) -> WorkersMemory:
        """What processes share, each worker, and samples that came from them and lie in no slot."""
        ended = all(driver.has_ended for driver in self._drivers)
        processes = {SHARED: Use(0 if ended else self._plan.cost.shared, self._plan.cost.shared)}
        processes |= {f"worker {driver.worker.number}": driver.memory.use for driver in self._drivers}
        side = self._server.side
        return WorkersMemory(
            side=Use(side.used_bytes, side.peak_bytes),
            waiting=self._apart.use(),
            in_heap=self._apart.in_heap(),
            processes=processes,
        )

    def _most(self) -> int:
        """Workers whose parts of the memory are still above what any has now: none gives way because there are more."""
        largest = max(driver.memory.use.peak for driver in self._drivers) + GROWTH_BYTES
        return max(self._plan.workers * self._plan.worker_bytes // largest, len(self._drivers))

    def _start_more(self) -> None:
        """Start workers until there are as many as are wanted, or one can't be had."""
        while self._is_one_wanted():
            number = len(self._drivers)
            try:
                with self._watch.errand(
                    f"worker {number}",
                    "starting it",
                    f"the server of worker processes ({self._server.process})",
                    where=self._server.where,
                    give_up=lambda _: self._server.end(),
                ):
                    worker = WorkerProcess(self._server, number)
            except (PenstockError, OSError) as error:
                with self._lock:
                    self._wanted, self._starts = number, False
                _log_refusal(error)
                return
            with self._lock:
                if self._closed:
                    worker.kill()
                    worker.close()
                else:
                    self._add(self._new_driver(worker))

    def _is_one_wanted(self) -> bool:
        """Whether one more worker is to be started; if not, whoever asked is done."""
        with self._lock:
            self._starts = len(self._drivers) < self._wanted and not self._closed
            return self._starts

    def _add(self, driver: Driver) -> None:
        """One more worker is there. The lock is held."""
        self._drivers = [*self._drivers, driver]
        driver.start()
        for each in self._drivers:
            each.memory.share = self._plan.workers * self._plan.worker_bytes // len(self._drivers)
        self._queue.employ(min(self._wanted, len(self._drivers)))

    def close(self, patience_s: float) -> bool:
        """End the workers; one that is inside a function is killed. Nobody writes into slots afterwards."""
        ends = time.monotonic() + patience_s
        with self._lock:
            self._closed = True
        self._queue.close()
        for driver in self._drivers:
            driver.join(max(ends - time.monotonic(), 0))
        idle = [driver for driver in self._drivers if driver.has_ended]
        if len(idle) < len(self._drivers) or self._starts:
            self._server.end()  # one may be waiting for a new worker
        if self._plan.cache is not None:
            for driver in idle:
                driver.let_go(
                    max(ends - time.monotonic(), 0) / 2
                )  # then there is time to say what came of that
            for driver in idle:
                driver.has_let_go(max(ends - time.monotonic(), 0))
        for driver in self._drivers:
            driver.end()
        self._server.close(patience_s)
        return self._starter is None or has_ended(self._starter, max(ends - time.monotonic(), 0))


def _log_refusal(error: Exception) -> None:
    """One more worker can't be had: the others go on."""
    import logging  # a tenth of what importing penstock costs beside NumPy

    logging.getLogger("penstock").info("no more workers: %s", error)
