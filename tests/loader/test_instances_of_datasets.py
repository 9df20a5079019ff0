"""Instances that a dataset's samples have, as torchvision's targets do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import RANDOM, painted

torch = pytest.importorskip("torch")

MEMORY = "400MiB"
NAMES = ("boxes", "labels", "area", "iscrowd")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Targets:
    """Images with targets, in one of three forms. Records in ``changed`` have another value of a field."""

    def __init__(self, source: sp.Coco, form: str, changed: dict[int, dict[str, Any]] | None = None) -> None:
        opened = source.open()
        records = opened.locate(np.arange(opened.num_records))
        self.files = [bytes(path).decode() for path in records.files["image"].paths]
        self.rows = {name: np.split(part.values, part.ends[:-1]) for name, part in records.ragged.items()}
        self.form, self.changed = form, changed or {}

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        values = {name: self.rows[name][index] for name in NAMES} | self.changed.get(index, {})
        if self.form == "tuple":
            image = Image.open(self.files[index])
            tensors = {name: torch.as_tensor(value) for name, value in values.items()}
            return image, {**tensors, "image_id": index}
        if self.form == "encoded":
            return {"image": self.files[index], **values}
        return {
            "image": np.array(Image.open(self.files[index])),
            "target": {k: v.tolist() for k, v in values.items()},
        }


def of_dataset(source: sp.Coco, form: str, **changed: Any) -> sp.Pipeline:
    encoded = "image" if form == "encoded" else None
    dataset = Targets(source, form, **changed)
    return sp.Pipeline(sp.MapSource(dataset, encoded=encoded, instances=NAMES), seed=5)


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(memory=MEMORY, **options) as loader:
        return [dict(batch) for batch in loader]


@pytest.mark.parametrize("form", ["tuple", "encoded", "dict"])
@pytest.mark.parametrize("executor", ["process", "thread", "inline"])
def test_datasets_have_the_batches_of_annotation_files(tmp_path: Path, form: str, executor: Any) -> None:
    source = painted(tmp_path, 22)
    pipeline = of_dataset(source, form).shuffle(seed=5).map(*RANDOM)
    expected = batches(sp.Pipeline(source).shuffle(seed=5).map(*RANDOM).batch(6))
    found = batches(pipeline.batch(6, instances=sp.Ragged(max_values=36)), executor=executor)
    for batch, other in zip(found, expected, strict=True):
        for name in (*NAMES, "batch_index", "instance_offsets", "orig_size", "to_original", "index"):
            assert np.array_equal(batch[name], other[name]), name
        assert batch.keys() - {"image_id"} == other.keys() - {"image_id", "id"}
        if form == "tuple":
            assert batch["image_id"].tolist() == batch["index"].tolist()


def test_padded_instances_and_replaced_samples(tmp_path: Path) -> None:
    source = painted(tmp_path, 22)
    wrong = {
        3: {"boxes": np.array([[5.0, 5, 4, 9], [1, 1, 2, 2], [1, 1, 2, 2]])},
        5: {"labels": np.zeros(1, int)},
    }
    pipeline = of_dataset(source, "encoded", changed=wrong).map(*RANDOM)
    pipeline = pipeline.batch(6, instances=sp.Pad(length=5)).on_error(sp.Replace(at_most=9))
    plain = of_dataset(source, "encoded").map(*RANDOM).batch(6, instances=sp.Pad(length=5, cut=True))
    straight = {
        row: value
        for batch in batches(plain)
        for row, value in zip(batch["index"], batch["boxes"], strict=True)
    }
    same = 0
    for batch in batches(pipeline, executor="thread"):
        for row, index in enumerate(batch["index"]):
            assert index not in (3, 5)
            same += np.array_equal(batch["boxes"][row], straight[index])
    assert same >= 15


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"boxes": np.zeros((2, 5))},
            r"'boxes' must be \(M, 4\) float32 for M instances, but it is \(2, 5\) float64",
        ),
        ({"boxes": "none"}, r"'boxes' must be .*, but it is str"),
        ({"boxes": np.full((2, 4), np.nan)}, "a box isn't finite, or ends before it begins"),
        ({"boxes": np.array([[5.0, 5, 4, 9], [1, 1, 2, 2]])}, "ends before it begins"),
        ({"labels": np.zeros(1, int)}, "different numbers of .*'labels': 1"),
        ({"labels": ["a", "b"]}, r"'labels' must be \(M,\) int64"),
    ],
)
def test_targets_of_another_form_are_bad_samples(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    pipeline = of_dataset(painted(tmp_path, 4), "encoded", changed={2: changed}).map(*RANDOM)
    with pytest.raises(sp.SampleError, match=reason) as caught:
        batches(pipeline.batch(4, instances=sp.Pad(length=9)), executor="thread")
    assert caught.value.index == 2


def test_boxes_of_another_format_are_refused(tmp_path: Path) -> None:
    from torchvision_cpu import torchvision

    boxes = torchvision.tv_tensors.BoundingBoxes(torch.ones(2, 4), format="CXCYWH", canvas_size=(9, 9))
    pipeline = of_dataset(painted(tmp_path, 4), "encoded", changed={2: {"boxes": boxes}}).map(*RANDOM)
    with pytest.raises(sp.SampleError, match="'boxes' is CXCYWH: convert it, boxes are XYXY"):
        batches(pipeline.batch(4, instances=sp.Pad(length=9)), executor="thread")


def test_keypoints_of_a_dataset(tmp_path: Path) -> None:
    source = painted(tmp_path, 4)
    points = np.array([[[1.0, 2, 2], [3, 4, 1]]] * 3)
    spec = {"boxes": sp.ArraySpec((4,), np.dtype("f4")), "keypoints": sp.ArraySpec((2, 3), np.dtype("f4"))}
    dataset = Targets(source, "encoded", {row: {"keypoints": points[:row]} for row in range(4)})
    pipeline = sp.Pipeline(sp.MapSource(dataset, encoded="image", instances=spec), seed=5)
    pipeline = pipeline.map(sp.Resize((40, 40)), sp.RandomHorizontalFlip(1.0))
    pipeline = pipeline.batch(4, instances=sp.Pad(length=3), collate=dict.fromkeys(NAMES[1:], list))
    with pytest.raises(sp.PlanError, match="mirrors keypoints"):
        pipeline.plan()
    (batch,) = batches(pipeline.decode(flip_pairs=((0, 1),)), executor="thread")
    height, width = batch["orig_size"][3]
    expected = [[40 - 3 * 40 / width, 4 * 40 / height, 1], [40 - 1 * 40 / width, 2 * 40 / height, 2]]
    assert np.abs(batch["keypoints"][3, 0] - expected).max() < 1e-4


def test_what_a_plan_needs_to_know(tmp_path: Path) -> None:
    pipeline = of_dataset(painted(tmp_path, 4), "encoded").map(*RANDOM)
    for how in (None, sp.Ragged()):
        with pytest.raises(sp.PlanError, match=r"give batch\(instances=sp.Ragged\(max_values="):
            pipeline.batch(4, instances=how).plan()
    for wrong in (("labels",), ("boxes", "weights"), "boxes", 5):
        with pytest.raises(sp.PlanError, match="name 'boxes', and any of"):
            sp.MapSource([1], instances=wrong).open()  # type: ignore[arg-type]
    plain = of_dataset(painted(tmp_path / "more", 4), "dict").batch(4, instances=sp.Pad(length=9))
    with pytest.raises(sp.PlanError, match="instances need images of one size"):
        plain.plan()


def test_boxes_belong_to_the_first_image(tmp_path: Path) -> None:
    source = painted(tmp_path, 4)
    named = [
        {"left": row["image"], **{name: row[name] for name in NAMES}}
        for row in map(Targets(source, "encoded").__getitem__, range(4))
    ]
    how = {"instances": sp.Pad(length=9)}
    (batch,) = batches(
        sp.Pipeline(sp.MapSource(named, encoded="left", instances=NAMES)).map(*RANDOM).batch(4, **how)
    )
    (other,) = batches(sp.Pipeline(source).map(*RANDOM).batch(4, **how))
    assert np.array_equal(batch["left"], other["image"])
    assert np.array_equal(batch["boxes"], other["boxes"])


def test_epochs_of_a_dataset_have_one_digest(tmp_path: Path) -> None:
    pipeline = of_dataset(painted(tmp_path, 23), "tuple").shuffle(seed=3).map(*RANDOM)
    pipeline = pipeline.batch(4, instances=sp.Ragged(max_values=24), last_batch="pad")
    whole = sp.digest_epoch(pipeline, epoch=1, executor="inline", memory=MEMORY)
    ways: list[dict[str, Any]] = [
        {"num_workers": 1},
        {"num_workers": 3, "stop_at": [2]},
        {"executor": "thread", "num_workers": 2, "ranks": [1, 2], "stop_at": [3]},
        {"executor": "thread", "num_workers": 1, "ranks": 2},
    ]
    for way in ways:
        assert sp.digest_epoch(pipeline, epoch=1, memory=MEMORY, **way).sha256 == whole.sha256, way
