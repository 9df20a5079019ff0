"""``WorkerServer``, the trainer's side of the worker server: start it, and have it fork workers."""

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
from standpipe.carried import Carried, Report, read
from standpipe.engine.processes.fork_server import ForkServer
from standpipe.engine.processes.forking import (
    Forked,
    Unforkable,
    fork_from,
    fork_here,
    fresh,
    heir_of,
    own_threads,
)
from standpipe.engine.processes.late import reason_for, remember
from standpipe.engine.processes.messages import (
    Ended,
    UnpicklableMessage,
    channel_pair,
    hang_up,
    receive,
    send,
    send_files,
    talk,
)
from standpipe.engine.processes.packing import Luggage, first_inherited, pack
from standpipe.engine.processes.server import serve
from standpipe.engine.python.worker_setup import WorkerSetup
from standpipe.engine.watchdog.board import Board
from standpipe.engine.watchdog.where import Stacks
from standpipe.engine.workers import CantRebuildError
from standpipe.errors import PlanError, WorkerDiedError
from standpipe.system.machine import is_short_of_files
from standpipe.system.threads import count_text
from standpipe.system.workers import WorkerContext, is_helper, worker_id
from standpipe.transform import FunctionStep
from standpipe.transform.python.function import callable_name

FORK_ARGUMENT = "mp_context='fork' (of a DataLoader: multiprocessing_context='fork')"
FORK_REMEDY = f"start workers as forks of this process, which have it: {FORK_ARGUMENT}"
# Seconds for the server to fork a worker, which takes milliseconds, or to report how one ended.
ANSWER_S = 30.0


class WorkerServer:
    """The trainer's handle of the worker server, the process from which workers are forked.

    A server that has ended is started again when the next worker is forked.

    share_lists   True: pack long lists of the dataset into memory that all workers share
    workers       the most workers that the server forks
    mp_context    how the server is started: as a new interpreter, or as a fork
    luggage       the packed setup; then the server isn't started again. None: the setup is packed here
    board         heartbeats of the workers
    side          the side arena: memory for large images, counted per worker
    stacks        reads the stacks of the server and its workers
    packed_bytes  bytes of the dataset's packed lists and arrays, which all workers share
    late          report of the server that had threads, because of which this one has loaded nothing, and each worker
                  loads the setup; None: this server has loaded it
    found_late    True if that report is of this run, and not of one before it
    """

    def __init__(
        self,
        setup: WorkerSetup,
        *,
        share_lists: bool,
        workers: int,
        mp_context: WorkerContext = "spawn",
        luggage: Luggage | None = None,
    ) -> None:
        # Importing a module that runs a loader; its server would import the module too, and so on without end.
        if is_helper() and worker_id() is None:
            raise PlanError(
                "a module runs a loader with worker processes when it is imported, and they import it again. Put the "
                'loop into a function, or under `if __name__ == "__main__":`'
            )
        self._setup, self._pack_lists, self._mp_context = setup, share_lists, mp_context
        self._luggage = luggage  # packed by the caller; such a server isn't started again
        self._starts_again = mp_context != "fork" and luggage is None
        self._server: subprocess.Popen[bytes] | Forked
        self._carried: Carried | None = None
        self.packed_bytes = 0
        self.late: Report | None = None
        self.found_late = False
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
            stack.pop_all()  # without an error everything stays open

    @property
    def process(self) -> int:
        """The process number of the server."""
        return self._server.pid

    @property
    def copies(self) -> int:
        """The number of other processes that share memory pages with a worker, from 1 to 3.

        These are the worker server and, if they are its ancestors, the fork server and this process.
        """
        if isinstance(self._mp_context, ForkServer):
            return 3 if self._mp_context._inherits else 2
        return 1 if self._mp_context == "spawn" else 2

    @property
    def extra_bytes(self) -> int:
        """The memory of the fork server that forked the worker server, in bytes; 0 without a fork server."""
        return self._server.extra_bytes if isinstance(self._server, Forked) else 0

    def wait_until_ready(self) -> Report:
        """Wait until the server has loaded the dataset and the functions. Return what it has set as it is here.

        If loading starts threads, the server is started again in late mode, and loads nothing.
        Raises ``PlanError`` if the server can't load them or can't fork, and ``WorkerDiedError`` if the server ends.
        """
        while True:
            report, is_own = self._reported()
            if not report.threads:
                return report
            if isinstance(self._mp_context, ForkServer) and not is_own:
                self._mp_context.close()  # another one is started
            by_others = not is_own and bool(report.starting)  # by imports for other loaders
            if self.late is not None and not by_others:
                raise PlanError(
                    f"a new Python process has {count_text(report.threads)} before it loads anything, with which no "
                    "process can be forked. Don't start them when Python starts, as in a sitecustomize module, or use "
                    "executor='thread'"
                )
            remember(report, self._modules)
            self.found_late = True
            self._start_again()

    def _reported(self) -> tuple[Report, bool]:
        """Wait until the server has loaded the setup. Return its report, and True.

        Return False instead of True if the report is of a fork server with threads, which can't fork the server.
        """
        has_begun = False
        try:
            kind, fact = receive(self._control)
            if kind == "begun":
                has_begun = True
                if isinstance(self._server, Forked):
                    self._server.begun(fact)
                if self._carried is not None:
                    send(self._control, (self._carried, self.late is not None))
                kind, fact = receive(self._control)
        except UnpicklableMessage as error:  # the server sent an error that can't be unpickled here
            kind, fact = "failed", CantRebuildError(error)
        except Ended as ended:
            raise WorkerDiedError(f"the worker server {describe_exit(self._server.wait())}") from ended
        if kind == "failed":
            raise fact
        return fact, has_begun

    def fork(self, number: int) -> tuple[socket.socket, int]:
        """Fork a worker, and return its channel and its process number.

        An earlier worker with the same number must have ended. Raises ``WorkerDiedError`` if the server has ended
        and can't be started again.
        """
        self.side.clear(number)
        with self._lock:
            try:
                return self._fork(number)
            except (Ended, OSError) as error:
                if self._over:
                    raise WorkerDiedError("the worker server has ended") from error
                if is_short_of_files(error):  # the server still lives
                    raise
                self._restart()
            try:
                return self._fork(number)
            except (Ended, OSError) as error:
                raise WorkerDiedError(f"the worker server has ended twice: {error}") from error

    def status(self, process: int) -> int | None:
        """Return the exit code of an ended worker, or minus the number of the signal that killed it.

        process  the worker's process number

        Return None if the worker runs, or if the server can't answer.
        """
        with self._lock, contextlib.suppress(Ended, OSError), talk(self._control):
            send(self._control, ("status", process))
            code: int | None = self._answer()
            return code
        return None

    def where(self) -> str:
        """Return the server's stacks, as text."""
        where = self._server.where_from() if isinstance(self._server, Forked) else ""
        return where or self.stacks.of(self.process)

    def end(self) -> None:
        """Kill the server, and don't start it again. Its workers go on running."""
        self._over = True
        self._server.kill()
        hang_up(self._control)  # also ends a forked server whose process number isn't known yet

    def close(self, patience_s: float) -> None:
        """End the server and its remaining workers; kill the server if it runs for more than ``patience_s``.

        ``close`` can be called again after an interrupt.
        """
        hang_up(self._control)  # closing isn't enough, as a forked child may also hold our end
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
        """Close the pipes whose end makes servers and workers end."""
        for pipe in self._pipes:
            pipe.close()

    def _packed(self) -> Luggage:
        if self._luggage is not None:
            luggage, self._luggage = self._luggage, None
            return luggage
        remedy = "" if own_threads() else f"; or {FORK_REMEDY}"
        return pack(self._setup, parts=self._parts(), pack=self._pack_lists, remedy=remedy)

    def _parts(self) -> dict[str, Any]:
        """Return the dataset and the user's functions, by their names in error messages."""
        functions = [step.function for step in self._setup.program.steps if isinstance(step, FunctionStep)]
        return {
            "the dataset": self._setup.dataset,
            **{callable_name(each.fn): each.fn for each in functions},
        }

    def _start(self) -> None:
        luggage = None if self._mp_context == "fork" else self._packed()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            if luggage is not None:
                theirs.callback(luggage.close)
                self.packed_bytes = luggage.lists.size_bytes
                # A server that is started again, by another thread, gets what was set at the start.
                self._carried = self._carried or read(luggage.modules)
                self._modules = self._carried.modules
                self.late = reason_for(self._modules)
                if not self._starts_again:  # a single worker
                    self.late = self.late or Report()
            control, their_end = channel_pair()
            ours.callback(control.close)
            theirs.callback(their_end.close)
            # The server and its workers end when the only write end of this pipe is closed, also by our own end.
            read_end, write_end = os.pipe()
            pipe = FileIO(write_end, "w")
            self._pipes.append(pipe)  # earlier pipes stay open, for workers of an earlier server
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
            if luggage is not None:
                with contextlib.suppress(Ended):  # ``wait_until_ready`` reports it
                    send_files(control, luggage.shared.files)
            self._control = control
            ours.pop_all()  # without an error the channel stays open

    def _begun(
        self, given: Sequence[int], luggage: Luggage | None, close: Callable[[], None]
    ) -> subprocess.Popen[bytes] | Forked:
        """Start a server process, and return its handle.

        given    descriptors for the server
        luggage  the packed setup; None: the server is a fork of this process, and has the setup
        close    called in a fork of this process, to close descriptors that only this process may have

        Raises ``Unforkable`` if this process can't be forked now.
        """
        if luggage is None:
            trainer = os.getpid()
            return fork_here(lambda: serve(given, trainer, self._setup), close)
        if luggage.inherited:
            known = self._mp_context if isinstance(self._mp_context, ForkServer) else None
            self._mp_context = heir_of(known, luggage.inherited)
        if isinstance(self._mp_context, ForkServer):
            modules = self._modules if self.late is None else ()
            return fork_from(self._mp_context, modules, given)
        return fresh("standpipe.engine.processes.server", given)

    def _unforkable(self, reason: Unforkable, luggage: Luggage | None) -> str:
        """Return the text of the error for a process that can't be forked: the reason, and the remedies."""
        if luggage is None:
            return (
                f"workers can't be forks of this process, since {reason}. Begin this epoch before those of other "
                "loaders with workers, or when they have ended; or leave out mp_context='fork' (of a DataLoader: "
                "multiprocessing_context='fork')"
            )
        return (
            f"{first_inherited(self._parts())} can be shared only with forks of this process, "
            "which can't be forked now: "
            f"{reason}. Make the DataLoader, or begin this loader's first epoch, before other loaders with workers "
            "begin, or when they have ended; or leave the object out in __getstate__; or use executor='thread', which "
            "shares it"
        )

    def _restart(self) -> None:
        """Start a new server, with the dataset and functions as they are now. The caller holds the lock."""
        if not self._starts_again:
            raise WorkerDiedError(
                "the worker server has ended, and this process can't be forked again: it has threads now"
            )
        self._start_again()
        self.wait_until_ready()

    def _start_again(self) -> None:
        """End the server, if it still runs, and start a new one."""
        self._control.close()
        self._server.kill()
        self._server.wait()
        self._start()
        if self._over:  # another thread has called ``end`` during this, perhaps for the server before
            self.end()

    def _fork(self, number: int) -> tuple[socket.socket, int]:
        ours, theirs = channel_pair()
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


def describe_exit(code: int) -> str:
    """Return text about how a process ended, such as ``"exited with 1"``.

    code  the exit code, or minus the number of the signal that killed the process
    """
    if code >= 0:
        return f"exited with {code}"
    if -code not in set(signal.Signals):
        return f"was killed by signal {-code}"
    name = signal.Signals(-code).name
    return f"was killed by {name}" + (", perhaps because memory ran out" if name == "SIGKILL" else "")
