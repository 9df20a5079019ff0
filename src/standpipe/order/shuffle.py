"""Records in a new random order each epoch, in memory that doesn't grow with their number."""

from __future__ import annotations

from dataclasses import dataclass

from standpipe import _native
from standpipe.order._arguments import MAX_POSITIONS, WORDS, check_positions, whole_number
from standpipe.spec import Int64Array


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Every record once an epoch, at a position that is a function of (seed, epoch).

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
        """Positions in one epoch: each record once."""
        return self.num_records

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Record numbers of positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_records, epoch, start, stop)
        return _native.shuffled_indices(self.seed, epoch, self.num_records, start, stop)

    def describe(self) -> str:
        """One line for ``explain()``."""
        return f"shuffle(seed={self.seed}): keyed bijection of {self.num_records:,} positions, new each epoch"
