"""``standpipe top``: show the loaders that run on this machine, and what limits each of them."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import standpipe as sp
from standpipe.cli.terminal import harmless, print_json, row, say, shortened, verbatim
from standpipe.units import show_bytes, show_clock

if TYPE_CHECKING:
    from standpipe.observe import Found

EVERY_S = 1.0
BAR = 20  # letters
MOST_ROWS = 12  # workers, and functions, of one loader
LEAST_S = 0.05  # of work, below which it would show as 0.0 s
HEAD = ("PID", "SCRIPT", "RANK", "EPOCH", "STEP", "ROWS/S", "WAIT", "MEM", "BAD", "LIMIT")
WIDTHS = (7, -14, 5, 5, 12, 7, 4, 4, 4, -9)  # left where negative; 80 columns

HELP = "watch the loaders that run on this machine"
DESCRIPTION = (
    "Show all loaders of this user's processes on this machine, once a second until Ctrl-C: how fast "
    "each is, how much of its time the training loop waits, and what limits it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.add_argument(
        "pid", nargs="?", type=int, metavar="PID", help="show this process's loaders in detail"
    )
    parser.add_argument("--once", action="store_true", help="show the loaders once, as without a terminal")
    parser.add_argument("--json", action="store_true", help="print one JSON object, once")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    found = _found(args.pid)
    if args.json:
        from standpipe.observe.snapshot import facts

        print_json({"loaders": [{"age_s": each.age_s, **facts(each.snapshot)} for each in found]})
        return 0
    if args.pid is not None and not found:
        raise sp.PlanError(f"process {args.pid} has no running loader, or belongs to another user")
    if not args.once and _watched(args.pid):
        return 0
    say(verbatim(text(found, args.pid)))
    return 0


def _found(pid: int | None) -> list[Found]:
    from standpipe.observe import loaders

    return [each for each in loaders() if pid in (None, each.pid)]


def _watched(pid: int | None) -> bool:
    """Show the loaders until Ctrl-C; return False without a terminal or rich."""
    if not sys.stdout.isatty():
        return False
    try:
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        return False
    timer = threading.Event()
    try:
        with Live(auto_refresh=False, screen=True) as live:
            while True:
                live.update(Text(text(_found(pid), pid), no_wrap=True, overflow="ellipsis"), refresh=True)
                timer.wait(EVERY_S)
    except KeyboardInterrupt:
        return True


def text(found: list[Found], pid: int | None) -> str:
    """Return the text that is shown, within 80 columns."""
    if pid is not None:
        return (
            "\n\n".join("\n".join(_detail(each)) for each in found) or f"process {pid} has no loader any more"
        )
    if not found:
        return "no loader of yours runs on this machine"
    return "\n".join(row(texts, WIDTHS) for texts in (HEAD, *map(_columns, found)))


def _columns(found: Found) -> tuple[str, ...]:
    now = found.snapshot
    epoch, step = now.at
    return (
        str(found.pid),
        now.script,
        f"{now.rank}/{now.world_size}",
        str(epoch),
        str(step) if now.steps_per_epoch is None else f"{step}/{now.steps_per_epoch}",
        f"{now.rows_per_s:,.0f}",
        f"{now.recent.wait_share:.0%}",
        f"{now.memory_share:.0%}",
        str(now.stats.bad),
        f"{found.age_s:.0f} s old" if found.stale else now.limited,
    )


def _detail(found: Found) -> Iterator[str]:
    """Return the lines about one loader, place by place."""
    now = found.snapshot
    stats, slots, (epoch, step) = now.stats, now.stats.slots, now.at
    steps = "" if now.steps_per_epoch is None else f" of {now.steps_per_epoch:,}"
    yield f"{shortened(harmless(now.script), 40)}, process {found.pid}, rank {now.rank} of {now.world_size}"
    if found.stale:
        yield f"  stands still since {found.age_s:.0f} s"
    yield f"  reads     {shortened(harmless(now.source), 66)}"
    yield f"  at        epoch {epoch}, step {step:,}{steps}, after {show_clock(now.run_s)}"
    period = "" if now.diagnosis is None else f", in the newest {now.diagnosis.period}"
    yield f"  rate      {now.rows_per_s:,.0f} rows/s{period}"
    yield f"  so far    {stats.step.rows:,} rows, {stats.bad:,} bad"
    yield f"  memory    {show_bytes(now.memory)} of {show_bytes(now.limit)}"
    yield f"  slots     {slots.lent} lent, {slots.filling} filling, {slots.ready} ready, at most {slots.most}"
    yield ""
    yield f"  {'':10}{'load':<{BAR + 6}}{'threads':>8}{'rows':>13}{'p50 ms':>9}{'p99 ms':>9}"
    for name, share in now.recent.load.items():
        place = getattr(stats, name, None)
        if not isinstance(place, sp.PlaceStats):
            continue
        yield _place(name, share, place.threads, place.rows, place.latency)
    waits = now.recent.wait_share
    yield _place("your step", 1 - waits if now.recent.steps else 0.0, 0, stats.step.rows, stats.step.step)
    yield _place("it waits", waits, 0, stats.step.steps, stats.step.wait)
    yield from _longest("workers", {each.name: each.busy_s for each in stats.workers})
    yield from _longest("functions", stats.functions)
    if now.diagnosis is not None:
        yield ""
        yield from (f"  {line}" for line in harmless(str(now.diagnosis), keep="\n").splitlines())


def _place(name: str, share: float, threads: int, rows: int, latency: sp.Latency) -> str:
    share = min(max(share, 0.0), 1.0)
    bar = ("█" * round(share * BAR)).ljust(BAR, "·")
    times = "".join(f"{1000 * time:>9,.2f}" for time in (latency.p50, latency.p99)) if latency.count else ""
    return f"  {name:10}{bar} {share:>4.0%} {threads or '':>8}{rows:>13,}{times}".rstrip()


def _longest(title: str, seconds: Mapping[str, float]) -> Iterator[str]:
    """Yield the entries that took the most time, without idle ones."""
    busy = sorted((item for item in seconds.items() if item[1] >= LEAST_S), key=lambda item: -item[1])
    if not busy:
        return
    yield ""
    yield f"  {title}"
    whole = sum(seconds.values())
    for name, took in busy[:MOST_ROWS]:
        yield f"    {shortened(harmless(name), 48):48} {took:>10,.1f} s  {took / whole:>4.0%}"
    if len(busy) > MOST_ROWS:
        yield f"    and {len(busy) - MOST_ROWS} more"
