"""Workers that run Python code in processes, which write rows directly into the slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from standpipe import _native
from standpipe.engine.processes.drivers import MOST_ASKED, Driver
from standpipe.engine.processes.outside_slots import Apart
from standpipe.engine.processes.server_handle import WorkerServer
from standpipe.engine.processes.worker_handle import WorkerProcess
from standpipe.engine.python.jobs import QueueWorkers
from standpipe.engine.python.slot_job import SlotJob
from standpipe.engine.watchdog.watch import Watch, Work
from standpipe.engine.workers import Assignment, Use, WorkersMemory
from standpipe.plan.plan import Plan
from standpipe.stats.counters import Stats

SHARED = "shared by workers"


class ProcessWorkers(QueueWorkers):
    """The worker processes of a run, each with a driver. The filling thread drives them in ``wait``."""

    def __init__(
        self,
        server: WorkerServer,
        workers: Sequence[WorkerProcess],
        plan: Plan,
        ring: _native.SlotRing,
        bell: _native.Bell,
        watch: Watch,
    ) -> None:
        super().__init__(plan, len(workers), MOST_ASKED, bell)
        self._server = server
        unsaid = threading.Lock()
        self._apart = Apart(ring)
        self._drivers = [
            Driver(worker, plan, ring, self._queue, watch, self._apart, unsaid, bell) for worker in workers
        ]
        # Held by the thread that drives. It is an RLock, as a garbage collection in that thread may close the loader.
        self._driving = threading.RLock()
        self._ended = False

    def start(self) -> None:
        """Open the descriptors that ``wait`` needs. Raises ``OSError`` if none is free."""
        self._bell.wait_among(0, [], 0.0)

    def submit(self, job: SlotJob, *, first: bool = False) -> None:
        """Queue a job, and send tasks to idle workers."""
        super().submit(job, first=first)
        with self._driving:
            self._ask()

    def wait(self, seen: int, patience_s: float | None = None) -> int:
        """Send tasks and take answers until the bell has rung more than ``seen`` times; return how often it has rung.

        patience_s  most seconds to wait; None: no limit
        """
        ends = None if patience_s is None else time.monotonic() + patience_s
        with self._driving:
            while not self._queue.closed:
                self._ask()
                left_s = None if ends is None else max(ends - time.monotonic(), 0)
                rung, answered = self._answers(seen, left_s)
                if rung != seen or not answered:
                    return rung
        return self._bell.wait_for(seen, 0)

    def settle(self) -> None:
        """Wait for the answers to all tasks that were sent to workers, and take them."""
        with self._driving:
            seen = 0
            while any(driver.descriptors for driver in self._drivers):
                seen, _ = self._answers(seen, None)

    def _ask(self) -> None:
        """Send a task to each idle worker first, and then a second task to each worker."""
        for most in range(1, MOST_ASKED + 1):
            for driver in self._drivers:
                driver.ask(most)

    def _answers(self, seen: int, patience_s: float | None) -> tuple[int, bool]:
        """Wait until the bell has rung more than ``seen`` times, or answers have come, and take the answers.

        patience_s  most seconds to wait; None: no limit

        Return how many times the bell has rung, and True if answers came.
        """
        waited = {each: driver for driver in self._drivers for each in driver.descriptors}
        rung, readable = self._bell.wait_among(seen, list(waited), patience_s)
        for driver in {waited[each]: None for each in readable}:
            driver.take_answer()
        return rung, bool(readable)

    def employ(self, number: int) -> None:
        """Set how many workers get tasks: ``number``, but at most the number of processes that were started."""
        self._employ(min(number, len(self._drivers)))
        self._bell.ring()

    def begin(self, assignment: Assignment, ring: _native.SlotRing) -> SlotJob:
        """Return a job for an assignment, and reset the count of its values outside the slot."""
        self._apart.begin(assignment.slot)
        return super().begin(assignment, ring)

    def stats(self) -> Stats:
        """Return the counters of all workers, with the number of deaths and of replaced workers."""
        deaths = sum(driver.deaths for driver in self._drivers)
        recycled = sum(driver.recycled for driver in self._drivers)
        side_peak = self._server.side.peak_bytes
        workers = tuple(driver.stats() for driver in self._drivers)
        return replace(
            super().stats(), deaths=deaths, recycled=recycled, side_peak_bytes=side_peak, workers=workers
        )

    def at_work(self) -> Sequence[Work]:
        """Return every worker's current task."""
        return [work for driver in self._drivers if (work := driver.at_work()) is not None]

    def memory(self) -> WorkersMemory:
        """Return the memory of workers: shared by all, of each one, the side arena, and results outside the slots."""
        processes = {
            SHARED: Use(0 if self._ended else self._plan.pool.cost.shared, self._plan.pool.cost.shared)
        }
        processes |= {f"worker {driver.worker.number}": driver.memory.use for driver in self._drivers}
        side = self._server.side
        return WorkersMemory(
            side=Use(side.used_bytes, side.peak_bytes),
            waiting=self._apart.use(),
            in_heap=self._apart.in_heap(),
            processes=processes,
        )

    def close(self, patience_s: float) -> bool:
        """End the workers and their server in about ``patience_s``; kill workers that are busy. Return True.

        Afterwards no process writes to slots.
        """
        ends = time.monotonic() + patience_s
        self._queue.close()
        for driver in self._drivers:
            driver.join(max(ends - time.monotonic(), 0))
        idle = [driver for driver in self._drivers if driver.is_idle]
        if len(idle) < len(self._drivers):
            self._server.end()  # a driver's thread may be waiting for a new worker
        if self._plan.cache is not None:
            for driver in idle:
                # Half of the time, so that the rest is left for the workers' reports.
                driver.let_go(max(ends - time.monotonic(), 0) / 2)
            for driver in idle:
                driver.has_let_go(max(ends - time.monotonic(), 0))
        for driver in self._drivers:
            driver.worker.kill()  # so that the thread that drives returns from its wait
        with self._driving:
            for driver in self._drivers:
                driver.end()
        self._ended = True
        self._server.close(patience_s)
        return True
