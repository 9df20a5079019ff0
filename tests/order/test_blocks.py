"""A block-wise shuffle keeps neighbours near each other, and is otherwise as good as a whole one."""

import numpy as np
import pytest

from standpipe.errors import PlanError
from standpipe.order import BlockShuffled

N, BLOCK, WINDOW = 10_037, 50, 8  # the last block has 37 records


def epoch(number: int = 0, *, seed: int = 3, n: int = N) -> np.ndarray:
    return BlockShuffled(n, seed, BLOCK, WINDOW).indices(number, 0, n)


def test_a_window_holds_whole_blocks() -> None:
    order, seen = epoch(), 0
    while seen < N:
        size = BLOCK * WINDOW
        blocks, counts = np.unique(order[seen : seen + size] // BLOCK, return_counts=True)
        if len(blocks) > WINDOW:  # the short block is in it: the window ends 13 records earlier
            size -= BLOCK - N % BLOCK
            blocks, counts = np.unique(order[seen : seen + size] // BLOCK, return_counts=True)
        full = [min(BLOCK, N - block * BLOCK) for block in blocks]
        assert len(blocks) <= WINDOW
        assert counts.tolist() == full, "a block is cut in two"
        seen += size


def test_blocks_and_records_of_a_window_are_mixed() -> None:
    order = epoch()
    first = order[: BLOCK * WINDOW]
    assert not np.array_equal(np.sort(order // BLOCK), order // BLOCK)
    assert np.mean(np.diff(first) == 1) < 0.02
    blocks = first // BLOCK
    assert np.mean(blocks[1:] == blocks[:-1]) == pytest.approx(1 / WINDOW, abs=0.06)


def test_epochs_and_seeds_differ() -> None:
    orders = [epoch(0), epoch(1), epoch(0, seed=4)]
    for i, a in enumerate(orders):
        for b in orders[i + 1 :]:
            assert np.mean(a == b) < 0.01
            assert np.mean(a // BLOCK == b // BLOCK) < 0.05


def test_the_short_block_is_anywhere() -> None:
    """Where it is, over 4,000 epochs of 5 blocks: each place a fifth of the time."""
    n, block = 42, 10
    order = BlockShuffled(n, 1, block, 1)
    places = [int(np.flatnonzero(order.indices(e, 0, n) // block == 4)[0]) // block for e in range(4_000)]
    share = np.bincount(places, minlength=5) / 4_000
    assert share == pytest.approx([0.2] * 5, abs=0.03)


def test_a_window_of_all_blocks_is_a_whole_shuffle() -> None:
    order = BlockShuffled(1_000, 5, 10, 1_000)
    moved = np.stack([order.indices(e, 0, 1_000) for e in range(200)])
    assert abs(np.corrcoef(moved[:, :-1].ravel(), moved[:, 1:].ravel())[0, 1]) < 0.01


@pytest.mark.parametrize(("block", "window"), [(0, 1), (1, 0), (-1, 1), (1.5, 1), (True, 1), (1, "8")])
def test_blocks_that_cannot_be(block: object, window: object) -> None:
    with pytest.raises(PlanError, match=r"(block|window) must be"):
        BlockShuffled(10, 0, block, window)  # type: ignore[arg-type]
