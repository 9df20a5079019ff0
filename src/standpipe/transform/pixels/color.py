"""Transforms that change each pixel's colour, with the pixels of Pillow's ``ImageOps`` and ``ImageEnhance``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import COLOURS, AtRandom, PixelTransform, Size, is_number, is_pair

Range = float | tuple[float, float]

MOST_FACTOR = 1e6  # 255 times this fits into a native 32-bit integer
MOST_TURN = 0.5  # of the circle of hues


class ColourTransform(PixelTransform):
    """The base class of transforms that change colours, wherever the pixels are."""

    __slots__ = ()
    takes: ClassVar[tuple[int, ...]] = COLOURS
    in_pixels: ClassVar[tuple[str, ...] | None] = ()


@dataclass(frozen=True, slots=True)
class RandomInvert(AtRandom, ColourTransform):
    """Invert the colours of an image at random, like ``torchvision.transforms.v2.RandomInvert``.

    The pixels are those of Pillow's ``ImageOps.invert``: 255 − value.

    Parameters
    ----------
    p : float, default 0.5
        Probability of the change.

    Raises
    ------
    PlanError
        By ``plan()``, if ``p`` isn't in [0, 1].

    Examples
    --------
    >>> source = sp.Arrays(image=np.full((1, 2, 2, 3), 10, np.uint8))
    >>> with sp.Pipeline(source).map(sp.RandomInvert(p=1.0)).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, 0, 0].tolist())
    [245, 245, 245]
    """

    draw_kind: ClassVar[int] = 4

    p: float = 0.5

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("invert", op, self.p, [])


@dataclass(frozen=True, slots=True)
class RandomPosterize(AtRandom, ColourTransform):
    """Keep the upper bits of each channel at random, like ``torchvision.transforms.v2.RandomPosterize``.

    The pixels are those of Pillow's ``ImageOps.posterize``.

    Parameters
    ----------
    bits : int
        Bits to keep for each channel, from 1 to 8.
    p : float, default 0.5
        Probability of the change.

    Raises
    ------
    PlanError
        By ``plan()``, if ``bits`` isn't an integer from 1 to 8, or ``p`` isn't in [0, 1].

    Examples
    --------
    >>> source = sp.Arrays(image=np.full((1, 2, 2, 3), 200, np.uint8))
    >>> with sp.Pipeline(source).map(sp.RandomPosterize(2, p=1.0)).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, 0, 0].tolist())
    [192, 192, 192]
    """

    draw_kind: ClassVar[int] = 5

    bits: int
    p: float = 0.5

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AtRandom.check(self)
        self.check_integer("bits", 1, 8)

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("posterize", op, self.p, [self.bits])


@dataclass(frozen=True, slots=True)
class RandomSolarize(AtRandom, ColourTransform):
    """Invert the values from a threshold on at random, like ``torchvision.transforms.v2.RandomSolarize``.

    The pixels are those of Pillow's ``ImageOps.solarize``.

    Parameters
    ----------
    threshold : float
        Values from this on are inverted, from 0 to 255.
    p : float, default 0.5
        Probability of the change.

    Raises
    ------
    PlanError
        By ``plan()``, if ``threshold`` isn't a number, or ``p`` isn't in [0, 1].

    Examples
    --------
    >>> source = sp.Arrays(image=np.full((1, 2, 2, 3), 200, np.uint8))
    >>> with sp.Pipeline(source).map(sp.RandomSolarize(128, p=1.0)).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, 0, 0].tolist())
    [55, 55, 55]
    """

    draw_kind: ClassVar[int] = 6

    threshold: float
    p: float = 0.5

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AtRandom.check(self)
        if not is_number(self.threshold):
            self.refuse("threshold", "a number, usually from 0 to 255")

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("solarize", op, self.p, [self.threshold])


@dataclass(frozen=True, slots=True)
class RandomAutocontrast(AtRandom, ColourTransform):
    """Stretch each channel to the range 0 to 255 at random, like ``torchvision.transforms.v2.RandomAutocontrast``.

    The pixels are those of Pillow's ``ImageOps.autocontrast``.

    Parameters
    ----------
    p : float, default 0.5
        Probability of the change.

    Raises
    ------
    PlanError
        By ``plan()``, if ``p`` isn't in [0, 1].

    Examples
    --------
    >>> source = sp.Arrays(image=np.arange(100, 112, dtype=np.uint8).reshape(1, 2, 2, 3))
    >>> with sp.Pipeline(source).map(sp.RandomAutocontrast(p=1.0)).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, :, :, 0].tolist())
    [[0, 85], [170, 255]]
    """

    draw_kind: ClassVar[int] = 7

    p: float = 0.5

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("autocontrast", op, self.p, [])


@dataclass(frozen=True, slots=True)
class RandomEqualize(AtRandom, ColourTransform):
    """Equalize each channel's histogram at random, like ``torchvision.transforms.v2.RandomEqualize``.

    The pixels are those of Pillow's ``ImageOps.equalize``.

    Parameters
    ----------
    p : float, default 0.5
        Probability of the change.

    Raises
    ------
    PlanError
        By ``plan()``, if ``p`` isn't in [0, 1].

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), sp.RandomEqualize()).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 8

    p: float = 0.5

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("equalize", op, self.p, [])


@dataclass(frozen=True, slots=True)
class RandomGrayscale(AtRandom, ColourTransform):
    """Make an image grey at random, like ``torchvision.transforms.v2.RandomGrayscale``.

    All three channels become the grey level of Pillow's ``convert("L")``. Images of one channel stay as they are.

    Parameters
    ----------
    p : float, default 0.1
        Probability of the change.

    Raises
    ------
    PlanError
        By ``plan()``, if ``p`` isn't in [0, 1].

    Examples
    --------
    >>> source = sp.Arrays(image=np.array([[[[255, 0, 0]]]], np.uint8))
    >>> with sp.Pipeline(source).map(sp.RandomGrayscale(p=1.0)).batch(1).loader() as loader:
    ...     print(loader.peek()["image"].tolist())
    [[[[76, 76, 76]]]]
    """

    draw_kind: ClassVar[int] = 9

    p: float = 0.1

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("grayscale", op, self.p, [])


@dataclass(frozen=True, slots=True)
class Grayscale(ColourTransform):
    """Make images grey, like ``torchvision.transforms.v2.Grayscale``.

    The grey level is that of Pillow's ``convert("L")``. To decode images as grey ones, which takes less time, use
    ``decode(channels="L")`` instead.

    Parameters
    ----------
    num_output_channels : int, default 1
        1: images get one channel. 3: they keep three channels, which become equal.

    Raises
    ------
    PlanError
        By ``plan()``, for another number, or for 3 if images have one channel.

    Examples
    --------
    >>> source = sp.Arrays(image=np.array([[[[255, 0, 0]]]], np.uint8))
    >>> with sp.Pipeline(source).map(sp.Grayscale()).batch(1).loader() as loader:
    ...     print(loader.peek()["image"].tolist())
    [[[[76]]]]
    """

    num_output_channels: int = 1

    def check(self) -> None:
        """Raise ``PlanError`` for a number of channels other than 1 and 3."""
        if self.num_output_channels not in COLOURS:
            self.refuse("num_output_channels", "1 or 3")

    def channels_after(self, channels: int) -> int:
        """Return ``num_output_channels``."""
        PixelTransform.channels_after(self, channels)
        if channels < self.num_output_channels:
            raise PlanError(
                f"{self.describe()} gets images of one channel, which are grey already: leave it out. For a model that "
                'takes three channels, expand a batch without copying it: batch["image"].expand(-1, 3, -1, -1)'
            )
        return self.num_output_channels

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("to_grey" if self.num_output_channels == 1 else "grayscale", op, 1.0, [])


@dataclass(frozen=True, slots=True)
class ColorJitter(ColourTransform):
    """Change brightness, contrast, saturation and hue at random, like ``torchvision.transforms.v2.ColorJitter``.

    The changes take place in random order, and each factor is uniform in its range. The pixels are those of
    Pillow's ``ImageEnhance``, and of torchvision's ``adjust_hue`` for Pillow images. Images of one channel have no
    saturation or hue to change.

    Parameters
    ----------
    brightness : float or (float, float), default 0
        A number b means factors from max(0, 1 − b) to 1 + b; a pair is (lowest, highest). 0 leaves it as it is.
    contrast : float or (float, float), default 0
        Likewise.
    saturation : float or (float, float), default 0
        Likewise.
    hue : float or (float, float), default 0
        A number h means turns from −h to h of the circle of hues, h at most 0.5; a pair is (lowest, highest).

    Raises
    ------
    PlanError
        By ``plan()``, for an invalid range.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), sp.ColorJitter(0.4, 0.4, 0.4, 0.1)).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 10

    brightness: Range = 0.0
    contrast: Range = 0.0
    saturation: Range = 0.0
    hue: Range = 0.0

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        _ranges(self)

    @property
    def is_random(self) -> bool:
        """True if a range has more than one value, or the order of two changes matters."""
        ranges = [low != high for low, high in self._ranges().values()]
        return len(ranges) > 1 or any(ranges)

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform: its changes in random order."""
        stages = [[_native.PixelStage(name, 0, 1.0, pair)] for name, pair in self._ranges().items()]
        return _native.PixelStage.shuffle(op, 1.0, stages)

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Return (lowest, highest) of each change that changes anything."""
        ranges = _ranges(self)
        nothing = {name: (0.0, 0.0) if name == "hue" else (1.0, 1.0) for name in ranges}
        return {name: pair for name, pair in ranges.items() if pair != nothing[name]}


@dataclass(frozen=True, slots=True)
class RandomPhotometricDistort(AtRandom, PixelTransform):
    """Change colours at random as SSD does, like ``torchvision.transforms.v2.RandomPhotometricDistort``.

    Brightness, contrast, saturation and hue are changed in this order, or contrast last, with the same probability.
    Then the channels get a random order, which may be the one that they have. Pixels are those of ``ColorJitter``.
    Images of one channel have no saturation, hue or order of channels to change.

    Parameters
    ----------
    brightness : float or (float, float), default (0.875, 1.125)
        Range of the factor, as for ``ColorJitter``.
    contrast : float or (float, float), default (0.5, 1.5)
        Likewise.
    saturation : float or (float, float), default (0.5, 1.5)
        Likewise.
    hue : float or (float, float), default (-0.05, 0.05)
        Range of the turn, as for ``ColorJitter``.
    p : float, default 0.5
        Probability of each of the five changes.

    Raises
    ------
    PlanError
        By ``plan()``, for an invalid range, or if ``p`` isn't in [0, 1].

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), sp.RandomPhotometricDistort()).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 53
    takes: ClassVar[tuple[int, ...]] = COLOURS
    in_pixels: ClassVar[tuple[str, ...] | None] = ()

    brightness: Range = (0.875, 1.125)
    contrast: Range = (0.5, 1.5)
    saturation: Range = (0.5, 1.5)
    hue: Range = (-0.05, 0.05)
    p: float = 0.5

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AtRandom.check(self)
        _ranges(self)

    @property
    def is_random(self) -> bool:
        """True unless ``p`` is 0."""
        return self.p != 0

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform: one of two orders, in which each change has its probability."""
        made = {name: _native.PixelStage(name, 0, self.p, pair) for name, pair in _ranges(self).items()}
        others = [made["saturation"], made["hue"]]
        orders = [[made["contrast"], *others], [*others, made["contrast"]]]
        permuted = _native.PixelStage("permute", 0, self.p, [])
        lists = [[made["brightness"], *order, permuted] for order in orders]
        return _native.PixelStage.choice(op, 1.0, [0.5, 1.0], lists)


@dataclass(frozen=True, slots=True)
class RandomHSV(ColourTransform):
    """Turn hues and multiply saturation and value at random, like ``RandomHSV`` of the YOLO family.

    The image is converted to OpenCV's 8-bit HSV, changed, and converted back by integers. Levels are those of
    OpenCV, or differ by 1, in about 1 of 100. Images of one channel stay as they are.

    Parameters
    ----------
    hue : float, default 0.015
        Largest turn, from 0 to 1: hues are turned by up to so many circles either way.
    saturation : float, default 0.7
        Largest change of the factor of saturation, from 0 to 1: factors are from 1 − saturation to 1 + saturation.
    value : float, default 0.4
        Likewise, of the value.

    Raises
    ------
    PlanError
        By ``plan()``, for a parameter outside [0, 1].

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.CenterCrop(32), sp.RandomHSV()).batch(4).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 56

    hue: float = 0.015
    saturation: float = 0.7
    value: float = 0.4

    @property
    def is_random(self) -> bool:
        """True unless all gains are 0."""
        return any(self._gains)

    @property
    def _gains(self) -> list[float]:
        return [self.hue, self.saturation, self.value]

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        for name, gain in zip(("hue", "saturation", "value"), self._gains, strict=True):
            if not is_number(gain) or not 0 <= gain <= 1:
                self.refuse(name, "a number from 0 to 1")

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("hsv", op, 1.0, self._gains)


def _ranges(transform: ColorJitter | RandomPhotometricDistort) -> dict[str, tuple[float, float]]:
    """Return (lowest, highest) of each change. Raises ``PlanError`` for an invalid range."""
    ranges = {
        name: _range(transform, name, middle=1.0, least=0.0, most=MOST_FACTOR)
        for name in ("brightness", "contrast", "saturation")
    }
    return {**ranges, "hue": _range(transform, "hue", middle=0.0, least=-MOST_TURN, most=MOST_TURN)}


def _range(
    transform: PixelTransform, name: str, *, middle: float, least: float, most: float
) -> tuple[float, float]:
    """Return (lowest, highest) of a parameter. Raises ``PlanError`` if it is no range in [least, most]."""
    value = getattr(transform, name)
    if is_number(value):
        if value < 0:
            transform.refuse(name, "at least 0, or a pair (lowest, highest)")
        low, high = max(middle - value, least), middle + value
    elif is_pair(value):
        low, high = value
    else:
        transform.refuse(name, "a number, or a pair (lowest, highest)")
    if not least <= low <= high <= most:
        transform.refuse(name, f"within {least:g} to {most:g}, the lowest value first")
    return float(low), float(high)
