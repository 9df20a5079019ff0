"""``standpipe verify``: compare records, or the members of packed shards, with their checksums."""

from __future__ import annotations

import argparse
import time
from itertools import islice
from pathlib import Path

from standpipe.cli.task import add_source_arguments, source_of
from standpipe.cli.terminal import print_json, printable, say, stages, verbatim

HELP = "compare records with their checksums"
DESCRIPTION = (
    "Read all records of data whose index has checksums, which standpipe index --checksums and standpipe pack write, "
    "and compare each record with its own. In a folder that standpipe pack wrote, compare all members of the shards, "
    "and their headers. Exits with 1 if anything differs. It decodes no image: standpipe scan does."
)
MOST_SHOWN = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_source_arguments(parser)
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: one per CPU)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    import standpipe as sp
    from standpipe.units import several, show_bytes

    started = time.monotonic()
    with stages("checking") as on_progress:
        if Path(args.path, "pack.json").exists():
            shards = sp.verify_shards(args.path, num_workers=args.workers, on_progress=on_progress)
            facts = {"shards": shards.shards, "members": shards.members, "size_bytes": shards.size_bytes}
            many = f"{shards.members:,} members in {several(shards.shards, 'shard')}, {show_bytes(shards.size_bytes)}"
            differences = shards.differences
        else:
            found = sp.verify_records(source_of(args), num_workers=args.workers, on_progress=on_progress)
            facts = {"records": found.records, "compared": found.compared}
            many = f"{found.records:,} records"
            differences = tuple(map(str, found.errors))
    seconds = time.monotonic() - started
    if args.json:
        rest = {"differences": list(differences), "seconds": round(seconds, 3)}
        print_json({"path": args.path, **facts, "ok": not differences, **rest})
        return 1 if differences else 0
    say(f"[bold]{verbatim(printable(args.path))}[/bold]")
    say(f"  {'' if differences else 'right: '}{many}; {seconds:.1f} s")
    for difference in islice(differences, MOST_SHOWN):
        say(f"  [red]differs:[/red] {verbatim(difference)}")
    if len(differences) > MOST_SHOWN:
        say(f"  and {len(differences) - MOST_SHOWN:,} more; --json names all")
    return 1 if differences else 0
