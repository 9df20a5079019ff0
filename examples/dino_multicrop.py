"""Two large and six small crops of each photo and DINO's loss (Caron et al., arXiv:2104.14294), with PyTorch.

    standpipe synth photos --images 600
    python examples/dino_multicrop.py photos --steps 50

``Views`` decodes each photo once for all eight crops. A batch has ``first`` and ``second``, (rows, 3, 64, 64), and
``small``, (rows, 6, 3, 32, 32). The transforms are those of DINO's ``main_dino.py``, whose sides are 224 and 96 pixels.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import torch
from torch import nn

import standpipe as sp

STUDENT, TEACHER = 0.1, 0.04  # temperatures


def main() -> None:
    args = arguments()
    torch.manual_seed(7)
    pipeline = sp.Pipeline(sp.ImageFolder(args.photos)).shuffle(seed=7).map(crops(64, 32))
    student = network()
    teacher = copy.deepcopy(student).requires_grad_(False)
    center = torch.zeros(1, 64)
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.002)
    losses = list[float]()
    with pipeline.batch(32, last_batch="drop").loader(memory="512MiB") as batches:
        while len(losses) < args.steps:
            for batch in batches:
                large = [torch.from_numpy(batch[name]) for name in ("first", "second")]
                small = torch.from_numpy(batch["small"]).unbind(dim=1)
                with torch.no_grad():
                    targets = [teacher(view) for view in large]
                guesses = [student(view) for view in (*large, *small)]
                loss = distilled(targets, guesses, center)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                center = 0.9 * center + 0.1 * torch.cat(targets).mean(dim=0, keepdim=True)
                for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                    old.lerp_(new.detach(), 0.05)
                losses.append(loss.item())
                if len(losses) == args.steps:
                    break
    print(f"loss of the first step {losses[0]:.3f}\nloss of the last step {losses[-1]:.3f}")


def crops(large_px: int, small_px: int) -> sp.Views:
    """DINO's crops: the first large one is always blurred, the second one seldom, but it may be solarized."""
    large = sp.RandomResizedCrop(large_px, scale=(0.4, 1.0), interpolation="bicubic")
    small = sp.RandomResizedCrop(small_px, scale=(0.05, 0.4), interpolation="bicubic")
    return sp.Views(
        first=view(large, blurred=1.0),
        second=view(large, sp.RandomSolarize(128, p=0.2), blurred=0.1),
        small=sp.Repeat(6, view(small, blurred=0.5)),
    )


def view(crop: sp.RandomResizedCrop, *more: sp.RandomSolarize, blurred: float) -> list[Any]:
    """The transforms of a crop. ``blurred``: the probability of a blur, which is Pillow's as in DINO's code."""
    return [
        crop,
        sp.RandomHorizontalFlip(),
        sp.RandomApply([sp.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
        sp.RandomGrayscale(p=0.2),
        sp.RandomApply([sp.PillowGaussianBlur((0.1, 2.0))], p=blurred),
        *more,
        sp.Normalize(),
    ]


def distilled(targets: list[torch.Tensor], guesses: list[torch.Tensor], center: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy between the teacher's large views and the student's other views."""
    wanted = [nn.functional.softmax((each - center) / TEACHER, dim=1) for each in targets]
    logs = [nn.functional.log_softmax(each / STUDENT, dim=1) for each in guesses]
    pairs = [
        -(p * log).sum(dim=1).mean() for i, p in enumerate(wanted) for j, log in enumerate(logs) if i != j
    ]
    return torch.stack(pairs).mean()


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for channels, wider in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels, wider, 3, stride=2, padding=1), nn.BatchNorm2d(wider), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("photos", metavar="PHOTOS", help="a folder of class folders")
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args()


if __name__ == "__main__":
    main()
