"""Measure the growth of memory over epochs.

The benchmark reads fifty epochs of the standard task in one process, and measures the process's proportional set size
(PSS) after each. Without growth, the slope is noise. The peak is compared with the plan's forecast. PSS changes by
some MiB when other processes that share libraries with this one start or end. The resident size doesn't, so it is
printed too.

With --torch, each epoch trains with one loader of standpipe.torch.image_folder_loaders and validates with the other.
This is measured twice: with whole epochs, and with a break in the middle of each.
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

EARLY = 5  # epoch after which all memory that is allocated once has been allocated

Sizes = tuple[list[float], list[float]]  # PSS and resident size after each epoch, in MiB


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument(
        "--epochs", type=int, default=50, metavar="N", help="number of epochs (default: 50)"
    )
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows per batch (default: 64)")
    arguments.add_argument(
        "--torch", action="store_true", help="measure standpipe.torch's loaders, with and without breaks"
    )
    args = arguments.parse_args()
    if args.epochs <= EARLY:
        arguments.error(f"--epochs must be greater than {EARLY}")
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
    """Return the sizes after epochs with standpipe's own loader."""
    with sp.Loader(plan) as loader:
        return after_epochs(lambda: exhaust(loader), epochs)


def of_torch(args: argparse.Namespace) -> None:
    """Measure epochs of training and validation with ``standpipe.torch``, and print the table."""
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
    note = f"{args.epochs} epochs of training and validation; left: after half the batches of each"
    header = ["", *(f"{kind}, {name}" for kind in runs for name in ("PSS", "resident"))]
    report(args, header, growth(runs, args.epochs), note, packages=("torch",))


def exhaust(batches: Iterable[Any]) -> None:
    """Take all batches, and drop each before the next one."""
    for batch in batches:
        del batch


def after_epochs(epoch: Callable[[], None], epochs: int) -> Sizes:
    """Call ``epoch`` as often as ``epochs`` says; return this process's PSS and resident size after each call."""
    proportional, resident = [], []
    for number in range(1, epochs + 1):
        epoch()
        proportional.append(process_memory_bytes() / MIB)
        resident.append(resident_bytes(os.getpid()) / MIB)
        progress(f"epoch {number} of {epochs}: {proportional[-1]:.1f} MiB")
    progress("")
    return proportional, resident


def growth(runs: dict[str, list[Sizes]], epochs: int) -> list[list[Any]]:
    """Return the rows of a table that has two columns, PSS and resident size, per kind of run."""
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
    """Return the least-squares growth per epoch, in KiB."""
    return 1024 * statistics.linear_regression(range(len(sizes_mib)), sizes_mib).slope


if __name__ == "__main__":
    main()
