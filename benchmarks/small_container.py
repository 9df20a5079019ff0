"""Does a loader stay within its memory in a container of 512 MB?

Epochs of the standard task with images of adversarial sizes among the photos, in a control group of its own: in
threads with native decoding, in threads with Python code in between, and in worker processes with the same. Beside
the budget, ``memory=`` and what the process had when the plan was made, stands the most that the process and all that
it started took together (PSS), and what the kernel killed. Images that need more than the side arena are replaced.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from _container import Container, Unavailable
from _faults import identity
from _measure import MIB, Figure, parser, progress, report
from PIL import Image

import standpipe as sp
from standpipe.cli.bench import process_tree, proportional_bytes

EXECUTORS = {
    "native": "threads, native",
    "thread": "threads, Python code",
    "process": "processes, Python code",
}
SIDE = "48MiB"
Shape = tuple[int, int]  # height and width in pixels
# Images that need a whole frame: all except the last one fit into ``SIDE``.
ODD: dict[str, tuple[Shape, dict[str, Any]]] = {
    "point.jpg": ((1, 1), {}),
    "speck.png": ((2, 3), {}),
    "wide.jpg": ((40, 40_000), {}),
    "tall.jpg": ((40_000, 40), {}),
    "large.jpg": ((4000, 6000), {"quality": 90}),
    "progressive.jpg": ((2800, 3700), {"progressive": True}),
    "progressive444.jpg": ((2000, 2500), {"progressive": True, "subsampling": "4:4:4"}),
    "wide.png": ((90, 40_000), {"compress_level": 1}),
    "large.png": ((1800, 2400), {"compress_level": 1}),
    "large.webp": ((1200, 1800), {"method": 0}),
    "large.tif": ((1500, 1700), {}),
    "huge.png": ((6000, 8000), {"compress_level": 1}),
}


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument(
        "--limit", type=int, default=512 * 10**6, metavar="BYTES", help="of the group (512 MB)"
    )
    arguments.add_argument("--memory", help="memory= of the loader (default: its own, half of what is free)")
    arguments.add_argument("--epochs", type=int, default=20, metavar="N", help="how many (default: 20)")
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    arguments.add_argument(
        "--copies", type=int, default=4, metavar="N", help="of each odd image (default: 4)"
    )
    arguments.add_argument("--workers", type=int, default=2, metavar="N", help="how many (default: 2)")
    arguments.add_argument("--inside", choices=EXECUTORS, help=argparse.SUPPRESS)  # run one, in the group
    args = arguments.parse_args()
    if args.inside is not None:
        print(json.dumps(inside(args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Container(args.limit):  # before the photos are made, which takes longer
                pass
        except Unavailable as error:
            print(f"{args.question}\n  not measured: {error}")
            return
        make_photos(Path(folder), Path(args.path), args.copies)
        runs = {
            executor: [measured(args, folder, executor) for _ in range(args.rounds)] for executor in EXECUTORS
        }
    progress("")
    rows = []
    for executor, results in runs.items():
        rows.append(
            [
                EXECUTORS[executor],
                *(figure(results, key) for key in ("budget", "peak", "group")),
                Figure([result["peak"] / result["budget"] for result in results], ".3f"),
                Figure([result["rows"] for result in results]),
                Figure([result["replaced"] for result in results]),
                Figure([result["kills"] for result in results]),
            ]
        )
    header = ["executor", "budget, MiB", "PSS", "group", "PSS ÷ budget", "rows", "replaced", "OOM kills"]
    same = len({result["sum"] for results in runs.values() for result in results}) == 1
    report(
        args,
        header,
        rows,
        f"{args.epochs} epochs; the group may have {args.limit / MIB:.0f} MiB, page cache among them; all executors "
        f"gave {'the same rows' if same else 'OTHER ROWS'}",
    )


def figure(results: list[dict[str, Any]], key: str) -> Figure:
    """Bytes, in MiB."""
    return Figure([result[key] / MIB for result in results])


def make_photos(folder: Path, photos: Path, copies: int) -> None:
    """A folder of class folders: the photos, and odd images beside them."""
    for place in sorted(path for path in photos.iterdir() if path.is_dir()):
        (folder / place.name).symlink_to(place.absolute())
    (folder / "odd").mkdir()
    draws = np.random.default_rng(0)
    for name, ((height_px, width_px), settings) in ODD.items():
        few = draws.integers(0, 256, (max(height_px // 64, 1), max(width_px // 64, 1), 3), dtype=np.uint8)
        image = Image.fromarray(few).resize((width_px, height_px))
        first = folder / "odd" / name
        image.save(first, **settings)
        for number in range(1, copies):
            (folder / "odd" / f"{number}-{name}").hardlink_to(first)


def measured(args: argparse.Namespace, folder: str, executor: str) -> dict[str, Any]:
    """Run a process in a memory group of its own; return its figures, and those seen from outside."""
    progress(EXECUTORS[executor])
    command = [sys.executable, __file__, folder, "--inside", executor]
    for name in ("memory", "epochs", "batch", "workers"):
        if getattr(args, name) is not None:
            command += [f"--{name}", str(getattr(args, name))]
    peak = 0
    with Container(args.limit) as container:
        with subprocess.Popen(container.command(command), stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                peak = max(peak, sum(map(proportional_bytes, process_tree(process.pid))))
            assert process.stdout is not None
            told = process.stdout.read()
        kills, group = container.kills, container.peak_bytes
    if process.returncode != 0:
        raise SystemExit(f"{EXECUTORS[executor]}: ended with {process.returncode}, {kills} OOM kills")
    return {**json.loads(told), "peak": peak, "kills": kills, "group": group}


def inside(args: argparse.Namespace) -> dict[str, Any]:
    """Run the task; in the group."""
    native = args.inside == "native"
    task = sp.Pipeline(sp.ImageFolder(args.path)).shuffle(seed=0).on_error(sp.Replace(at_most=0.1))
    task = task.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip())
    task = task if native else task.map(identity, field="image")
    task = task.map(sp.Normalize()).batch(args.batch, last_batch="partial")
    settings: dict[str, Any] = {"executor": "thread" if native else args.inside, "workers": args.workers}
    settings["large_image_memory"] = SIDE  # the same for all, so that the same images are replaced
    if args.memory is not None:
        settings["memory"] = args.memory
    rows, checksum = 0, 0
    with task.loader(**settings) as loader:
        for _ in range(args.epochs):
            for batch in loader:
                rows += len(batch["index"])
                checksum = zlib.crc32(batch["image"].data, checksum)
        budget = loader.plan.forecast.process + loader.plan.memory_bytes
        replaced = len({(bad.epoch, bad.position) for bad in loader.bad_samples})
    return {"budget": budget, "rows": rows, "replaced": replaced, "sum": checksum}


if __name__ == "__main__":
    main()
