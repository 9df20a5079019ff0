import numpy as np
import pytest

import standpipe as sp
from orders import check_order
from standpipe.contracts import Order
from standpipe.order import BlockShuffled, Chain, Select, Selected, Sequential, Shuffled, Skip, Split, Take
from standpipe.plan.order import once_each, order_of
from standpipe.spec import Int64Array

SIZES = [1, 2, 3, 1023, 1024, 1025, 1026, 1089, 1090, 65_536, 99_991, 10**8, 2**53 + 1, 2**62]
BLOCKS = [(1, 1), (3, 7), (100, 64), (2**20, 1), (2**60, 5)]
ORDERS: list[Order] = [Sequential(n) for n in SIZES]
ORDERS += [Shuffled(n, seed) for n in SIZES for seed in (0, 7, 2**64 - 1)]
ORDERS += [BlockShuffled(n, 7, *of) for n in SIZES for of in BLOCKS if n < 1000 * of[0] * of[1]]
ORDERS += [
    Selected(Shuffled(70, 1), Chain(101, (Take(70),))),
    Selected(Sequential(31), Chain(101, (Take(70), Skip(39)))),
    Selected(Shuffled(3, 1), Chain(101, (Select.of([70, 0, 2]),))),
    Selected(Shuffled(1800, 1), Chain(2000, (Split(0.9, 5, "first"),))),
    Selected(Sequential(200), Chain(2000, (Split(0.9, 5, "rest"),))),
]


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_an_order_keeps_its_contract(order: Order) -> None:
    assert isinstance(order, Order)
    check_order(order, order.chain.num_records if isinstance(order, Selected) else None)


LABEL = np.random.default_rng(0).integers(0, 7, 3_000)
COLUMNS = sp.Pipeline(sp.Arrays(label=LABEL, weight=np.random.default_rng(1).random(3_000)))
OF_COLUMNS = {
    "filter": COLUMNS.filter("label < 3"),
    "filter, shuffled": COLUMNS.filter("label < 3 and weight > 0.5").shuffle(seed=1),
    "by": COLUMNS.split(0.5, seed=3, by="label")[0].shuffle(seed=2, block=10, window=5),
    "stratify": COLUMNS.split(0.5, seed=3, stratify="label")[1],
    "weights": COLUMNS.sample(seed=1, weights="weight"),
    "weights, few": COLUMNS.skip(7).sample(seed=1, weights="weight", num_samples=5),
    "balance": COLUMNS.sample(seed=1, balance="label"),
    "balance, many": COLUMNS.take(50).sample(seed=1, balance="label", num_samples=4_000),
}
MIXTURES = {
    "two": sp.Mixture({COLUMNS.shuffle(seed=1): 0.7, COLUMNS.filter("label < 3").repeat_each(2): 0.3}),
    "many": sp.Mixture([(COLUMNS.take(n).shuffle(seed=n), n) for n in range(1, 30)], stopping="last"),
    "odd": sp.Mixture({COLUMNS.shuffle(seed=1): 0.123456789, COLUMNS.skip(2_990): 1}, stopping=1_001),
}
OF_COLUMNS |= {name: sp.Pipeline(mix, seed=3) for name, mix in MIXTURES.items()}


@pytest.mark.parametrize("pipeline", OF_COLUMNS.values(), ids=OF_COLUMNS)
def test_an_order_of_columns_keeps_its_contract(pipeline: sp.Pipeline) -> None:
    order = order_of(pipeline, pipeline.source.open())
    assert isinstance(order, Order)
    num_records = pipeline.source.open().num_records
    check_order(order, num_records, repeats=not once_each(pipeline))


class Repeats(Sequential):
    """Gives one record twice."""

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        return np.minimum(super().indices(epoch, start, stop), self.num_records - 2)


class DependsOnTheSplit(Sequential):
    """Turns each range around."""

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        return super().indices(epoch, start, stop)[::-1]


@pytest.mark.parametrize("order", [Repeats(10), DependsOnTheSplit(10)])
def test_the_check_finds_a_broken_order(order: Order) -> None:
    with pytest.raises(AssertionError):
        check_order(order)
