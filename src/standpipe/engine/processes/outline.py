"""Scan a dataset before it is pickled, to find the modules that other processes need. None of its code runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from standpipe.engine.processes.inherited import is_only_inherited

MOST_VALUES = 2000  # values that are scanned, the outermost first; this takes some milliseconds
PLAIN = (str, bytes, int, float, complex, bool, type(None))


@dataclass(slots=True)
class Outline:
    """The result of a scan of a dataset.

    modules    names of modules that unpickling the dataset imports, as keys
    inherited  objects that only a fork of this process can have, by their addresses
    """

    modules: dict[str, None] = field(default_factory=dict)
    inherited: dict[int, object] = field(default_factory=dict)


def outline(values: Iterable[object]) -> Outline:
    """Scan values and the objects in them, 2,000 at most, and return the modules and objects found.

    Objects whose class defines its own pickling aren't searched.
    """
    seen: dict[int, object] = {}  # by address; kept alive, so that no new object gets one of these addresses
    found = Outline()
    waiting = deque(values)
    while waiting and len(seen) < MOST_VALUES:
        value = waiting.popleft()
        if type(value) in PLAIN or id(value) in seen:
            continue
        seen[id(value)] = value
        if is_only_inherited(value):
            found.inherited[id(value)] = value
            continue
        if isinstance(value, ModuleType):
            found.modules[value.__name__] = None
        elif isinstance(value, type | FunctionType):
            found.modules[value.__module__ or "builtins"] = None
        waiting.extend(islice(_held(value), MOST_VALUES))
    found.modules.pop("__main__", None)
    return found


def attributes(value: object) -> dict[str, Any]:
    """Return an object's attributes by name, from its ``__dict__`` and its slots."""
    held = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name != "__dict__" and hasattr(value, name):
                held[name] = getattr(value, name)
    return held | getattr(value, "__dict__", {})


def _held(value: Any) -> Iterator[object]:
    """Yield the objects directly inside a value that are pickled with it."""
    match value:
        case dict():
            yield from value.values()
        case list() | tuple() | set() | frozenset():
            yield from value
        case FunctionType():
            yield from _used(value)
        case MethodType():
            yield from (value.__func__, value.__self__)
        case staticmethod() | classmethod():
            yield value.__func__
        case property():
            yield value.fget
        case partial():
            yield from (value.func, *value.args, *value.keywords.values())
        case type():
            if value.__module__ == "__main__":  # other classes are pickled by name
                yield from (*value.__bases__, *vars(value).values())
        case ModuleType():
            pass
        case _:
            yield type(value)
            if _is_pickled_by_attributes(type(value)):
                yield from attributes(value).values()


def _used(function: FunctionType) -> Iterator[object]:
    """Yield the objects that a function uses, if it is pickled by value and not by name."""
    # Functions of the main module, lambdas and inner functions are pickled by value.
    if function.__module__ != "__main__" and "<" not in function.__qualname__:
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
    yield from (function.__globals__.get(name) for name in _names(function.__code__))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)


def _is_pickled_by_attributes(kind: Any) -> bool:
    reduces = (kind.__reduce_ex__, kind.__reduce__, kind.__getstate__)
    return reduces == (object.__reduce_ex__, object.__reduce__, object.__getstate__)
