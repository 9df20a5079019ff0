"""Mixtures: shares, each component's own stream, ends of epochs, and weights that change."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import standpipe as sp
from preloaded import SERVER
from standpipe.order import Mixed, Sequential, Shuffled
from standpipe.spec import Int64Array

APART = 10**6  # record numbers of one component and the next


def mixed(
    sizes: list[int], weights: list[Any], stopping: str | int = "first", seed: int = 5, *, plain: bool = False
) -> Mixed:
    orders = tuple(Sequential(n) if plain else Shuffled(n, 70 + i) for i, n in enumerate(sizes))
    return Mixed.over(orders, APART * np.arange(len(sizes)), weights, stopping, seed)


def epoch(order: Mixed, number: int) -> Int64Array:
    return order.indices(number, 0, order.num_positions)


def streams(order: Mixed, records: Int64Array) -> list[list[int]]:
    """What each component gave, in the order in which it came."""
    return [(records[records // APART == i] - APART * i).tolist() for i in range(len(order.orders))]


def own_stream(order: Mixed, component: int, count: int) -> list[int]:
    """The first records that a component would give alone, epoch after epoch."""
    own = order.orders[component]
    epochs = range(-(-count // own.num_positions))
    return list(chain.from_iterable(own.indices(e, 0, own.num_positions).tolist() for e in epochs))[:count]


weights_of = st.lists(st.integers(0, 9) | st.floats(0.01, 1), min_size=1, max_size=5).filter(any)


@given(weights=weights_of, seed=st.integers(0, 2**64 - 1), data=st.data())
def test_each_component_gives_its_own_stream_over_all_epochs(
    weights: list[float], seed: int, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 400), min_size=len(weights), max_size=len(weights)))
    stopping = data.draw(st.sampled_from(["first", "last"]) | st.integers(1, 700))
    order = mixed(sizes, weights, stopping, seed)
    if order.num_positions > 50_000:
        return
    together = np.concatenate([epoch(order, number) for number in range(3)])
    for component, came in enumerate(streams(order, together)):
        assert came == own_stream(order, component, len(came))
    start = data.draw(st.integers(0, order.num_positions))
    stop = data.draw(st.integers(start, order.num_positions))
    assert order.indices(2, start, stop).tolist() == epoch(order, 2)[start:stop].tolist()


@given(weights=weights_of, positions=st.integers(1, 5_000))
def test_shares_are_exact_over_an_epoch_and_near_in_every_256(weights: list[float], positions: int) -> None:
    order = mixed([10**5] * len(weights), weights, positions)
    component = epoch(order, 1) // APART
    shares = np.array(weights) / sum(weights)
    counts = np.bincount(component, minlength=len(weights))
    few = len(weights)  # the pattern of k components strays from their shares by less than this
    assert np.all(np.abs(counts - shares * positions) < 1 + 0.3 * few)
    for start in range(0, positions, 256):
        block = np.bincount(component[start : start + 256], minlength=len(weights))
        assert np.all(np.abs(block - shares * len(component[start : start + 256])) < 2 + 0.3 * few)


def test_whole_periods_are_exact() -> None:
    for weights, period in (
        ([0.7, 0.3], 10),
        ([5, 3, 2], 10),
        ([0.333, 0.667], 1000),
        ([1, 2, 3, 1e-3], 6001),
    ):
        order = mixed([10**5] * len(weights), weights, 3 * period)
        counts = np.bincount(epoch(order, 0) // APART)
        assert counts.tolist() == [round(3 * period * weight / sum(weights)) for weight in weights]


def test_places_are_random_and_the_seed_matters() -> None:
    a, b = (epoch(mixed([10**5] * 2, [1, 1], 20_000, seed), 0) // APART for seed in (1, 2))
    other_epoch = epoch(mixed([10**5] * 2, [1, 1], 20_000, 1), 1) // APART
    for x, y in ((a, b), (a, other_epoch), (a[:-1], a[1:]), (a[:-256], a[256:])):
        assert np.mean(x == y) == pytest.approx(0.5, abs=0.02)


def test_a_component_that_is_not_shuffled_stays_in_order() -> None:
    order = mixed([500, 500], [2, 1], "last", plain=True)
    for component in streams(order, epoch(order, 0)):
        assert component == [i % 500 for i in range(len(component))]


def test_when_an_epoch_ends() -> None:
    first = mixed([100, 1_000], [1, 1])
    came = streams(first, epoch(first, 0))
    assert sorted(came[0]) == list(range(100))
    assert 99 <= len(came[1]) <= 101
    last = mixed([100, 1_000], [1, 1], "last")
    came = streams(last, epoch(last, 0))
    assert sorted(came[1]) == list(range(1_000))
    assert 999 <= len(came[0]) <= 1_001
    assert sorted(came[0][:100]) == sorted(came[0][100:200]) == list(range(100))
    assert came[0][:100] != came[0][100:200]
    assert mixed([100, 1_000], [1, 1], 77).num_positions == 77
    assert mixed([100, 1_000], [1, 0], "last").num_positions == 100


@given(
    data=st.data(), sizes=st.lists(st.integers(1, 300), min_size=2, max_size=3), positions=st.integers(1, 900)
)
def test_changed_weights_leave_the_past_and_go_on_with_every_stream(
    data: st.DataObject, sizes: list[int], positions: int
) -> None:
    k = len(sizes)
    some = st.lists(st.integers(0, 5), min_size=k, max_size=k).filter(any)
    order = mixed(sizes, data.draw(some), positions)
    points = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, positions)), max_size=4))
    for at in sorted(points):
        changed = order.reweighed(*at, data.draw(some))
        assert changed.num_positions == positions
        for number in range(at[0] + 1):
            stop = at[1] if number == at[0] else positions
            assert changed.indices(number, 0, stop).tolist() == order.indices(number, 0, stop).tolist()
        order = changed
    together = np.concatenate([epoch(order, number) for number in range(5)])
    for component, came in enumerate(streams(order, together)):
        assert came == own_stream(order, component, len(came))


def test_changed_weights_have_their_shares() -> None:
    order = mixed([10**5] * 2, [1, 1], 10_000).reweighed(1, 3_001, [0, 1]).reweighed(2, 5_000, [9, 1])
    shares = [
        np.mean(order.indices(number, start, stop) // APART)
        for number, start, stop in (
            (0, 0, 10_000),
            (1, 0, 3_001),
            (1, 3_001, 10_000),
            (2, 0, 5_000),
            (2, 5_000, 10_000),
            (7, 0, 10_000),
        )
    ]
    assert shares == pytest.approx([0.5, 0.5, 1, 1, 0.1, 0.1], abs=0.002)


def test_epochs_far_away() -> None:
    order = mixed([7, 11], [3, 2], 40)
    assert len(epoch(order, 2**64 - 1)) == 40
    assert len(epoch(order.reweighed(2**63, 5, [1, 1]), 2**64 - 1)) == 40


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1, -1], "weight must be .* got -1"),
        ([1, "2"], "weight must be .* got '2'"),
        ([1, float("nan")], "weight must be .* got nan"),
        ([1, float("inf")], "weight must be .* got inf"),
        ([1, True], "weight must be .* got True"),
        ([0, 0.0], "all weights of the mixture are 0"),
        ([1, 1e-9], "at least 1/65,536"),
        ([], "1 to 1,024 components"),
    ],
)
def test_what_is_no_weight(weights: list[Any], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        mixed([5] * len(weights), weights)


# Through pipelines.


def part(first: int, count: int) -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(label=np.arange(first, first + count)))


def pipeline(**options: Any) -> sp.Pipeline:
    a = part(0, 50).filter("label >= 10").shuffle(seed=1)
    b = part(50, 30).split(0.5, seed=2)[0].repeat_each(2)
    return sp.Pipeline(sp.Mixture({a: 0.7, b: 0.3}, names=["a", "b"], **options), seed=4)


def test_a_batch_says_which_record_it_holds() -> None:
    planned = pipeline(stopping=500).batch(50)
    with planned.loader(memory="64MiB", num_workers=1) as loader:
        batches = list(loader)
    assert len(batches) == 10
    begins = loader.plan.source.begins  # type: ignore[attr-defined]
    for batch in batches:
        assert batch["source"].tolist() == (batch["label"] >= 50).tolist()
        assert batch["index"].tolist() == batch["label"].tolist()
        assert np.all(batch["index"] - begins[batch["source"]] < 50)
    assert np.mean([batch["source"].mean() for batch in batches]) == pytest.approx(0.3, abs=0.003)
    assert set(np.concatenate([batch["label"] for batch in batches]).tolist()) >= set(range(10, 50))


@pytest.mark.parametrize("last_batch", ["drop", "pad"])
def test_an_audit_counts_a_mixture(last_batch: Any) -> None:
    found = pipeline(stopping="last").batch(3, last_batch=last_batch).audit(ranks=4, epochs=3)
    assert found.ok, found
    assert found.sampled is not None
    assert found.sampled[0] == 0  # what the filter leaves out


def test_the_default_tail_is_that_of_a_shuffle() -> None:
    assert pipeline(stopping=10).batch(4).plan().steps.per_epoch == 2


def test_a_record_that_comes_again_is_cropped_again() -> None:
    image = np.random.default_rng(0).integers(0, 256, (1, 48, 48, 3), np.uint8)
    source = sp.Arrays(image=image)
    mix = sp.Mixture([(sp.Pipeline(source), 1), (sp.Pipeline(source), 1)], stopping=24)
    with (
        sp.Pipeline(mix)
        .map(sp.RandomResizedCrop(16))
        .batch(24)
        .loader(memory="64MiB", num_workers=1) as loader
    ):
        (batch,) = loader
    assert np.bincount(batch["source"]).tolist() == [12, 12]
    assert len({row.tobytes() for row in batch["image"]}) == 24


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_datasets_in_python_are_mixed(executor: Any) -> None:
    a, b = (sp.MapSource([{"x": np.float32(v)} for v in range(first, first + 9)]) for first in (0, 100))
    for spec in (None, {"x": sp.ArraySpec((), np.dtype(np.float32))}):
        sources = [sp.MapSource(each.dataset, spec=spec) for each in (a, b)]
        mix = sp.Mixture([(sp.Pipeline(source).shuffle(seed=1), 1) for source in sources], stopping="last")
        with (
            sp.Pipeline(mix)
            .batch(18, last_batch="pad")
            .loader(memory="1GiB", num_workers=2, executor=executor, mp_context=SERVER) as loader
        ):
            (batch,) = loader
        assert batch["source"].tolist() == (batch["x"] >= 100).tolist()
        assert np.array_equal(batch["x"], batch["index"] + 91 * batch["source"])


def test_a_samples_own_field_source_is_not_overwritten() -> None:
    parts = [sp.Pipeline(sp.MapSource([{"source": 7}])) for _ in range(2)]
    with (
        sp.Pipeline(sp.Mixture([(each, 1) for each in parts]))
        .batch(1)
        .loader(memory="64MiB", num_workers=1, executor="thread") as loader,
        pytest.raises(sp.SampleError, match="has a field 'source', which a mixture adds"),
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: sp.Mixture({part(0, 3): 1}), "Mixture needs at least two sources, got 1"),
        (lambda: sp.Mixture({part(0, 3): 1, sp.Arrays(label=np.arange(3)): 1}), "takes pipelines, got"),  # type: ignore[dict-item]
        (
            lambda: sp.Mixture({part(0, 3).batch(2): 1, part(0, 3): 1}),
            r"has a .batch\(…\). Write it after the mixture",
        ),
        (lambda: sp.Mixture({part(0, 3).map(sp.CenterCrop(3)): 1, part(0, 3): 1}), r"has a .map\(…\)"),
        (lambda: sp.Mixture({part(0, 3).shard(1, 2): 1, part(0, 3): 1}), r"has a .shard\(…\)"),
        (lambda: sp.Mixture({part(0, 3).decode("fast"): 1, part(0, 3): 1}), r"has a .decode\(…\)"),
        (lambda: sp.Mixture({part(0, 3): 1, part(0, 4): -1}), "weight must be .* got -1"),
        (
            lambda: sp.Mixture({part(0, 3): 1, part(0, 4): 1}, stopping="both"),
            r"Mixture: stopping.*got 'both'",
        ),  # type: ignore[arg-type]
        (lambda: sp.Mixture({part(0, 3): 1, part(0, 4): 1}, stopping=0), r"Mixture: stopping.*got 0"),
        (
            lambda: sp.Mixture({part(0, 3): 1, part(0, 4): 1}, names=["a"]),
            "names must be 2 texts, one for each component",
        ),
        (
            lambda: sp.Mixture({part(0, 3): 1, sp.Pipeline(sp.Arrays(x=np.arange(3))): 1}),
            "Mixture: .* differs from .* no field 'label'",
        ),
        (
            lambda: sp.Mixture(
                {
                    sp.Pipeline(sp.Mixture({part(0, 3): 1, part(0, 4): 1})): 1,
                    sp.Pipeline(sp.Mixture({part(0, 3): 1, part(0, 4): 1})): 1,
                }
            ),
            "has a field 'source'",
        ),
    ],
)
def test_what_is_no_mixture(make: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(make()).batch(1).plan()


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.take(3),
        lambda p: p.shuffle(seed=1),
        lambda p: p.sample(seed=1, balance="label"),
        lambda p: p.repeat_each(2),
        lambda p: p.batch(budget=9, length_column="label"),
    ],
)
def test_a_mixture_is_an_order_already(change: Any) -> None:
    changed = change(pipeline())
    with pytest.raises(sp.PlanError, match="a mixture has its own order"):
        (changed if changed.budget else changed.batch(2)).plan()


def test_the_recipe_knows_every_choice() -> None:
    a, b = part(0, 9), part(9, 9)
    mixes = [
        sp.Mixture({a: 1, b: 1}),
        sp.Mixture({b: 1, a: 1}),
        sp.Mixture({a: 1, b: 2}),
        sp.Mixture({a: 1, b: 1}, stopping="last"),
        sp.Mixture({a: 1, b: 1}, stopping=9),
        sp.Mixture({a: 1, b.take(5): 1}),
        sp.Mixture({a: 1, b.shuffle(seed=1): 1}),
        sp.Mixture({a: 1, b.shuffle(seed=2): 1}),
    ]
    digests = [sp.Pipeline(mix).batch(1).plan().digest for mix in mixes]
    digests.append(sp.Pipeline(mixes[0], seed=1).batch(1).plan().digest)
    assert len(set(digests)) == len(digests)
    assert sp.Pipeline(sp.Mixture({a: 1, b: 1}, names=["x", "y"])).batch(1).plan().digest == digests[0]
