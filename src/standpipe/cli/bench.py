"""``standpipe bench``: how fast the standard task runs on somebody's own images, and what limits it."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import standpipe as sp
from standpipe.cli.task import add_task_arguments, check_seconds, endless, standard_task

if TYPE_CHECKING:
    from standpipe.cli.bench_cache import CacheResult
    from standpipe.cli.bench_io import IoResult
    from standpipe.cli.terminal import Subparsers
    from standpipe.observe import Verdict

MIB = 1 << 20
SAMPLE_EVERY_S = 0.25
WARM_UP_BATCHES = 3


def add_parser(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser(
        "bench",
        help="measure a standard task on your images",
        description="Deliver batches of a standard task for some seconds and say how fast that went, in which "
        "memory, and what limits it. Loops over the data as often as the time asks.",
    )
    add_task_arguments(parser)
    parser.add_argument(
        "--seconds", type=float, default=8.0, metavar="S", help="how long to measure (default: 8)"
    )
    parser.add_argument(
        "--io",
        action="store_true",
        help="measure storage alone, decoding alone and both together, each for that long",
    )
    parser.add_argument(
        "--cache",
        action="store_true",
        help="measure whole passes instead: without a cache, while it is filled, and from it",
    )
    parser.add_argument(
        "--cache-memory",
        default=None,
        metavar="SIZE",
        help="what --cache may take in memory, such as 8GiB (default: half of what is free)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--report", default=None, metavar="FILE.html", help="write a page about the run, too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from standpipe.cli.terminal import print_json, say

    check_seconds(args.seconds)
    result: Result | IoResult | CacheResult
    if args.cache_memory is not None and not args.cache:
        raise sp.PlanError("--cache-memory is of --cache: ask for both")
    if args.io and args.cache:
        raise sp.PlanError("--io and --cache are two measurements: ask for one at a time")
    if args.report is not None:
        from standpipe.observe.report import checked_name

        if args.io or args.cache:
            raise sp.PlanError("--report is of a run as it is, not of --io or --cache")
        checked_name(args.report)
    if args.cache:
        from standpipe.cli.bench_cache import measure_cache

        result = measure_cache(args)
    elif args.io:
        from standpipe.cli.bench_io import measure_io

        result = measure_io(args, standard_task(args))
    else:
        result = measure(args)
    if args.json:
        print_json(result.as_json())
    else:
        say(result.as_text())
    return 0


@dataclass(frozen=True, slots=True)
class Result:
    """What one run measured. Times in seconds, memory in MiB.

    workers     that there were at the end, of those that tune themselves
    wait_share  share of the time in which the consumer waited for a batch
    idle        share of the decoding threads' time in which they had nothing to do
    """

    plan: sp.Plan
    workers: int
    task: str
    output: str
    images_per_s: float
    cpu_s_per_1000: float
    peak_pss_mib: float
    first_batch_s: float
    wait_share: float
    idle: float
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        """Plain values under the names that programs read."""
        forecast = self.plan.forecast
        return {
            "images_per_s": round(self.images_per_s, 1),
            "cpu_s_per_1000": round(self.cpu_s_per_1000, 4),
            "peak_pss_mib": round(self.peak_pss_mib, 1),
            "forecast_mib": round(forecast.expected / MIB, 1),
            "forecast_most_mib": round((forecast.expected + forecast.side) / MIB, 1),
            "first_batch_s": round(self.first_batch_s, 3),
            "wait_share": round(self.wait_share, 3),
            "idle_share": round(self.idle, 4),
            "limit": self.verdict.place,
            "verdict": self.verdict.what,
            "advice": self.verdict.advice,
            "upper_images_per_s": finite(self.verdict.upper_rows_per_s),
            "workers": self.workers,
            "batch": self.plan.steps.batch,
            "output": self.output,
            "task": self.task,
        }

    def as_text(self) -> str:
        """For a person, within 80 columns."""
        forecast_mib = self.plan.forecast.expected / MIB
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        return (
            f"[bold]{self.task}[/bold], {self.output}, batch {self.plan.steps.batch}, {workers}, "
            f"{self.plan.source.num_records:,} images\n"
            f"  rate          [bold]{self.images_per_s:,.0f}[/bold] images/s\n"
            f"  CPU           {self.cpu_s_per_1000:.2f} s per 1000 images\n"
            f"  first batch   {self.first_batch_s:.2f} s after the process started\n"
            f"  memory        {self.peak_pss_mib:,.0f} MiB at its peak, forecast {forecast_mib:,.0f} MiB\n"
            f"  consumer      waited {self.wait_share:.0%} of the time; it does nothing else\n"
            f"\n{self.verdict}"
        )


def measure(args: argparse.Namespace) -> Result:
    """Run the task that ``args`` describe and measure it."""
    plan = standard_task(args).plan(memory=args.memory, workers=args.workers)
    with PeakMemory() as memory, sp.Loader(plan) as loader:
        batches = endless(loader)
        next(batches)
        first_batch_s = seconds_since_process_start()
        for _ in range(WARM_UP_BATCHES):
            next(batches)
        before = loader.stats()
        cpu, begin, images = time.process_time(), time.perf_counter(), 0
        while (elapsed := time.perf_counter() - begin) < args.seconds:
            images += len(next(batches)["index"])
        cpu = time.process_time() - cpu
        done, workers = loader.stats() - before, loader.tuning().workers
        result = Result(
            plan=plan,
            workers=workers,
            task=args.task,
            output=args.output,
            images_per_s=images / elapsed,
            cpu_s_per_1000=1000 * cpu / images,
            peak_pss_mib=memory.stop() / MIB,
            first_batch_s=first_batch_s,
            wait_share=done.step.wait_share,
            idle=done.transform.wait_s / (elapsed * workers),
            verdict=loader.verdict(before),
        )
        if args.report is not None:
            loader.report(args.report)
        return result


def finite(value: float) -> float | None:
    """A figure as JSON can say it, rounded to a tenth."""
    return round(value, 1) if math.isfinite(value) else None


def seconds_since_process_start() -> float:
    """Seconds since the kernel started this process, on the clock that it counts in (10 ms steps)."""
    # The command's name may hold anything, also parentheses and spaces; what follows it is numbers.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class PeakMemory:
    """Watches the proportional set size of this process and its children in a thread.

    The kernel walks all pages to tell it, 10 ms for a slot or two, so it is asked only when the resident size,
    which costs nothing, is higher than ever before.
    """

    def __init__(self) -> None:
        self._peak_bytes = self._peak_resident = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def stop(self) -> int:
        """The peak in bytes."""
        self.__exit__()
        self._look()
        return self._peak_bytes

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_EVERY_S):
            self._look()

    def _look(self) -> None:
        processes = process_tree()
        resident = sum(map(resident_bytes, processes))
        if resident > self._peak_resident:
            self._peak_resident = resident
            self._peak_bytes = max(self._peak_bytes, sum(map(proportional_bytes, processes)))


def process_tree(root: int | None = None) -> list[int]:
    """A process, by default this one, and all below it."""
    found, waiting = [], [os.getpid() if root is None else root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                waiting += map(int, children.read_text().split())
    return found


def resident_bytes(pid: int) -> int:
    """Resident set size of a process; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def proportional_bytes(pid: int) -> int:
    """Proportional set size of a process; 0 when it has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
