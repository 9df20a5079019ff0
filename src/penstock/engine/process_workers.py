"""Slots filled by Python code in worker processes, which write rows into the slots themselves."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock import _native
from penstock.engine.jobs import Piece, QueueWorkers
from penstock.engine.messages import Ended, Unreadable, encoded, receive, send_encoded
from penstock.engine.processes import WorkerProcess, WorkerServer
from penstock.engine.samples import PartOfRows
from penstock.engine.workers import Failure, Flaws
from penstock.errors import WorkerDied
from penstock.plan import Plan

MOST_DEATHS, DEATHS_WITHIN_S = 3, 600.0  # of workers, before no other one takes their place
PIECE_S = 2e-3  # of work that a worker is asked for at once: asking costs the trainer some 100 µs
MOST_ROWS = 256  # that it is asked for at once, however quick they are
AHEAD_BYTES = 64 << 10  # of a message sent while the worker may be sending too: fits a socket's buffers


def _message(piece: Piece, gathers: bool) -> tuple[Any, ...]:
    """What a worker has to know to make a piece. Functions of a batch may need its rows made again."""
    job, content = piece.job, piece.job.content
    first, stop = (0, job.rows) if piece.is_functions else (piece.first, piece.stop)
    kind = "functions" if piece.is_functions else "samples" if gathers else "rows"
    rows = slice(first, stop)
    part = PartOfRows(
        content.epoch,
        content.indices[rows],
        content.positions[rows],
        content.attempts[rows],
        content.inputs.part(first, stop),
    )
    return kind, job.slot, job.rows, first, part, content.lists if piece.is_functions else {}


def _described(piece: Piece) -> str:
    """Its records, for a message."""
    indices = piece.job.content.indices[piece.first : piece.stop]
    if piece.is_functions:
        return f"a batch of the records {', '.join(map(str, piece.job.content.indices))}"
    return (
        f"record {indices[0]}" if len(indices) == 1 else f"one of the records {', '.join(map(str, indices))}"
    )


class ProcessWorkers(QueueWorkers):
    """Worker processes, each with a thread that hands it work and takes its answers."""

    helps = False

    def __init__(
        self,
        server: WorkerServer,
        workers: Sequence[WorkerProcess],
        plan: Plan,
        ring: _native.SlotRing,
        bell: _native.Bell,
    ) -> None:
        super().__init__(plan, 2 * len(workers), bell)
        self._server, self._ring = server, ring
        self._lock = threading.Lock()  # of what follows
        self._deaths: deque[float] = deque()
        self._workers = {worker.number: worker for worker in workers}
        for worker in workers:
            worker.map_slots(plan, ring)
        self._threads = [
            threading.Thread(
                target=self._drive, args=(number,), name=f"penstock-worker-{number}", daemon=True
            )
            for number in range(len(workers))
        ]
        for thread in self._threads:
            thread.start()

    def help(self) -> bool:
        """The caller's thread makes no rows."""
        return False

    def close(self, patience_s: float) -> bool:
        """End the workers; one that is inside a function is killed. Nobody writes into slots afterwards."""
        ends = time.monotonic() + patience_s
        self._queue.close()
        for thread in self._threads:
            thread.join(max(ends - time.monotonic(), 0))
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.kill()
        for thread in self._threads:
            thread.join()
        for worker in workers:
            worker.close()
        self._server.close(patience_s)
        return True

    # One thread per worker.

    def _drive(self, number: int) -> None:
        """Keep a worker busy: one piece of work in its hands, one waiting."""
        asked: deque[Piece] = deque()
        waiting: tuple[Piece, bytes] | None = None
        while True:
            worker = self._workers[number]
            try:
                if waiting is None and len(asked) < 2:
                    piece = self._queue.take(min(self._queue.rows_in(PIECE_S), MOST_ROWS), wait=not asked)
                    waiting = None if piece is None else (piece, encoded(_message(piece, self._plan.gathers)))
                # What is larger than a socket's buffers waits until the worker does nothing but read.
                if waiting is not None and (not asked or len(waiting[1]) <= AHEAD_BYTES):
                    asked.append(waiting[0])
                    data, waiting = waiting[1], None
                    send_encoded(worker.channel, data)
                    continue
                if not asked:
                    return  # closed
                begin = time.perf_counter()
                answer = receive(worker.channel, worker.handle)
                self._finish(asked.popleft(), answer, time.perf_counter() - begin)
            except Unreadable as error:
                piece = asked.popleft()
                self._queue.finish(piece, [Failure(piece.first, "batch", str(error), error.__cause__)])
            except Ended:
                lost = [*asked, *([waiting[0]] if waiting is not None else [])]
                asked.clear()
                waiting = None
                if not self._replace(worker, lost):
                    return

    def _finish(
        self, piece: Piece, answer: tuple[list[Failure], dict[str, list[Any]], Any, Flaws], seconds: float
    ) -> None:
        bad, lists, made, flaws = answer
        for name, values in lists.items():
            piece.job.content.lists[name][piece.first : piece.stop] = values
        if made is not None:
            piece.job.made = made
        self._queue.finish(piece, bad, seconds, flaws)

    def _replace(self, worker: WorkerProcess, lost: Sequence[Piece]) -> bool:
        """A worker is gone: the batches of which it held rows fail, and another one takes its place."""
        if self._queue.closed:
            return False
        error = worker.death(_described(lost[0]) if lost else "nothing")
        for piece in lost:
            self._queue.lose(piece, error)
        with self._lock:
            now = time.monotonic()
            self._deaths.append(now)
            while now - self._deaths[0] > DEATHS_WITHIN_S:
                self._deaths.popleft()
            if len(self._deaths) > MOST_DEATHS:
                minutes = f"{DEATHS_WITHIN_S / 60:g} minutes"
                self._queue.break_with(WorkerDied(f"{error}; it was the {len(self._deaths)}th in {minutes}"))
                return False
            worker.close()
            try:
                successor = WorkerProcess(self._server, worker.number)
                successor.map_slots(self._plan, self._ring)
            except (WorkerDied, Ended) as reason:
                self._queue.break_with(WorkerDied(f"{error}; {reason}"))
                return False
            self._workers[worker.number] = successor
        return True
