"""The server of worker processes, seen from the trainer."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from io import FileIO
from typing import Any

from standpipe import _native
from standpipe.engine.processes.forking import Forked, Unforkable, fork_from, fork_here, fresh, heir_of
from standpipe.engine.processes.messages import Ended, Unreadable, hang_up, receive, send, talk
from standpipe.engine.processes.server import serve
from standpipe.engine.processes.travel import Luggage, first_inherited, pack
from standpipe.engine.python.recipe import Recipe
from standpipe.engine.watchdog.board import Board
from standpipe.engine.watchdog.where import Stacks
from standpipe.errors import PlanError, WorkerDiedError
from standpipe.system.fork_server import ForkServer
from standpipe.system.machine import is_short_of_files
from standpipe.system.workers import WorkerContext
from standpipe.transform import FunctionStep
from standpipe.transform.function import callable_name

ANSWER_S = 30.0  # for the server to fork a worker, which takes milliseconds, or to say how one ended


class WorkerServer:
    """The process that workers are forked from. One that has ended is started again when it is needed.

    board         what the workers are at
    side          memory for their whole frames, with an account for each
    stacks        where they are
    packed_bytes  of lists and arrays of the dataset, in memory once
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        share_lists: bool,
        workers: int,
        mp_context: WorkerContext = "spawn",
        luggage: Luggage | None = None,
    ) -> None:
        self._recipe, self._pack_lists, self._mp_context = recipe, share_lists, mp_context
        self._luggage = luggage  # packed before; such a server isn't started again
        self._starts_again = mp_context != "fork" and luggage is None
        self._server: subprocess.Popen[bytes] | Forked
        self.packed_bytes = 0
        self._lock = threading.Lock()
        self._pipes: list[FileIO] = []
        self._over = False
        with contextlib.ExitStack() as stack:
            self.board = Board(workers)
            stack.callback(self.board.close)
            self.side = _native.SharedSide(workers)
            self.stacks = Stacks()
            stack.callback(self.stacks.close)
            stack.callback(self._hang_up)
            self._start()
            stack.pop_all()  # it stays open, unless something went wrong

    @property
    def process(self) -> int:
        """Process number of the server."""
        return self._server.pid

    @property
    def copies(self) -> int:
        """Processes that share their memory with workers, as copies do: this one, a fork server, the server."""
        if isinstance(self._mp_context, ForkServer):
            return 3 if self._mp_context._inherits else 2
        return 1 if self._mp_context == "spawn" else 2

    @property
    def extra_bytes(self) -> int:
        """Memory of the fork server that it comes from."""
        return self._server.extra_bytes if isinstance(self._server, Forked) else 0

    def wait_until_ready(self) -> None:
        """Raise ``PlanError`` when it can't rebuild the dataset and the functions, ``WorkerDiedError`` when it ends."""
        try:
            kind, fact = receive(self._control)
            if kind == "begun":
                if isinstance(self._server, Forked):
                    self._server.begun(fact)
                kind, fact = receive(self._control)
        except Unreadable as error:  # it tells of an error that can't be rebuilt either
            kind, fact = "failed", error
        except Ended as ended:
            raise WorkerDiedError(f"the server of worker processes {ending(self._server.wait())}") from ended
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
            if isinstance(self._mp_context, ForkServer):
                self._mp_context.close()  # others can go on with a new one
            threads, them = ("a thread", "it") if fact == 1 else (f"{fact} threads", "them")
            raise PlanError(
                f"importing the dataset's modules, or rebuilding it, starts {threads}, with which no process "
                f"can be forked: start {them} at first use, or use executor='thread'"
            )

    def fork(self, number: int) -> tuple[socket.socket, int]:
        """A new worker: its channel and its process number. One of the same number before it is gone.

        Raises ``WorkerDiedError`` when the server can't go on.
        """
        self.side.clear(number)
        with self._lock:
            try:
                return self._fork(number)
            except (Ended, OSError) as error:
                if self._over:
                    raise WorkerDiedError("the server of worker processes has ended") from error
                if is_short_of_files(error):  # it lives
                    raise
                self._restart()
            try:
                return self._fork(number)
            except (Ended, OSError) as error:
                raise WorkerDiedError(f"the server of worker processes has ended twice: {error}") from error

    def status(self, process: int) -> int | None:
        """The exit code of a worker that has ended, or minus its signal. None when nobody knows."""
        with self._lock, contextlib.suppress(Ended, OSError), talk(self._control):
            send(self._control, ("status", process))
            code: int | None = self._answer()
            return code
        return None

    def where(self) -> str:
        """Return the server's stack."""
        where = self._server.where_from() if isinstance(self._server, Forked) else ""
        return where or self.stacks.of(self.process)

    def end(self) -> None:
        """End it now, whatever it does, and for good. Its workers live on."""
        self._over = True
        self._server.kill()
        hang_up(self._control)  # one that was forked, and hasn't said so, can't be killed

    def close(self, patience_s: float) -> None:
        """End it; what is left of its workers ends too. Asked again, after an interrupt, it goes on with that."""
        hang_up(self._control)  # a forked child of ours may hold our end of it too
        self._control.close()
        self._hang_up()
        self.stacks.close()
        self.board.close()
        try:
            self._server.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _hang_up(self) -> None:
        """Servers and workers end now."""
        for pipe in self._pipes:
            pipe.close()

    def _packed(self) -> Luggage:
        if self._luggage is not None:
            luggage, self._luggage = self._luggage, None
            return luggage
        return pack(self._recipe, parts=self._parts(), pack=self._pack_lists)

    def _parts(self) -> dict[str, Any]:
        """Return the user's parts of the recipe, by what an error calls them."""
        functions = [step.function for step in self._recipe.program.steps if isinstance(step, FunctionStep)]
        return {
            "the dataset": self._recipe.dataset,
            **{callable_name(each.fn): each.fn for each in functions},
        }

    def _start(self) -> None:
        luggage = None if self._mp_context == "fork" else self._packed()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            if luggage is not None:
                theirs.callback(os.close, luggage.descriptor)
                self.packed_bytes = luggage.lists.size_bytes
            control, their_end = socket.socketpair()
            ours.callback(control.close)
            theirs.callback(their_end.close)
            # The server and its workers end when the only write end of this pipe is closed, so by our end too.
            read_end, write_end = os.pipe()
            pipe = FileIO(write_end, "w")
            self._pipes.append(pipe)  # workers of a server before this one hang on its pipe
            theirs.callback(os.close, read_end)
            packed = (-1, -1) if luggage is None else (luggage.descriptor, luggage.lists.descriptor)
            shared = (self.board.descriptor, self.side.descriptor, self.stacks.descriptor)
            given = (their_end.fileno(), read_end, *packed, *shared)

            def close() -> None:
                control.close()
                pipe.close()

            try:
                self._server = self._begun(given, luggage, close)
            except Unforkable as reason:
                raise PlanError(self._unforkable(reason, luggage)) from reason
            self._control = control
            ours.pop_all()  # it stays open, unless something went wrong

    def _begun(
        self, given: Sequence[int], luggage: Luggage | None, close: Callable[[], None]
    ) -> subprocess.Popen[bytes] | Forked:
        """A server with these descriptors. Raises ``Unforkable``."""
        if luggage is None:
            trainer = os.getpid()
            return fork_here(lambda: serve(given, trainer, self._recipe), close)
        if luggage.inherited:
            known = self._mp_context if isinstance(self._mp_context, ForkServer) else None
            self._mp_context = heir_of(known, luggage.inherited)
        if isinstance(self._mp_context, ForkServer):
            return fork_from(self._mp_context, luggage.modules, given)
        return fresh("standpipe.engine.processes.server", given)

    def _unforkable(self, reason: Unforkable, luggage: Luggage | None) -> str:
        """Return the error's text when this process can't be forked: why, and what to do."""
        if luggage is None:
            return (
                f"workers can't be forks of this process, since {reason}. Begin this epoch before those of other "
                "loaders with workers, or when they have ended; or let workers come from a server, as by default"
            )
        return (
            f"{first_inherited(self._parts())} can be shared only with forks of this process, "
            "which can't be forked now: "
            f"{reason}. Make the DataLoader, or begin this loader's first epoch, before other loaders with workers "
            "begin, or when they have ended; or leave it out in __getstate__; or use executor='thread', which shares it"
        )

    def _restart(self) -> None:
        """Start a new server from the current dataset and functions. The caller holds the lock."""
        if not self._starts_again:
            raise WorkerDiedError(
                "the server of worker processes has ended, and this process can't be forked again: it has threads now"
            )
        self._control.close()
        self._server.kill()
        self._server.wait()
        self._start()
        self.wait_until_ready()

    def _fork(self, number: int) -> tuple[socket.socket, int]:
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            with theirs:
                send(self._control, ("fork", number))
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
                process: int = self._answer()
            stack.pop_all()
        return ours, process

    def _answer(self) -> Any:
        return receive(self._control, patience_s=ANSWER_S)


def ending(code: int) -> str:
    """Describe how a process ended, from its exit code (minus the signal's number for a signal)."""
    if code >= 0:
        return f"exited with {code}"
    if -code not in set(signal.Signals):
        return f"was killed by signal {-code}"
    name = signal.Signals(-code).name
    return f"was killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
