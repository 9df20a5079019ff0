"""Slots filled by Python code in worker processes, which write rows into the slots themselves."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from penstock import _native
from penstock.engine.jobs import Piece, QueueWorkers
from penstock.engine.messages import Ended, Unreadable, encoded, receive, send, send_encoded
from penstock.engine.samples import Inputs, PartOfRows, Recipe, RowKey
from penstock.engine.server import bootstrap
from penstock.engine.travel import pack
from penstock.engine.workers import Failure
from penstock.errors import PlanError, WorkerDied
from penstock.plan import Plan
from penstock.spec import Listed, Spec
from penstock.transform import FunctionStep
from penstock.transform.function import callable_name

# Libraries that would start a thread for every CPU: workers are as many as shall work at once.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
PATIENCE_S = 1.0  # for a process that was told to end
MOST_DEATHS, DEATHS_WITHIN_S = 3, 600.0  # of workers, before no other one takes their place
PIECE_S = 2e-3  # of work that a worker is asked for at once: asking costs the trainer some 100 µs
MOST_ROWS = 256  # that it is asked for at once, however quick they are
AHEAD_BYTES = (
    64 << 10
)  # of a message that is sent while the worker may be sending too: fits a socket's buffers


class WorkerServer:
    """The process that workers are forked from."""

    def __init__(self, recipe: Recipe, *, pack_lists: bool) -> None:
        functions = [step.function for step in recipe.program.steps if isinstance(step, FunctionStep)]
        parts = {"the dataset": recipe.dataset, **{callable_name(each.fn): each.fn for each in functions}}
        packed, lists = pack(recipe, parts=parts, pack=pack_lists)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            theirs.callback(os.close, packed)
            control, their_end = socket.socketpair()
            ours.callback(control.close)
            theirs.callback(their_end.close)
            # The server and its workers end when the only write end of this pipe is closed, so by our end too.
            read_end, write_end = os.pipe()
            ours.callback(os.close, write_end)
            theirs.callback(os.close, read_end)
            given = (their_end.fileno(), read_end, packed, lists.descriptor)
            self._server = subprocess.Popen(
                [
                    sys.executable,
                    *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]  # as multiprocessing does
                    "-c",
                    bootstrap(sys.path),
                    *map(str, given),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=given,
                env=os.environ | dict.fromkeys(ONE_THREAD, "1"),
            )
            ours.pop_all()  # they stay open, unless something went wrong
        self._control, self._pipe = control, write_end
        self._lock = threading.Lock()

    @property
    def process(self) -> int:
        """Its process number."""
        return self._server.pid

    def wait_until_ready(self) -> None:
        """Raises ``PlanError`` when it can't rebuild the dataset and the functions."""
        try:
            kind, fact = receive(self._control)
        except Ended as ended:
            raise WorkerDied(f"the server of worker processes ended with {self._server.wait()}") from ended
        if kind == "failed":
            hint = (
                "; a worker looks for modules along the trainer's sys.path, so put its folder there, by its full path"
                if isinstance(fact, ModuleNotFoundError)
                else ""
            )
            raise PlanError(
                f"a worker process can't rebuild the dataset and its functions: {type(fact).__name__}: {fact}{hint}"
            ) from fact
        if fact > 0:
            threads, them = ("a thread", "it") if fact == 1 else (f"{fact} threads", "them")
            raise PlanError(
                f"importing the dataset's modules, or rebuilding it, starts {threads}, with which no process "
                f"can be forked: start {them} at first use, or use executor='thread'"
            )

    def fork(self) -> tuple[socket.socket, int]:
        """A new worker: its channel and its process number."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            try:
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
                return ours, receive(self._control)
            except (Ended, OSError) as error:
                raise WorkerDied("the server of worker processes has ended") from error

    def status(self, process: int) -> int | None:
        """The exit code of a worker that has ended, or minus its signal. None when the server is gone too."""
        with self._lock, contextlib.suppress(Ended, OSError):
            self._control.sendall(b"s")
            send(self._control, ("status", process))
            code: int = receive(self._control)
            return code
        return None

    def close(self, patience_s: float) -> None:
        """End it; what is left of its workers ends too."""
        self._control.close()
        os.close(self._pipe)
        try:
            self._server.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()


class WorkerProcess:
    """One worker, seen from the trainer."""

    def __init__(self, server: WorkerServer, number: int) -> None:
        self.number = number
        self.channel, self.process = server.fork()
        self._server = server
        try:
            self.handle: int | None = os.pidfd_open(self.process)
        except OSError:  # a kernel or container without: the channel's end tells
            self.handle = None

    def measure(self, key: RowKey, inputs: Inputs) -> Mapping[str, Spec | Listed] | Failure:
        """What a sample looks like, or why it can't be made. Raises ``WorkerDied``."""
        try:
            send(self.channel, ("measure", key, inputs))
            answer: Mapping[str, Spec | Listed] | Failure = receive(self.channel, self.handle)
        except Ended as ended:
            raise self.death(f"record {key.index}") from ended
        return answer

    def map_slots(self, plan: Plan, ring: _native.SlotRing) -> None:
        """Let it see the slots."""
        message = (
            "slots",
            plan.layout,
            ring.stride_bytes,
            plan.most_slots,
            plan.sample_fields,
            plan.made_apart,
        )
        send(self.channel, message)
        socket.send_fds(self.channel, [b"f"], [ring.descriptor])

    def death(self, what: str) -> WorkerDied:
        """Why it is gone. ``what``: what it held."""
        self._wait()
        self.kill()  # it may have closed its channel and live on
        code = self._server.status(self.process)
        how = "has ended"
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            how = f"was killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
        elif code is not None:
            how = f"exited with {code}"
        return WorkerDied(f"worker {self.number} (process {self.process}) {how} while it made {what}")

    def close(self) -> None:
        """Let it end, and see that it does."""
        self.channel.close()
        self._wait()
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def _wait(self) -> None:
        """Until it has ended, for a while."""
        if self.handle is not None:
            ended = select.poll()
            ended.register(self.handle, select.POLLIN)
            ended.poll(PATIENCE_S * 1000)

    def kill(self) -> None:
        """End it now, whatever it does. Its number is its own until ``death`` has asked for its status."""
        with contextlib.suppress(OSError):
            os.kill(self.process, signal.SIGKILL)


def _message(piece: Piece, gathers: bool) -> tuple[Any, ...]:
    """What a worker has to know to make a piece. Functions of a batch may need its rows made again."""
    job, content = piece.job, piece.job.content
    first, stop = (0, job.rows) if piece.is_functions else (piece.first, piece.stop)
    kind = "functions" if piece.is_functions else "samples" if gathers else "rows"
    rows = slice(first, stop)
    part = PartOfRows(
        content.epoch, content.indices[rows], content.positions[rows], content.inputs.part(first, stop)
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
        self, piece: Piece, answer: tuple[list[Failure], dict[str, list[Any]], Any], seconds: float
    ) -> None:
        bad, lists, made = answer
        for name, values in lists.items():
            piece.job.content.lists[name][piece.first : piece.stop] = values
        if made is not None:
            piece.job.made = made
        self._queue.finish(piece, bad, seconds)

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
