"""Measure recipes for detectors beside torchvision's transforms in PyTorch's DataLoader.

DETR: a flip; a random shortest size of 480–800 pixels and at most 1333, or first 400, 500 or 600, a crop of 384–600
pixels, and then that; normalised, padded to the largest image of the batch, with a mask. SSD, as torchvision's
references have it: photometric distortion, zoom out, the IoU crop, a flip, boxes sanitised; images of their own sizes.
"SSD, 300 px" ends in a resize to (300, 300), as the detector does. Images are float32 in NCHW.

The photos are those of PATH, with --boxes random boxes each on average, in COCO's format. Both loaders have the same
number of workers, and files are in the page cache. Every run has its own process.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from _measure import Figure, column, in_turn, last_json, parser, ratio, report
from augmentations import TESTS
from beside_torch import MEAN, STD, Repeated, measured
from PIL import Image

import standpipe as sp
from standpipe.cli.bench import PeakMemory

SCALES, MOST_PX = tuple(range(480, 801, 32)), 1333
FIRST, CROP_PX = (400, 500, 600), (384, 600)
FILL, SSD_PX, CLASSES = (123, 117, 104), 300, 90


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    made.add_argument("--batch", type=int, default=8, metavar="N", help="rows (default: 8)")
    made.add_argument("--boxes", type=int, default=7, metavar="N", help="of an image (default: 7)")
    made.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: 5)")
    made.add_argument(
        "--only", nargs=3, help="run a loader and recipe over a JSON file, and print one JSON object"
    )
    args = made.parse_args()
    if args.only is not None:
        loader, recipe, file = args.only
        print(
            json.dumps(
                LOADERS[loader](recipe, Path(args.path), Path(file), args.workers, args.batch, args.seconds)
            )
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "instances.json"
        write(Path(args.path), file, args.boxes)
        settings = ("--workers", args.workers, "--batch", args.batch, "--seconds", args.seconds)

        def alone(loader: str, recipe: str) -> dict[str, Any]:
            command = [sys.executable, __file__, args.path, "--only", loader, recipe, str(file)]
            return last_json([*command, *settings])

        results = {
            recipe: in_turn(args.rounds, {loader: partial(alone, loader, recipe) for loader in LOADERS})
            for recipe in RECIPES
        }
    rows: list[list[Any]] = []
    for recipe, found in results.items():
        rates = {loader: column(runs, "images_per_s") for loader, runs in found.items()}
        for loader, rate in rates.items():
            peak = Figure(column(found[loader], "peak_pss_mib"), ".0f")
            times = ratio(rates["standpipe"], rate).median
            rows.append([recipe, loader, Figure(rate, ".0f"), peak, f"{times:.2f}"])
    note = f"batch {args.batch}, {args.workers} workers, {args.boxes} boxes an image on average"
    report(
        args,
        ["recipe", "loader", "images/s", "peak PSS MiB", "standpipe ÷ it"],
        rows,
        note,
        packages=("torch", "torchvision", "pillow"),
    )


def write(photos: Path, file: Path, boxes: int) -> None:
    """Write random boxes for all photos, in COCO's format."""
    draw = random.Random(5)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for path in sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")):
        with Image.open(path) as photo:
            width, height = photo.size
        images.append({"id": len(images) + 1, "file_name": str(path.relative_to(photos))})
        images[-1] |= {"width": width, "height": height}
        for _ in range(draw.randint(0, 2 * boxes)):
            sides = [draw.uniform(0.05, 0.6) * side for side in (width, height)]
            begin = [draw.uniform(0, side - own) for side, own in zip((width, height), sides, strict=True)]
            annotations.append({"id": len(annotations) + 1, "image_id": len(images), "iscrowd": 0})
            annotations[-1] |= {"bbox": [*begin, *sides], "area": sides[0] * sides[1]}
            annotations[-1] |= {"category_id": draw.randint(1, CLASSES)}
    categories = [{"id": label, "name": f"class {label}"} for label in range(1, CLASSES + 1)]
    file.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))


RECIPES = ("DETR", "SSD", "SSD, 300 px")


def measure_ours(
    recipe: str, photos: Path, file: Path, workers: int, batch: int, seconds: float
) -> dict[str, Any]:
    """Run ``standpipe.torch.loader``."""
    import torch

    import standpipe.torch

    torch.set_num_threads(1)
    memory = PeakMemory()
    pipeline = sp.Pipeline(sp.Coco(photos, file)).shuffle(seed=7)
    largest = (3, MOST_PX, MOST_PX)
    if recipe == "DETR":
        scaled = sp.RandomShortestSize(SCALES, MOST_PX)
        cropped = sp.RandomApply([sp.RandomShortestSize(FIRST), sp.RandomSizeCrop(*CROP_PX)], p=0.5)
        pipeline = pipeline.map(
            *(sp.RandomHorizontalFlip(), cropped, scaled, sp.Normalize(MEAN, STD), sp.SanitizeBoundingBoxes())
        )
        pipeline = pipeline.batch(batch, last_batch="drop", collate={"image": sp.Pad(max_shape=largest)})
        loader = standpipe.torch.loader(pipeline, targets="detr", num_workers=workers)
        return measured(loader, memory, 1, seconds)
    pipeline = pipeline.map(
        sp.RandomPhotometricDistort(),
        sp.RandomZoomOut(fill=FILL),
        sp.RandomIoUCrop(),
        sp.RandomHorizontalFlip(),
        *([sp.Resize((SSD_PX, SSD_PX))] if recipe != "SSD" else []),
        sp.ToDtype("float32", scale=True),
        sp.SanitizeBoundingBoxes(),
    )
    listed: dict[str, Any] = {"collate": {"image": list}} if recipe == "SSD" else {}
    pipeline = pipeline.batch(batch, last_batch="drop", **listed)
    loader = standpipe.torch.loader(pipeline, targets="torchvision", num_workers=workers)
    return measured(loader, memory, 1, seconds)


class Boxed:
    """A dataset for torch's loader: images by Pillow, boxes of COCO's format, and torchvision's transforms of both."""

    def __init__(self, photos: Path, file: Path, transform: Any, kinds: Any) -> None:
        import torch

        content = json.loads(file.read_text())
        self._photos, self._images = photos, content["images"]
        self._transform, self.kinds, self._torch = transform, kinds, torch
        found: dict[int, list[Any]] = {image["id"]: [] for image in self._images}
        for each in content["annotations"]:
            found[each["image_id"]].append(each)
        self._found = found

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Any:
        about = self._images[index]
        image = Image.open(self._photos / about["file_name"]).convert("RGB")
        return self._transform(image, self.target(about, self._found[about["id"]]))

    def target(self, about: dict[str, Any], found: list[Any]) -> dict[str, Any]:
        """Return the target of an image with its annotations, as torchvision's detectors take it."""
        torch = self._torch
        boxes = torch.tensor([each["bbox"] for each in found]).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        boxes = self.kinds.BoundingBoxes(boxes, format="XYXY", canvas_size=(about["height"], about["width"]))
        labels = torch.tensor([each["category_id"] for each in found], dtype=torch.int64)
        area = torch.tensor([each["area"] for each in found])
        return {"boxes": boxes, "labels": labels, "area": area, "image_id": about["id"]}


def detr_transform(v2: Any, kinds: Any) -> Any:
    """Return DETR's transforms for training, by torchvision's."""
    import torch

    class RandomSizeCrop(v2.Transform):  # type: ignore[misc]  # DETR has its own
        def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
            height, width = v2._utils.query_size(flat_inputs)
            least, most = CROP_PX
            crop = [random.randint(least, min(side, most)) for side in (height, width)]
            begin = [random.randint(0, side - own) for side, own in zip((height, width), crop, strict=True)]
            return dict(zip(("top", "left", "height", "width"), (*begin, *crop), strict=True))

        def transform(self, value: Any, params: dict[str, Any]) -> Any:
            return self._call_kernel(v2.functional.crop, value, **params)

    scaled = v2.RandomShortestSize(SCALES, MOST_PX)
    cropped = v2.Compose([v2.RandomShortestSize(FIRST), RandomSizeCrop(), scaled])
    return v2.Compose(
        [
            v2.RandomHorizontalFlip(),
            v2.RandomChoice([scaled, cropped]),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
            v2.SanitizeBoundingBoxes(),
        ]
    )


def ssd_transform(v2: Any, _kinds: Any, *, resized: bool) -> Any:
    """Return the transforms ``ssd`` of torchvision's references."""
    import torch

    return v2.Compose(
        [
            v2.RandomPhotometricDistort(),
            v2.RandomZoomOut(fill=list(FILL)),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(),
            *([v2.Resize((SSD_PX, SSD_PX))] if resized else []),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.SanitizeBoundingBoxes(),
        ]
    )


def in_lists(samples: list[Any]) -> Any:
    """Put samples together as torchvision's references do."""
    images, targets = zip(*samples, strict=True)
    return list(images), list(targets)


def padded(samples: list[Any]) -> Any:
    """Pad images to the largest and normalise boxes, as DETR does."""
    import torch

    images, targets = zip(*samples, strict=True)
    height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
    batch = torch.zeros(len(images), 3, height, width)
    mask = torch.ones(len(images), height, width, dtype=torch.bool)
    for row, (image, target) in enumerate(zip(images, targets, strict=True)):
        _, own_height, own_width = image.shape
        batch[row, :, :own_height, :own_width] = image
        mask[row, :own_height, :own_width] = False
        begin, end = target["boxes"][:, :2], target["boxes"][:, 2:]
        sides = torch.tensor([own_width, own_height] * 2)
        target["boxes"] = torch.cat([(begin + end) / 2, end - begin], 1) / sides
    return (batch, mask), targets


def measure_torch(
    recipe: str, photos: Path, file: Path, workers: int, batch: int, seconds: float
) -> dict[str, Any]:
    """Run torch's DataLoader with torchvision's transforms on Pillow images."""
    sys.path.append(str(TESTS))
    import torch

    from torchvision_cpu import torchvision

    torch.set_num_threads(1)
    memory = PeakMemory()
    v2, kinds = torchvision.transforms.v2, torchvision.tv_tensors
    made = (
        detr_transform(v2, kinds) if recipe == "DETR" else ssd_transform(v2, kinds, resized=recipe != "SSD")
    )
    kind: Any = torch.utils.data.DataLoader
    loader = kind(
        Repeated(Boxed(photos, file, made, kinds)),
        batch,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
        collate_fn=padded if recipe == "DETR" else in_lists,
    )
    return measured(loader, memory, max(workers, 1), seconds)


LOADERS: dict[str, Any] = {"standpipe": measure_ours, "torch": measure_torch}


if __name__ == "__main__":
    main()
