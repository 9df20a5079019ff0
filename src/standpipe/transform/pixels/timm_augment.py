"""The augmentation policies of timm: its RandAugment, whose magnitudes are random, and DeiT III's ThreeAugment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

from standpipe import _native
from standpipe.transform.image import (
    COLOURS,
    MASK_FILL,
    ImageTransform,
    PixelTransform,
    Size,
    is_number,
)
from standpipe.transform.kinds import MOVED, FieldKind
from standpipe.transform.pixels.auto_augment import MOST_OPS, one_of
from standpipe.transform.pixels.filters import PillowGaussianBlur
from standpipe.transform.pixels.geometry import AugmentInterpolation
from standpipe.transform.pixels.window import Colour, colour_of

SamplingName = Literal[AugmentInterpolation, "random"]

SAMPLINGS = get_args(SamplingName)  # as native/pixels/level.cpp numbers them
MOST_MAGNITUDE = 100
TRANSLATED = 0.45  # part of a side, at magnitude 10

# timm's names of operations; native/pixels/level.cpp numbers them in this order.
OPERATIONS = (
    "AutoContrast",
    "Equalize",
    "Invert",
    "Rotate",
    "Posterize",
    "PosterizeIncreasing",
    "PosterizeOriginal",
    "Solarize",
    "SolarizeIncreasing",
    "SolarizeAdd",
    "Color",
    "ColorIncreasing",
    "Contrast",
    "ContrastIncreasing",
    "Brightness",
    "BrightnessIncreasing",
    "Sharpness",
    "SharpnessIncreasing",
    "ShearX",
    "ShearY",
    "TranslateXRel",
    "TranslateYRel",
    "Desaturate",
    "GaussianBlur",
    "GaussianBlurRand",
)
# What RandAugment chooses among. With ``increasing``, larger magnitudes of the operations in CHANGED are stronger.
CHOSEN = (
    "AutoContrast",
    "Equalize",
    "Invert",
    "Rotate",
    "Posterize",
    "Solarize",
    "SolarizeAdd",
    "Color",
    "Contrast",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateXRel",
    "TranslateYRel",
)
CHANGED = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")


@dataclass(frozen=True, slots=True)
class TimmRandAugment(PixelTransform):
    """Apply random operations of random magnitude, like timm's ``rand_augment_transform``.

    The defaults are those of timm's usual policy, ``rand-m9-mstd0.5-inc1``. ``num_ops`` times, an operation is
    chosen, and applied with probability ``p``. Each time, its magnitude is a normal random number. The pixels are
    those of timm, which calls Pillow; the distributions are timm's. Magnitudes are from 0 to 10 here; ``RandAugment``
    has torchvision's operations and magnitudes. It moves the fields ``image`` and ``mask``.

    Parameters
    ----------
    num_ops : int, default 2
        Number of operations, up to 16: timm's ``n``.
    magnitude : float, default 9
        Mean magnitude: timm's ``m``.
    magnitude_std : float, default 0.5
        Standard deviation of magnitudes: timm's ``mstd``. Infinity: magnitudes are uniform from 0 to
        ``magnitude``.
    increasing : bool, default True
        True: larger magnitudes are stronger for all operations: timm's ``inc``.
    p : float, default 0.5
        Probability that a chosen operation is applied.
    magnitude_max : float, default 10
        Larger magnitudes become this one: timm's ``mmax``.
    interpolation : str, default "random"
        ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, for warps; ``"random"``: one of the last two each time.
    fill : int or tuple of int, default (124, 116, 104)
        Level of all channels or of each, 0 to 255, of places outside a warped image. Default: ImageNet's mean, as in
        timm's ``create_transform``.
    operations : sequence of str, optional
        Names of timm's operations to choose among. Default: timm's 15 operations.
    mask_fill : int, default 255
        Class number of places outside a warped image in the field ``mask``, from 0 to 255.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.RandomResizedCrop(32), sp.TimmRandAugment()).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 21
    takes: ClassVar[tuple[int, ...]] = COLOURS
    moved: ClassVar[tuple[str, ...]] = MOVED

    num_ops: int = 2
    magnitude: float = 9
    magnitude_std: float = 0.5
    increasing: bool = True
    p: float = 0.5
    magnitude_max: float = 10
    interpolation: SamplingName = "random"
    fill: int | Colour = (124, 116, 104)
    operations: Sequence[str] | None = None
    mask_fill: int = field(default=MASK_FILL, repr=False)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        self.check_integer("num_ops", 0, MOST_OPS)
        for name in ("magnitude", "magnitude_max"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value <= MOST_MAGNITUDE:
                self.refuse(name, f"a number from 0 to {MOST_MAGNITUDE}")
        deviation = self.magnitude_std
        if deviation != math.inf and not (is_number(deviation) and 0 <= deviation <= MOST_MAGNITUDE):
            self.refuse("magnitude_std", f"a number from 0 to {MOST_MAGNITUDE}, or infinity")
        self.check_flag("increasing")
        if not is_number(self.p) or not 0 <= self.p <= 1:
            self.refuse("p", "a probability in [0, 1]")
        self.check_choice("interpolation", SAMPLINGS)
        colour_of("TimmRandAugment", self.fill)
        self.check_integer("mask_fill", 0, 255)
        self._check_operations()

    def _check_operations(self) -> None:
        given: object = self.operations
        if given is None:
            return
        names = given if isinstance(given, tuple | list) else []
        if unknown := [name for name in names if name not in OPERATIONS]:
            self.refuse("operations", f"names among {', '.join(OPERATIONS)}, not {unknown[0]!r}")
        if not names:
            self.refuse("operations", "a list of names")

    def for_kind(self, kind: FieldKind) -> ImageTransform:
        """Return the same transform with the kind's value around. Native code takes its nearest pixels."""
        return self if kind.is_image else replace(self, fill=kind.outside_of(self) or 0)

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        names = self.operations or [
            f"{name}Increasing" if self.increasing and name in CHANGED else name for name in CHOSEN
        ]
        one = one_of([[self._operation(name)] for name in names])
        return _native.PixelStage.choice(op, 1.0, [1.0], [[one] * self.num_ops])

    def _operation(self, name: str) -> _native.PixelStage:
        deviation = -1.0 if self.magnitude_std == math.inf else self.magnitude_std
        numbers = [OPERATIONS.index(name), self.magnitude, deviation, self.magnitude_max]
        numbers += [SAMPLINGS.index(self.interpolation), *colour_of("TimmRandAugment", self.fill), TRANSLATED]
        return _native.PixelStage("level", 0, self.p, numbers)


@dataclass(frozen=True, slots=True)
class ThreeAugment(PixelTransform):
    """Turn an image grey, solarize it, or blur it, each with probability 1/3: ThreeAugment of DeiT III.

    Solarizing inverts values from 128 on. The blur is Pillow's ``ImageFilter.GaussianBlur``, with a uniform
    radius from 0.1 to 2 pixels. The pixels are those of timm's policy ``3a``.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> train = photos.map(sp.RandomResizedCrop(32), sp.RandomHorizontalFlip(), sp.ThreeAugment()).batch(4)
    >>> with train.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 22
    takes: ClassVar[tuple[int, ...]] = COLOURS

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        lists = [
            [_native.PixelStage("grayscale", 0, 1.0, [])],
            [_native.PixelStage("solarize", 0, 1.0, [128])],
            [PillowGaussianBlur().stage(0, size)],
        ]
        return _native.PixelStage.choice(op, 1.0, [1 / 3, 2 / 3, 1.0], lists)
