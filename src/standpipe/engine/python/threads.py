"""Workers that run Python code in threads of this process, or in the training loop's thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from standpipe import _native
from standpipe.engine.python.cached_samples import SampleCache
from standpipe.engine.python.calls import unforeseen
from standpipe.engine.python.functions import apply_batch_functions, make_sample_list
from standpipe.engine.python.jobs import QueueWorkers
from standpipe.engine.python.samples import SampleMaker
from standpipe.engine.python.slot_job import Piece, Seat, SlotJob, is_whole
from standpipe.engine.python.worker_setup import Supplies, WorkerSetup
from standpipe.engine.timing import Took
from standpipe.engine.watchdog.board import FOR_MEMORY, FUNCTIONS, IDLE, ROW, SINCE, STEP, TOGETHER, step_text
from standpipe.engine.watchdog.guarded import Ends, guarded
from standpipe.engine.watchdog.watch import Overdue, Owner, Work
from standpipe.engine.watchdog.where import stack_of_thread
from standpipe.engine.workers import (
    CALLER,
    WHOLE,
    Failure,
    Use,
    WorkersMemory,
    has_ended,
    too_long,
)
from standpipe.errors import StalledError
from standpipe.plan.plan import Plan
from standpipe.stats.counters import Counts, Stats, WorkerStats, with_counts

MOST_HANGING = 4  # threads that hang, for each worker, before the run ends
PIECE_S = 5e-3  # of work that a thread takes from the queue at once: handing it over costs some 100 µs


class SampleThread(Seat):
    """One thread that makes samples, and its current task.

    number    the thread's number; −1 for the training loop's thread
    name      the thread in messages
    """

    def __init__(self, maker: SampleMaker, number: int) -> None:
        self.maker, self.number = maker, number
        self.name = CALLER if number < 0 else f"thread {number}"
        self.thread = 0
        self.rows, self.busy_s = 0, 0.0

    def stats(self) -> WorkerStats:
        """Return the thread's counters."""
        return WorkerStats(self.name, self.rows, self.busy_s)

    def begin(self, piece: Piece) -> None:
        """Begin a task. The heartbeat is renewed before, so that it never shows an old step."""
        self.maker.at(piece.first, FUNCTIONS if piece.is_functions else 0)
        self.piece = piece

    def made(self, plan: Plan, piece: Piece) -> list[Failure]:
        """Do a task, and return the failures of rows that can't be made."""
        content, maker = piece.job.content, self.maker
        maker.laps.piece_begins()
        if not plan.gathers and not piece.is_functions:
            return maker.fill(content, piece.first, piece.stop)
        made = make_sample_list(maker, content) if plan.gathers else apply_batch_functions(maker, content)
        if isinstance(made, list):
            return made
        piece.job.made = made
        return []

    def done(self, piece: Piece, seconds: float) -> tuple[float, Counts, Took]:
        """End a task that took ``seconds``; return its seconds, its counters, and the seconds per step."""
        self.rows += piece.stop - piece.first
        self.busy_s += seconds
        return seconds, self.maker.new_counters(), self.maker.laps.took(piece.stop - piece.first)

    def at_work(self, plan: Plan, owner: Owner) -> Work | None:
        """Return the thread's current work for the watchdog; None without any."""
        piece, heartbeat = self.piece, self.maker.heartbeat
        row, step, since = heartbeat[ROW], heartbeat[STEP], heartbeat[SINCE]
        if piece is None or piece is not self.piece or step == IDLE or self.given_up:
            return None  # or it has begun another piece, to which the row belongs
        what, index, path = piece.job.named(WHOLE if is_whole(piece, step) or step == TOGETHER else row)
        hand = PythonThreadRow(self, piece, row, since)
        doing = step_text(plan, step)
        return Work(hand, what, doing, self.name, since / 1e9, owner, index, path, waits=step >= FOR_MEMORY)


class PythonThreadRow(NamedTuple):
    """The row that a thread is making, to recognise later if the thread still makes the same row.

    since  when the row or step began, in nanoseconds of ``time.monotonic_ns()``
    """

    seat: SampleThread
    piece: Piece
    row: int
    since: int


class ThreadWorkers(QueueWorkers):
    """Python threads that make samples.

    threads  number of threads; 0: the training loop's thread makes samples in ``help()``
    kept     the open cache; None without one
    ends     called with the error if a thread ends because of one
    """

    def __init__(
        self,
        plan: Plan,
        setup: WorkerSetup,
        threads: int,
        bell: _native.Bell,
        kept: SampleCache | None,
        ends: Ends,
    ) -> None:
        super().__init__(plan, max(threads, 1), 1, bell)
        self._ends = ends
        self._setup = setup
        side = _native.SideArena(plan.memory.forecast.side)
        self._supplies = Supplies.of(setup, side, max(threads and plan.pool.most_workers, 1), kept)
        self._overdue = Overdue(bell)
        self._threads: list[threading.Thread] = []
        self._seats: list[SampleThread] = []
        self._wanted = threads
        self.helps = threads == 0
        self._helping = threading.Lock()  # held while the caller's thread does a piece of work

    def start(self) -> None:
        """Start the threads."""
        if self.helps:
            self._seats.append(self._new_seat())
        for number in range(self._wanted):
            self._start(number)

    def employ(self, number: int) -> None:
        """Set how many threads get tasks. Missing threads are started, as far as the system allows."""
        with contextlib.suppress(RuntimeError):
            while self._wanted < number and not self._queue.closed:
                self._start(self._wanted)
                self._wanted += 1
        self._employ(min(number, self._wanted))

    def help(self) -> bool:
        """Do one task in the calling thread, which makes all rows; return False if there is no task."""
        with self._helping:
            return self._help()

    def cancel(self, job: SlotJob) -> None:
        """Drop the rows of a job that no thread has begun, and rows whose making an interrupt has stopped."""
        super().cancel(job)
        if self.helps:
            with self._helping:
                job.unfinished = 0

    def _help(self) -> bool:
        piece = self._queue.take(0, self._queue.rows_in(PIECE_S), wait=False)
        if piece is None:
            return False
        (seat,) = self._seats
        begin = time.perf_counter()
        bad = [Failure(piece.first, "cancelled", "interrupted")]  # unless it comes to its end
        try:
            seat.thread = threading.get_ident()
            seat.begin(piece)
            bad = seat.made(self._plan, piece)
        finally:
            seat.piece = None
            self._queue.finish(piece, bad, *seat.done(piece, time.perf_counter() - begin))
        return True

    def stats(self) -> Stats:
        """Return the counters of all threads, of file reads, and of the cache."""
        stats = replace(
            super().stats(),
            side_peak_bytes=self._supplies.side.peak_bytes,
            workers=tuple(seat.stats() for seat in list(self._seats)),
        )
        return with_counts(stats, self._supplies.counters)

    def at_work(self) -> Sequence[Work]:
        """Return the current work of each thread that has any, for the watchdog."""
        works = (seat.at_work(self._plan, self) for seat in list(self._seats))
        return [work for work in works if work is not None]

    def where(self, work: Work) -> str:
        """Return the stack of the thread that does this work."""
        assert isinstance(work.hand, PythonThreadRow)
        return stack_of_thread(work.hand.seat.thread)

    def give_up(self, work: Work, error: StalledError) -> bool:
        """Record that a thread hangs, so that ``take_lost`` replaces it. Return False if it is the training loop's."""
        return not self.helps and self._overdue.add(work, error)

    def take_lost(self) -> Sequence[tuple[SlotJob, Failure]]:
        """Return each job in which a thread hangs, with the failure of its row, and replace the hanging threads."""
        lost = []
        for work, error in self._overdue.take():
            assert isinstance(work.hand, PythonThreadRow)
            seat, piece, row, _ = work.hand
            if not self._queue.give_up(seat, piece):
                continue
            whole = is_whole(piece, seat.maker.heartbeat[STEP])
            lost.append((piece.job, too_long(WHOLE if whole else row, error)))
            if self._is_hopeless(seat):
                self._queue.break_with(error)
            else:
                self._seats.remove(seat)
                self._start(seat.number)
                self._seats[-1].rows += seat.rows
                self._seats[-1].busy_s += seat.busy_s
        return lost

    def memory(self) -> WorkersMemory:
        """Return the memory of the side arena and of the cache."""
        side, kept = self._supplies.side, self._supplies.kept
        return WorkersMemory(
            cache=Use(0 if kept is None else self._plan.memory.forecast.cache),
            side=Use(side.used_bytes, side.peak_bytes),
        )

    def close(self, patience_s: float) -> bool:
        """End the threads; return False if one is still inside a function after ``patience_s``, and ends after it."""
        ends = time.monotonic() + patience_s
        self._queue.close()
        self._supplies.close()
        ended = [has_ended(thread, ends - time.monotonic()) for thread in self._threads]
        self._supplies.close(max(ends - time.monotonic(), 0))
        if self._supplies.kept is not None and all(ended):  # else a thread may look a sample up yet
            ended.append(self._supplies.kept.close(max(ends - time.monotonic(), 0)))
        return all(ended)

    def _is_hopeless(self, seat: SampleThread) -> bool:
        """Return True if the run can't continue while this thread hangs.

        The thread reads a stream, which no other thread can read; or too many threads hang already.
        """
        hanging = sum(thread.is_alive() for thread in self._threads) - len(self._seats)
        return self._plan.samples.stream is not None or hanging >= MOST_HANGING * self._plan.pool.workers

    def _new_seat(self, number: int = -1) -> SampleThread:
        caught: type[BaseException] = Exception if self.helps else BaseException
        maker = SampleMaker(self._setup, self._supplies, catches=caught)
        maker.laps.guest = self.helps
        return SampleThread(maker, number)

    def _start(self, number: int) -> None:
        seat = self._new_seat(number)
        thread = guarded(f"standpipe-worker-{number}", partial(self._work, seat), self._ends)
        # Before it runs: after an interrupt here, close() still finds it.
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        thread.start()
        self._seats.append(seat)

    def _work(self, seat: SampleThread) -> None:
        seat.thread = threading.get_ident()
        while not seat.given_up:
            rows = self._queue.rows_in(PIECE_S)
            piece = self._queue.take(seat.number, rows, least=rows, wait=True)
            if piece is None:
                return
            begin = time.perf_counter()
            seat.begin(piece)
            try:
                bad = seat.made(self._plan, piece)
            except BaseException as error:  # else the thread that waits for this batch would wait for ever
                bad = [unforeseen(piece.first, error)]
            seat.piece = None
            self._queue.finish(piece, bad, *seat.done(piece, time.perf_counter() - begin))
