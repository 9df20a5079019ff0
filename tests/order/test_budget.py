"""Batches within a budget: every record once an epoch, never above the budget, any batch computed alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from standpipe.errors import PlanError
from standpipe.order import Budget, BudgetOrder, Chain, Cursor, Select, Skip, Split, Steps, Take
from standpipe.plan.order import order_bytes
from standpipe.spec import AnyArray, Int64Array, LastBatch

quickly = settings(derandomize=True, deadline=None, max_examples=120, database=None)


def planned(
    lengths: AnyArray | list[int],
    most: int,
    *,
    seed: int | None = 0,
    max_batch_size: int | None = None,
    packing: bool = False,
    chain: Chain | None = None,
    multiple: int = 1,
) -> BudgetOrder:
    chain = chain or Chain(len(lengths))
    selected = replace(chain, times=1)
    column = np.asarray(lengths)[selected.records(np.arange(selected.count))]
    budget = Budget(most, "length", max_batch_size, packing)
    return BudgetOrder.of(budget, lambda start, stop: column[start:stop], chain, seed=seed, multiple=multiple)


def lognormal(number: int, most: int) -> Int64Array:
    drawn = np.exp(np.random.default_rng(5).normal(5.5, 1.0, number)).astype(np.int64)
    return np.minimum(drawn + 1, most)


@st.composite
def plans(draw: st.DrawFn) -> tuple[BudgetOrder, Int64Array]:
    """Any batches, and the lengths as which their records count."""
    longest = draw(st.sampled_from([0, 1, 9, 1000, 2**40]))
    few = draw(st.lists(st.integers(0, longest), min_size=1, max_size=6))
    many = draw(st.lists(st.sampled_from(few), max_size=300))
    lengths = np.array([*few, *many])
    multiple = draw(st.sampled_from([1, 2, 8, 64, 2**20]))
    least = -(-max(int(lengths.max()), 1) // multiple) * multiple
    most = draw(st.integers(least, max(least, min(10 * longest, 2**40))))
    batches = planned(
        lengths,
        most,
        seed=draw(st.none() | st.integers(0, 2**64 - 1)),
        max_batch_size=draw(st.none() | st.integers(1, 40)),
        packing=draw(st.booleans()),
        multiple=multiple,
    )
    return batches, -(-np.maximum(lengths, 1) // multiple) * multiple


def epoch_of(batches: BudgetOrder, epoch: int) -> list[list[int]]:
    return [batches.records(epoch, position).tolist() for position in range(batches.num_positions)]


def cost(lengths: Int64Array, packing: bool) -> int:
    return int(lengths.sum()) if packing else len(lengths) * int(lengths.max())


@quickly
@given(plans(), st.integers(0, 2**64 - 1))
def test_every_record_comes_once_an_epoch_and_no_batch_is_above_the_budget(
    case: tuple[BudgetOrder, Int64Array], epoch: int
) -> None:
    batches, lengths = case
    got = epoch_of(batches, epoch)
    assert sorted(record for batch in got for record in batch) == list(range(len(lengths)))
    budget = batches.budget
    for batch in got:
        assert 1 <= len(batch) <= min(batches.most_rows, budget.max_batch_size or batches.most_rows)
        assert cost(lengths[batch], budget.packing) <= budget.most
    assert max(map(len, got)) == batches.most_rows
    assert batches.records(epoch, len(got) - 1).tolist() == got[-1]


@quickly
@given(plans(), st.integers(1, 5), st.integers(1, 5), st.data())
def test_the_rest_is_the_same_for_another_world(
    case: tuple[BudgetOrder, Int64Array], world_size: int, new_world: int, data: st.DataObject
) -> None:
    batches, lengths = case
    first = cut(batches, world_size)
    cursor = Cursor(3)
    for _ in range(data.draw(st.integers(0, first.per_epoch - 1))):
        cursor = first.after(cursor)
    second = cut(batches, new_world)
    rest = [
        row
        for k in range(second.count(cursor.consumed))
        for rank in range(new_world)
        for row in rows(batches, replace(second, rank=rank), k, cursor)
    ]
    whole = [
        row for k in range(batches.num_positions) for row in rows(batches, cut(batches, 1), k, Cursor(3))
    ]
    assert whole[len(whole) - len(rest) :] == rest
    assert len({position for _, position in whole}) == len(whole) == len(lengths)
    done = sum(len(batches.records(3, position)) for position in range(cursor.consumed))
    assert len(rest) == len(whole) - done


def cut(batches: BudgetOrder, world_size: int) -> Steps:
    return Steps(
        num_positions=batches.num_positions,
        batch=1,
        world_size=world_size,
        last_batch=LastBatch.PAD,
        unit="batches",
    )


def rows(batches: BudgetOrder, steps: Steps, k: int, cursor: Cursor) -> list[tuple[int, int]]:
    """(record, position) of the rows that count."""
    drawn = steps.step(k, cursor.consumed).draw(batches, cursor.epoch)
    return list(zip(drawn.indices[drawn.valid].tolist(), drawn.positions[drawn.valid].tolist(), strict=True))


def test_ranks_have_equal_steps_and_padding_repeats_whole_batches() -> None:
    batches = planned(lognormal(500, 4000), 4096)
    steps = [replace(cut(batches, 7), rank=rank) for rank in range(7)]
    assert {each.per_epoch for each in steps} == {-(-batches.num_positions // 7)}
    last = [each.step(each.per_epoch - 1).draw(batches, 2) for each in steps]
    padded = [drawn for drawn in last if not drawn.valid.any()]
    assert len(padded) == -batches.num_positions % 7
    for number, drawn in enumerate(padded):
        assert drawn.indices.tolist() == batches.records(2, number).tolist()
    assert all(drawn.valid.all() for drawn in last[: 7 - len(padded)])


@pytest.mark.parametrize("packing", [False, True])
def test_epochs_differ_in_who_meets_whom_and_when(packing: bool) -> None:
    lengths = lognormal(2000, 4000)
    batches = planned(lengths, 4096, packing=packing)
    first, second = (epoch_of(batches, epoch) for epoch in (0, 1))
    assert Counter(map(len, first)) == Counter(map(len, second))
    meetings = [
        {(a, b) for batch in epoch for a in batch for b in batch if a < b} for epoch in (first, second)
    ]
    assert len(meetings[0] & meetings[1]) < 0.3 * len(meetings[0])
    ends = [cost(lengths[batch], packing=True) for batch in first]
    assert abs(np.corrcoef(ends[:-1], ends[1:])[0, 1]) < 0.4, "batches come in order of length"


@pytest.mark.parametrize("packing", [False, True])
def test_without_a_shuffle_the_longest_come_first(packing: bool) -> None:
    lengths = lognormal(2000, 4000)
    batches = planned(lengths, 4096, seed=None, packing=packing)
    got = epoch_of(batches, 0)
    assert got == epoch_of(batches, 1)
    assert lengths.argmax() in got[0]
    if not packing:
        longest = [int(lengths[batch].max()) for batch in got]
        assert longest[0] == lengths.max()
        assert np.all(np.diff(longest) <= np.array(longest[:-1]) * 0.05)


@pytest.mark.parametrize(("packing", "share"), [(False, 0.93), (True, 0.98)])
def test_little_of_the_budget_is_lost_on_long_tailed_lengths(packing: bool, share: float) -> None:
    lengths = lognormal(200_000, 16_384)
    batches = planned(lengths, 16_384, packing=packing)
    filled = int(lengths.sum()) / (batches.num_positions * 16_384)
    assert share < filled <= 1
    if not packing:
        padded = sum(cost(lengths[batch], packing=False) for batch in epoch_of(batches, 0))
        assert 1 - lengths.sum() / padded < 0.02


def test_packed_batches_are_about_alike() -> None:
    lengths = lognormal(20_000, 16_384)
    loads = [int(lengths[batch].sum()) for batch in epoch_of(planned(lengths, 65_536, packing=True), 0)]
    assert min(loads[:-1]) > 0.95 * 65_536 * 0.97


def test_the_plan_is_small_however_many_records() -> None:
    few, many = (planned(lognormal(n, 16_384), 16_384, packing=True) for n in (1000, 300_000))
    assert len(many.cut.times) <= 2 * 256
    assert order_bytes(many) - order_bytes(few) < 4 * 300_000 + (2 << 20)


@pytest.mark.parametrize(
    "chain",
    [
        Chain(400, (Take(70),)),
        Chain(400, (Skip(300), Take(50))),
        Chain(400, (Select.of([5, 5, 399, 0]),)),
        Chain(400, (Split(0.9, 5, "rest"),), 3),
        Chain(400, (), 2),
    ],
    ids=lambda chain: f"{chain.selections}-{chain.times}",
)
@pytest.mark.parametrize("seed", [None, 1])
def test_it_takes_those_that_are_chosen(chain: Chain, seed: int | None) -> None:
    lengths = lognormal(400, 4000)
    batches = planned(lengths, 4096, seed=seed, chain=chain)
    expected = chain.records(np.arange(chain.count)).tolist()
    assert Counter(record for batch in epoch_of(batches, 4) for record in batch) == Counter(expected)
    assert max(cost(lengths[batch], packing=False) for batch in epoch_of(batches, 4)) <= 4096


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ([3, 11], r"record 1 has 'length' 11; no batch of budget=10 holds it"),
        ([3, -1], r"record 1 has 'length' -1; lengths are integers from 0 on"),
        (np.array([2**64 - 1], np.uint64), r"record 0 has 'length' 18446744073709551615; no batch"),
    ],
)
def test_a_length_that_cannot_be_is_refused_with_its_record(lengths: AnyArray, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        planned(lengths, 10)


@pytest.mark.parametrize(
    ("most", "says"),
    [
        (1000, r"record 1 has 'length' 961, 1024 when .* multiple of 64; .*budget=1000 .*length <= 960"),
        (63, r"record 0 has 'length' 0, 64 when .*budget=63 holds it: raise it, or use a smaller to_mul"),
    ],
)
def test_a_length_that_padding_makes_too_long_is_refused(most: int, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        planned([0, 961, 960], most, multiple=64)


def test_the_record_that_is_refused_has_its_number_in_the_source() -> None:
    with pytest.raises(PlanError, match="record 3 has"):
        planned([1, 1, 1, 99], 10, chain=Chain(4, (Skip(2),)))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"most": 0}, "budget must be an integer .* got 0"),
        ({"most": 2**41}, "budget must be"),
        ({"length_column": 3}, "length_column must be the name of a column, got 3"),
        ({"max_batch_size": 0}, "max_batch_size must be .* got 0"),
        ({"packing": "yes"}, "packing must be True or False, got 'yes'"),
    ],
)
def test_a_budget_that_cannot_work_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        Budget(**{"most": 10, "length_column": "length", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(("epoch", "position"), [(0, -1), (0, 10**6), (-1, 0), (2**64, 0)])
def test_a_batch_that_does_not_exist(epoch: int, position: int) -> None:
    with pytest.raises(IndexError):
        planned([1, 2, 3], 10).records(epoch, position)


def test_it_says_the_multiple() -> None:
    assert "padded to a multiple of 8, at most 16 of 'length'" in planned([1, 9], 16, multiple=8).describe()


def test_it_says_what_it_does() -> None:
    text = planned([1, 2, 3, 4] * 100, 10, seed=7, packing=True).describe()
    assert text == (
        "100 batches of 4 to 4 rows from 4 buckets, packed to at most 10 of 'length', which they fill to 100.0%; "
        "shuffle(seed=7), new each epoch"
    )
