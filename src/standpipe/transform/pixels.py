"""Transforms that change the pixels of the whole image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import AtRandom, PixelTransform, is_number

MOST_SHARP = 1e6  # 255 of these fit a native 32-bit integer


@dataclass(frozen=True, slots=True)
class RandomAdjustSharpness(AtRandom, PixelTransform):
    """The image made sharper or smoother with probability ``p``: torchvision.transforms.v2.RandomAdjustSharpness.

    sharpness_factor  0 smooths the image, 1 leaves it as it is, 2 doubles its sharpness

    The pixels are those of Pillow's ``ImageEnhance.Sharpness``.
    """

    draw_kind: ClassVar[int] = 3

    sharpness_factor: float
    p: float = 0.5

    def check(self) -> None:
        """Raise ``PlanError`` for a negative factor, or a probability outside [0, 1]."""
        AtRandom.check(self)
        if not is_number(self.sharpness_factor) or not 0 <= self.sharpness_factor <= MOST_SHARP:
            raise PlanError(
                f"RandomAdjustSharpness(sharpness_factor={self.sharpness_factor!r}): a number from 0 to "
                f"{MOST_SHARP:g}, where 1 leaves the image as it is"
            )

    def stage(self, op: int) -> _native.PixelStage:
        """Return the native stage."""
        return _native.PixelStage("sharpness", op, self.p, [self.sharpness_factor])
