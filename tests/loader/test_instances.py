"""Instances in batches: where boxes and points are, which fields there are, and one result by all workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import painted

MEMORY = "256MiB"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    """Return copies of all batches of an epoch."""
    with pipeline.loader(memory=MEMORY, **options) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


def test_fields_of_a_batch(tmp_path: Path) -> None:
    source = painted(tmp_path, 10)
    opened = source.open()
    records = opened.locate(np.arange(10))
    first, second, third = batches(sp.Pipeline(source).map(sp.Resize((64, 96))).batch(4))
    assert first.keys() == {
        *("image", "image_id", "index", "valid", "orig_size", "to_original"),
        *("boxes", "labels", "area", "iscrowd", "id", "batch_index", "instance_offsets"),
    }
    assert first["batch_index"].tolist() == [1, 2, 2, 3, 3, 3]
    assert first["instance_offsets"].tolist() == [0, 0, 1, 3, 6]
    assert third["valid"].tolist() == [True, True, False, False]
    assert third["instance_offsets"].tolist() == [0, 1, 3, 3, 4]
    for name in ("labels", "area", "iscrowd", "id"):
        got = np.concatenate([first[name], second[name], third[name][:3]])
        assert got.dtype == records.ragged[name].values.dtype
        assert got.tolist() == records.ragged[name].values.tolist()
    assert records.sizes is not None
    assert first["orig_size"].tolist() == records.sizes[:4].tolist()
    height, width = records.sizes[3]
    scale = np.array([96 / width, 64 / height] * 2)
    stored = records.ragged["boxes"].values[3:6]
    assert np.abs(first["boxes"][3:] - stored * scale).max() < 1e-4
    assert first["boxes"].dtype == np.float32
    assert np.abs(first["to_original"][3] - np.diag([width / 96, height / 64, 1])).max() < 1e-12


def test_painted_rectangles_stay_in_their_boxes(tmp_path: Path) -> None:
    transforms = [
        sp.RandomResizedCrop((72, 90)),
        sp.RandomHorizontalFlip(),
        sp.RandomAffine(20, (0.1, 0.1), (0.8, 1.2)),
    ]
    pipeline = sp.Pipeline(painted(tmp_path, 40, most=1)).map(*transforms)
    seen = 0
    for batch in batches(pipeline.batch(8)):
        for row, image in enumerate(batch["image"]):
            y, x = np.nonzero(image.min(axis=-1) > 90)
            boxes = batch["boxes"][batch["batch_index"] == row]
            if not len(x):
                continue
            assert len(boxes) == 1
            left, top, right, bottom = boxes[0]
            assert left - 1 <= x.min() < x.max() + 1 <= right + 1
            assert top - 1 <= y.min() < y.max() + 1 <= bottom + 1
            seen += 1
    assert seen > 10


RANDOM = [
    sp.RandomResizedCrop(48),
    sp.RandomHorizontalFlip(),
    sp.RandomRotation(30),
    sp.SanitizeBoundingBoxes(min_size=2, min_visibility=0.2),
    sp.Normalize(),
]


@pytest.mark.parametrize("instances", [sp.Ragged(), sp.Pad(length=4, cut=True)], ids=["ragged", "padded"])
def test_epochs_have_one_digest(tmp_path: Path, instances: Any) -> None:
    pipeline = sp.Pipeline(painted(tmp_path, 45)).shuffle(seed=3).map(*RANDOM)
    pipeline = pipeline.batch(5, instances=instances, last_batch="pad")
    whole = sp.digest_epoch(pipeline, epoch=1, num_workers=1, memory=MEMORY)
    ways: list[dict[str, Any]] = [
        {"num_workers": 2},
        {"num_workers": 5},
        {"executor": "thread", "num_workers": 2},
        {"executor": "inline"},
        {"stop_at": [4], "num_workers": 2},
        {"ranks": [1, 2], "stop_at": [3], "num_workers": 1},
        {"ranks": 2, "num_workers": 1},
    ]
    for way in ways:
        assert sp.digest_epoch(pipeline, epoch=1, memory=MEMORY, **way).sha256 == whole.sha256, way


def resized(source: Any, folder: Path, name: str, size: tuple[int, int]) -> None:
    """Make an image of a source another one, (height, width)."""
    Image.fromarray(np.zeros((*size, 3), np.uint8)).save(
        folder / "images" / name, "PNG" if name < "0005" else "JPEG"
    )


@pytest.mark.parametrize("name", ["0003.jpg", "0007.jpg"], ids=["by Pillow", "native"])
@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_files_of_another_size_are_bad_samples(tmp_path: Path, name: str, executor: Any) -> None:
    source = painted(tmp_path, 12)
    records = source.open().locate(np.arange(12))
    assert records.sizes is not None
    height, width = records.sizes[int(name[:4])].tolist()
    resized(source, tmp_path, name, (height, width + 1))
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(32)).batch(4)
    with pytest.raises(sp.DecodeError) as caught:
        batches(pipeline, executor=executor)
    assert f"it has {width + 1} × {height} pixels, but its annotations say {width} × {height}" in str(
        caught.value
    )
    assert str(tmp_path / "images" / name) in str(caught.value)

    replaced = pipeline.map(sp.RandomHorizontalFlip()).on_error(sp.Replace(at_most=2))
    rows: dict[int, Any] = {}
    for batch in batches(replaced, executor=executor):
        check_instances(records, batch)
        rows |= dict.fromkeys(batch["index"].tolist())
    assert int(name[:4]) not in rows


def check_instances(records: Any, batch: dict[str, Any]) -> None:
    """Check that each row has the instances of its own record, after a crop of 32 pixels and a flip."""
    begins = [0, *records.ragged["id"].ends[:-1]]
    for row, index in enumerate(batch["index"].tolist()):
        of_row = batch["batch_index"] == row
        part = slice(begins[index], records.ragged["id"].ends[index])
        assert batch["id"][of_row].tolist() == records.ragged["id"].values[part].tolist()
        assert batch["orig_size"][row].tolist() == records.sizes[index].tolist()
        inside = np.clip(batch["boxes"][of_row], 0.01, 31.99)  # what isn't cut off maps back
        back = np.concatenate([inside.reshape(-1, 2), np.ones((2 * len(inside), 1))], axis=1)
        back = (back @ batch["to_original"][row].T)[:, :2].reshape(-1, 4)
        back[:, 0::2].sort(axis=1)
        stored = records.ragged["boxes"].values[part]
        uncut = (batch["boxes"][of_row] > 0.5).all(axis=1) & (batch["boxes"][of_row] < 31.5).all(axis=1)
        assert np.abs(back - stored)[uncut].max(initial=0) < 1e-3


def test_too_many_instances_are_a_bad_sample(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted(tmp_path, 14)).map(sp.CenterCrop(32))
    with pytest.raises(sp.TransformError, match="it has 6 instances, and a row has room for 5") as caught:
        batches(pipeline.batch(7, instances=sp.Pad(length=5)))
    assert "0006.jpg" in str(caught.value)
    with pytest.raises(
        sp.TransformError, match=r"it has 4 instances, and 10 with the rows before it.*room for 9"
    ):
        batches(pipeline.batch(7, instances=sp.Ragged(max_values=9)))
    replaced = pipeline.batch(7, instances=sp.Pad(length=5)).on_error(sp.Replace(at_most=2))
    first, second = batches(replaced)
    assert (first["instance_valid"].sum(), second["instance_valid"].sum()) <= (20, 20)
    assert not {6, 13} & {*first["index"], *second["index"]}


def test_padded_instances(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted(tmp_path, 7)).map(sp.CenterCrop(40))
    (ragged,) = batches(pipeline.batch(7))
    (padded,) = batches(pipeline.batch(7, instances=sp.Pad(length=8)))
    (cut,) = batches(pipeline.batch(7, instances=sp.Pad(length=3, cut=True)))
    assert padded["instance_valid"].sum(axis=1).tolist() == list(range(7))
    for name in ("boxes", "labels", "area", "iscrowd", "id"):
        assert (padded[name][padded["instance_valid"]] == ragged[name]).all()
        assert not padded[name][~padded["instance_valid"]].any()
        assert (cut[name] == padded[name][:, :3]).all()
    assert "batch_index" not in padded
    for wrong in (sp.Pad(to_multiple_of=8), sp.Pad(length=8, value=1), sp.Pad(length=(8, 4)), 100):
        with pytest.raises(sp.PlanError, match="instances="):
            pipeline.batch(7, instances=wrong)  # type: ignore[arg-type]
