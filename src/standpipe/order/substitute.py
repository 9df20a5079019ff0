"""The choice of a record that replaces a bad one."""

from __future__ import annotations

from standpipe import _native
from standpipe.contracts import Order
from standpipe.order.budget import BudgetOrder
from standpipe.order.given import Given
from standpipe.order.mixture import Mixed

SUBSTITUTE_OP = 0x53 << 16  # operation number in the random numbers' key; no transform has it
OF_THE_SAME_BUCKET = 4  # attempts within one bucket, which may have a single record


def substitute(
    order: Order | BudgetOrder | Given, *, seed: int, epoch: int, position: int, attempt: int, index: int
) -> int:
    """Return the number of the record that replaces bad record ``index`` at a position of an epoch.

    attempt  1 for the first replacement; 2 if that one is bad too, and so on

    The replacement is a function of these arguments, the same on every rank: the record at a random position
    of the epoch. So records that the order leaves out aren't chosen, and weights apply. In a mixture it is
    from the same component. In a batch within a length budget it is from the same bucket of lengths, so that
    the batch still fits; after four attempts also from buckets of shorter records. In a ``Given`` batch it is
    another record of that batch, if there is one.
    """
    key = _native.sample_key(seed, epoch, position, attempt, SUBSTITUTE_OP)
    if isinstance(order, BudgetOrder):
        batch, row = divmod(position, order.most_rows)
        begin, count = order.bucket_of(epoch, batch, row)
        if attempt > OF_THE_SAME_BUCKET:
            begin, count = 0, begin + count
        return order.record_at(begin + _scaled(key, count))
    if isinstance(order, Given):
        batch, row = divmod(position, order.stride)
        records = order.records(epoch, batch)
        return int(records[(row + 1 + _scaled(key, max(len(records) - 1, 1))) % len(records)])
    if isinstance(order, Mixed):
        component = order.component_of(index)
        within = order.orders[component]
        return _record(within, epoch, key) + int(order.begins[component])
    return _record(order, epoch, key)


def _record(order: Order, epoch: int, key: int) -> int:
    place = _scaled(key, order.num_positions)
    return int(order.indices(epoch, place, place + 1)[0])


def _scaled(key: int, count: int) -> int:
    """Return the 64-bit ``key`` scaled to an integer in [0, count); its bias is below count / 2^64."""
    return (key * count) >> 64
