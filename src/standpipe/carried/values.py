"""Values of the user's modules: which are plain enough to travel, and how one takes another one's place."""

from __future__ import annotations

import io
import pickle
import sys
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

import cloudpickle
import numpy as np

MOST_PICKLED_BYTES = 64 << 10  # size of a pickled value
SCALARS = (bool, int, float, complex, str, bytes, type(None))
# Classes of others whose objects are plain values. A bare object() isn't: its copy would be another object.
_PLAIN = frozenset(
    f"{module}.{name}"
    for module, names in {
        "builtins": ("range", "slice", "bytearray"),
        "pathlib": ("PosixPath", "PurePosixPath"),
        "pathlib._local": ("PosixPath", "PurePosixPath"),
        "collections": ("OrderedDict", "defaultdict", "Counter", "deque"),
        "decimal": ("Decimal",),
        "fractions": ("Fraction",),
        "datetime": ("datetime", "date", "time", "timedelta"),
        "argparse": ("Namespace",),
        "types": ("SimpleNamespace",),
        "re": ("Pattern",),
        "numpy": ("ndarray",),
        "torch": ("device", "dtype", "Size", "Tensor"),
    }.items()
    for name in names
)
_MUTABLE = (list, dict, set, bytearray)
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_UNIQUE = (type, FunctionType, Enum)  # equal only to themselves


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MOST_PICKLED_BYTES:
            raise pickle.PicklingError("the value is too large")
        return super().write(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler of plain values: it refuses all others.

    own  names of the modules whose classes, if they define no pickling of their own, have plain objects
    """

    def __init__(self, out: io.BytesIO, own: frozenset[str]) -> None:
        super().__init__(out, protocol=5)
        self._own = own

    def reducer_override(self, value: Any) -> Any:
        """Return how to pickle a value, as the ``pickle`` module defines it. Raises ``PicklingError`` to refuse it."""
        if isinstance(value, type | FunctionType):
            if value.__module__ == "__main__":  # by value, with whatever that takes
                return cloudpickle.loads, (cloudpickle.dumps(value),)
            if is_found(value):
                return NotImplemented
        elif isinstance(value, BuiltinFunctionType | Enum | np.generic | np.dtype) or self._is_plain(value):
            return NotImplemented
        raise pickle.PicklingError(f"a {type(value).__name__} isn't a plain value")

    def _is_plain(self, value: Any) -> bool:
        kind: Any = type(value)
        if kind.__module__ in self._own:
            reduces = (kind.__reduce_ex__, kind.__reduce__, kind.__getstate__)
            return reduces == (object.__reduce_ex__, object.__reduce__, object.__getstate__)
        if kind.__name__ == "Tensor" and (value.device.type != "cpu" or value.requires_grad):
            return False
        return f"{kind.__module__}.{kind.__qualname__}" in _PLAIN


def pickled(value: object, own: frozenset[str]) -> bytes | None:
    """Return a plain value as bytes; None for a value that isn't plain, or that is larger than 64 KiB.

    own  names of modules of the user's; see ``_Pickler``
    """
    out = _Bounded()
    try:
        _Pickler(out, own).dump(value)
    except Exception:  # also of the user's code
        return None
    return out.getvalue()


def is_found(value: Any) -> bool:
    """Return True if a class or function can be found by its module and name."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def kind_of(value: Any) -> str:
    """Return a text by which values can be compared that can't travel: their type, and how many items they have."""
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    size = f" of {len(value):,} items" if isinstance(value, _SIZED) else ""
    return f"a {type(value).__module__}.{type(value).__qualname__}{size}".replace("builtins.", "")


def is_shared(value: object) -> bool:
    """Return True if it matters that two names have the same object: if it can change in place."""
    return isinstance(value, _MUTABLE) or (hasattr(value, "__dict__") and not isinstance(value, _UNIQUE))


def is_same(one: Any, other: Any) -> bool:
    """Return True if two plain values are equal, in type and order too. The user's own comparisons aren't used."""
    if one is other:
        return True
    if type(one) is not type(other) or isinstance(one, _UNIQUE):
        return False
    match one:
        case list() | tuple():
            same = len(one) == len(other) and all(map(is_same, one, other))
        case dict():
            same = list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
        case np.ndarray():
            return one.dtype == other.dtype and bool(np.array_equal(one, other))
        case _ if type(one).__name__ == "Tensor":
            return one.dtype == other.dtype and bool(one.equal(other))
        case _ if hasattr(one, "__dict__"):
            same = True
        case _:
            return bool(one == other)
    return same and is_same(getattr(one, "__dict__", None), getattr(other, "__dict__", None))


def fill(there: Any, value: Any) -> bool:
    """Make an object equal to another one in place, for all that refers to it. Return False if that isn't possible."""
    if type(there) is not type(value) or isinstance(value, _UNIQUE):
        return False
    if isinstance(value, list | bytearray):
        there[:] = value
    elif isinstance(value, dict | set):
        there.clear()
        there.update(value)
    elif not hasattr(value, "__dict__") or hasattr(type(value), "__slots__"):
        return False
    if hasattr(value, "__dict__"):
        there.__dict__.clear()
        there.__dict__.update(value.__dict__)
    return True
