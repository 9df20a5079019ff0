"""Helpers for all benchmarks: the machine, repeated runs, and printed tables.

A benchmark is a file of this folder. Its first argument is a folder of photos, so that ``make bench`` can call all
benchmarks the same way. It prints the machine, the versions, its own command, medians with their spread, and a ratio
against something that ran at the same time. Absolute figures drift from run to run; ratios don't.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import standpipe as sp
from standpipe.cli.bench import process_tree
from standpipe.plan.explain import environment
from standpipe.system.machine import cpu_count

MIB = 1 << 20
POLL_S = 0.002  # precision of a turn's end; a turn takes hundreds of milliseconds


def parser(doc: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the arguments that every benchmark has.

    doc  the benchmark's docstring; ``report`` prints its first line as the heading
    """
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("path", metavar="PATH", help="a folder of class folders of photos, such as demo/photos")
    made.add_argument(
        "--rounds",
        type=int,
        default=rounds,
        metavar="N",
        help=f"repetitions of each measurement (default: {rounds})",
    )
    made.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    made.set_defaults(question=(doc or "").partition("\n")[0])
    return made


def facts(*packages: str) -> dict[str, str]:
    """Return date, commit, machine, versions and command, by name. ``packages`` adds versions of further packages."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": f"{_processor()}, {cpu_count()} CPUs, {_memory_gib():.0f} GiB",
        "versions": ", ".join([_version("standpipe"), environment(), *map(_version, packages)]),
        "command": shlex.join(["python", *sys.argv]),
    }


def report(
    args: argparse.Namespace,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *notes: str,
    packages: Sequence[str] = (),
) -> None:
    """Print what ``facts`` returns, then a table and notes. With ``--json``, print one JSON object.

    header  names of the columns; the first column names what was measured
    rows    one value per column: text, a number, a ``Figure`` or an ``Interval``
    """
    table = [list(row) for row in rows]
    if args.json:
        plain = [dict(zip(header, map(_plain, row), strict=True)) for row in table]
        print(json.dumps({"question": args.question, **facts(*packages), "rows": plain, "notes": notes}))
        return
    print(args.question)
    for name, text in facts(*packages).items():
        print(f"  {name:<10s}{text}")
    print()
    columns = zip(header, *table, strict=True)
    for row in zip(*map(_aligned, columns), strict=True):
        print("  " + "   ".join(row).rstrip())
    for note in notes:
        print(f"  {note}")
    print(flush=True)


class Figure:
    """A figure that was measured several times: its median and its range."""

    def __init__(self, values: Iterable[float], form: str = ".0f") -> None:
        self.values = sorted(values)
        self._form = form

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        """Return the median and the range, such as ``512 (498–530)``."""
        low, high = self.values[0], self.values[-1]
        middle = format(self.median, self._form)
        if len(self.values) == 1:
            return middle
        return f"{middle} ({low:{self._form}}–{high:{self._form}})"

    def as_json(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "least": self.values[0],
            "most": self.values[-1],
            "runs": len(self.values),
        }


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """Return the ratios ours ÷ theirs of measurements that ran in the same round."""
    return Figure([a / b for a, b in zip(ours, theirs, strict=True)], ".3f")


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval that contains the median with at least 95% confidence, from six values on."""

    low: float
    high: float

    @classmethod
    def of_median(cls, values: Sequence[float]) -> Interval:
        """Return the interval of ``values``. It uses their order only, and assumes no distribution."""
        ordered, n = sorted(values), len(values)
        rank, below = 0, 0.5**n  # chance that at most ``rank`` values are below the true median
        while below + math.comb(n, rank + 1) * 0.5**n <= 0.025:
            rank += 1
            below += math.comb(n, rank) * 0.5**n
        return cls(ordered[rank], ordered[n - 1 - rank])

    def __str__(self) -> str:
        return f"{self.low:.3f}–{self.high:.3f}"

    def as_json(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high}


def in_turn(
    rounds: int, measures: dict[str, Callable[[], dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """Run every measurement once per round, so that a busy minute of the machine affects all of them."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in measures}
    for number in range(rounds):
        for name, measure in measures.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            results[name].append(measure())
    progress("")
    return results


def column(results: list[dict[str, Any]], key: str) -> list[float]:
    """Return the figure ``key`` of every round."""
    return [float(result[key]) for result in results]


def bench(path: str | Path, *arguments: object, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run ``standpipe bench PATH … --json`` in a new process, and return the object that it prints."""
    return last_json([sys.executable, "-m", "standpipe", "bench", path, *arguments, "--json"], env=env)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its child processes, of the threads that they have now."""
    tasks = (task for process in process_tree() for task in Path(f"/proc/{process}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def last_json(command: Sequence[object], env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a command, and return the JSON object on its last output line that starts with a brace."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, env=None if env is None else os.environ | env, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        output = (done.stdout + done.stderr).strip()[-2000:]
        raise SystemExit(f"{shlex.join(words)}\nended with exit status {done.returncode}:\n{output}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


class Turns:
    """A loader that works only during its turns, so that several can be compared in one process.

    A turn takes some batches and waits until their slots are full again. Before and after a turn, the loader's
    threads are idle. So the CPU time of a turn is this loader's, and a turn makes as many rows as it delivers.

    epochs     iterable around the loader that delivers its batches; default: the loader
    processes  True if CPU time is that of all child processes too
    """

    def __init__(
        self, loader: sp.Loader, epochs: Iterable[Any] | None = None, *, processes: bool = False
    ) -> None:
        self._loader = loader
        self._cpu_s = cpu_seconds if processes else time.process_time
        self._batches = _endless(loader if epochs is None else epochs)
        self._delivered = 0
        self.turn(1)

    def turn(self, batches: int) -> tuple[float, float]:
        """Take ``batches`` batches, and wait until as many are ready again.

        Return the seconds that it took, and the CPU seconds of this process, or of all processes.
        """
        cpu, begin = self._cpu_s(), time.perf_counter()
        for _ in range(batches):
            next(self._batches)
        self._delivered += batches
        rows = (self._delivered + self._loader.plan.slots) * self._loader.plan.steps.batch
        while self._loader.stats().rows < rows:
            time.sleep(POLL_S)
        return time.perf_counter() - begin, self._cpu_s() - cpu

    def close(self) -> None:
        self._loader.close()


def _endless(epochs: Iterable[Any]) -> Iterator[None]:
    while True:
        for batch in epochs:
            del batch  # else its slot stays held during the pause
            yield


def compare_in_turns(args: argparse.Namespace, what: str, turns: dict[str, Turns]) -> None:
    """Run loaders in turns; report rates, CPU time per image, and its ratio to the first loader's.

    args  parsed arguments, among them those of ``add_turns``
    what  heading of the column with the loaders' names
    """
    wall: dict[str, list[float]] = {name: [] for name in turns}
    cpu: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(args.rounds):
        for name in list(turns)[:: -1 if number % 2 else 1]:  # so that no loader is always the first
            progress(f"round {number + 1} of {args.rounds}: {name}")
            seconds, used = turns[name].turn(args.batches)
            wall[name].append(seconds)
            cpu[name].append(used)
    progress("")
    for turn in turns.values():
        turn.close()
    images, first = args.batch * args.batches, next(iter(turns))
    rows = []
    for name in turns:
        beside = ratio(cpu[name], cpu[first])
        rates = Figure([images / seconds for seconds in wall[name]])
        per_image = Figure([1e3 * seconds / images for seconds in cpu[name]], ".3f")
        rows.append([name, rates, per_image, f"{beside.median:.3f}", Interval.of_median(beside.values)])
    interval = "95% interval" if args.rounds > 5 else "range"
    header = [what, "images/s", "CPU ms per image", f"CPU ÷ {what} {first}", interval]
    report(args, header, rows, f"turns of {images:,} images, CPUs of this process: {cpu_count()}")


def add_turns(arguments: argparse.ArgumentParser) -> None:
    """Add the arguments that ``compare_in_turns`` needs."""
    arguments.add_argument("--batch", type=int, default=64, metavar="N", help="rows per batch (default: 64)")
    arguments.add_argument(
        "--batches", type=int, default=4, metavar="N", help="batches per turn (default: 4)"
    )


def add_pythons(arguments: argparse.ArgumentParser, loaders: Iterable[str]) -> None:
    """Add the argument that ``pythons`` reads."""
    arguments.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help=f"the Python of a loader: {', '.join(loaders)}",
    )


def pythons(args: argparse.Namespace) -> dict[str, str]:
    """Return the interpreter of each loader that has one of its own."""
    return dict(each.partition("=")[::2] for each in args.python)


def train_task(path: str | Path, rows: int) -> sp.Pipeline:
    """Return the standard task: RandomResizedCrop(224), flip, ImageNet's normalisation, NCHW float32.

    The last batch is padded, so that every batch is the same work.
    """
    return (
        sp.Pipeline(sp.ImageFolder(path))
        .shuffle(seed=0)
        .map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(rows, last_batch="pad")
    )


def progress(text: str) -> None:
    """Show a line on stderr in place of the previous one; do nothing if stderr isn't a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    return value.as_json() if isinstance(value, Figure | Interval) else value


def _aligned(values: Sequence[Any]) -> list[str]:
    """Return a column as texts of the same width: text aligned left, figures aligned right."""
    texts = list(map(_shown, values))
    width = max(map(len, texts))
    is_prose = any(isinstance(value, str) and value[:1].isalpha() for value in values[1:])
    return [text.ljust(width) if is_prose else text.rjust(width) for text in texts]


def _shown(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _commit() -> str:
    """Return the commit that is checked out; empty outside of a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
