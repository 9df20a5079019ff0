"""Count the distinct images of a batch of mosaics, by the kind of partners.

It makes 4,000 small images, each with a box that has the image's number, and reads one epoch. It prints the mean of the
epoch's batches, and the first batch's number. These depend on the order of records alone, and not on the machine.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from _measure import parser, report
from PIL import Image

import standpipe as sp

IMAGES, SIDE = 4000, 16
PARTNERS: tuple[sp.Recent | Literal["batch", "any"], ...] = (
    sp.Recent(128),
    sp.Recent(512),
    sp.Recent(1024),
    "batch",
    "any",
)


def main() -> None:
    args = parser(__doc__, rounds=1).parse_args()  # the photos aren't needed here
    with tempfile.TemporaryDirectory() as folder:
        source = images(Path(folder))
        rows = []
        for partners in PARTNERS:
            recipe = sp.Resize((SIDE, SIDE)), sp.Mosaic(SIDE, partners=partners)
            for size in (16, 64):
                pipeline = sp.Pipeline(source).shuffle(seed=1).map(*recipe).batch(size)
                with pipeline.loader(memory="1GiB") as loader:
                    found = [len({*batch["id"].tolist()}) for batch in loader]
                rows.append([f"{partners!r}, batches of {size}", f"{np.mean(found):.1f}", found[0]])
    report(args, ["partners", "distinct images", "of the first batch"], rows)


def images(folder: Path) -> sp.Coco:
    """Make images, and return a source of them."""
    entries, boxes = [], []
    for number in range(IMAGES):
        Image.new("RGB", (SIDE, SIDE)).save(folder / f"{number}.png")
        entries.append({"id": number, "file_name": f"{number}.png", "width": SIDE, "height": SIDE})
        place = {"bbox": [0, 0, SIDE, SIDE], "area": SIDE * SIDE, "iscrowd": 0}
        boxes.append({"id": number, "image_id": number, "category_id": 1, **place})
    content = {"images": entries, "annotations": boxes, "categories": [{"id": 1, "name": "image"}]}
    (folder / "boxes.json").write_text(json.dumps(content))
    return sp.Coco(folder, folder / "boxes.json")


if __name__ == "__main__":
    main()
