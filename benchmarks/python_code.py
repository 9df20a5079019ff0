"""Measure Python code in a pipeline beside PyTorch's DataLoader with as many workers.

Pillow: read a JPEG, crop 224 × 224 at random, flip, and give an array, all in Pillow, in worker processes of both.
Training: the same, normalised to float32 and channels first, as models take it: by torch as its users write it, by
standpipe natively. Arrays: a dataset that returns an array of 600 kB, whose copies are all the work. collate_fn: the
same arrays, put together by a function on the list of samples, so that whole batches go from worker to trainer.
Function: what one call of a function of 10 µs costs in a thread, over the 10 µs, in batches of 256. Others in batches
of 64; every run in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Figure, column, in_turn, last_json, parser, ratio, report
from PIL import Image

import standpipe as sp

ROWS = 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHAPE = (3, 224, 224)  # of float32: 602 kB


class Photos:
    """Images in Pillow, as people write it."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(map(str, Path(folder).glob("*/*")))

    def __len__(self) -> int:
        return len(self.paths) * 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        image = Image.open(self.paths[index % len(self.paths)]).convert("RGB")
        width, height = image.size
        side = random.uniform(0.3, 1.0) * min(width, height)
        left, top = random.uniform(0, width - side), random.uniform(0, height - side)
        image = image.resize((224, 224), Image.Resampling.BILINEAR, (left, top, left + side, top + side))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.asarray(image), index


class Ready:
    """Arrays that cost nothing but their copies."""

    def __init__(self) -> None:
        self.array = np.random.default_rng(0).random(SHAPE, np.float32)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.array, index


class Numbers:
    """Next to nothing."""

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> int:
        return index


def ten_us(value: int) -> int:
    ends = time.perf_counter_ns() + 10_000
    while time.perf_counter_ns() < ends:
        pass
    return value


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="of both (default: 2)")
    arguments.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: 5)")
    arguments.add_argument("--only", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.only:
        print(json.dumps({"rate": RUNS[args.only](args)}))
        return
    given = ("--workers", args.workers, "--seconds", args.seconds)
    results = in_turn(
        args.rounds,
        {
            name: partial(last_json, [sys.executable, __file__, args.path, "--only", name, *given])
            for name in RUNS
        },
    )
    rates = {name: column(runs, "rate") for name, runs in results.items()}
    rows: list[list[Any]] = [[name, Figure(values, ".0f")] for name, values in rates.items()]
    rows.append(["Pillow, standpipe ÷ torch", ratio(rates["Pillow, standpipe"], rates["Pillow, torch"])])
    rows.append(
        ["training, standpipe ÷ torch", ratio(rates["training, standpipe"], rates["training, torch"])]
    )
    rows.append(["arrays, standpipe ÷ torch", ratio(rates["arrays, standpipe"], rates["arrays, torch"])])
    rows.append(
        ["collate_fn, standpipe ÷ torch", ratio(rates["collate_fn, standpipe"], rates["collate_fn, torch"])]
    )
    overheads = [1e6 / rate - 10 for rate in rates["function of 10 µs, one thread"]]
    rows.append(["function: overhead in µs a sample", Figure(overheads, ".1f")])
    report(args, ["", "samples/s"], rows, packages=["torch", "pillow"])


def rate(batches: Iterator[int], seconds: float) -> float:
    """Samples a second, after the first batches."""
    for _ in range(4):
        next(batches)
    begin, samples = time.perf_counter(), 0
    while (now := time.perf_counter()) < begin + seconds:
        samples += next(batches)
    return samples / (now - begin)


class Normalised(Photos):
    """Photos as a model of torch takes them."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch

        array, label = super().__getitem__(index)
        image = torch.from_numpy(array.copy()).permute(2, 0, 1).contiguous().to(torch.float32).div_(255)
        return image.sub_(torch.tensor(MEAN)[:, None, None]).div_(torch.tensor(STD)[:, None, None]), label


def standpipe_rate(
    dataset: Any, args: argparse.Namespace, collate_fn: Any = None, transforms: Sequence[Any] = ()
) -> float:
    pipeline = sp.Pipeline(sp.MapSource(dataset)).shuffle(seed=0).map(*transforms)
    pipeline = pipeline.batch(ROWS, collate_fn=collate_fn)
    with pipeline.loader(executor="process", num_workers=args.workers, memory="2GiB") as loader:
        return rate((len(batch["index"]) for batch in loader), args.seconds)


def torch_rate(dataset: Any, args: argparse.Namespace, **more: Any) -> float:
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, ROWS, shuffle=True, num_workers=args.workers, **more)
    return rate((len(batch[0]) for batch in loader), args.seconds)


def stacked(samples: list[tuple[np.ndarray, int]]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*samples, strict=True)
    return np.stack(images), np.array(labels)


def stacked_tensors(samples: list[tuple[np.ndarray, int]]) -> list[Any]:
    """Return tensors, as torch's own collate function does, so that its workers use shared memory."""
    import torch

    return [torch.from_numpy(array) for array in stacked(samples)]


def function_rate(args: argparse.Namespace) -> float:
    pipeline = sp.Pipeline(sp.MapSource(Numbers(), fields="x")).map(ten_us, field="x").batch(256)
    with pipeline.loader(num_workers=1, memory="1GiB") as loader:
        return rate((len(batch["index"]) for batch in loader), args.seconds)


RUNS: dict[str, Callable[[argparse.Namespace], float]] = {
    "Pillow, standpipe": lambda args: standpipe_rate(Photos(args.path), args),
    "Pillow, torch": lambda args: torch_rate(Photos(args.path), args),
    "training, standpipe": lambda args: standpipe_rate(
        Photos(args.path), args, transforms=[sp.Normalize(MEAN, STD)]
    ),
    "training, torch": lambda args: torch_rate(Normalised(args.path), args),
    "arrays, standpipe": lambda args: standpipe_rate(Ready(), args),
    "arrays, torch": lambda args: torch_rate(Ready(), args),
    "collate_fn, standpipe": lambda args: standpipe_rate(Ready(), args, stacked),
    "collate_fn, torch": lambda args: torch_rate(Ready(), args, collate_fn=stacked_tensors),
    "function of 10 µs, one thread": function_rate,
}

if __name__ == "__main__":
    main()
