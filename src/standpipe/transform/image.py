"""The base classes of native image transforms. ``fuse`` knows these classes only, and not each transform."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from fractions import Fraction
from numbers import Real
from typing import Any, ClassVar, NoReturn, TypeGuard

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.spec import KINDS, DtypeName, Float32Array, Layout, set_plain
from standpipe.transform.kinds import MOVED, FieldKind
from standpipe.units import is_count

Size = tuple[int, int]  # (height, width) in pixels
MOST_CHANNELS = _native.MOST_CHANNELS
MOST_PX = _native.MOST_PX  # pixels along a side
COLOURS = (1, 3)  # channels of images that transforms of colours take: grey levels, or RGB
ABOVE_0 = sys.float_info.min
MASK_FILL = 255  # class number of places outside an image, which losses and metrics usually ignore


class ImageTransform:
    """The base class of native transforms, which read and write the field ``image``.

    draw_kind  number of the class in the keys of random numbers, different for each class and never changed; 0: the
               class isn't random. The rest of a key is the sample, and the transform's number in its class
    takes      numbers of channels that images may have
    in_pixels  names of the parameters in pixels, which are divided for a picture of another scale; None: the transform
               has no exact counterpart there
    moved      names of the kinds of pictures whose pixels the transform moves; ``moves`` of transforms made of others
               depends on those
    """

    __slots__ = ()
    draw_kind: ClassVar[int] = 0
    takes: ClassVar[tuple[int, ...]] = tuple(KINDS)
    in_pixels: ClassVar[tuple[str, ...] | None] = None
    moved: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        set_plain(self)

    def __dir__(self) -> list[str]:
        """Return the parameters; everything else is for the engine, and may change in any version."""
        return [name for each in type(self).__mro__ for name in getattr(each, "__slots__", ())]

    @property
    def moves(self) -> tuple[str, ...]:
        """The names of the kinds of pictures whose pixels the transform moves to other places."""
        return self.moved

    @property
    def is_random(self) -> bool:
        """True if equal images of two samples can get different results."""
        return self.draw_kind != 0

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""

    def refuse(self, name: str, must: str) -> NoReturn:
        """Raise ``PlanError`` for the parameter ``name``. ``must``: what it must be, in words."""
        raise PlanError(f"{type(self).__name__}({name}={getattr(self, name)!r}): {name} must be {must}")

    def check_integer(self, name: str, least: int, most: int) -> None:
        """Raise ``PlanError`` unless a parameter is an integer in [least, most]."""
        if not is_count(getattr(self, name), least, most):
            self.refuse(name, f"an integer from {least} to {most}")

    def check_range(self, name: str, least: float = ABOVE_0, most: float = math.inf) -> None:
        """Raise ``PlanError`` unless a parameter is two numbers in [least, most], the smaller one first."""
        pair = getattr(self, name)
        if not is_pair(pair) or not least <= pair[0] <= pair[1] <= most:
            begin = "above 0" if least == ABOVE_0 else f"from {least:g}"
            end = "" if most == math.inf else f" up to {most:g}"
            self.refuse(name, f"two numbers {begin}{end}, the smaller one first")

    def check_flag(self, name: str) -> None:
        """Raise ``PlanError`` unless a parameter is True or False."""
        if not isinstance(getattr(self, name), bool):
            self.refuse(name, "True or False")

    def check_choice(self, name: str, known: Sequence[str]) -> None:
        """Raise ``PlanError`` unless a parameter is one of the ``known`` names."""
        if getattr(self, name) not in known:
            self.refuse(name, f"one of {', '.join(map(repr, known))}")

    def size_after(self, size: Size | None) -> Size | None:
        """Return the images' (height, width) after this transform; None if it differs among images.

        size  (height, width) in pixels before the transform; None if it differs among images
        """
        return size

    def most_after(self, most: Size | None) -> Size | None:
        """Return the largest (height, width) of images after this transform; None if there is no limit.

        most  the largest before the transform
        """
        return self.size_after(most)

    def channels_after(self, channels: int) -> int:
        """Return the images' number of channels after this transform.

        channels  their number before the transform

        Raises ``PlanError`` if the transform doesn't take such images, or if a parameter has too many or few numbers.
        """
        kind = f"images of {channels} channel{'s' * (channels > 1)} ({KINDS[channels]})"
        if channels not in self.takes:
            taken = " or ".join(map(str, self.takes))
            raise PlanError(
                f"{self.describe()} takes images of {taken} channels, but these are {kind}: use "
                'decode(channels="RGB"), or leave it out'
            )
        for name in ("fill", "value", "mean", "std"):
            numbers = getattr(self, name, None)
            if isinstance(numbers, tuple | list) and len(numbers) not in (1, channels):
                such = tuple(numbers[:1]) * channels
                raise PlanError(
                    f"{self.describe()} gets {kind}: {name} must have {channels} number{'s' * (channels > 1)}, such as "
                    f"{name}={such}"
                )
        return channels

    def for_kind(self, kind: FieldKind) -> ImageTransform | None:
        """Return the transform for a kind of pictures that moves them as this one moves images; None: it moves none.

        It takes the nearest pixel, and has the kind's value where this one fills with ``fill``.
        """
        if kind.is_image:
            return self
        if kind.name not in self.moves:
            return None
        this: Any = self  # a dataclass, as each transform is
        names = {each.name for each in fields(this)}
        changed: dict[str, Any] = {"interpolation": "nearest"} if "interpolation" in names else {}
        if "fill" in names and (outside := kind.outside_of(self)) is not None:
            changed["fill"] = outside
        moved: ImageTransform = replace(this, **changed)
        return moved

    def scaled(self, scale: Fraction) -> ImageTransform:
        """Return the transform that does exactly the same in a picture whose sides are ``scale`` times as long.

        Raises ``PlanError`` if there is none.
        """
        if scale == 1:
            return self
        if self.in_pixels is None or getattr(self, "padding_mode", "constant") in ("edge", "reflect"):
            raise PlanError(
                f"{self.describe()} has no exact counterpart in a picture at scale {scale}: use RandomCrop, "
                "CenterCrop, flips, PadImage, Resize((height, width)) and colours, or leave out the field"
            )
        this: Any = self  # a dataclass, as each transform is
        scaled: ImageTransform = replace(this, **{name: self._scaled(name, scale) for name in self.in_pixels})
        return scaled

    def _scaled(self, name: str, scale: Fraction) -> Any:
        value = getattr(self, name)
        sides = [each * scale for each in (value if isinstance(value, tuple | list) else [value or 0])]
        if any(side.denominator > 1 for side in sides):
            self.refuse(name, f"a multiple of {scale.denominator} beside a picture at scale {scale}")
        return tuple(map(int, sides)) if isinstance(value, tuple | list) else value and int(sides[0])

    def describe(self) -> str:
        """Return the class's name with every parameter; ``mask_fill`` only if it isn't the default."""
        fill = getattr(self, "mask_fill", MASK_FILL)
        return repr(self) if fill == MASK_FILL else f"{repr(self)[:-1]}, mask_fill={fill!r})"


class AtRandom(ImageTransform):
    """A mixin for transforms that are applied with probability ``p``, a parameter of the transform."""

    __slots__ = ()
    p: float

    @property
    def is_random(self) -> bool:
        """True if ``p`` is neither 0 nor 1."""
        return 0 < self.p < 1

    def check(self) -> None:
        """Raise ``PlanError`` for a probability outside [0, 1]."""
        if not is_number(self.p) or not 0.0 <= self.p <= 1.0:
            self.refuse("p", "a probability in [0, 1]")


class GeometricStep(IntEnum):
    """The steps of a geometric pass, numbered in the order in which the pass does them."""

    ZOOM_OUT = 1
    CROP = 2
    RESIZE = 3
    WINDOW = 4
    FLIP = 5  # a pass may do several, before a resize or window, or behind everything


class GeometricTransform(ImageTransform):
    """The base class of transforms that move pixels: crops, resizes and flips.

    step        the kind of step that the transform adds to a native pass; one pass does several steps, row by row
    first_step  the kind of its first step, if it adds several
    """

    __slots__ = ()
    step: ClassVar[GeometricStep]
    first_step: ClassVar[GeometricStep | None] = None
    moved: ClassVar[tuple[str, ...]] = MOVED

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add this transform to a native pass. ``op`` is its part of the key of random numbers."""
        raise NotImplementedError


class PixelTransform(ImageTransform):
    """The base class of transforms that change pixel values and need the whole image.

    They don't move pixels unless the class has other ``moved``.
    """

    __slots__ = ()

    @property
    def geometric(self) -> tuple[GeometricTransform, ...]:
        """The transforms of a group of geometric ones, which has no ``stage``; () for all other transforms."""
        return ()

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform.

        op    the transform's part of the key of random numbers
        size  (height, width) of the images in pixels; None if it differs among images
        """
        raise NotImplementedError

    def known(self, size: Size | None) -> Size:
        """Return the images' (height, width). Raises ``PlanError`` if it differs among images."""
        if size is None:
            raise PlanError(
                f"{type(self).__name__} needs images of one size: put it after RandomResizedCrop(size), "
                "CenterCrop(size) or Resize((height, width))"
            )
        return size


@dataclass(frozen=True, slots=True)
class RowForm:
    """The form in which a kernel writes an image into its row of the slot. None: no transform has set the value.

    channels  the image's number of channels
    table     (channels, 256) float32: the number written for each channel's byte values 0 to 255
    dtype     the element type
    scale     True: without ``table``, floats are value ÷ 255; False: they are from 0 to 255
    layout    the order of axes
    """

    channels: int = 3
    table: Float32Array | None = None
    dtype: DtypeName | None = None
    scale: bool = False
    layout: Layout | None = None


class ValueTransform(ImageTransform):
    """The base class of transforms that set how the kernel writes the finished image into the slot.

    Geometric and pixel transforms must come before them.
    """

    __slots__ = ()
    in_pixels: ClassVar[tuple[str, ...] | None] = ()

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with the settings of this transform."""
        raise NotImplementedError


class RowTransform(ValueTransform):
    """The base class of transforms that change the finished image in the slot, after ``Normalize``."""

    __slots__ = ()

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form``: the transform changes values only after they are written."""
        return form

    def erasing(self, op: int, dtype: np.dtype[np.generic]) -> _native.Erasing:
        """Return the native step.

        op     the transform's part of the key of random numbers
        dtype  element type of the finished image
        """
        raise NotImplementedError


def is_pair(value: object) -> TypeGuard[Sequence[float]]:
    """Return True for a tuple or list of two finite numbers."""
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(is_number, value))


def is_number(value: object) -> bool:
    """Return True if ``value`` is a finite real number, Python's or NumPy's."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an int that is too large for a float
        return False
