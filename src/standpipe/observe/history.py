"""A loader's history: a series of moments that stays short, however long the run."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import standpipe as sp

PLACES = ("order", "read", "transform", "batch", "device")  # that are timed; the source is part of order
MOMENTS = 600  # of half a kilobyte in a report
SECOND = 1.0
RECENT = 64  # rows for what was lately
RECENT_S = 0.25  # that each of them has at least, however often somebody looks

# What a moment is made of: sums over its time, then what is so at its end, then the most that was seen in it.
COLUMNS = (
    *("seconds", "steps", "rows", "step_s", "wait_s", "ready", "bad", "bytes"),
    *(f"{place} busy_s" for place in PLACES),
    *(f"{place} thread_s" for place in PLACES),
    *("epoch", "memory"),
)
STEPS, STEP_S, WAIT_S = map(COLUMNS.index, ("steps", "step_s", "wait_s"))
LOOP = slice(STEPS, COLUMNS.index("ready") + 1)
EPOCH, MEMORY = len(COLUMNS) - 2, len(COLUMNS) - 1
BUSY = slice(COLUMNS.index("order busy_s"), COLUMNS.index("order busy_s") + len(PLACES))
THREADS = slice(BUSY.stop, BUSY.stop + len(PLACES))
BY_WORKERS = list(map(COLUMNS.index, ("bytes", "read busy_s", "transform busy_s")))
BY_ONE = {place: COLUMNS.index(f"{place} busy_s") for place in ("order", "batch", "device")}


@dataclass(frozen=True, slots=True)
class Moment:
    """The figures of some seconds of a run.

    Attributes
    ----------
    begin_s, seconds : float
        Its beginning since the loader's start, and its length.
    epoch : int
        The epoch at its end.
    steps : float
        Batches that the training loop took; a batch that took longer counts in parts.
    rows : float
        Rows of the batches that ``steps`` counts.
    bytes : float
        Bytes of encoded samples that were read.
    bad : int
        Rows that couldn't be made.
    step_s, wait_s : float
        Seconds of the training loop's own work, and of its waiting.
    ready : float
        The mean number of batches that were ready when the training loop requested one.
    memory : int
        The most bytes that the loader used of ``memory=``.
    load : mapping of str to float
        For each place, the fraction of its threads' time in which they worked, from 0 to 1.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     batches = list(loader)
    ...     for moment in loader.history.moments:
    ...         waiting = moment.wait_s / moment.seconds
    """

    begin_s: float
    seconds: float
    epoch: int
    steps: float
    rows: float
    bytes: int
    bad: int
    step_s: float
    wait_s: float
    ready: float
    memory: int
    load: Mapping[str, float]

    @property
    def rows_per_s(self) -> float:
        """Rows that the training loop took in a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def wait_share(self) -> float:
        """Fraction of its time that the training loop waited, from 0 to 1."""
        whole = self.step_s + self.wait_s
        return self.wait_s / whole if whole else 0.0


class History:
    """The run of a loader over time, as at most 600 moments, oldest first. ``loader.history`` is it.

    A moment is one second long at first. When there are 600, neighbours are merged, and each is twice as long
    from then on. Figures are spread over the time that they cover. So the newest moments lack work that isn't
    finished.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     batches = list(loader)
    ...     history = loader.history
    >>> sum(moment.rows for moment in history.moments) <= 20
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows = np.zeros((MOMENTS, len(COLUMNS)))
        self._count = 0
        self._least_s = SECOND
        self._recent: deque[NDArray[np.float64]] = deque(maxlen=RECENT)
        self._before: NDArray[np.float64] | None = None
        self._taken = np.zeros(LOOP.stop - LOOP.start)  # counters of the loop when it took its last batch
        self._worked: dict[str, float] = {}  # seconds, by worker
        self._until: dict[str, float] = {}  # when each had done what it was last seen to have done

    def __len__(self) -> int:
        return self._count

    @property
    def moments(self) -> list[Moment]:
        """Return all moments; the newest one may still grow."""
        with self._lock:
            rows = self._rows[: self._count].copy()
        begins = np.cumsum(rows[:, 0]) - rows[:, 0]
        return [_moment(begin, row) for begin, row in zip(begins.tolist(), rows, strict=True)]

    def recent(self, seconds: float = 10.0) -> Moment:
        """Return the newest ``seconds`` of the run as one moment, or a little more. A shorter run is returned whole."""
        with self._lock:
            whole = self._rows[: self._count, 0].sum()
            rows = np.array(self._recent)[::-1] if self._recent else np.zeros((1, len(COLUMNS)))
        enough = int(np.searchsorted(np.cumsum(rows[:, 0]), seconds - SECOND / 2)) + 1
        row = rows[:enough].sum(axis=0)
        row[EPOCH], row[MEMORY] = rows[0, EPOCH], rows[:enough, MEMORY].max()
        return _moment(float(whole - row[0]), row)

    def add(self, stats: sp.Stats, memory: int) -> None:
        """Add the figures since the last call to the history. The first call only stores the counters.

        memory  bytes that all owners use now
        """
        if stats.time_s == 0:  # it hasn't started
            return
        now = _counted(stats)
        with self._lock:
            before, self._before = self._before, now
            if before is None:
                self._until["loop"] = now[0]
            if before is None or now[0] <= before[0]:
                return
            row = _between(before, now, stats.epoch, memory)
            if self._recent and _is_short(self._recent[-1], row, RECENT_S):
                _join(self._recent[-1], row)
            else:
                self._recent.append(row)
            rest = row.copy()
            rest[LOOP] = rest[BY_WORKERS] = rest[BUSY] = 0
            self._append(rest)
            self._spread(row, now, stats)

    def _spread(self, row: NDArray[np.float64], now: NDArray[np.float64], stats: sp.Stats) -> None:
        """Distribute a row's figures over the moments in which the work was done.

        now  the counters at the end of the row
        """
        rows = self._rows[: self._count]
        begins = now[0] - np.cumsum(rows[::-1, 0])[::-1]
        span = Span(now[0] - row[0], now[0])
        taken = now[LOOP] - self._taken
        if taken[0]:
            self._taken = now[LOOP]
            covered = self._covered("loop", taken[STEP_S - STEPS] + taken[WAIT_S - STEPS], span)
            rows[:, LOOP] += np.outer(_shares(begins, [(covered, 1.0)]), taken)
        for place, column in BY_ONE.items():
            rows[:, column] += (
                _shares(begins, [(self._worked_in(place, row[column], span), 1.0)]) * row[column]
            )
        rows[:, BY_WORKERS] += np.outer(_shares(begins, list(self._pieces(stats, span))), row[BY_WORKERS])

    def _pieces(self, stats: sp.Stats, span: Span) -> Iterator[tuple[Span, float]]:
        """Yield for each worker (span in which it did its newest work, seconds of that work)."""
        for worker in stats.workers:
            worked_s = worker.busy_s - self._worked.get(worker.name, 0.0)
            if worked_s > 0:
                self._worked[worker.name] = worker.busy_s
                yield self._worked_in(worker.name, worked_s, span), worked_s

    def _worked_in(self, who: str, worked_s: float, span: Span) -> Span:
        """Return when a worker did its work: in the last span, unless the work took longer than that."""
        if worked_s <= span.end - span.begin:
            self._until[who] = span.end
            return span
        return self._covered(who, worked_s, span)

    def _covered(self, who: str, took_s: float, span: Span) -> Span:
        """Return when a worker did work that took so long and has just ended, given that it works
        sequentially.
        """
        end = min(max(self._until.get(who, math.inf) + took_s, span.begin), span.end)
        self._until[who] = end
        return Span(end - took_s, end)

    def _append(self, row: NDArray[np.float64]) -> None:
        if self._count and _is_short(self._rows[self._count - 1], row, self._least_s):
            _join(self._rows[self._count - 1], row)
            return
        if self._count == MOMENTS:
            self._halve()
            self._append(row)
            return
        self._rows[self._count] = row
        self._count += 1

    def _halve(self) -> None:
        """Merge each pair of neighbouring moments."""
        for number in range(0, MOMENTS, 2):
            _join(self._rows[number], self._rows[number + 1])
        self._rows[: MOMENTS // 2] = self._rows[::2].copy()
        self._count, self._least_s = MOMENTS // 2, 2 * self._least_s


class Span(NamedTuple):
    """A period from ``begin`` to ``end``, in seconds by the clock of the counters."""

    begin: float
    end: float


def _shares(begins: NDArray[np.float64], spans: Sequence[tuple[Span, float]]) -> NDArray[np.float64]:
    """Return for each moment the fraction of the spans' weight that falls into it; the fractions sum to 1.

    begins  begins of the moments; the last one lasts until now
    """
    ends = np.append(begins[1:], np.inf)
    shares = np.zeros(len(begins))
    for span, weight in spans:
        inside = np.maximum(np.minimum(ends, span.end) - np.maximum(begins, span.begin), 0.0)
        shares += weight * inside / max(inside.sum(), 1e-9)
    if shares.sum() <= 0:  # no span is known
        shares[-1] = 1.0
    shares /= shares.sum()
    return shares


def moment_between(before: sp.Stats, after: sp.Stats, memory: int, begin_s: float) -> Moment:
    """Return the figures between two snapshots of the counters as a ``Moment``.

    memory   bytes of all owners now
    begin_s  time of the first snapshot, since the loader started
    """
    return _moment(begin_s, _between(_counted(before), _counted(after), after.epoch, memory))


def load(busy_s: float, thread_s: float) -> float:
    """Return busy_s / thread_s, limited to 0 to 1: the fraction of a place's time in which it worked."""
    return float(min(max(busy_s / thread_s, 0.0), 1.0)) if thread_s > 0 else 0.0


def threads_at(stats: sp.Stats, place: str) -> int:
    """Return the number of threads at a place. A place without threads of its own uses those that make rows."""
    own: sp.PlaceStats = getattr(stats, place)
    return own.threads or (stats.transform.threads if place == "read" else 0) or 1


def _counted(stats: sp.Stats) -> NDArray[np.float64]:
    """Return the counters in the order of ``COLUMNS``: thread numbers for thread_s, 0 for epoch and memory."""
    step = stats.step
    return np.array(
        [
            *(
                stats.time_s,
                step.steps,
                step.rows,
                step.step_s,
                step.wait_s,
                step.ready,
                stats.bad,
                stats.read.bytes,
            ),
            *(getattr(stats, place).busy_s for place in PLACES),
            *(threads_at(stats, place) for place in PLACES),
            *(0, 0),
        ],
        np.float64,
    )


def _between(
    before: NDArray[np.float64], after: NDArray[np.float64], epoch: int, memory: int
) -> NDArray[np.float64]:
    row = after - before
    row[THREADS] = row[0] * after[THREADS]
    row[EPOCH:] = epoch, memory
    return row


def _is_short(row: NDArray[np.float64], after: NDArray[np.float64], least_s: float) -> bool:
    """Return True if ``row`` is so short that ``after`` should be merged into it."""
    return bool(row[0] + after[0] / 2 < least_s)


def _join(row: NDArray[np.float64], after: NDArray[np.float64]) -> None:
    """Merge the row ``after`` into its neighbour ``row``, in place."""
    row[:EPOCH] += after[:EPOCH]
    row[EPOCH] = after[EPOCH]
    row[MEMORY] = max(row[MEMORY], after[MEMORY])


def _moment(begin_s: float, row: NDArray[np.float64]) -> Moment:
    at = dict(zip(COLUMNS, row.tolist(), strict=True))
    return Moment(
        begin_s=begin_s,
        seconds=at["seconds"],
        epoch=int(at["epoch"]),
        steps=at["steps"],
        rows=at["rows"],
        bytes=round(at["bytes"]),
        bad=int(at["bad"]),
        step_s=at["step_s"],
        wait_s=at["wait_s"],
        ready=at["ready"] / at["steps"] if at["steps"] else 0.0,
        memory=int(at["memory"]),
        load={place: load(at[f"{place} busy_s"], at[f"{place} thread_s"]) for place in PLACES},
    )
