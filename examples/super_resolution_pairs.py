"""Train a super-resolution network on pairs of images, whose crops are at the same places.

    python examples/super_resolution_pairs.py photos

Where the folder of pairs doesn't exist, the example makes small images: a quarter of the size, as DIV2K's are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image
from torch import nn

import standpipe as sp
import standpipe.torch

SCALE = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", help="a folder of JPEGs")
    parser.add_argument("--pairs", default="pairs", help="the folder of pairs (default: pairs)")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    args = parser.parse_args()
    pairs = Path(args.pairs).resolve()
    if not pairs.is_dir():
        make_pairs(sorted(Path(args.folder).rglob("*.jpg")), pairs)
    source = sp.ImageFolder(pairs / "high", small=pairs / "small")
    train = sp.Pipeline(source).shuffle(seed=7).decode(scale={"small": 1 / SCALE})
    crop = sp.RandomCrop(64, pad_if_needed=True)
    train = train.map(crop, sp.RandomHorizontalFlip(), sp.ToDtype("float32", scale=True)).batch(16)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3 * SCALE**2, 3, padding=1)]
    model = nn.Sequential(*layers, nn.PixelShuffle(SCALE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for epoch in range(args.epochs):
        for small, high in standpipe.torch.loader(train, fields=("small", "image"), memory="512MiB"):
            loss = nn.functional.l1_loss(model(small), high)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


def make_pairs(photos: list[Path], pairs: Path) -> None:
    for name in ("high", "small"):
        (pairs / name).mkdir(parents=True)
    for number, path in enumerate(photos):
        with Image.open(path) as photo:
            small = photo.width // SCALE, photo.height // SCALE
            high = photo.crop((0, 0, small[0] * SCALE, small[1] * SCALE))
        high.save(pairs / "high" / f"{number:04}.png")
        high.resize(small, Image.Resampling.BICUBIC).save(pairs / "small" / f"{number:04}.png")


if __name__ == "__main__":
    main()
