"""Where servers of worker processes come from: a new interpreter, a fork of one that stays, a fork of the trainer."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from standpipe.engine.messages import Ended, receive, send, talk
from standpipe.engine.preloaded import Order
from standpipe.engine.recipe import Recipe
from standpipe.engine.server import bootstrap, forked, serve, status_of
from standpipe.errors import PlanError, WorkerDied
from standpipe.worker import ForkServer

# Libraries that would start a thread for every CPU: workers are as many as shall work at once.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
ANSWER_S = 30.0  # to say how a server ended
PATIENCE_S = 1.0  # for a process that was told to end


def fresh(module: str, given: Sequence[int]) -> subprocess.Popen[bytes]:
    """A new interpreter that runs ``main()`` of a module, with these descriptors."""
    return subprocess.Popen(
        [
            sys.executable,
            *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]  # as multiprocessing does
            "-c",
            bootstrap(sys.path, module),
            *map(str, given),
            str(os.getpid()),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=given,
        env=_environment(),
    )


class Forked:
    """A server that was forked, or is about to be, with what of ``subprocess.Popen`` is needed of it.

    origin  the process that forks it; None: this one
    """

    def __init__(self, origin: Preloaded | None, pid: int = 0) -> None:
        self._origin, self._pid = origin, 0
        self._code: int | None = None
        self._handle: int | None = None
        if pid:
            self.begun(pid)

    @property
    def pid(self) -> int:
        """Its process number; before it has begun that of the one it is forked from."""
        return self._pid or (self._origin.pid if self._origin is not None else 0)

    def begun(self, pid: int) -> None:
        """It has said which process it is."""
        self._pid = pid
        with contextlib.suppress(OSError):
            self._handle = os.pidfd_open(pid)

    def kill(self) -> None:
        """End it now, whatever it does; if it hasn't begun that is the doing of the process that forks it."""
        if not self._pid and self._origin is not None:
            self._origin.kill()
        with contextlib.suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif self._pid and self._code is None:
                os.kill(self._pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """How it ended. Raises ``subprocess.TimeoutExpired``."""
        if self._code is None and self._handle is not None:
            ended = select.poll()
            ended.register(self._handle, select.POLLIN)
            if not ended.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("a server of worker processes", timeout or 0)
            os.close(self._handle)
            self._handle = None
        if self._code is None:
            status = status_of if self._origin is None else self._origin.status
            self._code = (status(self._pid) if self._pid else None) or 0
        return self._code


def fork_here(given: Sequence[int], recipe: Recipe, close: Callable[[], object]) -> Forked:
    """A server that is a fork of this process, and has its memory.

    close  closes there what only this process is to have

    Raises ``PlanError`` while threads of standpipe's run here: the fork would have their locks, and not them.
    """
    if _own_threads():
        gc.collect()  # garbage may hold loaders: an exception's frames refer to themselves
    if ours := _own_threads():
        raise PlanError(
            f"workers can't be forks of this process, since standpipe runs {len(ours)} threads in it already "
            f"({ours[0]}, …): a fork copies the locks that they hold, and not them. Begin this epoch before those of "
            "other loaders with workers, or when they have ended; or let workers come from a server, as they do by "
            "default"
        )

    def work() -> None:
        close()
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        serve(given, trainer, recipe)

    trainer = os.getpid()
    return Forked(None, forked(work))


class Preloaded:
    """The process of a ``ForkServer``, seen from the trainer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._talks = 0  # the thread that has the lock
        self._trainer = os.getpid()
        self._modules = _module_specs()
        read_end, self._pipe = os.pipe()
        self._control, theirs = socket.socketpair()
        try:
            self._process = fresh("standpipe.engine.preloaded", (theirs.fileno(), read_end))
        except BaseException:
            os.close(self._pipe)
            self._control.close()
            raise
        finally:
            theirs.close()
            os.close(read_end)

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it lives, is this process's, and has the modules that this process has, none of them loaded anew."""
        now = _module_specs()
        return (
            self._trainer == os.getpid()
            and self._process.poll() is None
            and all(now.get(name, spec) is spec for name, spec in self._modules.items())
        )

    def fork(self, modules: Sequence[str], given: Sequence[int]) -> None:
        """Begin to fork a server with these descriptors. Raises ``Ended``."""
        order = Order(modules, list(sys.path), str(Path.cwd()), _environment())
        with self._talk():
            send(self._control, order)
            try:
                socket.send_fds(self._control, [b"f"], list(given))
            except OSError as error:
                raise Ended(str(error)) from error

    def status(self, process: int) -> int | None:
        """How a server ended, as ``status_of`` has it; None too when nobody knows.

        A collection of garbage may end a loader in the middle of anything, so of another talk of this thread.
        """
        if self._talks == threading.get_ident():
            return None
        with contextlib.suppress(Ended, OSError), self._talk():
            send(self._control, process)
            code: int | None = receive(self._control, patience_s=ANSWER_S)
            return code
        return None

    @contextlib.contextmanager
    def _talk(self) -> Iterator[None]:
        """One at a time."""
        with self._lock:
            self._talks = threading.get_ident()
            try:
                with talk(self._control):
                    yield
            finally:
                self._talks = 0

    def kill(self) -> None:
        """End it now, whatever it does. Servers live on."""
        self._process.kill()

    def close(self) -> None:
        """End it. Servers live on."""
        with contextlib.suppress(OSError):
            os.close(self._pipe)
        self._control.close()
        if self._trainer != os.getpid():  # the process is the parent's
            return
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def fork_from(server: ForkServer, modules: Sequence[str], given: Sequence[int]) -> Forked:
    """A server that a fork server forks. Raises ``WorkerDied`` when that doesn't live."""
    for _ in range(2):
        origin = _preloaded(server)
        with contextlib.suppress(Ended):
            origin.fork(modules, given)
            return Forked(origin)
        server.close()
    raise WorkerDied("the process that workers' servers are forked from has ended twice")


def _preloaded(server: ForkServer) -> Preloaded:
    """The process of a fork server, which is started if there is none, or it is another one's."""
    process: Preloaded | None = server._process
    if process is None or not process.is_usable:
        server.close()
        process = server._process = Preloaded()
        server._ends = weakref.finalize(server, process.close)
    return process


def _own_threads() -> list[str]:
    """Names of the threads that loaders have here."""
    return [each.name for each in threading.enumerate() if each.name.startswith("standpipe")]


def _environment() -> dict[str, str]:
    return os.environ | dict.fromkeys(ONE_THREAD, "1")


def _module_specs() -> dict[str, Any]:
    """What every module was loaded by: whoever reloads one changes that."""
    modules = sys.modules.copy()
    return {name: getattr(module, "__dict__", {}).get("__spec__") for name, module in modules.items()}
