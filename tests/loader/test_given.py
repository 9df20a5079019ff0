"""Batches that somebody names while they are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from preloaded import SERVER

SETTINGS: dict[str, Any] = {"memory": "256MiB", "num_workers": 2, "executor": "thread"}


def pipeline(rows: int = 5) -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(x=np.arange(40) * 10), seed=3).batch(rows, batch_sampler=True)


def values(batches: Any) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


@pytest.mark.parametrize("ahead", [0, 1, 3, 9])
def test_batches_have_the_records_that_were_named(ahead: int) -> None:
    with pipeline().loader(**SETTINGS) as loader:
        assert values(loader.from_batches([[3, 1], [7], [7, 7, 0, 39, 5]], ahead=ahead)) == [
            [30, 10],
            [70],
            [70, 70, 0, 390, 50],
        ]
        assert values(loader.from_batches([], ahead=ahead)) == []
        assert values(loader.from_batches(([number] for number in range(20)), ahead=ahead)) == [
            [10 * number] for number in range(20)
        ]


@pytest.mark.parametrize("ahead", [0, 2])
def test_batches_are_asked_for_as_they_are_delivered(ahead: int) -> None:
    asked = 0

    def batches() -> Iterator[list[int]]:
        nonlocal asked
        for number in range(10):
            asked += 1
            yield [number]

    with pipeline().loader(**SETTINGS) as loader:
        epoch = loader.from_batches(batches(), ahead=ahead)
        for number in range(10):
            assert asked == (min(number + ahead, 10))
            assert next(epoch)["x"].tolist() == [10 * number]
        assert next(epoch, None) is None


def test_an_epoch_that_is_left_leaves_nothing_behind() -> None:
    with pipeline().loader(**SETTINGS) as loader:
        for epoch in range(3):
            batches = loader.from_batches([[epoch], [epoch + 1], [epoch + 2]], ahead=3)
            assert next(batches)["x"].tolist() == [10 * epoch]
            assert loader.epoch == epoch


def test_a_state_goes_on_with_the_rest_and_its_random_numbers() -> None:
    def drawing() -> sp.Pipeline:
        def draw(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
            return {**sample, "drawn": rng.random()}

        return sp.Pipeline(sp.Arrays(x=np.arange(40)), seed=3).map(draw).batch(7, batch_sampler=True)

    named = [[1, 2], [3], [4, 5, 6], [7]]
    with drawing().loader(**SETTINGS) as loader:
        list(loader.from_batches(named))
        batches = loader.from_batches(named)
        next(batches)
        state = loader.state_dict()
        rest = [(batch["x"].tolist(), batch["drawn"].tolist()) for batch in batches]
    with drawing().loader(**SETTINGS) as loader:
        loader.load_state_dict(state)
        again = loader.from_batches(named[1:], ahead=2)
        assert [(batch["x"].tolist(), batch["drawn"].tolist()) for batch in again] == rest


@pytest.mark.parametrize("ahead", [0, 4])
def test_a_batch_that_cant_be_made_is_left_out(ahead: int) -> None:
    def sample(index: int) -> int:
        if index in (0, 5):
            raise ValueError(index)
        return index

    class Dataset:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> int:
            return sample(index)

    described = sp.Pipeline(sp.MapSource(Dataset(), fields=("x",))).batch(3, batch_sampler=True)
    with described.loader(**SETTINGS) as loader:
        batches = loader.from_batches([[0, 1], [2, 3], [4, 5], [6], [7]], ahead=ahead)
        made: list[list[int] | str] = []
        while True:
            try:
                made.append(next(batches)["x"].tolist())
            except sp.SampleError as error:
                made.append(f"record {error.index}")
            except StopIteration:
                break
        assert made == ["record 0", [2, 3], "record 5", [6], [7]]


def test_what_cant_be_is_an_error() -> None:
    with pipeline().loader(**SETTINGS) as loader:
        for odd in ([], [1.5], [1] * 6, [[1]], ["a"]):
            with pytest.raises(sp.PlanError, match="1 to 5 record numbers"):
                next(loader.from_batches([odd]))  # type: ignore[list-item]
        with pytest.raises(sp.PlanError, match="from_batches"):
            iter(loader)
        with pytest.raises(TypeError, match="from_batches"):
            len(loader)
        assert "as batches are given, of at most 5 rows" in loader.plan.explain()
        assert "40 records" in loader.plan.explain()
    with pytest.raises(sp.PlanError, match="batch_sampler=True"):
        sp.Pipeline(sp.Arrays(x=np.arange(4))).batch(2).loader(**SETTINGS).from_batches([[1]])
    for odd_pipeline in (
        pipeline().shuffle(seed=1),
        pipeline().take(3),
        pipeline().repeat_each(2),
        pipeline().shard(0, 2),
        pipeline().on_error(sp.Replace(at_most=0.5)),
    ):
        with pytest.raises(sp.PlanError, match="the caller names the records"):
            odd_pipeline.plan()
    with pytest.raises(sp.PlanError, match="takes a batch_size"):
        sp.Pipeline(sp.Arrays(x=np.arange(4))).batch(budget=4, length_column="x", batch_sampler=True)
    with pytest.raises(sp.PlanError, match="can't count the records"):
        pipeline().audit()


def test_workers_have_numbers() -> None:
    assert sp.worker_id() is None

    class Numbers:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> int:
            number = sp.worker_id()
            return -1 if number is None else number

    described = sp.Pipeline(sp.MapSource(Numbers(), fields=("x",))).batch(20)
    with described.loader(**SETTINGS) as loader:
        assert {number for batch in loader for number in batch["x"].tolist()} == {-1}
    with described.loader(**{**SETTINGS, "executor": "process"}, mp_context=SERVER) as loader:
        numbers = {number for batch in loader for number in batch["x"].tolist()}
    assert numbers
    assert numbers <= {0, 1}
