"""``standpipe index``: build an index file with columns, or check that an index file is still right."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

from standpipe.cli.task import add_source_arguments, source_of
from standpipe.cli.terminal import print_json, printable, say, stages, verbatim

HELP = "write or check an index, with which training starts at once"
DESCRIPTION = (
    "Write the index file of data beside it, or to the user's cache folder "
    "where that can't be written. Training starts that find it there needn't read the list or walk the folder. "
    "They build their own when there is none, so this command is for columns, for data that many machines read, "
    "and for building at a time of your choice."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_source_arguments(parser)
    parser.add_argument("--output", metavar="FILE", help="where to write it; sources take it as index=FILE")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="add a column from a .npy file of numbers, a row per record; may be given again",
    )
    parser.add_argument(
        "--checksums",
        action="store_true",
        help="read all records too, and add the CRC-32C of each, with which every read is compared",
    )
    parser.add_argument(
        "--verify", action="store_true", help="check the index that is there; exit with 1 if anything differs"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    import standpipe as sp

    source = source_of(args)
    if isinstance(source, sp.Arrow):
        raise sp.PlanError(
            "Arrow files need no index, as they say where each record is. For checksums, write tar shards with "
            "standpipe pack"
        )
    source = replace(source, index=args.output)
    return _verify(source, args) if args.verify else _build(source, args)


def _build(source: Any, args: argparse.Namespace) -> int:
    import standpipe as sp

    columns = _columns(args)
    started = time.monotonic()
    with stages("indexing") as on_progress:
        built = sp.build_index(source, columns=columns, checksums=args.checksums, on_progress=on_progress)
    seconds = time.monotonic() - started
    if args.json:
        facts = {"path": str(built.path), "records": built.records, "size_bytes": built.size_bytes}
        columns_of = {"columns": list(built.columns), "dropped": list(built.dropped)}
        print_json(facts | columns_of | {"seconds": round(seconds, 3)})
        return 0
    say(f"[bold]{verbatim(printable(str(built.path)))}[/bold]")
    columns_shown = f", columns {', '.join(built.columns)}" if built.columns else ""
    say(f"  {built.records:,} records, {built.size_bytes / 1e6:.1f} MB{columns_shown}; {seconds:.1f} s")
    if built.dropped:
        say(f"  without {', '.join(built.dropped)}, which the older index had: its records were others")
    return 0


def _verify(source: Any, args: argparse.Namespace) -> int:
    import standpipe as sp

    if args.column or args.checksums:
        raise sp.PlanError("--verify checks the index that is there; leave out --column and --checksums")
    with stages("checking") as on_progress:
        found = sp.verify_index(source, on_progress=on_progress)
    if args.json:
        differences = list(found.differences)
        print_json(
            {"path": str(found.path), "records": found.records, "ok": found.ok, "differences": differences}
        )
        return 0 if found.ok else 1
    say(f"[bold]{verbatim(printable(str(found.path)))}[/bold]")
    if found.ok:
        say(f"  right: {found.records:,} records")
    for difference in found.differences:
        say(f"  [red]differs:[/red] {verbatim(difference)}")
    return 0 if found.ok else 1


def _columns(args: argparse.Namespace) -> dict[str, str]:
    """Return the columns that ``--column`` names."""
    import standpipe as sp

    columns: dict[str, str] = {}
    for text in args.column:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise sp.PlanError(f"--column {text}: write NAME=FILE, such as width=widths.npy")
        if name in columns:
            raise sp.PlanError(f"--column {text}: the column {name!r} is given twice")
        columns[name] = path
    return columns
