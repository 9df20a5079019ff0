"""Measure the CPU time per row that the counters cost.

The counters are always on, so this build is compared with another one: a version without counters, or with changed
ones. ``--beside`` is the interpreter of the other build. Both run in turn, each run in its own process. CPU time is
that of the process and its workers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from _measure import Figure, column, parser, progress, ratio, report

PROGRAM = """
import json, os, sys, time
import numpy as np
import standpipe as sp

def same(x):
    return x

def some_work(x):
    return sum(range(5000)) * 0 + x

path, task, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
arrays = sp.Arrays(image=np.zeros((4096, 32, 32, 3), np.uint8), x=np.arange(4096))
small = sp.Pipeline(arrays, seed=1).shuffle(seed=1)
photos = sp.Pipeline(sp.ImageFolder(path), seed=1).shuffle(seed=1)
pipeline, executor = {
    "photos, native": (lambda: photos.map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip()), "thread"),
    "small arrays, native": (lambda: small.map(sp.RandomHorizontalFlip()), "thread"),
    "a function that does nothing, threads": (lambda: small.map(same, field="x"), "thread"),
    "a function of 0.1 ms, threads": (lambda: small.map(some_work, field="x"), "thread"),
    "a function that does nothing, processes": (lambda: small.map(same, field="x"), "process"),
    "photos and a function, processes": (
        lambda: photos.map(sp.RandomResizedCrop(224)).map(same, field="image"), "process"),
}[task]
with pipeline().batch(64).loader(memory="1GiB", num_workers=2, executor=executor) as loader:
    def endless():
        while True:
            yield from loader
    batches = endless()
    for _ in range(4):
        next(batches)
    def family(process):
        found = [process]
        for task in os.listdir(f"/proc/{process}/task"):
            for child in open(f"/proc/{process}/task/{task}/children").read().split():
                found += family(int(child))
        return found
    def cpu():
        total = 0.0
        for process in family(os.getpid()):
            for task in os.listdir(f"/proc/{process}/task"):
                total += int(open(f"/proc/{process}/task/{task}/schedstat").read().split()[0]) / 1e9
        return total
    begin, before, rows = time.perf_counter(), cpu(), 0
    while time.perf_counter() - begin < seconds:
        rows += len(next(batches)["index"])
    print(json.dumps({"us_per_row": 1e6 * (cpu() - before) / rows}))
"""
TASKS = (
    "photos, native",
    "small arrays, native",
    "a function that does nothing, threads",
    "a function of 0.1 ms, threads",
    "a function that does nothing, processes",
    "photos and a function, processes",
)


def main() -> None:
    arguments = parser(__doc__, rounds=9)
    arguments.add_argument(
        "--beside",
        metavar="PYTHON",
        default=sys.executable,
        help="interpreter of the other build (default: this one, to show the noise)",
    )
    arguments.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="seconds per run (default: 2)"
    )
    args = arguments.parse_args()
    rows = []
    for task in TASKS:
        progress(task)
        here, there = [], []
        for _ in range(args.rounds):
            here.append(measured(sys.executable, args, task))
            there.append(measured(args.beside, args, task))
        ours, theirs = column(here, "us_per_row"), column(there, "us_per_row")
        rows.append([task, Figure(ours, ".2f"), Figure(theirs, ".2f"), ratio(ours, theirs)])
    report(args, ["task", "µs of CPU per row", "other build", "ratio"], rows)


def measured(python: str, args: Any, task: str) -> dict[str, Any]:
    command = [python, "-c", PROGRAM, args.path, task, str(args.seconds)]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return found


if __name__ == "__main__":
    main()
