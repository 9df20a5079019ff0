"""Measure what annotation files of COCO's size cost: to index, in memory, and to open again.

A JSON file of --images images and --instances instances, with a polygon each, is made in a scratch folder, and the same
instances as label files of the YOLO family. Images are links to a few photos. Each measurement is a process of its own,
without the time of importing: the index is built; it is opened again, and 256 records are looked up; and Python's json
loads the file, as pycocotools does.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _measure import MIB, Figure, column, in_turn, last_json, parser, report
from beside_torch import listed

from standpipe.source.annotations.coco import Coco
from standpipe.source.annotations.yolo import YoloLabels

PHOTOS, POLYGONS, POINTS, CLASSES = 100, 50, 27, 80
LOCATED = 256


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("--images", type=int, default=118_000, metavar="N", help="default: 118,000")
    made.add_argument("--instances", type=int, default=860_000, metavar="N", help="default: 860,000")
    made.add_argument("--scratch", default=tempfile.gettempdir(), metavar="FOLDER", help="for the files")
    made.add_argument("--child", choices=CHILDREN, help="what a process of its own measures")
    args = made.parse_args()
    if args.child is not None:
        print(json.dumps(CHILDREN[args.child](Path(args.scratch))))
        return
    with tempfile.TemporaryDirectory(prefix="standpipe-annotations-", dir=args.scratch) as folder:
        write(Path(folder), args.path, args.images, args.instances)

        def measured(child: str) -> Callable[[], dict[str, Any]]:
            command = [sys.executable, __file__, args.path, "--scratch", folder, "--child", child]
            return lambda: last_json(command)

        results = in_turn(args.rounds, {child: measured(child) for child in CHILDREN})
        size_mb = Path(folder, "coco.json").stat().st_size / 1e6
    rows = []
    for child, found in results.items():
        seconds, peak = column(found, "seconds"), column(found, "peak_mib")
        rows.append([child, Figure(seconds, ".3f"), Figure(column(found, "cpu_s"), ".2f"), Figure(peak)])
    beside = statistics.median(column(results["coco"], "seconds")) / statistics.median(
        column(results["json.load"], "seconds")
    )
    located = Figure([1e3 * one for one in column(results["coco again"], "located_s")], ".1f")
    notes = (
        f"{args.images:,} images, {args.instances:,} instances, a JSON file of {size_mb:,.0f} MB",
        f"seconds of coco ÷ those of json.load: {beside:.2f}",
        f"looking up {LOCATED} records at random: {located} ms",
    )
    report(args, ["", "seconds", "CPU s", "peak MiB"], rows, *notes)


def write(folder: Path, photos: str, images: int, instances: int) -> None:
    """Write the annotations in both formats, and links to photos in the place of images."""
    draw = random.Random(1)
    files = [os.path.realpath(path) for path, _ in listed(photos)[:PHOTOS]]
    if not files:
        raise SystemExit(f"{photos} holds no class folders of JPEGs; standpipe synth makes some")
    numbers = [f"{draw.random() * 400:.2f}" for _ in range(1000)]
    shapes = [", ".join(draw.choices(numbers, k=2 * POINTS)) for _ in range(POLYGONS)]
    lines: list[list[str]] = [[] for _ in range(images)]
    for name in ("images", "labels"):
        (folder / name).mkdir()
    with (folder / "coco.json").open("w") as out:
        out.write('{"info": {}, "images": [')
        for number in range(images):
            (folder / f"images/{number:012}.jpg").symlink_to(files[number % len(files)])
            about = {
                "file_name": f"{number:012}.jpg",
                "height": 4000,
                "width": 4000,
                "id": number + 1,
                "license": 3,
            }
            out.write(
                ", " * (number > 0) + json.dumps(about | {"flickr_url": "http://example.org/" + "0" * 60})
            )
        out.write('], "annotations": [')
        for number in range(instances):
            image, label = draw.randrange(images), draw.randrange(CLASSES)
            x, y, width, height = (round(draw.uniform(1, 400), 2) for _ in range(4))
            lines[image].append(
                f"{label} " + " ".join(f"{value / 1000:.6f}" for value in (x, y, width, height))
            )
            out.write(
                f'{", " * (number > 0)}{{"segmentation": [[{draw.choice(shapes)}]], "area": {width * height:.4f}, '
                f'"iscrowd": 0, "image_id": {image + 1}, "bbox": [{x}, {y}, {width}, {height}], '
                f'"category_id": {label}, "id": {number + 1}}}'
            )
        categories = [{"id": label, "name": f"class {label}"} for label in range(CLASSES)]
        out.write(f'], "categories": {json.dumps(categories)}}}')
    for number, each in enumerate(lines):
        (folder / f"labels/{number:012}.txt").write_text("\n".join(each))


def coco(folder: Path) -> Coco:
    return Coco(folder / "images", folder / "coco.json", index=folder / "coco.index")


def yolo(folder: Path) -> YoloLabels:
    return YoloLabels(folder, index=folder / "yolo.index")


def opened(source: Callable[[Path], Coco | YoloLabels], *, again: bool) -> Callable[[Path], dict[str, float]]:
    """Return what measures opening a source, with its index or without."""

    def measure(folder: Path) -> dict[str, float]:
        made = source(folder)
        if not again:
            Path(os.fspath(made.index)).unlink(missing_ok=True)  # type: ignore[arg-type]
        took, records = timed(made.open)
        indices = np.random.default_rng(0).integers(0, records.num_records, LOCATED)
        records.locate(indices)
        begin = time.perf_counter()
        records.locate(indices)
        return took | {"located_s": time.perf_counter() - begin}

    return measure


def load(folder: Path) -> dict[str, float]:
    def read() -> object:
        with (folder / "coco.json").open("rb") as file:
            return json.load(file)

    return timed(read)[0]


def timed(call: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    result = call()
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_mib": peak}, result


CHILDREN = {
    "coco": opened(coco, again=False),
    "coco again": opened(coco, again=True),
    "yolo": opened(yolo, again=False),
    "yolo again": opened(yolo, again=True),
    "json.load": load,
}


if __name__ == "__main__":
    main()
