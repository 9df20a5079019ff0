"""Measure how fast storage reads the files of a plan, without decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.contracts import Encoded, Files
from standpipe.errors import PlanError, StandpipeError
from standpipe.order import Cursor
from standpipe.plan.options import MOST_WORKERS
from standpipe.plan.plan import Plan
from standpipe.read import ReadAhead, read_policy
from standpipe.units import is_count, is_seconds

ROWS_AT_ONCE = 1 << 13  # that are handed to the reading threads together
PATIENCE_S = 2.0  # for reads that are in flight when the time is over


@dataclass(frozen=True, slots=True)
class ReadReport:
    """How fast files are read.

    files      read
    bytes      of them
    seconds    that it took
    threads    that read at once
    p50_s      seconds of the median read, in the system's hands
    p99_s      of the slowest in a hundred
    slowest_s  of the slowest
    waited     share of the reads that had to wait for storage; the others came from the page cache
    failed     files that can't be read
    """

    files: int
    bytes: int
    seconds: float
    threads: int
    p50_s: float
    p99_s: float
    slowest_s: float
    waited: float
    failed: int

    @property
    def files_per_s(self) -> float:
        """Files in a second, of all threads together."""
        return self.files / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Bytes in a second."""
        return self.bytes / self.seconds


def measure_reads(plan: Plan, *, seconds: float = 8.0, threads: int | None = None) -> ReadReport:
    """Read the files of a plan in its order, as often as the time asks, and decode none.

    seconds  how long
    threads  that read at once; default: as many as read ahead of the plan's workers when storage is slow

    Raises ``PlanError`` where images don't lie in files, ``StandpipeError`` when no file can be read, or none
    in time.
    """
    if not isinstance(plan.source.fields.get("image"), Encoded):
        raise PlanError("measure_reads(): the images of this plan are in no files")
    if not (is_seconds(seconds) and seconds > 0):
        raise PlanError(f"measure_reads(seconds={seconds!r}): a time above 0")
    if threads is not None and not is_count(threads, 1, MOST_WORKERS):
        raise PlanError(f"measure_reads(threads={threads!r}): a number of threads, from 1 to {MOST_WORKERS}")
    most = threads or ReadAhead.for_workers(plan.pool.workers, plan.memory.forecast.read_ahead).threads
    found: list[_native.ReadTimes] = []
    left = seconds  # of reading; saying where files are takes its own time
    for files in _files(plan):
        found.append(_timed(plan, files, most, left))
        left -= found[-1].seconds
        if left <= 0:
            break
    return _figures(found, most)


def _timed(plan: Plan, files: Files, threads: int, seconds: float) -> _native.ReadTimes:
    paths = files.paths
    return _native.time_reads(
        paths.blob,
        paths.ends,
        files.offset,
        files.length,
        max_bytes=max(plan.memory.forecast.side, plan.memory.forecast.read_ahead),
        again=plan.steps.per_epoch * plan.steps.batch <= ROWS_AT_ONCE,
        threads=threads,
        seconds=seconds,
        patience_s=PATIENCE_S,
        policy=read_policy(plan.options.reads),
        buffer_bytes=plan.memory.forecast.read_ahead,
    )


def _files(plan: Plan) -> Iterator[Files]:
    """The files of the plan's batches: an epoch's, or some thousand rows at a time, epoch after epoch."""
    at, steps, rows = Cursor(), plan.steps, []
    while True:
        rows.append(steps.step(0, at.consumed).draw(plan.order, at.epoch).indices)
        at = steps.settled(steps.after(at))
        if at.consumed == 0 or sum(map(len, rows)) >= ROWS_AT_ONCE:
            yield plan.source.locate(np.concatenate(rows)).files["image"]
            rows = []


def _figures(found: list[_native.ReadTimes], threads: int) -> ReadReport:
    took_s = np.concatenate([times.took_s for times in found])
    if not len(took_s):
        last = found[-1]
        why = last.error or f"{last.hung} reads haven't ended after {last.seconds:.0f} s"
        raise StandpipeError(f"none of the files could be read: {why}")
    p50_s, p99_s = np.percentile(took_s, [50, 99]).tolist()
    return ReadReport(
        files=len(took_s),
        bytes=sum(times.bytes for times in found),
        seconds=sum(times.seconds for times in found),
        threads=threads,
        p50_s=p50_s,
        p99_s=p99_s,
        slowest_s=float(took_s.max()),
        waited=sum(times.blocked for times in found) / len(took_s),
        failed=sum(times.failed + times.hung for times in found),
    )
