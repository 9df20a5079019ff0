"""Batches whose record numbers the caller gives one after another, for ``loader.from_batches()``."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from standpipe.errors import PlanError
from standpipe.order._arguments import MAX_POSITIONS, MAX_ROWS
from standpipe.spec import Int64Array


class Given:
    """An order of batches that the caller gives during an epoch.

    Their number is unknown until the epoch ends.

    One thread gives batches, another one looks them up. A batch is dropped when it was delivered.

    most_rows  largest number of records in a batch
    epoch      the epoch of these batches
    begin      position of the first batch that is given
    next       position of the batch that is given next
    """

    num_positions = MAX_POSITIONS // MAX_ROWS  # an upper limit
    stride = MAX_ROWS

    def __init__(self, most_rows: int, epoch: int = 0, begin: int = 0) -> None:
        self.most_rows, self.epoch = most_rows, epoch
        self._batches: dict[int, Int64Array] = {}
        self.next = begin

    def give(self, records: Iterable[int]) -> None:
        """Add the next batch, from its record numbers.

        Raises ``PlanError`` for values that aren't integers, and unless there are 1 to ``most_rows`` of them.
        """
        array = np.asarray(records if isinstance(records, np.ndarray) else list(records))
        if array.ndim != 1 or array.dtype.kind not in "iu" or not 1 <= len(array) <= self.most_rows:
            raise PlanError(
                f"a batch of from_batches() must be a list of 1 to {self.most_rows} record numbers, got "
                f"{array.dtype} of "
                f"shape {array.shape}"
            )
        self._batches[self.next] = array.astype(np.int64)
        self.next += 1

    def has(self, epoch: int, position: int) -> bool:
        """Return True if the batch at a position of an epoch was given and not yet forgotten."""
        return epoch == self.epoch and position in self._batches

    def records(self, epoch: int, position: int) -> Int64Array:
        """Return the record numbers of one batch, (rows,) int64. Raises ``IndexError`` if it wasn't given."""
        if not self.has(epoch, position):
            raise IndexError(f"batch {position} of epoch {epoch} wasn't given")
        return self._batches[position]

    def forget(self, position: int) -> None:
        """Drop the record numbers of a batch that was delivered."""
        self._batches.pop(position, None)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return f"as batches are given, of at most {self.most_rows:,} rows"
