"""Counters of a loader since it started: how much it did, and how long that took.

Counters only grow, so what happened between two snapshots is their difference: ``after - before``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import TypeVar

PARTS = 8  # steps of a doubling: a duration is known within 6%
LEAST_NS = 1 << 10  # what is shorter counts as that
T = TypeVar("T")

BUCKETS = 26 * PARTS + 1  # up to 69 s, and all that is longer


@dataclass(frozen=True, slots=True, repr=False)
class Latency:
    """How long each of many things took, as counts by duration.

    counts  (209,) from 1 µs on in steps of an eighth of a doubling (of equal width inside each doubling); the last
            one counts everything from 69 s on. Empty: nothing was timed
    """

    counts: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    @property
    def p50(self) -> float:
        """The median, in seconds; 0 when nothing was timed."""
        return self.quantile(0.5)

    @property
    def p90(self) -> float:
        """Seconds that nine of ten took at most."""
        return self.quantile(0.9)

    @property
    def p99(self) -> float:
        """Seconds that 99 of a hundred took at most."""
        return self.quantile(0.99)

    def quantile(self, share: float) -> float:
        """Seconds that this share of them took at most, within 6%; 0 when nothing was timed."""
        wanted = share * self.count
        if wanted <= 0:
            return 0.0
        return next(
            edges(number)[1] for number, so_far in enumerate(accumulate(self.counts)) if so_far >= wanted
        )

    def __repr__(self) -> str:
        return f"Latency(count={self.count}, p50={self.p50:.3g}, p90={self.p90:.3g}, p99={self.p99:.3g})"

    def __add__(self, other: Latency) -> Latency:
        return _joined(self, other, 1)

    def __sub__(self, before: Latency) -> Latency:
        return _joined(self, before, -1)


def _joined(one: Latency, other: Latency, sign: int) -> Latency:
    if not other.counts:
        return one
    mine = one.counts or (0,) * len(other.counts)
    return Latency(tuple(a + sign * b for a, b in zip(mine, other.counts, strict=True)))


def _less(after: T, before: T, keep: tuple[str, ...] = ()) -> T:
    """Return the difference of two snapshots, field by field; fields in ``keep`` and those that aren't
    counters stay.
    """
    left = {
        each.name: getattr(after, each.name) - getattr(before, each.name)
        for each in fields(after)  # type: ignore[arg-type]
        if each.name not in keep and hasattr(getattr(after, each.name), "__sub__")
    }
    return replace(after, **left)  # type: ignore[type-var]


def edges(bucket: int) -> tuple[float, float]:
    """The seconds between which a bucket of ``Latency.counts`` counts, as native/system/latency.h has it."""
    doubling, part = divmod(bucket, PARTS)
    begin = LEAST_NS * (1 << doubling)
    width = begin / PARTS
    return (begin + part * width) / 1e9, (begin + (part + 1) * width) / 1e9


@dataclass(frozen=True, slots=True)
class PlaceStats:
    """What one place of the loader has done.

    threads   that work there at once, or worker processes; 0 where there are none
    rows      that went through
    bytes     of encoded samples; 0 where none are
    busy_s    seconds of work, summed over the threads; of ``device`` also those that copies took beside the host
    cpu_s     of these, seconds on a processor, as far as that is measured: of Python code, and of ``device`` those that
              the host had to do with it; else 0
    queued_s  seconds that Python code could have run and had no processor, as others had them
    wait_s    seconds without work, summed over the threads
    latency   how long each row took; of ``read`` each file, of ``order``, ``batch`` and ``device`` each batch
    """

    threads: int = 0
    rows: int = 0
    bytes: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0
    wait_s: float = 0.0
    latency: Latency = Latency()

    def __sub__(self, before: PlaceStats) -> PlaceStats:
        return _less(self, before, keep=("threads",))


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What one of the threads or processes that make rows has done.

    name    ``"decoder thread 1"``, ``"thread 1"``, ``"worker 1 (process 4711)"``
    rows    that it made
    busy_s  seconds of work
    """

    name: str
    rows: int = 0
    busy_s: float = 0.0

    def __sub__(self, before: WorkerStats) -> WorkerStats:
        return _less(self, before, keep=("name",))


@dataclass(frozen=True, slots=True)
class SlowSample:
    """A sample, or other work, that took longer than ``slow_sample_s``.

    what     it is, for people: ``"record 37"``, ``"the batch of the records 8, 9"``
    index    its record's number in the source; None for what is no single sample
    path     its file as a printable string, or None
    doing    what took long: ``"the dataset"``, ``"reading its file"``, a function
    worker   who did it: ``"worker 3 (process 4711)"``, ``"decoding thread 2"``
    seconds  that it took, or has taken, at least: it is looked at again after each ``slow_sample_s``
    """

    what: str
    index: int | None
    path: str | None
    doing: str
    worker: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StepStats:
    """What the training loop, which takes the batches, has done.

    steps      batches that it took
    rows       in them
    step_s     seconds between a batch and the next ``next()``: its own time
    wait_s     seconds inside ``next()``
    step       how long each step took
    wait       how long each ``next()`` took
    ready      batches that were ready when it asked, summed over the steps
    """

    steps: int = 0
    rows: int = 0
    step_s: float = 0.0
    wait_s: float = 0.0
    step: Latency = Latency()
    wait: Latency = Latency()
    ready: int = 0

    @property
    def wait_share(self) -> float:
        """Share of the time that it waited for batches, from 0 to 1."""
        whole = self.step_s + self.wait_s
        return self.wait_s / whole if whole else 0.0

    @property
    def rows_per_s(self) -> float:
        """Rows that it took in a second of its steps and waits."""
        whole = self.step_s + self.wait_s
        return self.rows / whole if whole else 0.0

    def __sub__(self, before: StepStats) -> StepStats:
        return _less(self, before)


@dataclass(frozen=True, slots=True)
class SlotStats:
    """Where batches lie, now.

    most       slots that the budget allows
    lent       that your code holds
    filling    that rows are being written into
    ready      that wait to be taken
    no_slot_s  seconds that nothing was made because there was no slot to make it in
    """

    most: int = 0
    lent: int = 0
    filling: int = 0
    ready: int = 0
    no_slot_s: float = 0.0

    def __sub__(self, before: SlotStats) -> SlotStats:
        return _less(self, before, keep=("most", "lent", "filling", "ready"))


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of a loader since it started.

    time_s           when they were read, by ``time.monotonic()``; 0 before the loader started
    cpu_s            seconds on processors of this whole process since then, training and all, but for worker processes
    epoch            of the next batch
    rows             made, also those that nobody has taken yet
    foreign          of the rows, those that Pillow decodes: all but usual JPEGs
    gpu_rows         of the rows, those whose JPEG went to the GPU's decoder
    gpu_refused      of these, those that it refused, which were decoded exactly
    damaged          of the rows, those of JPEGs with damage in what was decoded of them, which Pillow decodes over too
    truncated        of the rows, those of files that end too soon, with ``decode(allow_truncated=True)``
    bad              rows that could not be made, or be put into their batch; each once
    retries          tries of reads after the first ones
    hedged           reads that got a second one beside them, because they took long
    slowest_read_s   seconds that the slowest try of a read took
    side_peak_bytes  most that the side arena held
    reading_ahead    whether storage is slow, so that reading threads run ahead
    slow             samples, and other work, that took longer than ``slow_sample_s``
    stalled          of these, given up after ``stall_timeout_s``
    deaths           worker processes that ended before their work was done
    recycled         worker processes that had more memory than their share, and were replaced
    cache_hits       of the rows, those that were kept
    cache_misses     those that weren't, or were of files that have changed
    cache_stored     rows that were kept for later
    cache_skipped    rows for which there was no room, or which somebody else was just keeping
    cache_stale      of the misses, those whose files have changed since, or may have
    cache_errors     rows that couldn't be read, weren't what had been kept, or couldn't be written
    cache_bytes      of the rows that were kept

    order            finding out which records a batch has, and where they are
    read             reading files; its time also that of finding rows in a cache, which aren't counted here
    transform        making rows of what was read: decoding, native transforms and Python code
    batch            putting batches together
    device           bringing batches to the device, and handing them out
    step             the training loop
    slots            where batches lie
    workers          each of the threads or processes that make rows
    functions        seconds by name of the dataset and of each function in Python, and of the native transforms beside
                     them; a part of the rows is timed, and stands for all. Empty where no Python takes part
    """

    time_s: float = 0.0
    cpu_s: float = 0.0
    epoch: int = 0
    rows: int = 0
    foreign: int = 0
    gpu_rows: int = 0
    gpu_refused: int = 0
    damaged: int = 0
    truncated: int = 0
    bad: int = 0
    retries: int = 0
    hedged: int = 0
    slowest_read_s: float = 0.0
    side_peak_bytes: int = 0
    reading_ahead: bool = False
    slow: int = 0
    stalled: int = 0
    deaths: int = 0
    recycled: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_stored: int = 0
    cache_skipped: int = 0
    cache_stale: int = 0
    cache_errors: int = 0
    cache_bytes: int = 0

    order: PlaceStats = PlaceStats()
    read: PlaceStats = PlaceStats()
    transform: PlaceStats = PlaceStats()
    batch: PlaceStats = PlaceStats()
    device: PlaceStats = PlaceStats()
    step: StepStats = StepStats()
    slots: SlotStats = SlotStats()
    workers: tuple[WorkerStats, ...] = ()
    functions: Mapping[str, float] = field(default_factory=dict)

    def __sub__(self, before: Stats) -> Stats:
        """What happened since ``before``. ``time_s`` is how many seconds that is; what isn't counted is as it is now:
        ``epoch``, ``slowest_read_s``, ``side_peak_bytes``, ``reading_ahead``, numbers of threads and slots.
        """
        earlier = {worker.name: worker for worker in before.workers}
        workers = tuple(worker - earlier.get(worker.name, WorkerStats("")) for worker in self.workers)
        functions = {
            name: seconds - before.functions.get(name, 0) for name, seconds in self.functions.items()
        }
        return replace(
            _less(self, before, keep=("epoch", "slowest_read_s", "side_peak_bytes", "reading_ahead")),
            workers=workers,
            functions=functions,
        )
