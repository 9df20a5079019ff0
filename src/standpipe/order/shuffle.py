"""A new random order of all records in each epoch, in memory that doesn't grow with their number."""

from __future__ import annotations

from dataclasses import dataclass

from standpipe import _native
from standpipe.order._arguments import MAX_POSITIONS, WORDS, check_positions, whole_number
from standpipe.spec import Int64Array


@dataclass(frozen=True, slots=True)
class Shuffled:
    """An order that has every record once per epoch, at a position that is a function of (seed, epoch).

    num_records  1 to 2^62
    seed         0 to 2^64 − 1

    The order of a (num_records, seed, epoch) never changes between versions: saved states rely on it.
    """

    num_records: int
    seed: int

    def __post_init__(self) -> None:
        number = whole_number("num_records", self.num_records, low=1, high=MAX_POSITIONS)
        object.__setattr__(self, "num_records", number)
        object.__setattr__(self, "seed", whole_number("seed", self.seed, low=0, high=WORDS - 1))

    @property
    def num_positions(self) -> int:
        """The number of positions in an epoch, which is the number of records."""
        return self.num_records

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_records, epoch, start, stop)
        return _native.shuffled_indices(self.seed, epoch, self.num_records, start, stop)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return f"shuffle(seed={self.seed}): keyed bijection of {self.num_records:,} positions, new each epoch"
