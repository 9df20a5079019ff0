"""The queue of slots for workers that run Python code, cut into tasks: the oldest slot first."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence

from standpipe import _native
from standpipe.engine.cache import log_cache_warning
from standpipe.engine.python.slot_job import Piece, Seat, SlotJob
from standpipe.engine.rows import END
from standpipe.engine.timing import Took
from standpipe.engine.watchdog.board import step_text
from standpipe.engine.workers import Assignment, Failure, Substitutes, Workers
from standpipe.errors import StandpipeError
from standpipe.plan.plan import Plan
from standpipe.stats.counters import Counts, PlaceStats, Stats, added_up, with_counts
from standpipe.stats.latency import Latency

MEMORY = 0.8  # weight of earlier tasks in the estimate of a worker's speed; the last task has the weight 1


class JobQueue:
    """The jobs with rows that no worker has begun. The queue rings the run's bell when a job is done.

    employed  number of workers that get tasks
    hands     tasks that each worker may have at once
    whole     True if all rows of a batch go to one worker
    turns     number of workers that take batches in turn; 0: any idle worker takes the next one
    done      tasks that workers have finished
    broken    the error after which no worker works
    """

    def __init__(self, bell: _native.Bell, *, employed: int, hands: int, whole: bool, turns: int = 0) -> None:
        self.employed = employed
        self._bell, self._hands, self._whole, self._turns = bell, hands, whole, turns
        # Entered itself: an interrupt inside a condition's own methods would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._called = threading.Condition(self._lock)  # for workers that aren't employed now
        self._jobs: deque[SlotJob] = deque()
        self._counts: defaultdict[str, float] = defaultdict(int)  # by their names in ``Stats``
        self._times = _native.Durations()
        self._steps: defaultdict[int, float] = defaultdict(float)  # seconds of each step
        self._numbered = 0  # jobs that have come
        self._pace = 0.0, 0.0  # rows, and seconds that they took; older tasks count less
        self._said: set[str] = set()
        self.done = 0
        self.broken: StandpipeError | None = None
        self.closed = False

    def rows_in(self, seconds: float) -> int:
        """Return how many rows a worker makes in ``seconds``, estimated from the last tasks; at least 1."""
        rows, busy_s = self._pace
        return max(int(seconds * rows / busy_s), 1) if busy_s else 1

    @property
    def has_jobs(self) -> bool:
        """True if there may be rows that no worker has begun."""
        return bool(self._jobs)

    def stats(self, plan: Plan) -> Stats:
        """Return the counters of the workers of this plan."""
        with self._lock:  # rows and their counters belong together
            counts = self._counts.copy()
            counts["transform.rows"] = counts["rows"]
            counts["transform.busy_s"] -= counts["read.busy_s"]
            stats = Stats(
                transform=PlaceStats(threads=self.employed, latency=Latency(self._times.latency)),
                functions={step_text(plan, step): seconds for step, seconds in self._steps.items()},
            )
            return with_counts(stats, counts)

    def put(self, job: SlotJob, *, first: bool = False) -> None:
        """Put a job into the queue, in the order in which jobs first came. A job comes again if rows are replaced.

        first  True: before all jobs so far
        """
        with self._lock:
            if job.age == 0:
                self._numbered += 1
                job.age = -self._numbered if first else self._numbered
            if job.done:  # all its rows are left out
                self._bell.ring()
                return
            self._put_by_age(job)
            if self.broken is not None:
                self.break_with(self.broken)

    def employ(self, number: int) -> None:
        """Set that only workers with numbers below ``number`` get tasks from now on; other workers wait."""
        with self._lock:
            self.employed = number
            self._called.notify_all()
            self._changed.notify_all()

    def take(self, worker: int, most: int, *, least: int = 1, wait: bool) -> Piece | None:
        """Take a task for a worker: rows that no worker has begun, of the oldest job.

        worker  number of the worker
        most    most rows of the task
        least   least rows; between both, the job's remaining rows are shared out equally among workers
        wait    True: wait until there is a task or the queue is closed

        Return None if there is no task, or if the queue is closed.
        """
        with self._lock:
            if wait:
                self._await_job(worker)
            job = self._next_for(worker)
            if job is None or self.closed or worker >= self.employed:
                return None
            if not job.todo:
                job.functions_left = False
            share = (
                job.rows
                if self._whole or self._turns
                else min(most, max(least, -(-job.rows_todo // (self.employed * self._hands))))
            )
            piece = Piece(job, *job.begin(max(1, share)))
            if not job.todo:
                self._jobs.remove(job)
            return piece

    def _next_for(self, worker: int) -> SlotJob | None:
        """Return the oldest job that this worker may take; None without one. The caller holds the lock."""
        jobs = iter(self._jobs)
        return next((job for job in jobs if not self._turns or job.number % self._turns == worker), None)

    def _await_job(self, worker: int) -> None:
        """Wait until there is a job for this worker, or the queue is closed. The caller holds the lock."""
        while not self.closed:
            if worker >= self.employed:
                self._called.wait()
            elif self._next_for(worker) is not None:
                return
            else:
                begin = time.perf_counter()
                self._changed.wait()
                self._counts["transform.wait_s"] += time.perf_counter() - begin

    def finish(
        self,
        piece: Piece,
        bad: Sequence[Failure] = (),
        seconds: float = 0.0,
        counters: Counts | None = None,
        took: Took | None = None,
    ) -> None:
        """Record that a worker has finished a task.

        bad      failures of the task's rows
        seconds  time of the task
        counters    the worker's counters since its last task; None: none were counted
        took     the time of the task in detail; None: not measured
        """
        job = piece.job
        with self._lock:
            ends = [failure.row for failure in bad if failure.place == END]
            job.bad += [failure for failure in bad if failure.place != END]
            if ends:
                self._cut(job, ends[0])
            elif job.made is not None and job.made.rows is not None:
                job.ended_after = job.made.rows
            self.done += 1
            self._count(piece, bad, seconds, took)
            if counters:
                self._counts.update(added_up(self._counts, counters))
            self._end(job, piece.size)

    def _count(self, piece: Piece, bad: Sequence[Failure], seconds: float, took: Took | None) -> None:
        """Count a finished task. The caller holds the lock."""
        counts = self._counts
        if any(failure.place == "cancelled" for failure in bad):
            return
        stop = min([failure.row for failure in bad if failure.place == END], default=piece.stop)
        failed = {failure.row for failure in bad if failure.row < stop and not failure.whole}
        counts["rows"] += max(stop - piece.first - len(failed), 0)
        counts["transform.busy_s"] += seconds
        rows, busy_s = self._pace
        self._pace = MEMORY * rows + stop - piece.first, MEMORY * busy_s + seconds
        if took is None:
            return
        counts["transform.cpu_s"] += took.cpu_s
        counts["transform.queued_s"] += took.queued_s
        for nanoseconds in took.rows:
            self._times.add(nanoseconds)
        for step, step_s in took.steps.items():
            self._steps[step] += step_s

    def count_wait(self, seconds: float) -> None:
        """Add ``seconds`` to the time that workers have waited for tasks."""
        with self._lock:
            self._counts["transform.wait_s"] += seconds

    def meet(self, counters: Counts) -> None:
        """Add a worker's counters since its last task."""
        with self._lock:
            self._counts.update(added_up(self._counts, counters))

    def tell(self, notes: Sequence[str]) -> None:
        """Log notes of workers as warnings: of notes with the same text up to the first colon, only the first."""
        for note in notes:
            about = note.partition(":")[0]
            if about not in self._said:
                self._said.add(about)
                log_cache_warning(note)

    def lose(
        self, piece: Piece, suspects: Collection[int], failure: Callable[[int], Failure]
    ) -> Sequence[int]:
        """Put the task of a worker that has ended back into the queue, before all later tasks.

        suspects  the rows during which the worker ended, or ``WHOLE``. Each is made again in a task of its own. If a
                  worker has ended at the same row before, the row fails
        failure   returns the failure of a row

        Return the rows that have failed.
        """
        job = piece.job
        with self._lock:
            job.died = job.died or self.broken
            ended = job.ended_after is not None and piece.stop > job.ended_after
            if self.closed or job.given_up or job.died is not None or (ended and not piece.is_functions):
                self._end(job, piece.size)
                return ()
            guilty = [row for row in suspects if job.suspect(row)]
            job.bad += map(failure, guilty)
            if guilty and (piece.is_functions or self._whole):
                self._end(job, piece.size)
                return guilty
            if piece.is_functions:
                job.functions_left = True
            else:
                alone = () if self._whole else suspects
                job.put_back(piece.first, piece.stop, alone=alone, without=guilty)
            if job.todo or piece.is_functions:
                self._put_by_age(job)
            if guilty:
                self._end(job, len(guilty))
            return guilty

    def cancel(self, job: SlotJob) -> None:
        """Drop the rows of a job that no worker has begun; the job is done when the begun rows are."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
            job.given_up = True
            self._end(job, self._dropped(job))
        self._bell.ring()

    def give_up(self, seat: Seat, piece: Piece) -> bool:
        """Cancel the job of a thread that hangs in a task. Return False if the thread has finished the task since.

        seat  the thread, which ends when the task returns
        """
        with self._lock:
            if seat.piece is not piece:
                return False
            seat.given_up = True  # before the thread can look again
            self.cancel(piece.job)
            return True

    def break_with(self, error: StandpipeError) -> None:
        """Fail all jobs in the queue, and all later jobs, with ``error``, since no worker is left."""
        with self._lock:
            self.broken = error
            for job in list(self._jobs):
                job.died = error
                self.cancel(job)

    def close(self) -> None:
        """Drop all jobs, and make every worker's ``take`` return None."""
        with self._lock:
            self.closed = True
            self._jobs.clear()
            self._changed.notify_all()
            self._called.notify_all()

    def _cut(self, job: SlotJob, rows: int) -> None:
        """Shorten a job to ``rows`` rows, as its stream has ended. The caller holds the lock."""
        if job.ended_after is not None and job.ended_after <= rows:
            return
        job.ended_after = rows
        job.content = job.content.cut(rows)
        if job in self._jobs:
            self._jobs.remove(job)
        job.unfinished -= self._dropped(job)
        if rows == 0:
            job.unfinished -= job.functions_left
            job.functions_left = False

    def _put_by_age(self, job: SlotJob) -> None:
        """Put a job before all jobs that came later, and wake waiting workers. The caller holds the lock."""
        if job not in self._jobs:
            later = (place for place, other in enumerate(self._jobs) if other.age > job.age)
            self._jobs.insert(next(later, len(self._jobs)), job)
        self._changed.notify_all()

    def _dropped(self, job: SlotJob) -> int:
        """Drop the rows of a job that no worker has begun, and return their number. The caller holds the lock."""
        dropped = job.rows_todo
        job.todo.clear()
        return dropped

    def _end(self, job: SlotJob, size: int) -> None:
        """Count ``size`` rows of a job as finished; then start the functions of its batch, or ring the bell.

        Functions of the batch start when all rows are made; the bell rings when the job is done. The caller holds
        the lock.
        """
        job.unfinished -= size
        if job.unfinished == 1 and job.functions_left and not job.todo:
            if job.given_up or job.bad or job.died is not None:
                job.unfinished = 0
            else:
                self._put_by_age(job)
        if job.unfinished == 0:
            self._bell.ring()


class QueueWorkers(Workers):
    """The part of ``Workers`` that threads and processes share: jobs go into a queue."""

    def __init__(self, plan: Plan, workers: int, hands: int, bell: _native.Bell) -> None:
        super().__init__(bell)
        self._plan, self.employed = plan, workers
        turns = workers if plan.options.round_robin else 0
        self._queue = JobQueue(bell, employed=workers, hands=hands, whole=plan.gathers, turns=turns)

    def begin(self, assignment: Assignment, ring: _native.SlotRing) -> SlotJob:
        """Return a job with the records of an assignment's rows; ``submit`` starts it."""
        return SlotJob(assignment, self._plan)

    def submit(self, job: SlotJob, *, first: bool = False) -> None:
        """Queue a job behind all jobs that were submitted before; with ``first``, before them."""
        self._queue.put(job, first=first)

    def exchange(self, job: SlotJob, new: Substitutes, ring: _native.SlotRing) -> None:
        """Make the rows in ``new.rows`` again from other records, before all later jobs."""
        job.exchange(new, whole=self._plan.gathers)
        self._queue.put(job)

    def cancel(self, job: SlotJob) -> None:
        """Drop the rows of a job that no worker has begun."""
        self._queue.cancel(job)

    def _employ(self, number: int) -> None:
        self.employed = number
        self._queue.employ(number)

    def stats(self) -> Stats:
        """Return the counters of all workers."""
        return self._queue.stats(self._plan)
