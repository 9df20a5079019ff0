"""Selections of a source's records. Each computes the record at a place of the selection."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from standpipe import _native
from standpipe.contracts import Order
from standpipe.errors import PlanError
from standpipe.order._arguments import MAX_POSITIONS, WORDS, check_positions, record_numbers, whole_number
from standpipe.spec import Int64Array, set_plain

# Splits of one seed are keyed apart from its shuffles.
_SPLIT = 4


class Selection(Protocol):
    """A selection from n records, in its own order. It may have a record several times."""

    def count(self, num_records: int) -> int:
        """Return how many records the selection has, of ``num_records``.

        Raises ``PlanError`` if it doesn't fit them.
        """

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Return the record number at each of ``places``, (n,) int64 in [0, count).

        num_records  number of records that the selection is made from
        """

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe, with everything that decides which records are
        selected.
        """


@dataclass(frozen=True, slots=True)
class Take:
    """A selection of the first ``number`` records, or of all if there are fewer."""

    number: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", whole_number("take", self.number, low=1, high=MAX_POSITIONS))

    def count(self, num_records: int) -> int:
        """Return the smaller of ``number`` and ``num_records``."""
        return min(self.number, num_records)

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Return ``places``: record i is at place i."""
        return places

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return f"take({self.number})"


@dataclass(frozen=True, slots=True)
class Skip:
    """A selection of all records except the first ``number``."""

    number: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", whole_number("skip", self.number, low=0, high=MAX_POSITIONS))

    def count(self, num_records: int) -> int:
        """Return the number of remaining records. Raises ``PlanError`` if there are none."""
        if self.number >= num_records:
            raise PlanError(f"skip({self.number}) leaves nothing of {num_records} records: skip fewer")
        return num_records - self.number

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Return ``places`` + ``number``: record ``number`` + i is at place i."""
        return places + self.number

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return f"skip({self.number})"


@dataclass(frozen=True, slots=True, eq=False)
class Select:
    """A selection of the records ``rows``, (n,) int64, in that order; a number may be listed several times."""

    rows: Int64Array

    @classmethod
    def of(cls, rows: object) -> Select:
        """Make the selection from a list or array of record numbers.

        Raises ``PlanError`` for other values, and for an empty list.
        """
        array = record_numbers("select() takes", rows)
        if len(array) == 0:
            raise PlanError("select() takes a list of record numbers, got an empty one")
        array.setflags(write=False)
        return cls(array)

    def count(self, num_records: int) -> int:
        """Return the number of listed records. Raises ``PlanError`` for one that doesn't exist."""
        if (largest := int(self.rows.max())) >= num_records:
            raise PlanError(f"select() names record {largest}, but records are from 0 to {num_records - 1}")
        return len(self.rows)

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Return ``rows[place]`` for each of ``places``, (n,) int64."""
        return self.rows[places]

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        from hashlib import blake2b  # loads OpenSSL, which importing standpipe needn't

        digest = blake2b(self.rows.astype("<i8").tobytes(), digest_size=8).hexdigest()
        return f"select({len(self.rows)} records, digest {digest})"


@dataclass(frozen=True, slots=True)
class Split:
    """A selection of one part of a random split of all records in two.

    share  fraction of the records in the part ``"first"``, 0 < share < 1; the other part is ``"rest"``
    side   the selected part

    A record's part depends only on ``seed``, ``share`` and the number of records. Each part has a random
    order that is the same in every epoch.
    """

    share: float
    seed: int
    side: Literal["first", "rest"]

    def __post_init__(self) -> None:
        set_plain(self, "share")
        check_share(self.share)
        object.__setattr__(self, "seed", whole_number("split's seed", self.seed, low=0, high=WORDS - 1))

    def count(self, num_records: int) -> int:
        """Return the number of records in the selected part. Raises ``PlanError`` if one part would be empty."""
        first = self._first(num_records)
        if not 0 < first < num_records:
            raise PlanError(f"split({self.share}) of {num_records} records leaves one side empty")
        return first if self.side == "first" else num_records - first

    def records(self, places: Int64Array, num_records: int) -> Int64Array:
        """Return the record at each of ``places`` in a shuffle of all records: the first part, then the rest."""
        seed = _native.mix(_native.mix(0, self.seed), _SPLIT)
        skipped = 0 if self.side == "first" else self._first(num_records)
        return _native.shuffled_at(seed, 0, num_records, places + skipped)

    def describe(self) -> str:
        """Return one phrase for ``explain()`` and the recipe."""
        return f"split({self.share}, seed={self.seed}), {self.side}"

    def _first(self, num_records: int) -> int:
        return math.floor(num_records * self.share + 0.5)


def check_share(share: object) -> None:
    """Raise ``PlanError`` unless 0 < share < 1."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise PlanError(f"split: the fraction must be above 0 and below 1, such as 0.9, got {share!r}")


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of selections from a source's records; each selected record is repeated ``times`` times in a
    row.

    num_records  number of records in the source
    selections   the first one selects from the source's records, each further one from the records of the
                 previous
    times        number of places in a row that each record of the last selection has
    sizes        (selections + 1,) number of records before the first selection and after each
    """

    num_records: int
    selections: tuple[Selection, ...] = ()
    times: int = 1
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        sizes = [self.num_records]
        for selection in self.selections:
            sizes.append(selection.count(sizes[-1]))
        object.__setattr__(self, "sizes", tuple(sizes))

    @property
    def count(self) -> int:
        """The number of places: records of the last selection × ``times``."""
        return self.sizes[-1] * self.times

    def records(self, places: Int64Array) -> Int64Array:
        """Return the source's record number at each of ``places``, (n,) int64."""
        records = places // self.times
        for selection, size in zip(reversed(self.selections), reversed(self.sizes[:-1]), strict=True):
            records = selection.records(records, size)
        return records


@dataclass(frozen=True, slots=True)
class Selected:
    """An order of the records that a chain of selections has. Satisfies ``contracts.Order``.

    order  order of the chain's places
    """

    order: Order
    chain: Chain

    @property
    def num_positions(self) -> int:
        """The number of positions in an epoch."""
        return self.order.num_positions

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch, (stop − start,) int64."""
        return self.chain.records(self.order.indices(epoch, start, stop))

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        chosen = " → ".join(selection.describe() for selection in self.chain.selections)
        return f"{chosen} of {self.chain.num_records:,} records; {self.order.describe()}"


@dataclass(frozen=True, slots=True)
class Repeated:
    """An order that repeats every position of another order ``times`` times in a row.

    Satisfies ``contracts.Order``.

    Repeats of a record are in the same step if they fit, and have different random numbers: repeated
    augmentation (Hoffer et al., Augment Your Batch, 2020).
    """

    order: Order
    times: int

    @property
    def num_positions(self) -> int:
        """The number of positions in an epoch."""
        return self.order.num_positions * self.times

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_positions, epoch, start, stop)
        first, last = start // self.times, -(-stop // self.times)
        records = np.repeat(self.order.indices(epoch, first, max(first, last)), self.times)
        skipped = start - first * self.times
        return records[skipped : skipped + stop - start]

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return f"{self.order.describe()}; each position {self.times} times in a row"
