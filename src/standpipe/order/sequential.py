"""The order in which the source lists its records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from standpipe.order._arguments import MAX_POSITIONS, check_positions, whole_number
from standpipe.spec import Int64Array


@dataclass(frozen=True, slots=True)
class Sequential:
    """An order with record i at position i, the same in every epoch.

    num_records  1 to 2^62
    """

    num_records: int

    def __post_init__(self) -> None:
        number = whole_number("num_records", self.num_records, low=1, high=MAX_POSITIONS)
        object.__setattr__(self, "num_records", number)

    @property
    def num_positions(self) -> int:
        """The number of positions in an epoch, which is the number of records."""
        return self.num_records

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch: start to stop − 1, int64."""
        check_positions(self.num_records, epoch, start, stop)
        return np.arange(start, stop, dtype=np.int64)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return f"sequential: {self.num_records:,} positions, the same each epoch"
