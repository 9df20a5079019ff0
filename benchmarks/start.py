"""Measure the import, the first batch of a process, and the first batch of the next epoch.

Each import is timed in a fresh process, beside ``import numpy``. The first batch counts from the process's start and
includes listing the folder. The second epoch's first batch is shown in mean step times: a loader that stops at the
end of an epoch pays for refilling there, one that reads on across it pays for one step at most.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import mean
from typing import Any

from _measure import Figure, column, in_turn, last_json, parser, report, train_task

from standpipe.cli.bench import seconds_since_process_start

TIMED_IMPORT = """
import json, time
begin = time.perf_counter()
import {}
print(json.dumps({{"seconds": time.perf_counter() - begin}}))
"""


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    arguments.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.child:
        print(json.dumps(two_epochs(args.path, args.batch)))
        return
    child = [sys.executable, __file__, args.path, "--batch", args.batch, "--child"]
    results = in_turn(
        args.rounds,
        {
            "numpy": lambda: timed_import("numpy"),
            "standpipe": lambda: timed_import("standpipe"),
            "epochs": lambda: last_json(child),
        },
    )
    numpy, ours = (
        Figure(column(results["numpy"], "seconds"), ".3f"),
        Figure(column(results["standpipe"], "seconds"), ".3f"),
    )
    epochs = results["epochs"]
    rows: list[list[Any]] = [
        ["import numpy", numpy, "s"],
        ["import standpipe", ours, f"s, NumPy included: {ours.median / numpy.median:.2f} × import numpy"],
        ["first batch", Figure(column(epochs, "first_batch_s"), ".2f"), "s after the process started"],
        ["mean step", Figure(column(epochs, "step_s"), ".3f"), f"s, {args.batch} rows, within epochs"],
        [
            "epoch boundary",
            Figure(column(epochs, "boundary_steps"), ".2f"),
            "mean steps, to the next epoch's first batch",
        ],
    ]
    report(args, ["", "value", "unit"], rows)


def timed_import(module: str) -> dict[str, Any]:
    """Return the seconds of one import in a fresh interpreter."""
    return last_json([sys.executable, "-c", TIMED_IMPORT.format(module)])


def two_epochs(path: str, batch: int) -> dict[str, float]:
    """Deliver two epochs as fast as they come; times between batches."""
    with train_task(path, batch).loader() as loader:
        steps: list[float] = []
        boundary = first_batch_s = 0.0
        for epoch in range(2):
            begin = time.perf_counter()
            for number, fields in enumerate(loader):
                took = time.perf_counter() - begin
                if epoch == 0 and number == 0:
                    first_batch_s = seconds_since_process_start()
                elif number == 0:
                    boundary = took
                elif number > 1 or epoch > 0:  # the second batch was made beside the first one
                    steps.append(took)
                del fields
                begin = time.perf_counter()
    return {"first_batch_s": first_batch_s, "step_s": mean(steps), "boundary_steps": boundary / mean(steps)}


if __name__ == "__main__":
    main()
