"""Check values that transforms made: floats are finite, and labels in range."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe.engine.workers import Failure
from standpipe.spec import AnyArray, Int64Array, Labels
from standpipe.transform.python.values import as_array, is_tensor

AT_ONCE_BYTES = 1 << 20  # of rows that are looked at together
MOST_DEPTH = 64  # of what a value holds
_PLAIN = frozenset((bool, int, str, bytes, type(None)))
FLOATS = "fc"


@dataclass(frozen=True, slots=True)
class InvalidValue:
    """A value that fails a check.

    value  the value as text
    place  its place in the field, as an index expression: ``"['boxes'][2, 0]"``; empty: the field is the value
    """

    value: str
    place: str = ""

    def __str__(self) -> str:
        return f"is {self.value}" + (f" at {self.place}" if self.place else "")


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks of values.

    finite  fields whose floats must be finite; empty: all fields; None: no check
    labels  fields with class numbers, and their ranges
    """

    finite: tuple[str, ...] | None = None
    labels: tuple[Labels, ...] = ()

    @property
    def any(self) -> bool:
        """True if at least one check is set."""
        return self.finite is not None or bool(self.labels)

    def problem(self, sample: Mapping[str, Any], but: Collection[str] = ()) -> str | None:
        """Return text about the first wrong value in a sample; None if all values pass.

        but  fields that aren't checked, because their floats are known to be finite
        """
        for name in () if self.finite is None else self.finite or sample:
            if name not in but and name in sample and (found := _not_finite(sample[name])):
                return f"{name!r} {found}"
        for label in self.labels:
            if problem := _no_label(sample, label):
                return problem
        return None

    def failures(self, views: Mapping[str, AnyArray], rows: Int64Array) -> Iterator[Failure]:
        """Yield a failure for each of ``rows`` (n,) with a wrong value.

        views  (rows, …) by field
        """
        for name, view in views.items():
            if view.dtype.kind not in FLOATS or self.finite is None or name not in (self.finite or views):
                continue
            step = max(AT_ONCE_BYTES // max(view[0].nbytes, 1), 1)
            for some in (rows[at : at + step] for at in range(0, len(rows), step)):
                right = np.isfinite(view[some]).reshape(len(some), -1).all(axis=1)
                for row in some[~right].tolist():
                    yield Failure(row, "batch", f"{name!r} {_not_finite(view[row])}")


def _no_label(sample: Mapping[str, Any], label: Labels) -> str | None:
    name = label.field
    if name not in sample:
        return f"there is no field {name!r} with labels; there are {', '.join(sample)}"
    array = as_array(sample[name])
    if array is None or array.dtype.kind not in "biu":
        kind = type(sample[name]).__name__ if array is None else array.dtype.name
        return f"{name!r} is {kind}, and labels are integers"
    found = _first(array, label.wrong(array))
    return None if found is None else f"{name!r} {found}; {label.describe()}"


def _not_finite(value: Any, depth: int = 0) -> InvalidValue | None:
    """Return the first number in a value, or in values inside it, that isn't finite; None if all are."""
    if type(value) is float:
        return None if math.isfinite(value) else InvalidValue(str(value))
    if type(value) in _PLAIN:
        return None
    if depth > MOST_DEPTH:
        return InvalidValue(f"nested more than {MOST_DEPTH} deep, and check_finite() looks no further")
    if isinstance(value, Mapping):
        return _in_parts(value.items(), depth)
    if isinstance(value, list | tuple):
        return None if set(map(type, value)) <= _PLAIN else _in_parts(enumerate(value), depth)
    array = as_array(value)
    if array is not None:
        return _first(array, ~np.isfinite(array)) if array.dtype.kind in FLOATS else None
    if isinstance(value, np.ndarray | np.generic):
        return _in_odd_array(np.asarray(value), depth)
    if is_tensor(value):  # sparse, or of a dtype that NumPy lacks
        return _not_finite(value.detach().to_dense().float().cpu(), depth + 1)
    return None


def _in_parts(parts: Iterable[tuple[object, Any]], depth: int) -> InvalidValue | None:
    for key, part in parts:
        if found := _not_finite(part, depth + 1):
            return InvalidValue(found.value, f"[{key!r}]{found.place}")
    return None


def _in_odd_array(array: AnyArray, depth: int) -> InvalidValue | None:
    """Look for a non-finite value in an array of several fields, of Python objects, or of a foreign dtype
    (bfloat16).
    """
    if array.dtype.names is not None:
        fields: Any = array
        return _in_parts(((name, fields[name]) for name in array.dtype.names), depth)
    if array.dtype.kind == "O":
        return _not_finite(array.tolist(), depth + 1)
    try:
        return _first(array, ~np.isfinite(array))
    except TypeError:  # no numbers
        return None


def _first(array: AnyArray, wrong: AnyArray) -> InvalidValue | None:
    """Return the first value of ``array`` for which ``wrong``, (same shape) bool, is True; None without one."""
    if not wrong.any():
        return None
    place = np.unravel_index(int(wrong.argmax()), array.shape)
    return InvalidValue(str(array[place]), str([int(each) for each in place]) if place else "")
