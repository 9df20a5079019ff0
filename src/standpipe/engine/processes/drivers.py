"""Give worker processes their tasks, take their answers, and replace workers that die."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from standpipe import _native
from standpipe.engine.processes.asked import Asked
from standpipe.engine.processes.memory_per_worker import (
    WorkerMemory,
    too_much_from_the_start,
    warn_of_recycling,
)
from standpipe.engine.processes.messages import (
    Ended,
    UnpicklableMessage,
    encoded,
    has_come,
    receive_parcel,
    send_encoded,
)
from standpipe.engine.processes.outside_slots import Apart
from standpipe.engine.processes.worker_handle import WorkerProcess
from standpipe.engine.python.jobs import JobQueue
from standpipe.engine.python.slot_job import Piece, is_whole
from standpipe.engine.timing import Took
from standpipe.engine.watchdog.board import (
    ANSWERING,
    FOR_MEMORY,
    IDLE,
    LOADING,
    PIECE,
    ROW,
    SINCE,
    STEP,
    TOGETHER,
    step_text,
)
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.watchdog.watch import OwnTask, Watch, Work
from standpipe.engine.workers import WHOLE, Failure, has_ended, too_long
from standpipe.errors import StalledError, StandpipeError, WorkerDiedError
from standpipe.plan.plan import Plan
from standpipe.stats.counters import Counts, WorkerStats

MOST_DEATHS = 3  # deaths in a row at one worker's place, without a finished task of any worker in between
MOST_IN_VAIN = 2  # workers in a row that use too much memory after their first task
# Seconds of work in one task, at least and at most. Sending a task costs the trainer about 100 µs.
LEAST_S, MOST_S = 5e-3, 20e-3
LET_GO_S = 1.0  # seconds for a worker that is being replaced to close its cache
MOST_ASKED = 2  # tasks that a worker has at once: the current one and the next
AHEAD_BYTES = 64 << 10  # largest message to a worker that may be sending too: it fits a socket's buffers


class Driver:
    """Sends tasks to one worker process, takes its answers, and replaces the process if it dies.

    A worker has at most two tasks: one that it works on, and one that waits. One thread drives all workers.
    It calls ``ask`` and ``take_answer``, which return soon. Measuring or replacing a worker takes long, so
    another thread does it. Until that is done, the driver sends no tasks.

    worker    the current worker process
    deaths    how often a worker process ended by itself
    recycled  how often a worker process was replaced because it used more memory than allowed
    memory    the worker's own memory
    apart     counts the bytes of results outside the slots
    unsaid    a lock that all drivers share: the first one that warns about a worker's memory locks it for ever
    """

    def __init__(
        self,
        worker: WorkerProcess,
        plan: Plan,
        ring: _native.SlotRing,
        queue: JobQueue,
        watch: Watch,
        apart: Apart,
        unsaid: threading.Lock,
        bell: _native.Bell,
    ) -> None:
        self.worker, self.deaths, self.recycled = worker, 0, 0
        self._server = server = worker.server
        self.memory = WorkerMemory(
            plan.pool.worker_bytes,
            sharers=plan.pool.workers + server.copies,
            side=lambda: server.side.used_by(worker.number),
        )
        self.memory.begin(worker.process)
        self._apart, self._unsaid, self._hands_over, self._bell = apart, unsaid, plan.hands_over, bell
        self._in_vain = 0  # workers in a row that used too much memory after their first task
        self._plan, self._ring, self._queue, self._watch = plan, ring, queue, watch
        self._numbers = 0
        self._asked: deque[Asked] = deque()
        self._waiting: tuple[Asked, bytes] | None = None
        self._front_since_s = 0.0  # when the oldest task became the oldest
        self._stalled: StalledError | None = None  # why the worker is being killed
        self._deaths_in_a_row = 0
        self._done_before = 0  # finished tasks of all workers at the last death
        self._sees_slots = False
        self._rows, self._busy_s = 0, 0.0  # of this worker and those before it
        self._idle_since_s: float | None = None  # since when the worker waits for a task
        self._own_task: threading.Thread | None = None  # the last thread that measured or replaced a worker
        self._away = False  # True while that thread works
        self._over = False  # True if there is no worker any more

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that become readable when the worker answers or ends; empty if no answer is due."""
        if not self._asked or self._away or self._over:
            return ()
        channel, handle = self.worker.channel.fileno(), self.worker.handle
        return (channel,) if handle is None else (channel, handle)

    @property
    def is_idle(self) -> bool:
        """True if the worker has no task, and no thread measures or replaces it."""
        return not self._asked and not self._away

    def join(self, patience_s: float) -> None:
        """Wait for the thread that measures or replaces the worker, if there is one."""
        if self._own_task is not None:
            has_ended(self._own_task, patience_s)

    def stats(self) -> WorkerStats:
        """Return the counters of the worker and of those that it replaced."""
        return WorkerStats(f"worker {self.worker.number}", self._rows, self._busy_s)

    def let_go(self, patience_s: float) -> None:
        """Send the idle worker the message to close its cache within ``patience_s``; ``has_let_go`` waits for that."""
        with contextlib.suppress(Ended):
            self.worker.let_go(patience_s)

    def has_let_go(self, patience_s: float) -> None:
        """Wait at most ``patience_s`` until the worker has closed its cache, and count the counters that it reports."""
        with contextlib.suppress(Ended, UnpicklableMessage):
            counters, notes = self.worker.has_let_go(patience_s)
            self._queue.meet(counters)
            self._queue.tell(notes)

    def end(self) -> None:
        """Kill the worker process, and release its channel and memory. Nobody waits for its answers afterwards."""
        self.worker.kill()
        if self._own_task is not None:
            self._own_task.join()  # even if it is just ending, as the interpreter may end next
        self._over = True
        self.worker.close()
        self.memory.close()
        self._server.side.clear(self.worker.number)

    # Methods for the watchdog.

    def at_work(self) -> Work | None:
        """Return the worker's oldest task, begun or not, for the watchdog; None if the worker has no task."""
        try:
            asked = self._asked[0]
        except IndexError:
            return None
        worker, piece, begin_s = self.worker, asked.piece, self._front_since_s
        row, doing, heartbeat = piece.first, "not begun", worker.heartbeat
        number, step, at, since_ns = (
            heartbeat[PIECE],
            int(heartbeat[STEP]),
            int(heartbeat[ROW]),
            heartbeat[SINCE],
        )
        # A worker writes the number first. If that hasn't changed, the other words belong to the same task.
        if step == LOADING:
            doing = "loading the dataset"
        elif number == heartbeat[PIECE] == asked.number and step != IDLE:
            row, begin_s, doing = piece.first + at, since_ns / 1e9, step_text(self._plan, step)
        what, index, path = piece.job.named(WHOLE if is_whole(piece, step) or step == TOGETHER else row)
        hand = worker.process, asked.number, row, begin_s
        waits = step >= FOR_MEMORY or has_come(worker.channel)  # an answer has come, and waits to be taken
        return Work(hand, what, doing, str(worker), begin_s, self, index, path, waits=waits)

    def where(self, work: Work) -> str:
        """Return the worker's stack."""
        return self.worker.where()

    def give_up(self, work: Work, error: StalledError) -> bool:
        """Kill the worker if it is still at this work, and return True if so. Another worker then replaces it."""
        now = self.at_work()
        if now is None or now.hand != work.hand:
            return False
        self._stalled = error
        self.worker.kill()
        return True

    # Methods for the thread that drives all workers.

    def ask(self, most: int) -> None:
        """Send tasks to the worker until it has ``most`` tasks, or the queue has no more."""
        if len(self._asked) >= most or self._away or self._over:
            return
        if self.memory.over:  # it gets no more tasks, and is measured once it is idle
            if not self._asked:
                self._leave_for(self._recycle)
            return
        try:
            while (self._waiting is not None or self._queue.has_jobs) and self._has_asked():
                if len(self._asked) == most:
                    return
        except Ended:
            self._leave_for(self._replace)
            return
        if not self._asked and self._idle_since_s is None and self.worker.number < self._queue.employed:
            self._idle_since_s = time.perf_counter()

    def take_answer(self) -> None:
        """Receive the answer to the worker's oldest task; if the worker has ended, start to replace it."""
        if self._away or not self._asked:
            return
        try:
            answer, size = receive_parcel(self.worker.channel, self.worker.handle, mapped=self._apart.mapped)
        except UnpicklableMessage as error:
            piece = self._answered()
            self._queue.finish(piece, [Failure(piece.first, "batch", str(error), error.__cause__)])
        except Ended:
            self._leave_for(self._replace)
        else:
            if self._hands_over:
                self._apart.add(self._asked[0].piece.job.slot, size)
            self._finish(self._answered(), answer)
            self.memory.look()

    def _has_asked(self) -> bool:
        """Send the worker one more task, and return True.

        Return False if the queue has no task, or if the task's message is so large that the worker must answer
        before. Raises ``Ended`` if the worker has ended.
        """
        worker = self.worker
        if not self._sees_slots:
            worker.map_slots(self._plan, self._ring)
            self._sees_slots = True
        if self._waiting is None:
            least, most = map(self._queue.rows_in, (LEAST_S, MOST_S))
            piece = self._queue.take(worker.number, most, least=least, wait=False)
            if piece is None:
                return False
            self._numbers += 1
            asking = Asked(self._numbers, piece)
            self._waiting = asking, encoded(asking.message(gathers=self._plan.gathers))
        asked, data = self._waiting
        # A message larger than a socket's buffers waits until the worker has answered, and only reads.
        if self._asked and len(data) > AHEAD_BYTES:
            return False
        self._waiting = None
        if not self._asked:
            self._front_since_s = time.monotonic()
        if self._idle_since_s is not None:
            self._queue.count_wait(time.perf_counter() - self._idle_since_s)
            self._idle_since_s = None
        self._asked.append(asked)
        send_encoded(worker.channel, data, worker.handle)
        return True

    def _leave_for(self, own_task: Callable[[], bool]) -> None:
        """Run the slow function ``own_task`` in a thread of its own, and replace the worker if it dies during it.

        ``own_task`` returns False if there is no worker any more, also no successor.
        """

        def run() -> None:
            try:
                self._over = not own_task()
            except (Ended, OSError):  # the worker has ended; OSError is from its entry in /proc
                self._over = not self._replace()
            self._away = False
            self._bell.ring()

        if self._own_task is not None:
            self._own_task.join()
        self._own_task = guarded(f"standpipe-worker-{self.worker.number}", run, self._watch.end)
        self._away = True
        self._own_task.start()

    def _answered(self) -> Piece:
        """Remove the oldest task of the worker, and return its rows."""
        self._front_since_s = time.monotonic()
        return self._asked.popleft().piece

    def _finish(
        self,
        piece: Piece,
        answer: tuple[list[Failure], dict[str, list[Any]], Any, Counts, Sequence[str], Took | None],
    ) -> None:
        bad, lists, made, counters, notes, took = answer
        self._queue.tell(notes)
        seconds = 0.0 if took is None else took.seconds
        for name, values in lists.items():
            piece.job.content.lists[name][piece.first : piece.stop] = values
        if made is not None:
            piece.job.made = made
        self._rows += piece.stop - piece.first
        self._busy_s += seconds
        self._queue.finish(piece, bad, seconds, counters, took)

    def _replace(self) -> bool:
        """Put the tasks of a worker that has ended back into the queue, and start another worker.

        Return False if no other worker was started.
        """
        if self._queue.closed:
            return False
        worker, stalled = self.worker, self._stalled
        suspects = self._suspects()
        doing = step_text(self._plan, int(worker.heartbeat[STEP])) if suspects else ""
        how = worker.death()
        lost = [*self._asked, *([self._waiting[0]] if self._waiting is not None else [])]
        self._asked.clear()
        self._waiting = None
        self._stalled = None
        guilty = False
        for number, asked in enumerate(lost):
            verdict = self._verdict(asked.piece, doing, how, stalled)
            guilty |= bool(self._queue.lose(asked.piece, suspects if number == 0 else (), verdict))
        self.deaths += stalled is None
        if self._queue.done != self._done_before:
            self._deaths_in_a_row, self._done_before = 0, self._queue.done
        if stalled is None or not suspects:
            self._deaths_in_a_row += not guilty
        if self._deaths_in_a_row == MOST_DEATHS:
            reason = f"{MOST_DEATHS} workers in a row have died without a finished task in between"
            self._queue.break_with(WorkerDiedError(f"{worker} {how}; {reason}"))
            return False
        worker.close()
        return self._succeed(f"{worker} {how}")

    def _recycle(self) -> bool:
        """Measure the idle worker's memory, and replace the worker if it uses more than allowed.

        Return False if no new worker can be started, or if new workers use too much memory as well. Raises ``Ended``
        or ``OSError`` if the worker ends during that.
        """
        worker, memory = self.worker, self.memory
        worker.trim()
        own = memory.measure()
        memory.over = own > memory.share
        if not memory.over:
            return True
        self._in_vain = self._in_vain + 1 if memory.over_at_once else 0
        if self._in_vain == MOST_IN_VAIN:
            self._queue.break_with(too_much_from_the_start(self._plan, worker, own))
            return False
        self.recycled += 1
        if self._unsaid.acquire(blocking=False):
            warn_of_recycling(self._plan, worker, own)
        if self._plan.cache is not None:
            self.let_go(LET_GO_S / 2)
            self.has_let_go(LET_GO_S)
        worker.retire()
        return self._succeed(f"{worker} was to be replaced by a new one, as it used too much memory")

    def _succeed(self, death: str) -> bool:
        """Start another worker; if that fails, end the run with an error, and return False.

        death  how the worker before it ended, for that error
        """
        number = self.worker.number
        try:
            with OwnTask(
                self._watch,
                f"another worker {number}",
                "starting it",
                f"the worker server ({self._server.process})",
                stack=self._server.where,
                end=lambda _: self._server.end(),
            ):
                worker = WorkerProcess(self._server, number)
        except (StandpipeError, OSError) as reason:
            self._queue.break_with(WorkerDiedError(f"{death}; {reason}"))
            return False
        self.worker, self._sees_slots = worker, False
        self.memory.begin(worker.process)
        return True

    def _suspects(self) -> Sequence[int]:
        """Return the rows whose making may have killed the worker, by the worker's last heartbeat.

        They are the row at that time, all rows of the task, or ``WHOLE`` for the batch. Empty if no task had begun.
        """
        heartbeat = self.worker.heartbeat
        step = int(heartbeat[STEP])
        if not self._asked or heartbeat[PIECE] != self._asked[0].number or step == IDLE:
            return ()
        piece = self._asked[0].piece
        answers = step % FOR_MEMORY in (ANSWERING, TOGETHER)
        if is_whole(piece, step) or (answers and self._plan.gathers):
            return (WHOLE,)
        return range(piece.first, piece.stop) if answers else (piece.first + int(heartbeat[ROW]),)

    def _verdict(
        self, piece: Piece, doing: str, how: str, stalled: StalledError | None
    ) -> Callable[[int], Failure]:
        """Return a function that makes the failure of a row during which two workers ended.

        piece    the task of the row
        doing    the step that the last worker was at
        how      how the last worker ended, as text
        stalled  the error if the watchdog killed the worker; None if it died by itself
        """

        def verdict(row: int) -> Failure:
            what, index, path = piece.job.named(row)
            if stalled is not None:
                return too_long(row, stalled)
            error = WorkerDiedError(
                f"{self.worker} {how} while it made {what} ({doing}), as another one had before it",
                index=index,
                path=path,
            )
            return Failure(
                max(row, 0),
                "died",
                f"two workers died while they made it: the last one {how}, at {doing}",
                error,
                row == WHOLE,
            )

        return verdict
