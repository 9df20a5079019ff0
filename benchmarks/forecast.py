"""Measure the peak of memory beside the forecast of it.

Each run is a process of its own, or two for two ranks, that takes batches of 256 photos for some seconds with the
default settings. The peak is the proportional set size (PSS) of the process and its workers; the forecast is that of
``plan.forecast.expected``, as ``explain()`` prints it. No run may have a peak above 1.03 times its forecast. The exit
status is 1 if one does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _measure import MIB, Figure, last_json, parser, progress, report, train_task

import standpipe as sp
from standpipe.cli.bench import PeakMemory

MOST = 1.03  # peak ÷ forecast
BATCH, MEMORY = 256, "2GiB"
KINDS = ("float32", "uint8", "encoded, in processes", "torch.loader", "two ranks")


class Encoded:
    """A data set of (bytes of a photo, label)."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).rglob("*.[jJ]*"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return self.paths[index].read_bytes(), index % 10


@contextmanager
def batches_of(kind: str, path: str) -> Iterator[tuple[sp.Loader, Any]]:
    """Yield a loader of this kind, and what gives its batches."""
    task = train_task(path, BATCH)
    if kind == "torch.loader":
        import standpipe.torch

        batches = standpipe.torch.loader(task, memory=MEMORY)
        yield batches.dataset.loader, batches
        batches.close()
        return
    if kind != "float32" and kind != "two ranks":
        source = (
            sp.MapSource(Encoded(path), encoded="image") if kind == "encoded, in processes" else task.source
        )
        crops = sp.Pipeline(source).shuffle(seed=0).map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip())
        task = crops.batch(BATCH, last_batch="pad")
    with task.loader(memory=MEMORY) as loader:
        yield loader, loader


def run(kind: str, path: str, seconds: float) -> dict[str, Any]:
    """Take batches for ``seconds``; return the peak and the forecast in bytes, and the owners above their forecast."""
    with PeakMemory() as memory, batches_of(kind, path) as (loader, batches):
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for batch in batches:
                del batch
                if time.monotonic() > ends:
                    break
        ledger, plan = loader.memory(), loader.plan
        peak = memory.stop()
    above = {owner.name: owner.peak - owner.forecast for owner in (*ledger.owners, *ledger.outside)}
    return {
        "peak": peak,
        "forecast": plan.forecast.expected,
        "above": {name: size for name, size in above.items() if size >= MIB},
    }


def runs(kind: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run a kind in new processes; return the result of each rank."""
    world = 2 if kind == "two ranks" else 1
    command = [sys.executable, __file__, args.path, "--one", kind, "--seconds", args.seconds]
    ranks = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        if world == 2
        else {}
        for rank in range(world)
    ]
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda env: last_json(command, env), ranks))


def main() -> None:
    arguments = parser(__doc__, rounds=20)
    arguments.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="seconds per run (default: 20)"
    )
    arguments.add_argument("--only", metavar="WORDS", help="run kinds whose names contain this")
    arguments.add_argument("--one", choices=KINDS, metavar="KIND", help="run this kind in this process")
    args = arguments.parse_args()
    if args.one:
        print(json.dumps(run(args.one, args.path, args.seconds)))
        return
    rows, failed = [], 0
    for kind in KINDS:
        if args.only and args.only not in kind:
            continue
        ratios, forecasts, above = [], [], dict[str, int]()
        for number in range(args.rounds):
            progress(f"{kind}: run {number + 1} of {args.rounds}")
            found = runs(kind, args)
            worst = max(found, key=lambda each: each["peak"] / each["forecast"])
            ratios.append(worst["peak"] / worst["forecast"])
            forecasts.append(worst["forecast"] / MIB)
            above |= {name: max(size, above.get(name, 0)) for name, size in worst["above"].items()}
        failed += sum(ratio > MOST for ratio in ratios)
        most = ", ".join(f"{name} {size / MIB:.0f} MiB" for name, size in above.items())
        within = sum(ratio <= MOST for ratio in ratios)
        rows.append(
            [kind, Figure(forecasts), Figure(ratios, ".3f"), f"{within} of {len(ratios)}", most or "none"]
        )
    progress("")
    header = ["kind", "forecast, MiB", "peak ÷ forecast", f"within {MOST}", "owners above their forecast"]
    report(args, header, rows, f"runs of {args.seconds:g} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
