"""The contract that every order must keep."""

import numpy as np

from standpipe.contracts import Order

FULL = 100_000  # positions: above it a contract is checked on windows


def check_order(order: Order, num_records: int | None = None, *, repeats: bool = False) -> None:
    """Check that records are in range, none comes twice, and every split and every call gives the same ones.

    num_records  of the source; default: as many as positions, so that every record comes once
    repeats      whether a record may come twice in an epoch
    """
    n = order.num_positions
    limit = n if num_records is None else num_records
    assert n >= 1
    for epoch in (0, 1, 2**64 - 1):
        for start, stop in windows(n):
            check_window(order, limit, epoch, start, stop, repeats=repeats)
    check_edges(order)
    text = order.describe()
    assert text == text.strip()
    assert text.isprintable(), "describe() is one line"


def check_window(
    order: Order, limit: int, epoch: int, start: int, stop: int, *, repeats: bool = False
) -> None:
    records = order.indices(epoch, start, stop)
    assert records.dtype == np.int64
    assert records.shape == (stop - start,)
    assert records.min() >= 0
    assert records.max() < limit
    assert repeats or len(np.unique(records)) == stop - start, "a record comes twice"
    assert np.array_equal(records, order.indices(epoch, start, stop)), "asked again it answers otherwise"
    for split in {start, start + 1, (start + stop) // 2, stop}:
        parts = (order.indices(epoch, start, split), order.indices(epoch, split, stop))
        assert np.array_equal(records, np.concatenate(parts)), f"a split at {split} gives other records"
    for at in {start, (start + stop) // 2, stop - 1}:
        assert order.indices(epoch, at, at + 1).tolist() == [records[at - start]]


def check_edges(order: Order) -> None:
    n = order.num_positions
    assert order.indices(0, 0, 0).shape == (0,)
    assert order.indices(0, n, n).shape == (0,)
    for start, stop, epoch in ((-1, 1, 0), (0, n + 1, 0), (1, 0, 0), (0, 1, -1), (0, 1, 2**64)):
        try:
            order.indices(epoch, start, stop)
        except IndexError:
            continue
        raise AssertionError(f"positions [{start}, {stop}) of epoch {epoch} don't exist, and were given")


def windows(n: int) -> list[tuple[int, int]]:
    """The whole epoch, or its beginning, middle and end."""
    if n <= FULL:
        return [(0, n)]
    return [(start, start + 1000) for start in (0, n // 2, n - 1000)]
