"""The kinds of native image transforms. ``fuse`` knows these kinds and no class that is one of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from numbers import Real
from typing import ClassVar, Literal

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.spec import Float32Array, Layout

Size = tuple[int, int]  # (height, width) in pixels
DtypeName = Literal["uint8", "float16", "float32"]


class ImageTransform:
    """A transform that reads and writes the image; described by its class and every parameter.

    draw_kind  part of the key of a class's random numbers, besides the sample and the transform's place among
    those of its
               class; 0: it isn't random. A class keeps its number for good, and no two share one
    """

    __slots__ = ()
    draw_kind: ClassVar[int] = 0

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the names of the fields it reads."""
        return ("image",)

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the names of the fields it writes."""
        return ("image",)

    @property
    def moves(self) -> tuple[str, ...]:
        """Return the names of the fields whose content it moves to other places of the image."""
        return ()

    @property
    def is_random(self) -> bool:
        """Return True when two samples can get different results of equal images."""
        return self.draw_kind != 0

    def check(self) -> None:
        """Raise ``PlanError`` for parameters that can't work."""

    def size_after(self, size: Size | None) -> Size | None:
        """Return the image's size after this transform of an image of ``size``; None where images differ in size."""
        return size

    def describe(self) -> str:
        """Return the class and every parameter."""
        return repr(self)


class AtRandom(ImageTransform):
    """Takes place with probability ``p``, which each such transform has as a parameter."""

    __slots__ = ()
    p: float

    @property
    def is_random(self) -> bool:
        """Return False where ``p`` leaves nothing to chance."""
        return 0 < self.p < 1

    def check(self) -> None:
        """Raise ``PlanError`` for a probability outside [0, 1]."""
        if not is_number(self.p) or not 0.0 <= self.p <= 1.0:
            raise PlanError(f"{type(self).__name__}(p={self.p!r}): a probability is in [0, 1]")


class Step(IntEnum):
    """The steps of one pass that moves pixels, in the order in which a pass does them."""

    RESIZE = 1
    WINDOW = 2
    FLIP = 3  # any number of them


class GeometricTransform(ImageTransform):
    """Moves pixels, in a pass that takes rows one by one.

    step  the step of a pass that it is
    """

    __slots__ = ()
    step: ClassVar[Step]

    @property
    def moves(self) -> tuple[str, ...]:
        """Return the image's name: native transforms move no other field yet."""
        return ("image",)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add this step to a native pass; ``op`` is the key of its random numbers."""
        raise NotImplementedError


class PixelTransform(ImageTransform):
    """Changes the pixels of the whole image, which stay in their places unless ``moves`` says otherwise."""

    __slots__ = ()

    def stage(self, op: int) -> _native.PixelStage:
        """Return the native stage; ``op`` is the key of its random numbers."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RowForm:
    """How an image is written into its row of the slot; None for what no transform has set.

    table   (3, 256) float32: the number that each channel's byte becomes
    dtype   the element type
    scale   True if floats without ``table`` are value ÷ 255
    layout  the order of axes
    """

    table: Float32Array | None = None
    dtype: DtypeName | None = None
    scale: bool = False
    layout: Layout | None = None


class ValueTransform(ImageTransform):
    """Says how the finished image is written into the slot, so it stands behind the other kinds."""

    __slots__ = ()

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with what this transform says of it."""
        raise NotImplementedError


def is_number(value: object) -> bool:
    """Return True if ``value`` is a finite real number, Python's or NumPy's."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an int beyond every float
        return False
