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
from typing import Any, TypeVar

from standpipe.engine.processes.fork_server import ForkServer
from standpipe.engine.processes.inherited import Objects, keep_objects
from standpipe.engine.processes.late import reason_for
from standpipe.engine.processes.messages import Ended, channel_pair, hang_up, receive, send, talk
from standpipe.engine.processes.outline import outline
from standpipe.engine.processes.preloaded import ForkServerRequest, fork_on_demand
from standpipe.engine.processes.server import bootstrap, forked, status_of
from standpipe.engine.watchdog.where import Stacks
from standpipe.errors import WorkerDiedError
from standpipe.system.machine import own_memory_bytes, process_memory_bytes
from standpipe.system.workers import is_helper

# Set to 1 in workers. Otherwise these libraries start a thread per CPU in each worker, though workers already use the
# CPUs.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
# Read by pyarrow's allocator. Otherwise importing pyarrow starts a thread that frees memory, and each worker would have
# to import it by itself.
ARROW_CONF, NO_THREAD = "JE_ARROW_MALLOC_CONF", "background_thread:false"
ANSWER_S = 30.0  # seconds to wait for the report how a server ended
PATIENCE_S = 1.0  # seconds that a process has to end after the request

Process = TypeVar("Process", "subprocess.Popen[bytes]", "Forked")


def fresh(module: str, given: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a new interpreter that runs ``main()`` of ``module``.

    given  open descriptors that the new process inherits; their numbers are its first arguments

    That ``main()`` must call ``ignore_interrupts``, as the new process starts with SIGINT blocked.
    """
    command = [
        sys.executable,
        *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]  # as multiprocessing does
        "-c",
        bootstrap(sys.path, module),
        *map(str, given),
        str(os.getpid()),
    ]
    return _uninterrupted(
        lambda: subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=given, env=_environment())
    )


class Forked:
    """A worker server that is a fork, with the part of ``subprocess.Popen``'s interface that is needed.

    origin  the fork server that forks the worker server; None: this process forks it
    pid     process number of the worker server; 0: not known yet
    """

    def __init__(self, origin: Preloaded | None, pid: int = 0) -> None:
        self._origin, self._pid = origin, 0
        self._code: int | None = None
        self._handle: int | None = None
        if pid:
            self.begun(pid)

    @property
    def pid(self) -> int:
        """The worker server's process number; until it has started, the fork server's."""
        return self._pid or (self._origin.pid if self._origin is not None else 0)

    @property
    def extra_bytes(self) -> int:
        """The memory of the fork server that forked the worker server, in bytes; 0 if the trainer forked it."""
        return 0 if self._origin is None else self._origin.bytes()

    def where_from(self) -> str:
        """Return the fork server's stacks as text, until the worker server has started; after that, an empty string."""
        return "" if self._pid or self._origin is None else self._origin.where()

    def begun(self, pid: int) -> None:
        """Record the process number of the worker server, which has started."""
        self._pid = pid
        with contextlib.suppress(OSError):
            self._handle = os.pidfd_open(pid)

    def kill(self) -> None:
        """Kill the worker server. If it hasn't started yet, kill the fork server."""
        if not self._pid and self._origin is not None:
            self._origin.kill()
        with contextlib.suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif self._pid and self._code is None:
                os.kill(self._pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the worker server ends, and return its exit code.

        timeout  seconds to wait; after that, raises ``subprocess.TimeoutExpired``; None: no limit
        """
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
        """Return the worker server's exit code; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None


class Unforkable(Exception):
    """Raised if this process can't be forked now; the text is the reason."""


def fork_here(run: Callable[[], object], close: Callable[[], object]) -> Forked:
    """Fork this process, and run a function in the fork.

    run    the function
    close  called in the fork first, to close descriptors that only this process may have

    Raises ``Unforkable`` while threads of standpipe run here, as the fork would copy their locks but not the
    threads. As in torch, other libraries' threads aren't checked. The use of CUDA isn't checked either: torch
    itself refuses CUDA in a fork.
    """
    if own_threads():
        gc.collect()  # reference cycles may hold loaders, such as an exception with its frames
    if ours := own_threads():
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

    return _uninterrupted(lambda: Forked(None, forked(work)))


class Preloaded:
    """The trainer's handle of a ``ForkServer``'s process.

    inherits    objects that the process must inherit, by address: with any, the process is a fork of this process;
                without any, it is a new interpreter
    has_forked  True if it was asked for a worker server
    """

    def __init__(self, inherits: Objects) -> None:
        self._lock = threading.Lock()
        self._talks = 0  # identifier of the thread that holds the lock
        self._trainer = os.getpid()
        self.has_forked = self._killed = False
        self._modules = _module_specs()
        self._files = _file_times({}, self._modules)
        self._surroundings = _surroundings()
        read_end, self._pipe = os.pipe()
        self._control, theirs = channel_pair()
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
        """Run the fork server's loop. The fork of this process calls it.

        inherits  the objects that worker servers may use
        given     descriptors of the channel, the pipe that ends with the trainer, the file for stacks
        """
        keep_objects(inherits)
        fork_on_demand(given, self._trainer)

    def _close_ends(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._pipe)
        self._control.close()

    @property
    def pid(self) -> int:
        """The fork server's process number."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """True if the fork server runs, this process started it, and no module of it was reloaded here since."""
        now = _module_specs()
        return (
            self._trainer == os.getpid()
            and not self._killed  # on a busy machine it ends a moment after that
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
        """Return the fork server's memory in bytes, 0 if it has ended.

        For a fork of this process, only memory that it shares with no other process counts, measured roughly.
        """
        with contextlib.suppress(OSError, ValueError):  # it has ended
            if isinstance(self._process, Forked):
                return own_memory_bytes(self.pid, sharers=4)  # trainer, it, server, worker
            return process_memory_bytes(self.pid)
        return 0

    def where(self) -> str:
        """Return the fork server's stacks as text."""
        return self._stacks.of(self.pid)

    def prepare(self, modules: Sequence[str], idle_s: float | None) -> None:
        """Send the fork server an order to import modules, without waiting for it.

        idle_s  seconds without work after which the fork server ends; None: never

        Raises ``Ended`` if the fork server has ended.
        """
        with self._talk():
            send(self._control, self._order(modules, idle_s, forks=False))

    def fork(self, modules: Sequence[str], idle_s: float | None, given: Sequence[int]) -> None:
        """Send the fork server an order to import modules and fork a worker server, without waiting for it.

        idle_s  seconds without work after which the fork server ends; None: never
        given   descriptors for the worker server

        Raises ``Ended`` if the fork server has ended.
        """
        self.has_forked = True
        order = self._order(modules, idle_s, forks=True)
        with self._talk():
            send(self._control, order)
            try:
                socket.send_fds(self._control, [b"f"], list(given))
            except OSError as error:
                raise Ended(str(error)) from error

    def _order(self, modules: Sequence[str], idle_s: float | None, *, forks: bool) -> ForkServerRequest:
        """Return an order with the current import settings, and record the modules that the fork server may then have.

        forks  True: the order is to fork a worker server too
        """
        now = _module_specs()
        self._files |= _file_times(self._files, now)
        self._modules |= {name: spec for name, spec in now.items() if name not in self._modules}
        path, folder, environment = _surroundings()
        return ForkServerRequest(modules, path, folder, environment, idle_s, forks)

    def status(self, process: int) -> int | None:
        """Return how a worker server ended, as ``status_of`` does; None if that isn't known.

        process  process number of the worker server

        It isn't known if this thread is already exchanging messages with the fork server. That can happen if a
        garbage collection closes a loader in the middle of an exchange.
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
        """Kill the fork server. Worker servers that it forked go on running."""
        self._killed = True
        self._process.kill()

    def close(self) -> None:
        """End the fork server, and wait for that. Worker servers that it forked go on running."""
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
    """Send a fork server the order to fork a worker server, and return its handle.

    modules  modules to import before
    given    descriptors for the worker server

    Raises ``WorkerDiedError`` if the fork server ends twice.
    """
    for _ in range(2):
        origin = _preloaded(server)
        with contextlib.suppress(Ended):
            origin.fork(modules, server.idle_s, given)
            return Forked(origin)
        server.close()
    raise WorkerDiedError("the process from which worker servers are forked has ended twice")


def preload(server: ForkServer, values: Sequence[object]) -> ForkServer:
    """Import the modules that ``values`` need in the fork server, and return the fork server to use.

    ``ForkServer.preload`` calls it. Errors of the system are ignored here, since the loader will raise them.
    """
    # Importing a module that preloads: a new server would import it too, and so on without end.
    if is_helper():
        return server
    found = outline(values)
    with contextlib.suppress(Unforkable, Ended, OSError):
        if found.inherited:
            return heir_of(server, found.inherited)
        if server._process is not None and not server._process.is_as_new:
            server.close()
        modules = [name for name in found.modules if reason_for((name,)) is None]
        _preloaded(server).prepare(modules, server.idle_s)
    return server


def heir_of(server: ForkServer | None, objects: Objects) -> ForkServer:
    """Return a fork server whose process has inherited ``objects``.

    It is ``server`` or one of the fork servers made for it before, or else a new fork of this process.
    Raises ``Unforkable`` if this process can't be forked now.
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
    """Return the process of a fork server. Start a new process if there is none, or if it isn't usable."""
    process: Preloaded | None = server._process
    if process is None or not process.is_usable:
        server.close()
        process = server._process = Preloaded(server._inherits)
        server._ends = weakref.finalize(server, process.close)
    return process


def _uninterrupted(start: Callable[[], Process]) -> Process:
    """Start a process with SIGINT blocked in this thread, and return its handle.

    The process keeps SIGINT blocked until it ignores it. An interrupt of this thread in that time ends the process.
    """
    process: Process | None = None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        try:
            process = start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # raises the interrupt
    except BaseException:
        if process is not None:
            process.kill()
            process.wait()
        raise
    return process


def own_threads() -> list[str]:
    """Return the names of standpipe's threads in this process."""
    return [each.name for each in threading.enumerate() if each.name.startswith("standpipe")]


def _environment() -> dict[str, str]:
    given = os.environ.get(ARROW_CONF)
    return (
        os.environ
        | dict.fromkeys(ONE_THREAD, "1")
        | {ARROW_CONF: f"{given},{NO_THREAD}" if given else NO_THREAD}
    )


def _module_specs() -> dict[str, Any]:
    """Return the import spec of every module; reloading a module changes its spec."""
    modules = sys.modules.copy()
    return {name: getattr(module, "__dict__", {}).get("__spec__") for name, module in modules.items()}


def _file_times(known: Mapping[str, int], modules: Iterable[str]) -> dict[str, int]:
    """Return the modification time of each module's file in nanoseconds, by module name; 0 without a file.

    known  modules to leave out, as their times are known
    """
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
