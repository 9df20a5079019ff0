"""Resizes and letter boxes of the YOLO family, by OpenCV."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np

from standpipe.spec import UInt8Array


def resized(image: UInt8Array, height: int, width: int, interpolation: int) -> UInt8Array:
    """Resize the channels one by one, as OpenCV rounds halves in another way where it halves images of two."""
    if image.ndim == 3:
        planes = [resized(plane, height, width, interpolation) for plane in np.moveaxis(image, -1, 0)]
        return np.stack(planes, -1)
    if image.shape == (height, width):
        return image
    return np.asarray(cv2.resize(image, (width, height), interpolation=interpolation), np.uint8)


def loaded(image: UInt8Array, size: int) -> UInt8Array:
    """Return what ``load_image`` of ultralytics makes of an image."""
    height, width = image.shape[:2]
    r = size / max(height, width)
    sides = min(math.ceil(height * r), size), min(math.ceil(width * r), size)
    return resized(image, *sides, cv2.INTER_LINEAR)


def letter_boxed(
    image: UInt8Array,
    size: tuple[int, int],
    fill: Any = 114,
    *,
    scaleup: bool = True,
    center: bool = True,
    interpolation: int = cv2.INTER_LINEAR,
) -> UInt8Array:
    """Return what ``LetterBox`` of ultralytics makes of an image; a side is at least one pixel."""
    height, width = image.shape[:2]
    r = min(size[0] / height, size[1] / width)
    if not scaleup:
        r = min(r, 1.0)
    new = max(round(height * r), 1), max(round(width * r), 1)
    down, across = ((whole - side) / (2 if center else 1) for whole, side in zip(size, new, strict=True))
    top, left = (round(down - 0.1), round(across - 0.1)) if center else (0, 0)
    made = np.empty(
        (new[0] + top + round(down + 0.1), new[1] + left + round(across + 0.1), *image.shape[2:]), np.uint8
    )
    made[:] = fill
    made[top : top + new[0], left : left + new[1]] = resized(image, *new, interpolation)
    return made
