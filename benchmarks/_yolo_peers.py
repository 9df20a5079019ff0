"""One loader of the YOLO family's recipe: python benchmarks/_yolo_peers.py LOADER rate FOLDER …

``benchmarks/yolo.py`` and ``benchmarks/yolo_draws.py`` write the folder, and start this file in the Python that has the
loader. It imports standpipe for standpipe's loader only: ultralytics and AlbumentationsX have the licence AGPL. The
last line of its output is a JSON object. Tasks:

- ``rate``: deliver batches for some seconds
- ``rows``: print each row's boxes, and the colour in the middle of its image
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _peers import rate

PX, CLASSES, FILL = 640, 80, 114
RECENT = 127  # frames that ultralytics keeps for a batch of 16
MOVES = {"mosaic": 1.0, "mixup": 0.1, "degrees": 0.0, "translate": 0.1, "scale": 0.5, "fliplr": 0.5}
RECIPE = MOVES | {"hsv_h": 0.015, "hsv_s": 0.7, "hsv_v": 0.4}


class Standpipe:
    """standpipe's loader and recipe."""

    def __init__(self, args: argparse.Namespace) -> None:
        import standpipe as sp

        source = sp.YoloLabels(args.folder, index=Path(args.folder, "standpipe.index"))
        pipeline = sp.Pipeline(source).shuffle(seed=1).map(*sp.recipes.yolo(PX, **args.recipe))
        self.loader = pipeline.batch(args.batch, last_batch="drop").loader(num_workers=args.workers)

    def batches(self) -> Iterator[tuple[Any, Any]]:
        for batch in self.loader:
            yield batch["image"], np.split(batch["boxes"], batch["instance_offsets"][1:-1])


class Ultralytics:
    """ultralytics' data set and loader, as its trainer builds them."""

    def __init__(self, args: argparse.Namespace) -> None:
        os.environ |= {"YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"}
        from ultralytics.cfg import get_cfg
        from ultralytics.data import build_dataloader, build_yolo_dataset

        settings = get_cfg(overrides={"task": "detect", "imgsz": PX, "cache": False, **args.recipe})
        about = {"names": {label: str(label) for label in range(CLASSES)}, "nc": CLASSES, "channels": 3}
        images = build_yolo_dataset(settings, f"{args.folder}/images", args.batch, about, mode="train")
        self.loader = build_dataloader(images, args.batch, args.workers, device="cpu", drop_last=True)

    def batches(self) -> Iterator[tuple[Any, Any]]:
        for batch in self.loader:
            boxes, rows = batch["bboxes"].numpy(), batch["batch_idx"].numpy()
            yield batch["img"].numpy(), in_pixels(boxes, rows, len(batch["img"]))


def in_pixels(boxes: Any, rows: Any, count: int) -> list[Any]:
    """Return each row's boxes as xyxy in pixels, from centres and sides as fractions."""
    begin, sides = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]
    found = np.concatenate([begin, begin + sides], 1) * PX
    return [found[rows == row] for row in range(count)]


class AlbumentationsX:
    """AlbumentationsX's recipe for the YOLO family in torch's DataLoader.

    As its documentation has it: Mosaic, whose cells contain whole images and whose crop has the size of one; Affine,
    HueSaturationValue and HorizontalFlip. It has no MixUp of two images with boxes, so OpenCV blends them. Its
    Mosaic asks the caller for the other images: they are of the last RECENT that the worker decoded, as ultralytics'.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        import torch

        torch.set_num_threads(1)
        kind: Any = torch.utils.data.DataLoader
        workers = {"num_workers": args.workers, "persistent_workers": True, "prefetch_factor": 4}
        images = Mosaics(Path(args.folder))
        self.loader = kind(images, args.batch, shuffle=True, drop_last=True, collate_fn=together, **workers)

    def batches(self) -> Iterator[tuple[Any, Any]]:
        yield from self.loader


class Mosaics:
    """A data set for torch's loader of mosaics, as AlbumentationsX makes them."""

    def __init__(self, folder: Path) -> None:
        import albumentations
        import cv2

        cv2.setNumThreads(0)
        A: Any = albumentations
        self.files = sorted((folder / "images").iterdir())
        self.rows = [self.labelled(folder / "labels" / f"{file.stem}.txt") for file in self.files]
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        move, scale = RECIPE["translate"], RECIPE["scale"]
        most = RECIPE["hsv_h"] * 180, RECIPE["hsv_s"] * 128, RECIPE["hsv_v"] * 128
        limits = {"min_width": 2, "min_height": 2, "min_visibility": 0.1, "max_accept_ratio": 100}
        boxes = A.BboxParams("yolo", ["labels"], clip_bboxes_on_input=True, **limits)
        places = {"center_range": (0.25, 0.75), "fit_mode": "contain", "fill": FILL, "p": RECIPE["mosaic"]}
        mosaic = A.Mosaic((2, 2), (PX, PX), (PX, PX), **places)
        affine = A.Affine((1 - scale, 1 + scale), (-move, move), fill=FILL, p=1)
        self.geometry = A.Compose([mosaic, affine], bbox_params=boxes, telemetry=False)
        colours = [
            A.HueSaturationValue(*((-each, each) for each in most), p=1),
            A.HorizontalFlip(p=RECIPE["fliplr"]),
            A.ToTensorV2(),
        ]
        self.colours = A.Compose(colours, bbox_params=boxes, telemetry=False)

    def labelled(self, file: Path) -> tuple[Any, list[int]]:
        values = np.array(file.read_text().split(), np.float32).reshape(-1, 5)
        return values[:, 1:], values[:, 0].astype(int).tolist()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        import cv2

        found = self.mosaic(index)
        if random.random() < RECIPE["mixup"]:
            other, weight = self.mosaic(random.randrange(len(self))), random.betavariate(32, 32)
            image = cv2.addWeighted(found["image"], weight, other["image"], 1 - weight, 0)
            bboxes = np.concatenate([found["bboxes"], other["bboxes"]])
            found = {"image": image, "bboxes": bboxes, "labels": [*found["labels"], *other["labels"]]}
        found = self.colours(**found)
        return found["image"], np.asarray(found["bboxes"]).reshape(-1, 4)

    def mosaic(self, index: int) -> dict[str, Any]:
        import cv2

        image: Any = cv2.imread(str(self.files[index]), cv2.IMREAD_COLOR_RGB)
        height, width = image.shape[:2]
        times = PX / max(height, width)
        image = cv2.resize(image, (min(round(width * times), PX), min(round(height * times), PX)))
        bboxes, labels = self.rows[index]
        self.recent.append({"image": image, "bboxes": bboxes, "bbox_labels": {"labels": labels}})
        others = random.choices(self.recent, k=3)
        made = self.geometry(image=image, bboxes=bboxes, labels=labels, mosaic_metadata=others)
        return {name: made[name] for name in ("image", "bboxes", "labels")}


def together(samples: list[Any]) -> Any:
    import torch

    images, boxes = zip(*samples, strict=True)
    return torch.stack(images), boxes


LOADERS: dict[str, Any] = {
    "standpipe": Standpipe,
    "ultralytics": Ultralytics,
    "AlbumentationsX": AlbumentationsX,
}


def rows(loader: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Return the boxes and the colour in the middle of some rows."""
    found: list[Any] = []
    while len(found) < args.rows:
        for images, boxes in loader.batches():
            middles = images[:, :, PX // 2, PX // 2].tolist()
            found += zip(middles, [np.asarray(each).tolist() for each in boxes], strict=True)
            if len(found) >= args.rows:
                break
    return {"colours": [colour for colour, _ in found], "boxes": [boxes for _, boxes in found]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("loader", choices=LOADERS)
    arguments.add_argument("task", choices=("rate", "rows"))
    arguments.add_argument("folder")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--batch", type=int, default=16)
    arguments.add_argument("--seconds", type=float, default=8.0)
    arguments.add_argument("--rows", type=int, default=2000)
    arguments.add_argument("--recipe", type=json.loads, default=RECIPE, help="the recipe's values, as JSON")
    arguments.add_argument("--began", type=float, default=time.time())
    args = arguments.parse_args()
    task = {"rate": rate, "rows": rows}[args.task]
    print(json.dumps(task(LOADERS[args.loader](args), args)), flush=True)
    os._exit(0)  # without waiting for workers


if __name__ == "__main__":
    main()
