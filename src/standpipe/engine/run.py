"""A running loader: its parts, from start to end.

The ``Consumer`` takes batches, in the thread of the training loop. The ``FillingThread`` keeps slots filling. They
share a ``BatchQueue`` and nothing else that both change. ``Upkeep`` looks at memory and tunes workers now and then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from standpipe import _native
from standpipe.engine.consumer import Consumer
from standpipe.engine.deliver import Delivery
from standpipe.engine.fill import Filler
from standpipe.engine.filling_thread import FillingThread
from standpipe.engine.queue import BatchQueue
from standpipe.engine.room import Room
from standpipe.engine.start import started
from standpipe.engine.start_common import refusals
from standpipe.engine.timing import RunTimes
from standpipe.engine.upkeep import Upkeep
from standpipe.engine.watchdog.watch import Unattended, Watch, Work
from standpipe.engine.workers import Workers, has_ended
from standpipe.errors import StandpipeError
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.plan.tuning import Tuning
from standpipe.stats.bad_samples import Ledger
from standpipe.stats.counters import SlowSample, Stats
from standpipe.stats.memory import MemoryLedger
from standpipe.system.machine import anonymous_bytes, on_cpus
from standpipe.system.sharing import Claim

if TYPE_CHECKING:
    import logging

    from standpipe.engine.probe import Probe

PATIENCE_S = 1.0  # for threads inside a system call or a large image, when a loader is closed
HASTE_S = 0.5  # likewise, when whoever closes it is interrupted

# Runs with threads that were still busy when they were closed: these may use the run's arrays yet.
_abandoned: list[Run] = []


class Run:
    """Workers and slots of one plan, from ``start`` to ``close``.

    consumer  takes the batches, once it has started
    """

    consumer: Consumer  # these are there once it has started
    _workers: Workers
    _ring: _native.SlotRing
    _queue: BatchQueue
    _delivery: Delivery
    _upkeep: Upkeep
    _filling: FillingThread

    def __init__(self, plan: Plan, ledger: Ledger, claim: Claim) -> None:
        """Start nothing yet.

        plan    what is run
        ledger  takes down the bad samples of what is delivered
        claim   the loader's part of the machine
        """
        self._planned, self._ledger, self._claim = plan, ledger, claim
        self._pid = os.getpid()
        self._bell = _native.Bell()
        self._watch = Watch(plan.options.slow_sample_s, plan.options.stall_timeout_s, self._bell)
        self._unattended = Unattended(self._watch.end)
        self._lock = threading.RLock()  # of the start and the end
        self._starts = self._closed = self._ended = False
        self._probe: Probe | None = None

    @property
    def plan(self) -> Plan:
        """The plan that is run, with what was measured at the start."""
        return self._queue.plan

    def start(self, at: Cursor) -> None:
        """Begin to fill batches, from ``at`` on. If it raises, no thread or process is left.

        Raises what ``started`` raises, and ``StandpipeError`` if another thread closed the run.
        """
        with self._lock:
            self._check_open()
            self._starts = True
        try:
            with on_cpus(self._planned.device.cpus()):
                self._start(at)
        except BaseException:
            self._closed = True
            self._end()
            raise
        steps = self.plan.steps
        _logger().info(
            "rank %d of %d data ranks, %d workers", steps.rank, steps.world_size, self.plan.pool.workers
        )

    def _start(self, at: Cursor) -> None:
        with refusals(self._planned):
            before = anonymous_bytes()
        if self._planned.probes:
            from standpipe.engine.probe import Probe  # which takes as long to import as what else a run needs

            self._probe = Probe(self._planned, at)
        plan, self._workers, self._ring = started(self._planned, at, self._bell, self._watch)
        workers, watch, times = self._workers, self._watch, RunTimes()
        self._queue = queue = BatchQueue(plan, self._ring, self._bell, at)
        self._delivery = Delivery(plan, self._ring)
        self._upkeep = Upkeep(
            queue, self._delivery, workers, watch=watch, times=times, claim=self._claim, before=before
        )
        room = Room(plan, self._ring, workers)
        filler = Filler(queue, workers, ledger=self._ledger, watch=watch, times=times)
        self.consumer = Consumer(
            queue,
            self._delivery,
            workers,
            room,
            ledger=self._ledger,
            watch=watch,
            times=times,
            probe=self._probe,
        )
        self._filling = FillingThread(
            queue,
            self._delivery,
            workers,
            room,
            filler=filler,
            watch=watch,
            times=times,
            upkeep=self._upkeep,
        )
        with refusals(plan):
            workers.start()
            watch.add(self)
            with self._lock:
                self._check_open()
                self._filling.thread.start()
                self._starts = False

    def stats(self) -> Stats:
        """Return all counters."""
        self._queue.check_process()
        return self._upkeep.stats()

    def memory(self) -> MemoryLedger:
        """Return the memory of each owner."""
        self._queue.check_process()
        return self._upkeep.memory()

    def tuning(self) -> Tuning:
        """Return how many workers and slots there are now, and what was tried."""
        return self._upkeep.tuning()

    @property
    def since(self) -> Stats:
        """Counters of when there were first as many workers and slots as now."""
        return self._upkeep.since

    @property
    def slow_samples(self) -> list[SlowSample]:
        """The newest samples that took long."""
        return self._watch.slow_samples

    @property
    def in_flight(self) -> bool:
        """Return whether a slot is being filled."""
        return bool(self._queue.filling)

    def at_work(self) -> Sequence[Work]:
        """Return the work that workers have in hand, for the watch; if there is none, the batch that waits for them."""
        works = self._workers.at_work()
        waits = next((each for each in tuple(self._queue.filling) if not each.is_over), None)
        if works or self._workers.helps or waits is None:
            self._unattended.forget()
            return works
        return [
            self._unattended.seen(
                waits, f"the batch at position {waits.at.consumed} of epoch {waits.at.epoch}"
            )
        ]

    def close(self) -> None:
        """End all threads. Batches that were lent stay valid; calling it again does nothing.

        A start that is under way in another thread notices when it is through, and ends itself.
        """
        if os.getpid() != self._pid:
            return  # a forked child has none of the threads
        with self._lock:
            self._closed = True
            if self._starts:
                return
        if hasattr(self, "_queue"):
            self._queue.close()
        self._end()

    def _end(self) -> None:
        """End what there is; of a start that was interrupted that may be anything."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        try:
            self._end_all(PATIENCE_S)
        except BaseException:  # an interrupt: everything ends all the same
            self._end_all(HASTE_S)
            raise

    def _end_all(self, patience_s: float) -> None:
        if hasattr(self, "_queue"):
            self._queue.close()
        self._watch.close(patience_s)
        ends = time.monotonic() + patience_s
        self._bell.ring()
        all_ended = True
        if self._probe is not None:  # before the workers, who may take all of the time
            all_ended = self._probe.close(patience_s)
        filling = self._filling.thread if hasattr(self, "_filling") else None
        if filling is threading.current_thread():
            filling = None
        if filling is not None:
            has_ended(filling, patience_s)  # it takes what workers owe
        if hasattr(self, "_workers"):
            all_ended &= self._workers.close(max(ends - time.monotonic(), 0))
        if filling is not None:
            # Without workers it ends soon; an interpreter that ends while it runs may abort.
            all_ended &= has_ended(filling, max(ends - time.monotonic(), HASTE_S))
        if hasattr(self, "_upkeep"):
            self._upkeep.close()
        if hasattr(self, "_delivery"):
            with self._queue.lock:
                self._delivery.close()
        if all_ended:
            if hasattr(self, "_upkeep"):
                self._upkeep.end()
            if hasattr(self, "_queue"):
                self._queue.clear()
            if hasattr(self, "_ring"):
                self._ring.retire()
        else:
            _abandoned.append(self)
            _logger().warning("some threads were still busy after %.1f s; they end by themselves", patience_s)

    def _check_open(self) -> None:
        if self._closed:
            raise StandpipeError("the loader is closed")


def _logger() -> logging.Logger:
    import logging  # a tenth of what importing standpipe costs beside NumPy

    return logging.getLogger("standpipe")
