"""Resume and topology through filters, sampling and mixtures, also ones whose weights change."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import standpipe as sp

MEMORY = "64MiB"
LABEL = np.arange(60) % 7


def kinds() -> dict[str, sp.Pipeline]:
    base = sp.Pipeline(sp.Arrays(label=LABEL, w=LABEL + 0.5))
    two = {
        base.filter("label < 4").shuffle(seed=1): 0.7,
        base.split(0.5, seed=1, by="label")[1].repeat_each(2): 0.3,
    }
    return {
        "filter": base.filter("label != 3").shuffle(seed=1),
        "by": base.split(0.6, seed=1, by="label")[0].shuffle(seed=1, block=4, window=2),
        "stratify": base.split(0.6, seed=1, stratify="label")[0],
        "weights": base.sample(seed=1, weights="w", num_samples=50),
        "balance": base.sample(seed=1, balance="label"),
        "concat": sp.Pipeline(sp.Concat(base.source, base.source)).take(70).shuffle(seed=3),
        "mix, first": sp.Pipeline(sp.Mixture(two)),
        "mix, last": sp.Pipeline(sp.Mixture(two, stopping="last"), seed=9),
        "mix, 41": sp.Pipeline(sp.Mixture(two, stopping=41)),
    }


KINDS = kinds()
Rows = list[tuple[int, int]]


def rows_of(batch: dict[str, Any]) -> Rows:
    valid = batch["valid"] if "valid" in batch else slice(None)
    return list(zip(batch["label"][valid].tolist(), batch["index"][valid].tolist(), strict=True))


def through_json(state: dict[str, object]) -> dict[str, object]:
    return json.loads(json.dumps(state))


def globally(
    pipeline: sp.Pipeline, state: dict[str, object], batch: int, world_size: int, last_batch: str, steps: int
) -> list[Rows]:
    """Valid rows of all ranks together, step by step, from ``state`` on."""
    ranks = []
    for rank in range(world_size):
        sharded = pipeline.shard(rank, world_size).batch(batch, last_batch=last_batch)  # type: ignore[arg-type]
        with sharded.loader(memory=MEMORY, num_workers=1) as loader:
            loader.load_state_dict(state)
            ranks.append([rows_of(each) for each in loader.steps(steps)])
    return [list(chain.from_iterable(step)) for step in zip(*ranks, strict=True)]


@given(
    kind=st.sampled_from(sorted(KINDS)),
    last_batch=st.sampled_from(["drop", "pad"]),
    batch=st.integers(1, 6),
    world_size=st.integers(1, 3),
    stop=st.integers(0, 12),
    new_batch=st.integers(1, 6),
    new_world=st.integers(1, 3),
)
def test_the_rest_of_the_stream_is_the_same_however_it_is_cut(
    kind: str, last_batch: str, batch: int, world_size: int, stop: int, new_batch: int, new_world: int
) -> None:
    pipeline = KINDS[kind]
    sharded = pipeline.shard(world_size - 1, world_size).batch(batch, last_batch=last_batch)  # type: ignore[arg-type]
    with sharded.loader(memory=MEMORY, num_workers=1) as loader:
        list(loader.steps(stop))
        state, order = through_json(loader.state_dict()), loader.plan.order
    came = globally(pipeline, state, new_batch, new_world, last_batch, 5)
    epoch, consumed, whole = int(str(state["epoch"])), int(str(state["consumed"])), new_batch * new_world
    for step in came:
        left = order.num_positions - consumed
        if left < (whole if last_batch == "drop" else 1):
            epoch, consumed, left = epoch + 1, 0, order.num_positions
        end = consumed + min(whole, left)
        assert [index for _, index in step] == order.indices(epoch, consumed, end).tolist()  # type: ignore[union-attr]
        assert [label for label, _ in step] == [LABEL[index % 60] for _, index in step]
        consumed = end


@settings(max_examples=40, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([[1, 0], [0, 1], [1, 4], [2, 1]])), max_size=3
    ),
    batch=st.integers(1, 6),
    skip=st.integers(0, 3),
    world_size=st.integers(1, 3),
    new_batch=st.sampled_from([1, 2, 3, 6]),
)
def test_a_changed_mixture_is_in_the_state(
    edits: list[tuple[int, list[float]]], batch: int, skip: int, world_size: int, new_batch: int
) -> None:
    pipeline = KINDS["mix, last"]

    def edited(rank: int) -> tuple[list[Rows], dict[str, object], Any]:
        with pipeline.shard(rank, world_size).batch(batch).loader(memory=MEMORY, num_workers=1) as loader:
            came = []
            for steps, weights in edits:
                came += [rows_of(each) for each in loader.steps(steps)]
                loader.reweigh(weights)
                if skip:
                    loader.skip_steps(skip)
            state = through_json(loader.state_dict())
            return [*came, *(rows_of(each) for each in loader.steps(6))], state, loader.plan.order

    ranks = [edited(rank) for rank in range(world_size)]
    states = [state for _, state, _ in ranks]
    assert all(state == states[0] for state in states)
    order = ranks[0][2]
    rest = list(
        chain.from_iterable(chain.from_iterable(zip(*(came[-6:] for came, _, _ in ranks), strict=True)))
    )
    epoch, consumed = int(str(states[0]["epoch"])), int(str(states[0]["consumed"]))
    expected: list[int] = []
    while len(expected) < 6 * batch * world_size:
        steps = (order.num_positions - consumed) // (batch * world_size)
        expected += order.indices(epoch, consumed, consumed + steps * batch * world_size).tolist()
        epoch, consumed = epoch + 1, 0
    assert [index for _, index in rest] == expected[: 6 * batch * world_size]
    with pipeline.batch(new_batch).loader(memory=MEMORY, num_workers=1) as loader:
        loader.load_state_dict(states[0])
        assert loader.edits == states[0]["edits"]
        again = loader.plan.order
    for number in range(epoch + 1):
        assert (
            again.indices(number, 0, order.num_positions).tolist()
            == order.indices(number, 0, order.num_positions).tolist()
        )


def test_a_new_mixture_begins_with_the_next_batch() -> None:
    a, b = (sp.Pipeline(sp.Arrays(label=np.arange(1000) + first)).shuffle(seed=1) for first in (0, 1000))
    pipeline = sp.Pipeline(sp.Mixture({a: 1, b: 0}, names=["a", "b"], stopping=10_000)).batch(10)
    with pipeline.loader(memory=MEMORY, num_workers=1, prefetch=7) as loader:
        iterator = iter(loader)
        assert next(iterator)["source"].tolist() == [0] * 10
        loader.reweigh({"b": 1, "a": 0})
        assert next(iterator)["source"].tolist() == [1] * 10
        loader.reweigh([1, 1])
        assert sum(next(iterator)["source"].sum() for _ in range(100)) == pytest.approx(500, abs=8)
        assert len(loader) == 1000
        assert loader.edits == [
            {"epoch": 0, "consumed": 10, "reweigh": [0.0, 1.0]},
            {"epoch": 0, "consumed": 20, "reweigh": [1.0, 1.0]},
        ]
        state = through_json(loader.state_dict())
        loader.load_state_dict({**state, "consumed": 0, "edits": []})
        assert next(iter(loader))["source"].tolist() == [0] * 10
        assert loader.edits == []


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1], "2 components, but got 1 weights"),
        ([1, -1], "weight must be .* got -1"),
        ([0, 0], "all weights"),
        ({"a": 1}, r"one weight for each component, \['a', 'b'\]"),
        ({"a": 1, "c": 2}, "one weight for each component"),
        (3, "weights by name, or a list"),
        ("ab", "weights by name, or a list"),
    ],
)
def test_what_cannot_be_reweighed(weights: Any, says: str) -> None:
    source = sp.Arrays(label=np.arange(9))
    mix = sp.Mixture([(sp.Pipeline(source), 1), (sp.Pipeline(source), 1)], names=["a", "b"])
    with sp.Pipeline(mix).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        with pytest.raises(sp.PlanError, match=says):
            loader.reweigh(weights)
        assert loader.edits == []
        assert loader.plan.digest == sp.Pipeline(mix).batch(2).plan().digest


def test_only_a_mixture_is_reweighed() -> None:
    with (
        sp.Pipeline(sp.Arrays(label=np.arange(9))).batch(2).loader(memory=MEMORY, num_workers=1) as loader,
        pytest.raises(sp.PlanError, match="this pipeline's source is no Mixture"),
    ):
        loader.reweigh([1])


@pytest.mark.parametrize(
    "edit",
    [
        {"epoch": 0, "consumed": 0, "reweigh": [1]},
        {"epoch": 0, "consumed": 0, "reweigh": [1, -1]},
        {"epoch": 0, "consumed": 0, "reweigh": "11"},
        {"epoch": 0, "consumed": -1, "reweigh": [1, 1]},
        {"epoch": 0, "consumed": 0, "reweigh": [1, None]},
        {"epoch": 0, "consumed": 0, "reweigh": [1, 1], "skip_steps": 1},
        {"epoch": 0, "reweigh": [1, 1]},
    ],
    ids=str,
)
def test_a_damaged_edit_is_refused_and_changes_nothing(edit: dict[str, Any]) -> None:
    with KINDS["mix, 41"].batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        with pytest.raises(sp.StateError, match="edits"):
            loader.load_state_dict({**state, "edits": [edit]})
        assert loader.state_dict() == state
        assert len(next(iterator)["index"]) == 2
