"""Selections by columns: the selected records are known once the source is open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.errors import PlanError
from standpipe.order._arguments import WORDS, whole_number
from standpipe.order.columns import Columns, bits, chunks, grouped, key_of, mixed
from standpipe.order.expression import Condition
from standpipe.order.marks import Marks, numbers_of
from standpipe.order.selection import Selection, check_share
from standpipe.order.table import ROWS_AT_ONCE, Table
from standpipe.spec import Int64Array, UInt64Array, set_plain

# Splits by a column are keyed apart from all else of their seed.
_SIDES, _GROUPS, _STRATA = 8, 9, 10


@runtime_checkable
class OfColumns(Protocol):
    """The description of a selection by columns. ``over`` makes the selection from the columns."""

    def over(self, columns: Columns) -> Selection:
        """Read the columns once, in pieces, and return the selection.

        Raises ``PlanError`` if the columns don't fit, or no record is left.
        """

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe, with everything that decides which records are
        selected.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A selection of the records whose numbers are listed.

    numbers  at least one record number; ascending in ``Marks``, in any order in a ``Table``
    text     description of the selection, for ``explain()``
    """

    numbers: Table | Marks
    text: str

    def count(self, num_records: int) -> int:
        """Return the number of listed records."""
        return len(self.numbers)

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Return ``numbers[place]`` for each of ``places``, (n,) int64."""
        return self.numbers.at(places)

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return self.text


@dataclass(frozen=True, slots=True)
class Filter:
    """The description of a selection of the records for which a condition on columns is true, in source
    order.
    """

    text: str

    def __post_init__(self) -> None:
        Condition(self.text)

    def over(self, columns: Columns) -> Chosen:
        """Return the records for which the condition is true. Raises ``PlanError`` if there is none."""
        condition = Condition(self.text)
        condition.check(columns)

        def marks() -> Iterator[NDArray[np.bool_]]:
            for start in range(0, columns.num_records, ROWS_AT_ONCE):
                yield condition.holds(columns, start, min(start + ROWS_AT_ONCE, columns.num_records))

        found = numbers_of(marks(), columns.num_records)
        if len(found) == 0:
            raise PlanError(f"{self.describe()} leaves nothing of {columns.num_records:,} records")
        return Chosen(found, self.describe())

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return f"filter({self.text.strip()!r})"


@dataclass(frozen=True, slots=True)
class SplitByColumn:
    """The description of one part of a split of the records in two, which depends on a column.

    share   fraction of the records in the first part, 0 < share < 1
    side    the part to select
    how     ``"by"``: all records with the same value are in one part. ``"stratify"``: each value's records
            are split in the same fractions
    column  name of the column
    """

    share: float
    seed: int
    side: Literal["first", "rest"]
    how: Literal["by", "stratify"]
    column: str

    def __post_init__(self) -> None:
        set_plain(self, "share")
        check_share(self.share)
        object.__setattr__(self, "seed", whole_number("split's seed", self.seed, low=0, high=WORDS - 1))

    def over(self, columns: Columns) -> Side:
        """Compute the split in a few passes, and return its part.

        Raises ``PlanError`` if a part would be empty.
        """
        side = self._of_groups(columns) if self.how == "by" else self._of_strata(columns)
        if not 0 < side.count(columns.num_records) < columns.num_records:
            raise PlanError(
                f"{self.describe()} of {columns.num_records:,} records leaves one side empty: "
                f"the column {self.column!r} has too few values"
            )
        return side

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return f"split({self.share}, {self.how}={self.column!r}, seed={self.seed}), {self.side}"

    def _of_groups(self, columns: Columns) -> Side:
        """Split by value: give each value a random number; the first part has the records with the lowest
        numbers.
        """
        key, count = key_of(self.seed, _GROUPS), columns.num_records

        def drawn() -> Iterator[UInt64Array]:
            for _, chunk in chunks(columns, self.column, self.describe()):
                yield mixed(key, bits(chunk)) >> np.uint64(1)  # 63 bits, so that one more fits

        wanted = math.floor(count * self.share + 0.5)
        limit, before, alike = _number_at(drawn, min(wanted, count - 1))
        after = before + alike
        if after < count and (before == 0 or after - wanted < wanted - before):
            limit += 1
        is_first = self.side == "first"
        numbers = numbers_of(((words < np.uint64(limit)) == is_first for words in drawn()), count)
        return self._side(numbers, np.zeros(1, np.int64), np.array([len(numbers)]))

    def _of_strata(self, columns: Columns) -> Side:
        """Split each value's records: the first of them, in random order, go to the first part."""
        groups = grouped(columns, self.column, key=key_of(self.seed, _STRATA), asked_by=self.describe())
        ends = np.floor(np.cumsum(groups.sizes) * self.share + 0.5).astype(np.int64)
        firsts = np.diff(ends, prepend=0)
        if self.side == "first":
            return self._side(groups.places, groups.begins, firsts)
        return self._side(groups.places, groups.begins + firsts, groups.sizes - firsts)

    def _side(self, numbers: Table | Marks, begins: Int64Array, sizes: Int64Array) -> Side:
        return Side(numbers, begins, np.cumsum(sizes), key_of(self.seed, _SIDES), self.describe())


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A selection of some records from each of k runs of a list, in a random order that is the same in every
    epoch.

    numbers  the list of record numbers
    begins   (k,) int64: the place in ``numbers`` of the first selected record of each run
    ends     (k,) int64: the number of selected records in this run and all runs before
    key      key of the random order
    text     description of the selection, for ``explain()``
    """

    numbers: Table | Marks
    begins: Int64Array
    ends: Int64Array
    key: int
    text: str

    def count(self, num_records: int) -> int:
        """Return the number of selected records."""
        return int(self.ends[-1])

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Return the record at each of ``places``, (n,) int64, of the shuffled selection."""
        own = _native.shuffled_at(self.key, 0, self.count(num_records), places)
        run = np.searchsorted(self.ends, own, side="right")
        before = np.where(run > 0, self.ends[run - 1], 0)
        return self.numbers.at(self.begins[run] + own - before)

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return self.text


def _number_at(numbers: Callable[[], Iterator[UInt64Array]], place: int) -> tuple[int, int, int]:
    """Return the number at a place of a sorted sequence, how many numbers are smaller, and how many are equal
    to it.

    numbers  a function that yields the unsorted numbers in arrays, of 63 bits; it is called four times
    place    from 0
    """
    found, before, alike = 0, 0, 0
    for shift in (48, 32, 16, 0):
        counts = np.zeros(1 << 16, np.int64)
        for chunk in numbers():
            alike_so_far = chunk[(chunk >> np.uint64(shift) >> np.uint64(16)) == np.uint64(found)]
            digits = (alike_so_far >> np.uint64(shift)) & np.uint64(0xFFFF)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << 16)
        ends = before + np.cumsum(counts)
        digit = int(np.searchsorted(ends, place, side="right"))
        before, alike = int(ends[digit] - counts[digit]), int(counts[digit])
        found = (found << 16) | digit
    return found, before, alike
