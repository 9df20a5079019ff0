"""Transforms that drop or limit the instances of an image, and leave its pixels as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from standpipe.spec import Float32Array, Float64Array
from standpipe.transform.image import ImageTransform, is_number

Visibility = Literal["source", "warp"]


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

    An instance is dropped from all fields; one that equals a limit stays. Put it after all transforms that move pixels.
    Boxes are limited to the picture first, as torchvision's references do by ``ClampBoundingBoxes``. Without it, the
    batch also has the empty boxes of instances that were cut off.

    Parameters
    ----------
    min_size : float, default 1
        Least width, and least height, in pixels of the result.
    min_area : float, default 1
        Least area, in pixels of the result.
    min_visibility : float, default 0
        Least fraction of the box's area that is still in the picture: ``area_thr`` of the YOLO family, 0.1 there.
    visibility_of : str, default "source"
        The area of which it is a fraction. ``"source"``: that of the box as transforms moved it, had nothing been cut
        off. ``"warp"``, the YOLO family's: that of the box in front of the last warp, such as ``RandomAffine``, times
        the factor by which the warp changes areas. What earlier transforms cut off doesn't count, nor do the corners
        that a turned box gains.
    max_aspect : float, optional
        Largest longer side ÷ shorter side: ``ar_thr`` of the YOLO family, 100 there. Default: any.

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
    visibility_of: Visibility = "source"
    max_aspect: float | None = None

    def check(self) -> None:
        """Raise ``PlanError`` for an invalid parameter."""
        for name in ("min_size", "min_area"):
            if not is_number(getattr(self, name)) or getattr(self, name) < 1:
                self.refuse(name, "a number of at least 1")
        if not is_number(self.min_visibility) or not 0 <= self.min_visibility <= 1:
            self.refuse("min_visibility", "a fraction from 0 to 1")
        self.check_choice("visibility_of", get_args(Visibility))
        if self.max_aspect is not None and (not is_number(self.max_aspect) or self.max_aspect < 1):
            self.refuse("max_aspect", "None, or a number of at least 1")

    def keeps(self, boxes: Float32Array, whole: Float64Array | None) -> NDArray[np.bool_]:
        """Return which boxes stay, (n,) bool.

        boxes  (n, 4) xyxy in pixels, inside the picture
        whole  (n,) the areas of which ``min_visibility`` is a fraction; only with it
        """
        width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        kept: NDArray[np.bool_] = (width >= self.min_size) & (height >= self.min_size)
        kept &= width * height >= self.min_area
        if whole is not None:
            kept &= width * height >= self.min_visibility * whole
        if self.max_aspect is not None:
            kept &= np.maximum(width, height) <= self.max_aspect * np.minimum(width, height)
        return kept
