"""How long things take, counted by who does them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from penstock.counters import BUCKETS, Latency, PlaceStats, SlotStats, Stats, StepStats, bucket

TIMED_ROWS = 4  # of each piece of work, however many rows it has: timing one costs about a microsecond


class Times:
    """Counts durations."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS

    def add(self, nanoseconds: int) -> None:
        """One more."""
        self._counts[bucket(nanoseconds)] += 1

    def so_far(self) -> Latency:
        """All of them."""
        return Latency(tuple(self._counts))


class PlaceTimes:
    """Counts what one thread does at a place, batch by batch."""

    def __init__(self) -> None:
        self._times = Times()
        self._rows = self._busy_ns = 0

    def add(self, begin_ns: int, rows: int) -> None:
        """One more batch, since that time of ``time.perf_counter_ns()``."""
        took = time.perf_counter_ns() - begin_ns
        self._busy_ns += took
        self._rows += rows
        self._times.add(took)

    def so_far(self) -> PlaceStats:
        """What was done until now."""
        return PlaceStats(
            threads=1, rows=self._rows, busy_s=self._busy_ns / 1e9, latency=self._times.so_far()
        )


class Steps:
    """Counts what the training loop does, from what it asks for and gets.

    wait_s  seconds that it has waited
    """

    def __init__(self) -> None:
        self._step, self._wait = Times(), Times()
        self._steps = self._rows = self._ready = 0
        self._step_ns = self._wait_ns = 0
        self._since_ns: int | None = None  # when it got a batch that it works on

    def asks(self) -> int:
        """It asks for a batch, and so is done with the one before. When that was, for ``gets``."""
        now = time.perf_counter_ns()
        self._end(now)
        return now

    def gets(self, asked_ns: int, rows: int, ready: int) -> None:
        """It has a batch of so many rows, after it asked at that time, when ``ready`` were there."""
        now = time.perf_counter_ns()
        self._wait_ns += now - asked_ns
        self._wait.add(now - asked_ns)
        self._steps += 1
        self._rows += rows
        self._ready += ready
        self._since_ns = now

    def leaves(self) -> None:
        """It asks for no more of this epoch: what it does until it asks again is no step."""
        self._end(time.perf_counter_ns())

    def so_far(self) -> StepStats:
        """What it has done until now."""
        return StepStats(
            steps=self._steps,
            rows=self._rows,
            step_s=self._step_ns / 1e9,
            wait_s=self._wait_ns / 1e9,
            step=self._step.so_far(),
            wait=self._wait.so_far(),
            ready=self._ready,
        )

    def _end(self, now: int) -> None:
        if self._since_ns is not None:
            self._step_ns += now - self._since_ns
            self._step.add(now - self._since_ns)
            self._since_ns = None


@dataclass(frozen=True, slots=True)
class Took:
    """How long a piece of work took who makes samples in Python.

    cpu_s  seconds on a processor
    rows   nanoseconds of each of its first rows
    steps  seconds of each step, by its number as ``board`` has it: of all rows, as far as the first ones tell
    """

    cpu_s: float = 0.0
    rows: tuple[int, ...] = ()
    steps: tuple[tuple[int, float], ...] = ()


class Laps:
    """Times the first rows of each piece of work, and the steps that make them.

    on  whether the row at hand is timed
    """

    def __init__(self) -> None:
        self.on = False
        self._rows: list[int] = []
        self._steps: dict[int, int] = {}
        self._whole: dict[int, int] = {}
        self._cpu_ns = time.thread_time_ns()

    def begins(self) -> None:
        """A row begins."""
        self.on = len(self._rows) < TIMED_ROWS

    def ends(self, nanoseconds: int) -> None:
        """The row that is timed is made, in so long."""
        self._rows.append(nanoseconds)
        self.on = False

    def step(self, number: int, begin_ns: int) -> int:
        """A step of the row that is timed, since that time; the time now."""
        now = time.perf_counter_ns()
        self._steps[number] = self._steps.get(number, 0) + now - begin_ns
        return now

    def whole(self, number: int, begin_ns: int) -> None:
        """A step with the whole batch, since that time."""
        self._whole[number] = self._whole.get(number, 0) + time.perf_counter_ns() - begin_ns

    def piece_begins(self) -> None:
        """A piece of work begins."""
        self._rows, self._steps, self._whole, self.on = [], {}, {}, False
        self._cpu_ns = time.thread_time_ns()

    def took(self, rows: int) -> Took:
        """How long the piece took, which has so many rows."""
        each = rows / max(len(self._rows), 1)
        steps = {number: each * ns / 1e9 for number, ns in self._steps.items()}
        steps |= {number: ns / 1e9 for number, ns in self._whole.items()}
        cpu_ns = time.thread_time_ns() - self._cpu_ns
        return Took(cpu_ns / 1e9, tuple(self._rows), tuple(steps.items()))


class RunTimes:
    """What a run itself counts, beside its workers.

    order, batch, device  its threads' work at these places
    steps                 the training loop's
    no_slot_s             seconds that nothing was made because there was no slot to make it in
    """

    def __init__(self) -> None:
        self.order, self.batch, self.device = PlaceTimes(), PlaceTimes(), PlaceTimes()
        self.steps = Steps()
        self.no_slot_s = 0.0

    @contextmanager
    def waiting_for_slot(self, waits: bool) -> Iterator[None]:
        """The time that a ``with`` block takes, if that is what it waits for."""
        begin = time.perf_counter() if waits else 0.0
        yield
        if waits:
            self.no_slot_s += time.perf_counter() - begin

    def stats(self, workers: Stats, slots: SlotStats, copying_s: float) -> Stats:
        """With what the workers counted, where batches lie, and how long a device copied them beside the host."""
        device = self.device.so_far()
        return replace(
            workers,
            time_s=time.monotonic(),
            order=self.order.so_far(),
            batch=self.batch.so_far(),
            device=replace(device, busy_s=device.busy_s + copying_s, cpu_s=device.busy_s),
            step=self.steps.so_far(),
            slots=replace(slots, no_slot_s=self.no_slot_s),
        )
