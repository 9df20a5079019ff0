"""Measure what it costs that a sample's random numbers depend only on the sample.

Worker processes compare global generators once a task: CPU time per sample of code without random numbers, in tasks
of 32 samples, compared with the same calls without that; and of code that uses one number. Threads don't look at
them: CPU time of a loader beside a training loop that uses all generators every millisecond, compared with a loop
that computes as often and uses none.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _measure import Figure, Interval, column, in_turn, last_json, parser, ratio, report

import standpipe as sp
from standpipe.engine.python.draws import Draws
from standpipe.engine.rows import RowKey

PIECE = 32
PIECES = 300
ROWS = 5000
EVERY_S = 1e-3


def nothing() -> None:
    """A sample without random numbers."""


def of_random() -> None:
    random.random()


def pieces(make: Callable[[], None], draws: Draws | None) -> dict[str, Any]:
    """CPU time a sample, in microseconds."""
    keys = [RowKey(number, 0, number) for number in range(PIECE)]

    def alone() -> None:
        for _ in keys:
            make()

    def keyed() -> None:
        assert draws is not None
        for key in keys:
            draws.sample(key, make)

    begin = time.process_time()
    for _ in range(PIECES):
        alone() if draws is None else draws.task(0, keyed)
    return {"us": 1e6 * (time.process_time() - begin) / PIECES / PIECE}


def same(image: np.ndarray) -> np.ndarray:
    return image


def beside(path: str, draws: bool) -> dict[str, Any]:
    """CPU time of this process for a row of a thread loader, in microseconds."""
    import torch

    def step() -> float:
        if draws:
            return random.random() + np.random.rand() + float(torch.rand(1))  # noqa: NPY002
        return abs(-1.0) + float(np.float64(1.0)) + float(torch.ones(1))

    pipeline = sp.Pipeline(sp.ImageFolder(path)).shuffle(seed=1).map(sp.RandomResizedCrop(64))
    pipeline = pipeline.map(same, field="image").batch(PIECE)
    with pipeline.loader(memory="1GiB", executor="thread", num_workers=2, probe=False) as loader:

        def endless() -> Any:
            while True:
                yield from loader

        batches = endless()
        for _ in range(4):
            next(batches)
        ended = threading.Event()

        def trains() -> None:
            while not ended.wait(EVERY_S):
                step()

        trainer = threading.Thread(target=trains)
        trainer.start()
        begin, rows = time.process_time(), 0
        while rows < ROWS:
            rows += len(next(batches)["index"])
        took = time.process_time() - begin
        ended.set()
        trainer.join()
        return {"us": 1e6 * took / rows}


def main() -> None:
    arguments = parser(__doc__, rounds=15)
    arguments.add_argument("--beside", choices=("draws", "computes"), help="one run of the last line")
    args = arguments.parse_args()
    if args.beside is not None:
        print(json.dumps(beside(args.path, args.beside == "draws")))
        return
    import torch  # noqa: F401 (whose generator is looked at too)

    def run(what: str) -> dict[str, Any]:
        return last_json([sys.executable, __file__, args.path, "--beside", what])

    plain, drawing = (Draws(1, streams=False) for _ in range(2))
    results = in_turn(
        args.rounds,
        {
            "no draws, alone": lambda: pieces(nothing, None),
            "no draws, in a worker process": lambda: pieces(nothing, plain),
            "one draw, alone": lambda: pieces(of_random, None),
            "one draw, in a worker process": lambda: pieces(of_random, drawing),
            "threads beside a loop that draws": lambda: run("draws"),
            "threads beside one that doesn't": lambda: run("computes"),
        },
    )
    rows = []
    names = list(results)
    for one, other in ((1, 0), (3, 2), (4, 5)):
        ours, theirs = column(results[names[one]], "us"), column(results[names[other]], "us")
        ratios = ratio(ours, theirs)
        more = Figure([a - b for a, b in zip(ours, theirs, strict=True)], ".2f")
        rows.append(
            [
                names[one],
                Figure(ours, ".2f"),
                Figure(theirs, ".2f"),
                more,
                ratios.median,
                Interval.of_median(ratios.values),
            ]
        )
    report(args, ["CPU time", "µs a sample", "beside", "more", "ratio", "95%"], rows, packages=["torch"])


if __name__ == "__main__":
    main()
