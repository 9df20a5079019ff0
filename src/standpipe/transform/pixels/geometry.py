"""Geometric transforms of images: crops, resizes and flips."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from typing import ClassVar, Literal, get_args

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import (
    MASK_FILL,
    MOST_PX,
    AtRandom,
    GeometricStep,
    GeometricTransform,
    ImageTransform,
    PixelTransform,
    Size,
)
from standpipe.transform.kinds import MOVED, FieldKind
from standpipe.units import is_count

# Pillow's filters. Native code knows each by its place in INTERPOLATIONS.
WarpInterpolation = Literal["nearest", "bilinear"]
AugmentInterpolation = Literal[WarpInterpolation, "bicubic"]
InterpolationName = Literal[AugmentInterpolation, "box", "hamming", "lanczos"]
INTERPOLATIONS = get_args(InterpolationName)


class SizedTransform(GeometricTransform):
    """The base class of transforms whose results have the size that their parameter ``size`` gives."""

    __slots__ = ()
    size: int | tuple[int, int]

    @property
    def output_px(self) -> Size:
        """The (height, width) of the result, in pixels."""
        return side_pair(type(self).__name__, "size", self.size)

    def size_after(self, size: Size | None) -> Size:
        """Return ``output_px``, whatever the image's size is."""
        return self.output_px


class VaryingTransform(GeometricTransform):
    """The base class of transforms whose results differ in size, even for images of one size."""

    __slots__ = ()

    def size_after(self, size: Size | None) -> None:
        """Return None: images differ in size."""


class WindowPlace(IntEnum):
    """A window's place in the padded picture, as native code numbers it."""

    CENTRED = 0
    RANDOM = 1
    DIAGONAL = 2  # as far along one axis as along the other, in shares
    EVERYTHING = 3


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(SizedTransform):
    """Crop a random box from an image and resize it, like ``torchvision.transforms.v2.RandomResizedCrop``.

    Up to ten boxes are tried. If none fits into the image, the crop is the largest centred box whose ratio is in
    range. The distribution is torchvision's; the random numbers are standpipe's own. It moves the fields ``image``
    and ``mask``.

    Parameters
    ----------
    size : int or (int, int)
        Output (height, width) in pixels; an int means a square.
    scale : (float, float), default (0.08, 1.0)
        Range of the box's area, as a fraction of the image's.
    ratio : (float, float), default (3/4, 4/3)
        Range of the box's width ÷ height, uniform in its logarithm.
    interpolation : str, default "bilinear"
        ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"box"``, ``"hamming"`` or ``"lanczos"``: Pillow's
        filters, with antialiasing. ``"random"``: ``"bilinear"`` or ``"bicubic"``, with the same probability for
        each sample, as timm's crop.

    Raises
    ------
    PlanError
        By ``plan()``, for an invalid size, range or interpolation.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).shuffle(seed=7).map(sp.RandomResizedCrop(32)).batch(4)
    >>> with pipeline.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 1
    filter_draw_kind: ClassVar[int] = 45  # of the random filter
    first_step: ClassVar[GeometricStep] = GeometricStep.CROP
    step: ClassVar[GeometricStep] = GeometricStep.RESIZE

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: InterpolationName | Literal["random"] = "bilinear"

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        side_pair("RandomResizedCrop", "size", self.size)
        self.check_choice("interpolation", (*INTERPOLATIONS, "random"))
        self.check_range("scale", most=1)
        self.check_range("ratio")

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the crop and its resize to a native pass."""
        height, width = self.output_px
        stage.crop(op=op, scale=self.scale, ratio=self.ratio)
        drawn = self.interpolation == "random"
        stage.resize(
            height=height, width=width, filter=filter_number("bilinear" if drawn else self.interpolation)
        )
        if drawn:
            stage.random_filter(op=self.filter_draw_kind << 16 | op & 0xFFFF)


@dataclass(frozen=True, slots=True)
class Resize(GeometricTransform):
    """Resize an image, like ``torchvision.transforms.v2.Resize``.

    Sizes are torchvision's, and pixels are those of its path for Pillow images: antialiased, as Pillow's
    ``resize``. Three things differ. ``interpolation`` is a name. A side is never below one pixel, where
    torchvision fails. A list of one number isn't a size: write ``Resize(256)``, not ``Resize([256])``.

    All images of a batch have one size, so ``CenterCrop`` or a similar transform must follow ``Resize(int)``. It
    moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    size : int or (int, int)
        An int is the length in pixels of the shorter side; the other side keeps the aspect ratio, truncated
        to an integer. A tuple is exactly (height, width).
    max_size : int, optional
        Limit in pixels of the longer side, only with an int ``size``. Where it would be longer, both sides
        become smaller.
    interpolation : str, default "bilinear"
        One of the filters of ``RandomResizedCrop``, except ``"random"``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images of a batch would differ in size.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.Resize(48), sp.CenterCrop(32)).batch(4)
    >>> with pipeline.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    step: ClassVar[GeometricStep] = GeometricStep.RESIZE
    in_pixels: ClassVar[tuple[str, ...] | None] = ("size",)

    size: int | tuple[int, int]
    # By name: torchvision's second parameter is interpolation.
    max_size: int | None = field(default=None, kw_only=True)
    interpolation: InterpolationName = field(default="bilinear", kw_only=True)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        self.check_choice("interpolation", INTERPOLATIONS)
        side_pair("Resize", "size", self.size)
        if self.max_size is None:
            return
        if not isinstance(self.size, int):
            raise PlanError(
                f"Resize(max_size={self.max_size!r}) needs an int size, got size={self.size!r}; leave out max_size"
            )
        if not is_count(self.max_size, self.size + 1, MOST_PX):
            self.refuse(
                "max_size",
                f"an integer, larger than the shorter side's size={self.size!r}, at most {MOST_PX} pixels",
            )

    def size_after(self, size: Size | None) -> Size | None:
        """Return (height, width) after the resize, by torchvision's rule, which truncates the longer side.

        size  (height, width) before, or None if sizes differ; then the result is None, except for an exact size
        """
        if not isinstance(self.size, int):
            return side_pair("Resize", "size", self.size)
        if size is None:
            return None
        height, width = size
        new_short, new_long = self.size, int(self.size * max(size) / min(size))
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = max(int(self.max_size * new_short / new_long), 1), self.max_size
        return (new_long, new_short) if width <= height else (new_short, new_long)

    def most_after(self, most: Size | None) -> Size | None:
        """Return the largest (height, width) after the resize; None if there is no limit."""
        return self.size_after(most) if self.max_size is None else (self.max_size, self.max_size)

    def scaled(self, scale: Fraction) -> ImageTransform:
        """Return the resize to a size that is ``scale`` times as large. Raises ``PlanError`` by the shorter side."""
        if isinstance(self.size, int) and scale != 1:
            self.refuse("size", f"(height, width) beside a picture at scale {scale}")
        return GeometricTransform.scaled(self, scale)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add a resize to a native pass, to an exact size or by the shorter side."""
        if isinstance(self.size, int):
            stage.resize_shorter(
                op=op,
                first=self.size,
                end=self.size + 1,
                max_size=self.max_size or 0,
                filter=filter_number(self.interpolation),
            )
        else:
            height, width = side_pair("Resize", "size", self.size)
            stage.resize(height=height, width=width, filter=filter_number(self.interpolation))


@dataclass(frozen=True, slots=True)
class RandomResize(VaryingTransform):
    """Resize an image's shorter side to a random length, like ``torchvision.transforms.v2.RandomResize``.

    Where all images of a batch must have one size, ``RandomCrop(size, pad_if_needed=True)`` or a similar transform must
    follow, or ``batch(collate={"image": sp.Pad(max_shape=…)})``. It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    min_size, max_size : int
        The length in pixels is from ``min_size`` to ``max_size`` − 1, each with the same probability. The other
        side keeps the aspect ratio, truncated to an integer.
    interpolation : str, default "bilinear"
        One of the filters of ``RandomResizedCrop``, except ``"random"``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images of a batch would differ in size.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> train = photos.map(sp.RandomResize(24, 96), sp.RandomCrop(48, pad_if_needed=True)).batch(4)
    >>> with train.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 48, 48, 3)
    """

    draw_kind: ClassVar[int] = 24
    step: ClassVar[GeometricStep] = GeometricStep.RESIZE

    min_size: int
    max_size: int
    interpolation: InterpolationName = "bilinear"

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        self.check_choice("interpolation", INTERPOLATIONS)
        self.check_integer("max_size", 2, MOST_PX)
        self.check_integer("min_size", 1, self.max_size - 1)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the resize to a native pass."""
        number = filter_number(self.interpolation)
        stage.resize_shorter(op=op, first=self.min_size, end=self.max_size, max_size=0, filter=number)


@dataclass(frozen=True, slots=True)
class CenterCrop(SizedTransform):
    """Crop the centre of an image, like ``torchvision.transforms.v2.CenterCrop``.

    An image that is smaller than ``size`` is padded with zeros (black) on all sides. If the padding of a dimension is
    odd, the bottom or right side gets one pixel more. It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    size : int or (int, int)
        Output (height, width) in pixels; an int means a square.
    mask_fill : int, default 255
        Class number of the padding in the field ``mask``, from 0 to 255.

    Raises
    ------
    PlanError
        By ``plan()``, for an invalid size or ``mask_fill``.

    Examples
    --------
    >>> with sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(64)).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 64, 64, 3)
    """

    step: ClassVar[GeometricStep] = GeometricStep.WINDOW
    in_pixels: ClassVar[tuple[str, ...] | None] = ("size",)

    size: int | tuple[int, int]
    mask_fill: int = field(default=MASK_FILL, repr=False, kw_only=True)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        side_pair("CenterCrop", "size", self.size)
        self.check_integer("mask_fill", 0, 255)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the centred window to a native pass."""
        stage.window(place=WindowPlace.CENTRED, size=self.output_px)

    def for_kind(self, kind: FieldKind) -> ImageTransform | None:
        """Return the same crop, with the kind's value around."""
        outside = kind.outside_of(self)
        if kind.is_image or not outside:
            return GeometricTransform.for_kind(self, kind)
        return _FilledWindow(self.output_px, outside) if kind.name in self.moves else None


@dataclass(frozen=True, slots=True)
class _FilledWindow(GeometricTransform):
    """The centre of a mask, with a class number around it where it is too small."""

    step: ClassVar[GeometricStep] = GeometricStep.WINDOW

    size: Size
    fill: int

    def size_after(self, size: Size | None) -> Size:
        """Return the window's size."""
        return self.size

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the centred window to a native pass."""
        stage.window(place=WindowPlace.CENTRED, size=self.size, fill=(self.fill,) * _native.MOST_CHANNELS)


@dataclass(frozen=True, slots=True)
class RandomHorizontalFlip(AtRandom, GeometricTransform):
    """Flip an image left to right at random, like ``torchvision.transforms.v2.RandomHorizontalFlip``.

    It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    p : float, default 0.5
        Probability of a flip.

    Raises
    ------
    PlanError
        By ``plan()``, if ``p`` isn't in [0, 1].

    Examples
    --------
    >>> source = sp.Arrays(image=np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3))
    >>> with sp.Pipeline(source).map(sp.RandomHorizontalFlip(p=1.0)).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, 0].tolist())
    [[3, 4, 5], [0, 1, 2]]
    """

    draw_kind: ClassVar[int] = 2
    step: ClassVar[GeometricStep] = GeometricStep.FLIP
    in_pixels: ClassVar[tuple[str, ...] | None] = ()

    p: float = 0.5

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the flip to a native pass."""
        stage.mirror(op=op, p=self.p)


@dataclass(frozen=True, slots=True)
class RandomVerticalFlip(AtRandom, PixelTransform):
    """Flip an image upside down at random, like ``torchvision.transforms.v2.RandomVerticalFlip``.

    It needs the whole image in memory, so apply it after a crop or resize. It moves the fields ``image`` and
    ``mask``.

    Parameters
    ----------
    p : float, default 0.5
        Probability of a flip.

    Raises
    ------
    PlanError
        By ``plan()``, if ``p`` isn't in [0, 1].

    Examples
    --------
    >>> source = sp.Arrays(image=np.arange(6, dtype=np.uint8).reshape(1, 2, 1, 3))
    >>> with sp.Pipeline(source).map(sp.RandomVerticalFlip(p=1.0)).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, :, 0].tolist())
    [[3, 4, 5], [0, 1, 2]]
    """

    draw_kind: ClassVar[int] = 12
    in_pixels: ClassVar[tuple[str, ...] | None] = ()
    moved: ClassVar[tuple[str, ...]] = MOVED

    p: float = 0.5

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("flip", op, self.p, [])


def side_pair(owner: str, name: str, size: object) -> tuple[int, int]:
    """Return (height, width) of a size in pixels; raise ``PlanError`` if it is none. ``owner``: the transform."""
    sides = (size, size) if isinstance(size, int) else size if isinstance(size, tuple | list) else ()
    if len(sides) != 2 or not all(is_count(side, 1, MOST_PX) for side in sides):
        raise PlanError(
            f"{owner}({name}={size!r}): {name} must be an int or (height, width), each from 1 to {MOST_PX} pixels"
        )
    return sides[0], sides[1]


def filter_number(name: str) -> int:
    """Return the number by which native code knows an interpolation."""
    return INTERPOLATIONS.index(name)
