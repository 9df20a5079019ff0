"""Compare tar shards with the loose files that are in them, with two workers.

Python's tarfile packs the photos into shards. First both train in turns in one process, warm: random crops to
224 × 224, float32. Then each runs in a process of its own, warm and on storage that takes 5 ms longer to open a file
and serves four such calls at a time (a library loaded before all others, as in slow_storage.py). The index of the
shards is there before. The opens are those of all epochs of a run. Reads are measured without decoding, four at once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from _measure import (
    Figure,
    Turns,
    column,
    compare_in_turns,
    in_turn,
    last_json,
    parser,
    ratio,
    report,
    train_task,
)
from slow_storage import slowed

import standpipe as sp
from standpipe.cli.bench import measure

LOOSE, SHARDS = "loose files", "tar shards"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Places:
    """A folder of class folders with photos, and shards with the same photos."""

    folder: str
    shards: tuple[str, ...]

    @property
    def sources(self) -> dict[str, sp.ImageFolder | sp.TarShards]:
        return {LOOSE: sp.ImageFolder(self.folder), SHARDS: sp.TarShards(self.shards)}


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument(
        "--turns", type=int, default=16, metavar="N", help="turns of each in one process (default: 16)"
    )
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows of a batch (default: 64)")
    arguments.add_argument(
        "--batches", type=int, default=40, metavar="N", help="batches of a turn (default: 40)"
    )
    arguments.add_argument(
        "--seconds",
        type=float,
        default=4.0,
        metavar="S",
        help="of each run in a process of its own (default: 4)",
    )
    arguments.add_argument("--shards", type=int, default=4, metavar="N", help="shards (default: 4)")
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="decoding threads (default: 2)"
    )
    arguments.add_argument("--open-ms", type=float, default=5.0, metavar="MS", help="default: 5")
    arguments.add_argument(
        "--at-once", type=int, default=4, metavar="N", help="opens served at once (default: 4)"
    )
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.child is not None:
        print(json.dumps(run(args, json.loads(args.child))))
        return
    with tempfile.TemporaryDirectory() as folder:
        places = Places(
            str(Path(args.path).resolve()), packed(args.path, Path(folder, "shards"), args.shards)
        )
        (Path(folder, "library")).mkdir()
        for source in places.sources.values():
            source.open()  # so that the indexes are there
        in_one_process(args, places)
        in_processes(args, places, Path(folder, "library"))


def packed(photos: str, folder: Path, count: int) -> tuple[str, ...]:
    """Pack the photos and their labels into ``count`` shards; return their paths."""
    folder.mkdir()
    classes = sorted(each for each in Path(photos).iterdir() if each.is_dir())
    labels = {path: number for number, each in enumerate(classes) for path in sorted(each.iterdir())}
    files = list(labels)
    paths = [folder / f"photos-{number:03d}.tar" for number in range(count)]
    for number, path in enumerate(paths):
        with tarfile.open(path, "w") as tar:
            for file in files[number * len(files) // count : (number + 1) * len(files) // count]:
                key = f"{file.parent.name}/{file.stem}".replace(".", "_")
                tar.add(file, f"{key}{file.suffix.lower()}")
                (folder / "label").write_text(str(labels[file]))
                tar.add(folder / "label", f"{key}.cls")
    (folder / "label").unlink()
    return tuple(map(str, paths))


def pipeline(args: argparse.Namespace, source: sp.ImageFolder | sp.TarShards) -> sp.Pipeline:
    return replace(train_task(args.path, args.batch), source=source)


def in_one_process(args: argparse.Namespace, places: Places) -> None:
    """Train in turns, warm, and report rates and CPU time."""
    turns = {
        name: Turns(pipeline(args, source).loader(memory="1GiB", num_workers=args.workers))
        for name, source in places.sources.items()
    }
    compare_in_turns(argparse.Namespace(**vars(args) | {"rounds": args.turns}), "from", turns)


def in_processes(args: argparse.Namespace, places: Places, folder: Path) -> None:
    """Run each in processes of its own, warm and slow, and report."""
    command = [sys.executable, __file__, *sys.argv[1:], "--child"]
    slow = {
        name: slowed(folder, below, open_ms=args.open_ms, at_once=args.at_once)
        for name, below in ((LOOSE, places.folder), (SHARDS, str(Path(places.shards[0]).parent)))
    }
    runs: dict[str, tuple[str, dict[str, str] | None]] = {
        f"{name}, {how}": (name, slow[name] if how == "slow" else None)
        for how in ("warm", "slow")
        for name in (LOOSE, SHARDS)
    }

    def child(name: str, env: dict[str, str] | None) -> dict[str, Any]:
        return last_json([*command, json.dumps([name, places.folder, places.shards])], env=env)

    results = in_turn(args.rounds, {label: partial(child, *of) for label, of in runs.items()})
    rows: list[Sequence[Any]] = [
        [
            label,
            Figure(column(found, "images_per_s")),
            Figure(column(found, "reads_per_s")),
            Figure(column(found, "first_batch_s"), ".2f"),
            Figure(column(found, "peak_pss_mib")),
            ratio(column(found, "peak_pss_mib"), column(found, "forecast_mib")),
            Figure(column(found, "opens_per_file"), ".2f"),
            Figure(column(found, "epochs"), ".1f"),
            Figure(column(found, "rows_per_range"), ".2f"),
        ]
        for label, found in results.items()
    ]
    header = [
        "files",
        "images/s",
        "reads/s",
        "first batch s",
        "peak PSS MiB",
        "peak ÷ forecast",
        "opens per file",
        "epochs",
        "images per read",
    ]
    beside = {
        how: ratio(*(column(results[f"{name}, {how}"], "images_per_s") for name in (SHARDS, LOOSE)))
        for how in ("warm", "slow")
    }
    report(
        args,
        header,
        rows,
        *(f"images/s, shards ÷ loose, {how}: {figure}" for how, figure in beside.items()),
        f"slow: {args.open_ms:g} ms added to every open, {args.at_once} at a time; {args.shards} shards",
    )


def run(args: argparse.Namespace, child: list[Any]) -> dict[str, float]:
    """Train for some seconds in this process; return the figures."""
    name, folder, shards = child
    source = Places(folder, tuple(shards)).sources[name]
    plan = pipeline(args, source).plan(memory="1GiB", num_workers=args.workers)
    bench = argparse.Namespace(seconds=args.seconds, step_ms=0, task="train", dtype="float32")
    with measure(plan, bench) as (result, loader):
        figures = result.as_json()
    stats = loader.stats()
    files = len(shards) if name == SHARDS else plan.source.num_records
    return {
        key: figures[key] for key in ("images_per_s", "first_batch_s", "peak_pss_mib", "forecast_mib")
    } | {
        "opens_per_file": stats.opens / files,
        "epochs": stats.read.rows / plan.source.num_records,
        "rows_per_range": stats.read.rows / stats.ranges,
        "reads_per_s": sp.measure_reads(plan, seconds=1, threads=args.at_once).files_per_s,
    }


if __name__ == "__main__":
    main()
