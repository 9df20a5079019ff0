"""Tunes a run while it goes: looks at its counters now and then, and sets what the tuner decides."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Protocol

from standpipe import _native
from standpipe.engine.tuner.climbing import Bounds, Seen, Setting, Tuner
from standpipe.engine.workers import Workers
from standpipe.plan.plan import Plan
from standpipe.plan.tuning import Tuning, untried
from standpipe.stats.counters import Stats
from standpipe.stats.memory import GROWTH, MemoryLedger
from standpipe.system import machine
from standpipe.system.sharing import Claim
from standpipe.system.thresholds import THRESHOLDS

WINDOW_S, SETTLED_S = 0.6, 2.0  # of a window at least, while something is tried and after
LEAST_STEPS = 4  # of the training loop in it
SETTLING_S, SETTLING_STEPS = 0.2, 2  # after a change, before the next window begins
ODD = 8  # times as long as half of the steps, from which on one tells nothing of the others
MOST_ODD = 3  # windows in a row that are left out for that
FREE_PART = 4  # of what is free, that threads' functions may take beyond memory=
LEAST_EACH = 1 << 16  # bytes of a thread, which is less than what can be measured
SHARED_S = 2.0  # between two looks at what other loaders want


class Observed(Protocol):
    """A run that can be measured and changed."""

    def stats(self) -> Stats:
        """Counters since the start."""

    def memory(self) -> MemoryLedger:
        """Return the memory of each owner."""


class Headroom:
    """Compute how many threads the memory has room for, from this process's growth.

    The growth includes memory of the user's functions, which no plan knows.
    """

    def __init__(self) -> None:
        self._workers = self._grown = 0
        self._each = 0.0  # bytes of a worker

    def most(self, workers: int, ledger: MemoryLedger, free: int) -> int:
        """Return the most threads, given that ``workers`` threads led to ``ledger`` and ``free`` bytes are
        free elsewhere.
        """
        grown, more = ledger[GROWTH].now, workers - self._workers
        if self._workers == 0:
            self._each = grown / workers  # at most
        elif more > 0:
            self._each = max(grown - self._grown, 0) / more
        self._workers, self._grown = workers, grown
        room = max(ledger.limit - ledger.now - grown, free // FREE_PART)
        return workers + math.floor(room / max(self._each, LEAST_EACH))


class Adjuster:
    """Tunes one run: ``look`` is called by the thread that fills batches, as often as it wakes.

    claim  the loader's part of the machine
    due_s  when it is time to look again, as ``time.monotonic()`` counts
    since  counters of when it had first as many workers and slots as now, and worked: behind the run's start

    It has no reference to the run, which shall end by itself and not by a collection.
    """

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        ring: _native.SlotRing,
        claim: Claim,
    ) -> None:
        self._plan, self._workers, self._ring, self._claim = plan, workers, ring, claim
        self._tunes = plan.tunes_workers or plan.tunes_prefetch
        self._headroom = Headroom() if plan.tunes_workers and plan.pool.cost.waits else None
        self._setting = Setting(plan.pool.workers, plan.memory.slots)
        self._cpus = machine.cpu_count(near=plan.device.cpus())
        self._tuner = Tuner(self._setting, bounds_of(plan), self._cpus, claim.turn)
        self._shared_s = 0.0  # when others are looked at again
        self.due_s = 0.0
        self._odd = 0  # windows in a row that tell nothing
        self.since = Stats()
        self._start: Stats | None = None  # of the run
        self._begin: Stats | None = None  # of the window; None while a change takes effect
        self._changed: Stats | None = None  # when the setting was changed

    def look(self, run: Observed) -> None:
        """See whether a window of the run is over, if it is time to."""
        now = time.monotonic()
        if now < self.due_s:
            return
        self.due_s = now + self._window_s / 4
        stats = run.stats()
        if self._start is None:
            self._start = self._changed = stats
        if self._begin is None:
            if self._has_taken_effect(stats):
                if self._start is self._changed:
                    self.since = stats
                self._begin = stats
        elif self._is_window(stats):
            self._see(run, self._begin, stats)

    def close(self) -> None:
        """Stop tuning."""
        self._tuner.close()

    def tuning(self) -> Tuning:
        """Return the result so far."""
        return replace(
            untried(self._plan),
            num_workers=self._tuner.kept.workers,
            prefetch=self._tuner.kept.slots - 1,
            settled=self._tuner.settled or not self._tunes,
            trials=tuple(self._tuner.trials),
        )

    @property
    def _window_s(self) -> float:
        return WINDOW_S if self._tunes and not self._tuner.settled else SETTLED_S

    def _has_taken_effect(self, stats: Stats) -> bool:
        assert self._changed is not None
        since = stats.time_s - self._changed.time_s
        return since >= SETTLING_S and stats.step.steps - self._changed.step.steps >= SETTLING_STEPS

    def _is_window(self, stats: Stats) -> bool:
        assert self._begin is not None
        since = stats.time_s - self._begin.time_s
        return since >= self._window_s and stats.step.steps - self._begin.step.steps >= LEAST_STEPS

    def _see(self, run: Observed, begin: Stats, stats: Stats) -> None:
        assert self._start is not None
        done = stats - begin
        self._begin = stats
        if is_odd(done) and self._odd < MOST_ODD:
            self._odd += 1
            return
        self._odd = 0
        seen = seen_in(done, self._setting.workers, stats.time_s - self._start.time_s)
        self._look_at_others(stats.time_s, seen)
        if not self._tunes:
            return
        if self._headroom is not None:
            free = machine.free_memory_bytes()
            self._tuner.room = self._headroom.most(self._setting.workers, run.memory(), free)
        kept = self._tuner.kept
        self._tuner.see(seen)
        if self._tuner.kept != kept:
            self.since = begin
        if self._tuner.setting != self._setting:
            self._workers.employ(self._tuner.setting.workers)
            if self._workers.employed != self._tuner.setting.workers:
                self._tuner.limit(self._workers.employed)  # no more are available
            self._setting = self._tuner.setting
            self._ring.set_base(self._setting.slots)
            self._begin, self._changed = None, stats

    def _look_at_others(self, now_s: float, seen: Seen) -> None:
        """Publish if this loader waits for processors, and count other loaders that do."""
        if now_s < self._shared_s:
            return
        self._shared_s = now_s + SHARED_S
        self._claim.hungry(seen.wait_share > THRESHOLDS.tuned and seen.busy >= THRESHOLDS.busy)
        self._tuner.cores = max(-(-self._cpus // (1 + self._claim.hungry_others())), 1)


def bounds_of(plan: Plan) -> Bounds:
    """Return the settings that may be tried in a run of this plan."""
    return Bounds(
        most=Setting(plan.pool.most_workers, plan.memory.most_tuned_slots),
        workers=plan.tunes_workers,
        slots=plan.tunes_prefetch,
        waits=plan.pool.cost.waits,
        slots_for=plan.slots_for,
    )


def is_odd(done: Stats) -> bool:
    """Return True if one step took most of the window: a checkpoint, a validation or a compilation."""
    step = done.step
    longest = step.step.quantile(1.0)
    return longest > ODD * step.step.p50 and longest > (step.step_s + step.wait_s) / 2


def seen_in(done: Stats, workers: int, after_s: float) -> Seen:
    """Return the measurements of a window in which ``workers`` worked."""
    loop_s = max(done.step.step_s + done.step.wait_s, 1e-9)
    read_s = 0.0 if done.reading_ahead else done.read.busy_s  # by those who make rows
    work_s = max(done.transform.busy_s + read_s, 1e-9)
    on_cpu_s = done.transform.cpu_s or done.transform.busy_s
    return Seen(
        after_s=after_s,
        rows_per_s=done.step.rows_per_s,
        wait_share=done.step.wait_share,
        busy=min(work_s / (workers * loop_s), 1.0),
        on_cpu=min(on_cpu_s / work_s, 1.0),
    )
