"""Measure how fast storage reads the files of a plan, without decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.contracts import Files
from standpipe.errors import PlanError, StandpipeError
from standpipe.order import Cursor
from standpipe.plan.fields import has_files
from standpipe.plan.options import MOST_WORKERS
from standpipe.plan.plan import Plan
from standpipe.read import read_policy, read_threads
from standpipe.source.concat import merged_files
from standpipe.units import is_count, is_seconds

ROWS_AT_ONCE = 1 << 13  # rows that are handed to the reading threads together
PATIENCE_S = 2.0  # longest wait for reads that are in flight when the time is over


@dataclass(frozen=True, slots=True)
class ReadReport:
    """The result of ``measure_reads``: the speed of reading files.

    Attributes
    ----------
    files : int
        Files that were read.
    bytes : int
        Bytes of the files that were read.
    seconds : float
        Time that reading took, in seconds.
    threads : int
        Threads that read at once.
    p50_s : float
        Median time of a read inside the operating system's calls, in seconds.
    p99_s : float
        99th percentile of the time of a read, in seconds.
    slowest_s : float
        Seconds of the slowest read.
    waited : float
        Fraction of the reads, from 0 to 1, that waited for storage. The page cache served the rest.
    failed : int
        Files that couldn't be read.
    files_per_s : float
        Files per second, over all threads.
    bytes_per_s : float
        Bytes per second, over all threads.

    Examples
    --------
    >>> plan = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).plan()
    >>> report = sp.measure_reads(plan, seconds=0.1, threads=1)
    >>> report.threads, report.failed, report.bytes_per_s > 0
    (1, 0, True)
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
        """Files per second, over all threads."""
        return self.files / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second, over all threads."""
        return self.bytes / self.seconds


def measure_reads(plan: Plan, *, seconds: float = 8.0, threads: int | None = None) -> ReadReport:
    """Measure how fast storage reads the files of a plan, in the plan's order, without decoding them.

    It reads for ``seconds``, if necessary several epochs.

    Parameters
    ----------
    plan : Plan
        A plan whose images are in files.
    seconds : float, default 8.0
        Time to read, in seconds.
    threads : int, optional
        Threads that read at once, from 1 to 4096. Default: as many as read ahead of the plan's workers when
        storage is slow.

    Returns
    -------
    standpipe.reports.ReadReport
        Speed, latencies, and the fraction of reads that waited for storage.

    Raises
    ------
    PlanError
        If the images aren't in files, or an argument is invalid.
    StandpipeError
        If no file can be read, or none in time.

    Examples
    --------
    >>> plan = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).plan()
    >>> report = sp.measure_reads(plan, seconds=0.1)
    >>> report.files > 0, report.failed
    (True, 0)
    """
    if not has_files(plan.source):
        raise PlanError("measure_reads() reads files, and the images of this plan aren't in files")
    if not (is_seconds(seconds) and seconds > 0):
        raise PlanError(f"measure_reads(seconds={seconds!r}): seconds must be above 0")
    if threads is not None and not is_count(threads, 1, MOST_WORKERS):
        raise PlanError(
            f"measure_reads(threads={threads!r}): threads must be an integer from 1 to {MOST_WORKERS}"
        )
    most = threads or read_threads(plan.pool.workers)
    found: list[_native.ReadTimes] = []
    left = seconds  # of reading: the time to locate files doesn't count
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
    """Yield the files of the plan's records in the plan's order, without end, epoch after epoch.

    Each item has the files of at least 8,192 rows, or of the rest of an epoch.
    """
    at, steps, rows = Cursor(), plan.steps, []
    while True:
        rows.append(steps.step(0, at.consumed).draw(plan.order, at.epoch).indices)
        at = steps.settled(steps.after(at))
        if at.consumed == 0 or sum(map(len, rows)) >= ROWS_AT_ONCE:
            fields = [*plan.source.locate(np.concatenate(rows)).files.values()]
            count = sum(len(files.paths) for files in fields)
            yield merged_files(fields, np.arange(count).reshape(len(fields), -1).T.ravel())
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
