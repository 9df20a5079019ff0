"""Compare the random numbers of our YOLO recipe with those of ultralytics' own transforms.

Both loaders deliver --rows rows of made images, and every number is calculated from what the rows show: the place of a
mosaic's centre, the scale and the shifts of the warp, the gains of hue, saturation and value, the boxes that CutMix
adds, and the number and the mean area of the boxes that are left after the whole recipe. For each, a
Kolmogorov–Smirnov test says how probable such a difference is between samples of one distribution: of ten numbers one
has a p below 0.1 by chance, and a p below 0.001 is a finding. ``--python ultralytics=PATH`` names the Python of an
environment that has ultralytics. PATH isn't used.
"""

from __future__ import annotations

import colorsys
import json
import math
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _measure import add_pythons, last_json, parser, progress, pythons, report
from _yolo_peers import CLASSES, LOADERS, PX, RECIPE
from PIL import Image

PEERS = Path(__file__).with_name("_yolo_peers.py")
HSV = 60 / 180, 120 / 255, 140 / 255  # no gain leads out of the range of a byte
NOTHING = dict.fromkeys(RECIPE, 0.0)
Values = dict[str, list[float]]


def main() -> None:
    made = parser(__doc__, rounds=1)
    add_pythons(made, LOADERS)
    made.add_argument("--rows", type=int, default=2000, metavar="N", help="default: 2,000")
    args = made.parse_args()
    found: dict[str, Values] = {}
    for loader, python in {"standpipe": sys.executable, **pythons(args)}.items():
        found[loader] = {}
        for name, (size, boxes, recipe, shown) in PARTS.items():
            progress(f"{loader}: {name}")
            with tempfile.TemporaryDirectory(prefix="standpipe-draws-") as folder:
                write(Path(folder), args.rows, size, boxes)
                words = [folder, "--rows", args.rows, "--recipe", json.dumps(NOTHING | recipe)]
                found[loader] |= shown(last_json([python, PEERS, loader, "rows", *words]))
    progress("")
    ours = found.pop("standpipe")
    rows = [
        [name, loader, *(f"{np.mean(each):.4g} ± {np.std(each):.3g}" for each in (ours[name], values)), *ks]
        for loader, theirs in found.items()
        for name, values in theirs.items()
        for ks in [[f"{figure:.3f}" for figure in kolmogorov_smirnov(ours[name], values)]]
    ]
    report(args, ["number", "beside", "ours", "theirs", "distance", "p"], rows, f"{args.rows:,} rows each")


def write(folder: Path, images: int, size: tuple[int, int], boxes: Callable[[random.Random], Any]) -> None:
    """Write images of one colour, and label files with boxes as centres and sides."""
    draw = random.Random(5)
    for name in ("images", "labels"):
        (folder / name).mkdir()
    photo = Image.new("RGB", size, tuple(round(255 * value) for value in colorsys.hsv_to_rgb(*HSV)))
    for number in range(images):
        photo.save(folder / f"images/{number:06}.jpg", quality=100, subsampling=0)
        lines = (f"{draw.randrange(CLASSES)} {x:.6f} {y:.6f} {w:.6f} {h:.6f}" for x, y, w, h in boxes(draw))
        (folder / f"labels/{number:06}.txt").write_text("\n".join(lines))


def one_box(side: float) -> Callable[[random.Random], Any]:
    return lambda _draw: [(0.5, 0.5, side, side)]


def two_boxes(draw: random.Random) -> Any:
    return [(draw.uniform(0.1, 0.9), draw.uniform(0.1, 0.9), 0.2, 0.2) for _ in range(2)]


def some_boxes(draw: random.Random) -> Any:
    for _ in range(draw.randint(0, 14)):
        sides = [draw.uniform(0.02, 0.6) for _ in range(2)]
        yield *(draw.uniform(side / 2, 1 - side / 2) for side in sides), *sides


def centre(rows: dict[str, Any]) -> Values:
    """Return where the images of each mosaic meet: the edges of boxes that aren't those of the row."""
    places: Values = {"centre x": [], "centre y": []}
    for boxes in rows["boxes"]:
        for axis, values in enumerate(places.values()):
            edges = np.array(boxes)[:, axis::2]
            inner = edges[(edges > 0.1) & (edges < PX - 0.1)]
            values.append(float(np.median(inner)) if inner.size else 0.0)
    return places


def warp(rows: dict[str, Any]) -> Values:
    """Return scale and shifts from the place of a box in the middle of each image, of half its sides."""
    box = np.array([boxes[0] for boxes in rows["boxes"]])
    shifts = (box[:, :2] + box[:, 2:]) / 2 / PX
    scale = (box[:, 2] - box[:, 0]) / (PX / 2)
    return {"scale": scale.tolist(), "shift x": shifts[:, 0].tolist(), "shift y": shifts[:, 1].tolist()}


def added(rows: dict[str, Any]) -> Values:
    """Return the number of boxes that CutMix added to the two of a row, and their sides."""
    sides = [np.array(boxes)[2:] @ [[-1, 0], [0, -1], [1, 0], [0, 1]] for boxes in rows["boxes"]]
    sides = [each[each.min(axis=1) >= 2] for each in sides]  # ours drops smaller ones
    x, y = np.concatenate(sides).round(2).T.tolist()  # most are 128, more or less
    return {"boxes added": [len(each) for each in sides], "their width": x, "their height": y}


def hue(rows: dict[str, Any]) -> Values:
    """Return by how much of 180 the hue was shifted."""
    return {"hue": [round(180 * (found[0] - HSV[0])) for found in in_hsv(rows)]}


def gains(rows: dict[str, Any]) -> Values:
    """Return by how much saturation and value were multiplied."""
    found = zip(*in_hsv(rows), strict=True)
    _, *gains = [[each / before for each in column] for column, before in zip(found, HSV, strict=True)]
    return dict(zip(("saturation", "value"), gains, strict=True))


def in_hsv(rows: dict[str, Any]) -> list[tuple[float, float, float]]:
    return [colorsys.rgb_to_hsv(*(value / 255 for value in colour)) for colour in rows["colours"]]


def left(rows: dict[str, Any]) -> Values:
    """Return the number of boxes and their mean area, of each row."""
    areas = [[(x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in boxes] for boxes in rows["boxes"]]
    return {"boxes": [len(each) for each in areas], "area": [float(np.mean(each)) for each in areas if each]}


def kolmogorov_smirnov(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """Return the largest distance between two distributions, and how probable a larger one is if they are equal."""
    places = np.sort(np.concatenate([ours, theirs]))
    below = [np.searchsorted(np.sort(each), places, side="right") / len(each) for each in (ours, theirs)]
    distance = float(np.abs(below[0] - below[1]).max())
    root = math.sqrt(len(ours) * len(theirs) / (len(ours) + len(theirs)))
    scaled = distance * (root + 0.12 + 0.11 / root)
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return distance, min(1.0, max(0.0, sum(terms))) if scaled > 0.2 else 1.0


# Of each part: the images' size, their boxes, the recipe's values other than 0, and what its rows show.
PARTS: dict[str, tuple[tuple[int, int], Callable[[random.Random], Any], dict[str, float], Any]] = {
    "mosaic": ((PX, PX), one_box(1.0), {"mosaic": 1.0}, centre),
    "warp": ((PX, PX), one_box(0.5), {name: RECIPE[name] for name in ("scale", "translate")}, warp),
    "hue": ((PX, PX), one_box(0.5), {"hsv_h": RECIPE["hsv_h"]}, hue),
    "gains": ((PX, PX), one_box(0.5), {name: RECIPE[name] for name in ("hsv_s", "hsv_v")}, gains),
    "cutmix": ((PX, PX), two_boxes, {"cutmix": 1.0}, added),
    "recipe": ((640, 480), some_boxes, RECIPE, left),
}


if __name__ == "__main__":
    main()
