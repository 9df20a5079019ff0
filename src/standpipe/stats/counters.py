"""Counters of a loader since it started: how much it did, and how long that took.

Counters only grow, so what happened between two snapshots is their difference: ``after - before``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from standpipe.stats.latency import UNTIMED, Latency

T = TypeVar("T")


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
        Seconds of work, summed over the threads. For ``device`` also the seconds of copies.
    cpu_s : float
        The seconds of ``busy_s`` that were spent on a processor, if they are measured: of Python code, and of
        ``device`` those of the host. Else 0.
    queued_s : float
        Seconds in which Python code waited for a processor.
    wait_s : float
        Seconds without work, summed over the threads.
    latency : Latency
        The duration of each row; of ``read`` each file; of ``order``, ``batch`` and ``device`` each batch.

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
        Rows that it made.
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
        The work, for people: ``"record 37"``, ``"the batch of the records 8, 9"``.
    index : int or None
        The record's number in the source; None if it isn't a single sample.
    path : str or None
        Its file, as a printable string.
    doing : str
        What took long: ``"the dataset"``, ``"reading its file"``, or a function's name.
    worker : str
        The thread or process: ``"worker 3 (process 4711)"``.
    seconds : float
        The least time that it took. The watchdog looks again after each ``slow_sample_s``.

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
        Batches that it took.
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
        Seconds in which the loader could make nothing, because it had no free slot.

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
class Stats:
    """Counters of a loader since it started. ``loader.stats()`` returns them.

    They only grow: ``after - before`` is what happened between two of them.

    Attributes
    ----------
    time_s : float
        The time of reading, by ``time.monotonic()``; 0 before the loader started.
    cpu_s : float
        CPU seconds of this whole process since then, training included, worker processes excluded.
    epoch : int
        The epoch of the next batch.
    rows : int
        Rows that were made, including those that your code hasn't taken yet.
    foreign : int
        Rows that Pillow decoded: formats other than JPEG, and unusual JPEGs.
    gpu_rows, gpu_refused : int
        Rows whose JPEG went to the GPU's decoder, and those of them that it refused, which the CPU decoded.
    damaged : int
        Rows of JPEGs with damage that Pillow also decodes.
    truncated : int
        Rows of files that end too soon, with ``decode(allow_truncated=True)``.
    bad : int
        Rows that couldn't be made; each counts once.
    retries, hedged : int
        Reads that were tried again, and slow reads that got a second one beside them.
    slowest_read_s : float
        Seconds of the slowest try of a read.
    side_peak_bytes : int
        The peak of the side arena.
    reading_ahead : bool
        True if storage is slow, so that threads read ahead.
    slow, stalled : int
        Samples, and other work, that took longer than ``slow_sample_s``, and than ``stall_timeout_s``.
    deaths, recycled : int
        Worker processes that died, and that were replaced because they had too much memory.
    cache_hits, cache_misses : int
        Rows that came from the cache, and rows that it lacked or had for an older file.
    cache_stored, cache_skipped : int
        Rows that were stored, and rows without room, or that another process was storing.
    cache_stale : int
        Misses whose files have changed, or may have.
    cache_errors : int
        Rows that couldn't be read from the cache, were damaged, or couldn't be written.
    cache_bytes : int
        Bytes of the rows that came from the cache.
    order, read, transform, batch, device : PlaceStats
        The places. ``read`` includes the time of cache look-ups. ``transform`` makes rows: decoding, native
        transforms and Python code.
    step : StepStats
        The training loop.
    slots : SlotStats
        The batches' memory.
    workers : tuple of WorkerStats
        Each thread or process that makes rows.
    functions : mapping of str to float
        Estimated seconds of the data set, of each Python function and of native transforms, by name. Empty
        without Python code.

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
        """Return the counts since ``before``; ``time_s`` is the number of seconds. Other values are the newest:
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
