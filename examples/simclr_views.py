"""Two views of each photo and SimCLR's contrastive loss (Chen et al., arXiv:2002.05709), with PyTorch.

    standpipe synth photos --images 600
    python examples/simclr_views.py photos --steps 50

``Views`` decodes each photo once and makes both views of it, each with random numbers of its own.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import standpipe as sp

SIDE_PX = 64
TEMPERATURE = 0.5


def main() -> None:
    args = arguments()
    torch.manual_seed(7)
    view = [
        sp.RandomResizedCrop(SIDE_PX, scale=(0.2, 1.0)),
        sp.RandomHorizontalFlip(),
        sp.RandomApply([sp.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
        sp.RandomGrayscale(p=0.2),
        sp.RandomApply([sp.GaussianBlur(7)], p=0.5),
        sp.Normalize(),
    ]
    pipeline = sp.Pipeline(sp.ImageFolder(args.photos)).shuffle(seed=7).map(sp.Views(a=view, b=view))
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    losses: list[float] = []
    with pipeline.batch(args.batch, last_batch="drop").loader(memory="512MiB") as batches:
        while len(losses) < args.steps:
            for batch in batches:
                first, second = (model(torch.from_numpy(batch[name])) for name in ("a", "b"))
                loss = contrastive(first, second)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                if len(losses) == args.steps:
                    break
    some = max(args.steps // 4, 1)
    print(f"loss of the first {some} steps {sum(losses[:some]) / some:.3f}")
    print(f"loss of the last {some} steps {sum(losses[-some:]) / some:.3f}")


def contrastive(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Cross entropy of finding the other view of a photo among all views of the batch."""
    both = nn.functional.normalize(torch.cat([first, second]), dim=1)
    alike = both @ both.T / TEMPERATURE
    alike.fill_diagonal_(-torch.inf)
    return nn.functional.cross_entropy(alike, torch.arange(len(both)).roll(len(first)))


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for channels, wider in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels, wider, 3, stride=2, padding=1), nn.BatchNorm2d(wider), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 32))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("photos", metavar="PHOTOS", help="a folder of class folders")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    return parser.parse_args()


if __name__ == "__main__":
    main()
