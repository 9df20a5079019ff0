"""Train a small network on MNIST's files, whose images have one channel.

``python examples/mnist.py mnist`` takes the folder of train-images-idx3-ubyte and the three other files, decompressed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import standpipe as sp
import standpipe.torch

NORMALIZE = sp.Normalize(mean=(0.1307,), std=(0.3081,))
CROP = (sp.RandomCrop(28, padding=2), sp.RandomAffine(10, scale=(0.9, 1.1), interpolation="bilinear"))


def files(folder: Path, part: str) -> sp.Pipeline:
    images, labels = folder / f"{part}-images-idx3-ubyte", folder / f"{part}-labels-idx1-ubyte"
    return sp.Pipeline(sp.IdxFiles(image=images, label=labels, image_axes="HW"))


def network(width: int) -> nn.Sequential:
    first, second = nn.Conv2d(1, width, 3, 2, 1), nn.Conv2d(width, 2 * width, 3, 2, 1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(98 * width, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name, default in (("epochs", 3), ("batch", 512), ("width", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.manual_seed(7)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = network(args.width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    train = files(args.folder, "train").shuffle(seed=7).map(*CROP, NORMALIZE).batch(args.batch)
    test = files(args.folder, "t10k").map(NORMALIZE).batch(args.batch, last_batch="partial")
    with (
        standpipe.torch.loader(train, device=device) as batches,
        standpipe.torch.loader(test, device=device) as tests,
    ):
        for epoch in range(args.epochs):
            for images, labels in batches:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                right = [(model(images).argmax(1) == labels).float() for images, labels in tests]
            print(f"epoch {epoch}: test accuracy {torch.cat(right).mean().item():.3f}")


if __name__ == "__main__":
    main()
