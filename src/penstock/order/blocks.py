"""Records in a new random order each epoch that keeps near each other what lies near each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock import _native
from penstock.order._arguments import MAX_POSITIONS, WORDS, check_positions, whole_number
from penstock.spec import Int64Array

# Of one seed the blocks' order, the short block's place and each window's order are keyed apart.
_BLOCKS, _SHORT, _WINDOWS = 1, 2, 3


@dataclass(frozen=True, slots=True)
class BlockShuffled:
    """Every record once an epoch: blocks of neighbours in random order, shuffled within a window of blocks.

    num_records  1 to 2^62
    seed         0 to 2^64 − 1
    block        neighbouring records that stay near each other; the last block may be shorter
    window       blocks whose records are mixed

    Media that are quick to read in sequence (disks, tape, archives) see ``window`` streams of ``block`` records
    at a time. Nothing is buffered: the order is a function of (seed, epoch, position), in O(1) memory, and never
    changes between versions.
    """

    num_records: int
    seed: int
    block: int
    window: int

    def __post_init__(self) -> None:
        for field, low, high in (
            ("num_records", 1, MAX_POSITIONS),
            ("seed", 0, WORDS - 1),
            ("block", 1, MAX_POSITIONS),
            ("window", 1, MAX_POSITIONS),
        ):
            number = whole_number(field, getattr(self, field), low=low, high=high)
            object.__setattr__(self, field, number)

    @property
    def num_positions(self) -> int:
        """Positions in one epoch: each record once."""
        return self.num_records

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Record numbers of positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_records, epoch, start, stop)
        places = _Places(self, epoch)
        parts = [np.empty(0, np.int64)]
        window = places.window_of(start)
        while start < stop:
            first, end = places.begin(window), places.begin(window + 1)
            parts.append(places.records(window, start - first, min(stop, end) - first))
            start, window = end, window + 1
        return np.concatenate(parts)

    def describe(self) -> str:
        """One line for ``explain()``."""
        return (
            f"shuffle(seed={self.seed}, block={self.block}, window={self.window}): blocks of {self.block:,} records "
            f"in random order, mixed over {self.window:,} of them, new each epoch"
        )


class _Places:
    """One epoch's blocks in their order: place i holds a block of ``block`` records, one place the short one."""

    def __init__(self, order: BlockShuffled, epoch: int) -> None:
        self._order = order
        self._epoch = epoch
        self._num_blocks = -(-order.num_records // order.block)
        self._missing = self._num_blocks * order.block - order.num_records  # records of the short block
        word = _native.mix(_native.mix(_native.mix(0, order.seed), _SHORT), epoch)
        self._short = word * self._num_blocks // WORDS

    def begin(self, window: int) -> int:
        """The first position of a window; of the one after the last, the number of positions."""
        place = min(window * self._order.window, self._num_blocks)
        return place * self._order.block - self._missing * (place > self._short)

    def window_of(self, position: int) -> int:
        """The window that a position is in."""
        window = position // (self._order.window * self._order.block)
        return window + (position >= self.begin(window + 1))

    def records(self, window: int, start: int, stop: int) -> Int64Array:
        """Record numbers of offsets [start, stop) of a window, (stop − start,) int64."""
        order = self._order
        seed = _native.mix(_native.mix(_native.mix(0, order.seed), _WINDOWS), window)
        size = self.begin(window + 1) - self.begin(window)
        offsets = _native.shuffled_indices(seed, self._epoch, size, start, stop)
        first = window * order.window
        blocks = self._blocks(first, min(first + order.window, self._num_blocks))
        if 0 <= self._short - first < len(blocks):
            end = (self._short - first + 1) * order.block - self._missing  # of the short block
            offsets += self._missing * (offsets >= end)
        return blocks[offsets // order.block] * order.block + offsets % order.block

    def _blocks(self, start: int, stop: int) -> Int64Array:
        """Which block each place of [start, stop) holds, (stop − start,) int64."""
        whole = self._num_blocks - 1  # all but the last one, which is the short one
        seed = _native.mix(_native.mix(0, self._order.seed), _BLOCKS)
        before, after = start - (start > self._short), stop - (stop > self._short)
        blocks = _native.shuffled_indices(seed, self._epoch, whole, before, after)
        if start <= self._short < stop:
            blocks = np.insert(blocks, self._short - start, whole)
        return blocks
