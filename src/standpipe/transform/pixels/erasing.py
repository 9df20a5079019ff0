"""Erase rectangles of the finished image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.transform.image import MOST_CHANNELS, AtRandom, RowTransform, is_number

MODES = ("const", "rand", "pixel")
MOST_RECTANGLES = 64


@dataclass(frozen=True, slots=True)
class RandomErasing(AtRandom, RowTransform):
    """Erase a random rectangle, like ``torchvision.transforms.v2.RandomErasing`` and timm's ``RandomErasing``.

    It works on the finished image, so it comes after ``Normalize``, and values are normalised ones. Up to ten
    rectangles are tried until one is smaller than the image in both directions; else nothing is erased. Normal
    random numbers come from the sample's key by the inverse of their distribution (algorithm AS 241), with the
    same bits on every machine. With a device that normalises images, the CPU normalises them instead.

    Parameters
    ----------
    p : float, default 0.5
        Probability that an image loses something.
    scale : (float, float), default (0.02, 0.33)
        Range of the erased area, as a fraction of the image's.
    ratio : (float, float), default (0.3, 3.3)
        Range of a rectangle's height ÷ width, uniform in its logarithm.
    value : float, tuple of float or "random", default 0
        Value of erased places, for all channels or for each. ``"random"``: a normal random number for
        each place, as ``mode="pixel"``.
    mode : str, default "const"
        timm's modes. ``"const"``: ``value``. ``"rand"``: a normal random number for each channel of a
        rectangle. ``"pixel"``: one for each channel of each pixel.
    min_count, max_count : int, default 1 and None
        Smallest and largest number of rectangles; ``scale`` is divided by it. None: ``min_count``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, before ``Normalize``, or for random values in uint8 images.

    Examples
    --------
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> train = photos.map(sp.RandomResizedCrop(32), sp.Normalize(), sp.RandomErasing(0.25)).batch(4)
    >>> with train.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 3, 32, 32)
    """

    draw_kind: ClassVar[int] = 23

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | tuple[float, ...] | Literal["random"] = 0
    mode: Literal["const", "rand", "pixel"] = "const"
    min_count: int = 1
    max_count: int | None = None

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AtRandom.check(self)
        self.check_range("scale", 0.0, 1.0)
        self.check_range("ratio", 1e-6, 1e6)
        self.check_choice("mode", MODES)
        values = self._values
        if self.value != "random" and (len(values) != MOST_CHANNELS or not all(map(is_number, values))):
            self.refuse("value", "a number, one for each channel, or 'random'")
        self.check_integer("min_count", 1, MOST_RECTANGLES)
        if self.max_count is not None:
            self.check_integer("max_count", self.min_count, MOST_RECTANGLES)

    @property
    def is_random(self) -> bool:
        """True if ``p`` isn't 0: the rectangle is random."""
        return self.p > 0

    def erasing(self, op: int, dtype: np.dtype[np.generic]) -> _native.Erasing:
        """Return the native step. Raises ``PlanError`` for values that ``dtype`` doesn't have."""
        mode = "pixel" if self.value == "random" else self.mode
        values = [0.0] * MOST_CHANNELS if self.value == "random" else list(map(float, self._values))
        if dtype == np.uint8 and (
            mode != "const" or not all(each == int(each) and 0 <= each <= 255 for each in values)
        ):
            raise PlanError(
                f"{self.describe()} needs images of floats: put it after Normalize, or give it a level from 0 to 255"
            )
        return _native.Erasing(
            op=op,
            p=self.p,
            scale=(self.scale[0], self.scale[1]),
            ratio=(self.ratio[0], self.ratio[1]),
            count=(self.min_count, self.max_count or self.min_count),
            mode=mode,
            value=values,
        )

    @property
    def _values(self) -> Sequence[float]:
        """The values of four channels; those that images don't have are 0."""
        value: Any = self.value
        if not isinstance(value, tuple | list) or len(value) == 1:
            return [value[0] if isinstance(value, tuple | list) else value] * MOST_CHANNELS
        return [*value, *[0] * (MOST_CHANNELS - len(value))]
