"""Instances in batches: where boxes and points are, which fields there are, and one result by all workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from fleets import Makers
from painted import RANDOM, painted
from photos import picture

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


def test_keypoints_swap_sides_where_rows_are_mirrored(tmp_path: Path) -> None:
    source = painted(tmp_path, 14, keypoints=True)
    plain = sp.Pipeline(source).map(sp.Resize((64, 96)))
    straight = batches(plain.batch(14))[0]["keypoints"]
    for flip, axis, side in ((sp.RandomHorizontalFlip(1.0), 0, 96), (sp.RandomVerticalFlip(1.0), 1, 64)):
        expected = straight.copy()
        expected[..., axis] = side - expected[..., axis]
        swapped = expected[:, [0, 2, 1]]  # left_eye and right_eye, by COCO's names
        (batch,) = batches(plain.map(flip).batch(14))
        assert np.abs(batch["keypoints"] - swapped).max() < 1e-4
        (batch,) = batches(plain.map(flip).decode(flip_pairs=()).batch(14))
        assert np.abs(batch["keypoints"] - expected).max() < 1e-4
        (batch,) = batches(plain.map(flip).decode(flip_pairs=[(0, 1)]).batch(14))
        assert np.abs(batch["keypoints"] - expected[:, [1, 0, 2]]).max() < 1e-4
    (batch,) = batches(plain.map(sp.RandomHorizontalFlip(1.0), sp.RandomVerticalFlip(1.0)).batch(14))
    assert np.abs(batch["keypoints"][..., :2] - ([96, 64] - straight[..., :2])).max() < 1e-4


def test_keypoints_without_sides_are_not_mirrored_in_silence(tmp_path: Path) -> None:
    source = painted(tmp_path, 4, keypoints=True)
    text = (tmp_path / "instances.json").read_text()
    (tmp_path / "instances.json").write_text(text.replace("left_eye", "nose"))
    # Names without left and right ones have no sides.
    sp.Pipeline(source).map(sp.CenterCrop(32), sp.RandomHorizontalFlip()).batch(4).plan()
    (tmp_path / "instances.json").write_text(
        text.replace('"keypoints": ["nose", "left_eye", "right_eye"], ', "")
    )
    for flip in (
        sp.RandomHorizontalFlip(),
        sp.RandomApply([sp.RandomVerticalFlip()]),
        sp.Views(a=[sp.RandomHorizontalFlip()]),
    ):
        pipeline = sp.Pipeline(source).map(sp.CenterCrop(32), flip).batch(4)
        with pytest.raises(sp.PlanError, match=r"mirrors keypoints.*decode\(flip_pairs="):
            pipeline.plan()
        pipeline.decode(flip_pairs=()).plan()
    sp.Pipeline(source).map(sp.CenterCrop(32)).batch(4).plan()
    with pytest.raises(sp.PlanError, match="keypoints have the numbers 0 to 2"):
        sp.Pipeline(source).map(sp.CenterCrop(32)).decode(flip_pairs=((1, 3),)).batch(4).plan()
    with pytest.raises(sp.PlanError, match="keypoints have the numbers 0 to 2"):
        sp.Pipeline(source).map(sp.CenterCrop(32)).decode(flip_pairs=((1, -2),)).batch(4).plan()
    for wrong in (5, (1, 2), [(1, 1)], [(1, True)], ("a", "b"), [("a", "b")], [(1, 2, 3)]):
        with pytest.raises(sp.PlanError, match="give pairs of numbers of keypoints"):
            sp.Pipeline(source).decode(flip_pairs=wrong)  # type: ignore[arg-type]


def test_views_have_instances_of_their_own(tmp_path: Path) -> None:
    source = painted(tmp_path, 8)
    small = [sp.RandomResizedCrop(32), sp.RandomHorizontalFlip(), sp.SanitizeBoundingBoxes(min_size=4)]
    views = sp.Views(image=[sp.Resize((64, 96))], small=small, other=small[:2])
    (batch,) = batches(sp.Pipeline(source, seed=4).map(views).batch(8))
    (alone,) = batches(sp.Pipeline(source, seed=4).map(sp.Views(small=small)).batch(8))
    (whole,) = batches(sp.Pipeline(source, seed=4).map(sp.Resize((64, 96))).batch(8))
    for name in ("boxes", "labels", "batch_index", "instance_offsets", "to_original"):
        assert (batch[name] == whole[name]).all()
        assert (batch[f"small_{name}"] == alone[f"small_{name}"]).all()
    assert len(batch["small_boxes"]) < len(batch["other_boxes"]) == len(batch["boxes"])
    assert "boxes" not in alone
    assert (batch["orig_size"] == whole["orig_size"]).all()


def test_visibility_counts_from_the_source_or_from_the_warp(tmp_path: Path) -> None:
    source = painted(tmp_path, 14)
    steps = [sp.CenterCrop(36), sp.RandomAffine(0, scale=(0.5, 0.5), pixels="opencv", size=40)]
    filters = (
        sp.SanitizeBoundingBoxes(),
        sp.SanitizeBoundingBoxes(min_visibility=0.99, visibility_of="warp"),
        sp.SanitizeBoundingBoxes(min_visibility=0.5),
    )
    pipelines = [sp.Pipeline(source).map(*steps, drops).batch(14) for drops in filters]
    counts = [len(batches(each)[0]["boxes"]) for each in pipelines]
    assert counts[0] == counts[1] > counts[2] > 0


def test_what_would_leave_instances_behind_is_refused(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted(tmp_path, 4))
    crop, drop = sp.CenterCrop(32), sp.SanitizeBoundingBoxes()
    wrong: list[tuple[sp.Pipeline, str]] = [
        (pipeline.map(drop, crop).batch(2), r"SanitizeBoundingBoxes\(.*\) comes before CenterCrop"),
        (pipeline.map(crop, drop, drop).batch(2), "SanitizeBoundingBoxes twice"),
        (pipeline.map(crop, sp.SanitizeBoundingBoxes(min_size=0)).batch(2), "min_size must be a number"),
        (pipeline.map(crop, sp.SanitizeBoundingBoxes(min_visibility=2)).batch(2), "must be a fraction"),
        (pipeline.map(crop, sp.SanitizeBoundingBoxes(max_aspect=0.5)).batch(2), "number of at least 1"),
        (
            pipeline.map(crop, sp.SanitizeBoundingBoxes(visibility_of="x")).batch(2),  # type: ignore[arg-type]
            "one of 'source', 'warp'",
        ),
        (pipeline.map(crop, lambda sample: sample).batch(2), "before boxes are moved"),
        (pipeline.map(crop).batch(2).map_batch(lambda batch: batch), "before boxes are moved"),
        (pipeline.map(crop).batch(2, collate_fn=lambda samples: samples), "before boxes are moved"),
        (pipeline.map(sp.Views(a=sp.Repeat(2, [crop]))).batch(2), "Views with instances can't have Repeat"),
        (sp.Pipeline(sp.Arrays(image=np.zeros((2, 40, 40, 3), np.uint8))).map(crop, drop).batch(2), "none"),
        (sp.Pipeline(sp.Arrays(x=np.zeros(4))).batch(2, instances=sp.Ragged()), "source has no instances"),
    ]
    for each, reason in wrong:
        with pytest.raises(sp.PlanError, match=reason):
            each.plan()
    pipeline.map(drop, sp.ColorJitter(), sp.ClampBoundingBoxes()).map(sp.Normalize()).batch(2)


def test_a_plan_says_what_instances_take(tmp_path: Path) -> None:
    source = painted(tmp_path, 14)
    plan = sp.Pipeline(source).map(sp.CenterCrop(32), sp.SanitizeBoundingBoxes()).batch(4).plan()
    text = plan.explain()
    said = " ".join(text.split())
    assert (
        "instances: boxes, labels, area, iscrowd, id; 3.0 a record on average, 111B; 6 at most, 222B; "
        in said
    )
    assert "room for 24 in a batch, 888B SanitizeBoundingBoxes drops small ones a bad sample" in said
    views = sp.Views(a=[sp.CenterCrop(32), sp.RandomHorizontalFlip()], b=[sp.CenterCrop(16)])
    pose = sp.Pipeline(painted(tmp_path / "pose", 7, keypoints=True)).map(views)
    said = " ".join(pose.batch(3, instances=sp.Pad(length=10)).plan().explain().split())
    assert "room for 30 in a batch, 4.2KiB empty boxes stay; 1 pair of keypoints swap" in said
    assert "boxes: (≤24, 4) float32, room for 96" in text
    assert "to_original: (4, 3, 3) float64" in text
    more = sp.Pipeline(source).map(sp.CenterCrop(32)).batch(4, instances=sp.Ragged(max_values=5000)).plan()
    slots = more.batch.layout.slot_bytes - plan.batch.layout.slot_bytes
    assert slots >= (5000 - 24) * (16 + 8 + 4 + 1 + 8 + 8)
    assert more.forecast.waiting - plan.forecast.waiting >= slots


def test_a_recipe_has_the_form_of_instances(tmp_path: Path) -> None:
    source = painted(tmp_path, 3)
    pipeline = (
        sp.Pipeline(source).map(sp.CenterCrop(32), sp.SanitizeBoundingBoxes(2)).decode(flip_pairs=((0, 1),))
    )
    for instances in (None, sp.Ragged(), sp.Pad(length=7, cut=True)):
        described = pipeline.batch(2, instances=instances)
        again = sp.Pipeline.from_dict(json.loads(json.dumps(described.to_dict())), source=source)
        assert again == described
        assert again.instances == instances


@pytest.mark.parametrize("instances", [sp.Ragged(), sp.Pad(length=8)], ids=["ragged", "padded"])
def test_a_fleet_makes_the_images_and_the_trainer_moves_instances(tmp_path: Path, instances: Any) -> None:
    source = painted(tmp_path, 45)
    (tmp_path / "images/0007.jpg").write_bytes(b"no image")
    pipeline = sp.Pipeline(source).shuffle(seed=3).map(*RANDOM).batch(5, instances=instances)
    pipeline = pipeline.on_error(sp.Replace(at_most=3))
    plans = [pipeline.plan(memory=MEMORY, num_workers=1) for _ in range(2)]
    expected = batches(pipeline)
    for batch, other in zip(batches(pipeline, fleet=Makers(plans)), expected, strict=True):
        assert batch.keys() == other.keys()
        assert all((batch[name] == other[name]).all() for name in batch)


def test_a_cache_and_a_schedule_change_nothing_or_what_they_say(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(painted(tmp_path / "data", 20)).shuffle(seed=3)
    first, rest = sp.Resize((64, 72)), RANDOM
    plain = sp.digest_epoch(pipeline.map(first, *rest).batch(4), memory=MEMORY)
    cached = pipeline.map(first).cache(sp.Cache("boxes", memory="16MiB", directory=tmp_path)).map(*rest)
    for _ in range(2):
        assert sp.digest_epoch(cached.batch(4), memory=MEMORY).sha256 == plain.sha256
    kept = pipeline.cache(sp.Cache("files", memory="16MiB", directory=tmp_path)).map(first, *rest)
    assert sp.digest_epoch(kept.batch(4), memory=MEMORY).sha256 == plain.sha256

    size = sp.Schedule({0: 32, 1: 64})
    drops = sp.SanitizeBoundingBoxes(min_size=3)
    scheduled = pipeline.map(sp.RandomResizedCrop(size), drops).batch(4)
    for epoch, side in ((0, 32), (1, 64)):
        fixed = pipeline.map(sp.RandomResizedCrop(side), drops).batch(4)
        found = sp.digest_epoch(scheduled, epoch=epoch, memory=MEMORY)
        assert found.sha256 == sp.digest_epoch(fixed, epoch=epoch, memory=MEMORY).sha256


def test_torch_and_show_take_instances(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import standpipe.torch

    pipeline = sp.Pipeline(painted(tmp_path, 8)).map(sp.CenterCrop(32)).batch(4)
    (batch, _) = batches(pipeline)
    with standpipe.torch.loader(pipeline, memory=MEMORY, fields=("image", "boxes", "batch_index")) as loader:
        image, boxes, rows = next(iter(loader))
    assert image.shape == (4, 32, 32, 3)
    assert np.array_equal(boxes.numpy(), batch["boxes"])
    assert np.array_equal(rows.numpy(), batch["batch_index"])
    assert pipeline.show(8) is not None
    assert len(pipeline.apply([picture(1)])["image"]) == 1


def test_only_instances_are_cut() -> None:
    source = sp.MapSource([{"x": np.zeros(2)}], spec={"x": sp.ArraySpec((2,), np.dtype(np.float64))})
    pipeline = sp.Pipeline(source).batch(1, collate={"x": sp.Pad(length=3, cut=True)})
    with pytest.raises(sp.PlanError, match="cut=True is for batch"):
        pipeline.plan()
