"""The queue of batches: what the thread that fills slots and the loop that takes batches share.

A batch joins ``filling`` when its slot is taken, moves to ``ready`` when its rows are made, and leaves when the loop
takes it. Batches stay in order. The loop names the batch that it wants by its cursor. When another one is coming, the
loop sets ``sought``, and filling starts again there.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from standpipe import _native
from standpipe.batch import Shape
from standpipe.engine.replace import Origins
from standpipe.engine.workers import BatchMade, Job
from standpipe.errors import StalledError, StandpipeError
from standpipe.order import Cursor
from standpipe.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Filling:
    """A slot whose rows the workers make."""

    slot: int
    at: Cursor
    rows: int
    origins: Origins
    job: Job

    @property
    def is_over(self) -> bool:
        """Return whether nobody writes into the slot any more."""
        return self.job.done


@dataclass(frozen=True, slots=True)
class Filled:
    """A slot whose rows are finished, or can't be: then ``error`` says why.

    It keeps the slot until the consumer takes it, so that bad batches come in their turn as good ones do. A
    slot that a thread which hangs may still write to isn't kept.
    """

    slot: int | None
    at: Cursor
    rows: int = 0
    lists: Mapping[str, list[Any]] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    made: BatchMade | None = None
    position: int = 0  # of the first row
    ended: bool = False  # a stream has no more
    error: Exception | None = None
    origins: Origins | None = None

    is_over: ClassVar[bool] = True


class BatchQueue:
    """Batches of one run on their way, from ``plan.steps.settled(at)`` on.

    plan     what is run; the loop may change its order
    ring     the slots
    bell     wakes the thread that fills slots
    lock     held while more than one of what follows is read or changed; it guards the ``Delivery`` too
    news     a lock that is free once something happened that a waiting loop has to see
    filling  batches whose rows are being made, the oldest first
    ready    batches whose rows are made, likewise
    next     where the batch begins whose slot is taken next
    sought   where the loop wants filling to start again, until it does
    waiting  whether the loop waits for a batch
    starved  whether it waits while its own batches hold all slots
    stuck    why nothing comes: the filling thread hangs in what was given up
    closed   whether the run is closed
    """

    def __init__(self, plan: Plan, ring: _native.SlotRing, bell: _native.Bell, at: Cursor) -> None:
        self.plan, self.ring, self.bell = plan, ring, bell
        # The lock is entered itself, not through a condition, whose methods are Python: an interrupt inside them would
        # leave it locked.
        self.lock = threading.RLock()
        self.news = threading.Lock()
        self.news.acquire()
        self.filling: deque[Filling | Filled] = deque()
        self.ready: deque[Filled] = deque()
        self.next = plan.steps.settled(at)
        self.sought: Cursor | None = None
        self.waiting = self.starved = self.closed = False
        self.stuck: StalledError | None = None
        self._pid = os.getpid()

    @property
    def coming(self) -> Cursor:
        """Return where the next batch begins that the loop can take. The caller holds the lock."""
        first = self.ready or self.filling
        return self.sought or (first[0].at if first else self.next)

    @property
    def next_is_known(self) -> bool:
        """Return whether the records of the batch that is filled next are known."""
        return self.plan.steps.is_known(self.plan.order, self.next)

    def tell(self) -> None:
        """Wake the loop if it waits."""
        with self.lock:
            if self.news.locked():
                self.news.release()

    def close(self) -> None:
        """Refuse to hand over batches from now on, and wake the loop."""
        self.closed = True
        self.tell()

    def clear(self) -> None:
        """Forget all batches."""
        self.ready.clear()
        self.filling.clear()

    def check_open(self) -> None:
        """Raise ``StandpipeError`` when the run is closed."""
        if self.closed:
            raise StandpipeError("the loader is closed")

    @property
    def is_here(self) -> bool:
        """Return whether this process started the run: a forked child has none of its threads."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        """Raise ``StandpipeError`` in a forked child."""
        if not self.is_here:
            raise StandpipeError(
                "this loader was started in another process; threads don't survive a fork: make a loader here"
            )
