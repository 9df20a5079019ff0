"""Measure the CPU time of warps, LetterBox and RandomHSV for 640 × 640 × 3 pixels, beside OpenCV in one thread.

Ours: the difference between an epoch with the transform and one without it, over 64 photos in memory, divided by the
photos. OpenCV's: ``warpAffine``, ``warpPerspective`` and ultralytics' recipe of ``cvtColor`` and ``LUT`` on the same
photos, without a loader. The letter box is for their parts of 480 × 360. It needs ``opencv-python-headless``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
from _measure import Figure, column, in_turn, parser, ratio, report

import standpipe as sp

SIDE, IMAGES = 640, 64
FILL = (114, 114, 114)


def main() -> None:
    args = parser(__doc__, rounds=7).parse_args()
    cv2.setNumThreads(1)
    photos = sp.Pipeline(sp.ImageFolder(args.path)).map(sp.Resize((SIDE, SIDE))).batch(IMAGES)
    with photos.loader() as loader:
        images = loader.peek()["image"].copy()
    affine = partial(sp.RandomAffine, 10, (0.1, 0.1), (0.5, 1.5), 2, fill=FILL)
    ours: dict[str, Any] = {
        "affine": affine(interpolation="bilinear", pixels="opencv"),
        "affine, Pillow's": affine(interpolation="bilinear"),
        "affine, nearest": affine(pixels="opencv"),
        "perspective": sp.RandomPerspective(0.2, 1.0, fill=FILL, pixels="opencv"),
        "letterbox": sp.LetterBox(SIDE),
        "hsv": sp.RandomHSV(),
    }
    of = dict.fromkeys(ours, images) | {"letterbox": images[:, :360, :480].copy()}
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        f"ours {name}": partial(loaded, of[name], [step]) for name, step in ours.items()
    }
    runs["ours nothing"] = partial(loaded, images, [])
    runs |= {f"theirs {name}": partial(called, of[name], call) for name, call in theirs().items()}
    results = in_turn(args.rounds, runs)
    nothing = column(results["ours nothing"], "ms")
    rows: list[list[Any]] = []
    for name in ours:
        own = [
            each - least for each, least in zip(column(results[f"ours {name}"], "ms"), nothing, strict=True)
        ]
        other = column(results[f"theirs {name.split(', P')[0]}"], "ms")
        rows.append([name, Figure(own, ".2f"), Figure(other, ".2f"), f"{ratio(own, other).median:.2f}"])
    header = ["transform", "ms of CPU", "OpenCV", "it ÷ OpenCV"]
    note = f"{SIDE} × {SIDE} × 3"
    report(args, header, rows, note, packages=("opencv-python-headless", "numpy"))


def loaded(images: Any, steps: list[Any]) -> dict[str, Any]:
    """Return the milliseconds of CPU that an image takes in our loader."""
    pipeline = sp.Pipeline(sp.Arrays(image=images)).map(*steps, sp.ToDtype("uint8"))
    with pipeline.batch(16).loader(num_workers=1) as loader:
        for _ in loader:  # the first epoch touches the memory
            pass
        before = time.process_time()
        for _ in loader:
            pass
        return {"ms": 1e3 * (time.process_time() - before) / len(images)}


def called(images: Any, call: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the milliseconds of CPU that an image takes in OpenCV."""
    call(images[0])
    before = time.process_time()
    for image in images:
        call(image)
    return {"ms": 1e3 * (time.process_time() - before) / len(images)}


def theirs() -> dict[str, Callable[[Any], Any]]:
    random = np.random.default_rng(1)

    def matrix() -> Any:
        turn: Any = cv2.getRotationMatrix2D(
            (SIDE / 2, SIDE / 2), random.uniform(-10, 10), random.uniform(0.5, 1.5)
        )
        turn[:, 2] += random.uniform(-0.1 * SIDE, 0.1 * SIDE, 2)
        return turn

    def affine(image: Any, flags: int = cv2.INTER_LINEAR) -> Any:
        return cv2.warpAffine(image, matrix(), (SIDE, SIDE), flags=flags, borderValue=FILL)

    def perspective(image: Any) -> Any:
        full = np.vstack([matrix(), [*random.uniform(-1e-4, 1e-4, 2), 1]])
        return cv2.warpPerspective(image, full, (SIDE, SIDE), borderValue=FILL)

    def letterbox(image: Any) -> Any:
        made = cv2.resize(image, (SIDE, SIDE * 3 // 4))
        return cv2.copyMakeBorder(made, SIDE // 8, SIDE // 8, 0, 0, cv2.BORDER_CONSTANT, value=FILL)

    def hsv(image: Any) -> Any:
        gains = random.uniform(-1, 1, 3) * [0.015, 0.7, 0.4]
        x = np.arange(256)
        tables = [(x + gains[0] * 180) % 180, *(np.clip(x * (1 + gain), 0, 255) for gain in gains[1:])]
        table = np.stack(tables, -1).astype(np.uint8)[None]
        return cv2.cvtColor(cv2.LUT(cv2.cvtColor(image, cv2.COLOR_BGR2HSV), table), cv2.COLOR_HSV2BGR)

    return {
        "affine": affine,
        "affine, nearest": partial(affine, flags=cv2.INTER_NEAREST),
        "perspective": perspective,
        "letterbox": letterbox,
        "hsv": hsv,
    }


if __name__ == "__main__":
    main()
