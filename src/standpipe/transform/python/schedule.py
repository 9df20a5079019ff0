"""Parameters of transforms that change by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.transform.python.function import Function

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, repr=False)
class Schedule(Generic[Value]):
    """A parameter of a native transform that changes by epoch, such as a size that grows.

    ``plan()`` sizes the slots for the largest images. The shape of batches changes with an epoch's first
    batch. The schedule is part of the recipe, so a resumed run continues in the same place. Random numbers
    don't depend on the schedule.

    Parameters
    ----------
    values : mapping of int to value
        The value from each epoch on, counted from 0, until the next epoch of the mapping. Epoch 0 must be
        there. All values have one type, which the parameter takes.

    Raises
    ------
    PlanError
        By ``plan()``: if there is no value for epoch 0, an epoch isn't an integer from 0 on, or values differ
        in type. Also for a schedule of ``ToDtype`` or ``ToLayout``, for one before ``cache()``, and for one
        that a device with ``static_buffers=True`` can't follow.

    Examples
    --------
    >>> growing = sp.RandomResizedCrop(size=sp.Schedule({0: 16, 1: 32}))
    >>> photos = sp.Pipeline(sp.ImageFolder("photos")).map(growing).batch(8)
    >>> with photos.loader() as loader:
    ...     for epoch in range(2):
    ...         print({batch["image"].shape for batch in loader})
    {(8, 16, 16, 3)}
    {(8, 32, 32, 3)}
    """

    values: Mapping[int, Value] = field(hash=False)

    def __repr__(self) -> str:
        """Return the call that makes the schedule, with its epochs in order."""
        given: object = self.values
        if not isinstance(given, Mapping):
            return f"Schedule({given!r})"
        found = sorted(given.items()) if all(map(_is_epoch, given)) else given.items()
        return f"Schedule({{{', '.join(f'{epoch!r}: {value!r}' for epoch, value in found)}}})"

    def check(self) -> None:
        """Raise ``PlanError`` for a mapping that isn't a schedule."""
        values: object = self.values
        if not isinstance(values, Mapping):
            raise PlanError(
                f"{self!r}: give it a mapping of epochs to values, such as Schedule({{0: 160, 30: 224}})"
            )
        for epoch in values:
            if not _is_epoch(epoch):
                raise PlanError(f"{self!r}: epochs must be integers from 0 on, got {epoch!r}")
        if 0 not in values:
            raise PlanError(f"{self!r} has no value for epoch 0. Add 0: value")
        kinds = {_kind(value) for value in values.values()}
        if len(kinds) > 1:
            raise PlanError(
                f"{self!r}: all values must have one type, got {' and '.join(sorted(kinds))}. Write all of "
                "them in one form"
            )

    def at(self, epoch: int) -> Value:
        """Return the value in an epoch, counted from 0.

        Examples
        --------
        >>> sp.Schedule({0: 160, 30: 192, 60: 224}).at(45)
        192
        """
        return self.values[max(start for start in self.values if start <= epoch)]


def _is_epoch(value: object) -> bool:
    return type(value) is int and value >= 0


def _kind(value: object) -> str:
    """Return the name of a value's type; integers and floats count as one."""
    return "number" if type(value) in (int, float) else type(value).__name__


def is_scheduled(transform: object) -> bool:
    """Return True if a parameter of a transform changes by epoch."""
    return any(True for _ in _schedules(transform))


def first_epochs(transforms: Iterable[Transform]) -> tuple[int, ...]:
    """Return the epochs, in order, from which on parameters have other values; empty without a schedule.

    Raises ``PlanError`` for an invalid schedule.
    """
    found = [schedule for transform in transforms for schedule in _schedules(transform)]
    for schedule in found:
        schedule.check()
    return tuple(sorted({int(epoch) for schedule in found for epoch in schedule.values}))


def at_epoch(transforms: Iterable[Transform], epoch: int) -> tuple[Transform, ...]:
    """Return the transforms with the parameters that they have in an epoch."""
    return tuple(_at(transform, epoch) for transform in transforms)


def _schedules(value: object) -> Iterator[Schedule[Any]]:
    """Yield the schedules among a transform's parameters, and in transforms that it contains."""
    if isinstance(value, Schedule):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _schedules(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _schedules(each)
    elif _has_parameters(value):
        for name in _parameters(value):
            yield from _schedules(getattr(value, name))


def _at(value: Any, epoch: int) -> Any:
    """Return a transform, or a parameter of one, with the values that it has in an epoch."""
    if isinstance(value, Schedule):
        return value.at(epoch)
    if not is_scheduled(value):
        return value
    if isinstance(value, Mapping):
        return {name: _at(each, epoch) for name, each in value.items()}
    if isinstance(value, list | tuple):
        each_at: Sequence[Any] = [_at(each, epoch) for each in value]
        return tuple(each_at) if isinstance(value, tuple) else each_at
    return replace(value, **{name: _at(getattr(value, name), epoch) for name in _parameters(value)})


def _has_parameters(value: object) -> bool:
    """Return True for native transforms, and not for Python functions, even if these are dataclasses."""
    return is_dataclass(value) and not isinstance(value, Function | type)


def _parameters(value: Any) -> list[str]:
    return [each.name for each in fields(value) if each.init]
