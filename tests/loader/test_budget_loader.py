"""Loaders whose batches have as many rows as a budget allows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import standpipe as sp
from standpipe.order import BudgetOrder
from standpipe.spec import Int64Array

MEMORY = "64MiB"
LENGTHS = np.minimum(np.exp(np.random.default_rng(1).normal(3, 1, 1000)).astype(np.int64) + 1, 400)


def source(lengths: Int64Array = LENGTHS) -> sp.Arrays:
    values = np.arange(len(lengths) * 3, dtype=np.float32).reshape(-1, 3)
    return sp.Arrays(length=lengths, values=values)


def within(pipeline: sp.Pipeline, **more: object) -> sp.Pipeline:
    return pipeline.batch(**{"budget": 500, "length_column": "length", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("packing", [False, True])
def test_batches_come_as_planned_with_their_fields(packing: bool) -> None:
    pipeline = within(sp.Pipeline(source()).shuffle(seed=3), packing=packing)
    with pipeline.loader(memory=MEMORY, num_workers=2) as loader:
        for _ in range(2):
            seen = []
            for batch in loader:
                assert batch["values"].shape == (len(batch["index"]), 3)
                assert batch["values"][:, 0].tolist() == (3 * batch["index"]).tolist()
                assert batch["length"].tolist() == LENGTHS[batch["index"]].tolist()
                cost = batch["length"].sum() if packing else len(batch["index"]) * batch["length"].max()
                assert cost <= 500
                seen += batch["index"].tolist()
            assert sorted(seen) == list(range(1000))


@settings(max_examples=15, deadline=None)
@given(
    world_size=st.integers(1, 4),
    new_world=st.integers(1, 4),
    step=st.integers(0, 6),
    packing=st.booleans(),
    last_batch=st.sampled_from(["drop", "pad"]),
)
def test_a_state_goes_on_with_another_world(
    world_size: int, new_world: int, step: int, packing: bool, last_batch: str
) -> None:
    pipeline = within(sp.Pipeline(source()).shuffle(seed=3), packing=packing, last_batch=last_batch)
    with pipeline.shard(0, world_size).loader(memory=MEMORY, num_workers=1) as loader:
        list(loader.steps(step))
        state = json.loads(json.dumps(loader.state_dict()))
        order = loader.plan.order
    assert len(json.dumps(state)) < 1000
    assert state["consumed"] == step * world_size
    rest: dict[int, list[int]] = {}
    for rank in range(new_world):
        with pipeline.shard(rank, new_world).loader(memory=MEMORY, num_workers=1) as loader:
            loader.load_state_dict(state)
            for k, batch in enumerate(loader):
                valid = batch.get("valid", np.ones(len(batch["index"]), bool))
                rest[step * world_size + k * new_world + rank] = batch["index"][valid].tolist()
    assert isinstance(order, BudgetOrder)
    for position, records in rest.items():
        expected = order.records(0, position).tolist() if position < order.num_positions else []
        assert records == expected
    left = order.num_positions - step * world_size
    assert len(rest) == (-(-left // new_world) if last_batch == "pad" else left // new_world) * new_world


def test_another_budget_is_another_recipe() -> None:
    pipeline = within(sp.Pipeline(source()))
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
    for other in (within(pipeline, budget=501), within(pipeline, packing=True), pipeline.batch(5)):
        with (
            other.loader(memory=MEMORY) as loader,
            pytest.raises(sp.StateError, match=r"batches was .budget=500"),
        ):
            loader.load_state_dict(state)


def test_draws_of_rows_never_meet() -> None:
    image = np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    images = np.repeat(image[None], 40, axis=0)
    lengths = np.arange(1, 41)
    pipeline = sp.Pipeline(sp.Arrays(image=images, length=lengths)).shuffle(seed=1)
    pipeline = within(pipeline.map(sp.RandomResizedCrop(8)), budget=100)
    with pipeline.loader(memory=MEMORY, num_workers=2) as loader:
        crops = [image.tobytes() for batch in loader for image in batch["image"]]
    assert len(set(crops)) == len(crops) == 40


def test_the_plan_says_what_a_batch_is() -> None:
    plan = within(sp.Pipeline(source()).shuffle(seed=3), max_batch_size=16).plan(memory=MEMORY)
    text = plan.explain()
    assert "rows from" in text
    assert "padded to at most 500 of 'length'" in " ".join(text.split())
    assert "values: (≤16, 3) float32" in text
    assert f"{plan.steps.per_epoch} steps per epoch of 1 batch, 0 batches dropped per epoch" in text
    assert plan.steps.per_epoch == plan.order.num_positions


@given(
    ranks=st.integers(1, 9),
    last_batch=st.sampled_from(["drop", "pad"]),
    packing=st.booleans(),
    how=st.sampled_from(["sequential", "shuffled", "chosen", "repeated"]),
)
@settings(max_examples=30, deadline=None)
def test_the_audit_covers_them(ranks: int, last_batch: str, packing: bool, how: str) -> None:
    pipeline = sp.Pipeline(source(LENGTHS[:400]))
    if how == "chosen":
        pipeline = pipeline.select([0, 399, 50, 0])
        ranks = 1  # these are one batch
    if how != "sequential":
        pipeline = pipeline.shuffle(seed=2)
    if how == "repeated":
        pipeline = pipeline.repeat_each(2)
    found = within(pipeline, last_batch=last_batch, packing=packing).audit(ranks=ranks, epochs=2)
    assert found.ok, found
    assert len(found.steps) == ranks
    if last_batch == "pad":
        assert found.dropped == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "batch.. takes a batch_size"),
        ({"batch_size": 4, "budget": 4}, "batch.. takes a batch_size"),
        ({"batch_size": 4, "max_batch_size": 4}, "batch.. takes a batch_size"),
        ({"budget": 4}, "batch.. takes a batch_size"),
        ({"length_column": "length"}, "batch.. takes a batch_size"),
        (
            {"budget": 500, "length_column": "size"},
            "length_column='size'.*the source has no such column. Its columns are length",
        ),
        (
            {"budget": 500, "length_column": "values"},
            "length_column='values'.*the source has no such column. Its columns are length",
        ),
        ({"budget": 100, "length_column": "length"}, "no batch of budget=100 holds it"),
    ],
)
def test_what_cannot_be_batched(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(source()).batch(**arguments).plan(memory=MEMORY)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        (sp.Pipeline(source(), seed=-1), "seed must be .* got -1"),
        (sp.Pipeline(source()).shuffle(seed=2**64), "seed must be"),
        (sp.Pipeline(source()).repeat_each(0), "repeat_each must be .* got 0"),
        (sp.Pipeline(source()).sample(seed=1, weights="length"), "Use one of them"),
        (sp.Pipeline(source()).shuffle(seed=1, block=10), "Use one of them"),
    ],
)
def test_orders_that_have_no_budget(pipeline: sp.Pipeline, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        within(pipeline).plan(memory=MEMORY)


def test_filters_come_before_the_budget() -> None:
    pipeline = within(sp.Pipeline(source()).filter("length <= 50").shuffle(seed=1), budget=50, packing=True)
    assert pipeline.audit(ranks=2, epochs=2).ok
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        seen = sorted(index for batch in loader for index in batch["index"].tolist())
    assert seen == np.flatnonzero(LENGTHS <= 50).tolist()


def test_lengths_are_whole_numbers() -> None:
    pipeline = sp.Pipeline(sp.Arrays(length=np.ones(3)))
    with pytest.raises(sp.PlanError, match="integers, and this column has others"):
        within(pipeline).plan(memory=MEMORY)


def test_more_ranks_than_batches() -> None:
    pipeline = within(sp.Pipeline(source(LENGTHS[:3])).shuffle(seed=1), packing=True).shard(0, 8)
    with pytest.raises(sp.PlanError, match=r'fill no step of 1 batch × 8 ranks.*use last_batch="pad"'):
        pipeline.plan(memory=MEMORY)
