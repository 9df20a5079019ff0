"""Draw the masks of a batch's instances: a picture of their numbers for each image, or a picture for each instance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from standpipe import _native
from standpipe.batch.collate import Region, Shape
from standpipe.contracts import RaggedRows
from standpipe.contracts.source import places_in_ranges
from standpipe.errors import PlanError
from standpipe.spec import AnyArray, Int64Array, shape_text
from standpipe.units import is_count

MaskName = Literal["index", "dense"]
BoxOrigin = Literal["corners", "shape"]
MOST_RATIO = 256
MOST_INSTANCES = {255: np.uint8, 32_767: np.int16}  # of a row, in an index map of each dtype


@dataclass(frozen=True, slots=True)
class MaskForm:
    """The form of masks that ``batch`` asks for.

    masks       ``"index"`` for the numbers of a row's instances in one picture, ``"dense"`` for a picture of each
    mask_ratio  the sides of an image ÷ those of its masks
    boxes_from  ``"shape"`` for boxes around the moved shapes, ``"corners"`` for those around the boxes' moved corners
    """

    masks: MaskName = "index"
    mask_ratio: int = 1
    boxes_from: BoxOrigin = "corners"

    def __post_init__(self) -> None:
        for name, names in (("masks", get_args(MaskName)), ("boxes_from", get_args(BoxOrigin))):
            if (value := getattr(self, name)) not in names:
                raise PlanError(f"batch: {name} must be {' or '.join(map(repr, names))}, got {value!r:.80}")
        if not is_count(self.mask_ratio, 1, MOST_RATIO):
            raise PlanError(
                f"batch: mask_ratio must be an integer from 1 to {MOST_RATIO}, got {self.mask_ratio!r:.80}"
            )

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of ``batch`` that aren't the defaults."""
        return {name: value for name, value in asdict(self).items() if value != getattr(DEFAULT, name)}


DEFAULT = MaskForm()


@dataclass(frozen=True, slots=True)
class MaskFields:
    """The masks of a batch.

    form    their form
    dtype   that of a pixel
    axes    the axes of height and width in a row of an image
    sides   height and width of the largest masks by the image's name; None: images are in a list, and so are masks
    apart   bytes of a row's masks that are in lists, on average
    """

    form: MaskForm
    dtype: np.dtype[np.generic]
    axes: slice
    sides: Mapping[str, Shape | None]
    apart: int = 0

    @classmethod
    def planned(
        cls, form: MaskForm, most: int, axes: slice, images: Mapping[str, Shape | None]
    ) -> MaskFields:
        """Return the masks of rows with ``most`` instances at most.

        Raises ``PlanError`` if these are too many, or masks have no pixels.

        images  largest shape of a row of each image; None: images are in a list
        """
        dtype = (
            np.uint8
            if form.masks == "dense"
            else next((dtype for count, dtype in MOST_INSTANCES.items() if most <= count), None)
        )
        if dtype is None:
            raise PlanError(
                f"an image has up to {most:,} instances, and an index map has room for {max(MOST_INSTANCES):,}: give "
                "batch(instances=sp.Pad(length=…, cut=True))"
            )
        sides = {
            image: None if shape is None else tuple(side // form.mask_ratio for side in shape[axes])
            for image, shape in images.items()
        }
        if any(0 in each for each in sides.values() if each is not None):
            raise PlanError(
                f"batch: mask_ratio={form.mask_ratio} leaves masks without pixels: give a smaller one"
            )
        return cls(form, np.dtype(dtype), axes, sides)

    def region(self, image: str, rows: int, room: int, length: int | None) -> Region | None:
        """Return the part of a slot for the masks of an image; None for those in a list.

        rows, room, length  as in ``InstanceFields``
        """
        if (sides := self.sides[image]) is None:
            return None
        first: tuple[int, ...] = (rows,)
        if self.form.masks == "dense":
            first = (room,) if length is None else (rows, length)
        text = shape_text(f"≤{first[0]}", *first[1:], *(f"≤{side}" for side in sides))
        return Region(math.prod((*first, *sides)), self.dtype, text, waits=False)

    def sides_of(self, sizes: Int64Array, picture: Shape | None) -> Shape:
        """Return height and width of a batch's images.

        sizes    (rows, 2) those of the rows' images, without padding
        picture  shape of the images of a batch, with padding; None: they have one size
        """
        return tuple(sizes.max(axis=0).tolist()) if picture is None else picture[1:][self.axes]


@dataclass(frozen=True, slots=True)
class DrawnMasks:
    """The masks of the instances of rows.

    length  the number of each row's instances, with padding; None: rows are one after another
    shapes  the instances' shapes in pixels of the rows' images
    ends    end of each row's instances
    layers  twice the number of each instance's picture, and 1 more for those that are pasted on it, ascending; None
            if nothing is pasted
    """

    fields: MaskFields
    length: int | None
    shapes: RaggedRows
    ends: Int64Array
    layers: Int64Array | None = None

    def shape(self, sides: Shape) -> Shape:
        """Return the shape of the masks. ``sides``: height and width of the rows' images."""
        form = self.fields.form
        drawn = tuple(side // form.mask_ratio for side in sides)
        if form.masks == "index":
            return (len(self.ends), *drawn)
        return (
            (len(self.shapes.ends), *drawn) if self.length is None else (len(self.ends), self.length, *drawn)
        )

    def draw(self, out: AnyArray) -> None:
        """Draw the masks into ``out``, of the shape that ``shape`` returned."""
        form, counts, shapes = self.fields.form, np.diff(self.ends, prepend=0), self.shapes
        rows = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(rows)) - np.repeat(self.ends - counts, counts)
        layers = np.zeros_like(rows) if self.layers is None else self.layers
        if self.length is not None and (numbers >= self.length).any():
            kept = np.flatnonzero(numbers < self.length)
            shapes, rows, numbers, layers = shapes.take(kept), rows[kept], numbers[kept], layers[kept]
        pictures, values = rows, numbers + 1
        if form.masks == "dense":
            pictures = np.arange(len(rows)) if self.length is None else rows * self.length + numbers
            # What is pasted on an instance's picture follows it, and takes pixels away.
            stops = np.searchsorted(layers, layers | 1, "right")
            firsts = np.where(layers & 1, stops, np.searchsorted(layers, layers | 1))
            above, ends = places_in_ranges(firsts, stops)
            places = ends - (stops - firsts)
            shapes = shapes.take(np.insert(above, places, np.arange(len(rows))))
            pictures = np.repeat(pictures, stops - firsts + 1)
            values = np.insert(np.zeros(len(above), np.int64), places, 1)
            layers = 1 - values
        pixels: Any = out.reshape(-1, *out.shape[-2:])
        points = np.ascontiguousarray(shapes.values, np.float32)
        _native.draw_shapes(points, shapes.ends, pictures, values, layers & 1, form.mask_ratio, pixels)

    def by_row(self, sizes: Int64Array) -> list[AnyArray]:
        """Return the masks of each row. ``sizes``: (rows, 2) heights and widths of the rows' images."""
        found = []
        begins = np.concatenate([[0], self.ends[:-1]])
        for begin, end, size in zip(begins.tolist(), self.ends.tolist(), sizes.tolist(), strict=True):
            shapes = self.shapes.take(np.arange(begin, end))
            layers = None if self.layers is None else self.layers[begin:end]
            row = replace(self, shapes=shapes, ends=np.array([end - begin]), layers=layers)
            masks = np.empty(row.shape(tuple(size)), self.fields.dtype)
            row.draw(masks)
            is_flat = self.fields.form.masks == "dense" and self.length is None
            found.append(masks if is_flat else masks[0])
        return found
