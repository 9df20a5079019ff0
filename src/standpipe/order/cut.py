"""Choose how many records of which lengths make up a batch within a budget, once for every epoch.

Lengths are counted in classes, classes are joined to a few buckets, and buckets are cut into runs of equal batches.
All of it is small, whatever the number of records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from standpipe.spec import Int64Array

MAX_LENGTH = 1 << 40  # a million of them together are an int64 yet
# Lengths below 2^9 have a class each; longer ones are distinguished by their first 9 bits, to 0.4%.
CLASS_BITS = 8
NUM_CLASSES = 34 << CLASS_BITS
MOST_BUCKETS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """The number of records of each length, roughly.

    longest  (n,) int64, ascending: the longest record of each class
    counts   (n,) int64, positive: the records of each class
    """

    longest: Int64Array
    counts: Int64Array

    @classmethod
    def of(cls, chunks: Iterable[Int64Array]) -> Lengths:
        """Count lengths of [1, 2^40], given as arrays (any,) int64."""
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
        """Join neighbours until there are at most 256, and the records of each cost at least ``least_cost``.

        A record costs as much as the longest of its bucket. Joined first is what adds least to the cost of
        all.
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
    """The batches of an epoch, as runs of equal ones.

    times   (runs,) int64, positive: batches of each run
    rows    (runs, buckets) int64: records of each bucket in each batch
    ends    (runs,) int64: batches of a run and all before it
    before  (runs, buckets) int64: records of each bucket in all runs before
    sizes   (runs,) int64: records of each batch
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
        """Return the records of a batch: (bucket, first, number) for each bucket it uses, the longest first."""
        run = int(np.searchsorted(self.ends, batch, "right"))
        rows = self.rows[run]
        within = batch - int(self.ends[run] - self.times[run])
        firsts = self.before[run] + within * rows
        some = np.flatnonzero(rows)[::-1]
        return list(zip(some.tolist(), firsts[some].tolist(), rows[some].tolist(), strict=True))


def cut_padded(buckets: Lengths, budget: int, max_batch_size: int) -> Cut:
    """Batches whose rows × longest row are within the budget: neighbours in length, from the longest on.

    Every batch but the last has as many rows as fit.
    """
    left = buckets.counts.copy()
    times: list[int] = []
    rows: list[Int64Array] = []
    for bucket in range(len(left) - 1, -1, -1):
        fit = min(max_batch_size, budget // int(buckets.longest[bucket]))
        while left[bucket] > 0:
            batch = np.zeros_like(left)
            # As many as fit of this bucket; where it has fewer, the next shorter ones go with them.
            batch[bucket::-1] = np.diff(np.minimum(np.cumsum(left[bucket::-1]), fit), prepend=0)
            times.append(max(int(left[bucket]) // fit, 1))
            rows.append(batch)
            left -= times[-1] * batch
    return Cut(np.array(times), np.array(rows))


def cut_packed(buckets: Lengths, budget: int, max_batch_size: int) -> Cut:
    """Return batches whose rows together are within the budget, all about equally full.

    From the longest on, each record goes to the emptiest batch that has room. There are as many batches as
    would hold all records if no room was lost, and more as soon as a record finds no room.
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
    """Runs of equal batches that are being filled.

    times  (runs,) int64: batches of each run
    rows   (runs, buckets) int64: records of each bucket in each batch
    load   (runs,) int64: the length of each batch's records together
    """

    def __init__(self, times: int, buckets: int) -> None:
        self.times = np.array([times])
        self.rows = np.zeros((1, buckets), np.int64)
        self.load = np.zeros(1, np.int64)

    def append(self, times: int, like: int | None = None) -> None:
        """Add batches: empty ones, or as those of run ``like`` are."""
        kept = 0 if like is None else 1
        self.times = np.append(self.times, times)
        self.rows = np.append(self.rows, self.rows[[like or 0]] * kept, axis=0)
        self.load = np.append(self.load, self.load[like or 0] * kept)

    def add(self, bucket: int, length: int, number: int, budget: int, max_batch_size: int) -> int:
        """Give each of ``number`` records to the emptiest batch with room; return how many found none."""
        room = np.minimum((budget - self.load) // length, max_batch_size - self.rows.sum(1))

        def taken(level: int) -> Int64Array:
            """(runs,) what each batch takes, if it takes one whenever it holds at most ``level``."""
            return np.clip((level - self.load) // length + 1, 0, room)

        low, high = -1, budget  # taken(low) is not too many
        while high - low > 1:
            middle = (low + high) // 2
            if int(taken(middle) @ self.times) <= number:
                low = middle
            else:
                high = middle
        given, more = taken(low), taken(high)
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
