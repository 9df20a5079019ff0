"""The order of a stream, which is its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from standpipe.order._arguments import check_positions
from standpipe.spec import Int64Array


@dataclass(frozen=True, slots=True)
class Streamed:
    """Position i is what comes i-th. Satisfies ``contracts.Order``.

    num_positions  of all ranks together
    known          whether there really are so many; else that is no more than a bound
    """

    num_positions: int
    known: bool

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Positions [start, stop) themselves, (stop − start,) int64."""
        check_positions(self.num_positions, epoch, start, stop)
        return np.arange(start, stop, dtype=np.int64)

    def describe(self) -> str:
        """One line for ``explain()``."""
        many = f"{self.num_positions:,} samples" if self.known else "how many samples shows at its end"
        return f"as the stream gives them: {many}"
