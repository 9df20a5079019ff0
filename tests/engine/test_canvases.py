"""Batches of images that differ in size, padded natively, beside those whose images are made one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import painted
from sized import Sized

ROWS, IMAGES = 5, 23
MOST = 160
CHANNELS_LAST, CHANNELS_FIRST = (MOST, MOST, 3), (3, MOST, MOST)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def described(source: Any, *transforms: Any, shape: Any = CHANNELS_LAST, **pad: Any) -> sp.Pipeline:
    collate = {"image": sp.Pad(max_shape=shape, **pad)}
    return sp.Pipeline(source).shuffle(seed=3).map(*transforms).batch(ROWS, collate=collate)


def epoch(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    """Copies of all batches of an epoch."""
    with pipeline.loader(memory="512MiB", **options) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


def pads_natively(pipeline: sp.Pipeline) -> bool:
    kernel = pipeline.plan(memory="512MiB").samples.kernel
    return kernel is not None and all(head.varies for head in kernel.heads)


def assert_same(got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


NORMALIZED = [sp.Resize(48), sp.RandomHorizontalFlip(), sp.Normalize()]
WAYS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "as they are": ([], {}),
    "bytes": ([sp.Resize(50)], {"value": 9}),
    "planes of bytes": ([sp.Resize(50), sp.ToLayout("NCHW")], {"value": 255, "shape": CHANNELS_FIRST}),
    "normalized": (NORMALIZED, {"to_multiple_of": 32, "shape": CHANNELS_FIRST}),
    "normalized, channels last": ([*NORMALIZED, sp.ToLayout("NHWC")], {"value": -1.5}),
    "float16": (
        [*NORMALIZED, sp.ToDtype("float16")],
        {"value": 0.1, "to_multiple_of": 7, "shape": CHANNELS_FIRST},
    ),
    "floats": ([sp.ToDtype("float32", scale=True)], {"shape": CHANNELS_FIRST, "value": 2}),
    "grey": ([sp.RandomResize(30, 70), sp.Grayscale()], {"shape": (MOST, MOST, 1)}),
    "several passes": (
        [sp.RandomResize(30, 70), sp.RandomRotation(20), sp.PadImage((3, 1)), sp.ColorJitter(0.2), sp.Normalize()],
        {"shape": CHANNELS_FIRST},
    ),
    "erased": ([*NORMALIZED, sp.RandomErasing(p=1.0)], {"shape": CHANNELS_FIRST}),
    "a fixed canvas": ([sp.Resize(40)], {"length": CHANNELS_LAST, "shape": None}),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_that_are_made_one_by_one(tmp_path: Path, way: str) -> None:
    transforms, pad = WAYS[way]
    pipeline = described(Sized(painted(tmp_path, IMAGES)), *transforms, **pad)
    assert pads_natively(pipeline)
    alone = epoch(pipeline, executor="inline")
    assert_same(epoch(pipeline, num_workers=2), alone)
    assert len({batch["image"].shape for batch in alone}) > 1 or way == "a fixed canvas"
    for batch in alone:
        largest = batch["image_length"].max(axis=0)
        multiple = pad.get("to_multiple_of", 1)
        if way != "a fixed canvas":
            rounded = [side if side <= 3 else -(-side // multiple) * multiple for side in largest]
            assert batch["image"].shape[1:] == tuple(rounded)
