"""Measure what instances cost in batches: rows a second, and memory beside its forecast, for few and many objects.

For each number of objects, --images links to photos get a label file of the YOLO family with as many lines. A process
of its own delivers --epochs epochs of a detector's transforms, with 2 workers, and says how much its memory grew, how
much the plan forecast, and how long putting batches together took for each row. 0 objects: the same images as a list.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _measure import MIB, Figure, column, in_turn, last_json, parser, report
from beside_torch import listed

import standpipe as sp
from standpipe.system.machine import process_memory_bytes

PHOTOS, BATCH = 100, 64
OBJECTS = (0, 1, 7, 300)


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("--images", type=int, default=2048, metavar="N", help="default: 2,048")
    made.add_argument("--epochs", type=int, default=2, metavar="N", help="default: 2")
    made.add_argument("--child", help="the folder that a process of its own measures")
    args = made.parse_args()
    if args.child is not None:
        print(json.dumps(measured(Path(args.child), args.epochs)))
        return
    with tempfile.TemporaryDirectory(prefix="standpipe-instances-") as folder:

        def child(objects: int) -> Callable[[], dict[str, Any]]:
            data = Path(folder, str(objects))
            write(data, args.path, args.images, objects)
            command = [sys.executable, __file__, args.path, "--epochs", args.epochs, "--child", data]
            return lambda: last_json(command)

        results = in_turn(args.rounds, {str(objects): child(objects) for objects in OBJECTS})
    names = ["rows_per_s", "together_us", "grown_mib", "forecast_mib"]
    rows = [
        [objects, *(Figure(column(found, name), ",.0f") for name in names)]
        for objects, found in results.items()
    ]
    heads = ["objects", "rows/s", "put together, µs/row", "grown by MiB", "forecast MiB"]
    report(args, heads, rows, f"{args.images:,} images, batches of {BATCH}, 2 workers")


def write(folder: Path, photos: str, images: int, objects: int) -> None:
    """Write links to photos, and label files unless there are no objects."""
    draw = random.Random(1)
    files = [os.path.realpath(path) for path, _ in listed(photos)[:PHOTOS]]
    if not files:
        raise SystemExit(f"{photos} holds no class folders of JPEGs; standpipe synth makes some")
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for number in range(images):
        (folder / f"images/{number:06}.jpg").symlink_to(files[number % len(files)])
        places = [(draw.uniform(0.1, 0.9), draw.uniform(0.1, 0.9)) for _ in range(objects)]
        lines = [f"{draw.randrange(80)} {x:.6f} {y:.6f} 0.15 0.18" for x, y in places]
        (folder / f"labels/{number:06}.txt").write_text("\n".join(lines))
    paths = [f"images/{number:06}.jpg\n" for number in range(images)]
    (folder / "list.txt").write_text("".join(paths))


def measured(folder: Path, epochs: int) -> dict[str, float]:
    """Return the speed, the growth of memory and its forecast, in a process of their own."""
    has_objects = folder.name != "0"
    source: Any = sp.YoloLabels(folder, index=folder / "index")
    if not has_objects:
        source = sp.FileList(folder / "list.txt", labels=False, index=folder / "index")
    transforms = [sp.RandomResizedCrop(320), sp.RandomHorizontalFlip(), sp.RandomAffine(10)]
    drops = [sp.SanitizeBoundingBoxes()] if has_objects else []
    pipeline = sp.Pipeline(source).shuffle(seed=1).map(*transforms, *drops, sp.Normalize()).batch(BATCH)
    pipeline.plan()  # builds the index
    before, rows = process_memory_bytes(), 0
    with pipeline.loader(num_workers=2, memory="1GiB") as loader:
        begin = time.perf_counter()
        for _ in range(epochs):
            rows += sum(len(batch["index"]) for batch in loader)
        took = time.perf_counter() - begin
        grown = max(process_memory_bytes() - before, 0)
        forecast = loader.plan.forecast.allocated
        together = loader.stats().batch.busy_s
    return {
        "rows_per_s": rows / took,
        "together_us": 1e6 * together / rows,
        "grown_mib": grown / MIB,
        "forecast_mib": forecast / MIB,
    }


if __name__ == "__main__":
    main()
