"""Measure rows of CIFAR-10's size beside PyTorch's DataLoader over torchvision's CIFAR10.

50,000 images of 32 × 32 random pixels, in the files of CIFAR-10's binary and Python versions:
RandomCrop(32, padding=4), flip, normalise, float32, NCHW, in batches of 512. Both loaders have the same number of
workers, and files are in the page cache. Every run has its own process.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Figure, column, in_turn, last_json, ratio, report
from augmentations import TESTS
from beside_torch import Pairs, measured

import standpipe as sp
from standpipe.cli.bench import PeakMemory

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of CIFAR-10, on the scale 0 to 1
FILES, ROWS, BATCH = 5, 10_000, 512


def main() -> None:
    args = arguments()
    if args.only is not None:
        print(json.dumps(LOADERS[args.only](args.files, args.workers, args.seconds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder))

        def alone(loader: str) -> dict[str, Any]:
            settings = ("--files", folder, "--workers", args.workers, "--seconds", args.seconds)
            return last_json([sys.executable, __file__, "--only", loader, *settings])

        results = in_turn(args.rounds, {loader: partial(alone, loader) for loader in LOADERS})
    rates = {loader: column(results[loader], "images_per_s") for loader in LOADERS}
    rows = [
        [loader, Figure(rates[loader]), f"{ratio(rates[loader], rates['torch']).median:.1f}"]
        for loader in LOADERS
    ]
    note = f"float32, batch {BATCH}, {args.workers} workers; torch's workers are processes"
    report(args, ["loader", "rows/s", "÷ torch"], rows, note, packages=("torch", "torchvision", "pillow"))


def arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=3, metavar="N", help="of all loaders (default: 3)")
    made.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    made.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: 5)")
    made.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    made.add_argument("--files", metavar="FOLDER", help="the folder of the files, with --only")
    made.add_argument("--only", metavar="LOADER", help="run a loader here, and print one JSON object")
    made.set_defaults(question=(__doc__ or "").partition("\n")[0])
    return made.parse_args()


def make_files(folder: Path) -> None:
    """Write random rows as CIFAR-10's binary files, and the same ones as its Python files."""
    rng = np.random.default_rng(0)
    python = folder / "cifar-10-batches-py"
    python.mkdir()
    for number in range(1, FILES + 1):
        labels = rng.integers(0, 10, (ROWS, 1), np.uint8)
        pixels = rng.integers(0, 256, (ROWS, 3 * 32 * 32), np.uint8)
        np.hstack([labels, pixels]).tofile(folder / f"data_batch_{number}.bin")
        batch = {"data": pixels, "labels": labels[:, 0].tolist()}
        (python / f"data_batch_{number}").write_bytes(pickle.dumps(batch))
    names = {"label_names": [str(label) for label in range(10)]}
    (python / "batches.meta").write_bytes(pickle.dumps(names))


def measure_ours(folder: str, workers: int, seconds: float) -> dict[str, Any]:
    """Run standpipe's own loader over the binary files."""
    memory = PeakMemory()
    source = sp.FixedRecords.cifar10(*sorted(Path(folder).glob("data_batch_*.bin")))
    steps = (sp.RandomCrop(32, padding=4), sp.RandomHorizontalFlip(), sp.Normalize(MEAN, STD))
    pipeline = sp.Pipeline(source).shuffle(seed=7).map(*steps)
    with pipeline.batch(BATCH, last_batch="drop").loader(num_workers=workers) as loader:
        return measured(Pairs(loader), memory, 1, seconds)


def measure_torch(folder: str, workers: int, seconds: float) -> dict[str, Any]:
    """Run torch's DataLoader over torchvision's CIFAR10, with the transforms of torchvision's examples."""
    sys.path.append(str(TESTS))
    import torch

    from torchvision_cpu import torchvision

    cifar10: Any = torchvision.datasets.CIFAR10
    # The checksums are those of the real files.
    cifar10.train_list = [(f"data_batch_{number}", None) for number in range(1, FILES + 1)]
    cifar10.test_list = []
    cifar10.meta = {**cifar10.meta, "md5": None}
    torch.set_num_threads(1)
    memory = PeakMemory()
    transforms = torchvision.transforms
    steps = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    kind: Any = torch.utils.data.DataLoader
    loader = kind(
        cifar10(folder, transform=transforms.Compose(steps)),
        BATCH,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
    )
    return measured(loader, memory, max(workers, 1), seconds)


LOADERS = {"standpipe": measure_ours, "torch": measure_torch}


if __name__ == "__main__":
    main()
