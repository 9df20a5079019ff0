"""Transforms that change pixel values and need the whole image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import AtRandom, PixelTransform, is_number

MOST_SHARP = 1e6  # 255 times this fits into a native 32-bit integer


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
    ...     print(next(iter(loader))["image"][0, 1, 1].tolist())
    [181, 181, 181]
    """

    draw_kind: ClassVar[int] = 3

    sharpness_factor: float
    p: float = 0.5

    def check(self) -> None:
        """Raise ``PlanError`` for a factor outside [0, 1,000,000], or a probability outside [0, 1]."""
        AtRandom.check(self)
        if not is_number(self.sharpness_factor) or not 0 <= self.sharpness_factor <= MOST_SHARP:
            raise PlanError(
                f"RandomAdjustSharpness(sharpness_factor={self.sharpness_factor!r}): it must be a number from 0 to "
                f"{MOST_SHARP:g}, where 1 leaves the image as it is"
            )

    def stage(self, op: int) -> _native.PixelStage:
        """Return the native pass of this transform. ``op`` is its part of the key of random numbers."""
        return _native.PixelStage("sharpness", op, self.p, [self.sharpness_factor])
