"""Forecast the memory of a run, and choose sizes that fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from standpipe.errors import BudgetError, PlanError
from standpipe.plan.options import LoaderOptions
from standpipe.read import read_threads
from standpipe.units import show_bytes

MIB = 1 << 20
WORKER_BYTES = (
    2 * MIB
)  # a decoding thread's stack, libjpeg's row buffers and kept scratch, measured at 500 × 375
BAD_SAMPLES_BYTES = MIB // 2  # facts about bad samples that a loader lists
# Bad samples, and Python threads, batch arrays and the allocator's slack of a running loader, measured.
ENGINE_BYTES = BAD_SAMPLES_BYTES + 6 * MIB
READ_BYTES = 4 * MIB  # of a file that a worker in Python reads without asking the side arena
READ_AHEAD_BYTES = (4 * MIB, 16 * MIB)  # least and usual
SIDE_BYTES = (8 * MIB, 256 * MIB)  # least and usual
MOST_TUNED = 64  # workers that are tried, where nobody has said how many
MORE_SLOTS_BYTES = 64 * MIB  # most that slots for reading ahead, or for workers that are only tried, may take
SMALL_SLOT_BYTES = 1 << 20  # of which there may be more than it takes to keep workers busy
PROCESS_BYTES = 5 * MIB  # what a worker process has of its own, with a small dataset, measured
SERVER_BYTES = 36 * MIB  # what worker processes share: Python, NumPy, standpipe, a small dataset
FETCH_BYTES, FETCH_THREAD_BYTES = (
    30 * MIB,
    MIB * 35 // 100,
)  # of the fetch process, and each of its threads, measured
MOST_REQUESTS = 64  # of the fetch process at once, a thread for each
FETCHED_BYTES = 64 * MIB  # usual room for fetched bytes of small records
FETCHED_BATCHES = 2.5  # of large ones
GROWTH_BYTES = 8 * MIB  # that a worker process may grow by at least, before another one takes its place


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """Forecast bytes by owner. All except ``process`` count against ``memory=``.

    Attributes
    ----------
    process : int
        The process when the plan was made, without the index.
    index : int
        The source's index, and arrays that the order looks up.
    slots : int
        All slots.
    waiting : int
        Samples outside the slots.
    workers : int
        Stacks and buffers of threads; whole worker processes, without room to grow.
    read_ahead : int
        Encoded samples that wait to be decoded; where they are behind URLs, all that are fetched ahead.
    fetch : int
        The process that fetches samples that are behind URLs.
    cache : int
        The cache's bookkeeping, and rows on their way to the disk. Stored rows don't count.
    frames : int
        Images from which rows of several images are made, with those of earlier rows.
    engine : int
        The rest of a running loader.
    side : int
        The largest side arena, for progressive JPEGs, other formats and very long filters.
    whole : int
        The part of ``side`` that all workers need at once, by the first samples that aren't JPEGs by their
        names.

    Examples
    --------
    >>> plan = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8).plan(memory="256MiB")
    >>> forecast = plan.forecast
    >>> forecast.slots, forecast.allocated + forecast.side <= plan.memory_bytes
    (..., True)
    """

    process: int
    index: int
    slots: int
    waiting: int
    workers: int
    read_ahead: int
    cache: int
    frames: int
    engine: int
    side: int
    whole: int
    fetch: int = 0

    @property
    def expected(self) -> int:
        """The process's memory while the loader runs, on data like the first samples."""
        return self.process + self.allocated + self.whole

    @property
    def most(self) -> int:
        """The forecast with the whole side arena, in bytes."""
        return self.process + self.allocated + self.side

    @property
    def allocated(self) -> int:
        """The bytes that standpipe allocates for any data: all except the process and the side arena."""
        return (
            self.index
            + self.slots
            + self.waiting
            + self.workers
            + self.read_ahead
            + self.fetch
            + self.cache
            + self.frames
            + self.engine
        )


@dataclass(frozen=True, slots=True)
class WorkerCost:
    """The memory of workers.

    each    bytes of one worker
    shared  bytes that all of them share
    kind    name of a worker in texts
    reads   True if encoded samples are read ahead for them
    waits   True if more workers than CPUs are tried, since they may wait for other things; False for
    processes, which
            need much memory
    slots   number of slots that are filled at once. Python code takes long, and unevenly: a worker that has
    finished
            its part of a batch goes on with the next one, while the caller holds a third
    rows    rows that are filled at once for each worker: with fewer, workers wait for each other at a batch's end
    images  True if native code reads a file for each row: with more rows filling, more are read ahead
    """

    each: int
    shared: int
    kind: Literal["worker", "worker process"]
    reads: bool
    waits: bool
    slots: int
    rows: int = 4
    images: bool = False

    def of(self, workers: int) -> int:
        """Return the bytes of a number of workers."""
        return self.shared + workers * self.each


NATIVE_WORKERS = WorkerCost(WORKER_BYTES, 0, "worker", True, False, 1)
# Up to 64 threads are tried, with slots for all of them: that 4 rows each are faster than 2 couldn't be measured.
THREADS = WorkerCost(WORKER_BYTES, 0, "worker", False, True, 2, 2)
PROCESSES = WorkerCost(PROCESS_BYTES, SERVER_BYTES, "worker process", False, False, 2)


def slots_for(workers: int, cost: WorkerCost, rows: int, *, whole: bool, slot_bytes: int) -> int:
    """Return the number of slots that keep a number of workers busy, and one that the caller holds.

    rows   of a batch
    whole  whether one worker makes a whole batch
    """
    if cost.kind == "worker process" and slot_bytes <= SMALL_SLOT_BYTES:
        return 1 + 2 * workers  # each may make a whole batch, and have the next one in hand
    filling = -(-cost.rows * workers // rows)
    if cost.images:  # rows that are being read, that wait, and that are being decoded
        ahead = 3 * read_threads(workers)
        # However large slots are, one may be ready while another is filled. With a single one, the ring would grow for
        # each batch, and give the slot's memory back after it: that takes three times as long as making the rows.
        filling = max(filling, min(-(-ahead // rows), max(1 + MORE_SLOTS_BYTES // slot_bytes, 2)))
    return 1 + (workers if whole else max(cost.slots, filling))


@dataclass(frozen=True, slots=True)
class Needs:
    """The bytes that a run needs.

    slot     one slot
    rows     rows of a batch
    waiting  samples that wait to be put together in a slot
    apart    values of a batch outside its slot, as far as is known; they exist until the batch is dropped
    index    the source's index, and the order's tables
    cost     memory of the workers
    cache    marks of cached rows, and rows being written to the disk
    window   number of earlier rows whose images stay for rows of several images
    frame_of_row  an image of such a row
    whole    True if one worker makes a whole batch
    side     True if the side arena may be needed: for whole frames, or for results of processes outside slots
    frame    largest whole frame of the first samples, with its file
    fetched  bytes of a batch's records, where they are behind URLs; 0 for files
    """

    slot: int
    rows: int
    waiting: int
    apart: int
    index: int
    cost: WorkerCost
    cache: int
    window: int
    frame_of_row: int
    whole: bool
    makers: int
    side: bool
    frame: int
    fetched: int = 0

    @property
    def fetch(self) -> int:
        """The bytes of the fetch process."""
        return FETCH_BYTES + MOST_REQUESTS * FETCH_THREAD_BYTES if self.fetched else 0

    @property
    def read_ahead(self) -> tuple[int, int]:
        """The least and the usual bytes for encoded samples."""
        if self.fetched:
            usual = max(FETCHED_BYTES, int(FETCHED_BATCHES * self.fetched))
            return min(max(2 * self.fetched, READ_AHEAD_BYTES[0]), usual), usual
        return READ_AHEAD_BYTES if self.cost.reads else (0, 0)

    @property
    def least_side(self) -> int:
        """The smallest side arena, where ``large_image_memory=`` isn't given."""
        return max(SIDE_BYTES[0], self.frame and self.frame + MIB)  # resizing takes some, too

    def slots(self, workers: int) -> int:
        """Return the number of slots that keep ``workers`` workers busy, and one that the caller holds."""
        if self.makers:
            return 1 + 2 * self.makers  # each has its next batch in hand, also while one before it is awaited
        return slots_for(workers, self.cost, self.rows, whole=self.whole, slot_bytes=self.slot)

    def frames(self, slots: int) -> int:
        """Return the bytes of images of which rows are made: of ``slots`` batches, and of earlier rows with theirs."""
        return self.frame_of_row * (self.window + (slots + 1) * self.rows)

    def batches(self, slots: int) -> int:
        """Return the bytes of ``slots`` slots, with their values outside."""
        return slots * (self.slot + self.waiting + self.apart)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The chosen sizes.

    workers     number of workers at the start, and at most where they are tuned; there are slots for the most
    worker      bytes of its own that a worker process may use before it is replaced
    read_ahead  bytes
    side        bytes of the side arena
    batches     bytes of the most slots, with their values outside
    """

    workers: int
    most_workers: int
    worker: int
    slots: int
    most_slots: int
    read_ahead: int
    side: int
    batches: int


def fit(
    needs: Needs, budget: int, workers: int | Literal["auto"], options: LoaderOptions, *, cpus: int
) -> Sizes:
    """Choose workers, slots and buffers within the budget; what the caller fixed stays.

    budget   bytes
    workers  as asked for, or one where no more can make samples
    options  all that was asked for
    cpus     for the workers

    Raises ``PlanError`` for options that don't go with these needs, ``BudgetError`` when nothing fits.
    """
    fixed = _Fixed.of(needs, workers, options)

    def needed(threads: int, slots: int) -> int:
        least = (
            needs.index + needs.cost.shared + threads * fixed.worker + fixed.side + ENGINE_BYTES + needs.cache
        ) + needs.fetch
        return least + needs.batches(slots) + needs.frames(slots) + fixed.read_ahead

    threads = cpus if workers == "auto" else workers
    if workers == "auto":
        while threads > 1 and needed(threads, fixed.slots or needs.slots(threads)) > budget:
            threads -= 1
    slots = fixed.slots or needs.slots(threads)
    if fixed.slots is None:
        while slots > 2 and needed(threads, slots) > budget:
            slots -= 1
    smallest = needed(threads, slots)
    if smallest > budget:
        raise fixed.refusal(needs, threads, slots, smallest, budget)
    spare = budget - smallest
    read_ahead, side, worker = fixed.read_ahead, fixed.side, fixed.worker
    read_ahead = max(read_ahead, min(needs.read_ahead[1], read_ahead + spare // 4))
    spare -= read_ahead - fixed.read_ahead
    most = threads
    if workers == "auto" and needs.cost.waits and options.tunes_workers:
        most, slots, more = _tried(needs, fixed.slots, threads, slots, spare // 4)
        spare -= more
    if needs.side and "large_image_memory" not in fixed.given:
        side = max(side, min(SIDE_BYTES[1], side + spare // 2))
        spare -= side - fixed.side
    if needs.cost.shared and "memory_per_worker" not in fixed.given:
        worker += spare // 2 // threads
        spare -= (worker - fixed.worker) * threads
    most_slots = slots + spare // (needs.slot + needs.apart)
    return Sizes(threads, most, worker, slots, most_slots, read_ahead, side, needs.batches(slots) + spare)


def _tried(needs: Needs, fixed: int | None, threads: int, slots: int, room: int) -> tuple[int, int, int]:
    """Return the most workers that tuning may try, the slots for so many, and the bytes of both beyond the start's.

    fixed    number of slots, if the caller set it
    threads  workers at the start, with ``slots`` slots
    room     most bytes of both
    """
    for most in range(MOST_TUNED, threads, -1):
        enough = fixed or needs.slots(most)
        more = needs.batches(enough) - needs.batches(slots)
        if more <= MORE_SLOTS_BYTES and (more := more + (most - threads) * needs.cost.each) <= room:
            return most, enough, more
    return threads, slots, 0


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Options as they were given, checked, and the least of those that weren't; sizes in bytes.

    given  what each option could save, by name
    """

    slots: int | None
    side: int
    worker: int
    read_ahead: int
    given: Mapping[str, int]

    @classmethod
    def of(cls, needs: Needs, workers: int | Literal["auto"], options: LoaderOptions) -> _Fixed:
        """Make this value from options. Raises ``PlanError`` for options that don't go with ``needs``."""
        cost, slots = needs.cost, None if options.prefetch == "auto" else 1 + options.prefetch
        side, worker = needs.least_side, cost.each + (GROWTH_BYTES if cost.shared else 0)
        given = {}
        if slots is not None:
            given["prefetch"] = needs.batches(slots - 2)
        if (large_image_memory := options.bytes_of("large_image_memory")) is not None:
            side = large_image_memory
            given["large_image_memory"] = side - needs.least_side
        if (memory_per_worker := options.bytes_of("memory_per_worker")) is not None:
            _check_per_worker(memory_per_worker, cost)
            given["memory_per_worker"] = memory_per_worker - worker
            worker = memory_per_worker
        if workers != "auto":
            given["num_workers"] = (workers - 1) * worker
        return cls(slots, side, worker, needs.read_ahead[0], given)

    def refusal(self, needs: Needs, workers: int, slots: int, smallest: int, budget: int) -> BudgetError:
        """Return the error: what is needed, and which settings lower it."""
        holds = " (a whole frame)" if self.side == needs.least_side > SIDE_BYTES[0] else ""
        more = [f"{show_bytes(self.side)} of memory for large images{holds}"]
        if needs.index > MIB:
            more.append(f"{show_bytes(needs.index)} for the index")
        if needs.apart > MIB:
            more.append(f"{slots} times {show_bytes(needs.apart)} outside the slots")
        if (frames := needs.frames(slots)) > MIB:
            more.append(
                f"{show_bytes(frames)} for images of which rows are made (sp.Recent(rows) sets how many)"
            )
        return BudgetError(
            f"{slots} slots of {show_bytes(needs.slot)}, {_many(workers, needs.cost)} and "
            f"{', '.join(more)} together need memory={show_bytes(smallest, up=True)!r}, but the budget "
            f"is {show_bytes(budget)}. Raise it, {_lower(self.given)}or use a smaller batch or uint8",
            asked_bytes=smallest,
            budget_bytes=budget,
            smallest_bytes=smallest,
        )


def _check_per_worker(memory_per_worker: int, cost: WorkerCost) -> None:
    """Raise ``PlanError`` without processes, ``BudgetError`` if each has more from the beginning."""
    if not cost.shared:
        raise PlanError(
            "memory_per_worker= works with worker processes only. Use executor='process', or leave it out"
        )
    if memory_per_worker < cost.each:
        raise BudgetError(
            f"memory_per_worker={show_bytes(memory_per_worker)!r} is too small: after its first sample, "
            f"a worker process uses {show_bytes(cost.each)} of its own. Raise it, or leave it out",
            asked_bytes=cost.each,
            budget_bytes=memory_per_worker,
            smallest_bytes=cost.each + GROWTH_BYTES,
        )


def _many(workers: int, cost: WorkerCost) -> str:
    """Describe a number of workers, and what they share."""
    plural = "" if workers == 1 else "es" if cost.kind.endswith("s") else "s"
    shared = f" of {show_bytes(cost.each)}, {show_bytes(cost.shared)} that they share" if cost.shared else ""
    return f"{workers} {cost.kind}{plural}{shared}"


def _lower(savings: Mapping[str, int]) -> str:
    """Return advice to lower the settings that save memory, the largest saving first; empty if there are
    none.
    """
    names = sorted((name for name, saved in savings.items() if saved > 0), key=lambda name: -savings[name])
    return "".join(f"lower {name}=, " for name in names)
