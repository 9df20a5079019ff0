"""``standpipe tune``: find the best number of workers for the standard task on the user's images."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import asdict
from typing import Any

import standpipe as sp
from standpipe.cli.bench import WARM_UP_BATCHES
from standpipe.cli.task import (
    add_task_arguments,
    add_time_arguments,
    check_times,
    endless,
    standard_task,
    take,
)
from standpipe.cli.terminal import print_json, progress, say, verbatim, wrapped

MEASURED_S = 2.0  # at the end

HELP = "find the best number of workers for your images"
DESCRIPTION = (
    "Run a standard task until its number of workers is tuned, and print that as code to "
    "paste. Every loader tunes itself like this while it runs: written down, it begins with what is best."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_task_arguments(parser)
    add_time_arguments(parser, seconds=30.0, text="how long at most")
    parser.add_argument("--output", default=None, metavar="FILE", help="write it as JSON, for sp.load_tuning")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from standpipe.system.files import check_output_path

    check_times(args)
    if args.output is not None:
        check_output_path(args.output)
    tuning, rows_per_s = _tuned(args)
    if args.json:
        print_json(_facts(tuning, rows_per_s))
    else:
        say(verbatim(_text(tuning, rows_per_s, args.output)))
    if args.output is not None:
        tuning.save(args.output)
    return 0


def _tuned(args: argparse.Namespace) -> tuple[sp.Tuning, float]:
    """Tune a loader; return the result, and the rate in rows per second with it."""
    task = standard_task(args)
    with task.loader(memory=args.memory, num_workers=args.workers) as loader:
        batches, begin = endless(loader), time.monotonic()
        with progress("trying, seconds", math.ceil(args.seconds)) as advance:
            while not loader.tuning().settled and (spent := time.monotonic() - begin) < args.seconds:
                take(batches, args.step_ms)
                advance(int(spent))
        tuning = loader.tuning()
    written: Any = {"memory": args.memory, **tuning.settings}
    with task.loader(**written, autotune=False) as loader:
        batches = endless(loader)
        for _ in range(WARM_UP_BATCHES):
            take(batches, args.step_ms)
        before, begin = loader.stats(), time.monotonic()
        while time.monotonic() - begin < MEASURED_S:
            take(batches, args.step_ms)
        return tuning, (loader.stats() - before).step.rows_per_s


def _facts(tuning: sp.Tuning, rows_per_s: float) -> dict[str, Any]:
    """Return the result as plain values, for JSON."""
    return {
        "images_per_s": round(rows_per_s, 1),
        "workers": tuning.num_workers,
        "prefetch": tuning.prefetch,
        "settled": tuning.settled,
        "trials": [asdict(trial) for trial in tuning.trials],
    }


def _text(tuning: sp.Tuning, rows_per_s: float, saved: str | None) -> str:
    """Return the text for people, within 80 columns."""
    many = "" if tuning.num_workers == 1 else "s"
    lines = [
        f"{rows_per_s:,.0f} images/s with {tuning.num_workers} worker{many} and {tuning.prefetch} batches ahead"
    ]
    if not tuning.settled:
        lines.append("still trying when the time was over: give it more --seconds")
    lines += [wrapped(str(trial), 2, 11) for trial in tuning.trials]
    lines += ["", "to begin with that:", "", f"    loader = pipeline.loader({tuning})"]
    if saved is not None:
        lines += ["", f"or:  loader = pipeline.loader(**sp.load_tuning({saved!r}))"]
    return "\n".join(lines)
