"""Filters, which compute a pixel from its neighbours and so need the whole image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import COLOURS, AtRandom, PixelTransform, Size, is_number, is_pair

MOST_SHARP = 1e6  # 255 times this fits into a native 32-bit integer
MOST_SIGMA_PX = 1e6
MOST_RADIUS_PX = 1000


@dataclass(frozen=True, slots=True)
class RandomAdjustSharpness(AtRandom, PixelTransform):
    """Sharpen or smooth an image at random, like ``torchvision.transforms.v2.RandomAdjustSharpness``.

    The pixels are those of Pillow's ``ImageEnhance.Sharpness``. It needs the whole image in memory, so apply
    it after a crop or resize.

    Parameters
    ----------
    sharpness_factor : float
        0 smooths the image, 1 leaves it as it is, 2 doubles its sharpness. At most 1,000,000.
    p : float, default 0.5
        Probability of the change.

    Raises
    ------
    PlanError
        By ``plan()``, if the factor is negative or too large, or ``p`` isn't in [0, 1].

    Examples
    --------
    >>> image = np.full((1, 3, 3, 3), 100, np.uint8)
    >>> image[0, 1, 1] = 150
    >>> pipeline = sp.Pipeline(sp.Arrays(image=image)).map(sp.RandomAdjustSharpness(2, p=1.0)).batch(1)
    >>> with pipeline.loader() as loader:
    ...     print(loader.peek()["image"][0, 1, 1].tolist())
    [181, 181, 181]
    """

    draw_kind: ClassVar[int] = 3
    takes: ClassVar[tuple[int, ...]] = COLOURS

    sharpness_factor: float
    p: float = 0.5

    def check(self) -> None:
        """Raise ``PlanError`` for a factor outside [0, 1,000,000], or a probability outside [0, 1]."""
        AtRandom.check(self)
        if not is_number(self.sharpness_factor) or not 0 <= self.sharpness_factor <= MOST_SHARP:
            self.refuse("sharpness_factor", f"a number from 0 to {MOST_SHARP:g}; 1 leaves the image as it is")

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("sharpness", op, self.p, [self.sharpness_factor])


@dataclass(frozen=True, slots=True)
class GaussianBlur(PixelTransform):
    """Blur an image with a random deviation, like ``torchvision.transforms.v2.GaussianBlur``.

    Borders are mirrored. Values are at most one level of 255 away from torchvision's, which computes in
    float32; here the weights are integers, so every machine gives the same bits.

    Parameters
    ----------
    kernel_size : int
        Side of the square kernel in pixels: odd, up to 255.
    sigma : float or (float, float), default (0.1, 2.0)
        Standard deviation in pixels, above 0. A pair is the range of a uniform random number.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, or if half of the kernel isn't smaller than the images.

    Examples
    --------
    >>> image = np.zeros((1, 3, 3, 3), np.uint8)
    >>> image[0, 1, 1] = 160
    >>> with sp.Pipeline(sp.Arrays(image=image)).map(sp.GaussianBlur(3, 1.0)).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, 1, 1].tolist())
    [33, 33, 33]
    """

    draw_kind: ClassVar[int] = 11

    kernel_size: int
    sigma: float | tuple[float, float] = (0.1, 2.0)

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        self.check_integer("kernel_size", 1, _native.MOST_KERNEL_PX)
        if self.kernel_size % 2 == 0:
            self.refuse("kernel_size", f"odd, such as {self.kernel_size + 1}")
        low, high = _range(self.sigma)
        if not 0 < low <= high <= MOST_SIGMA_PX:
            self.refuse("sigma", "a number of pixels above 0, or a pair (lowest, highest)")

    @property
    def is_random(self) -> bool:
        """True if ``sigma`` is a range of more than one number."""
        low, high = _range(self.sigma)
        return low != high

    def size_after(self, size: Size | None) -> Size | None:
        """Return ``size``. Raises ``PlanError`` if images differ in size, or are too small for the kernel."""
        if self.kernel_size // 2 >= min(self.known(size)):
            raise PlanError(
                f"GaussianBlur(kernel_size={self.kernel_size}) needs images of more than "
                f"{self.kernel_size // 2} pixels along each side, got {size}; make the kernel smaller"
            )
        return size

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("gaussian_blur", op, 1.0, [self.kernel_size, *_range(self.sigma)])


@dataclass(frozen=True, slots=True)
class PillowGaussianBlur(PixelTransform):
    """Blur an image with Pillow's ``ImageFilter.GaussianBlur`` of a random radius, as MoCo, DINO and SwAV do.

    The pixels are Pillow's, which approximates a Gaussian by three box blurs. ``GaussianBlur`` has torchvision's
    kernel instead. Put it into ``RandomApply`` to blur only some images.

    Parameters
    ----------
    radius : float or (float, float), default (0.1, 2.0)
        Pillow's radius in pixels, which is the standard deviation: from 0 to 1000. A pair is the range of a uniform
        random number.

    Raises
    ------
    PlanError
        By ``plan()``, for an invalid radius.

    Examples
    --------
    >>> image = np.zeros((1, 3, 3, 3), np.uint8)
    >>> image[0, 1, 1] = 160
    >>> blur = sp.RandomApply([sp.PillowGaussianBlur(1.0)], p=1.0)
    >>> with sp.Pipeline(sp.Arrays(image=image)).map(blur).batch(1).loader() as loader:
    ...     print(loader.peek()["image"][0, 1, 1].tolist())
    [28, 28, 28]
    """

    draw_kind: ClassVar[int] = 48

    radius: float | tuple[float, float] = (0.1, 2.0)

    def check(self) -> None:
        """Raise ``PlanError`` for an invalid radius."""
        low, high = _range(self.radius)
        if not 0 <= low <= high <= MOST_RADIUS_PX:
            self.refuse(
                "radius", f"a number of pixels from 0 to {MOST_RADIUS_PX}, or a pair (lowest, highest)"
            )

    @property
    def is_random(self) -> bool:
        """True if ``radius`` is a range of more than one number."""
        low, high = _range(self.radius)
        return low != high

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        return _native.PixelStage("pillow_blur", op, 1.0, _range(self.radius))


def _range(value: float | tuple[float, float]) -> tuple[float, float]:
    """Return the lowest and the highest number of a parameter; (-1, -1) for what is no range."""
    pair = (value, value) if is_number(value) else value
    return (float(pair[0]), float(pair[1])) if is_pair(pair) else (-1.0, -1.0)
