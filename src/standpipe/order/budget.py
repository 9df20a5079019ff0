"""Batches within a length budget: bucketing and packing of records by their lengths, planned once for all
epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.order._arguments import MAX_ROWS, check_positions, whole_number
from standpipe.order.cut import MAX_LENGTH, Cut, Lengths, cut_packed, cut_padded
from standpipe.order.groups import AspectGroups
from standpipe.order.selection import Chain
from standpipe.order.table import Table, grouped_by
from standpipe.spec import AnyArray, Int64Array

Column = Callable[[int, int], AnyArray]

# Of one seed the order of batches and of each bucket's records are keyed apart, from each other and other orders.
_BATCHES, _BUCKETS = 1 << 16, (1 << 16) + 1
ROWS_AT_ONCE = 1 << 18  # of a pass over all lengths
MIXED_BATCHES = 4  # least number per bucket: with fewer, each epoch batches the same records


@dataclass(frozen=True, slots=True)
class Budget:
    """A length budget: the most that one batch may hold, in the unit of a column of lengths.

    most            1 to 2^40, in the column's unit: tokens, pixels, …
    length_column   name of the column with each record's length
    max_batch_size  largest number of records in a batch; None: as many as the budget allows
    packing         what the budget limits: True: the sum of a batch's lengths; False: rows × padded length
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
        """Return one phrase for the recipe, with every setting that decides which records a batch has."""
        most = (
            f"budget={self.most}, length_column={self.length_column!r}, max_batch_size={self.max_batch_size}"
        )
        return f"{most}, packing={self.packing}"


@dataclass(frozen=True, slots=True, eq=False)
class BudgetOrder:
    """An order whose positions are whole batches. Every epoch has each record in exactly one batch.

    Batches with the same number of records from each bucket form a run. In each epoch, a keyed bijection
    gives the batch at each position, and another one per bucket gives the records of each batch. So computing
    any batch of any epoch takes time in proportion to its rows.

    budget    the limits of a batch, or what its records have in common
    multiple  each record counts as its length rounded up to a multiple of this
    seed      seed of the shuffle; None: no shuffle, batches with the longest records come first
    chain     the selected records
    buckets   number of records and longest length of each bucket, rounded up to ``multiple``
    cut       the runs of batches
    total     sum of all lengths
    places    places of the records in ``chain``, grouped by bucket, the bucket of shortest records first
    """

    budget: Budget | AspectGroups
    multiple: int
    seed: int | None
    chain: Chain
    buckets: Lengths
    cut: Cut
    total: int
    places: Table

    @classmethod
    def of(
        cls, budget: Budget, column: Column, chain: Chain, *, seed: int | None, multiple: int = 1
    ) -> BudgetOrder:
        """Plan the batches of all records.

        column    function of (start, stop) that returns the lengths of the selected records [start, stop),
                  integers
        multiple  each record counts as its length rounded up to a multiple of this

        Raises ``PlanError`` for lengths that aren't integers, are negative, or exceed the budget.
        """
        lengths = _Lengths(budget, column, chain, multiple)
        total = 0

        def summed() -> Iterator[Int64Array]:
            nonlocal total
            for chunk in lengths:
                total += int(chunk.sum())
                yield -(-chunk // multiple) * multiple

        mixed = 0 if seed is None or budget.packing else MIXED_BATCHES
        buckets = Lengths.of(summed()).joined(least_cost=mixed * budget.most)
        cut_by = cut_packed if budget.packing else cut_padded
        cut = cut_by(buckets, budget.most, budget.max_batch_size or MAX_ROWS)
        bucket_of = (np.searchsorted(buckets.longest, chunk) for chunk in lengths)
        _, places = grouped_by(bucket_of, len(buckets.counts))
        return cls(budget, multiple, seed, chain, buckets, cut, total, places)

    @classmethod
    def grouped(
        cls,
        groups: AspectGroups,
        column: Callable[[str, int, int], AnyArray],
        chain: Chain,
        *,
        seed: int | None,
    ) -> BudgetOrder:
        """Plan the batches of all records, each of one group; ``AspectGroups.cut`` documents ``column``."""
        buckets, cut, places = groups.cut(column, chain)
        return cls(groups, 1, seed, chain, buckets, cut, 0, places)

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
        """The number of records of the largest batch."""
        return int(self.cut.sizes.max())

    @property
    def stride(self) -> int:
        """The distance between the keys of random numbers of two successive batches: ``most_rows``."""
        return self.most_rows

    def records(self, epoch: int, position: int) -> Int64Array:
        """Return the record numbers of the batch at a position, (rows,) int64, with the longest bucket's
        records first.
        """
        counts = self.buckets.counts
        begins = np.cumsum(counts) - counts
        parts = [
            begins[bucket] + self._shuffled(_BUCKETS + bucket, epoch, int(counts[bucket]), first, number)
            for bucket, first, number in self._parts(epoch, position)
        ]
        return self.chain.records(self.places.at(np.concatenate(parts)))

    def bucket_of(self, epoch: int, position: int, row: int) -> tuple[int, int]:
        """Return the bucket of row ``row`` of a batch: its first place in ``places``, and its number of
        records.
        """
        counts = self.buckets.counts
        for bucket, _, number in self._parts(epoch, position):
            if row < number:
                return int(counts[:bucket].sum()), int(counts[bucket])
            row -= number
        raise IndexError(f"batch {position} of epoch {epoch} has no row beyond {row}")

    def record_at(self, place: int) -> int:
        """Return the record number at a place of ``places``, such as one in the range that ``bucket_of``
        gives.
        """
        return int(self.chain.records(self.places.at(np.array([place])))[0])

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        if isinstance(self.budget, AspectGroups):
            order = "group by group" if self.seed is None else f"shuffle(seed={self.seed}), new each epoch"
            smaller = int(self.cut.times @ (self.cut.sizes < self.budget.rows))
            return (
                f"{self.num_positions:,} batches of {self.budget.rows:,} rows from {len(self.buckets.counts)} groups "
                f"by {self.budget.by}, {smaller} of them smaller; {order}"
            )
        what = "packed" if self.budget.packing else "padded"
        what += f" to a multiple of {self.multiple:,}," if self.multiple > 1 else " to"
        share = self.total / (self.num_positions * self.budget.most)
        order = "the longest first" if self.seed is None else f"shuffle(seed={self.seed}), new each epoch"
        return (
            f"{self.num_positions:,} batches of {int(self.cut.sizes.min()):,} to {self.most_rows:,} rows from "
            f"{len(self.buckets.counts)} buckets, {what} at most {self.budget.most:,} of "
            f"{self.budget.length_column!r}, which they fill to {share:.1%}; {order}"
        )

    def _parts(self, epoch: int, position: int) -> list[tuple[int, int, int]]:
        """Return ``Cut.places`` of the batch that the epoch has at a position."""
        check_positions(self.num_positions, epoch, position, position + 1)
        return self.cut.places(int(self._shuffled(_BATCHES, epoch, self.num_positions, position, 1)[0]))

    def _shuffled(self, part: int, epoch: int, count: int, start: int, number: int) -> Int64Array:
        """Return the numbers at places [start, start + number) of a shuffle of 0 to ``count`` − 1, (number,)
        int64.

        part  number that makes this shuffle independent of other shuffles with the same seed
        """
        if self.seed is None:
            return np.arange(start, start + number)
        seed = _native.mix(_native.mix(0, self.seed), part)
        return _native.shuffled_indices(seed, epoch, count, start, start + number)


@dataclass(frozen=True, slots=True)
class _Lengths:
    """An iterable of the selected records' checked lengths, in arrays; each pass reads the column again.

    A record of length 0 counts as 1.
    """

    budget: Budget
    column: Column
    chain: Chain
    multiple: int

    def __iter__(self) -> Iterator[Int64Array]:
        times = self.chain.times
        selected = self.chain.count // times
        at_once = max(ROWS_AT_ONCE // times, 1)
        for start in range(0, selected, at_once):
            lengths = self._checked(self.column(start, min(start + at_once, selected)), start * times)
            yield np.repeat(np.maximum(lengths, 1), times)

    def _checked(self, lengths: AnyArray, place: int) -> Int64Array:
        """Return ``lengths`` as int64.

        Raises a ``PlanError`` that names the first record whose length doesn't fit.

        place  the place in ``chain`` of the first length
        """
        column, budget, multiple = self.budget.length_column, self.budget.most, self.multiple
        most = budget // multiple * multiple  # the longest record that fits when it is padded
        numbers = lengths.astype(np.int64)
        bad = np.flatnonzero((numbers < 0) | (np.maximum(numbers, 1) > most))
        if len(bad) == 0:
            return numbers
        length = int(lengths[bad[0]])
        record = int(self.chain.records(np.array([place + bad[0] * self.chain.times]))[0])
        if length < 0:
            raise PlanError(f"record {record} has {column!r} {length}; lengths are integers from 0 on")
        padded = (
            f", {-(-max(length, 1) // multiple) * multiple} when it is padded to a multiple of {multiple}"
        )
        remedy = f"or leave such records out, .filter({f'{column} <= {most}'!r})"
        raise PlanError(
            f"record {record} has {column!r} {length}{padded if multiple > 1 else ''}; no batch of "
            f"budget={budget} holds it: raise it, {remedy if most else 'or use a smaller to_multiple_of='}"
        )
