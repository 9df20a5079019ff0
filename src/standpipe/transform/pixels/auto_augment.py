"""Augmentation policies: RandAugment, TrivialAugmentWide and AutoAugment, with torchvision's operations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import COLOURS, MASK_FILL, PixelTransform, Size
from standpipe.transform.kinds import MASK, MOVED
from standpipe.transform.pixels.geometry import INTERPOLATIONS, AugmentInterpolation
from standpipe.transform.pixels.window import colour_of

Fill = int | tuple[int, ...] | None
Policy = Literal["imagenet", "cifar10", "svhn"]
PolicyStep = tuple[str, float, int | None]

MOST_BINS = 1000
MOST_OPS = 16
MOST_WARPED_PX = 32767  # along a side: Pillow computes places in 16.16 bits below that
UNSIGNED = ("Posterize", "Solarize")
PLAIN = ("Identity", "AutoContrast", "Equalize", "Invert")  # without a magnitude

# Largest magnitudes of RandAugment and AutoAugment (Cubuk et al., arXiv:1909.13719 and 1805.09501), as torchvision has
# them. Translations are a part of the image's side.
MODERATE = {
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 150.0 / 331.0,
    "TranslateY": 150.0 / 331.0,
    "Rotate": 30.0,
    "Brightness": 0.9,
    "Color": 0.9,
    "Contrast": 0.9,
    "Sharpness": 0.9,
    "Posterize": 4.0,
    "Solarize": 0.0,
}
# Those of TrivialAugmentWide (Müller and Hutter, arXiv:2103.10158). Translations are in pixels.
WIDE = {
    "ShearX": 0.99,
    "ShearY": 0.99,
    "TranslateX": 32.0,
    "TranslateY": 32.0,
    "Rotate": 135.0,
    "Brightness": 0.99,
    "Color": 0.99,
    "Contrast": 0.99,
    "Sharpness": 0.99,
    "Posterize": 6.0,
    "Solarize": 0.0,
}
OPERATIONS = (
    "Identity",
    *MODERATE,
    "AutoContrast",
    "Equalize",
)  # that RandAugment and TrivialAugmentWide choose among

# Each policy has 25 pairs of (operation, probability, magnitude of 0 to 9), from the paper of AutoAugment.
POLICIES: dict[str, tuple[tuple[PolicyStep, PolicyStep], ...]] = {
    "imagenet": (
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
        (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
        (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
        (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
        (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
        (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
        (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
        (("Color", 0.4, 0), ("Equalize", 0.6, None)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    ),
    "cifar10": (
        (("Invert", 0.1, None), ("Contrast", 0.2, 6)),
        (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
        (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)),
        (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
        (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, None), ("Equalize", 0.5, None)),
        (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
        (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
        (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, None)),
        (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.2, None), ("Equalize", 0.6, None)),
        (("Color", 0.9, 9), ("Equalize", 0.6, None)),
        (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)),
        (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)),
        (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)),
        (("Equalize", 0.8, None), ("Invert", 0.1, None)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
    ),
    "svhn": (
        (("ShearX", 0.9, 4), ("Invert", 0.2, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.6, None), ("Solarize", 0.6, 6)),
        (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("AutoContrast", 0.8, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.4, None)),
        (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
        (("Invert", 0.9, None), ("AutoContrast", 0.8, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)),
        (("ShearY", 0.8, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.9, None), ("TranslateY", 0.6, 6)),
        (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)),
        (("Invert", 0.8, None), ("TranslateY", 0.0, 2)),
        (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)),
        (("Invert", 0.6, None), ("Rotate", 0.8, 4)),
        (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)),
        (("ShearX", 0.1, 6), ("Invert", 0.6, None)),
        (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)),
        (("ShearY", 0.8, 4), ("Invert", 0.8, None)),
        (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)),
        (("ShearY", 0.8, 5), ("AutoContrast", 0.7, None)),
        (("ShearX", 0.7, 2), ("Invert", 0.1, None)),
    ),
}
POLICY_BINS = 10


class AutoAugmentBase(PixelTransform):
    """The base class of augmentation policies.

    Their operations depend on the image's size, and are made when the pipeline is planned: native code only
    chooses among them.
    """

    __slots__ = ()
    takes: ClassVar[tuple[int, ...]] = COLOURS
    moved: ClassVar[tuple[str, ...]] = MOVED
    interpolation: AugmentInterpolation
    fill: Fill
    mask_fill: int

    def check(self) -> None:
        """Raise ``PlanError`` for an invalid ``interpolation``, ``fill`` or ``mask_fill``."""
        self.check_choice("interpolation", get_args(AugmentInterpolation))
        colour_of(type(self).__name__, self.fill)
        if MASK.name in self.moves:
            self.check_integer("mask_fill", 0, 255)

    def size_after(self, size: Size | None) -> Size | None:
        """Return ``size``. Raises ``PlanError`` if it differs among images, or is too large."""
        if max(self.known(size)) > MOST_WARPED_PX:
            raise PlanError(
                f"{type(self).__name__}: images have {size} pixels; make no side longer than {MOST_WARPED_PX}"
            )
        return size

    def _any(self, names: Sequence[str], found: Mapping[str, list[float]], size: Size) -> _native.PixelStage:
        """Return a pass that applies one of several operations, with one of its magnitudes in ``found``."""
        operations = []
        for name in names:
            magnitudes: list[float | None] = [*found.get(name, [])] or [None]
            operations.append([one_of([[self._signed(name, each, size)] for each in magnitudes])])
        return one_of(operations)

    def _signed(self, name: str, magnitude: float | None, size: Size, p: float = 1.0) -> _native.PixelStage:
        """Return one operation, for a signed one with a random sign."""
        if magnitude is None or name in UNSIGNED:
            return one_of([self._operation(name, magnitude or 0.0, size)], p)
        return one_of([self._operation(name, sign * magnitude, size) for sign in (-1, 1)], p)

    def _operation(self, name: str, magnitude: float, size: Size) -> list[_native.PixelStage]:
        """Return the native passes of an operation with a magnitude, for images of (height, width) ``size``."""
        height, width = size
        match name:
            case "Identity":
                return []
            case "ShearX":
                return [self._warp(_sheared((0.0, 0.0), (math.atan(magnitude), 0.0)))]
            case "ShearY":
                return [self._warp(_sheared((0.0, 0.0), (0.0, math.atan(magnitude))))]
            case "TranslateX":
                return [self._warp((1.0, 0.0, -float(int(magnitude)), 0.0, 1.0, 0.0))]
            case "TranslateY":
                return [self._warp((1.0, 0.0, 0.0, 0.0, 1.0, -float(int(magnitude))))]
            case "Rotate":
                return [self._warp(_turned((width / 2, height / 2), magnitude))]
            case "Brightness" | "Contrast":
                return [_stage(name.lower(), 1.0 + magnitude, 1.0 + magnitude)]
            case "Color":
                return [_stage("saturation", 1.0 + magnitude, 1.0 + magnitude)]
            case "Sharpness":
                return [_stage("sharpness", 1.0 + magnitude)]
            case "Posterize":
                return [_stage("posterize", int(magnitude))]
            case "Solarize":
                return [_stage("solarize", 255.0 * magnitude)]
            case _:
                return [_stage(name.lower())]

    def _warp(self, matrix: tuple[float, ...]) -> _native.PixelStage:
        fill = colour_of(type(self).__name__, self.fill)
        # A shift by whole pixels interpolates nothing: the nearest pixels are the same ones, and take less time.
        shifts = matrix[:2] + matrix[3:5] == (1, 0, 0, 1) and all(each.is_integer() for each in matrix)
        return _stage("affine", *matrix, *fill, 0 if shifts else INTERPOLATIONS.index(self.interpolation))


@dataclass(frozen=True, slots=True)
class RandAugment(AutoAugmentBase):
    """Apply random operations of one magnitude, like ``torchvision.transforms.v2.RandAugment``.

    ``num_ops`` times, one of 14 operations is chosen, each with the same probability: identity, shears, translations,
    rotation, brightness, color, contrast, sharpness, posterize, solarize, autocontrast and equalize. Where an
    operation has a sign, it is random. The pixels are those of torchvision for Pillow images. It moves the fields
    ``image`` and ``mask``.

    Parameters
    ----------
    num_ops : int, default 2
        Number of operations, up to 16.
    magnitude : int, default 9
        Strength of the operations, from 0 to ``num_magnitude_bins`` − 1.
    num_magnitude_bins : int, default 31
        Number of strengths.
    interpolation : str, default "nearest"
        ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, for shears, translations and rotations.
    fill : int or tuple of int, optional
        Level of all channels or of each, 0 to 255, of places outside a warped image. Default: black.
    mask_fill : int, default 255
        Class number of these places in the field ``mask``, from 0 to 255.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images differ in size.

    Examples
    --------
    >>> train = sp.Pipeline(sp.ImageFolder("photos")).map(sp.RandomResizedCrop(32), sp.RandAugment()).batch(4)
    >>> with train.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 16

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: AugmentInterpolation = "nearest"
    fill: Fill = None
    mask_fill: int = field(default=MASK_FILL, repr=False)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AutoAugmentBase.check(self)
        self.check_integer("num_magnitude_bins", 2, MOST_BINS)
        self.check_integer("num_ops", 0, MOST_OPS)
        self.check_integer("magnitude", 0, self.num_magnitude_bins - 1)

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        known = self.known(size)
        found = magnitudes_of(MODERATE, self.num_magnitude_bins, known)
        operations = [
            [self._signed(name, found[name][self.magnitude] if name in found else None, known)]
            for name in OPERATIONS
        ]
        return _native.PixelStage.choice(op, 1.0, [1.0], [[one_of(operations)] * self.num_ops])


@dataclass(frozen=True, slots=True)
class TrivialAugmentWide(AutoAugmentBase):
    """Apply one random operation of random magnitude, like ``torchvision.transforms.v2.TrivialAugmentWide``.

    It chooses among the operations of ``RandAugment``, but with wider ranges. The pixels are those of torchvision for
    Pillow images. It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    num_magnitude_bins : int, default 31
        Number of strengths, each with the same probability.
    interpolation : str, default "nearest"
        ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, for shears, translations and rotations.
    fill : int or tuple of int, optional
        Level of all channels or of each, 0 to 255, of places outside a warped image. Default: black.
    mask_fill : int, default 255
        Class number of these places in the field ``mask``, from 0 to 255.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images differ in size.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.RandomResizedCrop(32), sp.TrivialAugmentWide()).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 17

    num_magnitude_bins: int = 31
    interpolation: AugmentInterpolation = "nearest"
    fill: Fill = None
    mask_fill: int = field(default=MASK_FILL, repr=False)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AutoAugmentBase.check(self)
        self.check_integer("num_magnitude_bins", 2, MOST_BINS)

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        known = self.known(size)
        found = magnitudes_of(WIDE, self.num_magnitude_bins, None)
        return _native.PixelStage.choice(op, 1.0, [1.0], [[self._any(OPERATIONS, found, known)]])


@dataclass(frozen=True, slots=True)
class AutoAugment(AutoAugmentBase):
    """Apply one of the 25 pairs of operations of a policy, like ``torchvision.transforms.v2.AutoAugment``.

    The pixels are those of torchvision for Pillow images. It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    policy : str, default "imagenet"
        ``"imagenet"``, ``"cifar10"`` or ``"svhn"``.
    interpolation : str, default "nearest"
        ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, for shears, translations and rotations.
    fill : int or tuple of int, optional
        Level of all channels or of each, 0 to 255, of places outside a warped image. Default: black.
    mask_fill : int, default 255
        Class number of these places in the field ``mask``, from 0 to 255.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if images differ in size.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.RandomResizedCrop(32), sp.AutoAugment("cifar10")).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 18

    policy: Policy = "imagenet"
    interpolation: AugmentInterpolation = "nearest"
    fill: Fill = None
    mask_fill: int = field(default=MASK_FILL, repr=False)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AutoAugmentBase.check(self)
        self.check_choice("policy", tuple(POLICIES))

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        known = self.known(size)
        found = magnitudes_of(MODERATE, POLICY_BINS, known)
        pairs = [
            [
                self._signed(name, None if bin_ is None else found[name][bin_], known, p)
                for name, p, bin_ in pair
            ]
            for pair in POLICIES[self.policy]
        ]
        return _native.PixelStage.choice(op, 1.0, [1.0], [[one_of(pairs)]])


def _stage(kind: str, *numbers: float) -> _native.PixelStage:
    return _native.PixelStage(kind, 0, 1.0, list(numbers))


def one_of(lists: list[list[_native.PixelStage]], p: float = 1.0) -> _native.PixelStage:
    """Return a pass that applies one of ``lists``, each with the same probability."""
    count = len(lists)
    return _native.PixelStage.choice(0, p, [(number + 1) / count for number in range(count)], lists)


def magnitudes_of(most: dict[str, float], bins: int, size: Size | None) -> dict[str, list[float]]:
    """Return each operation's magnitudes, weakest first, in float32 as torchvision computes them.

    most  the largest magnitudes, by operation; for posterize, the number of bits that it takes away
    size  (height, width): translations are parts of it; None: they are in pixels
    """
    found: dict[str, list[float]] = {}
    for name, end in most.items():
        if name == "Posterize":
            bits = 8 - np.arange(bins, dtype=np.float32) / np.float32((bins - 1) / end)
            found[name] = np.round(bits).tolist()
        elif name == "Solarize":
            found[name] = _linspace(1.0, end, bins)
        else:
            part = {"TranslateX": size[1], "TranslateY": size[0]}.get(name, 1) if size else 1
            found[name] = _linspace(0.0, end * part, bins)
    return found


def _linspace(start: float, end: float, count: int) -> list[float]:
    """Return ``count`` equally spaced numbers, from both ends and rounded to float32 once.

    So does ``torch.linspace`` where the processor adds a product in one operation.
    """
    low, high = np.float32(start), np.float32(end)
    step = float((high - low) / np.float32(count - 1))
    places = np.arange(count)
    exact = np.where(places < count // 2, low + step * places, high - step * places[::-1])
    return [float(each) for each in exact.astype(np.float32)]


def _sheared(center: tuple[float, float], shear: tuple[float, float]) -> tuple[float, ...]:
    """Return the matrix from a place in a sheared image to one in the image, as torchvision computes it.

    shear  angles in radians, which torchvision takes to degrees and back
    """
    sx, sy = (math.radians(math.degrees(angle)) for angle in shear)
    across = math.cos(-sy) / math.cos(sy)
    b = -math.cos(-sy) * math.tan(sx) / math.cos(sy) - math.sin(0.0)
    c = math.sin(-sy) / math.cos(sy)
    d = -math.sin(-sy) * math.tan(sx) / math.cos(sy) + math.cos(0.0)
    x, y = center
    return (d, -b, d * -x + -b * -y + x, -c, across, -c * -x + across * -y + y)


def _turned(center: tuple[float, float], degrees: float) -> tuple[float, ...]:
    """Return the matrix from a place in a turned image to one in the image, as Pillow's ``rotate`` computes it."""
    angle = -math.radians(degrees % 360.0)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = center
    return (cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y)
