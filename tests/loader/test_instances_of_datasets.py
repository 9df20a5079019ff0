"""Instances that a dataset's samples have, as torchvision's targets do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import RANDOM, painted
from preloaded import TORCH

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
    with pipeline.loader(memory=MEMORY, mp_context=TORCH, **options) as loader:
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
        ({"boxes": np.full((2, 4), np.nan)}, r"box that isn't finite: instance 0, the box from and to \(nan"),
        (
            {"boxes": np.array([[1.0, 1, 2, 2], [5, 5, 4, 9]])},
            r"empty box: instance 1, the box from and to \(5, 5, 4, 9\), in an image of 80 × 113 pixels",
        ),
        ({"boxes": np.array([[-2.0, 5, 4, 9], [1, 1, 2, 2]])}, "box outside its image: instance 0"),
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


# What stands for boxes in xyxy pixels, by the form in which a dataset has them.
GIVEN = {
    "xyxy": lambda boxes: boxes,
    "xywh": lambda boxes: np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1),
    "cxcywh": lambda boxes: np.concatenate(
        [(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], axis=1
    ),
}


class Objects(Targets):
    """Images with targets in the form of Hugging Face's or torchvision's datasets."""

    def __init__(self, source: sp.Coco, kind: str, given: str, *, fractions: bool = False) -> None:
        super().__init__(source, "encoded")
        self.kind, self.given, self.fractions = kind, given, fractions

    def __getitem__(self, index: int) -> Any:
        row = super().__getitem__(index)
        boxes = GIVEN[self.given](row["boxes"].astype(float))
        if self.fractions:
            with Image.open(row["image"]) as opened:
                boxes = boxes / np.tile(opened.size, 2)
        if self.kind == "huggingface":
            objects = {"bbox": boxes.tolist(), "category": row["labels"].tolist()}
            objects |= {name: row[name].tolist() for name in ("area", "iscrowd")}
            return {"image": {"bytes": Path(row["image"]).read_bytes(), "path": None}, "objects": objects}
        if self.kind == "tensors":
            from torchvision_cpu import torchvision

            kind = torchvision.tv_tensors.BoundingBoxes
            boxes = kind(torch.tensor(boxes), format=self.given.upper(), canvas_size=(9, 9))
        return row | {"boxes": boxes}


@pytest.mark.parametrize(
    ("kind", "given", "options"),
    [
        ("huggingface", "xywh", {}),
        ("huggingface", "xyxy", {"box_format": "xyxy"}),
        ("arrays", "cxcywh", {"box_format": "cxcywh"}),
        ("arrays", "cxcywh", {"box_format": "cxcywh", "normalized": True}),
        ("arrays", "xyxy", {"normalized": True}),
        ("tensors", "cxcywh", {}),
        ("tensors", "xywh", {"box_format": "xywh"}),
    ],
)
def test_boxes_of_other_forms(tmp_path: Path, kind: str, given: str, options: dict[str, Any]) -> None:
    source = painted(tmp_path, 12)
    dataset = Objects(source, kind, given, fractions="normalized" in options)
    made = sp.MapSource(dataset, encoded="image", instances=NAMES, **options)
    how: dict[str, Any] = {"instances": sp.Pad(length=6)}
    found = batches(sp.Pipeline(made).map(*RANDOM).batch(6, **how), executor="thread")
    for batch, other in zip(found, batches(sp.Pipeline(source).map(*RANDOM).batch(6, **how)), strict=True):
        assert np.abs(batch["boxes"] - other["boxes"]).max() < 1e-3
        assert all(np.array_equal(batch[name], other[name]) for name in ("labels", "area", "instance_valid"))


def test_tensors_of_another_format_than_given(tmp_path: Path) -> None:
    dataset = Objects(painted(tmp_path, 3), "tensors", "cxcywh")
    source = sp.MapSource(dataset, encoded="image", instances=NAMES, box_format="xywh")
    with pytest.raises(sp.SampleError, match="'boxes' is cxcywh: leave out box_format="):
        batches(sp.Pipeline(source).map(*RANDOM).batch(3, instances=sp.Pad(length=9)), executor="thread")


@pytest.mark.parametrize(("invalid", "left"), [("clip", 2), ("drop", 1)])
def test_wrong_boxes_are_clipped_or_dropped(tmp_path: Path, invalid: Any, left: int) -> None:
    boxes = [[-5, 5, 4, 9], [np.nan, 1, 2, 2], [5, 5, 4, 9], [-9, 0, -2, 9], [10, 10, 20.5, 20]]
    values = {"boxes": np.array(boxes), "labels": np.arange(5)}
    values |= {"area": np.ones(5), "iscrowd": np.zeros(5, bool)}
    dataset = Targets(painted(tmp_path, 3), "encoded", {2: values})
    source = sp.MapSource(dataset, encoded="image", instances=NAMES, invalid=invalid)
    (batch,) = batches(sp.Pipeline(source).map(sp.Resize((50, 60))).batch(3, instances=sp.Pad(length=5)))
    assert batch["labels"][2, :left].tolist() == [0, 4][-left:]
    assert batch["instance_valid"][2].sum() == left
    assert (batch["boxes"][2, 0, 0] == 0) == (invalid == "clip")


def test_lists_of_dicts_name_the_source_for_them(tmp_path: Path) -> None:
    files = Targets(painted(tmp_path, 2), "encoded").files
    dataset = [(Image.open(file), [{"bbox": [1, 2, 3, 4], "category_id": 1}]) for file in files]
    pipeline = sp.Pipeline(sp.MapSource(dataset, instances=("boxes", "labels"))).map(*RANDOM)
    with pytest.raises(
        sp.SampleError, match=r"as CocoDetection gives them: use sp.Coco\(images, annotations"
    ):
        batches(pipeline.batch(2, instances=sp.Pad(length=2)), executor="thread")


def test_known_names_need_no_spec() -> None:
    image = np.zeros((20, 30, 3), np.uint8)
    sample = {"image": image, "bbox": [[1, 2, 3, 4]], "category": [1], "score": [0.5], "scores": [0.25]}
    source = sp.MapSource([sample], instances=("boxes", "labels", "score", "scores"))
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(20)).batch(1, instances=sp.Pad(length=1))
    (batch,) = batches(pipeline, executor="thread")
    assert (batch["score"].tolist(), batch["scores"].tolist()) == ([[0.5]], [[0.25]])
    assert batch["score"].dtype == np.float32


def test_forms_of_boxes_are_checked(tmp_path: Path) -> None:
    for wrong in ({"box_format": "yolo"}, {"invalid": "ignore"}, {"normalized": 1}):
        (name,) = wrong
        with pytest.raises(sp.PlanError, match=f"MapSource: {name} must be "):
            sp.MapSource([1], instances=("boxes", "labels"), **wrong).open()
    dataset = Targets(painted(tmp_path, 2), "encoded")
    one, other = (sp.MapSource(dataset, instances=NAMES, box_format=each) for each in ("xywh", "xyxy"))
    with pytest.raises(sp.PlanError, match=r"its boxes are .*'xyxy'"):
        sp.Concat(one, other).open()
    assert one.open().digest != other.open().digest
    assert sp.Concat(one, one).open().form.box_format == "xywh"  # type: ignore[attr-defined]


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
    how: dict[str, Any] = {"instances": sp.Pad(length=9)}
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
        assert (
            sp.digest_epoch(pipeline, epoch=1, memory=MEMORY, mp_context=TORCH, **way).sha256 == whole.sha256
        ), way
