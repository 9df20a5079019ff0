"""The counters of a run, and the memory meter and tuner that check them at intervals."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from standpipe.engine.deliver import Delivery
from standpipe.engine.fetching import fetch_stats
from standpipe.engine.meter import Meter
from standpipe.engine.queue import RunParts
from standpipe.engine.tuner.adjusting import Adjuster
from standpipe.plan.plan import Plan
from standpipe.plan.tuning import Tuning
from standpipe.stats.counters import SlotStats, SlowSample, Stats
from standpipe.stats.memory import MemoryLedger
from standpipe.system.sharing import Claim


class RunMonitor:
    """Collects the counters of one run, and calls its memory meter and its tuner at intervals.

    claim   the loader's part of the machine
    before  heaps and stacks of this process before the run began, in bytes
    due_s   time of the next check, in seconds of ``time.monotonic()``

    A run monitor has no reference to the ``Run``. A reference cycle would keep a dropped run alive until the next
    garbage collection.
    """

    def __init__(self, run: RunParts, delivery: Delivery, claim: Claim, before: int) -> None:
        self._run, self._delivery, self._claim = run, delivery, claim
        self._meter = Meter(run.queue.plan, run.queue.ring, run.workers, claim, before, run.fetches)
        self._adjuster = Adjuster(run.queue.plan, run.workers, claim)
        self.due_s = 0.0

    def look(self) -> None:
        """Measure the memory and tune the run, each if it is due."""
        with suppress(OSError):  # both read /proc; without a free descriptor they try again next time
            self._meter.look()
            self._adjuster.look(self.stats, self.memory)
        self.due_s = min(self._meter.due_s, self._adjuster.due_s)

    def rest(self) -> None:
        """Record that this loader is idle, so that other loaders may use its part of the machine."""
        self._claim.hungry(False)

    @property
    def plan(self) -> Plan:
        """The plan of the run, with the values that were measured at the start."""
        return self._run.queue.plan

    def stats(self) -> Stats:
        """Return all counters. Raises ``StandpipeError`` in a forked child."""
        run, ring = self._run, self._run.queue.ring
        run.queue.check_process()
        slots = SlotStats(
            self.plan.memory.most_slots, ring.count("lent"), ring.count("filling"), ring.count("ready")
        )
        counted = run.times.stats(run.workers.stats(), slots, self._delivery.copying_s)
        watch = run.watch
        if run.fetches is not None:
            counted = replace(counted, fetch=fetch_stats(run.fetches.counts))
        return replace(counted, slow=counted.slow + watch.slow, stalled=counted.stalled + watch.stalled)

    @property
    def slow_samples(self) -> list[SlowSample]:
        """The newest 1,000 samples and other works that took longer than ``slow_sample_s``, oldest first."""
        return self._run.watch.slow_samples

    def memory(self) -> MemoryLedger:
        """Return the memory of each owner. Raises ``StandpipeError`` in a forked child."""
        self._run.queue.check_process()
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
