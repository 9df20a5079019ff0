"""Geometric transforms of images. Each uses random numbers once per sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.spec import Interpolation
from standpipe.transform.image import AtRandom, GeometricTransform, Size, Step

InterpolationName = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]

MOST_PX = 65535  # of a side


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(GeometricTransform):
    """A random box of the image, resized: torchvision.transforms.v2.RandomResizedCrop.

    size           output (height, width) in pixels; an int means a square
    scale          range of the box's area, as a share of the image's
    ratio          range of the box's width ÷ height, drawn uniformly in its logarithm
    interpolation  ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"box"``, ``"hamming"`` or ``"lanczos"``,
                   antialiased as Pillow's

    Ten boxes are tried; when none fits, the largest centred one inside the range of ratios is taken.
    """

    draw_kind: ClassVar[int] = 1
    step: ClassVar[Step] = Step.RESIZE

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: InterpolationName = "bilinear"

    def check(self) -> None:
        """Raise ``PlanError`` for parameters that can't work."""
        _pair("RandomResizedCrop", "size", self.size)
        _interpolation("RandomResizedCrop", self.interpolation)
        _range("RandomResizedCrop", "scale", self.scale, most=1.0)
        _range("RandomResizedCrop", "ratio", self.ratio, most=None)

    @property
    def output_px(self) -> Size:
        """(height, width) of the result, in pixels."""
        return _pair("RandomResizedCrop", "size", self.size)

    def size_after(self, size: Size | None) -> Size:
        """Return ``output_px``, whatever the image's size is."""
        return self.output_px

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the box and its resize."""
        height, width = self.output_px
        stage.crop(op=op, scale=self.scale, ratio=self.ratio)
        stage.resize(height=height, width=width, filter=self.interpolation)


@dataclass(frozen=True, slots=True)
class Resize(GeometricTransform):
    """The image at another size: torchvision.transforms.v2.Resize.

    size           an int: length in pixels of the shorter side, the other follows, truncated to whole pixels;
                   (height, width): exactly that
    max_size       cap in pixels of the longer side, with an int ``size`` only; it then shrinks both
    interpolation  as of ``RandomResizedCrop``
    """

    step: ClassVar[Step] = Step.RESIZE

    size: int | tuple[int, int]
    max_size: int | None = None
    interpolation: InterpolationName = "bilinear"

    def check(self) -> None:
        """Raise ``PlanError`` for parameters that can't work."""
        _interpolation("Resize", self.interpolation)
        if not isinstance(self.size, int):
            _pair("Resize", "size", self.size)
            if self.max_size is not None:
                raise PlanError(
                    f"Resize(max_size={self.max_size!r}) goes with an int size, not with {self.size!r}"
                )
            return
        _pair("Resize", "size", self.size)
        if self.max_size is not None and not (_is_side(self.max_size) and self.max_size > self.size):
            raise PlanError(
                f"Resize(max_size={self.max_size!r}): an integer, larger than the shorter side's "
                f"size={self.size!r}, at most {MOST_PX} pixels"
            )

    def size_after(self, size: Size | None) -> Size | None:
        """Return the size by torchvision's rule, which truncates the longer side."""
        if not isinstance(self.size, int):
            return _pair("Resize", "size", self.size)
        if size is None:
            return None
        height, width = size
        new_short, new_long = self.size, int(self.size * max(size) / min(size))
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = max(int(self.max_size * new_short / new_long), 1), self.max_size
        return (new_long, new_short) if width <= height else (new_short, new_long)

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add a resize to a size, or by the shorter side."""
        if isinstance(self.size, int):
            stage.resize_shorter(size=self.size, max_size=self.max_size or 0, filter=self.interpolation)
        else:
            height, width = _pair("Resize", "size", self.size)
            stage.resize(height=height, width=width, filter=self.interpolation)


@dataclass(frozen=True, slots=True)
class CenterCrop(GeometricTransform):
    """The middle of the image: torchvision.transforms.v2.CenterCrop.

    size  (height, width) in pixels; an int means a square

    Where the image is smaller, zeros (black) surround it, the odd row or column behind it.
    """

    step: ClassVar[Step] = Step.WINDOW

    size: int | tuple[int, int]

    def check(self) -> None:
        """Raise ``PlanError`` for parameters that can't work."""
        _pair("CenterCrop", "size", self.size)

    @property
    def output_px(self) -> Size:
        """(height, width) of the result, in pixels."""
        return _pair("CenterCrop", "size", self.size)

    def size_after(self, size: Size | None) -> Size:
        """Return ``output_px``, whatever the image's size is."""
        return self.output_px

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the window."""
        height, width = self.output_px
        stage.window(height=height, width=width)


@dataclass(frozen=True, slots=True)
class RandomHorizontalFlip(AtRandom, GeometricTransform):
    """Left and right exchanged with probability ``p``: torchvision.transforms.v2.RandomHorizontalFlip."""

    draw_kind: ClassVar[int] = 2
    step: ClassVar[Step] = Step.FLIP

    p: float = 0.5

    def add_to(self, stage: _native.GeometryStage, op: int) -> None:
        """Add the mirror."""
        stage.mirror(op=op, p=self.p)


def _pair(owner: str, name: str, size: object) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else _two(owner, name, size)
    for side in (height, width):
        if not _is_side(side):
            raise PlanError(
                f"{owner}({name}={size!r}): an int or (height, width), each from 1 to {MOST_PX} pixels"
            )
    return height, width


def _is_side(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_PX


def _two(owner: str, name: str, value: object) -> tuple[int, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise PlanError(
            f"{owner}({name}={value!r}): an int or (height, width), each from 1 to {MOST_PX} pixels"
        )
    return value[0], value[1]


def _interpolation(owner: str, name: str) -> None:
    names = [each.value for each in Interpolation]
    if name not in names:
        raise PlanError(f"{owner}(interpolation={name!r}): one of {', '.join(map(repr, names))}")


def _range(owner: str, name: str, value: tuple[float, float], most: float | None) -> None:
    try:
        low, high = value
        fits = 0 < low <= high and (most is None or high <= most)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        limit = "" if most is None else f" ≤ {most:g}"
        raise PlanError(f"{owner}({name}={value!r}): two numbers, 0 < low ≤ high{limit}")
