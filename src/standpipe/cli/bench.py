"""``standpipe bench``: measure how fast the standard task runs on the user's images, and what limits it."""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import standpipe as sp
from standpipe.cli.task import (
    Measured,
    add_task_arguments,
    add_time_arguments,
    check_times,
    endless,
    standard_task,
    take,
)
from standpipe.cli.terminal import print_json, say, stages, wrapped
from standpipe.units import show_bytes

if TYPE_CHECKING:
    from standpipe.cli.bench_io import IoResult
    from standpipe.observe import Diagnosis, Snapshot

MIB = 1 << 20
SAMPLE_EVERY_S = 0.25
WARM_UP_BATCHES = 3
LEAST_ABOVE_MIB = 1.0  # that one owner of memory has more than was forecast, before it is named
MODES = ("digest", "io")  # options that say what else is measured, of which there may be one
OF_NO_MODE = ("report", "step_ms")  # options that none of these goes with

HELP = "measure how fast batches of your images come"
DESCRIPTION = (
    "Deliver batches of a standard task for some seconds and say how fast that went, in which "
    "memory, and what limits it. Loops over the data as often as the time asks."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_task_arguments(parser)
    add_time_arguments(parser, seconds=8.0, text="how long to measure")
    parser.add_argument(
        "--io",
        action="store_true",
        help="measure storage alone, decoding alone and both together, each for that long",
    )
    parser.add_argument(
        "--digest",
        action="store_true",
        help="deliver one epoch instead, and print the SHA-256 of its rows: equal for any two ways of making them",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--report",
        action="append",
        default=[],
        metavar="FILE",
        help="write a page about the run, too (FILE.html), or its facts (FILE.json); give it twice for both",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    check_times(args)
    _check_together(args)
    if args.report:
        from standpipe.observe.report import is_page, write_report
        from standpipe.system.files import check_output_path

        for path in args.report:
            is_page(path)
            check_output_path(path)
    if args.digest:
        _digest(args)
    elif args.io:
        from standpipe.cli.bench_io import measure_io

        _show(measure_io(args, standard_task(args)), args)
    else:
        plan = standard_task(args).plan(memory=args.memory, num_workers=args.workers)
        with measure(plan, args) as (result, loader):
            _show(result, args)  # first: a report may find no room
            if args.report:
                write_report(loader, result.now, *args.report)
    return 0


def _check_together(args: argparse.Namespace) -> None:
    """Raise ``PlanError`` for options that don't go together."""
    given = [name for name in (*MODES, *OF_NO_MODE) if getattr(args, name)]
    if len(given) > 1 and given[0] in MODES:
        together = " and ".join(f"--{name.replace('_', '-')}" for name in given[:2])
        raise sp.PlanError(f"{together} can't be combined. Leave one out, or run one after the other")


def _digest(args: argparse.Namespace) -> None:
    """Deliver one epoch, and print its digest."""
    from dataclasses import asdict

    with stages("delivering") as on_progress:
        found = sp.digest_epoch(
            standard_task(args),
            on_progress=lambda done, total: on_progress("rows", done, total),
            memory=args.memory,
            num_workers=args.workers,
        )
    if args.json:
        print_json(asdict(found))
    else:
        say(found.sha256)


def _show(result: Result | IoResult, args: argparse.Namespace) -> None:
    """Print the figures, as text or JSON."""
    if args.json:
        print_json(result.as_json())
    else:
        say(result.as_text())


@dataclass(frozen=True, slots=True)
class Result(Measured):
    """The result of one run. Times in seconds, memory in MiB.

    now      the loader's last snapshot, with rate, waiting and diagnosis
    step_ms  milliseconds that the consumer spent on each batch
    """

    now: Snapshot
    step_ms: float
    cpu_s_per_1000: float
    peak_pss_mib: float
    ledger: sp.MemoryLedger
    first_batch_s: float

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis of the run."""
        assert self.now.diagnosis is not None  # it has started
        return self.now.diagnosis

    @property
    def peak_note(self) -> str:
        """The owners above their forecast, if the peak is above the forecast; else empty."""
        if self.peak_pss_mib * MIB <= self.plan.forecast.expected:
            return ""
        owners = (*self.ledger.owners, *self.ledger.outside)
        above = {owner.name: (owner.peak - owner.forecast) / MIB for owner in owners}
        parts = [f"{name} {mib:,.0f} MiB" for name, mib in above.items() if mib >= LEAST_ABOVE_MIB]
        return f"{', '.join(parts)} more than forecast" if parts else "with libraries that were loaded since"

    @property
    def forecast_note(self) -> str:
        """The parts that ``memory=`` doesn't count, if the forecast is above it; else empty."""
        forecast, limit = self.plan.forecast, self.plan.memory_bytes
        if forecast.expected <= limit:
            return ""
        return (
            f"{forecast.process / MIB:,.0f} MiB of it the process's own, outside memory={show_bytes(limit)}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON."""
        forecast, recent, diagnosis = self.plan.forecast, self.now.recent, self.diagnosis
        return {
            "images_per_s": rounded(self.now.rows_per_s),
            "cpu_s_per_1000": round(self.cpu_s_per_1000, 4),
            "peak_pss_mib": round(self.peak_pss_mib, 1),
            "forecast_mib": round(forecast.expected / MIB, 1),
            "forecast_most_mib": round(forecast.most / MIB, 1),
            "peak_note": self.peak_note,
            "forecast_note": self.forecast_note,
            "first_batch_s": round(self.first_batch_s, 3),
            "opens": self.now.stats.opens,
            "ranges": self.now.stats.ranges,
            "wait_share": round(recent.wait_share, 3),
            "idle_share": round(1 - recent.load["transform"], 4),
            "limit": diagnosis.place,
            "diagnosis": diagnosis.what,
            "advice": diagnosis.advice,
            "fixed_images_per_s": rounded(diagnosis.fixed_rows_per_s),
            "upper_images_per_s": rounded(diagnosis.upper_rows_per_s),
            "measured_s": round(recent.seconds, 1),
            **self.facts(),
            "workers": diagnosis.num_workers,
            "decoder": self.plan.decoder_name,
        }

    def as_text(self) -> str:
        """Return the text for people, within 80 columns."""
        forecast_mib, recent = self.plan.forecast.expected / MIB, self.now.recent
        peak = f"{self.peak_pss_mib:,.0f} MiB at its peak{noted(self.peak_note)}"
        forecast = f"forecast {forecast_mib:,.0f} MiB{noted(self.forecast_note)}"
        takes = f"its steps take {self.step_ms:g} ms" if self.step_ms else "it does nothing else"
        return self.headline(self.diagnosis.num_workers) + (
            f"  rate          [bold]{self.now.rows_per_s:,.0f}[/bold] images/s, in {self.diagnosis.period}\n"
            f"  CPU           {self.cpu_s_per_1000:.2f} s per 1000 images\n"
            f"  first batch   {self.first_batch_s:.2f} s after the process started\n"
            f"  decoder       {self.plan.decoder_name}\n"
            f"{wrapped(f'memory        {peak}, {forecast}', 2, 16)}\n"
            f"  consumer      waited {recent.wait_share:.0%} of the time; {takes}\n"
            f"\n{self.diagnosis}"
        )


@contextlib.contextmanager
def measure(plan: sp.Plan, args: argparse.Namespace) -> Iterator[tuple[Result, sp.Loader]]:
    """Run a plan for the time in ``args``; yield the result and the loader, which is closed afterwards."""
    with PeakMemory() as memory, sp.Loader(plan) as loader:
        batches = endless(loader)
        next(batches)
        first_batch_s = seconds_since_process_start()
        for _ in range(WARM_UP_BATCHES):
            take(batches, args.step_ms)
        cpu, begin, images = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - begin < args.seconds:
            images += len(take(batches, args.step_ms)["index"])
        cpu = time.process_time() - cpu
        now = loader.snapshot(whole=True)
        result = Result(
            plan=plan,
            now=now,
            task=args.task,
            dtype=args.dtype,
            step_ms=args.step_ms,
            cpu_s_per_1000=1000 * cpu / images,
            peak_pss_mib=memory.stop() / MIB,
            ledger=loader.memory(),
            first_batch_s=first_batch_s,
        )
        yield result, loader


def noted(note: str) -> str:
    """Return a note in brackets; an empty text for an empty note."""
    return f" ({note})" if note else ""


def rounded(rate: float | None) -> float | None:
    """Return a rate rounded to one decimal; None for an unknown rate."""
    return None if rate is None else round(rate, 1)


def seconds_since_process_start() -> float:
    """Return the seconds since the kernel started this process, in steps of 10 ms."""
    # The command's name may hold anything, also parentheses and spaces; what follows it is numbers.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class PeakMemory:
    """A thread that measures the peak of the proportional set size of this process and its children.

    The kernel walks all pages to tell it, 10 ms for a slot or two, so it is asked only when the resident
    size, which costs nothing, is higher than ever before.
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
        """Stop watching, and return the peak in bytes."""
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
    """Return the ids of a process, by default this one, and of all its descendants."""
    found, waiting = [], [os.getpid() if root is None else root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it ended by now
                waiting += map(int, children.read_text().split())
    return found


def resident_bytes(pid: int) -> int:
    """Return the resident set size of a process in bytes; 0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def proportional_bytes(pid: int) -> int:
    """Return the proportional set size of a process in bytes; 0 if the process has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
