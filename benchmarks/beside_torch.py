"""Measure rate, memory and start of the standard task beside PyTorch's DataLoader.

The task: read a JPEG file, RandomResizedCrop(224), a flip with probability 1/2, ImageNet's normalisation, NCHW
float32, batches of 256 in host memory, two workers each. Files are in the page cache. standpipe runs twice: with its
own loader, without importing torch, and with standpipe.torch.loader. PyTorch runs torchvision's ImageFolder and
transforms where torchvision works, else the same steps in Pillow and torch. Every run has its own process. Images/s
exclude the first batches. Peak PSS is that of the process and its workers, read from smaps_rollup four times a second.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import MIB, Figure, bench, column, in_turn, last_json, parser, ratio, report, train_task
from PIL import Image

import standpipe as sp
from standpipe.cli.bench import PeakMemory, seconds_since_process_start

ROWS = 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="workers of each loader (default: 2)"
    )
    arguments.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="seconds per run (default: 5)"
    )
    arguments.add_argument(
        "--only", choices=MEASURES, help="run one of them in this process, and print one JSON object"
    )
    args = arguments.parse_args()
    if args.only is not None:
        print(json.dumps(MEASURES[args.only](args.path, args.workers, args.seconds)))
        return
    settings = ("--workers", args.workers, "--seconds", args.seconds)

    def alone(name: str) -> dict[str, Any]:
        return last_json([sys.executable, __file__, args.path, "--only", name, *settings])

    results = in_turn(
        args.rounds,
        {
            "standpipe": lambda: bench(args.path, "--batch", ROWS, *settings),
            **{name: partial(alone, name) for name in MEASURES},
        },
    )
    keys = {
        "images/s": ("images_per_s", ".0f"),
        "peak PSS MiB": ("peak_pss_mib", ".0f"),
        "first batch s": ("first_batch_s", ".2f"),
    }
    rows: list[list[Any]] = [
        [name, *(Figure(column(runs, key), form) for key, form in keys.values())]
        for name, runs in results.items()
    ]
    for name in ("standpipe", "standpipe.torch"):
        ratios = [
            ratio(column(results[name], key), column(results["torch"], key)) for key, _ in keys.values()
        ]
        rows.append([f"{name} ÷ torch", *(f"{figure.median:.2f}" for figure in ratios)])
    transforms = results["torch"][0]["transforms"]
    note = f"train, float32, batch {ROWS}, {args.workers} workers; torch's transforms: {transforms}"
    report(args, ["", *keys], rows, note, packages=("torch", "pillow"))


def measure_torch(path: str, workers: int, seconds: float) -> dict[str, Any]:
    """Run torch's DataLoader in this process; return the same figures as ``standpipe bench``."""
    import torch

    torch.set_num_threads(1)
    memory = PeakMemory()
    images, transforms = torchvision_images(path) or (PillowImages(listed(path)), "Pillow and torch")
    kind: Any = torch.utils.data.DataLoader
    loader = kind(
        Repeated(images),
        ROWS,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
    )
    # The workers start at the same time, so one batch of each arrives at about the same time: count them together.
    return {**measured(loader, memory, max(workers, 1), seconds), "transforms": transforms}


def measure_ours(path: str, workers: int, seconds: float) -> dict[str, Any]:
    """Run ``standpipe.torch.loader`` in this process; return the same figures as ``standpipe bench``."""
    memory = PeakMemory()
    import standpipe.torch

    loader = standpipe.torch.loader(train_task(path, ROWS), num_workers=workers)
    return measured(loader, memory, max(workers, 1), seconds)


MEASURES = {"standpipe.torch": measure_ours, "torch": measure_torch}


def measured(loader: Any, memory: PeakMemory, at_once: int, seconds: float) -> dict[str, Any]:
    """Return the rate after the first batches, the peak memory, and the time to the first batch.

    at_once  number of batches that arrive together, and are counted together
    """
    batches = endless(loader)
    next(batches)
    first_batch_s = seconds_since_process_start()
    for _ in range(2 * at_once - 1):
        next(batches)
    begin, rows = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        rows += sum(len(next(batches)[1]) for _ in range(at_once))
    return {
        "images_per_s": rows / elapsed,
        "peak_pss_mib": memory.stop() / MIB,
        "first_batch_s": first_batch_s,
    }


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


class Pairs:
    """The batches of a loader as (images, another field), as torch's loader gives them."""

    def __init__(self, loader: sp.Loader, field: str = "label", image: str = "image") -> None:
        self._loader, self._field, self._image = loader, field, image

    def __iter__(self) -> Any:
        return ((batch[self._image], batch[self._field]) for batch in self._loader)


class Repeated:
    """A data set, repeated to 20,000 rows or more, since a DataLoader's workers are idle between epochs."""

    def __init__(self, images: Any) -> None:
        self._images = images
        self._times = max(1, 20_000 // len(images))

    def __len__(self) -> int:
        return len(self._images) * self._times

    def __getitem__(self, index: int) -> Any:
        return self._images[index % len(self._images)]


def torchvision_images(path: str) -> tuple[Any, str] | None:
    """Return torchvision's ImageFolder with its transforms and their name; None if torchvision doesn't work."""
    import torch

    try:
        import torchvision
        from torchvision.transforms import v2
    except (ImportError, RuntimeError):  # not installed, or built for another torch
        return None
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(224, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    return torchvision.datasets.ImageFolder(path, transform), f"torchvision {torchvision.__version__}"


def listed(path: str) -> list[tuple[str, int]]:
    """Return path and label of each photo in a folder of class folders."""
    folders = sorted(entry for entry in Path(path).iterdir() if entry.is_dir())
    return [
        (str(file), label)
        for label, folder in enumerate(folders)
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in (".jpg", ".jpeg")
    ]


class PillowImages:
    """A dataset of photos and labels that does torchvision's steps in Pillow and torch."""

    def __init__(self, files: list[tuple[str, int]]) -> None:
        import torch

        self._files = files
        self._mean = torch.tensor(MEAN).view(3, 1, 1)
        self._std = torch.tensor(STD).view(3, 1, 1)
        self._from_numpy: Callable[..., Any] = torch.from_numpy

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Any:
        file, label = self._files[index]
        with Image.open(file) as image:
            return self.transformed(image), label

    def transformed(self, image: Image.Image) -> Any:
        """Return the tensor of a random crop of an image, flipped with probability 1/2, and normalised."""
        crop = image.convert("RGB").crop(crop_box(*image.size)).resize((224, 224), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = self._from_numpy(np.array(crop)).permute(2, 0, 1).float().div_(255)
        return pixels.sub_(self._mean).div_(self._std)


def crop_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Return a random box of RandomResizedCrop: left, upper, right, lower."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        shape = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            x, y = random.randint(0, width - w), random.randint(0, height - h)
            return x, y, x + w, y + h
    side = min(width, height)
    x, y = (width - side) // 2, (height - side) // 2
    return x, y, x + side, y + side


if __name__ == "__main__":
    main()
