"""Finds out while a loader runs how many workers and slots are best: by trying, and keeping what pays.

The course is a generator: it sets what is to be run with, and gets in turn what was seen with it. So it reads like
what it does, knows no clock and no threads, and tests run it against loops that they make up.

Two settings are compared by windows of some tenths of a second in turn, one after the other, until the difference is
clear. More workers have to pay for themselves; fewer are kept when they are as good. Where the training loop is what
limits the run, no more workers are left at work than it needs. After that nothing is tried before the run is another
one than it was, and every time later than before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Literal

from standpipe.plan.tuning import Trial
from standpipe.system.thresholds import THRESHOLDS

LACKS = 0.08  # likewise from which on it does
IDLE = 0.9  # likewise, below which more batches in turn may help
LOAD = 0.8  # likewise, of those that are left when the loop doesn't need all
CLEAR = 1.15  # times as fast, or as slow, that one window is enough to tell
FULL = 0.92  # share of the processors' time that workers compute, from which on more of them don't help
WORTH = 1.04  # times as fast that more of something has to be
AS_GOOD = 0.98  # times as fast that fewer have to be
WARM = 4  # windows after which it begins, whatever they were
RELIEF = 0.7  # of its waiting, from which on less is worth having even if the loop isn't faster yet
MORE_WAIT = 0.05  # share of its time that the loop may wait more with fewer
ROUNDS = 2  # windows of either setting, while the difference isn't clear
WAITS = 0.25  # likewise, up to which many more of them may be had for nothing
MEETS = 1.5  # times as many workers as keep processors busy on average, since they meet by chance
OTHER = 0.3  # by how much a run's rate changes before it is another run
SURE = 3  # windows in a row that say so
PATIENCE_S, LONGEST_PATIENCE_S = 120.0, 1800.0  # of a loop that waits, before all is tried once more
MOST_TRIALS = 100  # that are remembered
PATIENT = 60  # windows in which others may have the turn
PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0  # before anything is tried again


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings that a run is tuned by."""

    workers: int
    slots: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Measurements of a window.

    after_s     seconds from the run's start to the window's end
    rows_per_s  rows that the training loop took per second
    wait_share  fraction of its time that the loop waited
    busy        fraction of their time that the workers worked
    on_cpu      fraction of that time that they spent on processors
    """

    after_s: float
    rows_per_s: float
    wait_share: float
    busy: float
    on_cpu: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """The settings that may be tried.

    most            workers and slots
    workers, slots  True if they are tuned
    waits           True if workers may wait for something other than a processor
    slots_for       slots for a number of workers
    """

    most: Setting
    workers: bool
    slots: bool
    waits: bool
    slots_for: Callable[[int], int]


Course = Generator[None, Seen, None]


class Tuner:
    """Decides what a run goes on with.

    setting  what it shall run with
    kept     the same without what is only being tried
    settled  whether nothing is being tried
    trials   what was, the newest of it
    room     workers that the memory has room for, as far as is known: no trial goes beyond, and none that did is kept
    cores    processors that this loader may use now
    turn     asks for the right to try something, and gives it back: of several loaders one at a time
    """

    def __init__(self, begin: Setting, bounds: Bounds, cores: int, turn: Callable[[bool], bool]) -> None:
        self.setting = self.kept = begin
        self._bounds, self._turn = bounds, turn
        self.cores = self._all_cores = cores
        self.settled = False
        self.trials: list[Trial] = []
        self.room = bounds.most.workers
        self._most = bounds.most
        self._pause_s, self._patience_s = PAUSE_S, PATIENCE_S
        self._course = self._whole_course()
        next(self._course)

    def see(self, seen: Seen) -> None:
        """Go on from what was seen with ``setting`` since it was set."""
        self._course.send(seen)

    def close(self) -> None:
        """End the course. It refers to this tuner, which could not be freed otherwise."""
        self._course.close()

    def limit(self, most: int) -> None:
        """Set the most workers that are possible, which is also their number now."""
        self._most = replace(self._most, workers=most)
        self.setting = replace(self.setting, workers=most)
        self.kept = replace(self.kept, workers=min(self.kept.workers, most))

    # The course. Each part ends with ``self._last`` seen at ``self.setting``.

    def _whole_course(self) -> Course:
        yield from self._warm_up()
        while True:
            for _ in range(PATIENT):
                if self._turn(True):
                    break
                yield from self._look()
            if self._last.wait_share <= THRESHOLDS.tuned:
                yield from self._give_back()
            else:
                yield from self._climb()
            self._turn(False)
            yield from self._rest()

    def _look(self) -> Course:
        self._last = yield

    def _warm_up(self) -> Course:
        """Wait until two windows are similar: at first, files and code aren't in memory."""
        yield from self._look()
        for _ in range(WARM):
            before = self._last.rows_per_s
            yield from self._look()
            if before / CLEAR <= self._last.rows_per_s <= before * CLEAR:
                return

    def _give_back(self) -> Course:
        """Leave no more workers at work than the training loop needs."""
        while self._bounds.workers and (enough := self._enough()) < self.setting.workers:
            why = f"the training loop limits the run, and {_workers(enough)} are enough for it"
            if not (yield from self._keeps(self._with(workers=enough), why, fewer=True)):
                return

    def _enough(self) -> int:
        """Workers that can do what these do."""
        return max(math.ceil(self.setting.workers * self._last.busy / LOAD), 1)

    def _climb(self) -> Course:
        """The workers and slots with which the input is fastest."""
        deeper = True
        while deeper:
            if self._bounds.workers:
                yield from self._share()
                yield from self._more()
            deeper = self._bounds.slots and (yield from self._deeper())
        if self._bounds.workers:
            yield from self._fewer()

    def _share(self) -> Course:
        """Use no more computing workers than other loaders leave processors for this one."""
        cores = self.cores
        if cores < self._all_cores and self._last.on_cpu >= THRESHOLDS.most and self.setting.workers > cores:
            mine = "one processor is" if cores == 1 else f"{cores} processors are"
            why = f"other loaders compute too, and {mine} for this one"
            yield from self._keeps(self._with(workers=cores), why, anyhow=True)

    def _more(self) -> Course:
        """Workers as long as they pay."""
        while (more := self._next()) > self.setting.workers and self._last.wait_share > THRESHOLDS.tuned:
            why = "workers are busy and the training loop waits"
            if not (yield from self._keeps(self._with(workers=more), why)):
                return

    def _next(self) -> int:
        """Return the number of workers to try next; the current number where more can't help."""
        now, last = self.setting.workers, self._last
        if last.busy < THRESHOLDS.busy:
            return now
        at_once = now * last.busy * last.on_cpu  # processors that they keep busy
        more = 4 * now if last.on_cpu <= WAITS else 2 * now
        if last.on_cpu > WAITS:
            more = min(more, max(math.ceil(MEETS * self.cores / last.on_cpu), now))
        if not self._bounds.waits or at_once >= FULL * self.cores:
            more = min(more, self.cores)
        return max(min(more, self._most.workers, self.room), now)

    def _fewer(self) -> Course:
        """Workers as long as fewer are as good: they may be in each other's way, or in that of the training loop."""
        while self.setting.workers > 1:
            now = self.setting.workers
            fewer = now // 2 if self._bounds.waits else now - max(now // 4, 1)
            if not (yield from self._keeps(self._with(workers=fewer), "fewer may be as good", fewer=True)):
                return

    def _deeper(self) -> Generator[None, Seen, bool]:
        """Slots as long as they pay: where workers have too little to do, and rows aren't asked for early enough.

        Says whether any did.
        """
        grown = False
        while self._lacks_work() and self.setting.slots < self._most.slots:
            deeper = min(max(self.setting.slots * 3 // 2, self.setting.slots + 1), self._most.slots)
            why = "the training loop waits, and more batches in turn may be begun earlier"
            if not (yield from self._keeps(replace(self.setting, slots=deeper), why)):
                break
            grown = True
        return grown

    def _lacks_work(self) -> bool:
        return self._last.wait_share > THRESHOLDS.tuned and self._last.busy < IDLE

    def _with(self, workers: int) -> Setting:
        slots = self._bounds.slots_for(workers) if self._bounds.slots else 0
        return Setting(workers, max(self.setting.slots, slots))

    def _keeps(
        self, other: Setting, why: str, *, fewer: bool = False, anyhow: bool = False
    ) -> Generator[None, Seen, bool]:
        """Try another setting, and say whether it is kept: when it pays, or where ``fewer`` workers are as good."""
        before, mine = self.setting, self._last
        with_mine, with_other = [mine.rows_per_s], []
        while True:
            self.setting = other
            yield from self._look()
            other, theirs = self.setting, self._last
            if other == before:  # nothing else is available
                return False
            with_other.append(theirs.rows_per_s)
            gain = _mean(with_other) / max(_mean(with_mine), 1e-9)
            if len(with_other) == ROUNDS or not 1 / CLEAR < gain < CLEAR:
                break
            self.setting = before
            yield from self._look()
            mine = self._last
            with_mine.append(mine.rows_per_s)
        fits = other.workers <= max(self.room, before.workers)
        kept = fits and (anyhow or (_is_as_good if fewer else _pays)(gain, mine, theirs))
        name: Literal["num_workers", "prefetch"] = "num_workers"
        was, tried = before.workers, other.workers
        if was == tried:
            name, was, tried = "prefetch", before.slots - 1, other.slots - 1
        why = why if fits else "memory has no room for so many"
        self.trials.append(Trial(theirs.after_s, name, was, tried, gain, kept, why))
        del self.trials[:-MOST_TRIALS]
        self.setting, self._last = (other, theirs) if kept else (before, mine)
        self.kept = self.setting
        return kept

    def _rest(self) -> Course:
        """Until the run has become another one; or has waited for long, and may have been misjudged."""
        self.settled = True
        since_s, rates, others, cores = self._last.after_s, _Mean(self._last.rows_per_s), 0, self.cores
        kept_up = self._last.wait_share <= THRESHOLDS.tuned
        while others < SURE or self._last.after_s - since_s < self._pause_s:
            yield from self._look()
            if self._is_other(kept_up, rates.value) or self.cores != cores:
                others += 1
            else:
                others = 0
                rates.add(self._last.rows_per_s)
            if self._last.wait_share > LACKS and self._last.after_s - since_s > self._patience_s:
                self._patience_s = min(2 * self._patience_s, LONGEST_PATIENCE_S)
                break
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self.settled = False

    def _is_other(self, kept_up: bool, rate: float) -> bool:
        """Return True if the last window differs so much that the run must be tuned anew."""
        last = self._last
        if last.wait_share > LACKS:
            return kept_up or abs(last.rows_per_s - rate) > OTHER * rate
        if last.wait_share <= THRESHOLDS.tuned:
            return not kept_up or 2 * self._enough() <= self.setting.workers
        return False


def _pays(gain: float, before: Seen, with_it: Seen) -> bool:
    """Return True if the loop is faster, or waits far less where slower ranks or others hold it up."""
    relieved = with_it.wait_share <= RELIEF * before.wait_share
    return gain >= WORTH or (gain >= AS_GOOD and relieved)


def _is_as_good(gain: float, before: Seen, with_it: Seen) -> bool:
    """Return True if the loop is as fast and waits no more; slower ranks or others may hold it up."""
    return gain >= AS_GOOD and with_it.wait_share <= max(LACKS, before.wait_share + MORE_WAIT)


class _Mean:
    """A mean of recent windows."""

    def __init__(self, first: float) -> None:
        self.value = first

    def add(self, value: float) -> None:
        self.value += (value - self.value) / 8


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _workers(number: int) -> str:
    return "one worker" if number == 1 else f"{number} workers"
