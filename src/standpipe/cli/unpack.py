"""``standpipe unpack``: restore the files that ``standpipe pack`` wrote into shards."""

from __future__ import annotations

import argparse
import time

from standpipe.cli.terminal import print_json, printable, say, stages, verbatim

HELP = "write the files of tar shards into a folder again"
DESCRIPTION = (
    "Restore the files that standpipe pack wrote into shards, with the same names and bytes. Each "
    "file's bytes are compared with their checksum."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.add_argument("path", metavar="SHARDS", help="a folder that standpipe pack wrote")
    parser.add_argument("output", metavar="OUT", help="the folder of the files: a new or empty one")
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: one per CPU)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    import standpipe as sp
    from standpipe.units import show_bytes

    started = time.monotonic()
    with stages("unpacking") as on_progress:
        found = sp.unpack_shards(args.path, args.output, num_workers=args.workers, on_progress=on_progress)
    seconds = time.monotonic() - started
    if args.json:
        facts = {"path": args.output, "files": found.files, "size_bytes": found.size_bytes}
        print_json(facts | {"seconds": round(seconds, 3)})
        return 0
    say(f"[bold]{verbatim(printable(args.output))}[/bold]")
    say(f"  {found.files:,} files, {show_bytes(found.size_bytes)}; {seconds:.1f} s")
    return 0
