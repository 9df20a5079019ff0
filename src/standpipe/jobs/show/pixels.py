"""Values of image fields as pixels that can be drawn, and masks over images."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np

from standpipe.contracts import Transform
from standpipe.errors import PlanError
from standpipe.spec import KINDS, AnyArray, UInt8Array
from standpipe.transform.kernels.views import Views, transforms_of
from standpipe.transform.pixels.element import Normalize, ToDtype

NOTHING, IGNORED = 0, 255  # class numbers of a mask: usually the background, and pixels without a class


def pictures_of(
    values: Sequence[Any], name: str, transforms: Sequence[Transform], view: str = ""
) -> list[list[UInt8Array]]:
    """Return the pictures of a field, (H, W, 3) uint8: one per sample, or as many as it has views.

    values      the field's value in each sample
    transforms  those that made it
    view        name of the view that it belongs to; an empty one: ``name``
    """
    images = [_separate(np.asarray(value), name) for value in values]
    if all(each.dtype == np.uint8 for row in images for each in row):
        return [[np.ascontiguousarray(each) for each in row] for row in images]
    floats = [[each.astype(np.float32) for each in row] for row in images]
    path = list(_path(transforms, view or name))
    normalize = next((each for each in path if isinstance(each, Normalize)), None)
    scaled = next((each.scale for each in path if isinstance(each, ToDtype)), True)
    if normalize is not None:
        mean, std = np.asarray(normalize.mean, np.float32), np.asarray(normalize.std, np.float32)
        return [[_bytes((each * std + mean) * 255) for each in row] for row in floats]
    finite = [np.nan_to_num(each, posinf=0, neginf=0) for row in floats for each in row]
    least, most = min(each.min() for each in finite), max(each.max() for each in finite)
    white = np.float32(1 if scaled else 255)
    low, high = (np.float32(0), white) if least >= 0 and most <= white else (least, most)
    return [[_bytes((each - low) * (255 / max(high - low, 1e-12))) for each in row] for row in floats]


def painted(pictures: Sequence[UInt8Array], mask: AnyArray) -> list[UInt8Array]:
    """Return the pictures of a sample with their masks over them, half transparent: one colour per class number.

    mask  the sample's mask, (H, W), or those of its views, (views, H, W)
    """
    masks = mask if mask.ndim == 3 and len(mask) == len(pictures) else [mask] * len(pictures)
    return [_painted(image, each) for image, each in zip(pictures, masks, strict=True)]


def _painted(image: UInt8Array, mask: AnyArray) -> UInt8Array:
    if mask.shape != image.shape[:2] or mask.dtype.kind not in "iub":
        raise PlanError(
            f"show() draws masks (H, W) of class numbers, but the mask is {mask.dtype} of shape {mask.shape} beside "
            f"an image of shape {image.shape}"
        )
    colours = class_colours()[mask.astype(np.uint8)]
    return np.where((mask == NOTHING)[..., None], image, image // 2 + colours // 2).astype(np.uint8)


def _path(transforms: Sequence[Transform], name: str) -> Sequence[object]:
    """Return the transforms that made a field: those of its view where ``Views`` are."""
    path: list[object] = []
    for each in transforms:
        path += transforms_of(each.views[name]) if isinstance(each, Views) else [each]
    return path


def _separate(value: AnyArray, name: str) -> list[AnyArray]:
    """Return the images of one value, each (H, W, 3). Raises ``PlanError`` if it isn't one or several images."""
    views = list(value) if value.ndim == 4 else [value]
    found = []
    for view in views:
        image = view[..., None] if view.ndim == 2 else view
        if image.ndim == 3 and image.shape[2] not in KINDS and image.shape[0] in KINDS:
            image = np.moveaxis(image, 0, 2)
        if image.ndim != 3 or image.shape[2] not in KINDS or 0 in image.shape or image.dtype.kind not in "fu":
            raise PlanError(
                f"show() draws images (H, W, C) or (C, H, W) of uint8 or floats, with 1 to 4 channels, but "
                f"the field {name!r} has {value.dtype} of shape {value.shape}"
            )
        seen = image[..., :3] if image.shape[2] > 2 else image[..., :1]  # without alpha
        found.append(np.broadcast_to(seen, (*image.shape[:2], 3)))
    if not found:
        raise PlanError(f"show() draws images, but the field {name!r} has none: its shape is {value.shape}")
    return found


def _bytes(values: AnyArray) -> UInt8Array:
    rounded: UInt8Array = np.clip(np.rint(np.nan_to_num(values)), 0, 255).astype(np.uint8)
    return rounded


def class_colours() -> UInt8Array:
    """Return the colour of each class number, (256, 3) uint8: hues far apart for neighbours, white for 255."""
    golden = 0.618034
    rgb = [colorsys.hsv_to_rgb((number - 1) * golden % 1, 1, 1) for number in range(256)]
    colours: UInt8Array = np.rint(np.array(rgb) * 255).astype(np.uint8)
    colours[IGNORED] = 255
    return colours
