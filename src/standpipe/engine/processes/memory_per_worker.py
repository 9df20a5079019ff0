"""Measure a worker process's own memory, from the trainer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from standpipe.engine.processes.worker_handle import WorkerProcess
from standpipe.engine.workers import Use
from standpipe.errors import BudgetError
from standpipe.plan.memory import GROWTH_BYTES
from standpipe.plan.plan import Plan
from standpipe.system.logs import logger
from standpipe.system.machine import anonymous_bytes, own_memory_bytes
from standpipe.units import show_bytes

SOON_S, LATE_S = 5e-3, 1.0  # seconds between two checks, at least and at most; a check takes about 20 µs
WHOLE_S = 10.0  # seconds between two full measurements, which take some milliseconds
LOOKS = 4  # checks before a worker that grows at its current rate reaches its limit


class WorkerMemory:
    """The memory of one worker process, checked between two tasks; the faster it grows, the more often.

    A check reads the size of the process's heap, and so the growth since the last full measurement. A check
    doesn't see copies of shared pages. A full measurement does. It takes place every ``WHOLE_S`` seconds, and
    when the memory seems to be above the limit.

    share         limit of the worker's own memory in bytes; a worker above the limit is replaced
    sharers       number of processes, this worker included, that began as copies of one process
    side          function that returns the worker's bytes in the side arena, which aren't the worker's own memory
    use           the last known memory of this worker, and the peak of this worker and of those before it, in bytes
    over          True if the worker may be above the limit, and must be measured when it is idle
    over_at_once  True if the worker was above the limit at the first check, after one task
    """

    def __init__(self, share: int, sharers: int, side: Callable[[], int]) -> None:
        self.share, self._sharers, self._side = share, sharers, side
        self.over = self.over_at_once = False
        self.use = Use()

    def begin(self, process: int) -> None:
        """Start again with a new worker, whose process number is ``process``; the peak stays."""
        self._process = process
        self._heap = 0  # bytes at the last full measurement
        self._measured = 0
        self._measure_s = self._look_s = 0.0
        self._pause_s = SOON_S
        self.over = self.over_at_once = False

    def look(self) -> None:
        """Check the worker's memory if it is due, and set ``over`` if it is above the limit."""
        now = time.monotonic()
        if now < self._look_s or self.over:
            return
        before, since = self.use.now, now - (self._look_s - self._pause_s)
        with contextlib.suppress(OSError, ValueError):  # it has ended, which its driver notices
            own = self._measured + self._anonymous() - self._heap
            if own > self.share or now >= self._measure_s:
                own = self.measure()
            self._note(own)
            self.over = own > self.share
            self.over_at_once |= self.over and self._look_s == 0
            grown, room = own - before, self.share - own
            steady = LATE_S if grown <= 0 else since * room / grown / LOOKS
            self._pause_s = min(max(steady, SOON_S), 2 * self._pause_s, LATE_S)
        self._look_s = now + self._pause_s

    def measure(self) -> int:
        """Measure and return the worker's own memory in bytes. Raises ``OSError`` if the process has ended."""
        self._heap = self._anonymous()
        self._measured = max(own_memory_bytes(self._process, self._sharers) - self._side(), 0)
        self._measure_s = time.monotonic() + WHOLE_S
        self._note(self._measured)
        return self._measured

    def close(self) -> None:
        """Count the memory of a process that has ended as free."""
        self._note(0)

    def _anonymous(self) -> int:
        return anonymous_bytes(self._process) - self._side()

    def _note(self, own: int) -> None:
        self.use = Use(own, max(own, self.use.peak))


def too_much_from_the_start(plan: Plan, worker: WorkerProcess, own: int) -> BudgetError:
    """Return the error for workers that use more memory than allowed after their first task.

    own  the worker's own memory in bytes
    """
    budget, share = plan.memory.budget_bytes, plan.pool.worker_bytes
    if plan.options.memory_per_worker is not None:
        smallest = own + GROWTH_BYTES
        return BudgetError(
            f"{worker} uses {show_bytes(own)} of its own after one task, above "
            f"memory_per_worker={show_bytes(share)!r}, and a new one would too. It needs "
            f"memory_per_worker={show_bytes(smallest, up=True)!r}",
            asked_bytes=own,
            budget_bytes=share,
            smallest_bytes=smallest,
        )
    # Half of the remaining memory goes to the workers, in equal parts. If the side arena may grow, it takes half of
    # the remaining memory before that.
    smallest = budget + (4 if plan.side_grows else 2) * plan.pool.workers * (own + GROWTH_BYTES - share)
    fewer = "fewer workers, " if plan.pool.workers > 1 else ""
    return BudgetError(
        f"{worker} uses {show_bytes(own)} of its own after one task, and a new one would too. Its limit is "
        f"{show_bytes(share)}, with memory={show_bytes(budget)!r} and num_workers={plan.pool.workers}. It needs "
        f"memory={show_bytes(smallest, up=True)!r}, {fewer}or smaller batches",
        asked_bytes=own,
        budget_bytes=share,
        smallest_bytes=smallest,
    )


def warn_of_recycling(plan: Plan, worker: WorkerProcess, own: int) -> None:
    """Warn that a worker uses more memory than allowed, ``own`` bytes, and is replaced."""
    logger().warning(
        "%s uses %s of its own, above its limit of %s, and is replaced by a new one. The order and the samples stay "
        "the same. The cause of the growth is in the dataset or the functions. This is logged once; "
        "stats().recycled counts replaced workers",
        worker,
        show_bytes(own),
        show_bytes(plan.pool.worker_bytes),
    )
