"""Count how long tasks and their steps take."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import NamedTuple

from standpipe import _native
from standpipe.stats.counters import Latency, PlaceStats, SlotStats, Stats, StepStats

# Timing a piece of work costs some twenty microseconds: so not oftener than this, and no more of its rows.
EVERY_NS = 10_000_000
TIMED_ROWS = 4


class Took(NamedTuple):
    """The time that a task took in Python, together with earlier tasks that weren't timed in detail.

    seconds   from its beginning to its end
    cpu_s     processor seconds of its thread
    queued_s  seconds that the thread was ready to run and had no processor
    rows      nanoseconds of each of the task's first rows
    steps     seconds of each step, by its number as in ``board``: for all rows, scaled from those that were
    timed
    """

    seconds: float
    cpu_s: float
    queued_s: float
    rows: tuple[int, ...]
    steps: dict[int, float]


class Laps:
    """Times a piece of work now and then: its first rows, and the steps that make them. One thread's.

    on      whether what is at hand is timed
    guest   whether the thread is somebody else's, who does other things between pieces
    """

    def __init__(self) -> None:
        self.on = self.guest = False
        self._piece = False  # whether this piece is timed
        self._next_ns = self._begin_ns = 0
        self._spent_ns: tuple[int, int] | None = None  # of the thread, as ``_spent_ns`` last said
        self._untimed = 0  # rows since then
        self._rows: list[int] = []
        self._steps: dict[int, int] = {}
        self._whole: dict[int, int] = {}

    def piece_begins(self) -> None:
        """A piece of work begins."""
        self._begin_ns = now = time.monotonic_ns()
        self._piece = now >= self._next_ns
        if self._piece:
            self._next_ns = now + EVERY_NS
        if self._spent_ns is None or (self.guest and self._piece):
            self._spent_ns = _spent_ns()

    def begins(self) -> None:
        """A row begins."""
        self.on = self._piece and len(self._rows) < TIMED_ROWS

    def ends(self, since_ns: int) -> None:
        """The row that is timed, since that time of ``time.monotonic_ns()``, is made."""
        self._rows.append(time.monotonic_ns() - since_ns)
        self.on = False

    def together(self, rows: int, since_ns: int) -> None:
        """Note that the dataset made ``rows`` samples since ``since_ns``; the first one's time stands for
        all.
        """
        if self.on:
            each = (time.monotonic_ns() - since_ns) // rows
            self._rows.append(each)
            self._steps[0] = self._steps.get(0, 0) + each
            self.on = False

    def step(self, number: int, begin_ns: int) -> int:
        """A step of the row that is timed, since that time; the time now."""
        now = time.perf_counter_ns()
        self._steps[number] = self._steps.get(number, 0) + now - begin_ns
        return now

    def whole(self, number: int, begin_ns: int) -> None:
        """A step with the whole batch, since that time."""
        self._whole[number] = self._whole.get(number, 0) + time.perf_counter_ns() - begin_ns

    def took(self, rows: int) -> Took:
        """Return how long a task of ``rows`` rows took."""
        self._untimed += rows
        seconds = (time.monotonic_ns() - self._begin_ns) / 1e9
        if not self._piece and not self._whole:
            return Took(seconds, 0.0, 0.0, (), {})
        steps = {number: ns / 1e9 for number, ns in self._whole.items()}
        cpu_s = queued_s = 0.0
        if self._piece:
            assert self._spent_ns is not None
            before, self._spent_ns = self._spent_ns, _spent_ns()
            each = self._untimed / max(rows, 1) if self.guest else 1
            cpu_s, queued_s = (
                each * (now - then) / 1e9 for now, then in zip(self._spent_ns, before, strict=True)
            )
        if self._rows:
            each = self._untimed / len(self._rows)
            steps |= {number: each * ns / 1e9 for number, ns in self._steps.items()}
            self._untimed = 0
        took = Took(seconds, cpu_s, queued_s, tuple(self._rows), steps)
        self._rows, self._steps, self._whole = [], {}, {}
        self.on = False
        return took


def _spent_ns() -> tuple[int, int]:
    """Nanoseconds of this thread: on a processor, and without one although it could have run, where the system says."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return time.thread_time_ns(), 0
    try:
        return time.thread_time_ns(), int(os.read(file, 64).split()[1])
    finally:
        os.close(file)


def stats_of(counter: _native.PlaceCounter) -> PlaceStats:
    """Return the counters of a place with one thread."""
    return PlaceStats(threads=1, rows=counter.rows, busy_s=counter.busy_s, latency=Latency(counter.latency))


class RunTimes:
    """Counters of a run, besides its workers'.

    order, batch, device  its threads' work at these places
    steps                 the training loop's
    bad                   rows that could not be made
    no_slot               seconds without a free slot, and since when that is so now; replaced as one value
    """

    def __init__(self) -> None:
        self.order, self.batch, self.device = (_native.PlaceCounter() for _ in range(3))
        self.steps = _native.StepCounter()
        self.bad = 0
        self._process_s = time.process_time()
        self.no_slot: tuple[float, float | None] = (0.0, None)

    @property
    def no_slot_s(self) -> float:
        """Seconds that nothing was made because there was no slot to make it in, up to now."""
        now = time.perf_counter()  # first: what ends meanwhile has lasted longer, so the number never falls
        before_s, begin = self.no_slot
        return before_s if begin is None else before_s + max(now - begin, 0.0)

    def stats(self, workers: Stats, slots: SlotStats, copying_s: float) -> Stats:
        """Return the counters together with the workers', the slots' states and a device's copy seconds."""
        device, steps = stats_of(self.device), self.steps
        return replace(
            workers,
            time_s=time.monotonic(),
            cpu_s=time.process_time() - self._process_s,
            bad=self.bad,
            order=stats_of(self.order),
            batch=stats_of(self.batch),
            device=replace(device, busy_s=device.busy_s + copying_s, cpu_s=device.busy_s),
            step=StepStats(
                steps=steps.steps,
                rows=steps.rows,
                step_s=steps.step_s,
                wait_s=steps.wait_s,
                step=Latency(steps.step_latency),
                wait=Latency(steps.wait_latency),
                ready=steps.ready,
            ),
            slots=replace(slots, no_slot_s=self.no_slot_s),
        )
