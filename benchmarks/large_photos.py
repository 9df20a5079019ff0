"""Measure the gain of decoding large photos at a fraction of their size, and the memory that they need.

64 images of PATH are enlarged to 12 megapixels (bicubic, JPEG quality 90, 4:2:0), as they are and with noise to 2–3
bits per pixel, as a camera's files have them. ``--decode fast`` and exact run in turn; beside them the small
originals, whose peak memory shows what size costs.

With ``--dali PYTHON SCRIPT`` a script of yours takes part, called as
``PYTHON SCRIPT FOLDER train float32 WORKERS SECONDS``; its last line is one JSON object with ``images_per_s``
and ``peak_pss_mib``.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Figure, bench, column, in_turn, last_json, parser, progress, ratio, report
from PIL import Image

import standpipe as sp
from standpipe.system.machine import cpu_count

IMAGES = 64
PIXELS = 12_000_000
CLASSES = 4
NOISES = (0, 2, 4, 6, 8, 10, 12, 14)  # standard deviations; the first that reaches the bits is taken
LEAST_BITS_PER_PIXEL = 2.2
SETS = ("smooth", "noisy")


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--seconds", type=float, default=4.0, metavar="S", help="of each run (default: 4)")
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="decoding threads (default: 2)"
    )
    arguments.add_argument("--dali", nargs=2, metavar=("PYTHON", "SCRIPT"), help="a peer to run beside it")
    arguments.add_argument(
        "--keep", metavar="FOLDER", help="make the photos here, and use what is here already"
    )
    args = arguments.parse_args()
    with folder_for(args.keep) as folder:
        bits = make_photos(Path(args.path), folder)
        errors = {subset: error_of_fast(folder / subset) for subset in SETS}
        results = in_turn(args.rounds, measures(args, folder))
    rows = []
    for name, runs in results.items():
        subset, _, how = name.partition(" ")
        rates = Figure(column(runs, "images_per_s"), ".1f")
        to_exact = against(results, name, f"{subset} exact", "images_per_s")
        memory = Figure(column(runs, "peak_pss_mib"))
        to_small = against(results, name, "small exact", "peak_pss_mib")
        rows.append([subset, how, bits.get(subset, "—"), rates, to_exact, memory, to_small])
    header = ["photos", "decode", "bits per pixel", "images/s", "÷ exact", "peak PSS MiB", "÷ small"]
    notes = [
        f"train, float32, batch {args.batch}, {args.workers} workers; {IMAGES} photos of {PIXELS / 1e6:.0f} megapixels",
        *(f"fast − exact on {subset}: {error}" for subset, error in errors.items()),
    ]
    report(args, header, rows, *notes, packages=("pillow",))


def measures(args: Any, folder: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the measurements of each round, by name: a set of photos and a way to decode it."""
    task = ("--workers", args.workers, "--batch", args.batch, "--seconds", args.seconds)
    found: dict[str, Callable[[], dict[str, Any]]] = {"small exact": partial(bench, args.path, *task)}
    for subset in SETS:
        for how in ("exact", "fast"):
            found[f"{subset} {how}"] = partial(bench, folder / subset, *task, "--decode", how)
        if args.dali:
            command = [*args.dali, folder / subset, "train", "float32", args.workers, args.seconds]
            found[f"{subset} dali"] = partial(last_json, command)
    return found


def error_of_fast(folder: Path) -> str:
    """Return the difference of ``fast`` pixels from exact ones, in levels of 0 to 255, on one epoch of crops."""
    crops = sp.Pipeline(sp.ImageFolder(folder)).map(sp.RandomResizedCrop(224)).batch(IMAGES)
    pixels = []
    for how in ("exact", "fast"):
        with crops.decode(how).loader() as loader:
            pixels.append(next(iter(loader))["image"].astype(np.int16))
    error = np.abs(pixels[1] - pixels[0])
    within = np.percentile(error, 99)
    return (
        f"{error.mean():.2f} levels in the mean, {within:.0f} at the 99th percentile, {error.max()} at most"
    )


def against(results: dict[str, list[dict[str, Any]]], name: str, base: str, key: str) -> str:
    """The median ratio of two measures that ran in the same rounds."""
    return f"{ratio(column(results[name], key), column(results[base], key)).median:.2f}"


@contextlib.contextmanager
def folder_for(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        yield Path(keep)
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def make_photos(originals: Path, folder: Path) -> dict[str, str]:
    """Write what is missing of both sets; their mean bits per pixel."""
    files = sorted(file for file in originals.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
    chosen = list(islice(cycle(files), IMAGES))
    for number in range(CLASSES):
        for subset in SETS:
            (folder / subset / f"class-{number}").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(cpu_count()) as threads:
        for done, _ in enumerate(threads.map(partial(write_both, folder), range(IMAGES), chosen)):
            progress(f"making large photos: {done + 1} of {IMAGES}")
    progress("")
    sizes = {subset: [file.stat().st_size for file in (folder / subset).rglob("*.jpg")] for subset in SETS}
    return {subset: f"{8 * sum(each) / len(each) / PIXELS:.2f}" for subset, each in sizes.items()}


def write_both(folder: Path, number: int, original: Path) -> None:
    smooth, noisy = (folder / subset / f"class-{number % CLASSES}" / f"{number:03}.jpg" for subset in SETS)
    if smooth.exists() and noisy.exists():
        return
    with Image.open(original) as image:
        scale = (PIXELS / (image.width * image.height)) ** 0.5
        size = round(image.width * scale), round(image.height * scale)
        large = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    write(smooth, encoded(large))
    random = np.random.default_rng(number)
    grain = random.standard_normal((*size[::-1], 1), np.float32)
    pixels = np.asarray(large, np.float32)
    corner = (slice(size[1] // 3, size[1] // 3 + 512), slice(size[0] // 3, size[0] // 3 + 512))
    for noise in NOISES:  # tried on a corner, as encoding takes long
        data = encoded(with_grain(pixels[corner], grain[corner], noise))
        if 8 * len(data) / 512**2 >= LEAST_BITS_PER_PIXEL:
            break
    write(noisy, encoded(with_grain(pixels, grain, noise)))


def with_grain(pixels: np.ndarray, grain: np.ndarray, noise: float) -> Image.Image:
    return Image.fromarray(np.clip(pixels + noise * grain, 0, 255).astype(np.uint8))


def encoded(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, subsampling="4:2:0")
    return file.getvalue()


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, so that an interrupted run leaves nothing half."""
    partial_path = path.with_suffix(".part")
    partial_path.write_bytes(data)
    partial_path.replace(path)


if __name__ == "__main__":
    main()
