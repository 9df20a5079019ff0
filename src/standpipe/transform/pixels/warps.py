"""Transforms that turn, shear and distort an image at random."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, get_args

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import MASK_FILL, AtRandom, PixelTransform, Size, is_number, is_pair
from standpipe.transform.kinds import MOVED
from standpipe.transform.pixels.geometry import INTERPOLATIONS, WarpInterpolation, side_pair
from standpipe.transform.pixels.window import Colour, colour_of

Angles = float | tuple[float, float]
PixelRule = Literal["pillow", "opencv"]

MOST_DEGREES = 1e5
MOST_SCALE = 1e4


class Warp(PixelTransform):
    """The base class of transforms that move pixels within an image."""

    __slots__ = ()
    moved: ClassVar[tuple[str, ...]] = MOVED
    interpolation: WarpInterpolation
    fill: int | Colour
    mask_fill: int
    pixels: PixelRule

    def __repr__(self) -> str:
        """Return the constructor's call; newer parameters only if given, so that digests stay as they were."""
        this: Any = self  # a dataclass, as each transform is
        shown = [
            each.name
            for each in fields(this)
            if each.repr or (each.kw_only and getattr(this, each.name) != each.default)
        ]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def check(self) -> None:
        """Raise ``PlanError`` for an invalid ``interpolation``, ``fill``, ``mask_fill`` or ``pixels``."""
        self.check_choice("interpolation", get_args(WarpInterpolation))
        self.check_choice("pixels", get_args(PixelRule))
        colour_of(type(self).__name__, self.fill)
        self.check_integer("mask_fill", 0, 255)

    @property
    def _sampling(self) -> list[float]:
        # Native code has OpenCV's two interpolations behind Pillow's three.
        number = INTERPOLATIONS.index(self.interpolation) + (3 if self.pixels == "opencv" else 0)
        return [number, *colour_of(type(self).__name__, self.fill)]

    def _range(self, name: str, value: object, *, least: float = -MOST_DEGREES) -> tuple[float, float]:
        """Return a range of angles in degrees; a number stands for (-number, number)."""
        if is_number(value) and 0 <= value <= MOST_DEGREES:  # type: ignore[operator]
            return (-float(value), float(value))  # type: ignore[arg-type]
        if not is_pair(value) or not least <= value[0] <= value[1] <= MOST_DEGREES:
            self.refuse(name, "a number of degrees, not below 0, or a pair (lowest, highest)")
        return (float(value[0]), float(value[1]))

    def _center(self, center: object) -> list[float]:
        if center is None:
            return [0, 0, 0]
        if not is_pair(center):
            self.refuse("center", "None, or two numbers of pixels (x, y)")
        return [1, float(center[0]), float(center[1])]


@dataclass(frozen=True, slots=True, repr=False)
class RandomRotation(Warp):
    """Turn an image by a random angle, like ``torchvision.transforms.v2.RandomRotation``.

    The image keeps its size. The pixels are those of Pillow's ``Image.rotate``, bit for bit. It needs the whole image
    in memory, so apply it after a crop or resize. It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    degrees : float or (float, float)
        Range of the angle, counter-clockwise; a number means (−degrees, degrees).
    interpolation : str, default "nearest"
        ``"nearest"`` or ``"bilinear"``.
    expand : bool, default False
        Must be False: all images of a batch have one size.
    center : (float, float), optional
        Fixed point (x, y) in pixels from the upper left corner. Default: the centre.
    fill : int or tuple of int, default 0
        Level of all channels or of each, 0 to 255, of places outside the image.
    mask_fill : int, default 255
        Class number of places outside the image in the field ``mask``, from 0 to 255.
    pixels : str, default "pillow"
        ``"pillow"``, or ``"opencv"``: the same matrix in OpenCV's fixed point, which takes a fifth of the time.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or ``expand=True``.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), sp.RandomRotation(15)).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 25

    degrees: Angles
    interpolation: WarpInterpolation = "nearest"
    expand: bool = False
    center: tuple[float, float] | None = None
    fill: int | Colour = 0
    mask_fill: int = field(default=MASK_FILL, repr=False)
    pixels: PixelRule = field(default="pillow", repr=False, kw_only=True)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        Warp.check(self)
        self._range("degrees", self.degrees)
        self._center(self.center)
        if self.expand:
            raise PlanError(
                "RandomRotation(expand=True): the size of the result would depend on the angle; use expand=False, "
                "with PadImage before it where corners must stay"
            )

    @property
    def is_random(self) -> bool:
        """True if the range has more than one angle."""
        low, high = self._range("degrees", self.degrees)
        return low != high

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        numbers = [*self._range("degrees", self.degrees), *self._sampling, *self._center(self.center)]
        return _native.PixelStage("rotation", op, 1.0, numbers)


@dataclass(frozen=True, slots=True, repr=False)
class RandomAffine(Warp):
    """Turn, move, scale and shear an image at random, like ``torchvision.transforms.v2.RandomAffine``.

    The pixels are those of Pillow's ``Image.transform`` with torchvision's matrix. Sines and cosines may differ from
    a C library's in the last bit, which changes at most one pixel in 1,000. It moves the fields ``image`` and
    ``mask``.

    With ``size``, it has the rules of the YOLO family's ``RandomPerspective``. The image's centre goes to the centre of
    a result of this size, and from there by the translation, which isn't rounded to pixels. Both shears are applied at
    once, after the rotation. So images of different sizes get one size, without a resize.

    Parameters
    ----------
    degrees : float or (float, float)
        Range of the angle; a number means (−degrees, degrees).
    translate : (float, float), optional
        Largest translations, as parts of the result's width and height, from 0 to 1. Default: none.
    scale : (float, float), optional
        Range of the factor of scale, from 1/10000 to 10000. Default: 1.
    shear : float, (float, float) or (float, float, float, float), optional
        Range of the angle of the shear along x in degrees; a number means (−shear, shear). Four numbers: of
        both shears. Default: none.
    interpolation : str, default "nearest"
        ``"nearest"`` or ``"bilinear"``.
    fill : int or tuple of int, default 0
        Level of all channels or of each, 0 to 255, of places outside the image.
    center : (float, float), optional
        Fixed point (x, y) in pixels from the upper left corner. Default: the centre.
    mask_fill : int, default 255
        Class number of places outside the image in the field ``mask``, from 0 to 255.
    pixels : str, default "pillow"
        ``"pillow"``, or ``"opencv"``: the same matrix in OpenCV's fixed point, which takes a fifth of the time.
    size : int or (int, int), optional
        Output (height, width) in pixels; an int means a square. It needs ``pixels="opencv"``. Default: the image's.
    perspective : float, default 0
        Largest perspective, with ``size``: how much one pixel from the centre, along each axis, changes the depth. The
        YOLO family uses 0 to 0.001.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> warp = sp.RandomAffine(10, translate=(0.1, 0.1), scale=(0.9, 1.1), interpolation="bilinear")
    >>> with photos.map(sp.CenterCrop(32), warp).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 26

    degrees: Angles
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: float | tuple[float, ...] | None = None
    interpolation: WarpInterpolation = "nearest"
    fill: int | Colour = 0
    center: tuple[float, float] | None = None
    mask_fill: int = field(default=MASK_FILL, repr=False)
    pixels: PixelRule = field(default="pillow", repr=False, kw_only=True)
    size: int | tuple[int, int] | None = field(default=None, repr=False, kw_only=True)
    perspective: float = field(default=0.0, repr=False, kw_only=True)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        Warp.check(self)
        self._numbers()
        self._center(self.center)
        if not is_number(self.perspective) or not 0 <= self.perspective <= 1:
            self.refuse("perspective", "a number from 0 to 1")
        if self.size is None:
            if self.perspective:
                self.refuse("perspective", "0 without size=; give a size, or use RandomPerspective")
            return
        side_pair("RandomAffine", "size", self.size)
        if self.pixels != "opencv":
            self.refuse("size", "None unless pixels='opencv' is given; give it, or put a Resize in front")
        if self.center is not None:
            self.refuse("center", "None with size=, which moves the image's centre to that of the result")

    def size_after(self, size: Size | None) -> Size | None:
        """Return the parameter ``size``; without it, the image's size."""
        return size if self.size is None else side_pair("RandomAffine", "size", self.size)

    def _numbers(self) -> list[float]:
        """Return the ranges of angle, scale and shears, and the largest translations."""
        translate = (0.0, 0.0) if self.translate is None else self.translate
        if not is_pair(translate) or not all(0 <= each <= 1 for each in translate):
            self.refuse("translate", "None, or two numbers from 0 to 1")
        if self.scale is not None:
            self.check_range("scale", 1 / MOST_SCALE, MOST_SCALE)
        shears = [0.0] * 4
        if isinstance(self.shear, tuple | list) and len(self.shear) == 4:
            shears = [*self._range("shear", self.shear[:2]), *self._range("shear", self.shear[2:])]
        elif self.shear is not None:
            shears[:2] = self._range("shear", self.shear)
        angles = self._range("degrees", self.degrees)
        return [*angles, *map(float, self.scale or (1.0, 1.0)), *shears, *map(float, translate)]

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        numbers = [*self._numbers(), *self._sampling, *self._center(self.center), self.perspective]
        height, width = self.size_after(None) or (0, 0)
        return _native.PixelStage("random_affine", op, 1.0, numbers, height, width)


@dataclass(frozen=True, slots=True, repr=False)
class RandomPerspective(AtRandom, Warp):
    """Move the corners of an image inwards at random, like ``torchvision.transforms.v2.RandomPerspective``.

    The pixels are those of Pillow's ``Image.transform``. The eight coefficients are solved in double precision and
    rounded to float32, as torchvision's are; where both round differently, at most 5 pixels in 1,000 differ. It moves
    the fields ``image`` and ``mask``.

    Parameters
    ----------
    distortion_scale : float, default 0.5
        Largest distance of a corner, as a part of half of a side, from 0 to 1.
    p : float, default 0.5
        Probability of the change.
    interpolation : str, default "bilinear"
        ``"nearest"`` or ``"bilinear"``.
    fill : int or tuple of int, default 0
        Level of all channels or of each, 0 to 255, of places outside the image.
    mask_fill : int, default 255
        Class number of places outside the image in the field ``mask``, from 0 to 255.
    pixels : str, default "pillow"
        ``"pillow"``, or ``"opencv"``: the same matrix in OpenCV's fixed point, which takes a fifth of the time.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), sp.RandomPerspective()).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 27

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: WarpInterpolation = "bilinear"
    fill: int | Colour = 0
    mask_fill: int = field(default=MASK_FILL, repr=False)
    pixels: PixelRule = field(default="pillow", repr=False, kw_only=True)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AtRandom.check(self)
        Warp.check(self)
        if not is_number(self.distortion_scale) or not 0 <= self.distortion_scale <= 1:
            self.refuse("distortion_scale", "a number from 0 to 1")

    @property
    def is_random(self) -> bool:
        """True if ``p`` isn't 0: the corners are random."""
        return self.p > 0

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("perspective", op, self.p, [self.distortion_scale, *self._sampling])
