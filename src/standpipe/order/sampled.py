"""Orders that sample records at random, by weight or by class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.contracts import Order
from standpipe.errors import PlanError
from standpipe.order._arguments import WORDS, check_positions, whole_number
from standpipe.order.columns import Columns, Groups, chunks, grouped, key_of
from standpipe.order.table import ROWS_AT_ONCE, Table
from standpipe.spec import AnyArray, Int64Array

# Records and positions: every stratum is at least 4 units wide, and products fit 62 bits.
MOST_RECORDS = (1 << 29) - 1
LEAST_WEIGHT = 1e-200  # of the largest weight
# Keyed apart from all else of their seed.
_WEIGHTED, _BALANCED, _MEMBERS = 5, 6, 7


class Sampling(Protocol):
    """The description of an order that samples records. ``order`` makes the order from the columns."""

    def order(self, columns: Columns, seed: int) -> Order:
        """Read the columns in pieces, and return the order. Raises ``PlanError`` if a column doesn't fit."""

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The description of an order that samples records with probabilities in proportion to weights.

    weights  name of a column, or (n,) float64 for the n selected records
    samples  positions in an epoch; None: as many as records
    """

    weights: str | NDArray[np.float64]
    samples: int | None

    @classmethod
    def of(cls, weights: object, samples: object) -> Weights:
        """Make the description from a column's name, or a list or array of numbers.

        Raises ``PlanError`` for others.
        """
        if isinstance(weights, str):
            return cls(weights, _checked_samples(samples))
        array = np.asarray(weights)
        if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) == 0:
            raise PlanError(
                f"sample(weights=…) takes a column's name or one number per record, got {array.dtype} of shape "
                f"{array.shape}"
            )
        array = np.array(array, np.float64)
        array.setflags(write=False)
        return cls(array, _checked_samples(samples))

    def order(self, columns: Columns, seed: int) -> Weighted:
        """Read the weights in three passes, and return the order."""
        if not isinstance(self.weights, str) and len(self.weights) != columns.num_records:
            raise PlanError(
                f"sample(weights=…) needs one weight for each of {columns.num_records:,} records, got "
                f"{len(self.weights):,}"
            )
        samples = columns.num_records if self.samples is None else self.samples
        _check_most("weights", columns.num_records, samples)
        return Weighted.over(lambda: self._pieces(columns), columns.num_records, samples, seed)

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        if isinstance(self.weights, str):
            return f"weights={self.weights!r}" + _shown_samples(self.samples)
        from hashlib import blake2b  # loads OpenSSL, which importing standpipe needn't

        digest = blake2b(self.weights.astype("<f8").tobytes(), digest_size=8).hexdigest()
        return f"weights={len(self.weights)} numbers, digest {digest}" + _shown_samples(self.samples)

    def _pieces(self, columns: Columns) -> Iterator[tuple[int, AnyArray]]:
        if isinstance(self.weights, str):
            yield from chunks(columns, self.weights, "sample(weights=…)")
            return
        for start in range(0, len(self.weights), ROWS_AT_ONCE):
            yield start, self.weights[start : start + ROWS_AT_ONCE]


@dataclass(frozen=True, slots=True)
class Balance:
    """The description of an order in which every value of a column comes equally often.

    column   name of a column of integers
    samples  positions in an epoch; None: as many as records
    """

    column: str
    samples: int | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", _checked_samples(self.samples))

    def order(self, columns: Columns, seed: int) -> Balanced:
        """Group the records by their values, and return the order."""
        samples = columns.num_records if self.samples is None else self.samples
        _check_most("balance", columns.num_records, samples)
        groups = grouped(columns, self.column, key=key_of(seed, _MEMBERS), asked_by="sample(balance=…)")
        return Balanced(groups, samples, seed)

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return f"balance={self.column!r}" + _shown_samples(self.samples)


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """An order that samples records in proportion to their weights. Satisfies ``contracts.Order``.

    The weights, rounded to integers, are intervals on a line, one after another. The line is cut into equal
    strata, one for each position of an epoch. A shuffle assigns a stratum to each position, and a random
    number of (seed, epoch, position) chooses a point in it. The position's record is the one whose interval
    contains the point. So each position has record i with probability weight i / sum. In an epoch, a record's
    count differs from its expected count by less than two, which is closer than independent sampling. With
    equal weights the order is a shuffle.

    ends    end of each record's interval on the line
    begins  record number at the beginning of each stratum, and then the last record number
    total   length of the line
    """

    ends: Table
    begins: Table
    total: int
    num_positions: int
    seed: int

    @classmethod
    def over(
        cls, pieces: Callable[[], Iterator[tuple[int, AnyArray]]], num_records: int, samples: int, seed: int
    ) -> Weighted:
        """Make the order from weights.

        pieces   function that yields the weights in pieces, each with the number of its first record; called
                 twice
        samples  positions in an epoch
        """
        unit = _unit(pieces(), num_records)

        def ends() -> Iterator[Int64Array]:
            end = 0
            for _, weights in pieces():
                piece = end + np.cumsum(np.rint(weights.astype(np.float64) * unit).astype(np.int64))
                end = int(piece[-1])
                yield piece

        line = Table.from_chunks(ends())
        total = int(line.read(num_records - 1, num_records)[0])
        begins = Table.from_chunks(_records_at_begins(line, total, samples), below=num_records)
        return cls(line, begins, total, samples, whole_number("seed", seed, low=0, high=WORDS - 1))

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_positions, epoch, start, stop)
        key = key_of(self.seed, _WEIGHTED)
        strata, points = _native.stratified_points(key, epoch, self.num_positions, self.total, start, stop)
        return self._records_at(points, strata)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return (
            f"sample(seed={self.seed}, weights=…): {self.num_positions:,} samples in proportion to the weights of "
            f"{len(self.ends):,} records, new each epoch"
        )

    def _records_at(self, points: Int64Array, strata: Int64Array) -> Int64Array:
        """Return the record whose interval contains each of ``points``, by bisection within each point's
        stratum.
        """
        limits = self.begins.at(np.concatenate([strata, strata + 1]))
        low, high = limits[: len(strata)], limits[len(strata) :]
        while (open_ := (low < high).nonzero()[0]).size:
            middle = (low[open_] + high[open_]) >> 1
            is_left = self.ends.at(middle) > points[open_]
            high[open_] = np.where(is_left, middle, high[open_])
            low[open_] = np.where(is_left, low[open_], middle + 1)
        return low


@dataclass(frozen=True, slots=True, eq=False)
class Balanced:
    """An order in which every group of records comes equally often. Satisfies ``contracts.Order``.

    Positions take the groups in turn, and a shuffle mixes the positions of an epoch. So the counts of two
    groups differ by at most one, in each epoch and over all epochs. A group gives its records in a random
    order, each once before any comes again; an epoch continues where the last one ended.
    """

    groups: Groups
    num_positions: int
    seed: int

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_positions, epoch, start, stop)
        groups = self.groups
        places = _native.shuffled_indices(
            key_of(self.seed, _BALANCED), epoch, self.num_positions, start, stop
        )
        rounds, dealt = divmod(epoch * self.num_positions, len(groups.sizes))
        turns, group = np.divmod(places + dealt, len(groups.sizes))
        member = (_remainders(self, rounds)[group] + turns) % groups.sizes[group]
        return groups.places.at(groups.begins[group] + member)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return (
            f"sample(seed={self.seed}, balance=…): {self.num_positions:,} draws of {len(self.groups.sizes):,} "
            f"groups in turn, {len(self.groups.places):,} records, new each epoch"
        )


@lru_cache(maxsize=2)  # a run asks of one epoch for long; as integers of any size, since epochs have 64 bits
def _remainders(order: Balanced, rounds: int) -> Int64Array:
    """Return each group's place among its records after it came ``rounds`` times, (k,) int64."""
    return np.array([rounds % size for size in order.groups.sizes.tolist()], np.int64)


def _unit(pieces: Iterator[tuple[int, AnyArray]], num_records: int) -> float:
    """Return a power of two: weights × this number, rounded, are integers with a sum below 2^62.

    Raises ``PlanError`` for weights that aren't numbers of at least 0, or are all below 1e-200.
    """
    largest = 0.0
    for start, piece in pieces:
        if piece.dtype.kind not in "biuf":
            raise PlanError(
                f"sample(weights=…): weights must be real numbers, but the column is {piece.dtype}"
            )
        weights = piece.astype(np.float64)
        if not np.all(is_weight := (weights >= 0) & (weights < np.inf)):
            bad = int(np.argmin(is_weight))
            raise PlanError(
                f"sample(weights=…): a weight must be a number from 0 on, but record {start + bad} has "
                f"{weights[bad]}"
            )
        largest = max(largest, float(weights.max()))
    if largest < LEAST_WEIGHT:
        raise PlanError(
            f"sample(weights=…): at least one weight must be {LEAST_WEIGHT} or more, but the largest is {largest}"
        )
    return float(2.0 ** (61 - int(np.frexp(largest)[1]) - num_records.bit_length()))


def _strata(numbers: Int64Array, total: int, count: int) -> Int64Array:
    """Return the begin on the line of each stratum in ``numbers``: number × total // count, without overflow."""
    whole, rest = divmod(total, count)
    return numbers * whole + numbers * rest // count


def _records_at_begins(line: Table, total: int, count: int) -> Iterator[Int64Array]:
    """Yield the record number at the begin of each of ``count`` strata, and then the record at the line's
    end.
    """
    done = 0
    for start in range(0, len(line), ROWS_AT_ONCE):
        ends = line.read(start, min(start + ROWS_AT_ONCE, len(line)))
        until = min(-(-int(ends[-1]) * count // total), count)  # strata that begin before these records end
        for first in range(done, until, ROWS_AT_ONCE):
            begins = _strata(np.arange(first, min(first + ROWS_AT_ONCE, until)), total, count)
            yield start + np.searchsorted(ends, begins, side="right")
        done = max(done, until)
    last = np.array([total - 1])
    for start in range(0, len(line), ROWS_AT_ONCE):
        ends = line.read(start, min(start + ROWS_AT_ONCE, len(line)))
        if ends[-1] == total:
            yield start + np.searchsorted(ends, last, side="right")
            return


def _checked_samples(samples: object) -> int | None:
    return (
        None if samples is None else whole_number("sample's num_samples", samples, low=1, high=MOST_RECORDS)
    )


def _shown_samples(samples: int | None) -> str:
    return "" if samples is None else f", samples={samples}"


def _check_most(field: str, num_records: int, samples: int) -> None:
    if max(num_records, samples) > MOST_RECORDS:
        raise PlanError(
            f"sample({field}=…) takes at most {MOST_RECORDS:,} records and samples, got {max(num_records, samples):,}"
        )
