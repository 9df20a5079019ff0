"""Parameters of transforms that change by epoch or by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.spec import plain
from standpipe.transform.image import MOST_PX
from standpipe.transform.python.function import Function
from standpipe.units import is_count

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
        for value in values.values():
            if isinstance(value, PerStep):
                value.check()
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


@dataclass(frozen=True, slots=True)
class PerStep:
    """A size of a native transform that is drawn for each step: multi-scale training.

    All rows of a step have one size, on all ranks. Each size is equally likely, and depends on the seed, the epoch
    and the first position of the step. So a resumed run continues with the same sizes. With another batch size, or
    another world size, steps begin at other positions, and get other sizes. ``plan()`` sizes the slots for the
    largest images.

    Several transforms of a pipeline may have the same sizes, and then have the same one in each step. A ``PerStep``
    may be a value of a ``Schedule``.

    Parameters
    ----------
    sizes : sequence of int or of (height, width)
        The sizes in pixels, such as ``range(320, 961, 32)``: the YOLO family's for 640.
    multiple_of : int, default 32
        The number by which each side can be divided: the largest stride of the network.

    Raises
    ------
    PlanError
        By ``plan()``: if there is no size, one isn't a multiple of ``multiple_of``, or transforms have different
        sizes. Also in the places where ``Schedule`` raises one.

    Examples
    --------
    >>> crop = sp.RandomResizedCrop(size=sp.PerStep([32, 64]))
    >>> photos = sp.Pipeline(sp.ImageFolder("photos")).shuffle(seed=7).map(crop).batch(4)
    >>> with photos.loader() as loader:
    ...     print([batch["image"].shape[1] for batch in loader])
    [64, 64, 32, 32, 64, 64]
    """

    sizes: Sequence[int] | Sequence[tuple[int, int]]
    multiple_of: int = 32

    def __post_init__(self) -> None:
        sizes = list(self.sizes) if isinstance(self.sizes, range) else self.sizes
        object.__setattr__(self, "sizes", plain(sizes))

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        if not is_count(self.multiple_of, 1, MOST_PX):
            raise PlanError(f"{self!r}: multiple_of must be an integer from 1 to {MOST_PX} pixels")
        sizes = self.sizes if isinstance(self.sizes, tuple) else ()
        sides = [side for size in sizes for side in (size if isinstance(size, tuple) else (size,))]
        if not sides or not all(is_count(side, 1, MOST_PX) for side in sides):
            raise PlanError(
                f"{self!r}: sizes must be a list of integers or of (height, width), each from 1 to {MOST_PX} pixels, "
                "such as [480, 512]"
            )
        for side in sides:
            below = side // self.multiple_of * self.multiple_of
            if side != below:
                near = [str(each) for each in (below, below + self.multiple_of) if each]
                raise PlanError(
                    f"{self!r}: {side} isn't a multiple of {self.multiple_of}. Use {' or '.join(near)}, or another "
                    "multiple_of"
                )


def _is_epoch(value: object) -> bool:
    return type(value) is int and value >= 0


def _kind(value: object) -> str:
    """Return the name of a value's type, for PerStep that of a size; integers and floats count as one."""
    if isinstance(value, PerStep):
        return _kind(value.sizes[0])
    return "number" if type(value) in (int, float) else type(value).__name__


def is_scheduled(transform: object) -> bool:
    """Return True if a parameter of a transform changes by epoch or by step."""
    return any(True for _ in _changing(transform))


def segments_of(transforms: Iterable[Transform]) -> list[tuple[int, tuple[Transform, ...]]]:
    """Return the transforms with the parameters that they may have, each with its first epoch, in order.

    Several have one first epoch if a size is drawn for each step from then on. Raises ``PlanError`` for an invalid
    ``Schedule`` or ``PerStep``, and for several lists of sizes.
    """
    transforms = tuple(transforms)
    found = [each for transform in transforms for each in _changing(transform)]
    for each in found:
        each.check()
    starts = {int(epoch) for each in found if isinstance(each, Schedule) for epoch in each.values}
    made = []
    for epoch in sorted({0, *starts}):
        now = [each.at(epoch) if isinstance(each, Schedule) else each for each in found]
        lists = list(dict.fromkeys(each.sizes for each in now if isinstance(each, PerStep)))
        if len(lists) > 1:
            raise PlanError(
                f"a step has one size, but transforms have PerStep of {lists[0]} and of {lists[1]}. Give all of them "
                "the same sizes"
            )
        sizes = lists[0] if lists else (None,)
        made += [(epoch, tuple(_at(transform, epoch, size) for transform in transforms)) for size in sizes]
    return made


def _changing(value: object) -> Iterator[Schedule[Any] | PerStep]:
    """Yield what changes among a transform's parameters, and in transforms that it contains."""
    if isinstance(value, Schedule | PerStep):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _changing(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _changing(each)
    elif _has_parameters(value):
        for name in _parameters(value):
            yield from _changing(getattr(value, name))


def _at(value: Any, epoch: int, size: Any) -> Any:
    """Return a transform, or a parameter of one, with the values that it has in an epoch.

    size  the value of each ``PerStep``
    """
    if isinstance(value, PerStep):
        return size
    if isinstance(value, Schedule):
        return _at(value.at(epoch), epoch, size)
    if not is_scheduled(value):
        return value
    if isinstance(value, Mapping):
        return {name: _at(each, epoch, size) for name, each in value.items()}
    if isinstance(value, list | tuple):
        each_at: Sequence[Any] = [_at(each, epoch, size) for each in value]
        return tuple(each_at) if isinstance(value, tuple) else each_at
    return replace(value, **{name: _at(getattr(value, name), epoch, size) for name in _parameters(value)})


def _has_parameters(value: object) -> bool:
    """Return True for native transforms, and not for Python functions, even if these are dataclasses."""
    return is_dataclass(value) and not isinstance(value, Function | type)


def _parameters(value: Any) -> list[str]:
    return [each.name for each in fields(value) if each.init]
