"""Measure standpipe.torch.DataLoader in place of PyTorch's: speed, starts, and growth of memory.

Both loaders get the same dataset object and the same arguments. Samples per second, and CPU seconds per sample of
the process and all its children, are measured in batches of 64. The tasks:

photos      read a JPEG with Pillow, then RandomResizedCrop(224), a flip and ImageNet's normalisation, by torchvision
            where it works, else by the same steps in Pillow and torch
tensors     a dataset that returns one of 64 float tensors of 602 kB
next epoch  seconds from ``iter()`` to the first batch, in the first epoch and in later ones, which start new workers
strings     a shuffled epoch over a Python list of --strings strings (0: left out) with 8 workers; memory is the
            proportional set size (PSS) of all processes, after 2% of the epoch and at its end
starts      seconds from making a loader to its first batch, for a process's first loader and for later ones; and
            those of a script with torchvision's transforms on photos and two loaders, which builds its model before
            it makes the loaders, or for 2 seconds after that
cheap       microseconds per sample of datasets that do almost nothing: a list of strings, a list of integers and a
            table of float rows, shuffled in batches of 256, without the first batches; both loaders take turns in
            one process; standpipe's threads are compared with torch's 2 workers

Each run has its own process, except in "cheap".
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _measure import Figure, column, cpu_seconds, in_turn, last_json, parser, progress, ratio, report
from _plot import line_chart
from beside_torch import PillowImages, Repeated, listed, torchvision_images
from ten_million_rows import MemoryOverTime
from torch.utils import data

import standpipe.torch
from standpipe.cli.bench import seconds_since_process_start

ROWS = 64
SHAPE = (3, 224, 224)
TEXT_ROWS, TEXT_WORKERS = 256, 8
WARM = 0.02  # fraction of an epoch after which all workers have begun
EPOCHS = 4
LOADERS: dict[str, Any] = {"standpipe": standpipe.torch.DataLoader, "torch": data.DataLoader}
TASKS = ("photos", "tensors", "next epoch", "strings", "starts", "cheap")
START_ROUNDS = 5
STARTS = ("standpipe", "torch forkserver", "torch fork")
PHOTO_STARTS = ("standpipe", "torch forkserver", "torch spawn", "torch fork")
MODEL_S = (0, 2)  # seconds in which a script builds its model, after it has made the loaders
CHEAP_ROWS, CHEAP_BATCHES, CHEAP_WARM = 256, 300, 20
CHEAP_FLOATS = 32


class Ready(data.Dataset[Any]):
    """A dataset of tensors in memory: a sample costs only its copies."""

    def __init__(self) -> None:
        self.tensors = [torch.rand(SHAPE) for _ in range(64)]

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.tensors[index % 64], index


class Strings(data.Dataset[Any]):
    """A dataset with a Python list of paths, like in many training scripts."""

    def __init__(self, number: int) -> None:
        self.paths = [
            f"/data/train/class-{index % 1000:04d}/image-{index:09d}.jpg" for index in range(number)
        ]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        return len(self.paths[index])


class Cheap(data.Dataset[Any]):
    """A dataset over a list or table in memory."""

    def __init__(self, samples: Sequence[Any] | torch.Tensor) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


CHEAP: dict[str, Callable[[int], Cheap]] = {
    "strings": lambda number: Cheap([f"sentence number {index}" for index in range(number)]),
    "integers": lambda number: Cheap(list(range(number))),
    f"rows of {CHEAP_FLOATS} floats": lambda number: Cheap(torch.rand(number, CHEAP_FLOATS)),
}
CHEAP_LOADERS: dict[
    str, tuple[dict[str, Any], dict[str, Any]]
] = {  # arguments of standpipe's loader, and of torch's
    "0 workers": ({"num_workers": 0}, {"num_workers": 0}),
    "2 workers": ({"num_workers": 2}, {"num_workers": 2}),
    "8 workers": ({"num_workers": 8}, {"num_workers": 8}),
    "2 threads": ({"num_workers": 2, "executor": "thread"}, {"num_workers": 2}),
}


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="workers of each loader (default: 2)"
    )
    arguments.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="seconds per run (default: 5)"
    )
    arguments.add_argument(
        "--strings", type=int, default=5_000_000, metavar="N", help="length of the list (default: 5,000,000)"
    )
    arguments.add_argument("--plot", metavar="FOLDER", help="draw memory over time as PNG in this folder")
    arguments.add_argument("--task", choices=TASKS, help="run only this task")
    arguments.add_argument("--only", choices=LOADERS, help=argparse.SUPPRESS)
    arguments.add_argument("--cheap", nargs=2, help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.cheap:
        print(json.dumps(cheap(*args.cheap, rounds=args.rounds)))
        return
    if args.only:
        print(json.dumps(RUNS[args.task](args, LOADERS[args.only])))
        return
    tasks = [task for task in TASKS if task == (args.task or task) and (task != "strings" or args.strings)]
    given = ("--workers", args.workers, "--seconds", args.seconds, "--strings", args.strings)
    if "starts" in tasks:
        tasks.remove("starts")
        report_starts(args)
    if "cheap" in tasks:
        tasks.remove("cheap")
        report_cheap(args)
    if not tasks:
        return

    def run(task: str, name: str) -> Callable[[], dict[str, Any]]:
        command = [sys.executable, __file__, args.path, "--task", task, "--only", name, *given]
        return lambda: last_json(command)

    results: dict[str, list[dict[str, Any]]] = {}
    for task in tasks:  # the memory of a list needs no repetition
        rounds = 1 if task == "strings" else args.rounds
        results |= in_turn(rounds, {f"{task}, {name}": run(task, name) for name in LOADERS})
    rows: list[list[Any]] = []
    for task in tasks:
        ours, theirs = results[f"{task}, standpipe"], results[f"{task}, torch"]
        for key, form in FIGURES[task].items():
            one, other = column(ours, key), column(theirs, key)
            rows.append([f"{task}: {key}", Figure(one, form), Figure(other, form), ratio(one, other)])
    notes = [
        f"{args.workers} workers, batches of {ROWS}; strings: {TEXT_WORKERS} workers, batches of {TEXT_ROWS}"
    ]
    report(args, ["", "standpipe", "torch", "standpipe ÷ torch"], rows, *notes, packages=["torch", "pillow"])
    if args.plot is not None and "strings" in tasks:
        curves = {name: results[f"strings, {name}"][0]["memory"] for name in LOADERS}
        path = Path(args.plot) / "drop_in.png"
        title = f"memory of all processes over an epoch: a list of {args.strings:,} strings, {TEXT_WORKERS} workers"
        line_chart(path, title, "seconds", "PSS, MiB", curves)
        print(f"  {path}")


def report_starts(args: argparse.Namespace) -> None:
    """Print the table of the task ``starts``."""
    script = Path(__file__).with_name("_starts.py")

    def run(name: str) -> Callable[[], dict[str, Any]]:
        return lambda: last_json([sys.executable, script, name, args.workers])

    results = in_turn(START_ROUNDS, {name: run(name) for name in STARTS})
    rows: list[list[Any]] = []
    for key in ("first", "later"):
        ours, forkserver, fork = (column(results[name], key) for name in STARTS)
        figures = [Figure(each, ".2f") for each in (ours, forkserver, fork)]
        rows.append([f"{key} loader, s", *figures, ratio(ours, forkserver)])
    notes = [f"{args.workers} workers, batches of 50 rows; medians of {START_ROUNDS}"]
    report(args, ["", *STARTS, "standpipe ÷ torch forkserver"], rows, *notes, packages=["torch"])
    report_photo_starts(args)


def report_photo_starts(args: argparse.Namespace) -> None:
    """Print the table of the task ``starts`` for a script with torchvision's transforms on photos."""
    script = Path(__file__).with_name("_photo_starts.py")

    def run(name: str, seconds: int) -> Callable[[], dict[str, Any]]:
        return lambda: last_json([sys.executable, script, name, args.workers, seconds, args.path])

    rows: list[list[Any]] = []
    found: dict[str, list[dict[str, Any]]] = {}
    for seconds in MODEL_S:
        found = in_turn(START_ROUNDS, {name: run(name, seconds) for name in PHOTO_STARTS})
        for key in ("making both", "first batch", "of the second loader"):
            columns = [column(found[name], key) for name in PHOTO_STARTS]
            figures = [Figure(each, ".2f") for each in columns]
            compared = "" if key == "making both" else ratio(*columns[:2])  # torch's do nothing there
            rows.append([f"{key}, model built in {seconds} s", *figures, compared])
    has_torchvision = all(each["torchvision"] for each in found["standpipe"])
    notes = [
        f"seconds, without those in which the model is built; {args.workers} workers, batches of 32 photos; "
        f"medians of {START_ROUNDS}",
        "torchvision's transforms" if has_torchvision else "torchvision doesn't work here: Pillow and torch",
    ]
    header = ["", *PHOTO_STARTS, "standpipe ÷ torch forkserver"]
    report(args, header, rows, *notes, packages=["torch", "torchvision"])


def photos(args: argparse.Namespace, loader: Any) -> dict[str, float]:
    images, _ = torchvision_images(args.path) or (PillowImages(listed(args.path)), "")
    return rate(loader(Repeated(images), ROWS, shuffle=True, num_workers=args.workers), args.seconds)


def tensors(args: argparse.Namespace, loader: Any) -> dict[str, float]:
    return rate(loader(Ready(), ROWS, num_workers=args.workers), args.seconds)


def rate(loader: Any, seconds: float) -> dict[str, float]:
    """Return samples per second and CPU time per sample, after the first batches."""
    torch.set_num_threads(1)
    batches = iter(loader)
    for _ in range(6):
        next(batches)
    cpu, begin, samples = cpu_seconds(), time.perf_counter(), 0
    while (now := time.perf_counter()) < begin + seconds:
        samples += len(next(batches)[0])
    return {
        "samples/s": samples / (now - begin),
        "CPU ms a sample": 1e3 * (cpu_seconds() - cpu) / samples,
    }


def next_epoch(args: argparse.Namespace, loader: Any) -> dict[str, float]:
    dataset = data.TensorDataset(torch.rand(600, 8), torch.arange(600))
    batches = loader(dataset, 50, num_workers=args.workers)
    seconds = []
    for _ in range(EPOCHS):
        begin = time.perf_counter()
        epoch = iter(batches)
        next(epoch)
        seconds.append(time.perf_counter() - begin)
        for _ in epoch:
            pass
    return {"first, s": seconds[0], "later, s": statistics.median(seconds[1:])}


def strings(args: argparse.Namespace, loader: Any) -> dict[str, Any]:
    memory = MemoryOverTime()
    dataset = Strings(args.strings)
    begin, count, first, last = time.perf_counter(), 0, 0.0, 0.0
    for lengths in loader(dataset, TEXT_ROWS, shuffle=True, num_workers=TEXT_WORKERS):
        count += len(lengths)
        if not first and count > args.strings * WARM:
            first = seconds_since_process_start()
        last = seconds_since_process_start()
    points = memory.stop()
    assert count == args.strings
    running = [size for second, size in points if first <= second <= last]
    return {
        "at its beginning, MiB": running[0],
        "at its end, MiB": running[-1],
        "growth, MiB": running[-1] - running[0],
        "seconds": time.perf_counter() - begin,
        "memory": [(second, size) for second, size in points if second <= last],
    }


def report_cheap(args: argparse.Namespace) -> None:
    """Print the table of the task ``cheap``."""
    rows = []
    for kind in CHEAP:
        for how in CHEAP_LOADERS:
            progress(f"{kind}, {how}")
            found = last_json(
                [sys.executable, __file__, args.path, "--cheap", kind, how, "--rounds", args.rounds]
            )
            ours, theirs = found["standpipe"], found["torch"]
            name = f"{kind}, {how}"
            rows.append([name, Figure(ours, ".2f"), Figure(theirs, ".2f"), ratio(ours, theirs)])
    progress("")
    header = ["microseconds per sample", "standpipe", "torch", "standpipe ÷ torch"]
    report(
        args,
        header,
        rows,
        f"batches of {CHEAP_ROWS}; 2 threads are compared with torch's 2 workers",
        packages=["torch"],
    )


def cheap(kind: str, how: str, *, rounds: int) -> dict[str, list[float]]:
    """Return the microseconds per sample of each loader; both run in turns."""
    dataset = CHEAP[kind](CHEAP_ROWS * (CHEAP_WARM + CHEAP_BATCHES))
    made = {
        name: LOADERS[name](dataset, CHEAP_ROWS, shuffle=True, **arguments)
        for name, arguments in zip(LOADERS, CHEAP_LOADERS[how], strict=True)
    }
    found: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, loader in made.items():
            batches = iter(loader)
            for _ in range(CHEAP_WARM):
                next(batches)
            begin = time.perf_counter()
            count = sum(1 for _ in batches)
            found[name].append(1e6 * (time.perf_counter() - begin) / (count * CHEAP_ROWS))
    return found


RUNS: dict[str, Callable[[argparse.Namespace, Any], dict[str, Any]]] = {
    "photos": photos,
    "tensors": tensors,
    "next epoch": next_epoch,
    "strings": strings,
}
RATES = {"samples/s": ".0f", "CPU ms a sample": ".3f"}
FIGURES = {
    "photos": RATES,
    "tensors": RATES,
    "next epoch": {"first, s": ".2f", "later, s": ".2f"},
    "strings": {
        "at its beginning, MiB": ".0f",
        "at its end, MiB": ".0f",
        "growth, MiB": ".0f",
        "seconds": ".0f",
    },
}

if __name__ == "__main__":
    main()
