"""Train a small DETR on a COCO file, with images of differing size: python examples/detection_detr.py shapes

A batch is padded to its largest image; a mask says where, and attention leaves the padding out. Where there is no such
folder, it makes images of bright boxes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from detection_torchvision import make_shapes
from torch import nn

import standpipe as sp
import standpipe.torch

QUERIES, PATCH, WIDTH = 6, 16, 64


class SmallDetr(nn.Module):
    """Attention from a few queries to patches of 16 × 16 pixels; each query answers a box and whether it is one."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.places = nn.Linear(2, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.queries = nn.Parameter(torch.randn(QUERIES, WIDTH))
        self.answer = nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 5))

    def forward(self, images: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.patches(images).flatten(2).mT
        mask = mask[:, ::PATCH, ::PATCH]
        y, x = (~mask).cumsum(1), (~mask).cumsum(2)  # of each patch, in its own image
        sides = torch.stack([x.amax((1, 2)), y.amax((1, 2))], -1)[:, None]
        found = found + self.places(torch.stack([x, y], -1).flatten(1, 2) / sides)
        queries = self.queries.expand(len(images), -1, -1)
        seen, _ = self.attention(queries, found, found, key_padding_mask=mask.flatten(1))
        answer = self.answer(seen)
        return answer[..., :4].sigmoid(), answer[..., 4]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder for images and instances.json")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        make_shapes(folder, 128)
    sizes = sp.RandomShortestSize(min_size=(64, 80, 96), max_size=128)
    train = sp.Pipeline(sp.Coco(folder, folder / "instances.json")).shuffle(seed=7)
    train = train.map(sp.RandomHorizontalFlip(), sizes, sp.Normalize(), sp.SanitizeBoundingBoxes())
    padded = sp.Pad(to_multiple_of=PATCH, max_shape=(3, 128, 128))
    train = train.batch(16, collate={"image": padded})
    torch.manual_seed(7)
    model = SmallDetr()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0005)
    loader = standpipe.torch.loader(train, targets="detr", memory="512MiB")
    for epoch in range(6):
        losses = []
        for images, mask, targets in loader:
            boxes, scores = model(images, mask)
            loss = sum(map(loss_of, boxes, scores, targets)) / len(targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")


def loss_of(boxes: torch.Tensor, scores: torch.Tensor, target: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the loss of an image: each of its boxes is compared with the nearest query's."""
    distance, nearest = torch.cdist(target["boxes"], boxes, 1).min(1)
    wanted = torch.zeros_like(scores).index_fill(0, nearest, 1.0)
    return distance.sum() / QUERIES + nn.functional.binary_cross_entropy_with_logits(scores, wanted)


if __name__ == "__main__":
    main()
