"""Measure the CPU time of reproducible random numbers in Python code.

Worker processes make global generators depend on the sample: they compare the generators' states once per task. The
first rows compare CPU time per sample with and without this, for code without random numbers (tasks of 32 samples)
and for code that uses one. Worker threads don't compare states. The last row shows the CPU time of a thread loader
beside a training loop that uses all global generators every millisecond, compared with a loop that uses none.
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
    """Make a sample without random numbers."""


def of_random() -> None:
    random.random()


def recount() -> Callable[[], None]:
    """Count no images: the samples here have none."""
    return nothing


def pieces(make: Callable[[], None], draws: Draws | None) -> dict[str, Any]:
    """Return the CPU time per sample in microseconds."""
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
    """Return this process's CPU time per row of a thread loader, in microseconds.

    draws  if True, the training loop uses all global generators; else it computes as often
    """
    import torch

    def step() -> float:
        if draws:
            return random.random() + np.random.rand() + float(torch.rand(1))  # noqa: NPY002
        return abs(-1.0) + float(np.float64(1.0)) + float(torch.ones(1))

    pipeline = sp.Pipeline(sp.ImageFolder(path)).shuffle(seed=1).map(sp.RandomResizedCrop(64))
    pipeline = pipeline.map(same, field="image").batch(PIECE)
    with pipeline.loader(memory="1GiB", executor="thread", num_workers=2, check_generators=False) as loader:

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
    arguments.add_argument(
        "--beside", choices=("draws", "computes"), help="one run of the last row, in this process"
    )
    args = arguments.parse_args()
    if args.beside is not None:
        print(json.dumps(beside(args.path, args.beside == "draws")))
        return
    import torch  # noqa: F401 (so that torch's generator is compared too)

    def run(what: str) -> dict[str, Any]:
        return last_json([sys.executable, __file__, args.path, "--beside", what])

    plain, drawing = (Draws(1, recount, streams=False) for _ in range(2))
    results = in_turn(
        args.rounds,
        {
            "no random numbers, alone": lambda: pieces(nothing, None),
            "no random numbers, in a worker process": lambda: pieces(nothing, plain),
            "one random number, alone": lambda: pieces(of_random, None),
            "one random number, in a worker process": lambda: pieces(of_random, drawing),
            "threads beside a loop with random numbers": lambda: run("draws"),
            "threads beside a loop without": lambda: run("computes"),
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
    report(
        args, ["CPU time", "µs per sample", "compared with", "more", "ratio", "95%"], rows, packages=["torch"]
    )


if __name__ == "__main__":
    main()
