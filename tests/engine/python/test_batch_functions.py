"""Functions on whole batches: the same result whoever calls them, with random numbers of their own."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import standpipe as sp
from preloaded import SERVER

EXECUTORS = [
    pytest.param({"executor": "inline"}, id="inline"),
    pytest.param({"executor": "thread", "num_workers": 1}, id="1 thread"),
    pytest.param({"executor": "thread", "num_workers": 3}, id="3 threads"),
    pytest.param({"executor": "process", "num_workers": 3, "mp_context": SERVER}, id="3 processes"),
]


class Squares:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((4, 4, 3), index, np.float32), index


def epoch(pipeline: sp.Pipeline, **settings: Any) -> list[dict[str, Any]]:
    with pipeline.loader(**{"memory": "1GiB", "executor": "thread", **settings}) as loader:
        return [
            {
                name: np.array(value) if isinstance(value, np.ndarray) else value
                for name, value in batch.items()
            }
            for batch in loader
        ]


def assert_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_equal(left[name], right[name])


def mixup(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    share = rng.random()
    batch["image"] = share * batch["image"] + (1 - share) * batch["image"][::-1]
    batch["share"] = share
    return batch


def in_place(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    batch["image"] += np.float32(rng.random())
    batch["image"] *= np.float32(rng.random())
    return batch


def other_shapes(batch: dict[str, Any]) -> dict[str, Any]:
    return {
        "corner": batch["image"][:, :2, :2],
        "label": torch.from_numpy(batch["label"]) * 2,
        "n": {"a": batch["label"]},
    }


@pytest.mark.parametrize("settings", EXECUTORS)
@pytest.mark.parametrize("fn", [mixup, in_place, other_shapes], ids=lambda fn: fn.__name__)
def test_a_batch_is_the_same_whoever_makes_it(fn: Any, settings: dict[str, Any]) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Squares())).shuffle(seed=3).batch(8).map_batch(fn)
    expected = epoch(pipeline, executor="inline")
    assert_same(epoch(pipeline, **settings), expected)
    assert all("index" in batch for batch in expected)
    if fn is not other_shapes:  # every batch draws anew
        assert len({round(float(batch["image"].sum()), 6) for batch in expected}) == 5


def test_what_a_function_keeps_lies_in_the_slot_and_outlives_the_next_batches() -> None:
    pipeline = sp.Pipeline(sp.MapSource(Squares())).batch(4, last_batch="drop").map_batch(other_shapes)
    with pipeline.loader(executor="thread", num_workers=1, memory="64MiB") as loader:
        batches = list(loader)
    for number, batch in enumerate(batches):
        labels = np.arange(4 * number, 4 * number + 4)
        np.testing.assert_array_equal(batch["corner"][:, 1, 1, 0], labels)
        np.testing.assert_array_equal(batch["label"], 2 * labels)
        np.testing.assert_array_equal(batch["n"]["a"], labels)
        assert set(batch) == {"corner", "label", "n", "index"}


def collate(samples: list[tuple[np.ndarray, int]]) -> tuple[Any, Any]:
    images, labels = zip(*samples, strict=True)
    return default_collate([torch.from_numpy(image) for image in images]), torch.tensor(labels)


@pytest.mark.parametrize("settings", EXECUTORS)
def test_a_collate_fn_of_torch(settings: dict[str, Any]) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Squares())).shuffle(seed=3).batch(8, collate_fn=collate)
    plain = sp.Pipeline(sp.MapSource(Squares())).shuffle(seed=3).batch(8)
    assert "outside the slots" in pipeline.plan().explain()
    assert_same(epoch(pipeline, **settings), epoch(plain))


def test_samples_come_in_the_datasets_form() -> None:
    seen: list[Any] = []

    def look(samples: list[Any]) -> dict[str, Any]:
        seen.extend(samples)
        return {"n": len(samples)}

    for item in ({"a": 1}, (1, 2), 7):
        (batch,) = epoch(sp.Pipeline(sp.MapSource([item] * 3)).batch(3, collate_fn=look), executor="inline")
        assert batch["n"] == 3
        assert seen.pop() == item


def test_functions_follow_one_another_and_native_rows() -> None:
    images = np.random.default_rng(0).integers(0, 255, (12, 8, 8, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=images)).map(sp.CenterCrop(4))
    doubled = pipeline.batch(6).map_batch(
        lambda batch: {**batch, "image": batch["image"] // 2},
        lambda batch: {**batch, "mean": batch["image"].mean()},
    )
    for batch, plain in zip(epoch(doubled), epoch(pipeline.batch(6)), strict=True):
        np.testing.assert_array_equal(batch["image"], plain["image"] // 2)
        assert batch["mean"] == (plain["image"] // 2).mean()


@pytest.mark.parametrize("settings", EXECUTORS)
def test_a_function_that_fails_names_itself_and_the_loader_goes_on(settings: dict[str, Any]) -> None:
    def fails(batch: dict[str, Any]) -> dict[str, Any]:
        if 9 in batch["label"]:
            raise ValueError("nine")
        return batch

    with (
        sp.Pipeline(sp.MapSource(Squares()))
        .batch(8, last_batch="drop")
        .map_batch(fails)
        .loader(**settings) as loader
    ):
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(sp.TransformError, match=r"map_batch\(.*fails\): ValueError: nine"):
            next(iterator)
        loader.skip_steps(1)
        assert [batch["label"][0] for batch in loader.steps(3)] == [16, 24, 32]


def test_what_cannot_work() -> None:
    pipeline = sp.Pipeline(sp.MapSource(Squares())).batch(8)
    with pytest.raises(sp.PlanError, match="collate= or collate_fn="):
        pipeline.batch(8, collate={"image": list}, collate_fn=collate)
    with pytest.raises(sp.PlanError, match="a function of a list of samples"):
        pipeline.batch(8, collate_fn=3)  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match="takes functions of a batch"):
        pipeline.map_batch(3)  # type: ignore[arg-type]
    padded = sp.Pipeline(sp.MapSource(Squares())).batch(8, collate={"image": list})
    with pytest.raises(sp.PlanError, match="Collate in the function"):
        padded.map_batch(mixup).plan()
    for made, says in [
        (None, "returned None; return the batch"),
        ({0: 1}, "returned a field 0; fields have names"),
    ]:
        with (
            pipeline.map_batch(lambda _, made=made: made).loader() as loader,  # type: ignore[misc]
            pytest.raises(sp.TransformError, match=says),
        ):
            next(iter(loader))
