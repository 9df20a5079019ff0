"""Train a detector on a COCO file by torchvision's form of batches: python examples/detection_torchvision.py shapes

The network is a small one, so that it trains in seconds on a CPU; torchvision's detectors take the same images and
targets. Where there is no such folder, it makes images of bright boxes.
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

CELLS = 8  # of an image, in each direction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder for images and instances.json")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        make_shapes(folder, 128)
    crop = sp.RandomIoUCrop(), sp.RandomHorizontalFlip(), sp.Resize((64, 64)), sp.Normalize()
    train = sp.Pipeline(sp.Coco(folder, folder / "instances.json")).shuffle(seed=7)
    train = train.map(*crop, sp.SanitizeBoundingBoxes()).batch(16)
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(3, 32, 8, 8), nn.ReLU(), nn.Conv2d(32, 1, 1))  # one number for each cell
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = standpipe.torch.loader(train, targets="torchvision", memory="512MiB")
    for epoch in range(3):
        for images, targets in loader:
            found = model(torch.stack(images))[:, 0]
            wanted = torch.stack([cells(target["boxes"]) for target in targets])
            loss = nn.functional.binary_cross_entropy_with_logits(found, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


def cells(boxes: torch.Tensor) -> torch.Tensor:
    """Return 1 for each cell whose centre is in a box, (CELLS, CELLS)."""
    centres = (torch.arange(CELLS) + 0.5) * 64 / CELLS
    inside = (boxes[:, :2, None] <= centres) & (centres < boxes[:, 2:, None])  # (M, 2, CELLS)
    return (inside[:, 1, :, None] & inside[:, 0, None]).any(0).float()


def make_shapes(folder: Path, count: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(7)
    images, annotations = [], []
    for number in range(count):
        pixels = rng.integers(0, 80, (96, 128, 3), np.uint8)
        images.append({"id": number, "file_name": f"{number}.png", "width": 128, "height": 96})
        for left, top, width, height in rng.integers((0, 0, 16, 16), (90, 60, 38, 36), (3, 4)).tolist():
            pixels[top : top + height, left : left + width] += 150
            place = {"bbox": [left, top, width, height], "area": width * height, "iscrowd": 0}
            annotations.append({"id": len(annotations), "image_id": number, "category_id": 1, **place})
        Image.fromarray(pixels).save(folder / f"{number}.png")
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "box"}]}
    (folder / "instances.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main()
