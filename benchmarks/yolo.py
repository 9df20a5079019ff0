"""Measure the YOLO family's recipe beside ultralytics' own loader and AlbumentationsX.

640 × 640: a mosaic of four, an affine warp (translation 0.1, scale 0.5), MixUp for a tenth of the rows, hue, saturation
and value (0.015, 0.7, 0.4), a flip; uint8 in NCHW, batches of 16, and the same number of workers. The data are --images
links to the photos of PATH, with --boxes random boxes each on average, in the family's layout. Files are in the page
cache. CPU time is that of the process and its workers. ``--python ultralytics=PATH`` and ``--python
AlbumentationsX=PATH`` name the Pythons of environments that have them; both need ``opencv-python-headless`` 4, whose
warps are faster than those of OpenCV 5.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from _measure import Figure, add_pythons, column, in_turn, last_json, parser, pythons, ratio, report
from _yolo_peers import CLASSES, LOADERS, RECIPE
from beside_torch import listed

PEERS = Path(__file__).with_name("_yolo_peers.py")
OURS = "standpipe"


def main() -> None:
    made = parser(__doc__, rounds=5)
    add_pythons(made, LOADERS)
    made.add_argument("--images", type=int, default=4096, metavar="N", help="default: 4,096")
    made.add_argument("--boxes", type=int, default=7, metavar="N", help="of an image (default: 7)")
    made.add_argument("--workers", type=int, default=2, metavar="N", help="of each loader (default: 2)")
    made.add_argument("--batch", type=int, default=16, metavar="N", help="rows (default: 16)")
    made.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each run (default: 10)")
    args = made.parse_args()
    found = {OURS: sys.executable} | pythons(args)
    settings = ("--workers", args.workers, "--batch", args.batch, "--seconds", args.seconds)
    with tempfile.TemporaryDirectory(prefix="standpipe-yolo-") as folder:
        write(Path(folder), [path for path, _ in listed(args.path)], args.images, args.boxes)
        results = in_turn(
            args.rounds,
            {
                loader: partial(last_json, [python, PEERS, loader, "rate", folder, *settings])
                for loader, python in found.items()
            },
        )
    rows: list[list[Any]] = []
    for loader, runs in results.items():
        rates, cpu = column(runs, "images_per_s"), column(runs, "cpu_ms_per_image")
        faster = ratio(column(results[OURS], "images_per_s"), rates).median
        cheaper = ratio(cpu, column(results[OURS], "cpu_ms_per_image")).median
        rows.append([loader, Figure(rates), Figure(cpu, ".2f"), f"{faster:.2f}", f"{cheaper:.2f}"])
    note = (
        f"batch {args.batch}, {args.workers} workers, {args.boxes} boxes an image on average, recipe {RECIPE}"
    )
    heads = ["loader", "images/s", "CPU ms per image", "ours ÷ its rate", "its CPU ÷ ours"]
    report(args, heads, rows, note, packages=("torch", "opencv-python-headless"))


def write(folder: Path, photos: list[str], images: int, boxes: int) -> None:
    """Write links to photos, and label files with random boxes of 2% to 60% of the sides."""
    draw = random.Random(5)
    if not photos:
        raise SystemExit("PATH holds no class folders of JPEGs; standpipe synth makes some")
    for name in ("images", "labels"):
        (folder / name).mkdir()
    for number in range(images):
        (folder / f"images/{number:06}.jpg").symlink_to(os.path.realpath(photos[number % len(photos)]))
        lines = []
        for _ in range(draw.randint(0, 2 * boxes)):
            sides = [draw.uniform(0.02, 0.6) for _ in range(2)]
            middle = [draw.uniform(side / 2, 1 - side / 2) for side in sides]
            lines.append(
                " ".join([str(draw.randrange(CLASSES)), *(f"{value:.6f}" for value in (*middle, *sides))])
            )
        (folder / f"labels/{number:06}.txt").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
