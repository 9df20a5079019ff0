"""The server of worker processes and each of them, seen from the trainer."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping

from penstock import _native
from penstock.engine.messages import Ended, receive, send
from penstock.engine.samples import Inputs, Recipe, RowKey
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
            plan.known_from,
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
