"""Measure recipes with augmentations beside torchvision's transforms in PyTorch's DataLoader.

Recipes, from JPEG files to float32 batches, NCHW, normalised:

- ``randaugment``: RandomResizedCrop(224), flip, RandAugment(2, 9), Normalize, RandomErasing(0.25)
- ``simclr``: two views of each image, with RandomResizedCrop(224), flip, ColorJitter(0.8, 0.8, 0.8, 0.2) with p 0.8,
  grey with p 0.2, GaussianBlur(23) with p 0.5

Loaders are standpipe, torchvision on Pillow images (``torch``), the same on tensors after Pillow's decoding
(``tensors``), and AlbumentationsX if ``--albumentationsx`` names a Python that has it with torch, such as that of

    python -m venv peer && peer/bin/pip install torch "albumentationsx[headless]"

All loaders have the same number of workers, and files are in the page cache. Every run has its own process.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from _measure import Figure, column, in_turn, last_json, parser, ratio, report
from beside_torch import MEAN, STD, Pairs, Repeated, measured

import standpipe as sp
from standpipe.cli.bench import PeakMemory

TESTS = Path(__file__).parents[1] / "tests" / "support"  # its torchvision_cpu goes beside any torch
PEER = Path(__file__).with_name("_albumentations.py")
RECIPES = ("randaugment", "simclr")


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    arguments.add_argument("--batch", type=int, default=128, metavar="N", help="rows (default: 128)")
    arguments.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: 5)")
    arguments.add_argument(
        "--only", nargs=2, help="run a loader with a recipe here, and print one JSON object"
    )
    arguments.add_argument(
        "--albumentationsx", metavar="PYTHON", help="measure AlbumentationsX in this Python"
    )
    args = arguments.parse_args()
    if args.only is not None:
        loader, recipe = args.only
        print(json.dumps(LOADERS[loader](args.path, recipe, args.workers, args.batch, args.seconds)))
        return

    settings = ("--workers", args.workers, "--batch", args.batch, "--seconds", args.seconds)

    def alone(loader: str, recipe: str) -> dict[str, Any]:
        if loader == "albumentationsx":
            return last_json([args.albumentationsx, PEER, args.path, recipe, *settings])
        return last_json([sys.executable, __file__, args.path, "--only", loader, recipe, *settings])

    loaders = [*LOADERS, *(["albumentationsx"] if args.albumentationsx else [])]
    results = in_turn(
        args.rounds,
        {f"{loader} {recipe}": partial(alone, loader, recipe) for recipe in RECIPES for loader in loaders},
    )
    rows: list[list[Any]] = []
    for recipe in RECIPES:
        rates = {loader: column(results[f"{loader} {recipe}"], "images_per_s") for loader in loaders}
        for loader, rate in rates.items():
            faster = ratio(rates["standpipe"], rate)
            rows.append([recipe, loader, Figure(rate, ".0f"), f"{faster.median:.2f}"])
    note = f"float32, batch {args.batch}, {args.workers} workers"
    header = ["recipe", "loader", "images/s", "standpipe ÷ it"]
    report(args, header, rows, note, packages=("torch", "torchvision", "pillow"))


def measure_ours(path: str, recipe: str, workers: int, batch: int, seconds: float) -> dict[str, Any]:
    """Run standpipe's own loader."""
    memory = PeakMemory()
    crop = [sp.RandomResizedCrop(224), sp.RandomHorizontalFlip()]
    transforms: list[Any] = [*crop, sp.RandAugment(2, 9), sp.Normalize(), sp.RandomErasing(0.25)]
    if recipe == "simclr":
        view = [
            *crop,
            sp.RandomApply([sp.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            sp.RandomGrayscale(0.2),
            sp.RandomApply([sp.GaussianBlur(23)], p=0.5),
            sp.Normalize(),
        ]
        transforms = [sp.Views(a=view, b=view)]
    pipeline = sp.Pipeline(sp.ImageFolder(path)).shuffle(seed=7).map(*transforms)
    with pipeline.batch(batch, last_batch="drop").loader(num_workers=workers) as loader:
        pairs = Pairs(loader, image="a" if recipe == "simclr" else "image")
        return measured(pairs, memory, 1, seconds)


def measure_torch(
    path: str, recipe: str, workers: int, batch: int, seconds: float, *, tensors: bool = False
) -> dict[str, Any]:
    """Run torch's DataLoader over torchvision's ImageFolder, whose transforms get Pillow images or tensors."""
    sys.path.append(str(TESTS))
    import torch

    from torchvision_cpu import torchvision

    torch.set_num_threads(1)
    memory = PeakMemory()
    v2 = torchvision.transforms.v2
    augment, erasing = [v2.RandAugment(2, 9)], [v2.RandomErasing(0.25)]
    if recipe == "simclr":
        erasing = []
        augment = [
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([v2.GaussianBlur(23)], p=0.5),
        ]
    steps = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), *augment]
    steps.insert(0 if tensors else len(steps), v2.ToImage())
    finish = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), *erasing]
    view = v2.Compose([*steps, *finish])
    images = Repeated(torchvision.datasets.ImageFolder(path, Twice(view) if recipe == "simclr" else view))
    kind: Any = torch.utils.data.DataLoader
    loader = kind(
        images, batch, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=workers > 0
    )
    return measured(loader, memory, max(workers, 1), seconds)


class Twice:
    """Makes two views of each image, which was decoded once."""

    def __init__(self, view: Any) -> None:
        self.view = view

    def __call__(self, image: Any) -> tuple[Any, Any]:
        return self.view(image), self.view(image)


LOADERS: dict[str, Any] = {
    "standpipe": measure_ours,
    "torch": measure_torch,
    "tensors": partial(measure_torch, tensors=True),
}


if __name__ == "__main__":
    main()
