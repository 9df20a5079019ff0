"""Train a network that finds the left and right end of a bar: python examples/keypoints.py bars

COCO's categories name keypoints, so standpipe knows that left_end and right_end swap where an image is mirrored. Where
there is no such folder, it makes images of bars whose left end is red and whose right end is green.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import standpipe as sp
import standpipe.torch

NAMES = ["left_end", "right_end"]
COLOURS = ((255, 60, 60), (60, 255, 60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder for images and keypoints.json")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        make_bars(folder, 128)
    train = sp.Pipeline(sp.Coco(folder, folder / "keypoints.json")).shuffle(seed=7)
    moves = sp.RandomHorizontalFlip(), sp.RandomCrop((64, 96)), sp.Normalize()
    train = train.map(*moves).batch(16, instances=sp.Pad(length=1))
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(3, 16, 7, padding=3), nn.ReLU(), nn.Conv2d(16, len(NAMES), 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    fields = "image", "keypoints"
    loader = standpipe.torch.loader(train, fields=fields, memory="512MiB")
    for epoch in range(3):
        for images, keypoints in loader:
            points = keypoints[:, 0]  # (rows, K, 3): x, y and visibility of the only instance
            error = (places(model(images)) - points[..., :2]).abs().sum(-1)
            loss = error[points[..., 2] > 0].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.1f} px")


def places(maps: torch.Tensor) -> torch.Tensor:
    """Return the mean place of each heat map, (rows, K, 2): x and y in pixels."""
    rows, points, height, width = maps.shape
    heat = maps.flatten(2).softmax(2).reshape(rows, points, height, width)
    x, y = torch.arange(width) + 0.5, torch.arange(height) + 0.5
    return torch.stack([(heat.sum(2) * x).sum(-1), (heat.sum(3) * y).sum(-1)], -1)


def make_bars(folder: Path, count: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(7)
    images, annotations = [], []
    for number in range(count):
        pixels = rng.integers(0, 60, (80, 120, 3), np.uint8)
        x, y, length = rng.integers((20, 20, 30), (40, 60, 50)).tolist()
        pixels[y - 2 : y + 2, x : x + length] += 90
        for place, colour in zip((x, x + length), COLOURS, strict=True):
            pixels[y - 4 : y + 4, place - 4 : place + 4] = colour
        Image.fromarray(pixels).save(folder / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": 120, "height": 80})
        points = {"keypoints": [x, y, 2, x + length, y, 2], "num_keypoints": 2}
        place = {"bbox": [x, y - 4, length, 8], "area": length * 8, "iscrowd": 0}
        annotations.append({"id": number, "image_id": number, "category_id": 1, **place, **points})
    categories = [{"id": 1, "name": "bar", "keypoints": NAMES, "skeleton": [[1, 2]]}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "keypoints.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main()
