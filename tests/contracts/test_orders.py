import numpy as np
import pytest
from orders import check_order

from penstock.contracts import Order
from penstock.order import Sequential, Shuffled
from penstock.spec import Int64Array

SIZES = [1, 2, 3, 1023, 1024, 1025, 1026, 1089, 1090, 65_536, 99_991, 10**8, 2**53 + 1, 2**62]
ORDERS = [Sequential(n) for n in SIZES] + [Shuffled(n, seed) for n in SIZES for seed in (0, 7, 2**64 - 1)]


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_an_order_keeps_its_contract(order: Order) -> None:
    assert isinstance(order, Order)
    check_order(order)


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
