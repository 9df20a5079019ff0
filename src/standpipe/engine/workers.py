"""The interface of workers, which fill slots: native threads, or Python code in threads or processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np

from standpipe import _native
from standpipe.contracts import OpenSource, Records
from standpipe.engine.watchdog.watch import Work
from standpipe.errors import (
    DecodeError,
    EmptyStreamError,
    PlanError,
    ReadError,
    SampleError,
    StalledError,
    StandpipeError,
    TransformError,
    WorkerDiedError,
)
from standpipe.order import Cursor
from standpipe.source import shown
from standpipe.spec import AnyArray, Int64Array
from standpipe.stats.counters import Stats

_ERRORS = {
    "read": ReadError,
    "decode": DecodeError,
    "transform": TransformError,
    "batch": TransformError,
    "end": EmptyStreamError,
}
_PLACES = {"decode": "transform", "end": "source"}  # decoding is part of the transform place
WHOLE = -1  # stands for a row: what functions do with the batch
# Python sees signals before a wait and when one ends it. One that comes on the way into the wait, or that the system
# gives to another thread, ends none: so no wait of the caller's own thread is longer than this, and Ctrl-C isn't lost.
INTERRUPTED_S = 1.0
CALLER = "the thread that asks for a batch"  # what it is called where it does the work


class CantWorkError(PlanError):
    """The plan can't work, which only making a sample shows: no cache can keep it, or a field would be left behind."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that can't be made.

    place   ``"read"``, ``"decode"``, ``"source"``, ``"transform"`` or ``"batch"``; ``"died"`` or ``"stalled"`` for one
            that workers were lost over; ``"cancelled"`` when nobody wanted it any more
    cause   what the user's code raised, if that is why; of a lost worker the ``WorkerDiedError`` or ``StalledError``
    whole   whether it is no row's fault but that of the batch as a whole
    """

    row: int
    place: str
    reason: str
    cause: BaseException | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """A slot to fill.

    views      the slot's fields, (rows, …) each
    positions  (rows,) uint64, places in the epoch's global order
    without    rows that are left out: other records will come in their place, before anything is done with the batch
    """

    slot: int
    at: Cursor
    records: Records
    positions: Any
    views: Mapping[str, AnyArray]
    without: frozenset[int] = frozenset()

    @property
    def rows_to_make(self) -> Int64Array:
        """The rows that aren't left out."""
        return np.array([row for row in range(len(self.positions)) if row not in self.without], np.int64)


@dataclass(frozen=True, slots=True)
class Substitutes:
    """Records that replace rows which couldn't be made.

    assignment  the slot
    rows        (k,) int64: their places in the slot
    records     k records
    attempts    (k,) int64: 1 for the first replacement of a row
    """

    assignment: Assignment
    rows: Int64Array
    records: Records
    attempts: Int64Array


@dataclass(frozen=True, slots=True)
class Flaws:
    """Problems of files and storage that keep no row from being made.

    damaged         rows of JPEGs with damage that Pillow decodes too
    truncated       rows of files that end too soon
    retries         repeated reads
    hedged          reads that got a second one in parallel
    slowest_read_s  seconds of the slowest read; of two parallel ones the longer counts
    reads           files that sample makers read
    read_bytes      bytes of these
    read_s          seconds of these

    notes           texts for warnings

    The rest is what a cache has done, as in ``Stats``.
    """

    damaged: int = 0
    truncated: int = 0
    retries: int = 0
    hedged: int = 0
    slowest_read_s: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_stored: int = 0
    cache_skipped: int = 0
    cache_stale: int = 0
    cache_errors: int = 0
    cache_bytes: int = 0
    reads: int = 0
    read_bytes: int = 0
    read_s: float = 0.0
    notes: tuple[str, ...] = ()

    def __add__(self, more: Flaws) -> Flaws:
        summed = {name: getattr(self, name) + getattr(more, name) for name in _SUMMED}
        slowest = max(self.slowest_read_s, more.slowest_read_s)
        return Flaws(**summed, slowest_read_s=slowest, notes=self.notes + more.notes)

    def __sub__(self, before: Flaws) -> Flaws:
        left = {name: getattr(self, name) - getattr(before, name) for name in _SUMMED}
        return Flaws(**left, slowest_read_s=self.slowest_read_s)


NO_FLAWS = Flaws()

_SUMMED = tuple(each.name for each in fields(Flaws) if each.name not in ("slowest_read_s", "notes"))


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes that somebody takes, and took at most."""

    now: int = 0
    peak: int = 0


@dataclass(frozen=True, slots=True)
class WorkersMemory:
    """Memory that workers count themselves, besides the slots.

    read_ahead  encoded samples
    frames      images that the GPU decoded
    cache       marks of cached rows, and rows being written to the disk
    side        the side arena
    waiting     samples of worker processes that aren't in a slot
    in_heap     part of these that is in this process's heap
    processes   by name: the server, and each worker with the memory that it shares with no other
    """

    read_ahead: Use = Use()
    frames: Use = Use()
    cache: Use = Use()
    side: Use = Use()
    waiting: Use = Use()
    in_heap: int = 0
    processes: Mapping[str, Use] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchMade:
    """A batch after its functions.

    kept     fields that are in the slot
    objects  the others, by name
    rows     number of samples, if a stream ended before the batch was full
    """

    kept: tuple[str, ...] = ()
    objects: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None


class Job(Protocol):
    """A slot that is being filled."""

    @property
    def done(self) -> bool:
        """True if no worker works on it any more."""

    def failures(self) -> Sequence[Failure]:
        """Rows that can't be made. Once it is done."""

    @property
    def ended_after(self) -> int | None:
        """Rows that a stream still had, when it ended before the batch was full."""

    @property
    def lists(self) -> Mapping[str, list[Any]]:
        """Fields that are in no slot, value by value."""

    @property
    def made(self) -> BatchMade | None:
        """The batch after its functions; None without functions."""


class Workers(Protocol):
    """Threads or processes that fill slots, the oldest first, and ring the run's bell when one is done."""

    @property
    def helps(self) -> bool:
        """True if ``help()`` makes rows."""

    @property
    def employed(self) -> int:
        """Number of workers that work at once."""

    def employ(self, number: int) -> None:
        """Let so many work at once from now on, at least 1 and at most ``plan.pool.most_workers``.

        Threads that there aren't are started, as far as the system allows; ``employed`` says how many there
        are then. Those that are too many wait.
        """

    def start(self) -> None:
        """Begin to wait for work. Raises ``RuntimeError`` when the system allows no more threads."""

    def begin(self, assignment: Assignment, ring: _native.SlotRing) -> Job:
        """Prepare a job. Raises what makes it impossible."""

    def submit(self, job: Any) -> None:
        """Work on it, after those submitted before."""

    def exchange(self, job: Any, new: Substitutes, ring: _native.SlotRing) -> None:
        """Make some rows of a job that is done from other records, before all other work."""

    def cancel(self, job: Any) -> None:
        """Give up rows that nobody has begun; the job is done all the same."""

    def wait(self, seen: int, patience_s: float | None = None) -> int:
        """Wait for the run's bell in the thread that submits jobs, and drive the workers in the meantime."""

    def settle(self) -> None:
        """Collect what was handed out, in the same thread, at its end."""

    def help(self) -> bool:
        """Do a piece of the work in the caller's thread, where that is who works; False when there is none."""

    def stats(self) -> Stats:
        """Counters since the start."""

    def at_work(self) -> Sequence[Work]:
        """Return every worker's task."""

    def take_lost(self) -> Sequence[tuple[Any, Failure]]:
        """Jobs given up since, because a thread hangs over a row of theirs: which, and its fate. Until such a job is
        done, that thread may write into its slot.
        """

    @property
    def waiting_bytes(self) -> int:
        """Bytes of samples that came from worker processes and aren't in a slot."""

    def memory(self) -> WorkersMemory:
        """Return the workers' memory, as far as they know it."""

    def close(self, patience_s: float) -> bool:
        """End everything, whatever has begun. False when some threads were still busy then."""


class DrivesItself:
    """The part of ``Workers`` that those with threads of their own share: nobody else drives them."""

    _bell: _native.Bell

    def wait(self, seen: int, patience_s: float | None = None) -> int:
        """Wait for the run's bell."""
        return self._bell.wait(seen) if patience_s is None else self._bell.wait_for(seen, patience_s)

    def settle(self) -> None:
        """Do nothing: no answer is left to take."""


def start_kept(threads: list[threading.Thread], thread: threading.Thread) -> None:
    """Start a thread that is kept among ``threads``. Raises ``RuntimeError`` when the system allows no more."""
    threads.append(thread)  # before it runs: whoever is interrupted here finds it when all is ended
    try:
        thread.start()
    except RuntimeError:
        threads.remove(thread)
        raise


def has_ended(thread: threading.Thread, patience_s: float) -> bool:
    """Wait for a thread's end; one that nobody started, or the system refused, has ended."""
    with contextlib.suppress(RuntimeError):  # it wasn't started, or whoever started it was interrupted
        thread.join(max(patience_s, 0))
    return not thread.is_alive()


def name_of(records: Records, row: int) -> tuple[int, str | None]:
    """A row's record, and the path of its file if it has one: from what is in memory, whatever storage does."""
    files = records.files.get("image")
    return int(records.index[row]), None if files is None else shown(files.paths[row])


def too_long(row: int, stalled: StalledError) -> Failure:
    """The fate of a row, or of the batch, that was given up."""
    reason = f"took too long: {stalled.seconds:.1f} s, {stalled.doing}"
    return Failure(max(row, 0), "stalled", reason, stalled, row == WHOLE)


def raised_for(failure: Failure, records: Records, row: int, source: OpenSource) -> StandpipeError:
    """Return the error of a failure where no sample replaces the row.

    A lost worker's error, or that of a plan that can't work, is completed with what is known of the row.
    """
    known = failure.cause
    if isinstance(known, WorkerDiedError | StalledError | CantWorkError):
        return known
    return error_of(failure, records, row, source)


def error_of(failure: Failure, records: Records, row: int, source: OpenSource) -> SampleError:
    """The error that says which record it was. ``row``: of ``records``."""
    index = int(records.index[row])
    files = records.files.get("image")
    error = _ERRORS.get(failure.place, SampleError)(
        failure.reason,
        place=_PLACES.get(failure.place, failure.place),
        index=index,
        path=source.name(index),
        offset=int(files.offset[row]) if files is not None else 0,
    )
    error.__cause__ = failure.cause
    return error
