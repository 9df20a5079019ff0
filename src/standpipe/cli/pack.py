"""``standpipe pack``: write images into tar shards that WebDataset reads."""

from __future__ import annotations

import argparse
import time

from standpipe.cli.task import add_source_arguments, source_of
from standpipe.cli.terminal import print_json, printable, say, stages, verbatim

HELP = "write images into tar shards"
DESCRIPTION = (
    "Write images, byte for byte, into plain tar files in WebDataset's format, with their labels, columns, texts and "
    "boxes, an index, and a checksum of every member. If it is interrupted or killed, the same "
    "command continues, and writes at most one shard again. standpipe unpack restores the files."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_source_arguments(parser)
    parser.add_argument("output", metavar="OUT", help="the folder of the shards: a new or empty one")
    parser.add_argument(
        "--shard-size", default="512MiB", metavar="SIZE", help="most bytes of a shard (default: 512MiB)"
    )
    parser.add_argument(
        "--order",
        choices=("shuffled", "source"),
        default="shuffled",
        help="shuffled: programs that read a shard from its beginning get all classes (default); source: as they are",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="another seed gives another shuffled order (default: 0)",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: one per CPU)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    import standpipe as sp
    from standpipe.units import several, show_bytes

    started = time.monotonic()
    with stages("packing") as on_progress:
        packed = sp.pack_shards(
            source_of(args),
            args.output,
            shard_size=args.shard_size,
            order=args.order,
            seed=args.seed,
            num_workers=args.workers,
            on_progress=on_progress,
        )
    seconds = time.monotonic() - started
    if args.json:
        facts = {"path": str(packed.folder), "records": packed.records, "shards": packed.shards}
        more = {"size_bytes": packed.size_bytes, "written": packed.written, "seconds": round(seconds, 3)}
        print_json(facts | more)
        return 0
    say(f"[bold]{verbatim(printable(str(packed.folder)))}[/bold]")
    shards = several(packed.shards, "shard")
    before = packed.shards - packed.written
    known = f", {before:,} of them from before" if before else ""
    say(f"  {packed.records:,} records in {shards}{known}, {show_bytes(packed.size_bytes)}; {seconds:.1f} s")
    return 0
