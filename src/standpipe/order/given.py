"""Batches that somebody names one after another, while they are made."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from standpipe.errors import PlanError
from standpipe.order._arguments import MAX_POSITIONS, MAX_ROWS
from standpipe.spec import Int64Array


class Given:
    """The batches of one epoch, as far as they have been named. How many it has shows at its end.

    One thread gives, another one looks up what was given. What is delivered is forgotten.

    most_rows  records of a batch, at most
    epoch      whose batches they are
    begin      place of the first one that is given
    """

    num_positions = MAX_POSITIONS // MAX_ROWS  # no more than a bound
    stride = MAX_ROWS

    def __init__(self, most_rows: int, epoch: int = 0, begin: int = 0) -> None:
        self.most_rows, self.epoch = most_rows, epoch
        self._batches: dict[int, Int64Array] = {}
        self._next = begin

    def give(self, records: Iterable[int]) -> None:
        """One more batch: its record numbers. Raises ``PlanError`` for what are none, none at all, or too many."""
        array = np.asarray(records if isinstance(records, np.ndarray) else list(records))
        if array.ndim != 1 or array.dtype.kind not in "iu" or not 1 <= len(array) <= self.most_rows:
            raise PlanError(
                f"a batch of from_batches() must be a list of 1 to {self.most_rows} record numbers, got "
                f"{array.dtype} of "
                f"shape {array.shape}"
            )
        self._batches[self._next] = array.astype(np.int64)
        self._next += 1

    def has(self, epoch: int, position: int) -> bool:
        """Return True if the batch at a position has been named."""
        return epoch == self.epoch and position in self._batches

    def records(self, epoch: int, position: int) -> Int64Array:
        """Record numbers of one batch, (rows,) int64."""
        if not self.has(epoch, position):
            raise IndexError(f"batch {position} of epoch {epoch} wasn't given")
        return self._batches[position]

    def forget(self, position: int) -> None:
        """Forget a batch that was delivered."""
        self._batches.pop(position, None)

    def describe(self) -> str:
        """One line for ``explain()``."""
        return f"as batches are given, of at most {self.most_rows:,} rows"
