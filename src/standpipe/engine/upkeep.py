"""The figures of a run, and what looks at them now and then: the memory meter and the tuner."""

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


class Upkeep:
    """The figures of one run, and those who look at them.

    claim   the loader's part of the machine
    before  heaps and stacks of this process before the run began, in bytes
    due_s   when it is time to look again, as ``time.monotonic()`` counts

    It has no reference to the run, which shall end by itself and not by a collection.
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
        self._adjuster = Adjuster(queue.plan, workers, queue.ring, claim)
        self.due_s = 0.0

    def look(self) -> None:
        """Warn of owners that take too much memory, and tune; each when it is due."""
        with suppress(OSError):  # they read /proc: without a descriptor that is free, another time
            self._meter.look()
            self._adjuster.look(self)
        self.due_s = min(self._meter.due_s, self._adjuster.due_s)

    def rest(self) -> None:
        """Leave the loader's part of the machine to others: there is nothing to do."""
        self._claim.rest()

    def stats(self) -> Stats:
        """Return all counters."""
        ring = self._queue.ring
        slots = SlotStats(
            self._queue.plan.memory.most_slots, ring.count("lent"), ring.count("filling"), ring.count("ready")
        )
        counted = self._times.stats(self._workers.stats(), slots, self._delivery.copying_s)
        return replace(counted, slow=self._watch.slow, stalled=self._watch.stalled)

    def memory(self) -> MemoryLedger:
        """Return the memory of each owner."""
        return self._meter.ledger()

    def tuning(self) -> Tuning:
        """Return how many workers and slots there are now, and what was tried."""
        return self._adjuster.tuning()

    @property
    def since(self) -> Stats:
        """Counters of when there were first as many workers and slots as now."""
        return self._adjuster.since

    def close(self) -> None:
        """Tell the meter that the run's threads have ended."""
        self._meter.close()

    def end(self) -> None:
        """End tuning: nobody uses the workers any more."""
        self._adjuster.close()
