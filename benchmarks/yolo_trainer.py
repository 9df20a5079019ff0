"""Train YOLO26n by ultralytics' own trainer, with its loader and with ours: python benchmarks/yolo_trainer.py

It runs in the Python of an environment that has ultralytics, whose licence is AGPL, standpipe, and torch for CPUs, and
draws its own images: boxes of two classes, four to an image, on noise. ``Trainer`` is the documented way to bring a
loader: a trainer whose ``get_dataloader`` returns it. Both runs have the same recipe, which closes the mosaic before
the last epochs. It prints the last epoch's losses, and the precision on images that neither trained on.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"}
sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

import numpy as np
import torch
from PIL import Image
from torch.utils.data import SequentialSampler
from ultralytics.models.yolo.detect import DetectionTrainer

import standpipe as sp
import standpipe.torch
from torchvision_cpu import torchvision  # noqa: F401 (ultralytics imports torchvision)

SIDES, COLOURS = (96, 128), ((150, 40, 40), (40, 150, 40))


class Batches:
    """Batches of standpipe, with what the trainer asks of a loader."""

    drop_last, num_workers = True, 0

    def __init__(self, loader: Any, trainer: Any, dataset: Any, rows: int) -> None:
        self.loader, self.trainer, self.dataset, self.batch_size = loader, trainer, dataset, rows
        self.sampler = SequentialSampler(dataset)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self.loader.set_epoch(self.trainer.epoch)  # also after resume=True
        for batch in self.loader:
            yield batch | {"im_file": [f"record {index}" for index in batch["index"].tolist()]}

    def reset(self) -> None:
        """Do nothing where the trainer closes the mosaic: the recipe knows the epoch."""

    def close(self) -> None:
        self.loader.close()


class Trainer(DetectionTrainer):  # type: ignore[misc]
    """ultralytics' trainer with standpipe's batches for training. Validation stays its own."""

    def get_dataloader(self, path: str, batch_size: int = 16, rank: int = 0, mode: str = "train") -> Any:
        if mode != "train":
            return super().get_dataloader(path, batch_size, rank, mode)
        last = self.epochs - self.args.close_mosaic
        mosaic, mixup = (sp.Schedule({0: p, last: 0.0}) for p in (self.args.mosaic, self.args.mixup))
        transforms = sp.recipes.yolo(self.args.imgsz, mosaic=mosaic, mixup=mixup)
        train = sp.Pipeline(sp.YoloLabels(self.args.data)).shuffle(seed=self.args.seed).map(*transforms)
        loader = standpipe.torch.loader(train.batch(batch_size), targets="yolo", num_workers=1)
        return Batches(loader, self, self.build_dataset(path, mode, batch_size), batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40, metavar="N", help="default: 40")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="standpipe-trainer-") as folder:
        data = draw(Path(folder), {"train": 256, "val": 64})
        for name, trainer in {"ultralytics": DetectionTrainer, "standpipe": Trainer}.items():
            settings = {
                "model": "yolo26n.yaml",
                "data": str(data),
                "imgsz": 96,
                "epochs": args.epochs,
                "nms": False,
            }
            settings |= {"mixup": 0.1, "close_mosaic": args.epochs // 4, "device": "cpu", "workers": 1}
            settings |= {"optimizer": "AdamW", "lr0": 0.003, "project": folder, "name": name, "plots": True}
            begin = time.perf_counter()
            trained = trainer(overrides=settings)
            trained.train()
            with (trained.save_dir / "results.csv").open() as file:
                last = list(csv.DictReader(file))[-1]
            shown = {
                key: round(float(value), 4) for key, value in last.items() if "loss" in key or "mAP" in key
            }
            print(f"{name}: {time.perf_counter() - begin:.0f} s, {shown}")


def draw(folder: Path, counts: dict[str, int]) -> Path:
    """Draw images with boxes, write their labels, and return the file that describes them."""
    rng, (height, width) = np.random.default_rng(7), SIDES
    for split, count in counts.items():
        for name in ("images", "labels"):
            (folder / name / split).mkdir(parents=True)
        for number in range(count):
            pixels, lines = rng.integers(0, 80, (height, width, 3), np.uint8), []
            for left, top, w, h, label in rng.integers(
                (0, 0, 16, 16, 0), (90, 60, 38, 36, 2), (4, 5)
            ).tolist():
                pixels[top : top + h, left : left + w] += np.array(COLOURS[label], np.uint8)
                middle = (left + w / 2) / width, (top + h / 2) / height
                lines.append(" ".join(f"{value:.6g}" for value in (label, *middle, w / width, h / height)))
            Image.fromarray(pixels).save(folder / f"images/{split}/{number:04}.png")
            (folder / f"labels/{split}/{number:04}.txt").write_text("\n".join(lines))
    data = folder / "data.yaml"
    data.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {{0: red, 1: green}}\n")
    return data


if __name__ == "__main__":
    main()
