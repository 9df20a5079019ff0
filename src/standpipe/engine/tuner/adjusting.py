"""Tune a running loader: read its counters at intervals, give them to the tuner, and set what the tuner decides."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from standpipe.engine.tuner.climbing import Seen, Tuner
from standpipe.engine.workers import Workers
from standpipe.plan.plan import Plan
from standpipe.plan.tuning import Tuning, untried
from standpipe.stats.counters import Stats
from standpipe.stats.memory import GROWTH, MemoryLedger
from standpipe.system import machine
from standpipe.system.sharing import Claim
from standpipe.system.thresholds import THRESHOLDS

WINDOW_S, SETTLED_S = 0.6, 2.0  # least seconds of a window: while numbers are tried, and after
LEAST_STEPS = 4  # least training steps in a window
SETTLING_S, SETTLING_STEPS = 0.2, 2  # least seconds and steps between a change and the next window
ODD = 8  # a step that is longer than so many median steps may make its window useless
MOST_ODD = 3  # most useless windows in a row that are left out
FREE_PART = 4  # functions in threads may take 1/4 of the machine's free memory beyond memory=
LEAST_EACH = 1 << 16  # least bytes that are assumed for a thread: less can't be measured
SHARED_S = 2.0  # seconds between two checks of what other loaders need


class Headroom:
    """Estimates how many worker threads the memory has room for, from this process's growth per thread.

    The growth includes memory of the user's functions, which a plan can't forecast.
    """

    def __init__(self) -> None:
        self._workers = self._grown = 0
        self._each = 0.0  # bytes of a worker

    def most(self, workers: int, ledger: MemoryLedger, free: int) -> int:
        """Return the most threads that the memory has room for.

        workers  number of threads now
        ledger   the run's memory now
        free     free bytes of the machine or container
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
    """Tunes one run: the filling thread calls ``look`` whenever it wakes.

    claim  publishes this loader's need of CPUs to other loaders of the machine, and reads theirs
    due_s  time of the next check, in seconds of ``time.monotonic()``
    since  the counters when the run first worked with the current number of workers

    An adjuster has no reference to the run. A reference cycle would keep a dropped run alive until the next
    garbage collection.
    """

    def __init__(self, plan: Plan, workers: Workers, claim: Claim) -> None:
        self._plan, self._workers, self._claim = plan, workers, claim
        pool = plan.pool
        self._headroom = Headroom() if plan.tunes_workers and pool.cost.waits else None
        self._number = pool.workers
        self._cpus = machine.cpu_count(near=plan.device.cpus())
        self._tuner = Tuner(pool.workers, pool.most_workers, cores=self._cpus, waits=pool.cost.waits)
        self._shared_s = 0.0  # time of the next check of other loaders
        self.due_s = 0.0
        self._odd = 0  # useless windows in a row
        self.since = Stats()
        self._start: Stats | None = None  # counters at the first check
        self._begin: Stats | None = None  # counters when the window began; None while a change takes effect
        self._changed: Stats | None = None  # counters when the number was changed

    def look(self, stats_now: Callable[[], Stats], memory_now: Callable[[], MemoryLedger]) -> None:
        """Check if a window of measurements is over, when that is due; if so, give the window to the tuner.

        stats_now   returns the counters since the start of the run
        memory_now  returns the memory of each owner
        """
        now = time.monotonic()
        if now < self.due_s:
            return
        self.due_s = now + (SETTLING_S if self._begin is None else self._window_s / 4)
        stats = stats_now()
        if self._start is None:
            self._start = self._changed = stats
        if self._begin is None:
            if self._has_taken_effect(stats):
                if self._start is self._changed:
                    self.since = stats
                self._begin = stats
        elif self._is_window(stats):
            self._see(memory_now, self._begin, stats)

    def close(self) -> None:
        """Stop tuning."""
        self._tuner.close()

    def tuning(self) -> Tuning:
        """Return the tuned number of workers, and the trials so far."""
        begin = untried(self._plan)
        return replace(
            begin,
            num_workers=self._tuner.kept,
            settled=begin.settled or self._tuner.settled,
            trials=tuple(self._tuner.trials),
        )

    @property
    def _window_s(self) -> float:
        return WINDOW_S if self._plan.tunes_workers and not self._tuner.settled else SETTLED_S

    def _has_taken_effect(self, stats: Stats) -> bool:
        assert self._changed is not None
        since = stats.time_s - self._changed.time_s
        return since >= SETTLING_S and stats.step.steps - self._changed.step.steps >= SETTLING_STEPS

    def _is_window(self, stats: Stats) -> bool:
        assert self._begin is not None
        since = stats.time_s - self._begin.time_s
        return since >= self._window_s and stats.step.steps - self._begin.step.steps >= LEAST_STEPS

    def _see(self, memory_now: Callable[[], MemoryLedger], begin: Stats, stats: Stats) -> None:
        assert self._start is not None
        done = stats - begin
        self._begin = stats
        if is_odd(done) and self._odd < MOST_ODD:
            self._odd += 1
            return
        self._odd = 0
        seen = seen_in(done, self._number, stats.time_s - self._start.time_s)
        self._look_at_others(stats.time_s, seen)
        if not self._plan.tunes_workers:
            return
        if self._headroom is not None:
            free = machine.free_memory_bytes()
            self._tuner.room = self._headroom.most(self._number, memory_now(), free)
        kept = self._tuner.kept
        self._tuner.see(seen)
        if self._tuner.kept != kept:
            self.since = begin
        if self._tuner.workers != self._number:
            self._workers.employ(self._tuner.workers)
            if self._workers.employed != self._tuner.workers:
                self._tuner.limit(self._workers.employed)  # no more are available
            self._number = self._tuner.workers
            self._begin, self._changed = None, stats

    def _look_at_others(self, now_s: float, seen: Seen) -> None:
        """Publish if this loader needs more CPUs, count other loaders that do, and set the tuner's part of the CPUs.

        now_s  current time in seconds of ``time.monotonic()``; the check takes place every ``SHARED_S`` seconds
        """
        if now_s < self._shared_s:
            return
        self._shared_s = now_s + SHARED_S
        self._claim.hungry(seen.wait_share > THRESHOLDS.tuned and seen.busy >= THRESHOLDS.busy)
        self._tuner.cores = max(-(-self._cpus // (1 + self._claim.hungry_others())), 1)


def is_odd(done: Stats) -> bool:
    """Return True if one step took most of a window, for a checkpoint, a validation or a compilation.

    done  the counters of the window
    """
    step = done.step
    longest = step.step.quantile(1.0)
    return longest > ODD * step.step.p50 and longest > (step.step_s + step.wait_s) / 2


def seen_in(done: Stats, workers: int, after_s: float) -> Seen:
    """Return what the tuner must know of a window.

    done     the counters of the window
    workers  number of workers in the window
    after_s  seconds from the run's start to the window's end

    Workers go on while the loop's counters stand still from one batch to the next. So their work is divided by the
    window's own seconds, and the loop's waiting by the seconds of the steps that ended in the window.
    """
    read_s = 0.0 if done.reading_ahead else done.read.busy_s  # by those who make rows
    work_s = max(done.transform.busy_s + read_s, 1e-9)
    on_cpu_s = done.transform.cpu_s or done.transform.busy_s
    return Seen(
        after_s=after_s,
        rows_per_s=done.step.rows_per_s,
        wait_share=done.step.wait_share,
        busy=min(work_s / (workers * done.time_s), 1.0),
        on_cpu=min(on_cpu_s / work_s, 1.0),
    )
