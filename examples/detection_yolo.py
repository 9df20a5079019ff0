"""Train a detector on the YOLO family's mosaics and form of batches: python examples/detection_yolo.py shapes

The transforms are those of ultralytics, and the last epoch has no mosaics. The network is a small one, so that it
trains in seconds on a CPU; models of the family take the same batches. Where there is no such folder, it makes images
of bright boxes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import standpipe as sp
import standpipe.torch

SIDE, CELLS, EPOCHS = 64, 8, 4  # pixels of an image, and cells, in each direction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder for images/ and labels/")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        make_shapes(folder, 128)
    recipe = sp.recipes.yolo(SIDE, mosaic=sp.Schedule({0: 1.0, EPOCHS - 1: 0.0}), mixup=0.1)
    train = sp.Pipeline(sp.YoloLabels(folder)).shuffle(seed=7).map(*recipe).batch(16)
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(3, 32, 8, 8), nn.ReLU(), nn.Conv2d(32, 1, 1))  # one number for each cell
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = standpipe.torch.loader(train, targets="yolo", memory="512MiB")
    for epoch in range(EPOCHS):
        for batch in loader:
            found = model(batch["img"].float() / 255)[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(found, cells(batch, found))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


def cells(batch: dict[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Return 1 for each cell whose centre is in a box, (rows, CELLS, CELLS)."""
    centres = (torch.arange(CELLS) + 0.5) / CELLS
    middle, sides = batch["bboxes"][:, :2, None], batch["bboxes"][:, 2:, None]
    inside = ((centres - middle).abs() < sides / 2).float()  # (boxes, 2, CELLS)
    each = inside[:, 1, :, None] * inside[:, 0, None]
    return torch.zeros_like(like).index_add_(0, batch["batch_idx"].long(), each).clamp(max=1)


def make_shapes(folder: Path, count: int) -> None:
    rng, (height, width) = np.random.default_rng(7), (96, 128)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for number in range(count):
        pixels, lines = rng.integers(0, 80, (height, width, 3), np.uint8), []
        for left, top, w, h in rng.integers((0, 0, 16, 16), (90, 60, 38, 36), (3, 4)).tolist():
            pixels[top : top + h, left : left + w] += 150
            place = (left + w / 2) / width, (top + h / 2) / height, w / width, h / height
            lines.append(" ".join(["0", *(f"{value:.6f}" for value in place)]))
        Image.fromarray(pixels).save(folder / f"images/{number}.png")
        (folder / f"labels/{number}.txt").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
