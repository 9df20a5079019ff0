"""Late mode: each worker loads the recipe by itself, after its fork, since loading it starts threads.

A process with threads must not be forked. So a worker server in late mode loads nothing. The trainer remembers for
which modules servers start in this mode.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from standpipe.carried import Carried, Held, Report
from standpipe.engine.processes.messages import receive, receive_files
from standpipe.engine.processes.travel import unpack
from standpipe.engine.python.recipe import Recipe

TASKS = Path("/proc/self/task")
MOST_NAMES = 4  # names of threads in a message


@dataclass(frozen=True, slots=True)
class Sent:
    """A recipe as the trainer has sent it.

    recipe   descriptor of the packed recipe
    lists    descriptor of its long lists and arrays
    shared   descriptors of tensors in shared memory
    carried  the trainer's settings and values
    """

    recipe: int
    lists: int
    shared: Sequence[int]
    carried: Carried

    def load(self) -> tuple[Recipe, Report]:
        """Import the modules, set what the trainer has set, and unpack the recipe. Close its descriptors."""
        held = Held(self.carried)
        recipe: Recipe = unpack(self.recipe, self.lists, self.shared)
        held.set_settings()
        return recipe, held.report


@dataclass(frozen=True, slots=True)
class Loaded:
    """A worker's answer in late mode: it has loaded the recipe.

    report   what it has set
    seconds  the time that loading took
    """

    report: Report
    seconds: float


@dataclass(frozen=True, slots=True)
class CantLoad:
    """A worker's only message in late mode if it can't load the recipe.

    error  the error, in a form that can be pickled
    """

    error: Exception


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of a worker server or fork server that aren't standpipe's.

    names    the threads' names, as the system has them; empty for a thread without a name of its own
    modules  modules whose import started threads: those from which the imports began
    origin   the module in whose own code the first thread was started; empty if no import started it
    """

    names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    origin: str = ""

    def describe(self) -> str:
        """Return text such as ``"importing reader, which imports polars, starts 2 threads (polars-0, polars-1)"``."""
        what = "rebuilding the dataset and its functions"
        if self.origin:
            outer = self.modules[0]
            inner = "" if outer == self.origin else f", which imports {self.origin},"
            what = f"importing {outer}{inner}"
        return f"{what} starts {self.count()}"

    def count(self) -> str:
        """Return text such as ``"a thread"`` or ``"2 threads (polars-0, polars-1)"``."""
        threads = "a thread" if len(self.names) == 1 else f"{len(self.names)} threads"
        names = list(dict.fromkeys(filter(None, self.names)))
        more = ", …" if len(names) > MOST_NAMES else ""
        return f"{threads} ({', '.join(names[:MOST_NAMES])}{more})" if names else threads


class ThreadWatch:
    """Finds the imports that start threads, while it is entered. It takes some 20 µs per imported module.

    Make it right after ``_native.end_with``, whose thread is standpipe's.
    """

    def __init__(self) -> None:
        others = _tasks() - {os.getpid()}  # of several, the newest is ours
        self._own = {os.getpid(), max(others, default=0)}
        self._number = _number()
        self._importing: list[str] = []
        self._modules: dict[str, None] = {}
        self._origin = ""

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)

    def threads(self) -> Threads:
        """Return the threads that this process has now. With any, it must not fork."""
        names, ours = [], _name(os.getpid())
        for task in sorted(_tasks() - self._own):
            with contextlib.suppress(OSError):  # it has just ended
                name = _name(task)
                names.append("" if name == ours else name)
        return Threads(tuple(names), tuple(self._modules), self._origin) if names else Threads()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module for the import system, and watch while the module runs."""
        self._look()
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (each.find_spec(name, path, target) for each in behind)
        spec = next((each for each in found if each is not None), None)
        if type(spec) is ModuleSpec:
            spec.__class__ = _WatchedSpec
            spec.__dict__["watch"] = self
        return spec

    def _look(self) -> None:
        """Blame the module that runs now for threads that are new."""
        before, self._number = self._number, _number()
        if self._number > before and self._importing:
            self._modules[self._importing[0]] = None
            self._origin = self._origin or self._importing[-1]

    def _enter(self, name: str) -> None:
        self._importing.append(name)
        self._look()  # a library may start threads when it is loaded, before its module runs

    def _leave(self) -> None:
        self._look()
        self._importing.pop()


class _WatchedSpec(ModuleSpec):
    """A spec that reports to a watch when its module begins and ends to run.

    The import system sets ``_initializing`` then. Unlike a loader of our own, this adds no frame to the stack.
    """

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, runs: bool) -> None:
        self.__dict__["_initializing"] = runs
        if runs:
            self.__dict__["watch"]._enter(self.name)
        else:
            self.__dict__.pop("watch")._leave()
            self.__class__ = ModuleSpec  # type: ignore[assignment]  # the class that it had


def received(
    channel: socket.socket, recipe_file: int, lists_file: int, watch: ThreadWatch
) -> tuple[Recipe | Sent, Report]:
    """Receive the recipe and load it, except in late mode. Return it, and what was set."""
    files = receive_files(channel)
    carried, late = receive(channel)
    sent = Sent(recipe_file, lists_file, files, carried)
    if late:
        return sent, Report()
    with watch:
        return sent.load()


_late: dict[frozenset[str], Threads] = {}  # threads by modules: a server that needs all of them starts late


def remember(threads: Threads, modules: Collection[str], *, loaded: bool) -> None:
    """Remember in the trainer that worker servers must start in late mode.

    threads  the threads that the server had
    modules  modules that the server's recipe needs
    loaded   True if the server had the recipe; False for a fork server, whose threads other recipes may have started
    """
    for name in threads.modules:
        _late[frozenset((name,))] = threads
    if (loaded or not threads.modules) and threads_of(modules) is None:
        _late[frozenset(modules)] = threads


def threads_of(modules: Collection[str]) -> Threads | None:
    """Return the threads because of which a server with these modules starts in late mode; None: it doesn't."""
    packages = {name[:end] for name in modules for end in _ends(name)}
    return next((threads for late, threads in _late.copy().items() if late <= packages), None)


def _ends(name: str) -> list[int]:
    """Return the lengths of a module's name and of those of its packages: their imports begin with the package."""
    return [*(place for place, letter in enumerate(name) if letter == "."), len(name)]


def _tasks() -> set[int]:
    return {int(task) for task in os.listdir(TASKS)}  # noqa: PTH208 (names, which are faster)


def _name(task: int) -> str:
    return (TASKS / f"{task}" / "comm").read_text().strip()


def _number() -> int:
    return os.stat(TASKS).st_nlink  # noqa: PTH116 (faster)
