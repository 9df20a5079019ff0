"""Measure pictures of other kinds: photos decoded as grey ones and pairs of photos beside RGB, and MNIST's size.

Photos: RandomResizedCrop(224), flip, normalise, float32, NCHW, in batches of 256. A pair is two photos per record; its
last column is the CPU time of a record, against that of a photo. MNIST: 60,000 random images of
28 × 28 in IDX files, RandomCrop(28, padding=2), RandomAffine(10, scale, bilinear), normalise, in batches of 512, beside
torchvision's MNIST with the same transforms on Pillow images. All loaders have the same number of workers, files are in
the page cache, and every run has its own process.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Figure, column, in_turn, last_json, parser, ratio, report
from augmentations import TESTS
from beside_torch import Pairs, measured

import standpipe as sp
from standpipe.cli.bench import PeakMemory

MEAN, STD = (0.1307,), (0.3081,)  # of MNIST, on the scale 0 to 1
ROWS, BATCH = 60_000, 512
PARTS = (("train", ROWS), ("t10k", 10_000))


def main() -> None:
    args = arguments()
    if args.only is not None:
        print(json.dumps(LOADERS[args.only](args.path, args.files, args.workers, args.seconds)))
        return
    with tempfile.TemporaryDirectory() as files:
        make_files(Path(files) / "MNIST" / "raw")

        def alone(loader: str) -> dict[str, Any]:
            settings = ("--files", files, "--workers", args.workers, "--seconds", args.seconds)
            return last_json([sys.executable, __file__, args.path, "--only", loader, *settings])

        results = in_turn(args.rounds, {loader: partial(alone, loader) for loader in LOADERS})
    rates = {loader: column(results[loader], "images_per_s") for loader in LOADERS}
    costs = {loader: column(results[loader], "cpu_ms") for loader in ("pair", "RGB")}
    beside = {loader: "MNIST, torch" if loader.startswith("MNIST") else "RGB" for loader in LOADERS}
    rows = [
        [
            loader,
            Figure(rates[loader]),
            f"{ratio(rates[loader], rates[beside[loader]]).median:.2f} × {beside[loader]}",
        ]
        for loader in LOADERS
    ]
    cost = ratio(costs["pair"], costs["RGB"]).median
    rows.append(["pair, CPU ms", Figure(costs["pair"], ".2f"), f"{cost:.2f} × RGB"])
    note = f"float32, {args.workers} workers; torch's workers are processes"
    report(args, ["loader", "rows/s", "ratio"], rows, note, packages=("torch", "torchvision", "pillow"))


def arguments() -> argparse.Namespace:
    made = parser(__doc__, rounds=3)
    made.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    made.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: 5)")
    made.add_argument("--files", metavar="FOLDER", help="the folder of MNIST's files, with --only")
    made.add_argument("--only", metavar="LOADER", help="run a loader here, and print one JSON object")
    return made.parse_args()


def make_files(folder: Path) -> None:
    """Write random images and labels in MNIST's format."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for part, rows in PARTS:
        images, labels = rng.integers(0, 256, (rows, 28, 28), np.uint8), rng.integers(0, 10, rows, np.uint8)
        header = struct.pack(">HBBIII", 0, 8, 3, rows, 28, 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">HBBI", 0, 8, 1, rows) + labels.tobytes()
        )


def measure_photos(channels: Any, folder: str, _files: str, workers: int, seconds: float) -> dict[str, Any]:
    """Run standpipe's own loader over the photos; ``"pair"``: over pairs of them, as RGB."""
    memory = PeakMemory()
    steps = (sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize((0.45,), (0.22,)))
    other: dict[str, Any] = {"other": folder} if channels == "pair" else {}
    source, channels = sp.ImageFolder(folder, **other), "RGB" if other else channels
    pipeline = sp.Pipeline(source).decode(channels=channels).shuffle(seed=7).map(*steps)
    with pipeline.batch(256, last_batch="drop").loader(num_workers=workers) as loader:
        found = measured(Pairs(loader, "index"), memory, 1, seconds)
        begin, before = time.process_time(), loader.stats().transform.rows
        measured(Pairs(loader, "index"), memory, 1, seconds)
        made = loader.stats().transform.rows - before  # pictures
        record = made / (1 + len(other))
        return {**found, "cpu_ms": 1e3 * (time.process_time() - begin) / record}


def measure_mnist(_folder: str, files: str, workers: int, seconds: float) -> dict[str, Any]:
    """Run standpipe's own loader over the IDX files."""
    memory = PeakMemory()
    raw = Path(files) / "MNIST" / "raw"
    source = sp.IdxFiles(
        image=raw / "train-images-idx3-ubyte", label=raw / "train-labels-idx1-ubyte", image_axes="HW"
    )
    warp = sp.RandomAffine(10, scale=(0.9, 1.1), interpolation="bilinear")
    pipeline = (
        sp.Pipeline(source).shuffle(seed=7).map(sp.RandomCrop(28, padding=2), warp, sp.Normalize(MEAN, STD))
    )
    with pipeline.batch(BATCH, last_batch="drop").loader(num_workers=workers) as loader:
        return measured(Pairs(loader), memory, 1, seconds)


def measure_torch(_folder: str, files: str, workers: int, seconds: float) -> dict[str, Any]:
    """Run torch's DataLoader over torchvision's MNIST."""
    sys.path.append(str(TESTS))
    import torch

    from torchvision_cpu import torchvision

    torch.set_num_threads(1)
    memory = PeakMemory()
    v1 = torchvision.transforms
    warp = v1.RandomAffine(10, scale=(0.9, 1.1), interpolation=v1.InterpolationMode.BILINEAR)
    steps = [v1.RandomCrop(28, padding=2), warp, v1.ToTensor(), v1.Normalize(MEAN, STD)]
    kind: Any = torch.utils.data.DataLoader
    loader = kind(
        torchvision.datasets.MNIST(files, transform=v1.Compose(steps)),
        BATCH,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
    )
    return measured(loader, memory, max(workers, 1), seconds)


LOADERS: dict[str, Any] = {
    **{channels: partial(measure_photos, channels) for channels in ("RGB", "L", "luma", "RGBA", "pair")},
    "MNIST, standpipe": measure_mnist,
    "MNIST, torch": measure_torch,
}


if __name__ == "__main__":
    main()
