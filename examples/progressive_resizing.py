"""Train on small images first and on large ones later, with stronger augmentation as they grow.

    standpipe synth photos --images 600
    python examples/progressive_resizing.py photos --checkpoint run.pt

Early epochs of small images take a fraction of the time. The schedule is part of the pipeline: each epoch's batches
have its size, also those that are made ahead, and a run that continues from its checkpoint has the same batches.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import standpipe as sp
import standpipe.torch


def main() -> None:
    args = arguments()
    torch.manual_seed(7)
    second, third = max(args.epochs // 3, 1), max(args.epochs * 2 // 3, 2)
    size = sp.Schedule({0: args.size // 2, second: args.size * 3 // 4, third: args.size})
    magnitude = sp.Schedule({0: 3, second: 6, third: 9})
    train = standpipe.torch.loader(
        sp.Pipeline(sp.ImageFolder(args.folder))
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(size), sp.RandAugment(magnitude=magnitude), sp.Normalize())
        .batch(args.batch),
        memory="512MiB",
    )
    model = network(len(train.classes or ()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    parts: tuple[Any, ...] = (model, optimizer, train)
    done = 0
    if args.checkpoint and args.checkpoint.exists():
        done, *states = torch.load(args.checkpoint)
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)
    for epoch in range(done, args.until or args.epochs):
        begin, losses = time.perf_counter(), list[float]()
        for images, labels in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        seconds, mean, side = time.perf_counter() - begin, sum(losses) / len(losses), images.shape[-1]
        print(f"epoch {epoch}: {side} × {side} pixels, loss {mean:.4f}, {seconds:.2f} s")
        if args.checkpoint:
            torch.save((epoch + 1, *(part.state_dict() for part in parts)), args.checkpoint)


def network(classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for into, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))  # any size


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", metavar="FOLDER", help="a folder of class folders")
    parser.add_argument("--epochs", type=int, default=6, help="a third for each size (default: 6)")
    parser.add_argument("--until", type=int, metavar="EPOCH", help="end before this epoch")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--size", type=int, default=128, metavar="PX", help="side of the last epochs' images")
    parser.add_argument("--checkpoint", type=Path, help="written after each epoch, and continued from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
