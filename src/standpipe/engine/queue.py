"""The queue of batches, which the filling thread and the training loop share.

A batch joins ``filling`` when its slot is taken, moves to ``ready`` when its rows are made, and leaves when the
training loop takes it. Batches stay in order. The loop names the batch that it wants by its cursor. If the next batch
has another cursor, the loop sets ``sought``, and filling starts again at the wanted cursor.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from standpipe import _native
from standpipe.batch.collate import Shape
from standpipe.engine.fetching import Fetched, Fetches
from standpipe.engine.moves import Traced
from standpipe.engine.replace import BatchRecords
from standpipe.engine.timing import RunTimes
from standpipe.engine.watchdog.watch import Watch
from standpipe.engine.workers import BatchMade, Job, Workers
from standpipe.errors import StalledError, StandpipeError
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.stats.bad_samples import Ledger


@dataclass(slots=True)
class FramesOfOthers:
    """The images of other rows, of which rows of a batch are made as well.

    earlier  rows before the batch, oldest first: the records of their batch, and the row's number there
    jobs     rows that are made for this batch: their records, and the work; in the order of ``earlier`` if they are
             among these, and else in that in which the batch uses them
    traced   what happens to the instances of all images of the rows; None while images are missing
    """

    earlier: list[tuple[BatchRecords, int]] = field(default_factory=list)
    jobs: list[tuple[BatchRecords, Job]] = field(default_factory=list)
    traced: Traced | None = None


@dataclass(frozen=True, slots=True)
class Filling:
    """A batch whose rows the workers make.

    slot     number of its slot
    at       cursor where the batch begins
    rows     number of its rows
    batch_records  the records of its rows
    job      the rows as work for the workers
    others   where rows are made of several images: those of other rows
    """

    slot: int
    at: Cursor
    rows: int
    batch_records: BatchRecords
    job: Job
    others: FramesOfOthers = field(default_factory=FramesOfOthers)

    @property
    def jobs(self) -> list[Job]:
        """Return all work for this batch."""
        return [self.job, *(job for _, job in self.others.jobs)]

    @property
    def is_over(self) -> bool:
        """Return True if no worker writes to the slot any more."""
        return all(job.done for job in self.jobs)


@dataclass(frozen=True, slots=True)
class Fetching:
    """A batch that waits until bytes of its records are fetched. No worker writes to its slot.

    slot     number of its slot
    at       cursor where the batch begins
    fetched  the records that it waits for
    goes_on  returns the batch once they are here
    """

    slot: int
    at: Cursor
    fetched: Fetched
    goes_on: Callable[[], Filling | Filled]

    is_over: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Filled:
    """A batch whose rows are finished, or which failed with ``error``.

    It keeps its slot until the consumer takes it, so that failed batches keep their place in the order.

    slot     number of its slot; None if a hanging thread may still write to the slot
    at       cursor where the batch begins
    rows     number of finished rows
    lists    fields that are stored outside the slot, each as a list with a value per row
    shapes   shapes of padded and joined fields in the slot
    made     result of the batch's functions; None without functions
    error    the error of the batch; None if it succeeded
    batch_records  the records of its rows, if bad samples were replaced; else None
    """

    slot: int | None
    at: Cursor
    rows: int = 0
    lists: Mapping[str, list[Any]] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    made: BatchMade | None = None
    position: int = 0  # of the first row
    ended: bool = False  # True if a stream ended in this batch
    error: Exception | None = None
    batch_records: BatchRecords | None = None

    is_over: ClassVar[bool] = True


class BatchQueue:
    """The batches of one run that are being filled or are ready.

    The first batch is at ``at``, or if that is an epoch's end, the first of the next epoch.

    plan     the plan of the run; the loop may change its order
    ring     the slots
    bell     wakes the filling thread
    lock     held to read or change several of the following attributes; it guards the ``Delivery`` too
    news     a lock that is released to wake a waiting loop
    filling  batches whose rows are being made, the oldest first
    ready    batches whose rows are made, the oldest first
    next     cursor of the next batch to begin
    sought   cursor where filling must start again; None if it needn't, or has started again
    waiting  True if the loop waits for a batch
    starved  True if the loop waits while it holds all slots
    stuck    the error if the filling thread itself hangs and was given up
    closed   True if the run is closed
    """

    def __init__(self, plan: Plan, ring: _native.SlotRing, bell: _native.Bell, at: Cursor) -> None:
        self.plan, self.ring, self.bell = plan, ring, bell
        # A plain lock instead of a condition: a condition's methods are Python code, and an interrupt inside them
        # would leave the lock held.
        self.lock = threading.RLock()
        self.news = threading.Lock()
        self.news.acquire()
        self.filling: deque[Filling | Filled | Fetching] = deque()
        self.ready: deque[Filled] = deque()
        self.next = plan.steps.settled(at)
        self.sought: Cursor | None = None
        self.waiting = self.starved = self.closed = False
        self.stuck: StalledError | None = None
        self._pid = os.getpid()

    @property
    def coming(self) -> Cursor:
        """Return the cursor of the next batch that the loop can take. The caller holds the lock."""
        first = self.ready or self.filling
        return self.sought or (first[0].at if first else self.next)

    def tell(self) -> None:
        """Wake the training loop if it waits for a batch."""
        with self.lock:
            if self.news.locked():
                self.news.release()

    def close(self) -> None:
        """Mark the run as closed, so that no more batches are delivered, and wake the training loop."""
        self.closed = True
        self.tell()

    def clear(self) -> None:
        """Forget all batches."""
        self.ready.clear()
        self.filling.clear()

    def check_open(self) -> None:
        """Raise ``StandpipeError`` if the run is closed."""
        if self.closed:
            raise StandpipeError("the loader is closed")

    @property
    def is_here(self) -> bool:
        """Return True if this process started the run. A forked child has none of the run's threads."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        """Raise ``StandpipeError`` in a forked child."""
        if not self.is_here:
            raise StandpipeError(
                "this loader was started in another process, and its threads don't survive a fork. Make a new loader "
                "in this process"
            )


@dataclass(frozen=True, slots=True)
class RunParts:
    """The objects that all threads of one run use.

    queue    the batches, and the plan
    workers  fill the slots
    ledger   counts the bad samples of delivered batches, and limits them
    watch    the watchdog, which times the work of the run's own threads too
    times    counters of the work of the run's own threads
    fetches  gets the bytes of records behind URLs; None for files
    """

    queue: BatchQueue
    workers: Workers
    ledger: Ledger
    watch: Watch
    times: RunTimes
    fetches: Fetches | None = None
