"""Start worker servers: as a new interpreter, as a fork of a prepared process, or as a fork of the trainer."""

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

# Set to 1 in workers. Otherwise these libraries start a thread per CPU in each worker, though workers already use the
# CPUs.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
ANSWER_S = 30.0  # seconds to wait for the report how a server ended
PATIENCE_S = 1.0  # seconds that a process has to end after the request


def fresh(module: str, given: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a new interpreter that runs ``main()`` of a module, with the descriptors in ``given``.

    That ``main()`` must call ``ignore_interrupts``.
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
    """A worker server that is a fork, with the needed part of the interface of ``subprocess.Popen``.

    origin  the process that forks it; None: this process
    pid     its process number; 0: it isn't known yet
    """

    def __init__(self, origin: Preloaded | None, pid: int = 0) -> None:
        self._origin, self._pid = origin, 0
        self._code: int | None = None
        self._handle: int | None = None
        if pid:
            self.begun(pid)

    @property
    def pid(self) -> int:
        """The process number; until the server has started, that of the process that forks it."""
        return self._pid or (self._origin.pid if self._origin is not None else 0)

    @property
    def extra_bytes(self) -> int:
        """The memory of the process that forked it, in bytes; 0 for the trainer."""
        return 0 if self._origin is None else self._origin.bytes()

    def where_from(self) -> str:
        """Return the stacks of the process that forks it; empty once the server has started."""
        return "" if self._pid or self._origin is None else self._origin.where()

    def begun(self, pid: int) -> None:
        """Note the number of the process that has started."""
        self._pid = pid
        with contextlib.suppress(OSError):
            self._handle = os.pidfd_open(pid)

    def kill(self) -> None:
        """End it at once. Before it has started, end the process that forks it."""
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
                raise subprocess.TimeoutExpired("a worker server", timeout or 0)
            os.close(self._handle)
            self._handle = None
        if self._code is None:
            status = status_of if self._origin is None else self._origin.status
            self._code = (status(self._pid) if self._pid else None) or 0
        return self._code

    def poll(self) -> int | None:
        """Return its exit code; None while it lives."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None


class Unforkable(Exception):
    """The error for a process that can't be forked now, with the reason."""


def fork_here(run: Callable[[], object], close: Callable[[], object]) -> Forked:
    """Fork this process, and run a function in the fork.

    run    the function
    close  called in the fork first, to close descriptors that only this process may have

    Raises ``Unforkable`` while threads of standpipe run here, as the fork would copy their locks but not the
    threads. Other libraries' threads aren't checked, as in torch. Nor is the use of CUDA, which torch itself
    refuses in a fork.
    """
    if _own_threads():
        gc.collect()  # reference cycles may hold loaders, such as an exception with its frames
    if ours := _own_threads():
        raise Unforkable(
            f"standpipe runs {len(ours)} threads in it already ({ours[0]}, …), and a fork copies the locks of these "
            "threads, but not the threads"
        )

    def work() -> None:
        close()
        gc.freeze()  # a collection in the fork would copy all pages of this process's objects
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        run()

    with _interrupts_blocked():
        return Forked(None, forked(work))


class Preloaded:
    """The trainer's handle of a ``ForkServer``'s process.

    inherits  objects that the process must inherit: then it is a fork of this one; without any, a new interpreter
    """

    def __init__(self, inherits: Objects) -> None:
        self._lock = threading.Lock()
        self._talks = 0  # identifier of the thread that holds the lock
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
        """Run the fork server's loop, in the fork of this process."""
        adopt(inherits)
        fork_on_demand(given, self._trainer)

    def _close_ends(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._pipe)
        self._control.close()

    @property
    def pid(self) -> int:
        """The process number."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """True if the process lives, is this one's child, and none of its modules was reloaded here since."""
        now = _module_specs()
        return (
            self._trainer == os.getpid()
            and self._process.poll() is None
            and all(now.get(name, spec) is spec for name, spec in self._modules.items())
        )

    @property
    def is_as_new(self) -> bool:
        """True if a new process would be the same: no module's file and no setting has changed since it started."""
        return (
            self.is_usable
            and self._surroundings == _surroundings()
            and self._files == _file_times({}, dict.fromkeys(self._files))
        )

    def bytes(self) -> int:
        """Return its memory in bytes; for a fork of this process only its own. Return 0 if it has ended."""
        with contextlib.suppress(OSError, ValueError):  # it has ended
            if isinstance(self._process, Forked):
                return own_memory_bytes(self.pid, sharers=4)  # trainer, it, server, worker
            return process_memory_bytes(self.pid)
        return 0

    def where(self) -> str:
        """Return its stacks."""
        return self._stacks.of(self.pid)

    def prepare(self, modules: Sequence[str], idle_s: float | None) -> None:
        """Tell it to import modules, without waiting. Raises ``Ended``."""
        with self._talk():
            send(self._control, self._order(modules, idle_s, forks=False))

    def fork(self, modules: Sequence[str], idle_s: float | None, given: Sequence[int]) -> None:
        """Tell it to fork a worker server with the descriptors in ``given``, without waiting. Raises ``Ended``."""
        order = self._order(modules, idle_s, forks=True)
        with self._talk():
            send(self._control, order)
            try:
                socket.send_fds(self._control, [b"f"], list(given))
            except OSError as error:
                raise Ended(str(error)) from error

    def _order(self, modules: Sequence[str], idle_s: float | None, *, forks: bool) -> Order:
        """Return an order with the current import settings, and record the modules that it may import now."""
        now = _module_specs()
        self._files |= _file_times(self._files, now)
        self._modules |= {name: spec for name, spec in now.items() if name not in self._modules}
        path, folder, environment = _surroundings()
        return Order(modules, path, folder, environment, idle_s, forks)

    def status(self, process: int) -> int | None:
        """Return how a server ended, see ``status_of``, or None if that isn't known.

        It isn't known if this thread is just exchanging other messages: a garbage collection may close a loader
        at any time.
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
        """Hold the lock for one exchange of messages."""
        with self._lock:
            self._talks = threading.get_ident()
            try:
                with talk(self._control):
                    yield
            finally:
                self._talks = 0

    def kill(self) -> None:
        """End it at once. Its worker servers live on."""
        self._process.kill()

    def close(self) -> None:
        """Let it end, and wait for that. Its worker servers live on."""
        is_ours = self._trainer == os.getpid()  # otherwise the process is the parent's
        if is_ours:
            hang_up(self._control)  # closing isn't enough, as a forked child may also hold our ends
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
    """Tell a fork server to fork a worker server. Raises ``WorkerDiedError`` if the fork server ends twice."""
    for _ in range(2):
        origin = _preloaded(server)
        with contextlib.suppress(Ended):
            origin.fork(modules, server.idle_s, given)
            return Forked(origin)
        server.close()
    raise WorkerDiedError("the process from which worker servers are forked has ended twice")


def preload(server: ForkServer, values: Sequence[object]) -> ForkServer:
    """Do the work of ``ForkServer.preload``: import the modules of values, and return the fork server to use.

    Errors of the system are ignored here: the loader meets them again, and raises them.
    """
    found = outline(values)
    with contextlib.suppress(Unforkable, Ended, OSError):
        if found.inherited:
            return heir_of(server, found.inherited)
        if server._process is not None and not server._process.is_as_new:
            server.close()
        _preloaded(server).prepare(list(found.modules), server.idle_s)
    return server


def heir_of(server: ForkServer | None, objects: Objects) -> ForkServer:
    """Return a fork server that has these objects: ``server``, one of its forks, or else a new fork of this process.

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
    """Return the process of a fork server. Start one if there is none, or it can't be used."""
    process: Preloaded | None = server._process
    if process is None or not process.is_usable:
        server.close()
        process = server._process = Preloaded(server._inherits)
        server._ends = weakref.finalize(server, process.close)
    return process


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread. A process that it starts keeps it blocked until it ignores SIGINT."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _own_threads() -> list[str]:
    """Return the names of standpipe's threads in this process."""
    return [each.name for each in threading.enumerate() if each.name.startswith("standpipe")]


def _environment() -> dict[str, str]:
    return os.environ | dict.fromkeys(ONE_THREAD, "1")


def _module_specs() -> dict[str, Any]:
    """Return the import spec of every module; reloading a module changes its spec."""
    modules = sys.modules.copy()
    return {name: getattr(module, "__dict__", {}).get("__spec__") for name, module in modules.items()}


def _file_times(known: Mapping[str, int], modules: Iterable[str]) -> dict[str, int]:
    """Return the modification times of modules' files, except known ones, in nanoseconds; 0 without a file."""
    times = {}
    for name in modules:
        if name in known or name == "__main__":  # no worker imports the main module
            continue
        file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        times[name] = 0
        with contextlib.suppress(OSError, TypeError, ValueError):
            times[name] = os.stat(file).st_mtime_ns  # type: ignore[arg-type]  # noqa: PTH116 (there are thousands)
    return times


def _surroundings() -> tuple[list[str], str, dict[str, str]]:
    """Return the settings that imports depend on: ``sys.path``, the working folder, the environment."""
    return list(sys.path), str(Path.cwd()), _environment()
