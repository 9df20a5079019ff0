"""``standpipe cache``: create, list, check and destroy caches of rows for later epochs and other jobs."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from standpipe.cli import terminal
from standpipe.cli.terminal import (
    columns_of,
    harmless,
    in_columns,
    print_json,
    printable,
    row,
    say,
    shortened,
    stages,
    verbatim,
)
from standpipe.units import several, show_bytes, show_seconds

if TYPE_CHECKING:
    import standpipe as sp
    from standpipe.cli.terminal import Subparsers
    from standpipe.reports import CachedSet, CacheFreeReport, CacheSession

FAILED = 1
DIGITS = 8  # of a digest, where it only has to be told from others
DIGEST = re.compile(r"\b[0-9a-f]{16,}\b")
# Of the table of `list`; with two spaces in front and one between them 80 together.
COLUMNS = (
    ("", "set", -8),
    ("rows in", "memory", 11),
    ("rows on", "disk", 11),
    ("mean", "row", 9),
    ("NUMA", "node", 4),
    ("", "bytes", 9),
    ("hit", "rate", 5),
    ("users", "now", 5),
    ("last", "use", 7),
)

HELP = "create, list, fill, check and destroy caches"
DESCRIPTION = (
    "Manage what Pipeline.cache(…) keeps in memory and on disk. Nothing has to be started: a job creates the cache "
    "that it needs. These commands set limits ahead of the first job, show caches, and free their memory."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parser.set_defaults(commands=commands.choices)
    _add_create(commands)
    _add(commands, "list", _list, "list all caches", named=False)
    _add(commands, "info", _info, "print everything about a cache")
    from standpipe.cli import cache_fill

    fill = _add(commands, "fill", cache_fill.run, "fill a cache ahead of the jobs that read it", named=False)
    cache_fill.add_arguments(fill)
    _add(commands, "verify", _verify, "compare every row with its checksum; exit with 1 if any is wrong")
    _add(commands, "destroy", _destroy, "destroy a cache; jobs that use it continue to read it")
    _add(commands, "stop", _stop, "destroy all caches, and print how much memory that freed", named=False)


def _add(
    commands: Subparsers, name: str, run: object, text: str, *, named: bool = True
) -> argparse.ArgumentParser:
    """Add one subcommand of ``standpipe cache``, with the arguments that all of these take."""
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    if named:
        parser.add_argument("name", metavar="NAME", help="name of the cache, as in sp.Cache(NAME)")
    parser.add_argument(
        "--directory",
        metavar="FOLDER",
        help="where caches are, as directory= of sp.Cache (default: /dev/shm)",
    )
    parser.add_argument(
        "--shared-group",
        type=_group,
        metavar="GROUP",
        help="group of users who share the cache, as shared_group= of sp.Cache",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)
    return parser


def _add_create(commands: Subparsers) -> None:
    parser = _add(commands, "create", _create, "create a cache with limits, ahead of its first use")
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory it may take, such as 8GiB (default: half of what is free)"
    )
    parser.add_argument("--spill", metavar="FOLDER", help="folder on a disk, for rows that don't fit")
    parser.add_argument(
        "--spill-limit", metavar="SIZE", help="bytes it may take there, such as 1TiB (default: no limit)"
    )
    parser.add_argument(
        "--idle-after",
        type=_seconds_or_never,
        default=600.0,
        metavar="SECONDS",
        help="time after which an unused set may be evicted, or never (default: 600)",
    )


def _create(args: argparse.Namespace) -> int:
    import standpipe as sp

    made = sp.create_cache(
        sp.Cache(
            args.name,
            args.memory,
            spill=args.spill,
            spill_limit=args.spill_limit,
            directory=args.directory,
            idle_after=args.idle_after,
            shared_group=args.shared_group,
        )
    )
    if args.json:
        print_json(made.facts())
    else:
        say("\n".join(_headline(made)))
    return 0


def _list(args: argparse.Namespace) -> int:
    import standpipe as sp

    found = sp.list_caches(args.directory, shared_group=args.shared_group)
    if args.json:
        print_json([each.facts() for each in found])
        return 0
    if not found:
        say(f"no caches in {verbatim(harmless(sp.Cache('all', directory=args.directory).directory_path))}")
    for session in found:
        say("\n".join(_headline(session)))
        if session.sets:
            say(_line([above for above, _, _ in COLUMNS]))
            say(_line([name for _, name, _ in COLUMNS]))
        for each in session.sets:
            say(_line(_cells(each)))
            say(f"    {_label(each.label, 4)}")
    return 0


def _info(args: argparse.Namespace) -> int:
    import standpipe as sp

    (session,) = sp.list_caches(args.directory, name=args.name, shared_group=args.shared_group)
    if args.json:
        print_json(session.facts())
        return 0
    say("\n".join(_headline(session)))
    if session.memory_limit is not None:
        idle = session.idle_after_s
        say(f"  idle sets may be evicted {'never' if idle is None else f'after {show_seconds(idle)}'}")
    for each in session.sets:
        say("\n".join(_told(each)))
    return 0


def _verify(args: argparse.Namespace) -> int:
    import standpipe as sp

    with stages("reading") as on_progress:
        checked = sp.verify_cache(_named(args), on_progress=on_progress)
    if args.json:
        print_json(checked.facts())
        return 0 if checked.ok else FAILED
    for each in checked.sets:
        wrong = f"[bold]{each.wrong:,} wrong[/bold]" if each.wrong else "all right"
        result = "[bold]unusable[/bold]" if each.problem else f"{each.rows:,} rows, {wrong}"
        say(f"{each.digest[:DIGITS]}  {result}")
        if each.problem:
            say(verbatim(in_columns(f"    {harmless(each.problem)}", sys.stdout, 4)))
        if each.label:
            say(f"    {_label(each.label, 4)}")
    unusable = sum(1 for each in checked.sets if each.problem)
    more = f", {several(unusable, 'set')} unusable" if unusable else ""
    say(f"{checked.rows:,} rows, {checked.wrong:,} wrong{more}")
    return 0 if checked.ok else FAILED


def _destroy(args: argparse.Namespace) -> int:
    import standpipe as sp

    return _say_freed(sp.destroy_cache(_named(args)), args)


def _stop(args: argparse.Namespace) -> int:
    import standpipe as sp

    return _say_freed(sp.destroy_all_caches(args.directory, shared_group=args.shared_group), args)


def _say_freed(freed: CacheFreeReport, args: argparse.Namespace) -> int:
    if args.json:
        print_json(asdict(freed))
        return 0
    disk = f" and {show_bytes(freed.spilled)} on disk" if freed.spilled else ""
    say(f"freed {show_bytes(freed.memory)} of memory{disk}, {several(freed.sets, 'set')}")
    if freed.held:
        say(f"  jobs still read {show_bytes(freed.held)} of it, which is free when they end")
    return 0


def _named(args: argparse.Namespace) -> sp.Cache:
    import standpipe as sp

    return sp.Cache(args.name, directory=args.directory, shared_group=args.shared_group)


def _headline(session: CacheSession) -> list[str]:
    """Return the lines about a session: its name, the bytes that it uses, its limits and its problems."""
    name, memory, disk = session.name, "what it has isn't known", ""
    if session.memory_limit is not None:
        memory = f"{show_bytes(session.bytes)} of {show_bytes(session.memory_limit)} in memory"
    if session.spill is not None:
        limit = "" if session.spill_limit is None else f" of {show_bytes(session.spill_limit)}"
        disk = f", {show_bytes(session.bytes_on_disk)}{limit} in {printable(session.spill)}"
    told = in_columns(f"{name}: {memory}{disk}", sys.stdout)
    problems = (verbatim(in_columns(f"  {harmless(problem)}", sys.stdout, 4)) for problem in session.problems)
    return [
        f"[bold]{verbatim(name)}[/bold]{verbatim(told[len(name) :])}",
        *(f"[bold]{each}[/bold]" for each in problems),
    ]


def _cells(each: CachedSet) -> list[str]:
    return [
        each.digest[:DIGITS],
        f"{each.rows - each.rows_on_disk:,}",
        f"{each.rows_on_disk:,}",
        show_bytes(each.mean_row_bytes),
        _nodes(each),
        show_bytes(each.bytes + each.bytes_on_disk),
        _rate(each),
        f"{each.users}",
        _last_use(each),
    ]


def _line(cells: list[str]) -> str:
    return f"  {verbatim(row(cells, [width for *_, width in COLUMNS]))}"


def _told(each: CachedSet) -> list[str]:
    """Return the lines that describe a cache set."""
    counts = each.counts
    facts = {
        "of": each.label,
        "rows": f"{each.rows:,} of {each.records:,} records: {each.rows - each.rows_on_disk:,} in memory, "
        f"{each.rows_on_disk:,} on disk; {each.kind}, {show_bytes(each.mean_row_bytes)} each on average",
        "bytes": f"{show_bytes(each.bytes)} in memory, {show_bytes(each.bytes_on_disk)} on disk; "
        f"NUMA node {_nodes(each)}",
        "use": f"{several(each.users, 'loader')} now; last use: {_last_use(each)}",
        "counted": f"{counts.hits:,} hits, {counts.misses:,} misses, hit rate {_rate(each)}; {counts.stored:,} stored, "
        f"{counts.skipped:,} not, for want of room or time; {counts.stale:,} stale, {counts.errors:,} errors",
        # What its name is a digest of; of other digests as much as tells two apart.
        **{
            name: DIGEST.sub(lambda found: found[0][:DIGITS], str(value))
            for name, value in each.parts.items()
            if value != ""
        },
    }
    width = max(map(len, facts))
    lines = [f"    {harmless(name):{width}s}  {harmless(value)}" for name, value in facts.items()]
    wrapped = (verbatim(in_columns(line, sys.stdout, width + 6)) for line in lines)
    return [f"  set [bold]{each.digest}[/bold]", *wrapped]


def _label(label: str, indent: int) -> str:
    """Return a set's label, on one line of 80 columns or of the terminal."""
    return verbatim(shortened(harmless(label), (columns_of(sys.stdout) or terminal.COLUMNS) - indent))


def _nodes(each: CachedSet) -> str:
    return ",".join(map(str, each.nodes)) or "-"


def _rate(each: CachedSet) -> str:
    return "-" if each.hit_rate is None else f"{each.hit_rate:.0%}"


def _last_use(each: CachedSet) -> str:
    if each.users:
        return "now"
    return "?" if each.idle_s is None else show_seconds(each.idle_s)


def _group(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() else text


def _seconds_or_never(text: str) -> float | None:
    if text == "never":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, or never, got {text!r}") from None
