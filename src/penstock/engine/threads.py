"""Slots filled by Python code in threads, or in the thread that waits for the batch."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from penstock import _native
from penstock.engine.draws import GlobalGenerators
from penstock.engine.functions import apply, gather
from penstock.engine.jobs import Piece, QueueWorkers
from penstock.engine.samples import Recipe, SampleMaker, Supplies, unforeseen
from penstock.engine.workers import Failure, Stats
from penstock.plan import Plan

PIECE_S = 0.5e-3  # of work that a thread takes from the queue at once: handing it over costs some 10 µs


class ThreadWorkers(QueueWorkers):
    """``threads`` Python threads; with none, whoever waits for a batch makes its rows in ``help()``."""

    def __init__(
        self, plan: Plan, recipe: Recipe, generators: GlobalGenerators, threads: int, bell: _native.Bell
    ) -> None:
        super().__init__(plan, max(threads, 1), bell)
        self._recipe, self._generators = recipe, generators
        self._supplies = Supplies.of(recipe)
        self._helper = SampleMaker(recipe, generators, self._supplies) if threads == 0 else None
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

    def help(self) -> bool:
        """Do one piece of work in this thread, if there are no others."""
        if self._helper is None or (piece := self._queue.take(1, wait=False)) is None:
            return False
        bad = [Failure(piece.first, "cancelled", "interrupted")]  # unless it comes to its end
        try:
            with self._helper.own:
                bad = self._made(self._helper, piece)
        finally:
            self._queue.finish(piece, bad, flaws=self._helper.new_flaws())
        return True

    def stats(self) -> Stats:
        """Rows, seconds of work and of waiting, and how files were read."""
        return replace(
            super().stats(),
            retries=self._supplies.reader.retries,
            slowest_read_s=self._supplies.reader.slowest_s,
        )

    def close(self, patience_s: float) -> bool:
        """End the threads; one that is inside a function ends when that returns."""
        ends = time.monotonic() + patience_s
        self._queue.close()
        self._supplies.close()
        for thread in self._threads:
            thread.join(max(ends - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        maker = SampleMaker(self._recipe, self._generators, self._supplies, catches=BaseException)
        with maker.own:
            while (piece := self._queue.take(self._queue.rows_in(PIECE_S), wait=True)) is not None:
                begin = time.perf_counter()
                try:
                    bad = self._made(maker, piece)
                except BaseException as error:  # whoever waits for this batch would wait for ever
                    bad = [unforeseen(piece.first, error)]
                self._queue.finish(piece, bad, time.perf_counter() - begin, maker.new_flaws())

    def _made(self, maker: SampleMaker, piece: Piece) -> list[Failure]:
        content = piece.job.content
        if not self._plan.gathers and not piece.is_functions:
            return maker.fill(content, piece.first, piece.stop)
        made = gather(maker, content) if self._plan.gathers else apply(maker, content)
        if isinstance(made, list):
            return made
        piece.job.made = made
        return []
