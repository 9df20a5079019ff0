"""Collate fields whose samples differ in shape: pad the samples, or store them one after another."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np

from standpipe.errors import PlanError
from standpipe.spec import AnyArray, ArraySpec, Listed, UInt8Array, set_plain, shape_text
from standpipe.units import is_count

Shape = tuple[int, ...]
MOST_MULTIPLE = 1 << 40


class SlotOverflow(Exception):
    """Raised when the samples of a batch need more room than the slot has.

    row     the first row that doesn't fit
    reason  the text of the error
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row, self.reason = row, reason


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a slot for one field whose shape differs from batch to batch.

    most   the largest number of values in one batch
    dtype  dtype of a value
    text   the shape as text for ``explain()``
    waits  True if samples wait elsewhere until all of the batch exist; False: each is written to its place here
    """

    most: int
    dtype: np.dtype[np.generic]
    text: str
    waits: bool = True

    @property
    def nbytes(self) -> int:
        """The size of this part of the slot, in bytes."""
        return self.most * self.dtype.itemsize

    def array(self, memory: UInt8Array, shape: Shape) -> AnyArray:
        """Return the field in ``shape``, as an array over the first bytes of ``memory``, (nbytes,) uint8."""
        return memory[: math.prod(shape) * self.dtype.itemsize].view(self.dtype).reshape(shape)

    def __str__(self) -> str:
        return f"{self.text} {self.dtype.name}"


@dataclass(frozen=True, slots=True)
class Pad:
    """Batch samples that differ in shape by padding each one at its end.

    The batch also has ``<field>_length``, int64: the length of each sample, (rows,), or for several axes its
    shape, (rows, axes). Samples are arrays, or lists of numbers. A larger one than allowed is a
    ``TransformError``.

    Parameters
    ----------
    to_multiple_of : int, default 1
        Samples are padded to the largest of the batch, along each axis, rounded up to a multiple of this. Of several
        axes, those of which ``max_shape`` has less than that, such as channels, aren't rounded. Batches within a length
        budget are planned with the rounded lengths.
    length : int or tuple of int, optional
        Pad the samples of all batches to this length, or for several axes to this shape, instead.
    value : float, default 0
        The padding value.
    max_shape : int or tuple of int, optional
        Largest shape of a sample: slots have room for it. Not with ``length``. Default with ``batch(budget=…)``: room
        for ``budget`` along the first axis, over all rows, and other axes as in the first sample.
    cut : bool, default False
        For ``batch(instances=Pad(length=…))``: whether a sample with more instances loses the last ones. Otherwise it
        is a bad sample.

    Examples
    --------
    >>> source = sp.MapSource([{"ids": [1, 2, 3]}, {"ids": [4]}])
    >>> pipeline = sp.Pipeline(source).batch(2, collate={"ids": sp.Pad(max_shape=8)})
    >>> with pipeline.loader(executor="thread") as loader:
    ...     batch = loader.peek()
    >>> batch["ids"].tolist(), batch["ids_length"].tolist()
    ([[1, 2, 3], [4, 0, 0]], [3, 1])

    Images of differing size, channels first, as floats are:

    >>> pad = sp.Pad(to_multiple_of=32, max_shape=(3, 1344, 1344))
    >>> photos = sp.Pipeline(sp.ImageFolder("photos")).map(sp.Resize(40), sp.Normalize())
    >>> with photos.batch(4, collate={"image": pad}).loader() as loader:
    ...     loader.peek()["image"].shape[:3]
    (4, 3, 64)
    """

    to_multiple_of: int = 1
    length: int | Shape | None = None
    value: float = 0
    max_shape: int | Shape | None = None
    cut: bool = False

    def __post_init__(self) -> None:
        set_plain(self)
        if not is_count(self.to_multiple_of, 1, MOST_MULTIPLE):
            raise PlanError(
                f"Pad(to_multiple_of={self.to_multiple_of!r}): to_multiple_of must be an integer of at least 1"
            )
        if self.length is not None:
            object.__setattr__(self, "length", _shape("Pad(length=…)", self.length))
        if self.max_shape is not None:
            object.__setattr__(self, "max_shape", _shape("Pad(max_shape=…)", self.max_shape))
        others = [name for name in ("max_shape", "to_multiple_of") if getattr(self, name) not in (None, 1)]
        if self.length is not None and others:
            raise PlanError(
                f"Pad(length={self.length}, {others[0]}=…): length already fixes the size. Leave one of them out"
            )
        if not isinstance(self.value, int | float):
            raise PlanError(f"Pad(value={self.value!r}): value must be a number")

    def planned(self, name: str, sample: ArraySpec, rows: int, budget: int | None) -> Padded:
        """Return how a slot stores the padded field ``name``.

        sample  shape and dtype of one sample
        rows    number of rows of the largest batch
        budget  the most that rows × padded length may be; None without such a budget

        Raises ``PlanError`` if the options don't fit the field or don't determine its largest size.
        """
        if self.cut:
            raise PlanError(
                f"collate: Pad of {name!r}: cut=True is for batch(instances=Pad(…)). Leave it out"
            )
        axes = len(sample.shape)
        if axes == 0:
            raise PlanError(f"collate: {name!r} has single numbers, which need no padding. Leave Pad out")
        assert not isinstance(self.length, int)  # a tuple since it was made
        fixed, multiple = self.length, self.to_multiple_of
        most = fixed or self.max_shape
        if isinstance(most, tuple) and len(most) != axes:
            raise PlanError(f"collate: Pad of {name!r} has {len(most)} axes, {most}, but a sample has {axes}")
        if isinstance(most, tuple):
            room = rows * math.prod(_up(most, multiple, most))
        elif budget is not None:
            most = (budget, *sample.shape[1:])
            room = budget * math.prod(_up(most, multiple, most)[1:])
        else:
            raise PlanError(
                f"collate: Pad of {name!r} needs max_shape=, the largest shape that a sample may have, unless "
                "batch(budget=…) without packing=True limits rows × padded length"
            )
        if not np.can_cast(np.min_scalar_type(self.value), sample.dtype, "same_kind"):
            raise PlanError(
                f"collate: Pad of {name!r}: value={self.value} doesn't fit the field's dtype, {sample.dtype}"
            )
        return Padded(name, sample.dtype, most, fixed, multiple, room, rows, self.value)

    def describe(self) -> str:
        """One phrase for ``explain()`` and the recipe."""
        to = f"to_multiple_of={self.to_multiple_of}, length={self.length}"
        cut = f", cut={self.cut}" if self.cut else ""
        return f"Pad({to}, value={self.value}, max_shape={self.max_shape}{cut})"


@dataclass(frozen=True, slots=True)
class Ragged:
    """Batch samples that differ in length one after another, without padding.

    The field is (values, …), with other axes as in the first sample. ``<field>_offsets``, (rows + 1,) int64,
    has where each
    row begins: row i is ``batch[field][offsets[i]:offsets[i + 1]]``. Samples are arrays, or lists of numbers.
    A batch with
    more values than allowed is a ``TransformError``.

    Parameters
    ----------
    max_values : int, optional
        Most values of a batch, along the first axis: slots have room for them. Default with ``batch(budget=…)``:
        ``budget``.

    Examples
    --------
    >>> source = sp.MapSource([{"ids": [1, 2, 3]}, {"ids": [4]}])
    >>> pipeline = sp.Pipeline(source).batch(2, collate={"ids": sp.Ragged(max_values=16)})
    >>> with pipeline.loader(executor="thread") as loader:
    ...     batch = loader.peek()
    >>> batch["ids"].tolist(), batch["ids_offsets"].tolist()
    ([1, 2, 3, 4], [0, 3, 4])
    """

    max_values: int | None = None

    def __post_init__(self) -> None:
        if self.max_values is not None:
            object.__setattr__(self, "max_values", _shape("Ragged(max_values=…)", self.max_values)[0])

    def planned(self, name: str, sample: ArraySpec, rows: int, budget: int | None) -> JoinedField:
        """Return how a slot stores the joined field ``name``.

        The arguments are those of ``Pad.planned``, but ``budget`` is the most values of all rows together.
        """
        most = budget if self.max_values is None else self.max_values
        if not sample.shape:
            raise PlanError(
                f"collate: {name!r} has single numbers, which all have one shape. Leave Ragged out"
            )
        if most is None:
            raise PlanError(
                f"collate: Ragged of {name!r} needs max_values=, the largest number of values in a batch"
            )
        return JoinedField(name, sample.dtype, sample.shape[1:], most, rows)

    def describe(self) -> str:
        """One phrase for ``explain()`` and the recipe."""
        return f"Ragged(max_values={self.max_values})"


@dataclass(frozen=True, slots=True)
class Padded:
    """A field with ``Pad`` in a plan: its size in a slot, and how samples are padded into the slot.

    name      name of the field
    dtype     dtype of the samples
    most      the largest shape of a sample
    fixed     the shape to which all samples are padded; None: the batch's largest, rounded up to ``multiple``
    multiple  padded sizes are a multiple of this along each axis, unless ``fixed`` is given
    room      the largest number of values in a batch, padding included
    rows      number of rows of the largest batch
    value     the padding value
    native    True if a native kernel writes each sample to its place with the padding, as sizes are known before
    """

    name: str
    dtype: np.dtype[np.generic]
    most: Shape
    fixed: Shape | None
    multiple: int
    room: int
    rows: int
    value: float
    native: bool = False

    @property
    def largest(self) -> Shape:
        """The largest shape of a padded sample."""
        return self.fixed or _up(self.most, self.multiple, self.most)

    @property
    def regions(self) -> Mapping[str, Region]:
        """The parts of a slot by name: the padded samples, and the length or shape of each sample."""
        sides = self.fixed or [f"≤{side}" for side in self.largest]
        axes = () if len(self.most) == 1 else (len(self.most),)
        return {
            self.name: Region(self.room, self.dtype, shape_text(f"≤{self.rows}", *sides), not self.native),
            f"{self.name}_length": Region(
                self.rows * len(self.most),
                np.dtype(np.int64),
                shape_text(f"≤{self.rows}", *axes),
                not self.native,
            ),
        }

    def empty(self) -> AnyArray:
        """A sample without a value."""
        return np.empty((0,) * len(self.most), self.dtype)

    def misfit(self, shape: Shape, dtype: np.dtype[np.generic]) -> str | None:
        """Return why a sample of this shape and dtype can't be padded, as text; None if it fits.

        A sample doesn't fit if its number of axes or dtype is wrong, or if it is larger than ``most``.
        """
        fits = len(shape) == len(self.most) and all(a <= b for a, b in zip(shape, self.most, strict=True))
        if fits and _safe(dtype, self.dtype):
            return None
        most = ArraySpec(self.most, self.dtype)
        return f"{self.name!r} is {ArraySpec(shape, dtype)}; there is room for {most} at most"

    def shapes(self, samples: Sequence[Shape]) -> Mapping[str, Shape]:
        """Return the shapes of the padded field and of its lengths, by name, for samples of these shapes.

        Raises ``SlotOverflow`` if the padded batch has more than ``room`` values.
        """
        largest = np.array(samples).max(axis=0)
        shape = self.fixed or _up(largest.tolist(), self.multiple, self.most)
        if len(samples) * math.prod(shape) > self.room:
            row = int(np.argmax([sample[0] for sample in samples]))
            raise SlotOverflow(
                row,
                f"{self.name!r} is {samples[row][0]} long in a batch of {len(samples)} rows, which has room for "
                f"{self.room} values: give Pad(max_shape=…) where the budget is of another length",
            )
        axes = () if len(self.most) == 1 else (len(self.most),)
        return {self.name: (len(samples), *shape), f"{self.name}_length": (len(samples), *axes)}

    def fill(self, samples: Sequence[AnyArray], fields: Mapping[str, AnyArray]) -> None:
        """Write the samples, the padding behind each one, and their lengths into ``fields``."""
        rows, lengths = fields[self.name], fields[f"{self.name}_length"]
        lengths[...] = np.array([sample.shape for sample in samples]).reshape(lengths.shape)
        for row, sample in zip(rows, samples, strict=True):
            row[tuple(map(slice, sample.shape))] = sample
            for axis, side in enumerate(sample.shape):  # what lies behind it along each axis
                if side < row.shape[axis]:
                    row[(*map(slice, sample.shape[:axis]), slice(side, None))] = self.value


@dataclass(frozen=True, slots=True)
class JoinedField:
    """A field with ``Ragged`` in a plan: its size in a slot, and how samples are joined in the slot.

    name   name of the field
    dtype  dtype of the samples
    sides  shape of a sample without its first axis
    most   the largest length of a batch along the first axis, all rows together
    rows   number of rows of the largest batch
    """

    name: str
    dtype: np.dtype[np.generic]
    sides: Shape
    most: int
    rows: int

    @property
    def regions(self) -> Mapping[str, Region]:
        """The parts of a slot by name: the values, and the offsets at which the rows begin."""
        return {
            self.name: Region(
                self.most * math.prod(self.sides), self.dtype, shape_text(f"≤{self.most}", *self.sides)
            ),
            f"{self.name}_offsets": Region(
                self.rows + 1, np.dtype(np.int64), shape_text(f"≤{self.rows + 1}")
            ),
        }

    def empty(self) -> AnyArray:
        """A sample without a value."""
        return np.empty((0, *self.sides), self.dtype)

    def misfit(self, shape: Shape, dtype: np.dtype[np.generic]) -> str | None:
        """Return why a sample of this shape and dtype can't be joined, as text; None if it fits.

        A sample doesn't fit if its dtype or its shape after the first axis is wrong.
        """
        if shape and shape[1:] == self.sides and _safe(dtype, self.dtype):
            return None
        wanted = shape_text("any", *self.sides)
        return (
            f"{self.name!r} is {ArraySpec(shape, dtype)}, and {wanted} {self.dtype.name} in the first sample"
        )

    def shapes(self, samples: Sequence[Shape]) -> Mapping[str, Shape]:
        """Return the shapes of the joined field and of its offsets, by name, for samples of these shapes.

        Raises ``SlotOverflow`` if the samples together are longer than ``most``.
        """
        ends = np.cumsum([sample[0] for sample in samples])
        if ends[-1] > self.most:
            row = int(np.searchsorted(ends, self.most, "right"))
            raise SlotOverflow(
                row,
                f"{self.name!r} is {samples[row][0]} long, and with the rows before it {ends[row]}; a batch has room "
                f"for {self.most}: see Ragged(max_values=…)",
            )
        return {self.name: (int(ends[-1]), *self.sides), f"{self.name}_offsets": (len(samples) + 1,)}

    def fill(self, samples: Sequence[AnyArray], fields: Mapping[str, AnyArray]) -> None:
        """Write the samples one after another, and the offset of each row, into ``fields``."""
        values, offsets = fields[self.name], fields[f"{self.name}_offsets"]
        offsets[0] = 0
        np.cumsum([len(sample) for sample in samples], out=offsets[1:])
        np.concatenate(samples, out=values)


Collation = Padded | JoinedField
Collate = Mapping[str, Pad | Ragged | type[list[Any]]]
Contents = Mapping[str, ArraySpec | Listed | Collation | None]


def stored_layout(
    samples: Mapping[str, ArraySpec | Listed | None],
    collate: Collate,
    rows: int,
    budget: int | None,
    *,
    packing: bool,
    native: Collection[str] = (),
) -> Contents:
    """Return how a batch stores each field, by name; None if that isn't known before a run.

    samples  shape and dtype of each field of a sample; None: not known before a run
    collate  ``Pad``, ``Ragged`` or list for the fields that need it
    rows     number of rows of the largest batch
    budget   the length budget, along the first axis; None without a budget
    packing  True if the budget limits the sum of lengths; False if it limits rows × padded length
    native   names of the fields that a native kernel pads

    Raises ``PlanError`` for a field that ``collate`` doesn't fit.
    """
    contents: dict[str, ArraySpec | Listed | Collation | None] = {}
    for name, spec in samples.items():
        how = collate.get(name)
        contents[name] = spec
        if isinstance(how, Pad | Ragged) and isinstance(spec, ArraySpec):
            limit = None if packing and isinstance(how, Pad) else budget
            planned = how.planned(name, spec, rows, limit)
            contents[name] = (
                replace(planned, native=name in native) if isinstance(planned, Padded) else planned
            )
        elif isinstance(how, Pad | Ragged) and spec is not None:
            raise PlanError(f"collate: {how.describe()} needs arrays, but {name!r} is a {spec}")
        elif how is list and isinstance(spec, ArraySpec):
            contents[name] = Listed("ndarray", spec.row_bytes)
    for name, content in contents.items():
        added = set(content.regions) - {name} if isinstance(content, Collation) else set()
        if taken := added & contents.keys():
            raise PlanError(
                f"a sample has a field {taken.pop()!r}, and collating {name!r} adds a field of this name. "
                "Rename the sample's field"
            )
    return contents


def checked_collate(collate: object) -> Collate:
    """Return ``collate`` as a dict. Raises ``PlanError`` unless it maps names to ``Pad``, ``Ragged`` or list."""
    if not isinstance(collate, Mapping):
        how = ". Give a function as collate_fn=" if callable(collate) else ""
        raise PlanError(f"batch: collate must be a dict such as {{'tokens': Pad()}}, got {collate!r}{how}")
    for name, how in collate.items():
        if how is not list and not isinstance(how, Pad | Ragged):
            raise PlanError(f"batch: collate for {name!r} must be Pad(…), Ragged(…) or list, got {how!r}")
    return dict(collate)


def padding_multiple(collate: Collate) -> int:
    """Return the least common multiple of ``to_multiple_of`` of all ``Pad`` in ``collate``; 1 without one."""
    return math.lcm(*(how.to_multiple_of for how in collate.values() if isinstance(how, Pad)))


def budget_notes(collate: Collate, column: str, *, packing: bool) -> list[str]:
    """Return the lines for ``explain()`` on which fields of a batch a length budget limits.

    column   name of the column of lengths
    packing  as for ``stored_layout``
    """
    names: dict[str, list[str]] = {}
    for name, how in collate.items():
        if isinstance(how, Pad | Ragged):
            own = how.max_shape if isinstance(how, Pad) else how.max_values
            limited = "within the budget" if own is None else f"within the budget if {column!r} is its length"
            never = isinstance(how, Pad) and (packing or how.length is not None)
            names.setdefault("not within the budget" if never else limited, []).append(name)
    return [f"{limited}: {', '.join(fields)}" for limited, fields in names.items()]


def _safe(dtype: np.dtype[np.generic], into: np.dtype[np.generic]) -> bool:
    return dtype == into or np.can_cast(dtype, into, "safe")


def _up(sides: Sequence[int], multiple: int, most: Shape) -> Shape:
    """Round sides up to a multiple; of several axes only those along which a sample may have so much."""
    return tuple(
        side if len(most) > 1 and limit < multiple else -(-side // multiple) * multiple
        for side, limit in zip(sides, most, strict=True)
    )


def _shape(name: str, value: object) -> Shape:
    """Return a positive integer, or several, as a tuple. Raises ``PlanError`` with ``name`` for other values."""
    sides = value if isinstance(value, tuple | list) else (value,)
    whole = all(isinstance(side, SupportsIndex) and not isinstance(side, bool) for side in sides)
    if not sides or not whole or min(map(operator.index, sides)) < 1:
        raise PlanError(f"{name} must be an integer from 1 on, or a tuple of them, got {value!r}")
    return tuple(map(operator.index, sides))
