"""``standpipe verify``: check packed shards by the checksums of their members."""

from __future__ import annotations

import argparse
import time

from standpipe.cli.terminal import print_json, printable, say, stages, verbatim

HELP = "compare tar shards with their checksums"
DESCRIPTION = (
    "Read all shards that standpipe pack wrote, and compare each member with the CRC-32C that it had "
    "then. Exits with 1 if anything differs. It decodes no image: standpipe scan does."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.add_argument("path", metavar="SHARDS", help="a folder that standpipe pack wrote")
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: one per CPU)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    import standpipe as sp
    from standpipe.units import several, show_bytes

    started = time.monotonic()
    with stages("checking") as on_progress:
        found = sp.verify_shards(args.path, num_workers=args.workers, on_progress=on_progress)
    seconds = time.monotonic() - started
    if args.json:
        facts = {"path": args.path, "shards": found.shards, "members": found.members, "ok": found.ok}
        more = {"size_bytes": found.size_bytes, "differences": list(found.differences)}
        print_json(facts | more | {"seconds": round(seconds, 3)})
        return 0 if found.ok else 1
    say(f"[bold]{verbatim(printable(args.path))}[/bold]")
    state = "right: " if found.ok else ""
    shards = several(found.shards, "shard")
    say(f"  {state}{found.members:,} members in {shards}, {show_bytes(found.size_bytes)}; {seconds:.1f} s")
    for difference in found.differences:
        say(f"  [red]differs:[/red] {verbatim(difference)}")
    return 0 if found.ok else 1
