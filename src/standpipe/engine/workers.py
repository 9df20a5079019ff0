"""The interface of workers, which fill slots: native threads, or Python code in threads or processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from standpipe import _native
from standpipe.contracts import OpenSource, RaggedRows, Records
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
from standpipe.spec import AnyArray, Int64Array
from standpipe.stats.counters import Stats
from standpipe.system.paths import path_text

if TYPE_CHECKING:
    from standpipe.engine.canvases import Canvases
    from standpipe.engine.moves import Traced
    from standpipe.order import Cursor

_ERRORS = {
    "read": ReadError,
    "decode": DecodeError,
    "transform": TransformError,
    "batch": TransformError,
    "end": EmptyStreamError,
}
_PLACES = {"decode": "transform", "end": "source"}  # decoding is part of the transform place
WHOLE = -1  # used as a row number for the functions of the whole batch
# Python handles a signal before a wait, or when the signal ends the wait. A signal that comes just as the wait begins,
# or that the system gives to another thread, doesn't end it. So no wait of the caller's thread is longer than this
# many seconds, and Ctrl-C isn't lost.
INTERRUPTED_S = 1.0
CALLER = "the thread that asks for a batch"  # name of the caller's thread in messages, where it makes rows


class CantWorkError(PlanError):
    """Raised for a plan that can't work, as was found when a sample was made.

    Examples: no cache can store the sample, or a field would be lost. Users get it as a ``PlanError``.
    """

    def public(self) -> PlanError:
        """Return the error to raise."""
        made = PlanError(str(self))
        made.__cause__ = self.__cause__
        return made


class CantRebuildError(CantWorkError):
    """Raised for a setup that another process can't load, because of ``cause`` there.

    A pickled one has its cause too.
    """

    def __init__(self, cause: Exception) -> None:
        hint = (
            ". A worker looks for modules along the trainer's sys.path: put the module's folder there, by its full path"
            if isinstance(cause, ModuleNotFoundError)
            else ""
        )
        super().__init__(
            f"a worker process can't rebuild the dataset and its functions: {type(cause).__name__}: {cause}{hint}"
        )
        self.__cause__ = cause

    def __reduce__(self) -> Any:
        return CantRebuildError, (self.__cause__,)


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that can't be made.

    row     number of the row in its batch
    reason  the text of the error
    place   ``"read"``, ``"decode"``, ``"source"``, ``"transform"`` or ``"batch"``; ``"died"`` or ``"stalled"`` if a
            worker died or hung while making it; ``"cancelled"`` if the row isn't needed any more
    cause   the exception of the user's code, or the ``WorkerDiedError`` or ``StalledError`` of a lost worker
    whole   True if the whole batch failed, and not a single row
    path    the file or name that the dataset gave for the image's bytes; None if the source knows the record's name
    offset  first byte in the file
    field   the field whose file is named: the image's, or the mask's
    """

    row: int
    place: str
    reason: str
    cause: BaseException | None = None
    whole: bool = False
    path: str | None = None
    offset: int = 0
    field: str = "image"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A slot to fill, and the records for its rows.

    slot       number of the slot
    at         the cursor where the batch begins
    records    the record of each row
    views      the slot's fields, (rows, …) each
    positions  (rows,) uint64, positions in the epoch's global order
    without    rows that are left out; replacement records fill them before the batch is used
    traced     what the transforms do to the rows' images, of their present records; None if nobody needs it
    canvases   where the rows of pictures that differ in size are; None for other workers than the filling thread's own
    frames     the image of each row, where rows are made of several images; the workers put it here. Else empty
    """

    slot: int
    at: Cursor
    records: Records
    positions: Any
    views: Mapping[str, AnyArray]
    without: frozenset[int] = frozenset()
    traced: Traced | None = None
    canvases: Canvases | None = None
    frames: dict[int, _native.ImageFrame] = field(default_factory=dict)

    @property
    def rows_to_make(self) -> Int64Array:
        """The numbers of the rows that aren't left out."""
        return np.array([row for row in range(len(self.positions)) if row not in self.without], np.int64)

    @property
    def boxes(self) -> RaggedRows | None:
        """The boxes that decide crops of the rows' images, as in ``Traced``; None without any."""
        return None if self.traced is None else self.traced.boxes


@dataclass(frozen=True, slots=True)
class Substitutes:
    """The records that replace failed rows of a batch.

    assignment  the slot of the batch
    rows        (k,) int64: the rows of the slot that are made from the new records
    records     the new record of each of these rows
    attempts    (k,) int64: 1 for the first replacement of a row
    """

    assignment: Assignment
    rows: Int64Array
    records: Records
    attempts: Int64Array


@dataclass(frozen=True, slots=True)
class Use:
    """An owner's memory in bytes, now and at its peak."""

    now: int = 0
    peak: int = 0


@dataclass(frozen=True, slots=True)
class WorkersMemory:
    """The memory that workers measure themselves, without the slots.

    read_ahead  encoded samples
    cache       marks of cached rows, and rows being written to the disk
    side        the side arena
    frames      images of which rows of several images are made
    waiting     samples of worker processes that are stored outside the slots
    in_heap     bytes of ``waiting`` that are in this process's heap
    processes   by name: the memory that processes share, and each worker's own memory
    """

    read_ahead: Use = Use()
    cache: Use = Use()
    side: Use = Use()
    frames: Use = Use()
    waiting: Use = Use()
    in_heap: int = 0
    processes: Mapping[str, Use] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchMade:
    """The result of the functions of a batch.

    kept     names of fields that are in the slot
    objects  the other fields, by name
    rows     number of samples, if a stream ended before the batch was full
    """

    kept: tuple[str, ...] = ()
    objects: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None


class Job(Protocol):
    """The rows of one slot, as work for the workers."""

    @property
    def done(self) -> bool:
        """True if no worker works on these rows any more."""

    def failures(self) -> Sequence[Failure]:
        """Return the rows that can't be made. The job must be done."""

    @property
    def ended_after(self) -> int | None:
        """The number of rows that a stream still had; None unless it ended before the batch was full."""

    @property
    def lists(self) -> Mapping[str, list[Any]]:
        """The fields that are stored outside the slot, each as a list with a value per row."""

    @property
    def made(self) -> BatchMade | None:
        """The result of the batch's functions; None without functions."""


class Workers:
    """The threads or processes that fill slots, the oldest first. They ring the run's bell when a slot is done.

    An object of this class itself is no workers: it only waits for the bell. Workers whose threads take their tasks
    themselves keep its ``wait``.

    helps     True if the training loop's thread makes the rows, by calling ``help()``
    employed  number of workers that work in parallel
    """

    helps = False
    employed = 0

    def __init__(self, bell: _native.Bell) -> None:
        self._bell = bell

    def employ(self, number: int) -> None:
        """Set how many workers work in parallel, from 1 to ``plan.pool.most_workers``.

        Missing threads are started, as far as the system allows; ``employed`` then has the actual number.
        Surplus workers wait.
        """

    def start(self) -> None:
        """Start to wait for jobs. Raises ``RuntimeError`` if the system allows no more threads."""

    def begin(self, assignment: Assignment, ring: _native.SlotRing) -> Job:
        """Return a job for an assignment, which ``submit`` starts. Raises if the job can't be prepared."""
        raise NotImplementedError

    def submit(self, job: Any, *, first: bool = False) -> None:
        """Queue a job behind all jobs that were submitted before; with ``first``, before them."""
        raise NotImplementedError

    def exchange(self, job: Any, new: Substitutes, ring: _native.SlotRing) -> None:
        """Make some rows of a finished job again from other records, before all queued jobs."""
        raise NotImplementedError

    def cancel(self, job: Any) -> None:
        """Drop the rows of a job that no worker has begun; the job is still reported as done."""

    def wait(self, seen: int, patience_s: float | None = None) -> int:
        """Wait until the run's bell has rung more than ``seen`` times; return how many times it has rung.

        The filling thread calls it. Worker processes get their tasks in it.

        patience_s  most seconds to wait; None: no limit
        """
        return self._bell.wait(seen) if patience_s is None else self._bell.wait_for(seen, patience_s)

    def settle(self) -> None:
        """Wait for the results of all tasks that workers still have. The filling thread calls it when it ends."""

    def help(self) -> bool:
        """Do one task in the calling thread, if ``helps``; return False if there was no task."""
        return False

    def stats(self) -> Stats:
        """Return the counters since the start."""
        return Stats()

    def at_work(self) -> Sequence[Work]:
        """Return the current work of each worker that has any, for the watchdog."""
        return ()

    def take_lost(self) -> Sequence[tuple[Any, Failure]]:
        """Return the jobs that were given up since the last call, each with the failure of the row that hangs.

        Until such a job is done, the hanging thread may still write to its slot.
        """
        return ()

    def memory(self) -> WorkersMemory:
        """Return the memory that workers use outside the slots."""
        return WorkersMemory()

    def close(self, patience_s: float) -> bool:
        """End all workers; return False if some threads were still busy after ``patience_s``."""
        return True


def start_kept(threads: list[threading.Thread], thread: threading.Thread) -> None:
    """Start a thread and add it to ``threads``. Raises ``RuntimeError`` if the system allows no more threads."""
    threads.append(thread)  # first: after an interrupt it is then ended with the others
    try:
        thread.start()
    except RuntimeError:
        threads.remove(thread)
        raise


def has_ended(thread: threading.Thread, patience_s: float) -> bool:
    """Wait at most ``patience_s`` for a thread's end; return True if it has ended, or was never started."""
    with contextlib.suppress(RuntimeError):  # it wasn't started, or its start was interrupted
        thread.join(max(patience_s, 0))
    return not thread.is_alive()


def name_of(records: Records, row: int) -> tuple[int, str | None]:
    """Return the number of a row's record, and the path of its file if it has one. This reads no storage."""
    files = records.files.get("image") or next(iter(records.files.values()), None)
    return int(records.index[row]), None if files is None else path_text(files.paths[row])


def too_long(row: int, stalled: StalledError) -> Failure:
    """Return the failure of a row, or of the whole batch, that took too long and was given up."""
    reason = f"took too long: {stalled.seconds:.1f} s, {stalled.doing}"
    return Failure(max(row, 0), "stalled", reason, stalled, row == WHOLE)


def raised_for(failure: Failure, records: Records, row: int, source: OpenSource) -> StandpipeError:
    """Return the error to raise for a failure whose sample isn't replaced.

    For a lost worker, or a plan that can't work, that is ``failure.cause``; else the result of ``error_of``.

    row  the failed row's number in ``records``
    """
    known = failure.cause
    if isinstance(known, CantWorkError):
        return known.public()
    if isinstance(known, WorkerDiedError | StalledError):
        return known
    return error_of(failure, records, row, source)


def error_of(failure: Failure, records: Records, row: int, source: OpenSource) -> SampleError:
    """Return the error of a failure, with the record's number and path.

    row  the failed row's number in ``records``
    """
    index = int(records.index[row])
    files = records.files.get(failure.field)
    path, reason = source.name(index) or failure.path, failure.reason
    if failure.field != "image":  # the source names the image's file
        path = failure.path or path if files is None else path_text(files.paths[row])
        reason = f"{failure.field}: {reason}"
    error = _ERRORS.get(failure.place, SampleError)(
        reason,
        place=_PLACES.get(failure.place, failure.place),
        index=index,
        path=path,
        offset=failure.offset if files is None else int(files.offset[row]),
    )
    error.__cause__ = failure.cause
    return error
