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

from standpipe.spec import AnyArray

MOST_PICKLED_BYTES = 64 << 10  # size of a pickled value
# Classes of others whose objects are plain values, beside dicts and tensors. A bare object() isn't: its copy would be
# another object.
_PLAIN = frozenset(
    f"{module}.{name}"
    for module, names in {
        "builtins": ("range", "slice", "bytearray"),
        "pathlib": ("PosixPath", "PurePosixPath"),
        "collections": ("deque",),
        "decimal": ("Decimal",),
        "fractions": ("Fraction",),
        "datetime": ("datetime", "date", "time", "timedelta", "timezone"),
        "argparse": ("Namespace",),
        "types": ("SimpleNamespace",),
        "re": ("Pattern",),
        "numpy": ("ndarray",),
        "torch": ("device", "dtype", "Size"),
    }.items()
    for name in names
)
_OF_SETTINGS = ("omegaconf", "ml_collections")  # libraries whose objects hold settings, and aren't dicts
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
# Objects of these classes can't be changed in place.
FIXED = (int, float, complex, str, bytes, tuple, frozenset, type(None), np.ndarray, Enum, type, FunctionType)


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MOST_PICKLED_BYTES:
            raise pickle.PicklingError("the value is too large")
        return super().write(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler of plain values: it refuses all others.

    own  names of the modules whose classes have plain objects
    """

    def __init__(self, out: io.BytesIO, own: frozenset[str]) -> None:
        super().__init__(out, protocol=5)
        self._own = own

    def reducer_override(self, value: Any) -> Any:
        """Return how to pickle a value, as the ``pickle`` module defines it. Raises ``PicklingError`` to refuse it."""
        kind = type(value)
        package = kind.__module__.partition(".")[0]
        if issubclass(kind, type | FunctionType):
            if value.__module__ == "__main__":  # by value, with whatever that takes
                return cloudpickle.loads, (cloudpickle.dumps(value),)
            if _is_found(value):
                return NotImplemented
        elif package == "torch" and kind.__qualname__ == "Tensor" and not value.is_shared():
            return _tensor, (value.numpy(),)
        elif (
            issubclass(kind, BuiltinFunctionType | Enum | np.generic | np.dtype | dict)
            or kind.__module__ in self._own
            or package in _OF_SETTINGS
        ) or (
            f"{package}.{kind.__qualname__}" in _PLAIN and getattr(value, "nbytes", 0) < MOST_PICKLED_BYTES
        ):
            return NotImplemented
        raise pickle.PicklingError(f"a {kind.__name__} isn't a plain value")


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


def kind_of(value: Any) -> str:
    """Return a text by which values can be compared that can't travel: their type, and how many items they have."""
    kind = type(value)  # not isinstance(), which asks the object's own __class__
    if issubclass(kind, type | FunctionType | BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    size = f" of {len(value):,} items" if issubclass(kind, _SIZED) else ""
    return f"a {kind.__module__}.{kind.__qualname__}{size}".replace("builtins.", "")


def fill(there: Any, value: Any) -> bool:
    """Make an object equal to another one in place, for all that refers to it. Return False if that isn't possible."""
    if there is value:  # unpickled: its class has one object
        return True
    kind: Any = type(value)
    attributes = getattr(value, "__dict__", None)
    guards = bool(attributes) and kind.__setattr__ is not object.__setattr__  # as a frozen dataclass does
    if type(there) is not kind or issubclass(kind, FIXED) or guards:
        return False
    if issubclass(kind, list | bytearray):
        there[:] = value
    elif issubclass(kind, dict | set):
        there.clear()
        there.update(value)
    elif not attributes:
        return False
    if attributes is not None:
        vars(there).clear()
        vars(there).update(attributes)
    return True


def _tensor(array: AnyArray) -> Any:
    return sys.modules["torch"].from_numpy(array)  # imported by the module that has one


def _is_found(value: Any) -> bool:
    """Return True if a class or function can be found by its module and name."""
    there: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        there = getattr(there, name, None)
    return there is value
