"""Compute the positions of the global order that a rank takes at each step, without state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.contracts import Order
from standpipe.errors import PlanError, StateError
from standpipe.order._arguments import MAX_POSITIONS, MAX_ROWS, whole_number
from standpipe.order.budget import BudgetOrder
from standpipe.order.given import Given
from standpipe.spec import Int64Array, LastBatch

# An order with one record per position, or with one batch per position
AnyOrder: TypeAlias = Order | BudgetOrder | Given

STEP_OP = 0x55 << 16  # operation number in the random numbers' key; no transform has it


@dataclass(frozen=True, slots=True)
class Cursor:
    """The point that a run has reached.

    It has no batch size, rank or world size, so a run can resume with others.

    epoch     number of the epoch, from 0
    consumed  number of the epoch's positions that all ranks together have taken
    """

    epoch: int = 0
    consumed: int = 0

    def draw(self, seed: int, choices: int) -> int:
        """Return an integer in [0, choices), drawn at random for the step that begins here; all ranks get it."""
        return _native.sample_key(seed, self.epoch, self.consumed, 0, STEP_OP) % choices


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The records of one batch.

    indices    (rows,) int64: record numbers
    positions  (rows,) int64: keys of the rows' random numbers, besides seed and epoch
    valid      (rows,) bool: False for padding
    """

    indices: Int64Array
    positions: Int64Array
    valid: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RankStep:
    """One rank's part of one step, as a range of positions.

    If positions are whole batches, it has one position.

    start          position of the first row; past the epoch's end if every row is padding
    rows           number of positions
    num_positions  number of positions in the epoch

    A row at position p ≥ num_positions is padding: it repeats position p mod num_positions and isn't valid.
    """

    start: int
    rows: int
    num_positions: int

    @property
    def num_valid(self) -> int:
        """The number of rows that aren't padding. They come before the padding."""
        return min(max(self.num_positions - self.start, 0), self.rows)

    def valid(self) -> NDArray[np.bool_]:
        """Return a mask, (rows,) bool, that is False for padding."""
        return np.arange(self.rows) < self.num_valid

    def positions(self) -> Int64Array:
        """Return the rows' positions in the epoch, (rows,) int64: keys of their random numbers."""
        return (self.start + np.arange(self.rows, dtype=np.int64)) % self.num_positions

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the rows' positions as ranges (start, stop): one range, or several if padding continues at
        position 0.
        """
        left = self.rows
        first = self.start % self.num_positions
        while left > 0:
            stop = min(first + left, self.num_positions)
            yield first, stop
            left -= stop - first
            first = 0

    def indices(self, order: Order, epoch: int) -> Int64Array:
        """Return the rows' record numbers, (rows,) int64."""
        return np.concatenate([order.indices(epoch, start, stop) for start, stop in self.ranges()])

    def draw(self, order: AnyOrder, epoch: int) -> Drawn:
        """Return the records of the batch that this step has in an epoch of ``order``."""
        if not isinstance(order, BudgetOrder | Given):
            return Drawn(self.indices(order, epoch), self.positions(), self.valid())
        batch = self.start % self.num_positions
        indices = order.records(epoch, batch)
        positions = batch * order.stride + np.arange(len(indices))
        return Drawn(indices, positions, np.full(len(indices), self.num_valid == 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The division of an epoch into steps of ``batch × world_size`` positions, and of each step among the
    ranks.

    num_positions     positions in the epoch's global order
    batch             positions per rank and step
    rank, world_size  this data rank, and the number of ranks
    last_batch        treatment of the last positions, if they don't fill a whole step: DROP leaves them out;
                      PAD fills the step with the epoch's first rows, which aren't valid; PARTIAL shortens the
                      step
    unit              the unit of a position: ``"rows"``, or ``"batches"`` if batches differ in size

    From a cursor on, step k has positions [consumed + k·G, consumed + (k + 1)·G) with G = batch ×
    world_size. Rank r takes positions [r·batch, (r + 1)·batch) of them. The number of steps never depends on
    the rank.
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
            name = field.replace("batch", "batch_size")
            number = whole_number(name, getattr(self, field), low=low, high=high)
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
        """The number of positions in a step, over all ranks."""
        return self.batch * self.world_size

    @property
    def per_epoch(self) -> int:
        """The number of steps in a whole epoch."""
        return self.count()

    @property
    def dropped_per_epoch(self) -> int:
        """The number of positions in a whole epoch that no rank gets."""
        return self.num_positions % self.global_batch if self.last_batch is LastBatch.DROP else 0

    def count(self, consumed: int = 0) -> int:
        """Return the number of steps that remain in an epoch after ``consumed`` positions.

        Raises ``StateError`` if ``consumed`` is negative, or larger than the epoch.
        """
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

    def step(self, k: int, consumed: int = 0) -> RankStep:
        """Return this rank's part of step ``k``, counted from 0 after ``consumed`` positions of an epoch."""
        if not 0 <= k < self.count(consumed):
            raise IndexError(f"step {k} of {self.count(consumed)} from position {consumed}")
        start = consumed + k * self.global_batch + self.rank * self.batch
        rows = self.batch
        if self.last_batch is LastBatch.PARTIAL:
            rows = min(rows, self.num_positions - start)
        return RankStep(start, rows, self.num_positions)

    def is_known(self, order: AnyOrder, cursor: Cursor) -> bool:
        """Return True if ``order`` has the records of the batch at ``cursor``; False for a ``Given`` batch
        yet to come.
        """
        return not isinstance(order, Given) or order.has(cursor.epoch, cursor.consumed)

    def settled(self, cursor: Cursor) -> Cursor:
        """Return ``cursor``, or the beginning of the next epoch if the cursor's epoch has no step left."""
        return cursor if self.count(cursor.consumed) > 0 else Cursor(cursor.epoch + 1)

    def after(self, cursor: Cursor, steps: int = 1) -> Cursor:
        """Return the cursor after ``steps`` more steps, counted from ``cursor``."""
        start = self.settled(cursor)
        left = self.count(start.consumed)
        if steps >= left:
            epochs, steps = divmod(steps - left, self.per_epoch)
            start = Cursor(start.epoch + 1 + epochs)
        return Cursor(start.epoch, start.consumed + steps * self.global_batch)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
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
