"""The base classes of native image transforms, by which ``fuse`` treats each transform."""

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
    """A transform that reads and writes the field ``image``.

    draw_kind  part of the key of its random numbers, with the sample and the transform's place among those of its
               class. It never changes, and each class has its own; 0: the class isn't random
    """

    __slots__ = ()
    draw_kind: ClassVar[int] = 0

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the fields that it reads."""
        return ("image",)

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of the fields that it writes."""
        return ("image",)

    @property
    def moves(self) -> tuple[str, ...]:
        """The names of the fields whose pixels or coordinates it moves."""
        return ()

    @property
    def is_random(self) -> bool:
        """True if equal images of two samples can get different results."""
        return self.draw_kind != 0

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""

    def size_after(self, size: Size | None) -> Size | None:
        """Return an image's size after this transform, from its size before; None if sizes differ among images."""
        return size

    def describe(self) -> str:
        """Return the class's name with every parameter."""
        return repr(self)


class AtRandom(ImageTransform):
    """A transform that is applied with probability ``p``, one of its parameters."""

    __slots__ = ()
    p: float

    @property
    def is_random(self) -> bool:
        """True if ``p`` is neither 0 nor 1."""
        return 0 < self.p < 1

    def check(self) -> None:
        """Raise ``PlanError`` for a probability outside [0, 1]."""
        if not is_number(self.p) or not 0.0 <= self.p <= 1.0:
            raise PlanError(f"{type(self).__name__}(p={self.p!r}): p must be a probability in [0, 1]")


class Step(IntEnum):
    """The steps of a pass that moves pixels, in the order in which the pass does them."""

    RESIZE = 1
    WINDOW = 2
    FLIP = 3  # the only step that a pass may do several times


class GeometricTransform(ImageTransform):
    """A transform that moves pixels, as one step of a pass that takes rows one by one.

    step  the kind of step
    """

    __slots__ = ()
    step: ClassVar[Step]

    @property
    def moves(self) -> tuple[str, ...]:
        """The field ``image``: native transforms move no other field."""
        return ("image",)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add this step to a native pass; ``op`` is the key of its random numbers."""
        raise NotImplementedError


class PixelTransform(ImageTransform):
    """A transform that needs the whole image and doesn't move pixels, unless ``moves`` says so."""

    __slots__ = ()

    def stage(self, op: int) -> _native.PixelStage:
        """Return the native stage; ``op`` is the key of its random numbers."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RowForm:
    """The form in which an image is written into its row of the slot. None: no transform has set it.

    table   (3, 256) float32: the number for each byte of each channel
    dtype   the element type
    scale   True if floats without ``table`` are value ÷ 255
    layout  the order of axes
    """

    table: Float32Array | None = None
    dtype: DtypeName | None = None
    scale: bool = False
    layout: Layout | None = None


class ValueTransform(ImageTransform):
    """A transform that sets how the finished image is written into the slot; it comes after the other kinds."""

    __slots__ = ()

    def applied_to(self, form: RowForm) -> RowForm:
        """Return ``form`` with the settings of this transform."""
        raise NotImplementedError


def is_number(value: object) -> bool:
    """Return True if ``value`` is a finite real number, Python's or NumPy's."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an int that is too large for a float
        return False
