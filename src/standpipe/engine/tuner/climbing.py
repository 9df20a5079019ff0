"""Find the best numbers of workers and slots while a loader runs: try settings, and keep those that help.

The search is a generator: it sets ``Tuner.setting``, yields, and gets the measurements with this setting. So it reads
like a list of steps and needs no clock and no threads. Tests run it against simulated training loops.

To compare two settings, the search measures both in turn, in windows of some tenths of a second, until the difference
is clear. More workers are kept if the loop gets faster by 4 %. Fewer workers are kept if the loop stays as fast. If the
training loop limits the run, the search leaves only as many workers as the loop needs. Then it rests until the run's
speed has changed; the pause before each new search is longer than the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Literal

from standpipe.plan.tuning import Trial
from standpipe.system.thresholds import THRESHOLDS

LACKS = 0.08  # the loop waits above this fraction of its time
IDLE = 0.9  # more batches in progress may help if workers are busy for less than this fraction of their time
LOAD = 0.8  # busy fraction of the remaining workers, if the loop doesn't need all workers
CLEAR = 1.15  # one window is enough if a setting is so many times as fast, or as slow, as the other
FULL = 0.92  # more computing workers don't help if workers use this fraction of the CPUs' time
WORTH = 1.04  # more workers or slots are kept if the loop is at least so many times as fast
AS_GOOD = 0.98  # fewer workers are kept if the loop is at least so many times as fast
WARM = 4  # the search begins at most so many windows after the first one
RELIEF = 0.7  # more workers are kept too if the loop is as fast, and its wait falls to this part or less
MORE_WAIT = 0.05  # fewer workers are kept if the loop's waiting fraction rises by no more than this
ROUNDS = 2  # windows of each setting, if the difference isn't clear before
WAITS = 0.25  # many more workers are tried if workers use a CPU for at most this fraction of their work
MEETS = 1.5  # so many times the workers that keep all CPUs busy on average, as they wait at different times
OTHER = 0.3  # the run has changed if its rate differs by more than this fraction
SURE = 3  # windows in a row in which the run must have changed
PATIENCE_S, LONGEST_PATIENCE_S = 120.0, 1800.0  # rest in which the loop waits, before a new search
MOST_TRIALS = 100  # newest trials that are kept
PATIENT = 60  # most windows to wait until other loaders have finished their trials
PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0  # seconds between two searches: the first pause and the longest


@dataclass(frozen=True, slots=True)
class Setting:
    """The numbers of workers and slots of a run, which the tuner sets."""

    workers: int
    slots: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Measurements of a window.

    after_s     seconds from the run's start to the window's end
    rows_per_s  rows that the training loop took per second
    wait_share  fraction of the loop's time in which it waited for batches, from 0 to 1
    busy        fraction of the workers' time in which they worked, from 0 to 1
    on_cpu      fraction of the workers' working time in which they used a CPU, from 0 to 1
    """

    after_s: float
    rows_per_s: float
    wait_share: float
    busy: float
    on_cpu: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the settings that may be tried.

    most       the most workers and slots
    workers    True if the number of workers is tuned
    slots      True if the number of slots is tuned
    waits      True if workers may wait for something other than a CPU, such as storage
    slots_for  returns the number of slots that a number of workers needs
    """

    most: Setting
    workers: bool
    slots: bool
    waits: bool
    slots_for: Callable[[int], int]


Course = Generator[None, Seen, None]


class Tuner:
    """Decides with how many workers and slots a run continues, from the measurements of each window.

    setting  the setting that the run must use now; it may be a trial
    kept     the last setting that was kept
    settled  True if no setting is being tried
    trials   the newest 100 trials, oldest first
    room     estimate of the most workers that the memory has room for; no trial goes above, or is kept above it
    cores    number of CPUs that this loader may use now
    turn     called with True to ask for the only turn of all loaders to try settings, with False to return the turn
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
        """Continue the search with the measurements of a window with ``setting``; this may change ``setting``."""
        self._course.send(seen)

    def close(self) -> None:
        """End the search's generator. The generator refers to this tuner, and would keep it alive."""
        self._course.close()

    def limit(self, most: int) -> None:
        """Set the most workers, as the system allows no more; the run has ``most`` workers now."""
        self._most = replace(self._most, workers=most)
        self.setting = replace(self.setting, workers=most)
        self.kept = replace(self.kept, workers=min(self.kept.workers, most))

    # The search. At the end of each part, ``self._last`` has the measurements with ``self.setting``.

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
        """Try fewer workers until only as many are left as the training loop needs."""
        while self._bounds.workers and (enough := self._enough()) < self.setting.workers:
            why = f"the training loop limits the run, and {_workers(enough)} are enough for it"
            if not (yield from self._keeps(self._with(workers=enough), why, fewer=True)):
                return

    def _enough(self) -> int:
        """Return how many workers are enough for the work of the last window, each busy 80 % of its time."""
        return max(math.ceil(self.setting.workers * self._last.busy / LOAD), 1)

    def _climb(self) -> Course:
        """Find the numbers of workers and slots with which the loop gets the most rows per second."""
        deeper = True
        while deeper:
            if self._bounds.workers:
                yield from self._share()
                yield from self._more()
            deeper = self._bounds.slots and (yield from self._deeper())
        if self._bounds.workers:
            yield from self._fewer()

    def _share(self) -> Course:
        """Reduce the workers to ``cores``, if they compute most of the time and other loaders need CPUs too."""
        cores = self.cores
        if cores < self._all_cores and self._last.on_cpu >= THRESHOLDS.most and self.setting.workers > cores:
            mine = "one processor is" if cores == 1 else f"{cores} processors are"
            why = f"other loaders compute too, and {mine} for this one"
            yield from self._keeps(self._with(workers=cores), why, anyhow=True)

    def _more(self) -> Course:
        """Try more workers as long as the loop waits and more workers make it faster."""
        while (more := self._next()) > self.setting.workers and self._last.wait_share > THRESHOLDS.tuned:
            why = "workers are busy and the training loop waits"
            if not (yield from self._keeps(self._with(workers=more), why)):
                return

    def _next(self) -> int:
        """Return the number of workers to try next; the current number if more workers can't help."""
        now, last = self.setting.workers, self._last
        if last.busy < THRESHOLDS.busy:
            return now
        at_once = now * last.busy * last.on_cpu  # CPUs that the workers keep busy
        more = 4 * now if last.on_cpu <= WAITS else 2 * now
        if last.on_cpu > WAITS:
            more = min(more, max(math.ceil(MEETS * self.cores / last.on_cpu), now))
        if not self._bounds.waits or at_once >= FULL * self.cores:
            more = min(more, self.cores)
        return max(min(more, self._most.workers, self.room), now)

    def _fewer(self) -> Course:
        """Try fewer workers as long as the loop stays as fast: many workers may slow down each other, or the loop."""
        while self.setting.workers > 1:
            now = self.setting.workers
            fewer = now // 2 if self._bounds.waits else now - max(now // 4, 1)
            if not (yield from self._keeps(self._with(workers=fewer), "fewer may be as good", fewer=True)):
                return

    def _deeper(self) -> Generator[None, Seen, bool]:
        """Try more slots, so that workers can begin batches earlier, as long as workers are idle and the loop waits.

        Return True if more slots were kept.
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
        """Try another setting, record the trial, and return True if the setting is kept.

        why     the reason of the trial, for people
        fewer   True: keep it if the loop is as fast as before; False: keep it if the loop is faster
        anyhow  True: keep it whatever the measurements say
        """
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
        """Rest until the run has changed, or until the loop has waited for so long that a new search may help."""
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
        """Return True if the last window differs so much that the run must be tuned again.

        kept_up  True if the loop didn't wait when the rest began
        rate     mean rows per second during the rest
        """
        last = self._last
        if last.wait_share > LACKS:
            return kept_up or abs(last.rows_per_s - rate) > OTHER * rate
        if last.wait_share <= THRESHOLDS.tuned:
            return not kept_up or 2 * self._enough() <= self.setting.workers
        return False


def _pays(gain: float, before: Seen, with_it: Seen) -> bool:
    """Return True if more workers or slots help: the loop is faster, or is as fast and waits far less.

    gain     rows per second with the new setting, divided by those before
    with_it  measurements with the new setting

    Slower ranks may hold up a loop that waits less, so that it isn't faster.
    """
    relieved = with_it.wait_share <= RELIEF * before.wait_share
    return gain >= WORTH or (gain >= AS_GOOD and relieved)


def _is_as_good(gain: float, before: Seen, with_it: Seen) -> bool:
    """Return True if the loop is as fast with fewer workers, and waits no more; see ``_pays`` for the arguments."""
    return gain >= AS_GOOD and with_it.wait_share <= max(LACKS, before.wait_share + MORE_WAIT)


class _Mean:
    """An exponential moving average: each new value has the weight 1/8."""

    def __init__(self, first: float) -> None:
        self.value = first

    def add(self, value: float) -> None:
        self.value += (value - self.value) / 8


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _workers(number: int) -> str:
    return "one worker" if number == 1 else f"{number} workers"
