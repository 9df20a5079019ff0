"""Choose the record that replaces one that can't be delivered."""

from __future__ import annotations

from standpipe import _native
from standpipe.contracts import Order
from standpipe.order.budget import Batches
from standpipe.order.given import Given
from standpipe.order.mixture import Mixed

SUBSTITUTE_OP = 0x53 << 16  # what this draw is keyed by, beside the sample; no transform has it
OF_THE_SAME_BUCKET = 4  # attempts; a bucket may hold a single record


def substitute(
    order: Order | Batches | Given, *, seed: int, epoch: int, position: int, attempt: int, index: int
) -> int:
    """The record number that comes at ``position`` of ``epoch`` in the place of the record ``index``.

    attempt  1 for the first substitute, 2 for what comes when that one is bad too, and so on

    A pure function of these, the same on every rank: the record of a position of the epoch, drawn uniformly.
    So whatever the order selects, weighs or balances holds for substitutes too. In a mixture it comes from
    the same component; in batches within a budget from the same bucket of lengths, so that the batch still
    fits, and when four were bad from all buckets of shorter ones too. Of a batch that was given it is another
    one of its records.
    """
    key = _native.sample_key(seed, epoch, position, attempt, SUBSTITUTE_OP)
    if isinstance(order, Batches):
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
    """A 64-bit key as a number in [0, count), biased by less than count / 2^64."""
    return (key * count) >> 64
