"""Selections that look at columns: which records they leave is known once the source is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from penstock import _native
from penstock.errors import PlanError
from penstock.order._arguments import WORDS, whole_number
from penstock.order.columns import Columns, Groups, bits, chunks, grouped, key_of, mixed
from penstock.order.expression import Condition
from penstock.order.selection import Selection, check_share
from penstock.order.table import ROWS_AT_ONCE, Table, sorted_by
from penstock.spec import Int64Array

# Splits by a column are keyed apart from all else of their seed.
_SIDES, _GROUPS, _STRATA = 8, 9, 10


@runtime_checkable
class OfColumns(Protocol):
    """A selection's description, from which ``over`` makes the selection."""

    def over(self, columns: Columns) -> Selection:
        """Look at the columns, once, in pieces. Raises ``PlanError`` when they don't fit, or nothing is left."""

    def describe(self) -> str:
        """One phrase for ``explain()`` and the recipe: everything that decides which records these are."""


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The records whose numbers a table lists.

    numbers  at least one
    text     what chose them
    """

    numbers: Table
    text: str

    def count(self, num_records: int) -> int:
        """As many as are listed."""
        return len(self.numbers)

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Place i is record ``numbers[i]``."""
        return self.numbers.at(places)

    def describe(self) -> str:
        """One phrase."""
        return self.text


@dataclass(frozen=True, slots=True)
class Filter:
    """The records for which a condition on columns holds, in their order."""

    text: str

    def __post_init__(self) -> None:
        Condition(self.text)

    def over(self, columns: Columns) -> Chosen:
        """Find them in one pass."""
        condition = Condition(self.text)
        condition.check(columns)

        def numbers() -> Iterator[Int64Array]:
            for start in range(0, columns.num_records, ROWS_AT_ONCE):
                stop = min(start + ROWS_AT_ONCE, columns.num_records)
                yield start + np.flatnonzero(condition.holds(columns, start, stop))

        found = Table.from_chunks(numbers(), below=columns.num_records)
        if len(found) == 0:
            raise PlanError(f"{self.describe()} leaves nothing of {columns.num_records:,} records")
        return Chosen(found, self.describe())

    def describe(self) -> str:
        """One phrase."""
        return f"filter({self.text.strip()!r})"


@dataclass(frozen=True, slots=True)
class SplitByColumn:
    """One side of a cut in two that looks at a column.

    how  ``"by"``: records of one value are on one side. ``"stratify"``: each value is cut in the same share
    """

    share: float
    seed: int
    side: Literal["first", "rest"]
    how: Literal["by", "stratify"]
    column: str

    def __post_init__(self) -> None:
        check_share(self.share)
        object.__setattr__(self, "seed", whole_number("split's seed", self.seed, low=0, high=WORDS - 1))

    def over(self, columns: Columns) -> Side:
        """Sort the records by group, in one or a few passes. Raises ``PlanError`` when a side would be empty."""
        cut = self._by_group(columns) if self.how == "by" else self._by_stratum(columns)
        first = int(cut.firsts.sum())
        if not 0 < first < columns.num_records:
            raise PlanError(
                f"{self.describe()} of {columns.num_records:,} records leaves one side empty: "
                f"the column {self.column!r} has too few values"
            )
        is_first = self.side == "first"
        sizes = cut.firsts if is_first else cut.groups.sizes - cut.firsts
        begins = cut.groups.begins if is_first else cut.groups.begins + cut.firsts
        return Side(cut.groups.places, begins, np.cumsum(sizes), key_of(self.seed, _SIDES), self.describe())

    def describe(self) -> str:
        """One phrase."""
        return f"split({self.share}, {self.how}={self.column!r}, seed={self.seed}), {self.side}"

    def _by_group(self, columns: Columns) -> _Cut:
        """All records in a random order of their values, cut between two of these."""
        key, number = key_of(self.seed, _GROUPS), columns.num_records

        def drawn(start: int, stop: int) -> Int64Array:
            words = mixed(key, bits(columns.read(self.column, start, stop)))
            return (words >> np.uint64(1)).view(np.int64)

        pieces = chunks(columns, self.column, self.describe())
        places = sorted_by(drawn(start, start + len(chunk)) for start, chunk in pieces)

        def drawn_at(place: int) -> int:
            record = int(places.read(place, place + 1)[0])
            return int(drawn(record, record + 1)[0])

        wanted = int(number * self.share + 0.5)
        middle = drawn_at(min(wanted, number - 1))
        before = _first(number, lambda place: drawn_at(place) >= middle)
        after = _first(number, lambda place: drawn_at(place) > middle)
        nearest = before if after == number or (before > 0 and wanted - before <= after - wanted) else after
        whole = np.array([number])
        return _Cut(Groups(np.zeros(1, np.int64), whole, np.zeros(1, np.int64), places), np.array([nearest]))

    def _by_stratum(self, columns: Columns) -> _Cut:
        groups = grouped(columns, self.column, key=key_of(self.seed, _STRATA), asked_by=self.describe())
        ends = np.floor(np.cumsum(groups.sizes) * self.share + 0.5).astype(np.int64)
        return _Cut(groups, np.diff(ends, prepend=0))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Groups, and how many of each group's first records are on the first side, (k,) int64."""

    groups: Groups
    firsts: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Some records of each of k runs of a table, in a random order that is the same in every epoch.

    begins  (k,) int64: where its records of each run begin
    ends    (k,) int64: how many it has up to each run's end
    """

    table: Table
    begins: Int64Array
    ends: Int64Array
    key: int
    text: str

    def count(self, num_records: int) -> int:
        """How many it has."""
        return int(self.ends[-1])

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Place i is record i of a shuffle of its own."""
        own = _native.shuffled_at(self.key, 0, self.count(num_records), places)
        run = np.searchsorted(self.ends, own, side="right")
        before = np.where(run > 0, self.ends[run - 1], 0)
        return self.table.at(self.begins[run] + own - before)

    def describe(self) -> str:
        """One phrase."""
        return self.text


def _first(number: int, holds: Callable[[int], bool]) -> int:
    """The first place of [0, number) from which on something holds; ``number`` if it never does."""
    low, high = 0, number
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
