"""The trainer's side: read the known settings, and the values of the user's modules."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from standpipe.carried.settings import SETTINGS
from standpipe.carried.values import FIXED, kind_of, pickled
from standpipe.identity.modules import is_installed


@dataclass(frozen=True, slots=True)
class Content:
    """The content of one of the user's modules, by name: ``"SIZE"``, or ``"Config.size"`` of a class.

    values  plain values, pickled, each with the object's address in the trainer; 0 if it can't change in place
    others  all other values, as texts of ``kind_of``
    """

    values: Mapping[str, tuple[int, bytes]]
    others: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Carried:
    """The trainer's settings and values, as plain data for another process.

    modules   modules that the dataset and the functions need
    settings  known settings by their names, each pickled
    contents  contents of the user's modules, in the order in which the trainer imported them
    own       names of the user's modules, and of others whose classes have plain objects
    """

    modules: Sequence[str]
    settings: Mapping[str, bytes]
    contents: Mapping[str, Content]
    own: frozenset[str]


def read(modules: Sequence[str] = ()) -> Carried:
    """Read what the trainer has set, without importing anything.

    modules  modules that the dataset and the functions need
    """
    users = {name: module for name, module in sys.modules.copy().items() if _is_users(name, module)}
    own = frozenset([*users, "__main__", *cloudpickle.list_registry_pickle_by_value()])
    contents = {name: _content(name, module, own) for name, module in users.items()}
    return Carried(modules, dict(_settings()), contents, own)


def _settings() -> Iterator[tuple[str, bytes]]:
    for each in SETTINGS:
        module = sys.modules.get(each.module)
        with contextlib.suppress(Exception):  # a module of another version, or a value that can't be pickled
            if module is not None:
                yield each.name, cloudpickle.dumps(each.read(module))


def _is_users(name: str, module: object) -> bool:
    """Return True for a module whose file is outside the standard library, of installed packages and of standpipe.

    A module whose functions are pickled by value brings its values along.
    """
    top = name.partition(".")[0]
    if top in ("__main__", "__mp_main__", "standpipe") or top in sys.stdlib_module_names:
        return False
    if not isinstance(module, ModuleType) or not isinstance(file := vars(module).get("__file__"), str):
        return False
    # The folder's answer is kept for all of its modules; the first test is faster.
    if "/site-packages/" in file or is_installed(file.rpartition("/")[0]):
        return False
    return name not in cloudpickle.list_registry_pickle_by_value()


def _content(name: str, module: ModuleType, own: frozenset[str]) -> Content:
    values: dict[str, tuple[int, bytes]] = {}
    others: dict[str, str] = {}
    for path, value in _named(name, module):
        if (data := pickled(value, own)) is not None:
            values[path] = 0 if issubclass(type(value), FIXED) else id(value), data
        else:
            with contextlib.suppress(Exception):  # of a class of the user's, asked for a name or a length
                others[path] = kind_of(value)
    return Content(values, others)


def _named(name: str, module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a module, and of its classes, without its own functions and other modules."""
    for attribute, value in _items(module):
        kind = type(value)  # not isinstance(), which asks the object's own __class__
        is_own = issubclass(kind, type | FunctionType) and value.__module__ == name
        is_class = is_own and issubclass(kind, type) and not issubclass(value, Enum)
        if is_class and value.__qualname__ == attribute:
            for inner, held in _items(value):
                if not issubclass(type(held), type | FunctionType | staticmethod | classmethod | property):
                    yield f"{attribute}.{inner}", held
        elif not is_own:
            yield attribute, value


def _items(owner: ModuleType | type) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in vars(owner).copy().items()
        if name.isidentifier() and not name.startswith("__") and not issubclass(type(value), ModuleType)
    ]
