"""A run of a loader: its parts, from start to end.

The ``Consumer`` takes batches, in the thread of the training loop. The ``FillingThread`` fills slots. The
``BatchQueue`` is the only state that both change. ``RunMonitor`` measures memory and tunes workers at intervals.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from standpipe import _native
from standpipe.contracts.source import OpenSource
from standpipe.engine.consumer import Consumer
from standpipe.engine.deliver import Delivery
from standpipe.engine.fetching import FetchedSource, Fetches
from standpipe.engine.filling_thread import FillingThread
from standpipe.engine.queue import BatchQueue, Filled, Filling, RunParts
from standpipe.engine.room import SlotBudget
from standpipe.engine.run_monitor import RunMonitor
from standpipe.engine.start import started
from standpipe.engine.start_common import refusals
from standpipe.engine.timing import RunTimes
from standpipe.engine.watchdog.watch import Watch, Work
from standpipe.engine.workers import Workers, has_ended
from standpipe.errors import StalledError, StandpipeError, batch_name
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.stats.bad_samples import Ledger
from standpipe.system.logs import logger
from standpipe.system.machine import anonymous_bytes, on_cpus
from standpipe.system.sharing import Claim
from standpipe.system.user_warnings import warn_user
from standpipe.transform import warning

if TYPE_CHECKING:
    from standpipe.engine.probe import Probe

PATIENCE_S = 1.0  # seconds that closing waits for threads inside a system call or a large image
HASTE_S = 0.5  # the same, when closing was interrupted

# Closed runs with threads that are still busy, and may still use the run's arrays. The start of another run ends those
# whose threads have ended since.
_abandoned: list[Run] = []


class Run:
    """The workers and slots of one plan, from ``start`` to ``close``.

    consumer  takes the batches; set by ``start``
    monitor   has the counters, the memory and the tuner; set by ``start``
    """

    consumer: Consumer  # set by ``start``, like those below
    monitor: RunMonitor
    _workers: Workers
    _ring: _native.SlotRing
    _queue: BatchQueue
    _delivery: Delivery
    _filling: FillingThread

    def __init__(self, plan: Plan, ledger: Ledger, claim: Claim) -> None:
        """Prepare a run without starting it.

        plan    the plan to run
        ledger  records the bad samples of delivered batches
        claim   the loader's part of the machine
        """
        self._planned, self._ledger, self._claim = plan, ledger, claim
        self._pid = os.getpid()
        self._bell = _native.Bell()
        self._watch = Watch(plan.options.slow_sample_s, plan.options.stall_timeout_s, self._bell)
        self._waits: Filling | Filled | None = None  # the batch that no worker begins
        self._waits_since_s = 0.0
        self._lock = threading.RLock()  # guards start and end
        self._starts = self._closed = self._ended = False
        self._probe: Probe | None = None
        self._fetches: Fetches | None = None

    @property
    def plan(self) -> Plan:
        """The plan of the run, with the values that were measured at the start."""
        return self._queue.plan

    def start(self, at: Cursor) -> None:
        """Begin to fill batches, from ``at`` on. If it raises, no thread or process is left.

        Raises the errors of ``started``, and ``StandpipeError`` if another thread closed the run.
        """
        with self._lock:
            self._check_open()
            self._starts = True
        for run in tuple(_abandoned):
            if run._pid == self._pid:  # a forked child has none of its parent's threads
                run._end(0)
        try:
            with on_cpus(self._planned.device.cpus()):
                self._start(at)
        except BaseException:
            self._closed = True
            self._end(PATIENCE_S)
            raise
        steps, fleet = self.plan.steps, self.plan.options.fleet
        workers = f"{self.plan.pool.workers} workers" if fleet is None else fleet.describe()[0]
        logger().info("rank %d of %d data ranks, %s", steps.rank, steps.world_size, workers)

    def _start(self, at: Cursor) -> None:
        with refusals(self._planned):
            before = anonymous_bytes()
        if self._planned.probes and not self._planned.fetches:
            from standpipe.engine.probe import Probe  # here, as it doubles the time of a run's imports

            self._probe = Probe(self._planned, at)
        if self._planned.options.fleet is None and self._planned.fetches:
            plan = self._start_with_fetches(at)
        elif self._planned.options.fleet is None:
            plan, self._workers, self._ring = started(self._planned, at, self._bell, self._watch)
        else:
            from standpipe.engine.remote.start import in_fleet  # few loaders need it

            plan, self._workers, self._ring = in_fleet(self._planned, at, self._bell, self._watch)
        if plan.samples.suspects:
            warn_user(warning(plan.samples.suspects))
        self._queue = BatchQueue(plan, self._ring, self._bell, at)
        self._delivery = Delivery(plan, self._ring)
        parts = RunParts(self._queue, self._workers, self._ledger, self._watch, RunTimes(), self._fetches)
        self.monitor = RunMonitor(parts, self._delivery, self._claim, before)
        room = SlotBudget(plan, self._ring, self._workers)
        self.consumer = Consumer(parts, self._delivery, room, self._probe)
        self._filling = FillingThread(parts, self._delivery, room, self.monitor)
        with refusals(plan):
            self._workers.start()
            self._watch.add(self)
            with self._lock:
                self._check_open()
                self._filling.thread.start()
                self._starts = False

    def _start_with_fetches(self, at: Cursor) -> Plan:
        """Start the fetch process, workers and slots; return the plan with all sizes."""
        from standpipe.engine.processes.forking import fresh  # few loaders need it

        planned = self._planned
        with refusals(planned):
            begin = partial(fresh, "standpipe.fetch.process")
            self._fetches = Fetches(planned, self._bell, self._watch, begin)
            self._fetches.start()
        source = cast("OpenSource", FetchedSource(planned.source, self._fetches))
        begun = started(replace(planned, source=source), at, self._bell, self._watch)
        plan, self._workers, self._ring = begun
        self._fetches.forget()
        return replace(plan, source=planned.source)

    @property
    def in_flight(self) -> bool:
        """Return True if a slot is being filled."""
        return bool(self._queue.filling)

    def at_work(self) -> Sequence[Work]:
        """Return the workers' current tasks for the watchdog; if workers have none, the batch that waits for them.

        It waits too long if every thread that could make it has ended.
        """
        works = self._workers.at_work()
        waits = next(
            (each for each in tuple(self._queue.filling) if isinstance(each, Filling) and not each.is_over),
            None,
        )
        if works or self._workers.helps or waits is None:
            self._waits = None
            return works
        if waits is not self._waits:
            self._waits, self._waits_since_s = waits, time.monotonic()
        hand = Run, self._waits_since_s  # the watchdog keeps it, and would keep the run
        what = batch_name(waits.at.epoch, waits.at.consumed)
        doing, worker = "waiting for a worker", "no thread"
        return [Work(hand, what, doing, worker, self._waits_since_s, self, waits=True)]

    def where(self, work: Work) -> str:
        """Return an empty string: no thread does the work that waits."""
        return ""

    def give_up(self, work: Work, error: StalledError) -> bool:
        """End the run with ``error``, and return True."""
        self._watch.end(error)
        return True

    def close(self) -> None:
        """End all threads of the run. Held batches stay valid. A second call does nothing.

        If another thread is starting the run at this moment, its call of ``start`` ends the run.
        """
        if os.getpid() != self._pid:
            return  # a forked child has none of the threads
        with self._lock:
            self._closed = True
            if self._starts:
                return
        if hasattr(self, "_queue"):
            self._queue.close()
        self._end(PATIENCE_S)

    def _end(self, patience_s: float) -> None:
        """End all parts that exist, again if threads were busy. After an interrupted start some may be missing.

        patience_s  seconds that it waits for threads
        """
        with self._lock:
            if self in _abandoned:
                _abandoned.remove(self)
            elif self._ended:
                return
            self._ended = True
        try:
            self._end_all(patience_s)
        except BaseException:  # after an interrupt everything must end too
            self._end_all(min(patience_s, HASTE_S))
            raise

    def _end_all(self, patience_s: float) -> None:
        if hasattr(self, "_queue"):
            self._queue.close()
        if self._fetches is not None:
            self._fetches.stop()
        self._watch.close(patience_s)
        ends = time.monotonic() + patience_s
        self._bell.ring()
        all_ended = True
        if self._probe is not None:  # before the workers, which may need all of the time
            all_ended = self._probe.close(patience_s)
        filling = self._filling.thread if hasattr(self, "_filling") else None
        if filling is threading.current_thread():
            filling = None
        if filling is not None:
            has_ended(filling, patience_s)  # it first takes the answers that workers still owe
        if hasattr(self, "_workers"):
            all_ended &= self._workers.close(max(ends - time.monotonic(), 0))
        if filling is not None:
            # Without workers the thread ends soon. If the interpreter ends while it runs, the process may abort.
            all_ended &= has_ended(filling, max(ends - time.monotonic(), min(patience_s, HASTE_S)))
        if self._fetches is not None and all_ended:  # else a thread may still read what was fetched
            all_ended = self._fetches.close(patience_s)
        if hasattr(self, "monitor"):
            self.monitor.close()
        if hasattr(self, "_delivery"):
            with self._queue.lock:
                self._delivery.close()
        if all_ended:
            if hasattr(self, "monitor"):
                self.monitor.end()
            if hasattr(self, "_queue"):
                self._queue.clear()
            if hasattr(self, "_ring"):
                self._ring.retire()
        else:
            _abandoned.append(self)
            if patience_s:
                logger().warning(
                    "some threads were still busy after %.1f s; they end by themselves", patience_s
                )

    def _check_open(self) -> None:
        if self._closed:
            raise StandpipeError("the loader is closed")
