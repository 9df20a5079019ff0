"""The order of a stream: its samples come in sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from standpipe.order._arguments import check_positions
from standpipe.spec import Int64Array


@dataclass(frozen=True, slots=True)
class Streamed:
    """The order of a stream, with sample i of all ranks at position i. Satisfies ``contracts.Order``.

    num_positions  number of samples in an epoch, over all ranks
    known          True if the stream has this length; False if its length is unknown, and this is an upper
                   limit
    """

    num_positions: int
    known: bool

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the numbers start to stop − 1, (stop − start,) int64."""
        check_positions(self.num_positions, epoch, start, stop)
        return np.arange(start, stop, dtype=np.int64)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        many = f"{self.num_positions:,} samples" if self.known else "how many samples shows at its end"
        return f"as the stream gives them: {many}"
