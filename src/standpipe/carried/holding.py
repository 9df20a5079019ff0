"""The side of the worker: set what the trainer had set, at once and in modules that are imported later."""

from __future__ import annotations

import contextlib
import pickle
import sys
from dataclasses import dataclass, field
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader, SourcelessFileLoader
from types import ModuleType
from typing import Any

from standpipe.carried.settings import SETTINGS
from standpipe.carried.trainer import Carried, Content
from standpipe.carried.values import fill, kind_of, pickled
from standpipe.system.threads import count_text, import_all

MOST_NAMED = 10  # values that a warning names
_ABSENT = object()
_MODULES = frozenset(each.module for each in SETTINGS)
# Loaders of which each module has one of its own, so that one can be changed for its module.
_OF_ONE_MODULE = (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)


@dataclass(slots=True)
class Report:
    """The result in a worker server or a worker: what it has set, what it couldn't set, and its threads.

    settings  names of known settings that were different there
    values    names of values that were different there, such as ``"config.SIZE"``
    lost      names of values that are different there, with what the trainer has
    starting  names of modules whose import started threads
    threads   names of its threads that aren't standpipe's; with any it can't be forked, and each worker loads the
              dataset by itself
    """

    settings: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    starting: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)

    def reason(self) -> str:
        """Return text such as ``"importing reader starts 2 threads (polars-0, polars-1)"``."""
        what = (
            f"importing {self.starting[0]}" if self.starting else "rebuilding the dataset and its functions"
        )
        return f"{what} starts {count_text(self.threads)}"

    def describe(self) -> list[str]:
        """Return the lines of ``explain()``."""
        alone = f"dataset: loaded by each worker, with imports in its own memory, as {self.reason()}"
        return [
            *([alone] if self.threads else []),
            f"settings: {', '.join(self.settings) or 'all are as in a new process'}",
            f"values of modules: {', '.join(self.values) or 'none has changed'}",
            *([f"different in workers: {', '.join(self.lost)}"] if self.lost else []),
        ]

    @property
    def warning(self) -> str:
        """The warning about values that are different there; empty if there are none."""
        if not self.lost:
            return ""
        more = f" and {len(self.lost) - MOST_NAMED} more" if len(self.lost) > MOST_NAMED else ""
        return (
            "worker processes don't have these values of this process, as they can't be sent: "
            f"{', '.join(self.lost[:MOST_NAMED])}{more}. Set them in each worker, by initializer= of the loader or "
            "worker_init_fn= of a DataLoader, or start workers as forks of this process: mp_context='fork', of a "
            "DataLoader multiprocessing_context='fork'"
        )


class Held:
    """The trainer's settings and values, in a process that makes samples for it.

    report  what was set so far
    """

    def __init__(self, carried: Carried) -> None:
        """Set it in all modules that this process has or needs; prepare to set it in those imported later."""
        self.report = Report()
        self._settings = carried.settings
        self._contents = dict(carried.contents)
        self._own = carried.own
        self._here: dict[int, Any] = {}  # objects of this process, by the address of the trainer's
        self.set_settings()
        self.report.starting = import_all(carried.modules)  # unpickling reports errors
        self.set_settings()
        # All imports come first: otherwise a module would add to a registry again what is already in it.
        while names := [name for name in self._contents if name in sys.modules]:
            for name in names:
                self._set_values(name, self._contents.pop(name))
        sys.meta_path.insert(0, self)

    def set_settings(self, newest: str = "") -> None:
        """Set the known settings of all imported modules: modules that were imported since may have changed them.

        newest  name of a module that has just run
        """
        for each in SETTINGS:
            module = sys.modules.get(each.module)
            if each.name not in self._settings or module is None:
                continue
            if each.module != newest and _is_being_imported(module):
                continue
            with contextlib.suppress(Exception):  # the module is another version, or lacks what is set
                value = pickle.loads(self._settings[each.name])
                if (before := each.read(module)) == value:
                    continue
                each.write(module, value)
                if each.read(module) != before and each.name not in self.report.settings:
                    self.report.settings.append(each.name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module that has something to be set, so that it is set once the module has run.

        The import system calls it for each module.
        """
        if name not in self._contents and name not in _MODULES:
            return None
        found = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        spec = next((each for each in found if each is not None), None)
        if spec is None or not isinstance(spec.loader, _OF_ONE_MODULE):
            return spec
        run = spec.loader.exec_module

        def run_and_set(module: ModuleType) -> None:
            run(module)
            self.set_settings(name)
            if (content := self._contents.pop(name, None)) is not None:
                self._set_values(name, content)

        spec.loader.exec_module = run_and_set  # type: ignore[method-assign]
        return spec

    def _set_values(self, name: str, content: Content) -> None:
        module = sys.modules[name]
        differs = [path for path, kind in content.others.items() if _kind_in(module, path) != kind]
        # What a module keeps to itself belongs together: a flag that a file is open needs the open file.
        keeps_its_own = any(map(_is_private, differs))
        self.report.lost += [
            f"{name}.{path} ({content.others[path]})" for path in differs if not _is_private(path)
        ]
        for path, (address, data) in content.values.items():
            there = _found(module, path)
            if (owner := _owner(module, path)) is None or self._is_as_there(there, address, data):
                continue
            try:
                if keeps_its_own and _is_private(path):
                    self.report.lost.append(f"{name}.{path}")
                    continue
                if not self._fills(there, address, data):
                    setattr(owner, path.rpartition(".")[2], self._object(address, data))
                self.report.values.append(f"{name}.{path}")
            except (
                BaseException
            ) as error:  # of the user's code: a class that refuses it, or one that isn't there
                self.report.lost.append(f"{name}.{path} ({type(error).__name__}: {error})")

    def _is_as_there(self, there: Any, address: int, data: bytes) -> bool:
        """Return True if an object of this process is as the trainer's at ``address``, which is pickled in ``data``."""
        if address in self._here:
            return self._here[address] is there
        if there is _ABSENT or (address and self._is_taken(there)) or pickled(there, self._own) != data:
            return False
        if address:
            self._here[address] = there
        return True

    def _fills(self, there: Any, address: int, data: bytes) -> bool:
        """Change an object to be as the trainer's. Return False if another object must take its place."""
        if (
            not address
            or address in self._here
            or self._is_taken(there)
            or not fill(there, pickle.loads(data))
        ):
            return False
        self._here[address] = there
        return True

    def _object(self, address: int, data: bytes) -> Any:
        """Return this process's object for the trainer's at ``address``: the same one for each name that has it."""
        return self._here.setdefault(address, pickle.loads(data)) if address else pickle.loads(data)

    def _is_taken(self, there: Any) -> bool:
        """Return True if an object of this process stands for another one of the trainer already."""
        return any(each is there for each in self._here.values())


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


def _owner(module: ModuleType, path: str) -> ModuleType | type | None:
    """Return the module or its class that has the attribute at the end of ``path``; None without such a class."""
    outer = path.rpartition(".")[0]
    owner = vars(module).get(outer) if outer else module
    return owner if isinstance(owner, ModuleType | type) else None


def _found(module: ModuleType, path: str) -> Any:
    owner = _owner(module, path)
    return _ABSENT if owner is None else vars(owner).get(path.rpartition(".")[2], _ABSENT)


def _kind_in(module: ModuleType, path: str) -> str:
    try:
        return kind_of(_found(module, path))
    except Exception:  # of a class of the user's
        return ""


def _is_private(path: str) -> bool:
    return any(part.startswith("_") for part in path.split("."))
