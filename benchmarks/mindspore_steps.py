"""Measure MindSpore Dataset after each step of tuning by hand: rate, CPU and memory beside standpipe's
default.

The training task on float32 images of 224 × 224 in batches of 32: MindSpore with 12 workers in each ``map`` (or one
for each CPU, which is all that it takes) and all else as it comes, then after each step by which such a pipeline was
tuned, each keeping those before it. standpipe gets neither a number of workers nor a memory limit. Every run has
its own process, in turn.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from _measure import Figure, column, in_turn, parser, report

SCRIPT = Path(__file__).with_name("_tuned_by_hand.py")
STEPS = (
    "12 or all CPUs a map, else its default",
    "+ prefetch size 2",
    "+ 1 worker in the source",
    "+ 1 worker a map",
    "+ 1 worker in the batch",
    "+ maps merged into one",
)


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument(
        "--mindspore", metavar="PYTHON", help="an interpreter that has MindSpore (default: standpipe alone)"
    )
    arguments.add_argument("--seconds", type=float, default=8.0, metavar="S", help="of each run (default: 8)")
    args = arguments.parse_args()
    runs = {
        f"MindSpore {name}": functools.partial(measured, args, args.mindspore, str(step))
        for step, name in enumerate(STEPS)
        if args.mindspore
    }
    ours = functools.partial(measured, args, sys.executable, "standpipe")
    results = in_turn(args.rounds, {**runs, "standpipe, its default": ours})
    rows = [
        [
            name,
            Figure(column(found, "images_per_s")),
            Figure(column(found, "cpu_percent")),
            Figure(column(found, "rss_mib")),
            Figure(column(found, "pss_mib")),
        ]
        for name, found in results.items()
    ]
    report(args, ["", "images/s", "CPU %", "RSS MiB", "PSS MiB"], rows)


def measured(args: Any, python: str, who: str) -> dict[str, Any]:
    command = [python, str(SCRIPT), args.path, who, str(args.seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
