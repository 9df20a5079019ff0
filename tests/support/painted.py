"""Data sets of images with painted rectangles, and an annotation file in COCO's format."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import standpipe as sp
from standpipe.source.annotations.coco import Coco

LONG_AGO_NS = 1_600_000_000_123_456_789
RANDOM = [
    sp.RandomResizedCrop(48),
    sp.RandomHorizontalFlip(),
    sp.RandomRotation(30),
    sp.SanitizeBoundingBoxes(min_size=2, min_visibility=0.2),
    sp.Normalize(),
]
NAMES = ("nose", "left_eye", "right_eye")


def painted(
    folder: Path, images: int, *, most: int = 6, keypoints: bool = False, seed: int = 0, **options: Any
) -> Coco:
    """A source of images of many sizes: image n has n % (most + 1) rectangles, each of a colour of its own."""
    random = np.random.default_rng(seed)
    entries: list[dict[str, Any]] = []
    boxes: list[dict[str, Any]] = []
    (folder / "images").mkdir(parents=True)
    for number in range(images):
        height, width = (int(side) for side in random.integers(40, 120, 2))
        pixels = np.zeros((height, width, 3), np.uint8)
        for at in range(number % (most + 1)):
            left, top = int(random.integers(0, width - 12)), int(random.integers(0, height - 12))
            right, bottom = (
                int(random.integers(left + 8, width + 1)),
                int(random.integers(top + 8, height + 1)),
            )
            pixels[top:bottom, left:right] = random.integers(120, 256, 3)
            boxes.append(annotation(len(boxes) + 1, number, (left, top, right, bottom), 1 + at % 3))
            if keypoints:
                places = [(left + 1, top + 1, 2), (left, bottom, 1), (right, bottom, 2)]
                boxes[-1] |= {"keypoints": [value for place in places for value in place], "num_keypoints": 3}
        name = f"{number:04d}.jpg"
        Image.fromarray(pixels).save(folder / "images" / name, quality=95, subsampling=0)
        entries.append({"id": number, "file_name": name, "width": width, "height": height})
    return written(folder, entries, boxes, keypoints=keypoints, **options)


def annotation(number: int, image: int, box: Sequence[float], category: int = 1) -> dict[str, Any]:
    """An annotation as COCO's format has it. ``box``: xyxy in pixels."""
    left, top, right, bottom = box
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": [left, top, right - left, bottom - top],
        "iscrowd": 0,
        "area": (right - left) * (bottom - top),
    }


def written(
    folder: Path,
    images: Sequence[dict[str, Any]],
    annotations: Sequence[dict[str, Any]],
    *,
    keypoints: bool = False,
    **options: Any,
) -> Coco:
    """The source of an annotation file with these entries, of images in ``folder / "images"``."""
    more = {"keypoints": list(NAMES), "skeleton": []} if keypoints else {}
    categories = [{"id": number, "name": name, **more} for number, name in ((1, "a"), (2, "b"), (3, "c"))]
    file = folder / "instances.json"
    file.write_text(
        json.dumps({"images": list(images), "annotations": list(annotations), "categories": categories})
    )
    os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return Coco(folder / "images", file, **options)
