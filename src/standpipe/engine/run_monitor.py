"""The counters of a run, and the memory meter and tuner that check them at intervals."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from standpipe.engine.deliver import Delivery
from standpipe.engine.meter import Meter
from standpipe.engine.queue import BatchQueue
from standpipe.engine.timing import RunTimes
from standpipe.engine.tuner.adjusting import Adjuster
from standpipe.engine.watchdog.watch import Watch
from standpipe.engine.workers import Workers
from standpipe.plan.tuning import Tuning
from standpipe.stats.counters import SlotStats, Stats
from standpipe.stats.memory import MemoryLedger
from standpipe.system.sharing import Claim


class RunMonitor:
    """Collects the counters of one run, and calls its memory meter and its tuner at intervals.

    claim   the loader's part of the machine
    before  heaps and stacks of this process before the run began, in bytes
    due_s   time of the next check, in seconds of ``time.monotonic()``

    A run monitor has no reference to the run. A reference cycle would keep a dropped run alive until the next
    garbage collection.
    """

    def __init__(
        self,
        queue: BatchQueue,
        delivery: Delivery,
        workers: Workers,
        *,
        watch: Watch,
        times: RunTimes,
        claim: Claim,
        before: int,
    ) -> None:
        self._queue, self._delivery, self._workers = queue, delivery, workers
        self._watch, self._times, self._claim = watch, times, claim
        self._meter = Meter(queue.plan, queue.ring, workers, claim, before)
        self._adjuster = Adjuster(queue.plan, workers, claim)
        self.due_s = 0.0

    def look(self) -> None:
        """Measure the memory and tune the run, each if it is due."""
        with suppress(OSError):  # both read /proc; without a free descriptor they try again next time
            self._meter.look()
            self._adjuster.look(self)
        self.due_s = min(self._meter.due_s, self._adjuster.due_s)

    def rest(self) -> None:
        """Record that this loader is idle, so that other loaders may use its part of the machine."""
        self._claim.hungry(False)

    def stats(self) -> Stats:
        """Return all counters."""
        ring = self._queue.ring
        slots = SlotStats(
            self._queue.plan.memory.most_slots, ring.count("lent"), ring.count("filling"), ring.count("ready")
        )
        counted = self._times.stats(self._workers.stats(), slots, self._delivery.copying_s)
        return replace(
            counted, slow=counted.slow + self._watch.slow, stalled=counted.stalled + self._watch.stalled
        )

    def memory(self) -> MemoryLedger:
        """Return the memory of each owner."""
        return self._meter.ledger()

    def tuning(self) -> Tuning:
        """Return the current number of workers, and the tuner's trials."""
        return self._adjuster.tuning()

    @property
    def since(self) -> Stats:
        """The counters when the run first worked with the current number of workers."""
        return self._adjuster.since

    def close(self) -> None:
        """Tell the meter that the run's threads have ended."""
        self._meter.close()

    def end(self) -> None:
        """End tuning, once the workers have ended."""
        self._adjuster.close()
