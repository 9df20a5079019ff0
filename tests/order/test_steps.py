from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from standpipe.errors import PlanError, StateError
from standpipe.order import Cursor, RankStep, Sequential, Shuffled, Steps
from standpipe.spec import LastBatch

SIZES = st.one_of(st.integers(1, 60), st.integers(1020, 1100))  # the kernel changes its way at 1024
quickly = settings(derandomize=True, deadline=None, max_examples=60, database=None)


@st.composite
def cuts(draw: st.DrawFn, num_positions: int) -> Steps:
    """Any way to cut an epoch that isn't refused, as rank 0."""
    last_batch = draw(st.sampled_from(LastBatch))
    most_ranks = {LastBatch.PARTIAL: 1, LastBatch.PAD: 6, LastBatch.DROP: min(num_positions, 6)}[last_batch]
    world_size = draw(st.integers(1, most_ranks))
    most_rows = num_positions // world_size if last_batch is LastBatch.DROP else num_positions + 5
    few = -(-most_rows // 20)  # keeps the number of steps small
    return Steps(
        num_positions=num_positions,
        batch=draw(st.integers(few, most_rows)),
        world_size=world_size,
        last_batch=last_batch,
    )


@st.composite
def epochs(draw: st.DrawFn) -> tuple[Shuffled, int, Steps, int]:
    """An order, an epoch, a cut, and a cursor inside the epoch."""
    order = Shuffled(draw(SIZES), draw(st.integers(0, 2**64 - 1)))
    epoch = draw(st.integers(0, 2**64 - 1))
    steps = draw(cuts(order.num_positions))
    return order, epoch, steps, draw(st.integers(0, order.num_positions))


def ranks(steps: Steps) -> list[Steps]:
    return [replace(steps, rank=rank) for rank in range(steps.world_size)]


def rows(order: Shuffled, epoch: int, step: RankStep) -> list[tuple[int, int]]:
    """(position, record) of the rows that count."""
    pairs = zip(step.positions().tolist(), step.indices(order, epoch).tolist(), strict=True)
    return [pair for pair, valid in zip(pairs, step.valid(), strict=True) if valid]


def stream(order: Shuffled, epoch: int, steps: Steps, consumed: int) -> list[tuple[int, int]]:
    """What all ranks together get from a cursor to the epoch's end, in the global order."""
    return [
        row
        for k in range(steps.count(consumed))
        for rank in ranks(steps)
        for row in rows(order, epoch, rank.step(k, consumed))
    ]


@quickly
@given(epochs())
def test_every_position_after_the_cursor_comes_once(case: tuple[Shuffled, int, Steps, int]) -> None:
    order, epoch, steps, consumed = case
    got = stream(order, epoch, steps, consumed)
    kept = steps.num_positions
    if steps.last_batch is LastBatch.DROP:
        kept -= (kept - consumed) % steps.global_batch
    records = order.indices(epoch, consumed, kept).tolist()
    assert got == list(zip(range(consumed, kept), records, strict=True))
    if consumed == 0 and steps.last_batch is not LastBatch.DROP:
        assert Counter(record for _, record in got) == Counter(range(order.num_positions))


@quickly
@given(epochs())
def test_ranks_have_equal_steps_and_share_no_position(case: tuple[Shuffled, int, Steps, int]) -> None:
    _, _, steps, consumed = case
    assert len({rank.count(consumed) for rank in ranks(steps)}) == 1
    for k in range(steps.count(consumed)):
        taken = [rank.step(k, consumed) for rank in ranks(steps)]
        if steps.last_batch is not LastBatch.PARTIAL:
            assert {step.rows for step in taken} == {steps.batch}
        spans = [range(step.start, step.start + step.rows) for step in taken]
        assert [p for span in spans for p in span] == list(range(spans[0].start, spans[-1].stop))
        assert spans[0].start == consumed + k * steps.global_batch


@quickly
@given(epochs(), st.data())
def test_what_remains_is_the_same_for_another_batch_and_world(
    case: tuple[Shuffled, int, Steps, int], data: st.DataObject
) -> None:
    order, epoch, steps, _ = case
    done = data.draw(st.integers(0, steps.count()))
    resumed = data.draw(cuts(order.num_positions))
    before = [row for k in range(done) for rank in ranks(steps) for row in rows(order, epoch, rank.step(k))]
    after = stream(order, epoch, resumed, len(before))
    whole = order.indices(epoch, 0, order.num_positions).tolist()
    left = (len(whole) - len(before)) % resumed.global_batch if resumed.last_batch is LastBatch.DROP else 0
    assert before + after == list(enumerate(whole))[: len(whole) - left]


@quickly
@given(epochs())
def test_the_cursor_walks_through_the_epoch_and_on_to_the_next(
    case: tuple[Shuffled, int, Steps, int],
) -> None:
    _, _, steps, consumed = case
    cursor = steps.settled(Cursor(4, consumed))
    if steps.count(consumed) == 0:
        assert cursor == Cursor(5, 0)
        return
    assert cursor == Cursor(4, consumed)
    for k in range(steps.count(consumed)):
        assert steps.step(0, cursor.consumed) == steps.step(k, consumed)
        cursor = steps.after(cursor)
    assert cursor == Cursor(5, 0)


@quickly
@given(epochs())
def test_ranges_positions_and_indices_agree(case: tuple[Shuffled, int, Steps, int]) -> None:
    order, epoch, steps, consumed = case
    whole = order.indices(epoch, 0, order.num_positions)
    for k in range(steps.count(consumed)):
        for rank in ranks(steps):
            step = rank.step(k, consumed)
            positions = [p for start, stop in step.ranges() for p in range(start, stop)]
            assert positions == step.positions().tolist()
            assert np.array_equal(step.indices(order, epoch), whole[positions])


def test_padding_repeats_the_first_rows_of_the_epoch() -> None:
    steps = Steps(num_positions=10, batch=4, rank=1, world_size=2, last_batch=LastBatch.PAD)
    last = steps.step(1)
    assert last.positions().tolist() == [2, 3, 4, 5]
    assert last.valid().tolist() == [False] * 4
    assert Steps(num_positions=10, batch=4, world_size=2, last_batch=LastBatch.PAD).step(
        1
    ).valid().tolist() == [
        True,
        True,
        False,
        False,
    ]


def test_padding_wraps_as_often_as_it_takes() -> None:
    step = Steps(num_positions=3, batch=8, last_batch=LastBatch.PAD).step(0)
    assert step.indices(Sequential(3), epoch=0).tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert step.num_valid == 3


def test_a_short_tail_is_shorter() -> None:
    steps = Steps(num_positions=10, batch=4, last_batch=LastBatch.PARTIAL)
    assert [steps.step(k).rows for k in range(steps.per_epoch)] == [4, 4, 2]
    assert [steps.step(k, consumed=9).rows for k in range(steps.count(9))] == [1]


def test_a_billion_positions_cost_no_more_than_ten() -> None:
    steps = Steps(num_positions=2**62, batch=256, rank=7, world_size=8)
    assert steps.per_epoch == 2**62 // 2048
    last = steps.step(steps.per_epoch - 1)
    assert last.positions().tolist() == list(range(2**62 - 256, 2**62))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"batch": 0}, "batch_size must be .* got 0"),
        ({"batch": 2.5}, "batch_size must be .* got 2.5"),
        ({"batch": True}, "batch_size must be .* got True"),
        ({"world_size": 0}, "world_size must be .* got 0"),
        ({"rank": -1}, "rank must be .* got -1"),
        ({"rank": 2, "world_size": 2}, "got rank=2 and world_size=2"),
        ({"num_positions": 0}, "num_positions must be .* got 0"),
        ({"world_size": 2, "last_batch": LastBatch.PARTIAL}, 'use last_batch="drop" or last_batch="pad"'),
        ({"batch": 101}, r'100 rows fill no step of 101 rows.*a batch of at most 100 or last_batch="pad"'),
        ({"batch": 26, "world_size": 4}, r"26 rows × 4 ranks.*a batch of at most 25 or"),
        ({"batch": 1, "world_size": 101}, r'1 rows × 101 ranks.*; use last_batch="pad"'),
    ],
)
def test_what_cannot_work_is_refused_with_the_remedy(fields: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        Steps(**{"num_positions": 100, "batch": 10, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("consumed", [-1, 101])
def test_a_cursor_outside_the_epoch_belongs_to_another_recipe(consumed: int) -> None:
    with pytest.raises(StateError, match="100"):
        Steps(num_positions=100, batch=10).count(consumed)


@pytest.mark.parametrize("k", [-1, 10])
def test_a_step_outside_the_epoch_does_not_exist(k: int) -> None:
    with pytest.raises(IndexError):
        Steps(num_positions=100, batch=10).step(k)


@pytest.mark.parametrize(
    ("last_batch", "world_size", "text"),
    [
        (LastBatch.DROP, 8, "625 steps per epoch of 256 rows × 8 ranks, 1,167 rows dropped per epoch"),
        (LastBatch.PAD, 8, "626 steps per epoch of 256 rows × 8 ranks, 881 rows of the last one are padding"),
        (LastBatch.PARTIAL, 1, "5,005 steps per epoch of 256 rows, 143 rows in the last one"),
    ],
)
def test_it_says_what_it_does(last_batch: LastBatch, world_size: int, text: str) -> None:
    assert (
        Steps(num_positions=1_281_167, batch=256, world_size=world_size, last_batch=last_batch).describe()
        == text
    )
