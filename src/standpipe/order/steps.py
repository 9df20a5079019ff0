"""Compute the positions of the global order that a rank takes at each step, without state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Order
from standpipe.errors import PlanError, StateError
from standpipe.order._arguments import MAX_POSITIONS, MAX_ROWS, whole_number
from standpipe.order.budget import Batches
from standpipe.order.given import Given
from standpipe.spec import Int64Array, LastBatch

# One record per position, or one batch per position
AnyOrder: TypeAlias = Order | Batches | Given


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place of a run. It doesn't contain batch size, rank or world size, so a run can resume with others.

    epoch     counts from 0
    consumed  positions of the epoch's global order that all ranks together have taken
    """

    epoch: int = 0
    consumed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The rows of one batch.

    indices    (rows,) int64: their record numbers
    positions  (rows,) int64: keys of random numbers, besides seed and epoch
    valid      (rows,) bool: False for padding
    """

    indices: Int64Array
    positions: Int64Array
    valid: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Step:
    """One rank's rows of one global step; where the positions of an order are whole batches, its one batch.

    start          position of the first row; past the epoch's end when every row is padding
    rows           how many rows
    num_positions  positions in the epoch

    A row at p ≥ num_positions is padding: it repeats position p mod num_positions and isn't valid.
    """

    start: int
    rows: int
    num_positions: int

    @property
    def num_valid(self) -> int:
        """Rows that are no padding. They come first."""
        return min(max(self.num_positions - self.start, 0), self.rows)

    def valid(self) -> NDArray[np.bool_]:
        """Return a mask, (rows,) bool, that is False for padding."""
        return np.arange(self.rows) < self.num_valid

    def positions(self) -> Int64Array:
        """Return the rows' positions in the epoch, (rows,) int64: keys of their random numbers."""
        return (self.start + np.arange(self.rows, dtype=np.int64)) % self.num_positions

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the rows' positions as ranges [start, stop): one, or more where padding wraps around."""
        left = self.rows
        first = self.start % self.num_positions
        while left > 0:
            stop = min(first + left, self.num_positions)
            yield first, stop
            left -= stop - first
            first = 0

    def indices(self, order: Order, epoch: int) -> Int64Array:
        """The rows' record numbers, (rows,) int64."""
        return np.concatenate([order.indices(epoch, start, stop) for start, stop in self.ranges()])

    def draw(self, order: AnyOrder, epoch: int) -> Drawn:
        """Return the records of the batch."""
        if not isinstance(order, Batches | Given):
            return Drawn(self.indices(order, epoch), self.positions(), self.valid())
        batch = self.start % self.num_positions
        indices = order.records(epoch, batch)
        positions = batch * order.stride + np.arange(len(indices))
        return Drawn(indices, positions, np.full(len(indices), self.num_valid == 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Divide an epoch into steps of ``batch × world_size`` positions, and each step among the ranks.

    num_positions     positions in the epoch's global order
    batch             rows per rank and step
    rank, world_size  this data rank, and the number of ranks
    last_batch        what happens to positions that don't fill a whole step. DROP leaves them out, PAD
    repeats the
                      epoch's first rows as rows that aren't valid, SHORT makes the last step shorter
    unit              the unit of a position: ``"rows"``, or ``"batches"`` where batches differ in size

    From a cursor on, step k covers positions [consumed + k·G, consumed + (k + 1)·G) with G = batch ×
    world_size. Rank r takes rows [r·batch, (r + 1)·batch) of it. The number of steps never depends on the
    rank.
    """

    num_positions: int
    batch: int
    rank: int = 0
    world_size: int = 1
    last_batch: LastBatch = LastBatch.DROP
    unit: Literal["rows", "batches"] = "rows"

    def __post_init__(self) -> None:
        limits = {
            "num_positions": (1, MAX_POSITIONS),
            "batch": (1, MAX_ROWS),
            "world_size": (1, MAX_ROWS),
            "rank": (0, MAX_ROWS),
        }
        for field, (low, high) in limits.items():
            number = whole_number(field, getattr(self, field), low=low, high=high)
            object.__setattr__(self, field, number)
        if self.rank >= self.world_size:
            raise PlanError(
                f"rank must be from 0 to world_size − 1, got rank={self.rank} and world_size={self.world_size}"
            )
        if self.last_batch is LastBatch.PARTIAL and self.world_size > 1:
            raise PlanError(
                f'last_batch="partial" with world_size={self.world_size} would give ranks different batches; '
                'use last_batch="drop" or last_batch="pad"'
            )
        if self.per_epoch == 0:
            smaller = self.num_positions // self.world_size
            remedy = f'a batch of at most {smaller} or last_batch="pad"' if smaller else 'last_batch="pad"'
            raise PlanError(
                f"{self._some(self.num_positions)} fill no step of {self._across_ranks}, "
                f'so last_batch="drop" would leave none; use {remedy}'
            )

    @property
    def global_batch(self) -> int:
        """Positions of one step, over all ranks."""
        return self.batch * self.world_size

    @property
    def per_epoch(self) -> int:
        """Steps of a whole epoch."""
        return self.count()

    @property
    def dropped_per_epoch(self) -> int:
        """Positions of a whole epoch that no rank gets."""
        return self.num_positions % self.global_batch if self.last_batch is LastBatch.DROP else 0

    def count(self, consumed: int = 0) -> int:
        """Steps from a cursor to the epoch's end. Raises ``StateError`` if no epoch has such a cursor."""
        if not 0 <= consumed <= self.num_positions:
            raise StateError(
                f"the state has consumed {consumed} positions of an epoch that has {self.num_positions}"
            )
        left = self.num_positions - consumed
        match self.last_batch:
            case LastBatch.DROP:
                return left // self.global_batch
            case LastBatch.PAD | LastBatch.PARTIAL:
                return -(-left // self.global_batch)
            case unknown:
                assert_never(unknown)

    def step(self, k: int, consumed: int = 0) -> Step:
        """Return this rank's rows of the ``k``-th step from a cursor."""
        if not 0 <= k < self.count(consumed):
            raise IndexError(f"step {k} of {self.count(consumed)} from position {consumed}")
        start = consumed + k * self.global_batch + self.rank * self.batch
        rows = self.batch
        if self.last_batch is LastBatch.PARTIAL:
            rows = min(rows, self.num_positions - start)
        return Step(start, rows, self.num_positions)

    def is_known(self, order: AnyOrder, cursor: Cursor) -> bool:
        """Return whether ``order`` says already which records the batch at ``cursor`` has."""
        return not isinstance(order, Given) or order.has(cursor.epoch, cursor.consumed)

    def settled(self, cursor: Cursor) -> Cursor:
        """Return where the next step starts: the next epoch when this one has no step left."""
        return cursor if self.count(cursor.consumed) > 0 else Cursor(cursor.epoch + 1)

    def after(self, cursor: Cursor, steps: int = 1) -> Cursor:
        """Return the cursor once ``steps`` steps from ``cursor`` on are delivered on every rank."""
        start = self.settled(cursor)
        left = self.count(start.consumed)
        if steps >= left:
            epochs, steps = divmod(steps - left, self.per_epoch)
            start = Cursor(start.epoch + 1 + epochs)
        return Cursor(start.epoch, start.consumed + steps * self.global_batch)

    def describe(self) -> str:
        """One line for ``explain()``."""
        padded = self.per_epoch * self.global_batch - self.num_positions
        match self.last_batch:
            case LastBatch.DROP:
                last_batch = f"{self._some(self.dropped_per_epoch)} dropped per epoch"
            case LastBatch.PAD:
                last_batch = f"{self._some(padded)} of the last one are padding"
            case LastBatch.PARTIAL:
                last_batch = f"{self._some(self.batch - padded)} in the last one"
            case unknown:
                assert_never(unknown)
        return f"{self.per_epoch:,} steps per epoch of {self._across_ranks}, {last_batch}"

    @property
    def _across_ranks(self) -> str:
        ranks = f" × {self.world_size:,} ranks" if self.world_size > 1 else ""
        return f"{self._some(self.batch)}{ranks}"

    def _some(self, number: int) -> str:
        return "1 batch" if (number, self.unit) == (1, "batches") else f"{number:,} {self.unit}"
