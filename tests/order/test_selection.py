"""Selections and repeats against plain indexing, for any chain of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from photos import numbers
from standpipe.errors import PlanError
from standpipe.order import (
    Chain,
    Repeated,
    Select,
    Selected,
    Selection,
    Sequential,
    Shuffled,
    Skip,
    Split,
    Take,
)
from standpipe.spec import Int64Array


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Selection], list[int], Int64Array]:
    """Selections, the sizes they are given, and the records that a list would have after them."""
    model = np.arange(draw(st.integers(2, 3_000)))
    chain: list[Selection] = []
    sizes = []
    for kind in draw(st.lists(st.sampled_from(["take", "skip", "select", "first", "rest"]), max_size=4)):
        n = len(model)
        if n < 2:
            break
        sizes.append(n)
        match kind:
            case "take":
                number = draw(st.integers(1, n + 5))
                chain.append(Take(number))
                model = model[:number]
            case "skip":
                number = draw(st.integers(0, n - 1))
                chain.append(Skip(number))
                model = model[number:]
            case "select":
                rows = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20))
                chain.append(Select.of(rows))
                model = model[rows]
            case side:
                split = Split(0.5, draw(st.integers(0, 2**64 - 1)), side)
                chain.append(split)
                model = model[split.records(np.arange(split.count(n)), n)]
    return chain, sizes, model


@given(chains(), st.integers(0, 3), st.data())
def test_a_chain_is_indexing_after_indexing(
    made: tuple[list[Selection], list[int], Int64Array], epoch: int, data: st.DataObject
) -> None:
    chain, sizes, model = made
    inner = data.draw(st.sampled_from([Sequential(len(model)), Shuffled(len(model), 9)]))
    if not chain:
        return
    order = Selected(inner, Chain(sizes[0], tuple(chain)))
    assert [selection.count(size) for selection, size in zip(chain, sizes, strict=True)][-1] == len(model)
    start = data.draw(st.integers(0, len(model)))
    stop = data.draw(st.integers(start, len(model)))
    expected = model[inner.indices(epoch, start, stop)]
    assert order.indices(epoch, start, stop).tolist() == expected.tolist()


@given(st.integers(1, 50), st.integers(1, 7), st.data())
def test_repeats_are_next_to_each_other(n: int, times: int, data: st.DataObject) -> None:
    inner = Shuffled(n, 3)
    order = Repeated(inner, times)
    start = data.draw(st.integers(0, n * times))
    stop = data.draw(st.integers(start, n * times))
    whole = np.repeat(inner.indices(1, 0, n), times)
    assert order.num_positions == n * times
    assert order.indices(1, start, stop).tolist() == whole[start:stop].tolist()


@pytest.mark.parametrize("n", [2, 3, 10, 1_000, 1_024, 1_025, 40_000])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.001])
def test_both_sides_of_a_split_are_everything(n: int, share: float) -> None:
    first, rest = Split(share, 7, "first"), Split(share, 7, "rest")
    if round(n * share) == 0 or round(n * share) == n:
        with pytest.raises(PlanError, match="one side empty"):
            first.count(n)
        return
    sides = [side.records(np.arange(side.count(n)), n) for side in (first, rest)]
    assert len(sides[0]) == pytest.approx(n * share, abs=0.5)
    assert sorted(np.concatenate(sides).tolist()) == list(range(n))


def test_a_split_is_random_and_its_seed_matters() -> None:
    n = 10_000
    sides = [set(Split(0.5, seed, "first").records(np.arange(n // 2), n).tolist()) for seed in range(4)]
    for i, a in enumerate(sides):
        assert sum(a) / len(a) == pytest.approx(n / 2, rel=0.03)
        for b in sides[:i]:
            assert len(a & b) / len(a) == pytest.approx(0.5, abs=0.03)


def delivered(pipeline: sp.Pipeline, epochs: int = 1) -> list[int]:
    with pipeline.loader(memory="64MiB", num_workers=1) as loader:
        return [int(i) for _ in range(epochs) for batch in loader for i in batch["index"]]


def test_what_a_pipeline_selects_is_what_it_delivers() -> None:
    pipeline = sp.Pipeline(numbers(100))
    assert delivered(pipeline.skip(90).batch(5)) == list(range(90, 100))
    assert delivered(pipeline.take(7).batch(7)) == list(range(7))
    assert delivered(pipeline.select([3, 3, 99]).batch(3)) == [3, 3, 99]
    assert delivered(pipeline.skip(10).take(4).repeat_each(2).batch(4)) == [10, 10, 11, 11, 12, 12, 13, 13]
    train, val = pipeline.split(0.9, seed=1)
    seen = delivered(train.shuffle(seed=5).batch(10)) + delivered(val.batch(10))
    assert sorted(seen) == list(range(100))
    epochs = delivered(train.shuffle(seed=5).batch(9), 2)
    assert sorted(epochs[:90]) == sorted(epochs[90:]) != epochs[:90] != epochs[90:]


def test_labels_stay_with_their_records() -> None:
    labels = np.arange(50) * 3
    pipeline = sp.Pipeline(sp.Arrays(label=labels)).split(0.4, seed=2)[1].shuffle(seed=1, block=4, window=2)
    with pipeline.batch(10).loader(memory="64MiB", num_workers=1) as loader:
        for batch in loader:
            assert batch["label"].tolist() == (batch["index"] * 3).tolist()


def test_repeats_draw_apart() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=pixels)).map(sp.RandomResizedCrop(16)).repeat_each(3).batch(12)
    with pipeline.loader(memory="64MiB", num_workers=1) as loader:
        (batch,) = loader
    assert batch["index"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert len({row.tobytes() for row in batch["image"]}) == 12


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p.shuffle(seed=1).take(3), "take.3. .* Write it before .shuffle"),
        (lambda p: p.repeat_each(2).skip(3), "skip.3. .* Write it before"),
        (lambda p: p.take(0), "take must be an integer .* got 0"),
        (lambda p: p.skip(-1), "skip must be an integer .* got -1"),
        (lambda p: p.skip(100), "leaves nothing of 100"),
        (lambda p: p.select([]), "list of record numbers"),
        (lambda p: p.select([1.5]), "list of record numbers"),
        (lambda p: p.select(np.ones(100, bool)), "flatnonzero"),
        (lambda p: p.select([100]), "names record 100, but records are from 0 to 99"),
        (lambda p: p.select([-1]), "from 0 on"),
        (lambda p: p.split(1.5, seed=0), "must be above 0 and below 1"),
        (lambda p: p.split(0.5, seed=-1)[0], "seed"),
        (lambda p: p.split(0.001, seed=1)[0], "one side empty"),
        (lambda p: p.repeat_each(0), "repeat_each must be .* got 0"),
        (lambda p: p.shuffle(seed=1, block=0), "block must be .* got 0"),
        (lambda p: p.shuffle(seed=1, block=5, window=0), "window must be .* got 0"),
    ],
)
def test_what_cannot_be_selected(change, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlanError, match=says):
        change(sp.Pipeline(numbers(100))).batch(2).plan()


def test_the_recipe_knows_every_choice() -> None:
    base = sp.Pipeline(numbers(100))
    chosen = [
        base,
        base.take(50),
        base.skip(50),
        base.take(50).skip(1),
        base.skip(1).take(50),
        base.select([1, 2, 3]),
        base.select([1, 3, 2]),
        *base.split(0.5, seed=1),
        *base.split(0.5, seed=2),
        base.shuffle(seed=0),
        base.shuffle(seed=0, block=10),
        base.shuffle(seed=0, block=20),
        base.shuffle(seed=0, block=10, window=3),
        base.repeat_each(2),
    ]
    digests = [pipeline.batch(2).plan().digest for pipeline in chosen]
    assert len(set(digests)) == len(digests)


def test_a_state_of_another_selection_is_refused() -> None:
    base = sp.Pipeline(numbers(100))
    with base.take(50).batch(2).loader(memory="64MiB", num_workers=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with (
        base.take(40).batch(2).loader(memory="64MiB", num_workers=1) as loader,
        pytest.raises(sp.StateError, match="selection was 'take"),
    ):
        loader.load_state_dict(state)
