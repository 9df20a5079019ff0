"""The trainer's own workers, which make batches while no maker outside is left."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from standpipe import _native
from standpipe.engine.moves import tracer_of_windows
from standpipe.engine.remote.jobs import RemoteJob
from standpipe.engine.remote.messages import assigned
from standpipe.engine.start import started
from standpipe.engine.watchdog.watch import Watch
from standpipe.engine.workers import Assignment, Failure, Substitutes, Workers
from standpipe.errors import StandpipeError
from standpipe.order import Cursor
from standpipe.plan.plan import Plan


class Local:
    """Workers in or beside the trainer, which are started when they are first needed.

    ring     the slots of the run
    workers  the workers; those of the base class, which do nothing, until others are started
    exist    True if workers were needed already
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
        self._lock = threading.Lock()  # guards the three below
        self.workers, self.exist = workers or Workers(bell), workers is not None
        self._closed = False
        self._tracer = tracer_of_windows(plan)
        self._jobs: list[RemoteJob] = []

    def make(self, job: RemoteJob) -> None:
        """Make a batch with these workers. If they can't be started, the job fails with the reason."""
        try:
            workers = self.workers if self.exist else self._started(job.assignment.at)
            assignment, job.again = self._assigned(job)
            begun = workers.begin(assignment, self.ring)
        except Exception as error:
            job.fail(error)
            self._bell.ring()
            return
        job.local = begun
        self._jobs = [*(each for each in self._jobs if not each.done), job]
        workers.submit(begun)

    def _assigned(self, job: RemoteJob) -> tuple[Assignment, Substitutes | None]:
        return assigned(self._plan, job.task, job.assignment.slot, job.assignment.views, self._tracer)

    def _started(self, at: Cursor) -> Workers:
        """Start the workers, and return them. If the run is closed during the start, end them, and raise an error."""
        _, workers, _ = started(self._plan, at, self._bell, self._watch, self.ring)
        try:
            with self._lock:
                if self._closed:
                    raise StandpipeError("the loader is closed")
                workers.start()
                self.workers, self.exist = workers, True
        except BaseException:
            workers.close(0)
            raise
        return workers

    def exchange(self, job: RemoteJob) -> None:
        """Make the rows of a finished job again whose records were replaced."""
        assert job.local is not None
        _, again = self._assigned(job)
        assert again is not None
        job.again = None
        self.workers.exchange(job.local, again, self.ring)

    def go_on(self) -> None:
        """Make the replaced rows of jobs whose other rows are made."""
        for job in self._jobs:
            assert job.local is not None
            if job.again is not None and job.local.done and not job.local.failures():
                self.exchange(job)

    def take_lost(self) -> Sequence[tuple[RemoteJob, Failure]]:
        """Return the jobs that were given up since the last call, each with the failure of the row that hangs."""
        lost = self.workers.take_lost()
        return [(each, failure) for job, failure in lost for each in self._jobs if each.local is job]

    def close(self, patience_s: float) -> bool:
        """End these workers; return False if some threads are still busy after ``patience_s``.

        Workers that are being started are ended by the thread that starts them.
        """
        with self._lock:
            self._closed = True
        return self.workers.close(patience_s)
