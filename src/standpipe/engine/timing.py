"""Count how long tasks and their steps take."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import NamedTuple

from standpipe import _native
from standpipe.stats.counters import PlaceStats, SlotStats, Stats, StepStats
from standpipe.stats.latency import Latency

# Timing a task costs about 20 µs. These limits bound that cost.
EVERY_NS = 10_000_000  # nanoseconds between two timed tasks
TIMED_ROWS = 4  # rows of a task that are timed


class Took(NamedTuple):
    """The time that a task took in Python, together with earlier tasks that weren't timed in detail.

    seconds   seconds from the task's beginning to its end
    cpu_s     CPU seconds of the thread
    queued_s  seconds that the thread was ready to run but waited for a CPU
    rows      nanoseconds of each of the task's first rows
    steps     seconds of each step by its number in ``board``, estimated for all rows from the timed rows
    """

    seconds: float
    cpu_s: float
    queued_s: float
    rows: tuple[int, ...]
    steps: dict[int, float]


class Laps:
    """The timer of one thread. At most every 10 ms it times a task: its first four rows, and their steps.

    on      True if the current row is timed
    guest   True if the thread is the training loop's, which does other things between tasks
    """

    def __init__(self) -> None:
        self.on = self.guest = False
        self._piece = False  # True if the current task is timed
        self._next_ns = self._begin_ns = 0
        self._spent_ns: tuple[int, int] | None = None  # last result of ``_spent_ns()``
        self._untimed = 0  # rows since the last timed ones
        self._rows: list[int] = []
        self._steps: dict[int, int] = {}
        self._whole: dict[int, int] = {}

    def piece_begins(self) -> None:
        """Record that a task begins, and decide if the task is timed."""
        self._begin_ns = now = time.monotonic_ns()
        timed = now >= self._next_ns
        if self._spent_ns is None or (self.guest and timed):
            self._spent_ns = _spent_ns()
        # Last, as ``took`` needs the rest of a timed task even if an interrupt ends this method.
        self._piece = timed
        if timed:
            self._next_ns = now + EVERY_NS

    def begins(self) -> None:
        """Record that a row begins, and decide if the row is timed."""
        self.on = self._piece and len(self._rows) < TIMED_ROWS

    def ends(self, since_ns: int) -> None:
        """Record that the timed row is finished.

        since_ns  when the row began, in nanoseconds of ``time.monotonic_ns()``
        """
        self._rows.append(time.monotonic_ns() - since_ns)
        self.on = False

    def together(self, rows: int, *since_ns: int) -> None:
        """Record that ``rows`` samples were made at once; their mean time counts as one row.

        since_ns  when the first sample began, and when each later step of all samples began, in nanoseconds of
                  ``time.monotonic_ns()``
        """
        if self.on:
            ends_ns = *since_ns[1:], time.monotonic_ns()
            self._rows.append((ends_ns[-1] - since_ns[0]) // rows)
            for number, (begin_ns, end_ns) in enumerate(zip(since_ns, ends_ns, strict=True)):
                self._steps[number] = self._steps.get(number, 0) + (end_ns - begin_ns) // rows
            self.on = False

    def step(self, number: int, begin_ns: int) -> int:
        """Count the time of a step of the timed row, and return the current time.

        begin_ns  when the step began, in nanoseconds of ``time.perf_counter_ns()``, as is the result
        """
        now = time.perf_counter_ns()
        self._steps[number] = self._steps.get(number, 0) + now - begin_ns
        return now

    def whole(self, number: int, begin_ns: int) -> None:
        """Count the time of a function of the whole batch, from ``begin_ns`` of ``time.perf_counter_ns()`` to now."""
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
    """Return this thread's nanoseconds on a CPU, and of waiting for a CPU (0 if the system doesn't report that)."""
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
    """The counters of a run, except those of its workers.

    order, batch, device  counters of the work of the run's own threads at these places
    steps                 counter of the training loop's steps
    bad                   number of rows that could not be made
    no_slot               seconds so far without a free slot; and the time since when no slot is free now, or None. A
                          tuple, so that both change together
    """

    def __init__(self) -> None:
        self.order, self.batch, self.device = (_native.PlaceCounter() for _ in range(3))
        self.steps = _native.StepCounter()
        self.bad = 0
        self._process_s = time.process_time()
        self.no_slot: tuple[float, float | None] = (0.0, None)

    @property
    def no_slot_s(self) -> float:
        """The seconds in which no batch was begun because no slot was free, up to now."""
        now = time.perf_counter()  # before no_slot is read, so that the number never falls
        before_s, begin = self.no_slot
        return before_s if begin is None else before_s + max(now - begin, 0.0)

    def stats(self, workers: Stats, slots: SlotStats, copying_s: float) -> Stats:
        """Return all counters of the run: ``workers``, with these counters, ``slots`` and ``copying_s`` filled in.

        copying_s  seconds that the device has spent on copies
        """
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
