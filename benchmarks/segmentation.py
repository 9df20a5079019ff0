"""Measure a segmentation recipe with masks beside torchvision's transforms in PyTorch's DataLoader.

The recipe is that of torchvision's references, with colour jitter: a random resize of the shorter side to 260–1040
pixels, a random crop of 480 × 480 pixels with padding, a flip, ColorJitter(0.4, 0.4, 0.4), normalised float32 images in
NCHW and uint8 masks. The photos are those of PATH. Their masks are made here: PNG files of 8 classes.

Both loaders have the same number of workers, and files are in the page cache. Every run has its own process.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Figure, column, in_turn, last_json, parser, ratio, report
from beside_torch import MEAN, STD, Pairs, Repeated, measured
from PIL import Image

import standpipe as sp
from standpipe.cli.bench import PeakMemory

TESTS = Path(__file__).parents[1] / "tests" / "support"  # its torchvision_cpu goes beside any torch
CLASSES, LEAST_PX, MOST_PX, CROP_PX = 8, 260, 1040, 480


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    arguments.add_argument("--batch", type=int, default=16, metavar="N", help="rows (default: 16)")
    arguments.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: 5)")
    arguments.add_argument(
        "--only", nargs=2, help="run a loader over a folder's lists, and print one JSON object"
    )
    args = arguments.parse_args()
    if args.only is not None:
        loader, lists = args.only
        print(json.dumps(LOADERS[loader](Path(lists), args.workers, args.batch, args.seconds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_masks(Path(args.path).resolve(), Path(folder))
        settings = ("--workers", args.workers, "--batch", args.batch, "--seconds", args.seconds)

        def alone(loader: str) -> dict[str, Any]:
            return last_json([sys.executable, __file__, args.path, "--only", loader, folder, *settings])

        results = in_turn(args.rounds, {loader: partial(alone, loader) for loader in LOADERS})
    rates = {loader: column(runs, "images_per_s") for loader, runs in results.items()}
    rows: list[list[Any]] = [
        [loader, Figure(rate, ".0f"), f"{ratio(rates['standpipe'], rate).median:.2f}"]
        for loader, rate in rates.items()
    ]
    note = f"float32 images and uint8 masks, batch {args.batch}, {args.workers} workers"
    report(
        args,
        ["loader", "images/s", "standpipe ÷ it"],
        rows,
        note,
        packages=("torch", "torchvision", "pillow"),
    )


def make_masks(photos: Path, folder: Path) -> None:
    """Write a mask for each photo, and a list of both."""
    rng = np.random.default_rng(7)
    images = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    masks = []
    for number, path in enumerate(images):
        coarse = Image.fromarray(rng.integers(0, CLASSES, (6, 8), np.uint8))
        with Image.open(path) as photo:
            size = photo.size
        masks.append(folder / f"{number}.png")
        coarse.resize(size, Image.Resampling.NEAREST).save(masks[-1])
    (folder / "images.txt").write_text("".join(f"{path}\n" for path in images), encoding="utf-8")
    (folder / "masks.txt").write_text("".join(f"{path}\n" for path in masks), encoding="utf-8")


def measure_ours(lists: Path, workers: int, batch: int, seconds: float) -> dict[str, Any]:
    """Run standpipe's own loader."""
    memory = PeakMemory()
    source = sp.FileList(lists / "images.txt", labels=False, mask=lists / "masks.txt")
    pipeline = sp.Pipeline(source).shuffle(seed=7)
    pipeline = pipeline.map(
        sp.RandomResize(LEAST_PX, MOST_PX),
        sp.RandomCrop(CROP_PX, pad_if_needed=True),
        sp.RandomHorizontalFlip(),
        sp.ColorJitter(0.4, 0.4, 0.4),
        sp.Normalize(),
    )
    with pipeline.batch(batch, last_batch="drop").loader(num_workers=workers) as loader:
        return measured(Pairs(loader, "mask"), memory, 1, seconds)


class Masked:
    """A dataset for torch's loader: images and masks by Pillow, and torchvision's transforms of both."""

    def __init__(self, lists: Path, transform: Any, as_mask: Any) -> None:
        self._images, self._masks = (
            (lists / name).read_text(encoding="utf-8").splitlines() for name in ("images.txt", "masks.txt")
        )
        self._transform, self._as_mask = transform, as_mask

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self._images[index]).convert("RGB")
        return self._transform(image, self._as_mask(np.array(Image.open(self._masks[index]))))


def measure_torch(lists: Path, workers: int, batch: int, seconds: float) -> dict[str, Any]:
    """Run torch's DataLoader with torchvision's transforms on Pillow images and mask tensors."""
    sys.path.append(str(TESTS))
    import torch

    from torchvision_cpu import torchvision

    torch.set_num_threads(1)
    memory = PeakMemory()
    v2, kinds = torchvision.transforms.v2, torchvision.tv_tensors
    transform = v2.Compose(
        [
            v2.RandomResize(LEAST_PX, MOST_PX),
            v2.RandomCrop(CROP_PX, pad_if_needed=True, fill={Image.Image: 0, kinds.Mask: 255}),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.4, 0.4, 0.4),
            v2.ToImage(),
            v2.ToDtype({kinds.Image: torch.float32, "others": None}, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    kind: Any = torch.utils.data.DataLoader
    images = Repeated(Masked(lists, transform, kinds.Mask))
    loader = kind(
        images, batch, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=workers > 0
    )
    return measured(loader, memory, max(workers, 1), seconds)


LOADERS: dict[str, Any] = {"standpipe": measure_ours, "torch": measure_torch}


if __name__ == "__main__":
    main()
