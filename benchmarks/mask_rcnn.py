"""Measure Mask R-CNN's recipe beside torchvision's references in PyTorch's DataLoader.

Large-scale jitter, as the references have it with ``--use-copypaste``: a scale of 0.1 to 2 of 1024 pixels, a crop of
1024 × 1024, padded by the mean, a flip, float32; and then objects of the row before in the batch are pasted on each
image, below a mask widened by two pixels. Targets have boxes, labels and a mask for each object.

The photos are those of PATH, with --boxes random polygons each on average, in COCO's format. Both loaders have the same
number of workers, and files are in the page cache. CPU time is that of the process and its workers. Every run has its
own process.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Figure, column, in_turn, last_json, parser, ratio, report
from _peers import rate
from augmentations import TESTS
from beside_torch import Repeated
from detection import FILL, Boxed, write

SIDE = 1024


def main() -> None:
    made = parser(__doc__, rounds=5)
    made.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    made.add_argument("--batch", type=int, default=8, metavar="N", help="rows (default: 8)")
    made.add_argument("--boxes", type=int, default=7, metavar="N", help="objects of an image (default: 7)")
    made.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each run (default: 10)")
    made.add_argument("--only", nargs=2, metavar=("LOADER", "FILE"), help="run one, and print a JSON object")
    made.set_defaults(began=time.time())
    args = made.parse_args()
    if args.only is not None:
        print(json.dumps(rate(LOADERS[args.only[0]](args, Path(args.only[1])), args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "instances.json"
        write(Path(args.path), file, args.boxes)
        outline(file)
        settings = ("--workers", args.workers, "--batch", args.batch, "--seconds", args.seconds)
        command = [sys.executable, __file__, args.path, *settings, "--only"]
        results = in_turn(
            args.rounds, {loader: partial(last_json, [*command, loader, file]) for loader in LOADERS}
        )
    rows: list[list[Any]] = []
    for loader, runs in results.items():
        rates, cpu = column(runs, "images_per_s"), column(runs, "cpu_ms_per_image")
        faster = ratio(column(results["standpipe"], "images_per_s"), rates).median
        cheaper = ratio(cpu, column(results["standpipe"], "cpu_ms_per_image")).median
        rows.append([loader, Figure(rates), Figure(cpu, ".1f"), f"{faster:.2f}", f"{cheaper:.2f}"])
    note = f"batch {args.batch}, {args.workers} workers, {args.boxes} objects an image on average"
    heads = ["loader", "images/s", "CPU ms per image", "ours ÷ its rate", "its CPU ÷ ours"]
    report(args, heads, rows, note, packages=("torch", "torchvision", "pillow", "pycocotools"))


def outline(file: Path) -> None:
    """Give each box of a COCO file a polygon of 8 to 40 points that fills most of it."""
    draw = random.Random(6)
    content = json.loads(file.read_text())
    for each in content["annotations"]:
        left, top, width, height = each["bbox"]
        points: list[float] = []
        for step in range(number := draw.randint(8, 40)):
            angle, reach = 2 * math.pi * step / number, draw.uniform(0.35, 0.5)
            across, down = (0.5 + reach * of(angle) for of in (math.cos, math.sin))
            points += left + width * across, top + height * down
        each["segmentation"] = [[round(value, 2) for value in points]]
    file.write_text(json.dumps(content))


class Standpipe:
    """``standpipe.torch.loader``."""

    def __init__(self, args: argparse.Namespace, file: Path) -> None:
        import torch

        import standpipe as sp
        import standpipe.torch

        torch.set_num_threads(1)
        source = sp.Coco(args.path, file, instance_masks=True)
        pipeline = sp.Pipeline(source).shuffle(seed=7)
        pipeline = pipeline.map(
            sp.ScaleJitter((SIDE, SIDE)),
            sp.FixedSizeCrop(SIDE, fill=FILL),
            sp.RandomHorizontalFlip(),
            sp.CopyPaste(),
            sp.ToDtype("float32", scale=True),
            sp.SanitizeBoundingBoxes(),
        )
        pipeline = pipeline.batch(args.batch, last_batch="drop", masks="dense", boxes_from="shape")
        self.loader = standpipe.torch.loader(pipeline, targets="torchvision", num_workers=args.workers)

    def batches(self) -> Iterator[Any]:
        yield from self.loader


class Outlined(Boxed):
    """A dataset for torch's loader: images by Pillow, polygons by pycocotools, and torchvision's transforms of all."""

    def target(self, about: dict[str, Any], found: list[Any]) -> dict[str, Any]:
        import torch
        from pycocotools import mask  # type: ignore[import-untyped]

        size = about["height"], about["width"]
        masks = [mask.decode(mask.frPyObjects(each["segmentation"], *size)).any(2) for each in found]
        pixels = torch.from_numpy(np.array(masks, np.uint8).reshape(-1, *size))
        return super().target(about, found) | {"masks": self.kinds.Mask(pixels)}


def jitter(v2: Any, kinds: Any) -> Any:
    """Return the transforms ``lsj`` of torchvision's references; they draw a crop's place once for both axes."""
    import torch

    def cropped(image: Any, target: Any) -> Any:
        return v2.RandomCrop([min(side, SIDE) for side in (image.height, image.width)])(image, target)

    def padded(image: Any, target: Any) -> Any:
        sides = [0, 0, SIDE - image.width, SIDE - image.height]
        return v2.Pad(sides, fill={kinds.Mask: 0, "others": FILL})(image, target)

    scaled, dropped = v2.ScaleJitter((SIDE, SIDE)), v2.SanitizeBoundingBoxes()
    floats = v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()
    return v2.Compose([scaled, cropped, dropped, padded, v2.RandomHorizontalFlip(), *floats])


def copied(samples: list[Any]) -> Any:
    """Put samples together, and paste objects of the sample before on each."""
    pairs = zip(samples, [samples[-1], *samples[:-1]], strict=True)
    images, targets = zip(*(pasted(*own, *other) for own, other in pairs), strict=True)
    return list(images), list(targets)


def pasted(image: Any, target: Any, other: Any, others: Any) -> Any:
    """Paste some objects of another image, as SimpleCopyPaste of torchvision's references does."""
    import torch
    from torchvision.ops import masks_to_boxes
    from torchvision.transforms.functional import gaussian_blur

    count = len(others["masks"])
    if count == 0:
        return image, target
    chosen = torch.unique(torch.randint(0, count, (count,)))
    above = others["masks"][chosen]
    hidden = gaussian_blur(above.sum(0, keepdim=True) > 0, [5, 5], [2.0])  # of booleans: wider by two pixels
    masks = target["masks"] * ~hidden
    left = masks.sum((-1, -2)) > 0
    masks = masks[left]
    joined = {
        "boxes": torch.cat([masks_to_boxes(masks), others["boxes"][chosen]]),
        "labels": torch.cat([target["labels"][left], others["labels"][chosen]]),
        "masks": torch.cat([masks, above]),
    }
    valid = (joined["boxes"][:, 2:] > joined["boxes"][:, :2]).all(1)
    if not valid.all():
        joined = {name: values[valid] for name, values in joined.items()}
    return image * ~hidden + other * hidden, target | joined


class Torch:
    """torch's DataLoader with torchvision's transforms on Pillow images."""

    def __init__(self, args: argparse.Namespace, file: Path) -> None:
        sys.path.append(str(TESTS))
        import torch

        from torchvision_cpu import torchvision

        torch.set_num_threads(1)
        kinds = torchvision.tv_tensors
        images = Outlined(Path(args.path), file, jitter(torchvision.transforms.v2, kinds), kinds)
        kind: Any = torch.utils.data.DataLoader
        workers = {"num_workers": args.workers, "persistent_workers": args.workers > 0}
        self.loader = kind(
            Repeated(images), args.batch, shuffle=True, drop_last=True, collate_fn=copied, **workers
        )

    def batches(self) -> Iterator[Any]:
        yield from self.loader


LOADERS: dict[str, Any] = {"standpipe": Standpipe, "torch": Torch}


if __name__ == "__main__":
    main()
