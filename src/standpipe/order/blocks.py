"""A shuffled order that keeps neighbouring records near each other, for storage that reads in sequence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from standpipe import _native
from standpipe.order._arguments import MAX_POSITIONS, WORDS, check_positions, whole_number
from standpipe.spec import Int64Array

# Of one seed the blocks' order, the short block's place and each window's order are keyed apart.
_BLOCKS, _SHORT, _WINDOWS = 1, 2, 3


@dataclass(frozen=True, slots=True)
class BlockShuffled:
    """Order of all records: blocks of neighbours in random order, and shuffled records in each window of
    blocks.

    num_records  1 to 2^62
    seed         0 to 2^64 − 1
    block        neighbouring records per block; the source's last block may be shorter
    window       number of blocks whose records are shuffled together

    Storage that is quick to read in sequence (disks, tape, archives) serves ``window`` streams of ``block``
    records at a time. Nothing is buffered: the order is a function of (seed, epoch, position), in O(1)
    memory, and never changes between versions.
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
        """The number of positions in an epoch, which is the number of records."""
        return self.num_records

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Return the record numbers at positions [start, stop) of an epoch, (stop − start,) int64."""
        check_positions(self.num_records, epoch, start, stop)
        places = _Places(self, epoch)
        parts = [np.empty(0, np.int64)]
        number = places.window_of(start)
        while start < stop:
            window = _window(places, number)
            end = min(stop, window.end)
            parts.append(window.records(start - window.begin, end - window.begin))
            start, number = end, number + 1
        return np.concatenate(parts)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return (
            f"shuffle(seed={self.seed}, block={self.block}, window={self.window}): blocks of {self.block:,} records "
            f"in random order, mixed over {self.window:,} of them, new each epoch"
        )


@dataclass(frozen=True, slots=True)
class _Places:
    """The order of an epoch's blocks.

    Place i has one block; all blocks have ``block`` records, except a short one.
    """

    order: BlockShuffled
    epoch: int

    @property
    def num_blocks(self) -> int:
        return -(-self.order.num_records // self.order.block)

    @property
    def missing(self) -> int:
        """The number of records that the short block, the source's last, has fewer than ``block``; 0 if none."""
        return self.num_blocks * self.order.block - self.order.num_records

    @property
    def short(self) -> int:
        """The short block's place in the epoch's order of blocks."""
        word = _native.mix(_native.mix(_native.mix(0, self.order.seed), _SHORT), self.epoch)
        return word * self.num_blocks // WORDS

    def begin(self, window: int) -> int:
        """Return the first position of window number ``window``; the number of positions for one past the
        last window.
        """
        place = min(window * self.order.window, self.num_blocks)
        return place * self.order.block - (self.missing if place > self.short else 0)

    def window_of(self, position: int) -> int:
        """Return the number of the window that contains a position."""
        window = position // (self.order.window * self.order.block)
        return window + (position >= self.begin(window + 1))

    def blocks(self, start: int, stop: int) -> Int64Array:
        """Return the numbers of the blocks at places [start, stop), (stop − start,) int64."""
        whole, short = self.num_blocks - 1, self.short
        seed = _native.mix(_native.mix(0, self.order.seed), _BLOCKS)
        before, after = start - (start > short), stop - (stop > short)
        blocks = _native.shuffled_indices(seed, self.epoch, whole, before, after)
        return np.insert(blocks, short - start, whole) if start <= short < stop else blocks


@dataclass(frozen=True, slots=True)
class _Window:
    """One window: the positions [begin, end) of an epoch, whose records are shuffled together.

    seed       seed of the shuffle of its records
    starts     (blocks,) int64: the first record of each of the window's blocks, in the epoch's order of
               blocks
    short_end  number of the window's records before the end of the short block; end − begin without that
               block
    missing    number of records that the short block has fewer than ``block``
    """

    epoch: int
    begin: int
    end: int
    block: int
    seed: int
    starts: Int64Array
    short_end: int
    missing: int

    def records(self, start: int, stop: int) -> Int64Array:
        """Return the record numbers at places [start, stop) of the window, (stop − start,) int64; place 0 is
        ``begin``.
        """
        offsets = _native.shuffled_indices(self.seed, self.epoch, self.end - self.begin, start, stop)
        if self.short_end < self.end - self.begin:
            offsets += self.missing * (offsets >= self.short_end)
        places = offsets // self.block
        return self.starts[places] + (offsets - places * self.block)


@lru_cache(maxsize=4)  # a run asks batch after batch of the same one
def _window(places: _Places, number: int) -> _Window:
    order = places.order
    first = number * order.window
    stop = min(first + order.window, places.num_blocks)
    begin, end = places.begin(number), places.begin(number + 1)
    has_short = first <= places.short < stop
    return _Window(
        epoch=places.epoch,
        begin=begin,
        end=end,
        block=order.block,
        seed=_native.mix(_native.mix(_native.mix(0, order.seed), _WINDOWS), number),
        starts=places.blocks(first, stop) * order.block,
        short_end=(places.short - first + 1) * order.block - places.missing if has_short else end - begin,
        missing=places.missing,
    )
