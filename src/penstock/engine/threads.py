"""Slots filled by Python code in threads, or in the thread that waits for the batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from penstock import _native
from penstock.engine.board import IDLE, IN_TURN, ROW, SINCE, STEP, step_text
from penstock.engine.draws import GlobalGenerators
from penstock.engine.functions import apply, gather
from penstock.engine.jobs import WHOLE, Piece, QueueWorkers, is_whole
from penstock.engine.samples import Recipe, SampleMaker, Supplies, unforeseen
from penstock.engine.watch import Work
from penstock.engine.where import stack_of_thread
from penstock.engine.workers import CALLER, Failure, Stats, Use, WorkersMemory
from penstock.errors import StalledError
from penstock.plan import Plan

PIECE_S = 0.5e-3  # of work that a thread takes from the queue at once: handing it over costs some 10 µs


class Seat:
    """One thread that makes samples, and what it has in hand."""

    def __init__(self, maker: SampleMaker, name: str) -> None:
        self.maker, self.name = maker, name
        self.piece: Piece | None = None
        self.thread = 0

    def made(self, plan: Plan, piece: Piece) -> list[Failure]:
        """Make a piece of work; which rows of it can't be made."""
        content, maker = piece.job.content, self.maker
        if not plan.gathers and not piece.is_functions:
            return maker.fill(content, piece.first, piece.stop)
        made = gather(maker, content) if plan.gathers else apply(maker, content)
        if isinstance(made, list):
            return made
        piece.job.made = made
        return []

    def at_work(self, plan: Plan) -> Work | None:
        """What it has in hand."""
        piece, desk = self.piece, self.maker.desk
        row, step, since = desk[ROW], desk[STEP], desk[SINCE]
        if piece is None or step == IDLE:
            return None
        what, index, path = piece.job.named(WHOLE if is_whole(piece, step) else row)
        hand = self, piece, row, since
        doing = step_text(plan, step)
        return Work(hand, what, doing, self.name, since / 1e9, self, index, path, waits=step >= IN_TURN)

    def where(self, work: Work) -> str:
        """The thread's stack."""
        return stack_of_thread(self.thread)

    def give_up(self, work: Work, error: StalledError) -> bool:
        """A thread can't be ended."""
        return False


class ThreadWorkers(QueueWorkers):
    """``threads`` Python threads; with none, whoever waits for a batch makes its rows in ``help()``."""

    def __init__(
        self, plan: Plan, recipe: Recipe, generators: GlobalGenerators, threads: int, bell: _native.Bell
    ) -> None:
        super().__init__(plan, max(threads, 1), bell)
        caught: type[BaseException] = BaseException if threads else Exception
        names = [f"thread {number}" for number in range(threads)] or [CALLER]
        self._supplies = Supplies.of(recipe, max(threads, 1))
        self._seats = [
            Seat(SampleMaker(recipe, generators, self._supplies, catches=caught, group=self), name)
            for name in names
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(seat,), name=f"penstock-worker-{number}", daemon=True)
            for number, seat in enumerate(self._seats[:threads])
        ]
        for thread in self._threads:
            thread.start()

    @property
    def helps(self) -> bool:
        """Whether the caller's thread does the work."""
        return not self._threads

    def help(self) -> bool:
        """Do one piece of work in this thread, if there are no others."""
        if not self.helps or (piece := self._queue.take(1, wait=False)) is None:
            return False
        (seat,) = self._seats
        bad = [Failure(piece.first, "cancelled", "interrupted")]  # unless it comes to its end
        try:
            seat.thread, seat.piece = threading.get_ident(), piece
            with seat.maker.own:
                bad = seat.made(self._plan, piece)
        finally:
            seat.piece = None
            self._queue.finish(piece, bad, flaws=seat.maker.new_flaws())
        return True

    def stats(self) -> Stats:
        """Rows, seconds of work and of waiting, and how files were read."""
        met = self._supplies.met
        return replace(
            super().stats(), retries=met.retries, hedged=met.hedged, slowest_read_s=met.slowest_read_s
        )

    def at_work(self) -> Sequence[Work]:
        """What every thread has in hand."""
        return [work for seat in self._seats if (work := seat.at_work(self._plan)) is not None]

    def memory(self) -> WorkersMemory:
        """The side arena."""
        side = self._supplies.side
        return WorkersMemory(side=Use(side.used_bytes, side.peak_bytes))

    def close(self, patience_s: float) -> bool:
        """End the threads; one that is inside a function ends when that returns."""
        ends = time.monotonic() + patience_s
        self._queue.close()
        self._supplies.close()
        for thread in self._threads:
            thread.join(max(ends - time.monotonic(), 0))
        self._supplies.close(max(ends - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, seat: Seat) -> None:
        seat.thread = threading.get_ident()
        with seat.maker.own:
            while (piece := self._queue.take(self._queue.rows_in(PIECE_S), wait=True)) is not None:
                begin = time.perf_counter()
                seat.piece = piece
                try:
                    bad = seat.made(self._plan, piece)
                except BaseException as error:  # whoever waits for this batch would wait for ever
                    bad = [unforeseen(piece.first, error)]
                seat.piece = None
                self._queue.finish(piece, bad, time.perf_counter() - begin, seat.maker.new_flaws())
