"""Start servers of worker processes: by a new interpreter, a fork of one that is kept, or a fork of the
trainer.
"""

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from standpipe.engine.processes.inherited import Objects, adopt
from standpipe.engine.processes.messages import Ended, hang_up, receive, send, talk
from standpipe.engine.processes.outline import outline
from standpipe.engine.processes.preloaded import Order, fork_on_demand
from standpipe.engine.processes.server import bootstrap, forked, status_of
from standpipe.engine.watchdog.where import Stacks
from standpipe.errors import WorkerDiedError
from standpipe.system.fork_server import ForkServer
from standpipe.system.machine import own_memory_bytes, process_memory_bytes

# Libraries that would start a thread for every CPU: workers are as many as shall work at once.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
ANSWER_S = 30.0  # to say how a server ended
PATIENCE_S = 1.0  # for a process that was told to end


def fresh(module: str, given: Sequence[int]) -> subprocess.Popen[bytes]:
    """A new interpreter that runs ``main()`` of a module, with these descriptors.

    Its ``main()`` calls ``ignore_interrupts``.
    """
    with _interrupts_blocked():
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
        """Process number; until the server has started, that of the process it is forked from."""
        return self._pid or (self._origin.pid if self._origin is not None else 0)

    @property
    def extra_bytes(self) -> int:
        """Memory that there is beside the server because of where it comes from."""
        return 0 if self._origin is None else self._origin.bytes()

    def where_from(self) -> str:
        """Return the stacks of the process that forks it, before it has begun; empty afterwards."""
        return "" if self._pid or self._origin is None else self._origin.where()

    def begun(self, pid: int) -> None:
        """Note the number of the process that has started."""
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
        """Wait until the process ends, and return its exit code. Raises ``subprocess.TimeoutExpired``."""
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

    def poll(self) -> int | None:
        """Return how it ended; None while it lives."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None


class Unforkable(Exception):
    """This process can't be forked now; says why."""


def fork_here(run: Callable[[], object], close: Callable[[], object]) -> Forked:
    """A fork of this process, which has its memory, and does that.

    close  closes there what only this process is to have

    Raises ``Unforkable`` while threads of standpipe's run here: the fork would have their locks, and not
    them. Threads of others are not looked at, as torch doesn't, nor whether CUDA is in use, which torch
    refuses in a fork by itself.
    """
    if _own_threads():
        gc.collect()  # garbage may hold loaders: an exception's frames refer to themselves
    if ours := _own_threads():
        raise Unforkable(
            f"standpipe runs {len(ours)} threads in it already ({ours[0]}, …), and a fork copies the locks that they "
            "hold, and not them"
        )

    def work() -> None:
        close()
        gc.freeze()  # garbage of this process's is nobody's there, and looking for it would copy all that there is
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        run()

    with _interrupts_blocked():
        return Forked(None, forked(work))


class Preloaded:
    """The process of a ``ForkServer``, seen from the trainer.

    inherits  objects that it is to have: then it is a fork of this process, else a new interpreter
    """

    def __init__(self, inherits: Objects) -> None:
        self._lock = threading.Lock()
        self._talks = 0  # the thread that has the lock
        self._trainer = os.getpid()
        self._modules = _module_specs()
        self._files = _file_times({}, self._modules)
        self._surroundings = _surroundings()
        read_end, self._pipe = os.pipe()
        self._control, theirs = socket.socketpair()
        self._stacks = Stacks()
        self._process: subprocess.Popen[bytes] | Forked
        try:
            given = theirs.fileno(), read_end, self._stacks.descriptor
            if inherits:
                self._process = fork_here(lambda: self._be(inherits, given), self._close_ends)
            else:
                self._process = fresh("standpipe.engine.processes.preloaded", given)
        except BaseException:
            self._close_ends()
            self._stacks.close()
            raise
        finally:
            theirs.close()
            os.close(read_end)

    def _be(self, inherits: Objects, given: tuple[int, int, int]) -> None:
        """Be that process, which is a fork of this one."""
        adopt(inherits)
        fork_on_demand(given, self._trainer)

    def _close_ends(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._pipe)
        self._control.close()

    @property
    def pid(self) -> int:
        """Process number."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """True if the process lives, belongs to this one, and has the same modules, none of them reloaded
        since.
        """
        now = _module_specs()
        return (
            self._trainer == os.getpid()
            and self._process.poll() is None
            and all(now.get(name, spec) is spec for name, spec in self._modules.items())
        )

    @property
    def is_as_new(self) -> bool:
        """True if a new process would be the same: no import and no setting has changed since it started."""
        return (
            self.is_usable
            and self._surroundings == _surroundings()
            and self._files == _file_times({}, dict.fromkeys(self._files))
        )

    def bytes(self) -> int:
        """Return its memory, of a fork of this process without what it shares, in bytes."""
        with contextlib.suppress(OSError, ValueError):  # it has ended
            if isinstance(self._process, Forked):
                return own_memory_bytes(self.pid, sharers=4)  # this process, it, a server and a worker
            return process_memory_bytes(self.pid)
        return 0

    def where(self) -> str:
        """Return its stacks."""
        return self._stacks.of(self.pid)

    def prepare(self, modules: Sequence[str], idle_s: float | None) -> None:
        """Begin to import modules. Raises ``Ended``."""
        with self._talk():
            send(self._control, self._order(modules, idle_s, forks=False))

    def fork(self, modules: Sequence[str], idle_s: float | None, given: Sequence[int]) -> None:
        """Begin to fork a server with these descriptors. Raises ``Ended``."""
        order = self._order(modules, idle_s, forks=True)
        with self._talk():
            send(self._control, order)
            try:
                socket.send_fds(self._control, [b"f"], list(given))
            except OSError as error:
                raise Ended(str(error)) from error

    def _order(self, modules: Sequence[str], idle_s: float | None, *, forks: bool) -> Order:
        """Take down what it may import now, as it is now."""
        now = _module_specs()
        self._files |= _file_times(self._files, now)
        self._modules |= {name: spec for name, spec in now.items() if name not in self._modules}
        path, folder, environment = _surroundings()
        return Order(modules, path, folder, environment, idle_s, forks)

    def status(self, process: int) -> int | None:
        """Return how a server ended, as ``status_of`` does, or None if that isn't known.

        A garbage collection may close a loader at any time, so also while this thread exchanges other
        messages.
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
        is_ours = self._trainer == os.getpid()  # else the process is the parent's
        if is_ours:
            hang_up(self._control)  # a forked child of ours may hold our ends of this and of the pipe
        self._close_ends()
        self._stacks.close()
        if not is_ours:
            return
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def fork_from(server: ForkServer, modules: Sequence[str], given: Sequence[int]) -> Forked:
    """A server that a fork server forks. Raises ``WorkerDiedError`` when that doesn't live."""
    for _ in range(2):
        origin = _preloaded(server)
        with contextlib.suppress(Ended):
            origin.fork(modules, server.idle_s, given)
            return Forked(origin)
        server.close()
    raise WorkerDiedError("the process that workers' servers are forked from has ended twice")


def preload(server: ForkServer, values: Sequence[object]) -> ForkServer:
    """The work of ``ForkServer.preload``. What the system refuses, the loader will meet again, and say so."""
    found = outline(values)
    with contextlib.suppress(Unforkable, Ended, OSError):
        if found.inherited:
            return heir_of(server, found.inherited)
        if server._process is not None and not server._process.is_as_new:
            server.close()
        _preloaded(server).prepare(list(found.modules), server.idle_s)
    return server


def heir_of(server: ForkServer | None, objects: Objects) -> ForkServer:
    """A fork server that has these objects: a fork of this process, where ``server`` and its forks haven't got them.

    Raises ``Unforkable``.
    """
    forks: set[ForkServer] = set() if server is None else {server, *server._forks}
    for each in forks:
        if objects.keys() <= each._inherits.keys():
            return each
    heir = ForkServer()
    heir._inherits = dict(objects)
    _preloaded(heir)
    if server is not None:
        server._forks.add(heir)
    return heir


def _preloaded(server: ForkServer) -> Preloaded:
    """The process of a fork server, which is started if there is none, or it is another one's."""
    process: Preloaded | None = server._process
    if process is None or not process.is_usable:
        server.close()
        process = server._process = Preloaded(server._inherits)
        server._ends = weakref.finalize(server, process.close)
    return process


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in this thread, and in a process that it starts until that process ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _own_threads() -> list[str]:
    """Names of the threads that loaders have here."""
    return [each.name for each in threading.enumerate() if each.name.startswith("standpipe")]


def _environment() -> dict[str, str]:
    return os.environ | dict.fromkeys(ONE_THREAD, "1")


def _module_specs() -> dict[str, Any]:
    """Return the import spec of every module; reloading a module changes its spec."""
    modules = sys.modules.copy()
    return {name: getattr(module, "__dict__", {}).get("__spec__") for name, module in modules.items()}


def _file_times(known: Mapping[str, int], modules: Iterable[str]) -> dict[str, int]:
    """Return when the files of modules, except known ones, were changed, in nanoseconds; 0 where there is no file."""
    times = {}
    for name in modules:
        if name in known or name == "__main__":  # which no worker imports
            continue
        file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        times[name] = 0
        with contextlib.suppress(OSError, TypeError, ValueError):
            times[name] = os.stat(file).st_mtime_ns  # type: ignore[arg-type]  # noqa: PTH116 (there are thousands)
    return times


def _surroundings() -> tuple[list[str], str, dict[str, str]]:
    """Return what importing depends on: ``sys.path``, the working folder, the environment."""
    return list(sys.path), str(Path.cwd()), _environment()
