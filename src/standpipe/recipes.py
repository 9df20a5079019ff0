"""Recipes of known training programs, as plain lists of transforms that you may change."""

from __future__ import annotations

from typing import cast

from standpipe.errors import PlanError
from standpipe.transform.image import ImageTransform, is_number, is_pair
from standpipe.transform.pixels.color import RandomHSV
from standpipe.transform.pixels.compositions import CutMixInstances, MixUpInstances, Mosaic, Partners, Recent
from standpipe.transform.pixels.detection import LetterBox
from standpipe.transform.pixels.element import ToLayout
from standpipe.transform.pixels.geometry import RandomHorizontalFlip, RandomVerticalFlip
from standpipe.transform.pixels.instances import SanitizeBoundingBoxes
from standpipe.transform.pixels.warps import RandomAffine
from standpipe.transform.python.schedule import Schedule

__all__ = ["yolo"]


def yolo(
    size: int = 640,
    *,
    mosaic: float | Schedule[float] = 1.0,
    mixup: float | Schedule[float] = 0.0,
    cutmix: float | Schedule[float] = 0.0,
    degrees: float = 0.0,
    translate: float = 0.1,
    scale: float | tuple[float, float] = 0.5,
    shear: float = 0.0,
    perspective: float = 0.0,
    hsv_h: float = 0.015,
    hsv_s: float = 0.7,
    hsv_v: float = 0.4,
    flipud: float = 0.0,
    fliplr: float = 0.5,
    partners: Partners | None = None,
    fill: int = 114,
) -> list[ImageTransform]:
    """Return the transforms with which the YOLO family trains detectors, for ``Pipeline.map``.

    Images become (3, size, size) uint8. Parameters have the names and defaults of ultralytics 8.4. Its last epochs have
    no mosaic: ``mosaic=sp.Schedule({0: 1.0, 90: 0.0})``, and the same for ``mixup`` and ``cutmix``.

    The list, in order: ``LetterBox(size, pad=False)`` resizes each image so that its longer side is ``size``;
    ``Mosaic``; ``RandomAffine(size=size)``; ``MixUpInstances``; ``CutMixInstances``, unless ``cutmix`` is 0;
    ``RandomHSV``; ``RandomVerticalFlip``, ``RandomHorizontalFlip``; ``SanitizeBoundingBoxes``, which drops boxes that
    the warp made too small; ``ToLayout("NCHW")``. MixUp's and CutMix's rows have two mosaics, each with its own warp.

    Parameters
    ----------
    size : int, default 640
        Height and width of the result, in pixels.
    mosaic : float or Schedule, default 1.0
        Probability of a mosaic of four images. A row without one has its own image alone, warped in the same way.
    mixup : float or Schedule, default 0.0
        Probability of a blend with another row's mosaic.
    cutmix : float or Schedule, default 0.0
        Probability of a try to put a rectangle of another row's mosaic where there are no boxes.
    degrees : float, default 0.0
        Largest angle of the rotation, either way.
    translate : float, default 0.1
        Largest translation, either way, as a part of the result's sides.
    scale : float or (float, float), default 0.5
        The factor of scale is from 1 − scale to 1 + scale; a pair gives these limits themselves.
    shear : float, default 0.0
        Largest angle of both shears in degrees, either way.
    perspective : float, default 0.0
        Largest perspective; see ``RandomAffine``.
    hsv_h, hsv_s, hsv_v : float, default 0.015, 0.7, 0.4
        Gains of hue, saturation and value; see ``RandomHSV``.
    flipud, fliplr : float, default 0.0, 0.5
        Probability of a flip upside down, and left to right.
    partners : Recent, "batch" or "any", default Recent(128)
        Where the other images of mosaics, MixUp and CutMix are from; see ``Mosaic``.
    fill : int, default 114
        Level of places where no image is.

    Raises
    ------
    PlanError
        For a scale that isn't a number below 1, from 0, or a pair; for a shear that isn't a number. By ``plan()``, for
        other invalid parameters.

    Examples
    --------
    >>> from standpipe import recipes
    >>> [type(each).__name__ for each in recipes.yolo(320)][:3]
    ['LetterBox', 'Mosaic', 'RandomAffine']
    """
    scales = (1 - scale, 1 + scale) if is_number(scale) and 0 <= scale < 1 else scale  # type: ignore[operator]
    if not is_pair(scales):
        raise PlanError(
            f"yolo(scale={scale!r}): scale must be a number from 0, and below 1, or a pair (lowest, highest)"
        )
    if not is_number(shear):
        raise PlanError(f"yolo(shear={shear!r}): shear must be a number of degrees, not below 0")
    partners = Recent() if partners is None else partners
    affine = RandomAffine(
        degrees,
        translate=(translate, translate),
        scale=(scales[0], scales[1]),
        shear=(-shear, shear, -shear, shear),
        interpolation="bilinear",
        fill=fill,
        pixels="opencv",
        size=size,
        perspective=perspective,
    )
    return [
        LetterBox(size, pad=False),
        Mosaic(size, cast("float", mosaic), partners, fill),
        affine,
        MixUpInstances(cast("float", mixup), partners=partners),
        *([] if cutmix == 0 else [CutMixInstances(cast("float", cutmix), partners)]),
        RandomHSV(hsv_h, hsv_s, hsv_v),
        RandomVerticalFlip(flipud),
        RandomHorizontalFlip(fliplr),
        SanitizeBoundingBoxes(min_size=2, min_visibility=0.1, visibility_of="warp", max_aspect=100),
        ToLayout("NCHW"),
    ]
