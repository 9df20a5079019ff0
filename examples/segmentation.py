"""Train a segmentation network on images and masks, which native transforms move together.

    standpipe synth photos --images 600
    python examples/segmentation.py photos --masks masks

The recipe is that of torchvision's references. Where the folder of masks doesn't exist, the example makes some, whose
class 1 is light pixels. Padding gets the class 255, which the loss leaves out.
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
    args = arguments()
    torch.manual_seed(7)
    images, masks = lists(Path(args.folder).resolve(), Path(args.masks).resolve())
    train = (
        sp.Pipeline(sp.FileList(images, labels=False, mask=masks))
        .shuffle(seed=7)
        .map(
            sp.RandomResize(args.size * 3 // 4, args.size * 2),
            sp.RandomCrop(args.size, pad_if_needed=True),
            sp.RandomHorizontalFlip(),
            sp.ColorJitter(0.1, 0.1, 0.1),
            sp.Normalize(),
        )
        .batch(16)
    )
    batches = standpipe.torch.loader(train, fields=("image", "mask"), memory="512MiB")
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for epoch in range(args.epochs):
        right = known = 0
        for image, mask in batches:
            wanted, found = mask.long(), model(image)
            loss = nn.functional.cross_entropy(found, wanted, ignore_index=255)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            known += int((wanted != 255).sum())
            right += int((found.argmax(1) == wanted).sum())
        print(f"epoch {epoch}: accuracy {right / known:.3f}")


def lists(folder: Path, masks: Path) -> tuple[Path, Path]:
    """Write a list of the images and one of their masks, and return both paths."""
    images = sorted(folder.rglob("*.jpg"))
    there = masks.is_dir()
    masks.mkdir(exist_ok=True)
    found = [masks / f"{number:06}.png" for number in range(len(images))]
    for image, mask in [] if there else zip(images, found, strict=True):
        light = np.asarray(Image.open(image).convert("L")) > 127
        Image.fromarray(light.astype(np.uint8)).save(mask)
    for name, paths in (("images.txt", images), ("masks.txt", found)):
        (masks / name).write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    return masks / "images.txt", masks / "masks.txt"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", help="a folder of JPEGs")
    parser.add_argument("--masks", default="masks", help="the folder of their masks (default: masks)")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--size", type=int, default=64, help="side of the crops in pixels (default: 64)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
