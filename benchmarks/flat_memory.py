"""Does memory grow over epochs?

Fifty epochs of the standard task in one process; its proportional set size (PSS) after each. A loader that keeps
nothing from one epoch to the next has a slope of nothing but noise. Beside it stands the forecast that was made
before the first read. PSS falls and rises by some MiB as other processes come and go that share libraries with
this one; the resident size, which doesn't, is printed too.

With --torch it is the two loaders that standpipe.torch.image_folder_loaders makes, of which each epoch takes one to
train and one to validate; then the same again, but both are left in the middle by a break.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from _measure import MIB, Figure, parser, progress, ratio, report, train_task

import standpipe as sp
from standpipe.cli.bench import resident_bytes
from standpipe.system.machine import process_memory_bytes

EARLY = 5  # the epoch by which everything that is allocated once has been

Sizes = tuple[list[float], list[float]]  # PSS and resident size after each epoch, in MiB


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument("--epochs", type=int, default=50, metavar="N", help="how many (default: 50)")
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    arguments.add_argument(
        "--torch", action="store_true", help="loaders of standpipe.torch, with and without breaks"
    )
    args = arguments.parse_args()
    if args.epochs <= EARLY:
        arguments.error(f"--epochs must be above {EARLY}")
    if args.torch:
        of_torch(args)
        return
    plan = train_task(args.path, args.batch).plan()
    forecast = plan.forecast.expected / MIB
    runs = [of_plan(plan, args.epochs) for _ in range(args.rounds)]
    rows = growth({"": runs}, args.epochs)
    pss = [run[0] for run in runs]
    rows.append(["most ÷ forecast", Figure([max(run) / forecast for run in pss], ".3f"), "—"])
    note = f"forecast {forecast:.1f} MiB; {args.epochs} epochs of {plan.steps.per_epoch * args.batch:,} rows"
    report(args, ["", "PSS", "resident"], rows, note)


def of_plan(plan: sp.Plan, epochs: int) -> Sizes:
    """Sizes with standpipe's own loader."""
    with sp.Loader(plan) as loader:
        return after_epochs(lambda: exhaust(loader), epochs)


def of_torch(args: argparse.Namespace) -> None:
    """Train and validate with the loaders of ``standpipe.torch``."""
    import standpipe.torch

    runs: dict[str, list[Sizes]] = {"whole": [], "left": []}
    for _ in range(args.rounds):
        for kind, sizes in runs.items():
            loaders = standpipe.torch.image_folder_loaders(args.path, args.path, args.batch)
            steps = [len(loader) if kind == "whole" else len(loader) // 2 for loader in loaders]

            def epoch(loaders: Sequence[Any] = loaders, steps: Sequence[int] = steps) -> None:
                for loader, number in zip(loaders, steps, strict=True):
                    exhaust(islice(loader, number) if number < len(loader) else loader)

            sizes.append(after_epochs(epoch, args.epochs))
            for loader in loaders:
                loader.close()
    note = f"{args.epochs} epochs of training and validation; left: each of them after half its batches"
    header = ["", *(f"{kind}, {name}" for kind in runs for name in ("PSS", "resident"))]
    report(args, header, growth(runs, args.epochs), note, packages=("torch",))


def exhaust(batches: Iterable[Any]) -> None:
    """Take all of them, one at a time."""
    for batch in batches:
        del batch


def after_epochs(epoch: Callable[[], None], epochs: int) -> Sizes:
    """This process's sizes after each epoch."""
    proportional, resident = [], []
    for number in range(1, epochs + 1):
        epoch()
        proportional.append(process_memory_bytes() / MIB)
        resident.append(resident_bytes(os.getpid()) / MIB)
        progress(f"epoch {number} of {epochs}: {proportional[-1]:.1f} MiB")
    progress("")
    return proportional, resident


def growth(runs: dict[str, list[Sizes]], epochs: int) -> list[list[Any]]:
    """The rows of a table with two columns, PSS and resident size, for each kind of run."""
    kinds = [[sizes[each] for sizes in some] for some in runs.values() for each in range(2)]
    return [
        [f"after epoch {EARLY}, MiB", *(Figure([run[EARLY - 1] for run in each], ".1f") for each in kinds)],
        [f"after epoch {epochs}, MiB", *(Figure([run[-1] for run in each], ".1f") for each in kinds)],
        [
            "growth, ratio",
            *(ratio([run[-1] for run in each], [run[EARLY - 1] for run in each]) for each in kinds),
        ],
        [
            "slope, KiB per epoch",
            *(Figure([slope(run[EARLY - 1 :]) for run in each], ".1f") for each in kinds),
        ],
        ["most, MiB", *(Figure(map(max, each), ".1f") for each in kinds)],
    ]


def slope(sizes_mib: Sequence[float]) -> float:
    """Least-squares growth per epoch, in KiB."""
    return 1024 * statistics.linear_regression(range(len(sizes_mib)), sizes_mib).slope


if __name__ == "__main__":
    main()
