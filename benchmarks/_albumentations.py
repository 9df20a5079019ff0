"""AlbumentationsX in torch's DataLoader: python benchmarks/_albumentations.py FOLDER RECIPE …

``benchmarks/augmentations.py --albumentationsx PYTHON`` starts it in the Python of an environment that has
``albumentationsx`` and ``torch``. It imports nothing of standpipe's: AlbumentationsX has the licence AGPL. The
last line of its output is a JSON object. RandAugment is built of the library's own operations, with the
magnitudes of RandAugment(2, 9).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import albumentations
import cv2
import torch

ROWS = 20_000  # of an epoch, at least: workers are idle between epochs
A: Any = albumentations


def randaugment() -> list[Any]:
    """Return two of RandAugment's operations at magnitude 9 of 30."""
    moved = 150 / 331 * 0.3
    operations = [
        A.NoOp(p=1),
        A.Affine(shear={"x": (-5.16, 5.16), "y": (0, 0)}, interpolation=cv2.INTER_NEAREST, p=1),
        A.Affine(shear={"x": (0, 0), "y": (-5.16, 5.16)}, interpolation=cv2.INTER_NEAREST, p=1),
        A.Affine(translate_percent={"x": (-moved, moved), "y": (0, 0)}, interpolation=cv2.INTER_NEAREST, p=1),
        A.Affine(translate_percent={"x": (0, 0), "y": (-moved, moved)}, interpolation=cv2.INTER_NEAREST, p=1),
        A.Affine(rotate=(-9, 9), interpolation=cv2.INTER_NEAREST, p=1),
        _jitter(brightness_range=(0.73, 1.27)),
        _jitter(saturation_range=(0.73, 1.27)),
        _jitter(contrast_range=(0.73, 1.27)),
        A.Sharpen(alpha_range=(0.27, 0.27), kernel_size=3, p=1),
        A.Posterize(num_bits=(7, 7), p=1),
        A.Solarize(threshold_range=(0.7, 0.7), p=1),
        A.AutoContrast(p=1),
        A.Equalize(p=1),
    ]
    return [A.SomeOf(operations, n=2, replace=True, p=1)]


def simclr() -> list[Any]:
    """Return SimCLR's colours and blur."""
    return [
        A.ColorJitter((0.2, 1.8), (0.2, 1.8), (0.2, 1.8), (-0.2, 0.2), p=0.8),
        A.ToGray(p=0.2),
        A.GaussianBlur(blur_range=(23, 23), sigma_range=(0.1, 2.0), p=0.5),
    ]


def _jitter(**ranges: tuple[float, float]) -> Any:
    others = dict.fromkeys(("brightness_range", "contrast_range", "saturation_range"), (1.0, 1.0))
    return A.ColorJitter(**{**others, "hue_range": (0.0, 0.0), **ranges}, p=1)


RECIPES = {"randaugment": randaugment, "simclr": simclr}


class Photos:
    """Photos in class folders, decoded by OpenCV and changed by AlbumentationsX."""

    def __init__(self, folder: str, recipe: str) -> None:
        self.files = [
            (str(file), label)
            for label, each in enumerate(sorted(path for path in Path(folder).iterdir() if path.is_dir()))
            for file in sorted(each.iterdir())
        ]
        steps = [A.RandomResizedCrop((224, 224)), A.HorizontalFlip(p=0.5), *RECIPES[recipe](), A.Normalize()]
        if recipe == "randaugment":
            steps.append(A.Erasing(scale=(0.02, 0.33), ratio=(0.3, 3.3), p=0.25))
        self.transform = A.Compose([*steps, A.ToTensorV2()])
        self.views = 2 if recipe == "simclr" else 1

    def __len__(self) -> int:
        return len(self.files) * max(1, ROWS // len(self.files))

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.files[index % len(self.files)]
        image = cv2.imread(path, cv2.IMREAD_COLOR_RGB)
        views = [self.transform(image=image)["image"] for _ in range(self.views)]
        return views[0] if self.views == 1 else tuple(views), label


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("folder")
    made.add_argument("recipe", choices=RECIPES)
    made.add_argument("--workers", type=int, default=2)
    made.add_argument("--batch", type=int, default=128)
    made.add_argument("--seconds", type=float, default=5.0)
    args = made.parse_args()
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    kind: Any = torch.utils.data.DataLoader
    loader = kind(
        Photos(args.folder, args.recipe),
        args.batch,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
        persistent_workers=args.workers > 0,
    )
    batches, at_once = endless(loader), max(args.workers, 1)  # as many batches arrive together
    for _ in range(2 * at_once):
        next(batches)
    begin, rows = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < args.seconds:
        rows += sum(len(next(batches)[1]) for _ in range(at_once))
    print(json.dumps({"images_per_s": rows / elapsed, "version": A.__version__}))


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


if __name__ == "__main__":
    main()
