"""Train a network that finds depth in stereo pairs: python examples/stereo_depth.py scenes

Left and right swap where a row is mirrored. Where there is no such folder, it makes scenes: a box before a wall.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder for left.txt, right.txt and their depths")
    args = parser.parse_args()
    folder = args.folder.resolve()
    if not folder.is_dir():
        make_scenes(folder, 128)
    lists = {name: folder / f"{name}.txt" for name in ("right", "left_depth", "right_depth")}
    source = sp.FileList(folder / "left.txt", labels=False, **lists)
    pairs = ("image", "right"), ("left_depth", "right_depth")
    crop = sp.RandomCrop((32, 64)), sp.RandomHorizontalFlip(), sp.Normalize()
    train = sp.Pipeline(source).shuffle(seed=7).decode(pairs=pairs).map(*crop).batch(16)
    model = nn.Sequential(nn.Conv2d(6, 32, 9, padding=4), nn.ReLU(), nn.Conv2d(32, 1, 5, padding=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    batches = standpipe.torch.loader(train, fields=("image", "right", "left_depth"), memory="512MiB")
    for epoch in range(3):
        for left, right, depth in batches:
            loss = nn.functional.l1_loss(model(torch.cat((left, right), 1)), depth[:, None].float() / 1000)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f} m")


def make_scenes(folder: Path, count: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(7)
    for name in ("left", "right", "left_depth", "right_depth"):
        (folder / f"{name}.txt").write_text("".join(f"{name}{number}.png\n" for number in range(count)))
    for number in range(count):
        wall, top, at, shift = rng.integers(0, 256, (48, 96, 3)), *rng.integers(2, 20, 3)
        box = rng.integers(0, 256, (24, 40, 3))
        for eye, x in (("left", 20 + at), ("right", 20 + at - shift)):
            image, depth = wall.astype(np.uint8), np.full((48, 96), 4000, np.uint16)
            image[top : top + 24, x : x + 40], depth[top : top + 24, x : x + 40] = box, 4000 // shift
            Image.fromarray(image).save(folder / f"{eye}{number}.png")
            Image.fromarray(depth).save(folder / f"{eye}_depth{number}.png")


if __name__ == "__main__":
    main()
