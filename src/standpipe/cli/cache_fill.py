"""``standpipe cache fill``: fill a cache ahead of the jobs that read it."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Literal

from standpipe.cli.terminal import print_json, progress, say

if TYPE_CHECKING:
    import standpipe as sp

ROWS = 64  # of a batch: nobody sees it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments besides the path."""
    from standpipe.cli.task import TASKS, add_source_arguments

    add_source_arguments(parser)
    parser.add_argument(
        "--cache", required=True, metavar="NAME", help="name of the cache, as in sp.Cache(NAME)"
    )
    parser.add_argument(
        "--task",
        choices=TASKS,
        default="train",
        help="train: any task that reads these files; eval: resize to 256, centre crop of 224 (default: train)",
    )
    parser.add_argument(
        "--place",
        choices=("bytes", "images"),
        help="what is kept: the bytes of files, as .cache(…) right after the source does, or images, as it does "
        "behind the transforms of eval (default: bytes for train, images for eval)",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory that the cache may take (default: as it was created, or half of what is free)",
    )
    parser.add_argument(
        "--spill", metavar="FOLDER", help="folder on a disk, for rows that don't fit into memory"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: one per CPU)")


def run(args: argparse.Namespace) -> int:
    """Fill the cache with every record, and print how many rows it has now."""
    import standpipe as sp

    started, pipeline = time.monotonic(), _pipeline(args)
    workers: int | Literal["auto"] = args.workers or "auto"
    plan = pipeline.plan(num_workers=workers)
    before, records = _rows(plan), plan.source.num_records
    with progress("keeping", records) as advance:
        sp.fill_cache(pipeline, progress=lambda done, _: advance(done), num_workers=workers)
    kept, seconds = _rows(plan), time.monotonic() - started
    if args.json:
        print_json({"records": records, "kept": kept, "before": before, "seconds": round(seconds, 3)})
        return 0
    say(f"{kept:,} of {records:,} records are kept, {before:,} of them from before; {seconds:.1f} s")
    if kept < records:
        say(
            f"  {records - kept:,} aren't: there is no room, or they are bad files; standpipe scan names those"
        )
    return 0


def _rows(plan: sp.Plan) -> int:
    """Return the number of rows that the plan's set has."""
    assert plan.cache is not None
    present = plan.cache.look().present
    return 0 if present is None else present.rows


def _pipeline(args: argparse.Namespace) -> sp.Pipeline:
    """Return the pipeline that reads every record once. Raises ``PlanError`` for training crops, which are random."""
    import standpipe as sp
    from standpipe.cli.task import source_of

    cache = sp.Cache(
        args.cache,
        args.memory,
        spill=args.spill,
        directory=args.directory,
        shared_group=args.shared_group,
        strict=True,
    )
    place = args.place or ("bytes" if args.task == "train" else "images")
    if (args.task, place) == ("train", "images"):
        raise sp.PlanError(
            "--place images can't store training crops, which are random in every epoch. Use --place bytes, "
            "or --task eval"
        )
    every = sp.Pipeline(source_of(args)).on_error(sp.Replace(at_most=1.0))
    if place == "images":
        return every.map(sp.Resize(256), sp.CenterCrop(224)).cache(cache).batch(ROWS, last_batch="partial")
    return (
        every.cache(cache).map(sp.CenterCrop(1)).batch(ROWS, last_batch="partial")
    )  # a batch has to have something
