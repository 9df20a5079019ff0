"""Does memory grow over epochs?

Fifty epochs of the standard task in one process; its proportional set size (PSS) after each. A loader that keeps
nothing from one epoch to the next has a slope of nothing but noise. Beside it stands the forecast that was made
before the first read. PSS falls and rises by some MiB as other processes come and go that share libraries with
this one; the resident size, which doesn't, is printed too.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

from _measure import MIB, Figure, parser, progress, ratio, report, train_task

import penstock as ps
from penstock.cli.bench import resident_bytes
from penstock.machine import process_memory_bytes

EARLY = 5  # the epoch by which everything that is allocated once has been


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument("--epochs", type=int, default=50, metavar="N", help="how many (default: 50)")
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    args = arguments.parse_args()
    if args.epochs <= EARLY:
        arguments.error(f"--epochs must be above {EARLY}")
    plan = train_task(args.path, args.batch).plan()
    forecast = plan.forecast.expected / MIB
    runs = [memory_after_epochs(plan, args.epochs) for _ in range(args.rounds)]
    kinds = [[run[kind] for run in runs] for kind in range(2)]  # PSS, then resident: (rounds, epochs) each
    rows = [
        [f"after epoch {EARLY}, MiB", *(Figure([run[EARLY - 1] for run in each], ".1f") for each in kinds)],
        [f"after epoch {args.epochs}, MiB", *(Figure([run[-1] for run in each], ".1f") for each in kinds)],
        [
            "growth, ratio",
            *(ratio([run[-1] for run in each], [run[EARLY - 1] for run in each]) for each in kinds),
        ],
        [
            "slope, KiB per epoch",
            *(Figure([slope(run[EARLY - 1 :]) for run in each], ".1f") for each in kinds),
        ],
        ["most, MiB", *(Figure(map(max, each), ".1f") for each in kinds)],
        ["most ÷ forecast", Figure([max(run) / forecast for run in kinds[0]], ".3f"), "—"],
    ]
    note = f"forecast {forecast:.1f} MiB; {args.epochs} epochs of {plan.steps.per_epoch * args.batch:,} rows"
    report(args, ["", "PSS", "resident"], rows, note)


def memory_after_epochs(plan: ps.Plan, epochs: int) -> tuple[list[float], list[float]]:
    """This process's proportional and its resident set size after each epoch, in MiB."""
    proportional, resident = [], []
    with ps.Loader(plan) as loader:
        for epoch in range(epochs):
            for batch in loader:
                del batch
            proportional.append(process_memory_bytes() / MIB)
            resident.append(resident_bytes(os.getpid()) / MIB)
            progress(f"epoch {epoch + 1} of {epochs}: {proportional[-1]:.1f} MiB")
    progress("")
    return proportional, resident


def slope(sizes_mib: Sequence[float]) -> float:
    """Least-squares growth per epoch, in KiB."""
    return 1024 * statistics.linear_regression(range(len(sizes_mib)), sizes_mib).slope


if __name__ == "__main__":
    main()
