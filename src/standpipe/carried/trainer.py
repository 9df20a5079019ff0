"""The trainer's side: read the known settings, and the values of the user's modules."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from standpipe.carried.settings import SETTINGS
from standpipe.carried.values import SCALARS, is_found, is_shared, kind_of, pickled
from standpipe.identity.modules import is_installed

MOST_TEXT = 64 << 10  # items of a string or of bytes


@dataclass(frozen=True, slots=True)
class Value:
    """A plain value of a module.

    data     the pickled value
    address  the object's address in the trainer, if it can change in place; None for others
    """

    data: bytes
    address: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The content of one of the user's modules, by name: ``"SIZE"``, or ``"Config.size"`` of a class.

    values  plain values
    others  all other values, as texts of ``kind_of``
    """

    values: Mapping[str, Value]
    others: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Carried:
    """The trainer's settings and values, as plain data for another process.

    modules   modules that the dataset and the functions need
    settings  known settings by their names, each pickled
    contents  contents of the user's modules, in the order in which the trainer imported them
    """

    modules: Sequence[str]
    settings: Mapping[str, bytes]
    contents: Mapping[str, Content]


def read(modules: Sequence[str] = ()) -> Carried:
    """Read what the trainer has set, without importing anything.

    modules  modules that the dataset and the functions need
    """
    return Carried(modules, dict(_settings()), _contents())


def _settings() -> Iterator[tuple[str, bytes]]:
    for each in SETTINGS:
        module = sys.modules.get(each.module)
        with contextlib.suppress(Exception):  # a module of another version, or a value that can't be pickled
            if module is not None:
                yield each.name, cloudpickle.dumps(each.read(module))


def _contents() -> dict[str, Content]:
    users = {name: module for name, module in sys.modules.copy().items() if _is_users(name, module)}
    own = frozenset([*users, "__main__", *cloudpickle.list_registry_pickle_by_value()])
    return {name: _content(name, module, own) for name, module in users.items()}


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
    values: dict[str, Value] = {}
    others: dict[str, str] = {}
    for path, value in _named(name, module):
        data = None
        if type(value) in SCALARS:
            if not isinstance(value, str | bytes) or len(value) <= MOST_TEXT:
                data = cloudpickle.dumps(value)
        elif isinstance(value, type | FunctionType | BuiltinFunctionType):
            if value.__module__ in own and (value.__module__ == "__main__" or is_found(value)):
                data = pickled(value, own)
        else:
            data = pickled(value, own)
        if data is None:
            others[path] = kind_of(value)
        else:
            values[path] = Value(data, id(value) if is_shared(value) else None)
    return Content(values, others)


def _named(name: str, module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a module, and of its classes, without its own functions and other modules."""
    for attribute, value in _items(module):
        is_own = getattr(value, "__module__", None) == name
        if (
            is_own
            and isinstance(value, type)
            and value.__qualname__ == attribute
            and not issubclass(value, Enum)
        ):
            for inner, held in _items(value):
                if not isinstance(held, type | FunctionType | staticmethod | classmethod | property):
                    yield f"{attribute}.{inner}", held
        elif not (is_own and isinstance(value, type | FunctionType)):
            yield attribute, value


def _items(owner: ModuleType | type) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in vars(owner).copy().items()
        if name.isidentifier() and not name.startswith("__") and not isinstance(value, ModuleType)
    ]
