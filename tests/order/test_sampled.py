"""Weighted and balanced sampling: what comes how often, in which order, and that it is a pure function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from standpipe.contracts import Order
from standpipe.plan.order import order_of
from standpipe.spec import Int64Array


def order(pipeline: sp.Pipeline) -> Order:
    return order_of(pipeline, pipeline.source.open())


def epoch(of: Order, number: int = 0) -> Int64Array:
    return of.indices(number, 0, of.num_positions)


def rows(n: int, **columns: object) -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(x=np.zeros((n, 1)), **columns))  # type: ignore[arg-type]


@given(
    weights=st.lists(st.floats(0, 1e6) | st.integers(0, 5), min_size=1, max_size=200),
    samples=st.none() | st.integers(1, 500),
    seed=st.integers(0, 2**64 - 1),
    data=st.data(),
)
def test_records_come_in_proportion_to_their_weights(
    weights: list[float], samples: int | None, seed: int, data: st.DataObject
) -> None:
    if max(weights) < 1e-200:
        return
    n = len(weights)
    drawn = order(rows(n).sample(seed=seed, weights=weights, num_samples=samples))
    assert drawn.num_positions == (samples or n)
    counts = np.bincount(epoch(drawn, 3), minlength=n)
    expected = np.array(weights) / sum(weights) * drawn.num_positions
    assert np.all(counts[np.array(weights) == 0] == 0)
    assert np.all(np.abs(counts - expected) < 2 + 1e-6)
    start = data.draw(st.integers(0, drawn.num_positions))
    stop = data.draw(st.integers(start, drawn.num_positions))
    assert drawn.indices(3, start, stop).tolist() == epoch(drawn, 3)[start:stop].tolist()


def test_every_position_draws_with_the_weights_probability() -> None:
    weights = np.array([1, 2, 0, 3.5, 0.25, 1])
    drawn = order(rows(6).sample(seed=5, weights=weights, num_samples=4))
    draws = np.array([epoch(drawn, number) for number in range(20_000)])
    for position in range(4):
        shares = np.bincount(draws[:, position], minlength=6) / len(draws)
        assert shares == pytest.approx(weights / weights.sum(), abs=0.015)


def test_equal_weights_are_a_shuffle() -> None:
    drawn = order(rows(1_000).sample(seed=5, weights=np.full(1_000, 0.1)))
    epochs = [epoch(drawn, number).tolist() for number in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1_000))
    assert epochs[0] != epochs[1]


def test_weights_may_be_a_column_of_what_is_selected() -> None:
    weight = np.arange(100, dtype=np.float32)
    named = rows(100, weight=weight).skip(50).sample(seed=1, weights="weight")
    listed = rows(100).skip(50).sample(seed=1, weights=weight[50:])
    assert epoch(order(named)).tolist() == epoch(order(listed)).tolist()
    assert epoch(order(named)).min() >= 50


def test_weights_far_apart_and_many() -> None:
    weights = np.full(2_000_000, 1e-3)
    weights[1_234_567] = 1e9
    weights[7] = 0
    drawn = order(rows(len(weights)).sample(seed=1, weights=weights, num_samples=3_000_000))
    counts = np.bincount(drawn.indices(0, 1_000_000, 1_100_000), minlength=len(weights))
    assert counts[1_234_567] > 99_000
    rare = order(rows(len(weights)).sample(seed=1, weights=np.where(weights > 1, 0, weights)))
    assert len(np.unique(rare.indices(0, 0, 100_000))) > 99_000


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    samples=st.none() | st.integers(1, 300),
    seed=st.integers(0, 2**64 - 1),
    first=st.integers(0, 2**64 - 6) | st.integers(0, 9),
)
def test_every_class_comes_equally_often(
    sizes: list[int], samples: int | None, seed: int, first: int
) -> None:
    label = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)) * 3 - 4, sizes))
    drawn = order(rows(len(label), label=label).sample(seed=seed, balance="label", num_samples=samples))
    epochs = [epoch(drawn, number) for number in range(first, first + 5)]
    classes = np.unique(label)
    for each in epochs:
        counts = [np.sum(label[each] == value) for value in classes]
        assert max(counts) - min(counts) <= 1
    together = np.concatenate(epochs)
    counts = [np.sum(label[together] == value) for value in classes]
    assert max(counts) - min(counts) <= 2 if first else max(counts) - min(counts) <= 1
    for value in classes:
        of_class = np.bincount(together, minlength=len(label))[label == value]
        assert of_class.max() - of_class.min() <= 1


def test_balanced_epochs_differ_and_are_mixed() -> None:
    label = np.sort(np.random.default_rng(0).integers(0, 10, 2_000))
    drawn = order(rows(2_000, label=label).sample(seed=3, balance="label"))
    a, b = epoch(drawn, 0), epoch(drawn, 1)
    assert a.tolist() != b.tolist()
    assert abs(np.corrcoef(np.arange(2_000), label[a])[0, 1]) < 0.1
    other = epoch(order(rows(2_000, label=label).sample(seed=4, balance="label")))
    assert set(a.tolist()) != set(other.tolist())


def test_a_record_that_comes_again_is_cropped_again() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=pixels)).sample(seed=1, weights=[1, 3], num_samples=12)
    with pipeline.map(sp.RandomResizedCrop(16)).batch(12).loader(memory="64MiB", num_workers=1) as loader:
        (batch,) = loader
    assert np.bincount(batch["index"]).tolist() == [3, 9]
    assert len({row.tobytes() for row in batch["image"]}) == 12


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"weights": [1.0] * 9}, "one weight for each of 10 records, got 9"),
        ({"weights": [[1.0] * 10]}, "one number per record, got float64 of shape"),
        ({"weights": ["a"] * 10}, "one number per record"),
        ({"weights": [-1.0, *[1.0] * 9]}, "record 0 has -1.0"),
        ({"weights": [1.0] * 9 + [np.nan]}, "record 9 has nan"),
        ({"weights": [np.inf] * 10}, "has inf"),
        ({"weights": [0] * 10}, "the largest is 0"),
        ({"weights": "wait"}, "the source has no column 'wait'. Its columns are 'label', 'z'"),
        ({"weights": "z"}, "weights must be real numbers"),
        ({"balance": "wait"}, "no column 'wait'"),
        ({"balance": "z"}, "must be integers"),
        ({"weights": "label", "balance": "label"}, "takes weights= or balance="),
        ({"weights": "label", "replacement": False}, "always samples with replacement"),
        ({"num_samples": 3}, "takes weights= or balance="),
        ({"num_samples": 0, "balance": "label"}, "num_samples must be .* got 0"),
        ({"num_samples": 2**29, "balance": "label"}, "num_samples must be .* got 536870912"),
        ({"num_samples": 1.5, "weights": "label"}, "num_samples must be .* got 1.5"),
    ],
)
def test_what_cannot_be_sampled(arguments: dict, says: str) -> None:
    pipeline = rows(10, label=np.arange(10), z=np.zeros(10, complex))
    with pytest.raises(sp.PlanError, match=says):
        pipeline.sample(seed=1, **arguments).batch(2).plan()


def test_the_recipe_knows_every_choice() -> None:
    base = rows(10, label=np.arange(10) % 2, w=np.arange(10.0))
    chosen = [
        base.filter("w < 3"),
        base.filter("w < 4"),
        *base.split(0.5, seed=1, by="w"),
        *base.split(0.5, seed=1, by="label"),
        *base.split(0.5, seed=1, stratify="label"),
        base.shuffle(seed=1),
        base.sample(seed=1, weights="w"),
        base.sample(seed=1, weights="w", num_samples=10),
        base.sample(seed=1, weights=np.arange(10)),
        base.sample(seed=1, weights=np.arange(10) + 1),
        base.sample(seed=1, balance="label"),
        base.sample(seed=1, balance="label", num_samples=20),
    ]
    digests = [pipeline.batch(1).plan().digest for pipeline in chosen]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    "how", [{"weights": "w"}, {"balance": "label"}, {"balance": "label", "num_samples": 37}]
)
@pytest.mark.parametrize("last_batch", ["drop", "pad"])
def test_an_audit_counts_what_is_sampled(how: dict, last_batch: str) -> None:
    base = rows(60, label=np.arange(60) % 7 % 3, w=np.arange(60.0))
    found = base.sample(seed=1, **how).batch(3, last_batch=last_batch).audit(ranks=4, epochs=3)  # type: ignore[arg-type]
    assert found.ok, found
    assert found.sampled is not None
    assert found.sampled[0] < found.sampled[1]
    assert "every position once" in str(found)
    assert f"comes {found.sampled[0]} to {found.sampled[1]} times" in str(found)
    assert found.facts()["sampled"] == list(found.sampled)
    assert base.batch(3).audit().sampled is None
