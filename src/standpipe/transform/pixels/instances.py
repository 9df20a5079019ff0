"""Transforms that drop or limit the instances of an image, and leave its pixels as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from standpipe.spec import Float32Array
from standpipe.transform.image import ImageTransform, is_number


class InstanceTransform(ImageTransform):
    """The base class of transforms of instances. They may come after ``Normalize``."""

    __slots__ = ()
    in_pixels: ClassVar[tuple[str, ...] | None] = ()


@dataclass(frozen=True, slots=True)
class ClampBoundingBoxes(InstanceTransform):
    """Limit boxes to their picture, like ``torchvision.transforms.v2.ClampBoundingBoxes``.

    Every transform that moves pixels does so already: boxes are always inside their picture.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32), sp.ClampBoundingBoxes())
    """


@dataclass(frozen=True, slots=True)
class SanitizeBoundingBoxes(InstanceTransform):
    """Drop instances whose box is too small, like ``torchvision.transforms.v2.SanitizeBoundingBoxes``.

    An instance is dropped from all fields. Put it after all transforms that move pixels. Boxes are limited to the
    picture first, as torchvision's references do by ``ClampBoundingBoxes``. Without it, the batch also has
    the empty boxes of instances that were cut off.

    Parameters
    ----------
    min_size : float, default 1
        Least width, and least height, in pixels of the result.
    min_area : float, default 1
        Least area, in pixels of the result.
    min_visibility : float, default 0
        Least fraction of the box's area that is still in the picture. The area is that of the box as transforms moved
        it, had nothing been cut off. The YOLO family calls it ``area_thr`` and drops boxes below 0.1.

    Raises
    ------
    PlanError
        By ``plan()``, for an invalid parameter, and before a transform that moves pixels.

    Examples
    --------
    >>> crop = [sp.RandomResizedCrop(32), sp.SanitizeBoundingBoxes(min_size=2, min_visibility=0.1)]
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(*crop)
    """

    min_size: float = 1.0
    min_area: float = 1.0
    min_visibility: float = 0.0

    def check(self) -> None:
        """Raise ``PlanError`` for an invalid parameter."""
        for name in ("min_size", "min_area"):
            if not is_number(getattr(self, name)) or getattr(self, name) < 1:
                self.refuse(name, "a number of at least 1")
        if not is_number(self.min_visibility) or not 0 <= self.min_visibility <= 1:
            self.refuse("min_visibility", "a fraction from 0 to 1")

    def keeps(self, boxes: Float32Array, whole: NDArray[np.float64] | None) -> NDArray[np.bool_]:
        """Return which boxes stay, (n,) bool.

        boxes  (n, 4) xyxy in pixels, inside the picture
        whole  (n, 4) the same boxes, had nothing been cut off; only with ``min_visibility``
        """
        width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        kept: NDArray[np.bool_] = (width >= self.min_size) & (height >= self.min_size)
        kept &= width * height >= self.min_area
        if whole is not None:
            of_whole = (whole[:, 2] - whole[:, 0]) * (whole[:, 3] - whole[:, 1])
            kept &= width * height >= self.min_visibility * of_whole
        return kept
