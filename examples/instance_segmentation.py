"""Train a network that finds the pixels of each object, on a COCO file: python examples/instance_segmentation.py shapes

Polygons of the annotations move with their images, and are drawn at a quarter of the size when a batch is put together.
The network gives each cell the distances to the centre of its object, so that cells of one object meet. Where there is
no such folder, it makes images of bright triangles.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

import standpipe as sp
import standpipe.torch

SIDE, RATIO = 64, 4  # pixels of an image, and of a cell of its masks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder for images and instances.json")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        make_triangles(folder, 128)
    source = sp.Coco(folder, folder / "instances.json", instance_masks=True)
    warp = sp.RandomAffine(30, scale=(0.7, 1.2), interpolation="bilinear", pixels="opencv", size=SIDE)
    recipe = warp, sp.RandomHorizontalFlip(), sp.Normalize(), sp.SanitizeBoundingBoxes(min_size=RATIO)
    train = sp.Pipeline(source).shuffle(seed=7).map(*recipe)
    train = train.batch(16, masks="dense", mask_ratio=RATIO, boxes_from="shape")
    torch.manual_seed(7)
    first, second = nn.Conv2d(3, 32, RATIO, RATIO), nn.Conv2d(32, 32, 5, padding=2)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(32, 3, 5, padding=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    loader = standpipe.torch.loader(train, targets="torchvision", memory="512MiB")
    for epoch in range(4):
        for images, targets in loader:
            inside, centres = (torch.stack(each) for each in zip(*map(cells, targets), strict=True))
            found = model(torch.stack(images))
            loss = nn.functional.binary_cross_entropy_with_logits(found[:, 0], inside)
            loss = loss + ((found[:, 1:] - centres).abs() * inside[:, None]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


def cells(target: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1 for each cell in an object, (H, W), and the way to its object's centre, (2, H, W), in sides."""
    masks, boxes = target["masks"].float(), target["boxes"] / SIDE
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    places = torch.stack(torch.meshgrid(*2 * [torch.arange(SIDE // RATIO)], indexing="xy"))
    ways = centres[:, :, None, None] - (places + 0.5) * RATIO / SIDE
    first = masks * (masks.cumsum(0) == 1)  # of two objects at one place, the first
    return first.sum(0), (first[:, None] * ways).sum(0)


def make_triangles(folder: Path, count: int) -> None:
    folder.mkdir()
    rng, images, annotations = np.random.default_rng(7), [], []
    for number in range(count):
        picture = Image.fromarray(rng.integers(0, 80, (96, 128, 3), np.uint8))
        images.append({"id": number, "file_name": f"{number}.png", "width": 128, "height": 96})
        for x, y, side in rng.integers((0, 0, 24), (90, 60, 38), (3, 3)).tolist():
            corners = [x, y, x + side, y + side // 3, x + side // 3, y + side]
            ImageDraw.Draw(picture).polygon(corners, fill=(200, 220, 150))
            place = {"bbox": [x, y, side, side], "area": side * side / 3, "segmentation": [corners]}
            annotations.append({"id": len(annotations), "image_id": number, "category_id": 1} | place)
        picture.save(folder / f"{number}.png")
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "triangle"}]}
    (folder / "instances.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main()
