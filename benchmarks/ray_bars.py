"""Measure what actors of a Ray cluster bring and cost: rate, CPU time, memory and object store.

All is measured on this machine. First 1 and 8 actors make samples that wait for 50 ms and do nothing else, on two
raylets. Then two actors make the standard task, beside a loader with two workers: on the trainer's raylet, and on
another one, from which Ray copies the batches. They make many epochs of few small images, and all of them are killed.
Except for the first part, absolute rates would say little, because trainer, actors and Ray share the machine's cores.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import ray
from _measure import MIB, Figure, cpu_seconds, parser, progress, report, train_task
from _ray import Peaks, cluster, store_bytes, workers

import standpipe as sp
import standpipe.ray
from standpipe.cli.bench import proportional_bytes

WAIT_S = 0.05
UINT8_BYTES = 224 * 224 * 3
FLOAT_BYTES = 4 * UINT8_BYTES
ACTOR: dict[str, Any] = {"cpus_per_actor": 1, "memory_per_actor": "512MiB"}


class Waiting:
    """A data set whose samples only wait, as for storage far away."""

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(WAIT_S)
        return {"x": np.zeros(8, np.float32)}


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument(
        "--seconds", type=float, default=8, metavar="S", help="seconds of each measurement (default: 8)"
    )
    arguments.add_argument(
        "--batch",
        type=int,
        default=128,
        metavar="N",
        help="rows per batch of the standard task (default: 128)",
    )
    arguments.add_argument(
        "--epochs", type=int, default=200, metavar="N", help="epochs of the last part (default: 200)"
    )
    args = arguments.parse_args()
    rows = []
    with cluster(5, 5):
        progress("samples that wait")
        rows += waiting(args)
        progress("many epochs")
        grown = growth(args)
        progress("actors that are killed")
        killed = returning(args)
    for cpus in ((2,), (0, 2)):
        with cluster(*cpus):
            progress("the standard task")
            rows += cpu_bound(args, "the trainer's raylet" if len(cpus) == 1 else "another raylet")
    rows += grown + killed
    progress("")
    report(args, ["what", "measured", "bar"], rows, packages=["ray"])


def waiting(args: Any) -> list[list[Any]]:
    """Compare the rates of 1 and 8 actors, where samples wait."""
    pipeline = sp.Pipeline(sp.MapSource(Waiting())).batch(8)
    ratios = []
    for _ in range(args.rounds):
        rates = []
        for actors in (1, 8):
            with standpipe.ray.loader(
                pipeline, actors, memory="512MiB", executor="thread", **ACTOR
            ) as loader:
                batches = endless(loader)
                while len(loader.stats().workers) < actors:  # until each has answered once
                    next(batches)
                rate(batches, 2)
                rates.append(rate(batches, args.seconds))
        ratios.append(rates[1] / rates[0])
    return [["rate of 8 actors ÷ 1 actor, samples of 50 ms", Figure(ratios, ".2f"), "≥ 7.2"]]


def cpu_bound(args: Any, where: str) -> list[list[Any]]:
    """Compare the CPU time of the standard task in actors with that of local workers; measure the trainer's part.

    where  the place of the actors, in the table
    """
    task = train_task(args.path, args.batch)
    settings: dict[str, Any] = {"memory": "1GiB", "prefetch": 4}
    local, remote, own, taken, store, figure = [], [], [], [], 0.0, 0
    for _ in range(args.rounds):
        with task.loader(num_workers=2, **settings) as loader:
            batches = endless(loader)
            each(batches, 1)
            local.append(each(batches, args.seconds)[0])
        with standpipe.ray.loader(task, 2, **settings, **ACTOR) as loader:
            figure = on_the_way(loader.plan.explain())
            batches = endless(loader)
            while len(loader.stats().workers) < 2:
                next(batches)
            spent, trainer = each(batches, args.seconds)
            with Peaks(os.getpid(), "Maker") as peaks:
                each(batches, 2)
        remote.append(spent)
        own.append(trainer / FLOAT_BYTES * 1e9)
        taken.append(trainer / UINT8_BYTES * 1e9)
        store = max(store, peaks.store)
    ratios = Figure([a / b for a, b in zip(remote, local, strict=True)], ".2f")
    return [
        [f"actors on {where}: CPU time per image, of all processes ÷ of local workers", ratios, "≤ 1.2"],
        ["  CPU ms per image, of all processes", Figure([1e3 * value for value in remote], ".2f"), "—"],
        ["  trainer's CPU s per GB of float32 batches", Figure(own, ".2f"), "≤ 0.5"],
        ["  trainer's CPU s per GB that it takes as uint8, with Normalize", Figure(taken, ".2f"), "—"],
        [
            "  trainer's CPU s per GB of uint8 batches, without",
            Figure(copied(args, settings), ".2f"),
            "≤ 0.5",
        ],
        ["  most use of the object store, MiB", f"{store / MIB:.0f}", f"≤ {figure / MIB:.0f}"],
    ]


def copied(args: Any, settings: dict[str, Any]) -> list[float]:
    """Return the trainer's CPU seconds per GB of batches that it only copies."""
    pixels = sp.Pipeline(sp.ImageFolder(args.path)).shuffle(seed=0).map(sp.RandomResizedCrop(224))
    values = []
    for _ in range(args.rounds):
        with standpipe.ray.loader(pixels.batch(args.batch), 2, **settings, **ACTOR) as loader:
            batches = endless(loader)
            while len(loader.stats().workers) < 2:
                next(batches)
            values.append(each(batches, args.seconds)[1] / UINT8_BYTES * 1e9)
    return values


def growth(args: Any) -> list[list[Any]]:
    """Compare memory after a tenth of many epochs with that after all of them."""
    sizes = []
    with standpipe.ray.loader(small(), 2, memory="512MiB", **ACTOR) as loader:
        for epoch in range(1, args.epochs + 1):
            for batch in loader:
                del batch
            if epoch in (max(args.epochs // 10, 1), args.epochs):
                gc.collect()
                makers = sum(map(proportional_bytes, workers("Maker")))
                sizes.append((proportional_bytes(os.getpid()) / MIB, makers / MIB, store_bytes() / MIB))
    places = ("trainer's memory", "actors' memory", "use of the object store")
    title = f"MiB after {max(args.epochs // 10, 1)} and {args.epochs} epochs"
    return [
        [f"{place}, {title}", f"{first:.1f}, {last:.1f}", "no growth"]
        for place, first, last in zip(places, *sizes, strict=True)
    ]


def returning(args: Any) -> list[list[Any]]:
    """Kill both actors, and measure how long Ray takes to bring one back, and the loader to get a batch from it."""
    back, batch = [], []
    pipeline = small()
    with (
        standpipe.ray.start(pipeline, 2, fallback="wait", **ACTOR) as actors,
        pipeline.loader(fleet=actors, memory="512MiB") as loader,
        ThreadPoolExecutor(1) as thread,
    ):
        batches = endless(loader)
        for _ in range(args.rounds):
            rate(batches, 1)
            for process in workers("Maker"):
                os.kill(process, signal.SIGKILL)
            begin = time.perf_counter()
            returned = thread.submit(first_alive, actors)
            times = [begin]
            while not returned.done() or times[-1] < returned.result():
                next(batches)
                times.append(time.perf_counter())
            back.append(returned.result() - begin)
            batch.append(times[-1] - returned.result())
    return [
        ["seconds after both actors are killed until Ray has one running again", Figure(back, ".2f"), "—"],
        ["  from then until the next batch", Figure(batch, ".2f"), "≤ 2"],
    ]


def first_alive(actors: standpipe.ray.Actors) -> float:
    """Return the time at which one of the actors answers."""
    answers = [
        each.alive.options(max_task_retries=-1, concurrency_group="life").remote() for each in actors.handles
    ]
    ray.wait(answers, num_returns=1)
    return time.perf_counter()


def small() -> sp.Pipeline:
    """Return a pipeline of few small images, in batches of 8."""
    images = np.random.default_rng(0).integers(0, 256, (64, 40, 40, 3), np.uint8)
    crop = [sp.RandomResizedCrop(32), sp.Normalize()]
    return sp.Pipeline(sp.Arrays(image=images)).shuffle(seed=0).map(*crop).batch(8)


def each(batches: Iterator[int], seconds: float) -> tuple[float, float]:
    """Take batches for some seconds; return CPU seconds per image, of all processes and of this one."""
    begin, all_s, own_s, images = time.perf_counter(), cpu_seconds(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        images += next(batches)
    return (cpu_seconds() - all_s) / images, (time.process_time() - own_s) / images


def rate(batches: Iterator[int], seconds: float) -> float:
    """Take batches for some seconds; return rows per second."""
    begin, rows = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        rows += next(batches)
    return rows / elapsed


def on_the_way(explained: str) -> int:
    """Return the bytes of batches on the way, at most, that ``explain()`` says."""
    text = next(line for line in explained.splitlines() if "on the way" in line)
    number = text.partition(" on the way, ")[2].split(" ")[0]
    return sp.LoaderOptions(memory=number).bytes_of("memory") or 0


def endless(loader: sp.Loader) -> Iterator[int]:
    """Yield the number of rows of each batch, epoch after epoch."""
    while True:
        for batch in loader:
            rows = len(batch["index"])
            del batch  # else its slot stays held
            yield rows


if __name__ == "__main__":
    main()
