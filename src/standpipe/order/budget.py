"""Batches of as many records as a budget allows: bucketing and packing by a length, planned once for all epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.order._arguments import MAX_ROWS, check_positions, whole_number
from standpipe.order.cut import MAX_LENGTH, Cut, Lengths, cut_packed, cut_padded
from standpipe.order.selection import Chain
from standpipe.order.table import Table, grouped_by
from standpipe.spec import AnyArray, Int64Array

Column = Callable[[int, int], AnyArray]

# Of one seed the order of batches and of each bucket's records are keyed apart, from each other and other orders.
_BATCHES, _BUCKETS = 1 << 16, (1 << 16) + 1
ROWS_AT_ONCE = 1 << 18  # of a pass over all lengths
MIXED_BATCHES = 4  # that a bucket fills at least: with fewer the same records meet in every epoch


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that one batch may hold, by a length that is known of every record.

    most            1 to 2^40, in the length's unit: tokens, pixels, …
    length_column   the column of lengths
    max_batch_size  records of a batch, at most; None: as many as the budget allows
    packing         cost of a batch: True: the sum of its lengths; False: rows × longest record
    """

    most: int
    length_column: str
    max_batch_size: int | None = None
    packing: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", whole_number("budget", self.most, low=1, high=MAX_LENGTH))
        if not isinstance(self.length_column, str):
            raise PlanError(f"batch: length_column must be the name of a column, got {self.length_column!r}")
        if self.max_batch_size is not None:
            rows = whole_number("max_batch_size", self.max_batch_size, low=1, high=MAX_ROWS)
            object.__setattr__(self, "max_batch_size", rows)
        if not isinstance(self.packing, bool):
            raise PlanError(f"batch: packing must be True or False, got {self.packing!r}")

    def describe(self) -> str:
        """One phrase for the recipe: everything that decides what a batch is."""
        most = (
            f"budget={self.most}, length_column={self.length_column!r}, max_batch_size={self.max_batch_size}"
        )
        return f"{most}, packing={self.packing}"


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Whole batches at the positions of an epoch: every record in one of them, whichever epoch.

    Equal batches form runs. In each epoch a keyed bijection says which batch stands at which position, and
    one per bucket which of its records take which place. So any batch of any epoch costs as much as its rows.

    budget   what a batch may hold
    seed     of the shuffle; None: the longest records first, those of a bucket as they were chosen
    chain    which records take part
    buckets  how many of them are of which length at most
    cut      the runs of batches
    total    the lengths of all of them together
    places   their places in ``chain``, grouped by bucket, the shortest first
    """

    budget: Budget
    seed: int | None
    chain: Chain
    buckets: Lengths
    cut: Cut
    total: int
    places: Table

    @classmethod
    def of(cls, budget: Budget, column: Column, chain: Chain, *, seed: int | None) -> Batches:
        """Plan the batches of all records.

        column  the lengths of the selected records [start, stop), (stop − start,) integers

        Raises ``PlanError`` for lengths that aren't integers, are negative, or exceed the budget.
        """
        lengths = _Lengths(budget, column, chain)
        total = 0

        def summed() -> Iterator[Int64Array]:
            nonlocal total
            for chunk in lengths:
                total += int(chunk.sum())
                yield chunk

        mixed = 0 if seed is None or budget.packing else MIXED_BATCHES
        buckets = Lengths.of(summed()).joined(least_cost=mixed * budget.most)
        cut_by = cut_packed if budget.packing else cut_padded
        cut = cut_by(buckets, budget.most, budget.max_batch_size or MAX_ROWS)
        bucket_of = (np.searchsorted(buckets.longest, chunk) for chunk in lengths)
        _, places = grouped_by(bucket_of, len(buckets.counts))
        return cls(budget, seed, chain, buckets, cut, total, places)

    @property
    def num_positions(self) -> int:
        """The number of batches in an epoch."""
        return int(self.cut.ends[-1])

    @property
    def num_rows(self) -> int:
        """The number of records in an epoch."""
        return int(self.cut.times @ self.cut.sizes)

    @property
    def most_rows(self) -> int:
        """Records of the batch that has most."""
        return int(self.cut.sizes.max())

    @property
    def stride(self) -> int:
        """Distance between the random keys of one batch and the next."""
        return self.most_rows

    def records(self, epoch: int, position: int) -> Int64Array:
        """Record numbers of one batch, (rows,) int64, those of the longest bucket first."""
        counts = self.buckets.counts
        begins = np.cumsum(counts) - counts
        parts = [
            begins[bucket] + self._shuffled(_BUCKETS + bucket, epoch, int(counts[bucket]), first, number)
            for bucket, first, number in self._parts(epoch, position)
        ]
        return self.chain.records(self.places.at(np.concatenate(parts)))

    def bucket_of(self, epoch: int, position: int, row: int) -> tuple[int, int]:
        """The bucket of one row of a batch: the first of its records' places, and how many there are."""
        counts = self.buckets.counts
        for bucket, _, number in self._parts(epoch, position):
            if row < number:
                return int(counts[:bucket].sum()), int(counts[bucket])
            row -= number
        raise IndexError(f"batch {position} of epoch {epoch} has no row beyond {row}")

    def record_at(self, place: int) -> int:
        """The record number at a place, as ``bucket_of`` counts them."""
        return int(self.chain.records(self.places.at(np.array([place])))[0])

    def describe(self) -> str:
        """One line for ``explain()``."""
        what = "packed" if self.budget.packing else "padded"
        share = self.total / (self.num_positions * self.budget.most)
        order = "the longest first" if self.seed is None else f"shuffle(seed={self.seed}), new each epoch"
        return (
            f"{self.num_positions:,} batches of {int(self.cut.sizes.min()):,} to {self.most_rows:,} rows from "
            f"{len(self.buckets.counts)} buckets, {what} to at most {self.budget.most:,} of "
            f"{self.budget.length_column!r}, which they fill to {share:.1%}; {order}"
        )

    def _parts(self, epoch: int, position: int) -> list[tuple[int, int, int]]:
        """Return ``Cut.places`` of the batch at a position."""
        check_positions(self.num_positions, epoch, position, position + 1)
        return self.cut.places(int(self._shuffled(_BATCHES, epoch, self.num_positions, position, 1)[0]))

    def _shuffled(self, part: int, epoch: int, count: int, start: int, number: int) -> Int64Array:
        """Places [start, start + number) of a shuffle of ``count``, (number,) int64."""
        if self.seed is None:
            return np.arange(start, start + number)
        seed = _native.mix(_native.mix(0, self.seed), part)
        return _native.shuffled_indices(seed, epoch, count, start, start + number)


@dataclass(frozen=True, slots=True)
class _Lengths:
    """The lengths of the records that take part, checked, in pieces; they may be read again and again.

    A record of length 0 counts as 1.
    """

    budget: Budget
    column: Column
    chain: Chain

    def __iter__(self) -> Iterator[Int64Array]:
        times = self.chain.times
        selected = self.chain.count // times
        at_once = max(ROWS_AT_ONCE // times, 1)
        for start in range(0, selected, at_once):
            lengths = self._checked(self.column(start, min(start + at_once, selected)), start * times)
            yield np.repeat(np.maximum(lengths, 1), times)

    def _checked(self, lengths: AnyArray, place: int) -> Int64Array:
        """``lengths`` as int64. Raises a ``PlanError`` that names the first record whose length doesn't fit.

        place  of the first of them
        """
        column, most = self.budget.length_column, self.budget.most
        numbers = lengths.astype(np.int64)
        bad = np.flatnonzero((numbers < 0) | (numbers > most))
        if len(bad) == 0:
            return numbers
        length = int(lengths[bad[0]])
        record = int(self.chain.records(np.array([place + bad[0] * self.chain.times]))[0])
        remedy = "lengths are integers from 0 on"
        if length > 0:
            leave_out = f".filter({f'{column} <= {most}'!r})"
            remedy = f"no batch of budget={most} holds it: raise it, or leave such records out, {leave_out}"
        raise PlanError(f"record {record} has {column!r} {length}; {remedy}")
