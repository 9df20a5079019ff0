"""Compute how many records of each length form a batch within a length budget, once for all epochs.

Records are counted in classes of similar lengths, neighbouring classes are joined into at most 256 buckets,
and the buckets are cut into runs of equal batches. All arrays here are small, whatever the number of records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from standpipe.spec import Int64Array

MAX_LENGTH = 1 << 40  # the sum of a million such lengths still fits an int64
# Lengths below 2^9 have a class each; longer ones are distinguished by their first 9 bits, to 0.4%.
CLASS_BITS = 8
NUM_CLASSES = 34 << CLASS_BITS
MOST_BUCKETS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """The number of records in each class of similar lengths.

    longest  (n,) int64, ascending: the longest length of each class
    counts   (n,) int64, positive: the number of records of each class
    """

    longest: Int64Array
    counts: Int64Array

    @classmethod
    def of(cls, chunks: Iterable[Int64Array]) -> Lengths:
        """Count records by length, from arrays of lengths in [1, 2^40], int64."""
        longest, counts = np.zeros((2, NUM_CLASSES), np.int64)
        for lengths in chunks:
            bits = np.frexp(lengths.astype(np.float64))[1].astype(np.int64)
            shifts = np.maximum(bits - CLASS_BITS - 1, 0)
            classes = (shifts << CLASS_BITS) + (lengths >> shifts)
            counts += np.bincount(classes, minlength=NUM_CLASSES)
            np.maximum.at(longest, classes, lengths)
        some = np.flatnonzero(counts)
        return cls(longest[some], counts[some])

    def joined(self, *, least_cost: int = 0) -> Lengths:
        """Join neighbouring classes into at most 256 buckets, of which each costs at least ``least_cost``.

        A bucket costs its number of records × its longest length. Neighbours whose joining adds least to the
        total cost are joined first.
        """
        longest, counts = self.longest, self.counts
        while len(longest) > 1:
            added = counts[:-1] * np.diff(longest).astype(np.float64)  # by joining each to the next one
            at = int(added.argmin())
            if len(longest) <= MOST_BUCKETS:
                light = np.flatnonzero(counts * longest.astype(np.float64) < least_cost)
                if len(light) == 0:
                    break
                beside = [each for each in (int(light[0]) - 1, int(light[0])) if 0 <= each < len(added)]
                at = min(beside, key=added.__getitem__)
            both = counts[at] + counts[at + 1]
            longest, counts = np.delete(longest, at), np.delete(counts, at)
            counts[at] = both
        return Lengths(longest, counts)


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The batches of an epoch, in runs of equal batches.

    times   (runs,) int64, positive: number of batches in each run
    rows    (runs, buckets) int64: number of records from each bucket in a batch of each run
    ends    (runs,) int64: number of batches in a run and all runs before
    before  (runs, buckets) int64: number of records from each bucket in all runs before
    sizes   (runs,) int64: number of records in a batch of each run
    """

    times: Int64Array
    rows: Int64Array
    ends: Int64Array = field(init=False)
    before: Int64Array = field(init=False)
    sizes: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        of_runs = self.rows * self.times[:, None]
        object.__setattr__(self, "ends", np.cumsum(self.times))
        object.__setattr__(self, "before", np.cumsum(of_runs, axis=0) - of_runs)
        object.__setattr__(self, "sizes", self.rows.sum(axis=1))

    def places(self, batch: int) -> list[tuple[int, int, int]]:
        """Return which records batch number ``batch`` has: a (bucket, first, number) per bucket, longest
        bucket first.

        first   place in the bucket of the batch's first record
        number  number of records
        """
        run = int(np.searchsorted(self.ends, batch, "right"))
        rows = self.rows[run]
        within = batch - int(self.ends[run] - self.times[run])
        firsts = self.before[run] + within * rows
        some = np.flatnonzero(rows)[::-1]
        return list(zip(some.tolist(), firsts[some].tolist(), rows[some].tolist(), strict=True))


def cut_padded(buckets: Lengths, budget: int, max_batch_size: int) -> Cut:
    """Cut buckets into batches whose rows × longest length is within the budget.

    Records are taken from the longest to the shortest. Every batch except the last has as many rows as fit.
    """
    left = buckets.counts.copy()
    times: list[int] = []
    rows: list[Int64Array] = []
    for bucket in range(len(left) - 1, -1, -1):
        fit = min(max_batch_size, budget // int(buckets.longest[bucket]))
        while left[bucket] > 0:
            batch = np.zeros_like(left)
            # As many records of this bucket as fit; if it has fewer, records of shorter buckets fill the batch.
            batch[bucket::-1] = np.diff(np.minimum(np.cumsum(left[bucket::-1]), fit), prepend=0)
            times.append(max(int(left[bucket]) // fit, 1))
            rows.append(batch)
            left -= times[-1] * batch
    return Cut(np.array(times), np.array(rows))


def cut_packed(buckets: Lengths, budget: int, max_batch_size: int) -> Cut:
    """Cut buckets into batches whose sum of lengths is within the budget, with about equal sums.

    From the longest on, each record goes to the emptiest batch that has room. The number of batches starts at
    the least possible, and grows when a record finds no room.
    """
    records = zip(buckets.longest.tolist(), buckets.counts.tolist(), strict=True)
    full = -(-sum(longest * count for longest, count in records) // budget)
    batches = _Filling(max(full, -(-int(buckets.counts.sum()) // max_batch_size)), len(buckets.counts))
    for bucket in range(len(buckets.counts) - 1, -1, -1):
        length, left = int(buckets.longest[bucket]), int(buckets.counts[bucket])
        fit = min(max_batch_size, budget // length)
        while (left := batches.add(bucket, length, left, budget, max_batch_size)) > 0:
            batches.append(-(-left // fit))
    return Cut(batches.times, batches.rows)


class _Filling:
    """Runs of equal batches that are being filled with records.

    times  (runs,) int64: number of batches in each run
    rows   (runs, buckets) int64: number of records from each bucket in a batch of each run
    load   (runs,) int64: sum of the lengths in a batch of each run
    """

    def __init__(self, times: int, buckets: int) -> None:
        self.times = np.array([times])
        self.rows = np.zeros((1, buckets), np.int64)
        self.load = np.zeros(1, np.int64)

    def append(self, times: int, like: int | None = None) -> None:
        """Add a run of ``times`` batches: empty ones, or copies of the batches of run ``like``."""
        kept = 0 if like is None else 1
        self.times = np.append(self.times, times)
        self.rows = np.append(self.rows, self.rows[[like or 0]] * kept, axis=0)
        self.load = np.append(self.load, self.load[like or 0] * kept)

    def add(self, bucket: int, length: int, number: int, budget: int, max_batch_size: int) -> int:
        """Put ``number`` records of length ``length`` each into the emptiest batch; return how many found no
        room.

        bucket  number of the records' bucket
        """
        room = np.minimum((budget - self.load) // length, max_batch_size - self.rows.sum(1))

        def taken(level: int) -> Int64Array:
            """Return how many records a batch of each run takes if all batches are filled up to ``level``,
            (runs,).
            """
            return np.clip((level - self.load) // length + 1, 0, room)

        # The first level at which batches take too many
        high = bisect_right(range(budget), number, key=lambda level: int(taken(level) @ self.times))
        given, more = taken(high - 1), taken(high)
        self._give(bucket, length, given)
        number -= int(given @ self.times)
        for run in np.flatnonzero(more > given).tolist():
            if 0 < number < self.times[run]:
                self.append(int(self.times[run]) - number, like=run)
                self.times[run] = number
            if number > 0:
                self._give(bucket, length, (np.arange(len(self.times)) == run).astype(np.int64))
                number -= int(self.times[run])
        return number

    def _give(self, bucket: int, length: int, given: Int64Array) -> None:
        self.rows[:, bucket] += given
        self.load += given * length
