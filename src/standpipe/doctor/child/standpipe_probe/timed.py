"""Transforms are timed by their names: elements of a Compose, and what a dataset applies by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

NAMES = ("transform", "target_transform", "joint_transform", "augment", "augmentation")
spent: dict[str, float] = {}  # seconds by name, of this process


class Timed:
    """A transform that is timed. To all who look it is the transform itself."""

    def __init__(self, inner: Any, name: str) -> None:
        self.__dict__["_timed"] = inner
        self.__dict__["_name"] = name

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Call the function, and add the time that it took."""
        begin = time.perf_counter()
        try:
            return self._timed(*values, **named)
        finally:
            spent[self._name] = spent.get(self._name, 0.0) + time.perf_counter() - begin

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the timed object, for isinstance(); type() differs."""
        return type(self.__dict__["_timed"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_timed"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_timed"], name, value)

    def __repr__(self) -> str:
        return repr(self.__dict__["_timed"])

    def __reduce__(self) -> tuple[Any, ...]:
        return Timed, (self.__dict__["_timed"], self.__dict__["_name"])


def time_transforms(dataset: Any) -> None:
    """Time the transforms of a dataset, and of those that it is made of."""
    for part in _datasets(dataset, 0):
        for name in NAMES:
            transform = getattr(part, "__dict__", {}).get(name)
            if transform is not None and not time_elements(transform):
                part.__dict__[name] = _timed(transform)


def time_elements(compose: Any) -> bool:
    """Time each element of something like a Compose; False if it isn't."""
    elements = getattr(compose, "transforms", None)
    if not isinstance(elements, list) or not all(map(callable, elements)):
        return False
    for place, element in enumerate(elements):
        if not time_elements(element):
            elements[place] = _timed(element)
    return True


def _timed(transform: Any) -> Any:
    if type(transform) is Timed or not callable(transform):
        return transform
    return Timed(transform, getattr(transform, "__name__", None) or type(transform).__name__)


def _datasets(dataset: Any, depth: int) -> Iterator[Any]:
    """Yield a dataset and those that it takes its samples from, as Subset and ConcatDataset do."""
    yield dataset
    if depth > 3:
        return
    inner = getattr(dataset, "__dict__", {})
    several = inner.get("datasets")
    for part in (inner.get("dataset"), *(several if isinstance(several, list | tuple) else ())):
        if part is not None:
            yield from _datasets(part, depth + 1)
