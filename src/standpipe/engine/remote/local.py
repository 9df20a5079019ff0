"""The trainer's own workers, which make batches while no maker outside is left."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from standpipe import _native
from standpipe.engine.remote.jobs import RemoteJob
from standpipe.engine.remote.messages import assigned
from standpipe.engine.start import started
from standpipe.engine.watchdog.watch import Watch, Work
from standpipe.engine.workers import Failure, Workers, WorkersMemory
from standpipe.errors import StandpipeError
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.stats.counters import Stats


class Local:
    """Workers in or beside the trainer, which are started when they are first needed.

    ring     the slots of the run
    workers  the workers, if they exist already
    """

    def __init__(
        self,
        plan: Plan,
        bell: _native.Bell,
        watch: Watch,
        ring: _native.SlotRing,
        workers: Workers | None,
    ) -> None:
        self._plan, self._bell, self._watch, self.ring = plan, bell, watch, ring
        self._lock = threading.Lock()  # guards the two below
        self._workers = workers
        self._closed = False
        self._jobs: list[RemoteJob] = []

    @property
    def exist(self) -> bool:
        """True if these workers were needed already."""
        return self._workers is not None

    def start(self) -> None:
        """Start the workers that exist already."""
        if self._workers is not None:
            self._workers.start()

    def make(self, job: RemoteJob) -> None:
        """Make a batch with these workers. If they can't be started, the job fails with the reason."""
        try:
            workers = self._started(job.assignment.at) if self._workers is None else self._workers
            assignment, job.again = assigned(self._plan, job.task, job.assignment.slot, job.assignment.views)
            begun = workers.begin(assignment, self.ring)
        except Exception as error:
            job.fail(error)
            self._bell.ring()
            return
        job.local = begun
        self._jobs = [*(each for each in self._jobs if not each.done), job]
        workers.submit(begun)

    def _started(self, at: Cursor) -> Workers:
        """Start the workers, and return them. If the run is closed during the start, end them, and raise an error."""
        _, workers, _ = started(self._plan, at, self._bell, self._watch, self.ring)
        try:
            with self._lock:
                if self._closed:
                    raise StandpipeError("the loader is closed")
                workers.start()
                self._workers = workers
        except BaseException:
            workers.close(0)
            raise
        return workers

    def exchange(self, job: RemoteJob) -> None:
        """Make the rows of a finished job again whose records were replaced."""
        assert self._workers is not None
        assert job.local is not None
        _, again = assigned(self._plan, job.task, job.assignment.slot, job.assignment.views)
        assert again is not None
        job.again = None
        self._workers.exchange(job.local, again, self.ring)

    def go_on(self) -> None:
        """Make the replaced rows of jobs whose other rows are made."""
        for job in self._jobs:
            assert job.local is not None
            if job.again is not None and job.local.done and not job.local.failures():
                self.exchange(job)

    def cancel(self, job: Any) -> None:
        """Drop the rows of a job that no worker has begun."""
        if self._workers is not None:
            self._workers.cancel(job)

    def wait(self, seen: int, patience_s: float | None) -> int:
        """Wait until the run's bell has rung more than ``seen`` times; return how many times it has rung."""
        if self._workers is not None:
            return self._workers.wait(seen, patience_s)
        return self._bell.wait(seen) if patience_s is None else self._bell.wait_for(seen, patience_s)

    def settle(self) -> None:
        """Wait for the results of all tasks that workers still have."""
        if self._workers is not None:
            self._workers.settle()

    def take_lost(self) -> Sequence[tuple[RemoteJob, Failure]]:
        """Return the jobs that were given up since the last call, each with the failure of the row that hangs."""
        if self._workers is None:
            return ()
        lost = self._workers.take_lost()
        return [(each, failure) for job, failure in lost for each in self._jobs if each.local is job]

    def stats(self) -> Stats:
        """Return the counters of these workers."""
        return Stats() if self._workers is None else self._workers.stats()

    def at_work(self) -> Sequence[Work]:
        """Return the current work of each worker."""
        return () if self._workers is None else self._workers.at_work()

    def memory(self) -> WorkersMemory | None:
        """Return the memory of these workers; None if there are none."""
        return None if self._workers is None else self._workers.memory()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of results outside the slots."""
        return 0 if self._workers is None else self._workers.waiting_bytes

    def close(self, patience_s: float) -> bool:
        """End these workers; return False if some threads are still busy after ``patience_s``.

        Workers that are being started are ended by the thread that starts them.
        """
        with self._lock:
            self._closed = True
        return self._workers is None or self._workers.close(patience_s)
