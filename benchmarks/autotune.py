"""Measure how close automatic tuning gets to the best workers and prefetch, and how soon.

Each workload runs in its own process. One run tunes itself for half a minute, from the plan's first setting. Other
runs have fixed workers and prefetch, over a grid. Then the best setting of the grid and the tuned run are measured
again in turn, since the best of many noisy figures is mostly luck. Memory is the peak of everything that standpipe
counts, as a fraction of ``memory=``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _functions import BATCH, Waits, computes, numbers
from _measure import parser, report

import standpipe as sp
from standpipe.system.faults import install_faults

WORKERS, PREFETCHES = (1, 2, 4, 8, 16, 32, 64), (1, 2, 5, 11)
MB = 1_000_000


@dataclass(frozen=True)
class Workload:
    """A loading task and its limits.

    step_s    seconds of each step of the training loop
    loaders   number of loaders that run it at the same time, each in its own thread
    cpus      number of processors that the process may use; None: all
    most      largest number of workers in the grid
    settings  arguments of ``Pipeline.loader``
    """

    pipeline: Callable[[Path], sp.Pipeline]
    step_s: float = 0.0
    loaders: int = 1
    cpus: int | None = None
    most: int = 64
    settings: dict[str, Any] = field(default_factory=lambda: {"memory": "1GiB"})


def large(x: Any) -> Any:
    return np.full(500_000, x, np.uint8)


def photos(folder: Path) -> sp.Pipeline:
    return sp.Pipeline(sp.ImageFolder(folder)).shuffle(seed=0).map(sp.RandomResizedCrop(224)).batch(BATCH)


def on_slow_storage(folder: Path) -> sp.Pipeline:
    install_faults("read.open=delay:20ms")
    return photos(folder)


PROCESSES = {"memory": "2GiB", "executor": "process"}
THREADS = {"memory": "1GiB", "executor": "thread"}
WORKLOADS = {
    "native, computes": Workload(photos, most=4),
    "native, slow storage": Workload(on_slow_storage, most=4),
    "Python, one interpreter": Workload(lambda _: numbers(computes), settings=THREADS),
    "Python, waits": Workload(lambda _: numbers(Waits(0.01)), settings=THREADS),
    "Python, waits and computes": Workload(lambda _: numbers(Waits(0.002), computes), settings=THREADS),
    "processes, compute": Workload(lambda _: numbers(computes), most=4, settings=PROCESSES),
    "two loaders": Workload(photos, loaders=2, most=4),
    "slow loop": Workload(photos, step_s=0.06, most=4),
    "slow loop, Python waits": Workload(lambda _: numbers(Waits(0.01)), step_s=0.02, settings=THREADS),
    "one CPU": Workload(lambda _: numbers(Waits(0.002), computes), cpus=1, settings=THREADS),
    "512 MB": Workload(
        lambda _: numbers(large, Waits(0.01), batch=64), settings={**THREADS, "memory": 512 * MB}
    ),
}


def loop(loader: sp.Loader, seconds: float, step_s: float) -> None:
    """Take batches for ``seconds``, with a pause of ``step_s`` after each."""
    ends = time.monotonic() + seconds
    while True:
        for _ in loader:
            if step_s:
                time.sleep(step_s)
            if time.monotonic() > ends:
                return


def run(name: str, path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Run a workload in this process; return the rate of all its loaders together, and the tuning's results.

    asked  ``settings`` of the loader, seconds before the measurement (``first_s``) and of it (``then_s``)
    """
    workload = WORKLOADS[name]
    if workload.cpus is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: workload.cpus])
    settings = {**workload.settings, **asked["settings"]}
    loaders = [workload.pipeline(path).loader(**settings) for _ in range(workload.loaders)]

    def together(seconds: float) -> float:
        before = [loader.stats() for loader in loaders]
        threads = [threading.Thread(target=loop, args=(each, seconds, workload.step_s)) for each in loaders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(
            (loader.stats() - was).step.rows_per_s for loader, was in zip(loaders, before, strict=True)
        )

    together(asked["first_s"])
    rate = together(asked["then_s"])
    tunings = [loader.tuning() for loader in loaders]
    memory = max(loader.memory().peak / loader.memory().limit for loader in loaders)
    for loader in loaders:
        loader.close()
    trials = [trial for tuning in tunings for trial in tuning.trials]
    return {
        "rate": rate,
        "workers": tunings[0].num_workers,
        "prefetch": tunings[0].prefetch,
        "settled": all(tuning.settled for tuning in tunings),
        "after_s": max((trial.after_s for trial in trials), default=0.0),
        "trials": [str(trial) for trial in trials],
        "memory": memory,
    }


def apart(name: str, path: Path, settings: dict[str, Any], first_s: float, then_s: float) -> dict[str, Any]:
    """Call ``run`` in a new process, and return its result."""
    asked = {"settings": settings, "first_s": first_s, "then_s": then_s}
    command = [sys.executable, __file__, str(path), "--one", name, "--asked", json.dumps(asked)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def best_of_grid(name: str, path: Path, seconds: float) -> dict[str, Any]:
    """Return the fastest fixed setting.

    It tries all numbers of workers with two values of prefetch, then every prefetch with the three best numbers.
    """
    workload, rates = WORKLOADS[name], {}

    def measure(workers: int, prefetch: int) -> None:
        settings = {"num_workers": workers, "prefetch": prefetch, "autotune": False}
        try:
            rates[workers, prefetch] = apart(name, path, settings, seconds / 3, seconds)["rate"]
        except subprocess.CalledProcessError:
            print(
                f"{name}: num_workers={workers}, prefetch={prefetch} failed, and is left out", file=sys.stderr
            )

    for workers in WORKERS:
        if workers <= workload.most:
            for prefetch in PREFETCHES[1:3]:
                measure(workers, prefetch)
    ahead = sorted({workers for workers, _ in sorted(rates, key=lambda each: -rates[each])[:3]})
    for workers in ahead:
        for prefetch in PREFETCHES:
            if (workers, prefetch) not in rates:
                measure(workers, prefetch)
    workers, prefetch = max(rates, key=lambda each: rates[each])
    return {"num_workers": workers, "prefetch": prefetch, "autotune": False}


def measured(name: str, path: Path, args: Any) -> list[Any]:
    """Measure a workload, and return its row of the table."""
    best = best_of_grid(name, path, args.seconds)
    ratios, memory = [], 0.0
    for _ in range(args.rounds):
        fixed = apart(name, path, best, args.seconds / 2, 2 * args.seconds)
        again = apart(name, path, {}, args.tuning_s, 2 * args.seconds)
        ratios.append(again["rate"] / fixed["rate"])
        memory = max(memory, again["memory"])
    for trial in again["trials"]:
        print(f"{name}: {trial}", file=sys.stderr)
    return [
        name,
        f"{best['num_workers']}, {best['prefetch']}",
        round(fixed["rate"]),
        f"{again['workers']}, {again['prefetch']}",
        round(again["rate"]),
        f"{statistics.median(ratios):.2f}",
        f"{again['after_s']:.0f} s",
        f"{memory:.2f}",
    ]


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument(
        "--seconds", type=float, default=3.0, metavar="S", help="seconds per run (default: 3)"
    )
    arguments.add_argument(
        "--tuning-s", type=float, default=30.0, metavar="S", help="seconds for tuning (default: 30)"
    )
    arguments.add_argument("--only", metavar="WORDS", help="run workloads whose names contain this")
    arguments.add_argument(
        "--one", choices=WORKLOADS, metavar="NAME", help="run this workload in this process"
    )
    arguments.add_argument("--asked", type=json.loads, metavar="JSON", help="arguments of --one")
    args = arguments.parse_args()
    if args.one:
        print(json.dumps(run(args.one, Path(args.path), args.asked)))
        return
    header = ["workload", "best of grid", "rows/s", "tuned", "rows/s", "tuned ÷ best", "last trial", "memory"]
    names = [name for name in WORKLOADS if not args.only or args.only in name]
    report(args, header, [measured(name, Path(args.path), args) for name in names])


if __name__ == "__main__":
    main()
