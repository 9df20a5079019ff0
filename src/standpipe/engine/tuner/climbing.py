"""Find the best number of workers while a loader runs: try numbers, and keep those that help.

The search is a generator: it sets ``Tuner.workers``, yields, and gets the measurements with this number. So it reads
like a list of steps and needs no clock and no threads. Tests run it against simulated training loops.

To compare two numbers, the search measures both in turn, in windows of some tenths of a second, until the difference
is clear beside the spread of the windows. More workers are kept if the loop gets faster by 4 %. If they were more than
needed, some are given back. If the training loop limits the run, the search leaves only as many workers as the loop
needs. Then it rests until the run's speed has changed; the pause before each new search is longer than the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from standpipe.plan.tuning import Trial
from standpipe.system.thresholds import THRESHOLDS

LACKS = 0.08  # the loop waits above this fraction of its time
LOAD = 0.8  # busy fraction of the remaining workers, if the loop doesn't need all workers
SIMILAR_RATIO = 1.15  # windows of this ratio or less are similar
CLEAR = 1.4  # two windows are enough if a number is so many times as fast, or as slow, as the other
BUSY_SHARE = 0.92  # more computing workers don't help if workers use this fraction of the CPUs' time
LEAST_SPEEDUP = 1.04  # more workers are kept if the loop is at least so many times as fast
FASTER = (
    1.02  # fewer workers than at the search's begin are kept if the loop is at least so many times as fast
)
AS_GOOD = (
    0.98  # workers that were added are given back if the loop is at least so many times as fast without them
)
WARM = 4  # the search begins at most so many windows after the first one
RELIEF = 0.7  # more workers are kept too if the loop is as fast, and its wait falls to this part or less
MORE_WAIT = 0.05  # fewer workers are kept if the loop's waiting fraction rises by no more than this
ROUNDS = 2  # windows of each number, at least
MOST_ROUNDS = 12  # windows of each number until a gain must be clear beside the spread of the windows
WAITS = 0.25  # many more workers are tried if workers use a CPU for at most this fraction of their work
MEETS = 1.5  # so many times the workers that keep all CPUs busy on average, as they wait at different times
CHANGED_SHARE = 0.3  # the run has changed if its rate differs by more than this fraction
SURE = 3  # windows in a row in which the run must have changed
PATIENCE_S, LONGEST_PATIENCE_S = 120.0, 1800.0  # rest in which the loop waits, before a new search
MOST_TRIALS = 100  # newest trials that are kept
PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0  # seconds between two searches: the first pause and the longest


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


Course = Generator[None, Seen, None]
Windows = Sequence[Seen]
Verdict = Callable[[Windows, Windows], bool | None]


class Tuner:
    """Decides with how many workers a run continues, from the measurements of each window.

    workers  the number that the run must use now; it may be a trial
    kept     the last number that was kept
    settled  True if no number is being tried
    trials   the newest 100 trials, oldest first
    room     estimate of the most workers that the memory has room for; no trial goes above, or is kept above it
    cores    number of CPUs that this loader may use now
    """

    def __init__(self, workers: int, most: int, *, cores: int, waits: bool) -> None:
        """Begin a search.

        workers  the number at the start
        most     the most workers that may be tried
        waits    True if workers may wait for something other than a CPU, such as storage
        """
        self.workers = self.kept = workers
        self._waits = waits
        self.cores = self._all_cores = cores
        self.settled = False
        self.trials: list[Trial] = []
        self.room = self._most = most
        self._pause_s, self._patience_s = PAUSE_S, PATIENCE_S
        self._course = self._whole_course()
        next(self._course)

    def see(self, seen: Seen) -> None:
        """Continue the search with the measurements of a window with ``workers``; this may change ``workers``."""
        self._course.send(seen)

    def close(self) -> None:
        """End the search's generator. The generator refers to this tuner, and would keep it alive."""
        self._course.close()

    def limit(self, most: int) -> None:
        """Set the most workers, as the system allows no more; the run has ``most`` workers now."""
        self.workers = self._most = most
        self.kept = min(self.kept, most)

    # The search. At the end of each part, ``self._last`` has the measurements with ``self.workers``.

    def _whole_course(self) -> Course:
        yield from self._warm_up()
        while True:
            if self._last.wait_share <= THRESHOLDS.tuned:
                yield from self._give_back()
            else:
                yield from self._climb()
            yield from self._rest()

    def _look(self) -> Course:
        self._last = yield

    def _warm_up(self) -> Course:
        """Wait until two windows are similar: at first, files and code aren't in memory."""
        yield from self._look()
        for _ in range(WARM):
            before = self._last.rows_per_s
            yield from self._look()
            if before / SIMILAR_RATIO <= self._last.rows_per_s <= before * SIMILAR_RATIO:
                return

    def _give_back(self) -> Course:
        """Try fewer workers until only as many are left as the training loop needs."""
        while (enough := self._enough()) < self.workers:
            workers = "one worker is" if enough == 1 else f"{enough} workers are"
            why = f"the training loop limits the run, and {workers} enough for it"
            if not (yield from self._keeps(enough, why, _is_as_good)):
                return

    def _enough(self) -> int:
        """Return how many workers are enough for the work of the last window, each busy 80 % of its time."""
        return max(math.ceil(self.workers * self._last.busy / LOAD), 1)

    def _climb(self) -> Course:
        """Find the number of workers with which the loop gets the most rows per second."""
        yield from self._share()
        begin = self.workers
        yield from self._more()
        yield from self._fewer(begin)

    def _share(self) -> Course:
        """Reduce the workers to ``cores``, if they compute most of the time and other loaders need CPUs too."""
        cores = self.cores
        if cores < self._all_cores and self._last.on_cpu >= THRESHOLDS.most and self.workers > cores:
            mine = "one processor is" if cores == 1 else f"{cores} processors are"
            why = f"other loaders compute too, and {mine} for this one"
            yield from self._keeps(cores, why, _anyhow)

    def _more(self) -> Course:
        """Try more workers as long as the loop waits and more workers make it faster."""
        while (more := self._next()) > self.workers and self._last.wait_share > THRESHOLDS.tuned:
            if not (yield from self._keeps(more, "workers are busy and the training loop waits", _pays)):
                return

    def _next(self) -> int:
        """Return the number of workers to try next; the current number if more workers can't help."""
        now, last = self.workers, self._last
        if last.busy < THRESHOLDS.busy:
            return now
        at_once = now * last.busy * last.on_cpu  # CPUs that the workers keep busy
        more = 4 * now if last.on_cpu <= WAITS else 2 * now
        if last.on_cpu > WAITS:
            more = min(more, max(math.ceil(MEETS * self.cores / last.on_cpu), now))
        if not self._waits or at_once >= BUSY_SHARE * self.cores:
            more = min(more, self.cores)
        return max(min(more, self._most, self.room), now)

    def _fewer(self, begin: int) -> Course:
        """Try fewer workers as long as that pays: many workers may slow down each other, or the loop.

        begin  the number when the search began: workers above it are given back if the loop is as fast without them
        """
        while self.workers > 1:
            now = self.workers
            fewer = now // 2 if self._waits else now - max(now // 4, 1)
            if now > begin:
                kept = yield from self._keeps(max(fewer, begin), "fewer may be as good", _is_as_good)
            else:
                kept = yield from self._keeps(fewer, "fewer may be faster", _is_faster)
            if not kept:
                return

    def _keeps(self, other: int, why: str, verdict: Verdict) -> Generator[None, Seen, bool]:
        """Try another number of workers, record the trial, and return True if the number is kept.

        why      the reason of the trial, for people
        verdict  called with the windows of both numbers so far; returns None while more windows are needed
        """
        before, mine, theirs = self.workers, [self._last], list[Seen]()
        while True:
            self.workers = other
            yield from self._look()
            other = self.workers
            if other == before:  # nothing else is available
                return False
            theirs.append(self._last)
            if (kept := verdict(mine, theirs)) is not None:
                break
            self.workers = before
            yield from self._look()
            mine.append(self._last)
        if other > max(self.room, before):
            kept, why = False, "memory has no room for so many"
        self.trials.append(Trial(theirs[-1].after_s, before, other, _gain(mine, theirs), kept, why))
        del self.trials[:-MOST_TRIALS]
        self.workers, self._last = (other, theirs[-1]) if kept else (before, mine[-1])
        self.kept = self.workers
        return kept

    def _rest(self) -> Course:
        """Rest until the run has changed, or until the loop has waited for so long that a new search may help."""
        self.settled = True
        since_s, rate, others, cores = self._last.after_s, self._last.rows_per_s, 0, self.cores
        kept_up = self._last.wait_share <= THRESHOLDS.tuned
        while others < SURE or self._last.after_s - since_s < self._pause_s:
            yield from self._look()
            if self._is_other(kept_up, rate) or self.cores != cores:
                others += 1
            else:
                others = 0
                rate += (self._last.rows_per_s - rate) / 8  # an exponential moving average
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
            return kept_up or abs(last.rows_per_s - rate) > CHANGED_SHARE * rate
        if last.wait_share <= THRESHOLDS.tuned:
            return not kept_up or 2 * self._enough() <= self.workers
        return False


def _anyhow(mine: Windows, theirs: Windows) -> bool | None:
    """Keep the number, whatever the windows say."""
    return True if len(theirs) == ROUNDS else None


def _is_as_good(mine: Windows, theirs: Windows) -> bool | None:
    """Keep fewer workers if the loop is as fast with them, and waits no more."""
    if len(theirs) < ROUNDS:
        return None
    before, after = (_mean([each.wait_share for each in windows]) for windows in (mine, theirs))
    return _gain(mine, theirs) >= AS_GOOD and after <= max(LACKS, before + MORE_WAIT)


def _is_faster(mine: Windows, theirs: Windows) -> bool | None:
    """Keep fewer workers if the loop is clearly faster with them."""
    return _is_clear(_rates(mine), _rates(theirs), FASTER)


def _pays(mine: Windows, theirs: Windows) -> bool | None:
    """Keep more workers if the loop is clearly faster with them, or is as fast and clearly waits far less.

    Slower ranks may hold up a loop that waits less, so that it isn't faster.
    """
    faster = _is_clear(_rates(mine), _rates(theirs), LEAST_SPEEDUP)
    if faster or _gain(mine, theirs) < AS_GOOD:
        return faster
    before, after = ([each.wait_share for each in windows] for windows in (mine, theirs))
    relieved = _is_clear(after, before, 1 / RELIEF, apart=math.inf)
    return relieved or (None if relieved is None or faster is None else False)


def _rates(windows: Windows) -> list[float]:
    return [each.rows_per_s for each in windows]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _gain(mine: Windows, theirs: Windows) -> float:
    """Return the loop's mean rate in ``theirs`` ÷ the one in ``mine``."""
    return _mean(_rates(theirs)) / max(_mean(_rates(mine)), 1e-9)


def _is_clear(low: Sequence[float], high: Sequence[float], least: float, apart: float = CLEAR) -> bool | None:
    """Return True if the mean of ``high`` is clearly ``least`` times that of ``low`` or more, False if it isn't.

    Return None if more values are needed. Two of each are enough if they differ ``apart`` times. Else the difference
    must be large beside its standard error, the more so the fewer values there are, as in Student's t-test. So chance
    decides about one trial in 1,000, and the number of workers doesn't drift in an hour of noise.
    """
    rounds, ratio = len(high), _mean(high) / max(_mean(low), 1e-9)
    if rounds < ROUNDS:
        return None
    if ratio < 1 / CLEAR or (ratio < least and rounds >= MOST_ROUNDS // 2):
        return False
    clear = min(high) > apart * max(low)
    if rounds > ROUNDS:
        error = math.sqrt((np.var(low, ddof=1) + np.var(high, ddof=1)) / rounds)
        clear |= _mean(high) - _mean(low) > (3.5 + 10 / (rounds - 1)) * error
    if clear and ratio >= least:
        return True
    return False if rounds == MOST_ROUNDS else None
