"""albumentations' transforms: the same bytes whoever runs them, and image and mask together."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import write_photos
from preloaded import TORCH

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else its import asks the network for a newer one
A = pytest.importorskip("albumentations")

EXECUTORS = [
    pytest.param({"executor": "inline"}, id="inline"),
    pytest.param({"executor": "thread", "num_workers": 1}, id="1 thread"),
    pytest.param({"executor": "thread", "num_workers": 3}, id="3 threads"),
    pytest.param({"executor": "process", "num_workers": 2, "mp_context": TORCH}, id="2 processes"),
]


def train() -> Any:
    """Draws from both of its generators, NumPy's and Python's."""
    return A.Compose(
        [
            A.RandomCrop(24, 24),
            A.HorizontalFlip(p=0.5),
            A.RandomBrightnessContrast(p=0.8),
            A.OneOf([A.GaussNoise(p=1), A.CoarseDropout(p=1)], p=0.9),
        ]
    )


def epoch(pipeline: sp.Pipeline, **settings: Any) -> list[dict[str, Any]]:
    with pipeline.loader(**{"memory": "2GiB", **settings}) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


def assert_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other) > 0
    for left, right in zip(one, other, strict=True):
        assert left.keys() == right.keys()
        for name, values in left.items():
            np.testing.assert_array_equal(values, right[name], err_msg=name)


@pytest.mark.parametrize("settings", EXECUTORS)
def test_whoever_runs_it_the_bytes_are_the_same(tmp_path: Path, settings: dict[str, Any]) -> None:
    photos = sp.Pipeline(write_photos(tmp_path, 24), seed=4).shuffle(seed=1).map(train()).batch(6)
    expected = epoch(photos, executor="inline")
    assert expected[0]["image"].shape == (6, 24, 24, 3)
    assert_same(epoch(photos, **settings), expected)


def test_two_draws_of_a_record_are_cropped_differently(tmp_path: Path) -> None:
    photos = (
        sp.Pipeline(write_photos(tmp_path, 6)).repeat_each(2).map(A.Compose([A.RandomCrop(24, 24)])).batch(12)
    )
    (first,), (again,) = epoch(photos), epoch(photos, num_workers=3)
    pairs = [first["image"][first["index"] == index] for index in range(6)]
    assert sum(not np.array_equal(one, other) for one, other in pairs) >= 5
    np.testing.assert_array_equal(first["image"], again["image"])


class Segments:
    """An image whose red says where a pixel is, and a mask that says the same."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = np.arange(32 * 32, dtype=np.int32).reshape(32, 32)
        image = np.stack([place % 256, place // 256, np.full_like(place, index)], axis=-1)
        return {"image": image.astype(np.uint8), "mask": place, "name": f"number {index}"}


@pytest.mark.parametrize("settings", EXECUTORS)
def test_image_and_mask_are_cropped_together(settings: dict[str, Any]) -> None:
    crop = A.Compose([A.RandomCrop(16, 16), A.HorizontalFlip(p=0.5), A.RandomRotate90()])
    pipeline = sp.Pipeline(sp.MapSource(Segments())).shuffle(seed=2).map(crop).batch(8)
    batches = epoch(pipeline, **settings)
    assert_same(batches, epoch(pipeline, executor="inline"))
    for batch in batches:
        image = batch["image"].astype(np.int32)
        np.testing.assert_array_equal(image[..., 0] + 256 * image[..., 1], batch["mask"])
        np.testing.assert_array_equal(image[:, 0, 0, 2], batch["index"])
        assert batch["name"].tolist() == [f"number {index}" for index in batch["index"]]
    assert len({batch["mask"][row, 0, 0] for batch in batches for row in range(8)}) > 12  # it did crop


def test_one_field_alone() -> None:
    """With a field's name the callable gets that field as its image, and no other."""
    flip = A.Compose([A.HorizontalFlip(p=1.0)])
    (batch,) = epoch(sp.Pipeline(sp.MapSource(Segments())).map(flip, field="image").batch(24))
    np.testing.assert_array_equal(batch["mask"][0], np.arange(32 * 32).reshape(32, 32))
    np.testing.assert_array_equal(batch["image"][0, :, ::-1, 0], batch["mask"][0] % 256)


class OneX:
    """As a 1.x ``Compose``: no generators of its own, it uses the process's."""

    def __call__(self, *, image: np.ndarray) -> dict[str, np.ndarray]:
        top, left = random.randint(0, 8), np.random.randint(0, 8)  # noqa: NPY002
        return {"image": image[top : top + 8, left : left + 8]}


OneX.__module__ = "albumentations.core.composition"


def test_a_version_that_draws_from_the_processs_generators() -> None:
    pipeline = sp.Pipeline(sp.MapSource(Segments())).repeat_each(2).map(OneX(), field="image").batch(16)
    batches = epoch(pipeline, executor="process", num_workers=1)
    assert_same(batches, epoch(pipeline, executor="process", num_workers=3))
    assert len({tuple(batch["image"][row, 0, 0, :2]) for batch in batches for row in range(16)}) > 20


class Threads(Segments):
    """How many threads OpenCV would use here."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        import cv2

        return {"threads": cv2.getNumThreads()}


def test_a_worker_process_has_no_threads_of_opencv() -> None:
    for batch in epoch(sp.Pipeline(sp.MapSource(Threads())).batch(12), executor="process", num_workers=2):
        assert batch["threads"].tolist() == [1] * 12


def test_it_takes_arrays_only() -> None:
    with pytest.raises(sp.PlanError, match="albumentations takes NumPy arrays; leave input_format out"):
        sp.Pipeline(sp.MapSource(Segments())).map(train(), input_format="pil")
