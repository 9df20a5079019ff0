"""Counters of a loader since it started: how much it did, and how long that took.

Counters only grow, so what happened between two snapshots is their difference: ``after - before``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from standpipe.stats.latency import UNTIMED, Latency
from standpipe.units import as_html

T = TypeVar("T")

# Counters that are added up, by their names in ``Stats``, such as "damaged" or "read.rows"; missing ones are 0.
Counts = Mapping[str, float]
LARGEST = "slowest_read_s"  # of two counts the larger one counts, and not their sum


def _less(after: T, before: T, keep: tuple[str, ...] = ()) -> T:
    """Return ``after - before``, field by field.

    Fields named in ``keep``, and fields whose values can't be subtracted, keep their value of ``after``.
    """
    left = {
        each.name: getattr(after, each.name) - getattr(before, each.name)
        for each in fields(after)  # type: ignore[arg-type]
        if each.name not in keep and hasattr(getattr(after, each.name), "__sub__")
    }
    return replace(after, **left)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class PlaceStats:
    """Counters of one place of a loader.

    Attributes
    ----------
    threads : int
        Threads or processes that work there at once.
    rows : int
        Rows that went through.
    bytes : int
        Bytes of encoded samples.
    busy_s : float
        Seconds of work, summed over the threads. For ``device``, copies to the device are included.
    cpu_s : float
        The part of ``busy_s`` that a CPU spent on the work, in seconds. It is measured for Python code, and
        for ``device`` on the host. Else 0.
    queued_s : float
        Seconds in which Python code was ready to run and waited for a CPU.
    wait_s : float
        Seconds without work, summed over the threads.
    latency : Latency
        Durations: of each file for ``read``, of each batch for ``order``, ``batch`` and ``device``, and of each
        row for ``transform``.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
    >>> with pipeline.loader(memory="256MiB", num_workers=1) as loader:
    ...     batches = sum(1 for batch in loader)
    ...     print(loader.stats().transform.threads, loader.stats().transform.rows >= 24)
    1 True
    """

    threads: int = 0
    rows: int = 0
    bytes: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0
    wait_s: float = 0.0
    latency: Latency = UNTIMED

    def __sub__(self, before: PlaceStats) -> PlaceStats:
        return _less(self, before, keep=("threads",))


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """Counters of one thread or process that makes rows.

    Attributes
    ----------
    name : str
        Such as ``"decoding thread 1"`` or ``"worker 1 (process 4711)"``.
    rows : int
        Rows that the worker made.
    busy_s : float
        Seconds of work.

    Examples
    --------
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
    >>> with pipeline.loader(memory="256MiB", num_workers=1) as loader:
    ...     batches = sum(1 for batch in loader)
    ...     print(loader.stats().workers[0].name)
    decoding thread 0
    """

    name: str
    rows: int = 0
    busy_s: float = 0.0

    def __sub__(self, before: WorkerStats) -> WorkerStats:
        return _less(self, before, keep=("name",))


@dataclass(frozen=True, slots=True)
class SlowSample:
    """A sample, or other work, that took longer than ``slow_sample_s``.

    ``loader.slow_samples`` lists them.

    Attributes
    ----------
    what : str
        The work as text: ``"record 37"``, ``"the batch of the records 8, 9"``.
    index : int or None
        The record's number in the source; None if the work isn't for a single sample.
    path : str or None
        The record's file, as a printable string; None if it has none.
    doing : str
        The step that took long: ``"the dataset"``, ``"reading its file"``, or a function's name.
    worker : str
        The thread or process: ``"worker 3 (process 4711)"``.
    seconds : float
        Seconds that the work took, at least: the watchdog measures it once per ``slow_sample_s``.

    Examples
    --------
    >>> import time
    >>> slow = sp.Pipeline(sp.Arrays(x=np.arange(2))).map(lambda sample: time.sleep(0.3) or sample).batch(2)
    >>> with slow.loader(executor="thread", num_workers=1, slow_sample_s=0.05) as loader:
    ...     batch = next(iter(loader))
    ...     print(any(slow.seconds >= 0.05 for slow in loader.slow_samples))
    True
    """

    what: str
    index: int | None
    path: str | None
    doing: str
    worker: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StepStats:
    """Counters of the training loop, which takes the batches.

    Attributes
    ----------
    steps : int
        Batches that the training loop took.
    rows : int
        Rows of these batches.
    step_s : float
        Seconds between a batch and the next call of ``next()``: the loop's own time.
    wait_s : float
        Seconds inside ``next()``.
    step, wait : Latency
        The duration of each step, and of each ``next()``.
    ready : int
        Batches that were ready at each ``next()``, summed.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     batches = list(loader)
    ...     step = loader.stats().step
    >>> step.steps, step.rows, 0 <= step.wait_share <= 1
    (4, 20, True)
    """

    steps: int = 0
    rows: int = 0
    step_s: float = 0.0
    wait_s: float = 0.0
    step: Latency = UNTIMED
    wait: Latency = UNTIMED
    ready: int = 0

    @property
    def wait_share(self) -> float:
        """The fraction of its time that the training loop waited for batches, from 0 to 1."""
        whole = self.step_s + self.wait_s
        return self.wait_s / whole if whole else 0.0

    @property
    def rows_per_s(self) -> float:
        """Rows per second of the training loop, waits included; 0 before its first batch."""
        whole = self.step_s + self.wait_s
        return self.rows / whole if whole else 0.0

    def __sub__(self, before: StepStats) -> StepStats:
        return _less(self, before)


@dataclass(frozen=True, slots=True)
class SlotStats:
    """The number of slots in each state, now.

    Attributes
    ----------
    most : int
        Slots that the budget allows.
    lent : int
        Slots that your code holds.
    filling : int
        Slots into which rows are being written.
    ready : int
        Finished batches that wait to be taken.
    no_slot_s : float
        Seconds in which the loader could make no batch, because no slot was free.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     batch = next(iter(loader))
    ...     print(loader.stats().slots.lent)
    1
    """

    most: int = 0
    lent: int = 0
    filling: int = 0
    ready: int = 0
    no_slot_s: float = 0.0

    def __sub__(self, before: SlotStats) -> SlotStats:
        return _less(self, before, keep=("most", "lent", "filling", "ready"))


@dataclass(frozen=True, slots=True)
class FetchStats:
    """Counters of the process that fetches bytes of URLs, when it had fetched the last step.

    Attributes
    ----------
    requests : int
        Byte ranges that it got.
    bytes : int
        Bytes of these.
    retries : int
        Tries that failed and were made again.
    deaths : int
        Times that it ended and was started again.
    latency : Latency
        How long the ranges took, without failed tries.
    causes : mapping of str to int
        What the failed tries were: the status of the answer, such as ``"503"``, or ``"timeout"``, ``"reset"``,
        ``"connect"``, ``"short"`` for a body that ended too soon, ``"range"`` and ``"200"`` for another range than
        was asked for, ``"checksum"``.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     batches = list(loader)
    ...     print(loader.stats().fetch.requests)
    0
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    deaths: int = 0
    latency: Latency = UNTIMED
    causes: Mapping[str, int] = field(default_factory=dict)

    def __sub__(self, before: FetchStats) -> FetchStats:
        causes = {name: count - before.causes.get(name, 0) for name, count in self.causes.items()}
        return replace(_less(self, before), causes=causes)


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of a loader since it started. ``loader.stats()`` returns them.

    They only grow: ``after - before`` is what happened between two of them.

    Attributes
    ----------
    time_s : float
        When these counters were read, in seconds of ``time.monotonic()``; 0 before the loader started.
    cpu_s : float
        CPU seconds of this whole process since the loader started. Training is included, worker processes are
        excluded.
    epoch : int
        The epoch of the next batch.
    rows : int
        Rows that were made, including those that your code hasn't taken yet.
    foreign : int
        Rows that Pillow decoded: formats other than JPEG, and unusual JPEGs.
    damaged : int
        Rows of JPEGs with damage that Pillow also decodes.
    truncated : int
        Rows of images whose file ends too soon. They are delivered with ``decode(allow_truncated=True)``.
    redecoded : int
        Rows that libjpeg-turbo decoded again from the first byte, because standpipe's entropy decoder met a code
        that it leaves to libjpeg-turbo. Most are damaged files. Files that libjpeg-turbo refuses then don't count.
    bad : int
        Rows that couldn't be made; each counts once.
    retries, hedged : int
        Reads that were tried again, and slow reads beside which a second read of the same bytes was started.
    slowest_read_s : float
        Seconds of the slowest try of a read.
    opens : int
        Files that were opened to read samples. A file of which samples are parts, such as an archive, stays open.
    ranges : int
        Byte ranges of files that were read. Where storage is slow, samples that lie one after another in a file
        are read as one range.
    side_peak_bytes : int
        The most bytes of large-image memory that were in use at once.
    reading_ahead : bool
        True if storage is slow, so that threads read ahead.
    slow, stalled : int
        Samples and other pieces of work: those that took longer than ``slow_sample_s``, and those that took
        longer than ``stall_timeout_s``.
    deaths, recycled : int
        Worker processes that died, and those that were replaced because they used too much memory.
    cache_hits, cache_misses : int
        Rows that came from the cache, and rows that weren't in it or were made from an older file.
    cache_stored, cache_skipped : int
        Rows that were stored in the cache, and rows that weren't: the cache was full, or another process was
        storing them.
    cache_stale : int
        Cache misses of rows whose files have changed, or may have changed, since they were stored.
    cache_errors : int
        Cached rows that couldn't be read or were damaged, and rows that couldn't be written.
    cache_bytes : int
        Bytes of the rows that came from the cache.
    order, read, transform, batch, device : PlaceStats
        Counters of each place. ``read`` includes cache look-ups. ``transform`` includes decoding, native
        transforms and Python code.
    fetch : FetchStats
        Counters of the process that fetches bytes of URLs.
    step : StepStats
        Counters of the training loop.
    slots : SlotStats
        The number of slots in each state.
    workers : tuple of WorkerStats
        Counters of each thread or process that makes rows.
    functions : mapping of str to float
        Estimated seconds that the data set, each Python function and the native transforms took, by name.
        Empty without Python code.

    Examples
    --------
    >>> with sp.Pipeline(sp.Arrays(x=np.arange(20))).batch(5).loader() as loader:
    ...     before = loader.stats()
    ...     batches = list(loader)
    ...     passed = loader.stats() - before
    >>> passed.rows >= 20, passed.bad, passed.step.steps
    (True, 0, 4)
    """

    time_s: float = 0.0
    cpu_s: float = 0.0
    epoch: int = 0
    rows: int = 0
    foreign: int = 0
    damaged: int = 0
    truncated: int = 0
    redecoded: int = 0
    bad: int = 0
    retries: int = 0
    hedged: int = 0
    slowest_read_s: float = 0.0
    opens: int = 0
    ranges: int = 0
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
    fetch: FetchStats = FetchStats()
    step: StepStats = StepStats()
    slots: SlotStats = SlotStats()
    workers: tuple[WorkerStats, ...] = ()
    functions: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return one line with the rows, the speed and the waiting of the training loop."""
        return (
            f"<Stats: epoch {self.epoch}, {self.step.steps:,} batches of {self.step.rows:,} rows taken, "
            f"{self.step.rows_per_s:,.0f} rows/s, {self.step.wait_share:.0%} of the time waited, {self.bad:,} bad rows>"
        )

    def _repr_html_(self) -> str:
        named = [(each.name, getattr(self, each.name)) for each in fields(self)]
        places = "\n".join(
            f"{name:10}{place.threads:8}{place.rows:12,}{place.busy_s:10.1f}{place.wait_s:10.1f}"
            for name, place in named
            if isinstance(place, PlaceStats) and place.threads
        )
        head = f"{'place':10}{'threads':>8}{'rows':>12}{'busy s':>10}{'wait s':>10}"
        return as_html(f"{self!r}\n\n{head}\n{places}")

    def __sub__(self, before: Stats) -> Stats:
        """Return the counts since ``before``; ``time_s`` is the number of seconds between the two.

        Values that aren't counters are those of the later snapshot: ``epoch``, ``slowest_read_s``,
        ``side_peak_bytes``, ``reading_ahead``, numbers of threads and slots.
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


_OF_PLACES = ("rows", "bytes", "busy_s", "cpu_s", "queued_s", "wait_s")
_OF_A_RUN = ("time_s", "cpu_s", "epoch", "bad", "side_peak_bytes")  # not of its workers, or not added up
_OF_WORKERS = tuple(
    each.name for each in fields(Stats) if each.type in ("int", "float") and each.name not in _OF_A_RUN
)


def counts_of(stats: Stats) -> dict[str, float]:
    """Return the counters of workers that are added up over processes."""
    places = {
        f"{place}.{name}": getattr(getattr(stats, place), name)
        for place in ("read", "transform")
        for name in _OF_PLACES
    }
    return {name: getattr(stats, name) for name in _OF_WORKERS} | places


def with_counts(stats: Stats, counts: Counts) -> Stats:
    """Return ``stats`` with the counters in ``counts`` in place of its own."""
    own: dict[str, Any] = {}
    for name, number in counts.items():
        place, _, of_place = name.rpartition(".")
        if place:
            own[place] = replace(own.get(place, getattr(stats, place)), **{of_place: number})
        else:
            own[name] = number
    return replace(stats, **own)


def added_up(*parts: Counts) -> dict[str, float]:
    """Return the sum of counters."""
    total: dict[str, float] = {}
    for part in parts:
        for name, number in part.items():
            before = total.get(name, 0)
            total[name] = max(before, number) if name == LARGEST else before + number
    return total


def counts_since(now: Counts, before: Counts) -> dict[str, float]:
    """Return the counters that have changed, less those in ``before``."""
    return {
        name: number if name == LARGEST else number - before.get(name, 0)
        for name, number in now.items()
        if number != before.get(name, 0)
    }
