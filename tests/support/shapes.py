"""Data sets of images with painted polygons, of which an annotation file in COCO's format has the points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from painted import annotation, written
from standpipe.source.annotations.coco import Coco


def polygon(
    random: np.random.Generator, height: int, width: int, points: int = 7
) -> list[tuple[float, float]]:
    """A polygon without thin parts, whose points are in all directions from a random place in a picture."""
    x, y = random.uniform(0.3, 0.7, 2) * (width, height)
    angles = (np.arange(points) + random.random()) * 2 * np.pi / points
    radii = random.uniform(0.2, 0.4, points) * min(height, width)
    places = np.clip(
        np.stack([x + radii * np.cos(angles), y + radii * np.sin(angles)], axis=1), 0, (width, height)
    )
    return [(round(x, 2), round(y, 2)) for x, y in places.tolist()]


def of_polygons(
    folder: Path, polygons: Sequence[Sequence[Any]], *, size: tuple[int, int], **options: Any
) -> Coco:
    """A source of PNGs of ``size``, of which image n has a white picture of ``polygons[n]``, an instance each."""
    height, width = size
    entries, annotations = [], []
    (folder / "images").mkdir(parents=True)
    for number, rings in enumerate(polygons):
        picture = Image.new("L", (8 * width, 8 * height))
        for ring in rings:
            x, y = np.array(ring).T
            box = (x.min(), y.min(), x.max(), y.max())
            annotations.append(annotation(len(annotations) + 1, number, [float(side) for side in box]))
            annotations[-1] |= {"segmentation": [[value for point in ring for value in point]]}
            ImageDraw.Draw(picture).polygon([(8 * x - 0.5, 8 * y - 0.5) for x, y in ring], 255)
        name = f"{number}.png"
        picture.resize((width, height), Image.Resampling.BOX).convert("RGB").save(folder / "images" / name)
        entries.append({"id": number, "file_name": name, "width": width, "height": height})
    return written(folder, entries, annotations, instance_masks=True, **options)
