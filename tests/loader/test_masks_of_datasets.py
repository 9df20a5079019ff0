"""Masks of instances that a dataset's samples have: pictures, as torchvision's targets do, or COCO's forms."""

from __future__ import annotations

import json
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from preloaded import TORCH
from shapes import of_polygons, polygon
from standpipe.spec import AnyArray

torch = pytest.importorskip("torch")

SIZE = HEIGHT, WIDTH = 72, 96
MOVES = [sp.RandomResizedCrop(64, (0.5, 1.0)), sp.RandomHorizontalFlip(), sp.RandomAffine(20, (0.1, 0.1))]
ROOM: dict[str, Any] = {"instances": sp.Ragged(max_values=12)}
SQUARE = np.zeros((1, *SIZE), np.uint8)
SQUARE[0, 10:30, 20:50] = 1
BOX = np.array([[20.0, 10, 50, 30]])
POLYGON = [[20, 10, 50, 10, 50, 30, 20, 30]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(memory="512MiB", **options) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


def annotated(folder: Path, count: int, *, pixels: bool) -> tuple[Any, list[dict[str, Any]]]:
    """A source of ``count`` images of up to three polygons, or of runs of their pixels, and its samples."""
    random = np.random.default_rng(0)
    source = of_polygons(
        folder, [[polygon(random, *SIZE) for _ in range(n % 4)] for n in range(count)], size=SIZE
    )
    (batch,) = batches(sp.Pipeline(source).map(sp.Resize(SIZE)).batch(count, masks="dense"))
    file = folder / "instances.json"
    content = json.loads(file.read_text())
    shapes: list[Any] = [each["segmentation"] for each in content["annotations"]]
    if pixels:
        for mask, each in zip(batch["instance_masks"], content["annotations"], strict=True):
            runs = [(value, len([*run])) for value, run in groupby(mask.T.reshape(-1).tolist())]
            counts = [0] * runs[0][0] + [length for _, length in runs]
            each["segmentation"] = {"counts": counts, "size": SIZE}
        file.write_text(json.dumps(content))
        shapes = [*batch["instance_masks"]]
    ends = batch["instance_offsets"].tolist()
    samples = [
        {
            "image": str(folder / "images" / f"{number}.png"),
            "boxes": batch["boxes"][begin:end],
            "labels": batch["labels"][begin:end],
            "shapes": shapes[begin:end],
        }
        for number, (begin, end) in enumerate(pairwise(ends))
    ]
    return source, samples


class Targets:
    """Samples in one of three forms, with masks."""

    def __init__(self, samples: list[dict[str, Any]], form: str) -> None:
        self.samples, self.form = samples, form

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        sample = self.samples[index]
        target = {"boxes": sample["boxes"], "labels": sample["labels"]}
        if self.form == "polygons":
            return {"image": sample["image"], "objects": {**target, "segmentation": sample["shapes"]}}
        masks = np.array(sample["shapes"], np.uint8).reshape(-1, *SIZE)
        if self.form == "list":
            return {"image": sample["image"], **target, "masks": [*masks]}
        tensors = {name: torch.as_tensor(value) for name, value in target.items()}
        return sample["image"], {**tensors, "masks": torch.as_tensor(masks) > 0}


@pytest.mark.parametrize("form", ["tensors", "list", "polygons"])
@pytest.mark.parametrize("executor", ["process", "thread", "inline"])
def test_datasets_have_the_masks_of_annotation_files(tmp_path: Path, form: str, executor: Any) -> None:
    source, samples = annotated(tmp_path, 10, pixels=form != "polygons")
    made = sp.MapSource(
        Targets(samples, form), encoded="image", instances=("boxes", "labels"), instance_masks=True
    )
    for options in ({}, {"masks": "dense", "mask_ratio": 2}, {"boxes_from": "shape"}):
        expected = batches(sp.Pipeline(source).shuffle(seed=5).map(*MOVES).batch(5, **options))
        pipeline = sp.Pipeline(made).shuffle(seed=5).map(*MOVES).batch(5, **ROOM, **options)
        found = batches(pipeline, executor=executor, mp_context=TORCH)
        for batch, other in zip(found, expected, strict=True):
            assert other["instance_masks"].any()
            for name in batch:
                assert np.array_equal(batch[name], other[name]), name


def test_a_cache_keeps_shapes(tmp_path: Path) -> None:
    _, samples = annotated(tmp_path, 8, pixels=True)
    made = sp.MapSource(
        Targets(samples, "tensors"), encoded="image", instances=("boxes", "labels"), instance_masks=True
    )
    plain = sp.Pipeline(made)
    kept = plain.cache(sp.Cache("shapes", memory="16MiB", directory=tmp_path))
    with (
        plain.map(*MOVES).batch(8, **ROOM).loader(memory="512MiB", executor="thread") as loader,
        kept.map(*MOVES).batch(8, **ROOM).loader(memory="512MiB", executor="thread") as from_cache,
    ):
        for _ in range(2):
            for batch, other in zip(from_cache, loader, strict=True):
                assert batch["instance_masks"].any()
                assert np.array_equal(batch["instance_masks"], other["instance_masks"])
        assert from_cache.stats().cache_hits >= 8


def one(target: dict[str, Any], **options: Any) -> sp.Pipeline:
    """A pipeline of a record with a target."""
    sample = {"image": np.zeros((*SIZE, 3), np.uint8), "boxes": BOX, "labels": [1], **target}
    made = sp.MapSource([sample], instances=("boxes", "labels"), instance_masks=True, **options)
    return sp.Pipeline(made).map(sp.Resize(SIZE)).batch(1, **ROOM)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ({}, "has no 'instance_masks', 'masks' or 'segmentation', which instance_masks=True takes"),
        ({"masks": SQUARE[0]}, r"'masks' must be \(M, H, W\) .* \(72, 96\) uint8. Of one picture"),
        (
            {"masks": SQUARE / 2},
            r"'masks' must be \(M, H, W\) of bool or integers.* it is \(1, 72, 96\) float64",
        ),
        ({"masks": "none"}, r"'masks' must be .*, but it is str"),
        ({"masks": SQUARE[[0, 0]]}, "different numbers of .*'boxes': 1.*'masks': 2"),
        (
            {"masks": SQUARE[:, :9, :9]},
            "mask of another size than its image: instance 0, 9 × 9 pixels, in an image of 96 × 72",
        ),
        ({"masks": [SQUARE]}, "mask that isn't polygons or runs of pixels: instance 0: too many values"),
        ({"segmentation": [[[1, 2, 3]]]}, "runs of pixels: instance 0: a polygon of 3 numbers"),
        ({"segmentation": [None]}, "instance without a mask: instance 0"),
    ],
)
def test_masks_of_another_form_are_bad_samples(target: dict[str, Any], reason: str) -> None:
    with pytest.raises(sp.SampleError, match=reason):
        batches(one(target), executor="thread")


def test_invalid_masks_are_dropped() -> None:
    masks = [POLYGON, SQUARE[0, :9, :9], [[1, 2, 3]], None, SQUARE[0], {"counts": [7], "size": [1, 7]}]
    target = {"boxes": BOX.repeat(6, 0), "labels": range(6), "masks": masks}
    target["labels"] = [*range(6)]
    (batch,) = batches(one(target, invalid="clip"), executor="thread")
    assert batch["labels"].tolist() == [0, 4]
    assert np.array_equal(batch["instance_masks"][0] > 0, SQUARE[0] > 0)


@pytest.mark.parametrize("masks", [SQUARE, [SQUARE[0] > 0], [POLYGON]], ids=["array", "list", "polygons"])
def test_fractions_are_of_boxes_and_polygons(masks: Any) -> None:
    sides = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT])
    if masks[0] is POLYGON:
        masks = [[(np.array(POLYGON[0]) / np.tile(sides, 2)).tolist()]]
    target = {"boxes": BOX / sides, "masks": masks}
    (batch,) = batches(one(target, normalized=True), executor="thread")
    assert np.allclose(batch["boxes"], BOX)
    assert np.array_equal(batch["instance_masks"], SQUARE)


def test_text_of_runs_may_be_bytes() -> None:
    coco = pytest.importorskip("pycocotools.mask")
    runs = coco.encode(np.asfortranarray(SQUARE[0]))
    assert isinstance(runs["counts"], bytes)
    (batch,) = batches(one({"segmentation": [runs]}), executor="thread")
    assert np.array_equal(batch["instance_masks"], SQUARE)


def test_an_image_without_instances() -> None:
    masks: list[AnyArray] = [SQUARE[:0], np.zeros(0), np.zeros((0, 5, 5), bool)]
    for each in (*masks, []):
        (batch,) = batches(one({"boxes": BOX[:0], "labels": [], "masks": each}), executor="thread")
        assert not batch["instance_masks"].any()


def test_what_a_plan_says_of_masks() -> None:
    with pytest.raises(sp.PlanError, match=r"instance_masks=True\) needs instances=: give instances="):
        sp.MapSource([1], instance_masks=True).open()
    with pytest.raises(sp.PlanError, match="MapSource: instance_masks must be False or True, got 'yes'"):
        sp.MapSource([1], instances=("boxes", "labels"), instance_masks="yes").open()  # type: ignore[arg-type]
    rooms = []
    for form in ("index", "dense"):
        pipeline = one({"masks": SQUARE}).batch(1, instances=sp.Pad(length=300), masks=form)
        assert "instance_masks" not in pipeline.plan().batch.layout.regions
        with pipeline.loader(memory="512MiB", executor="thread") as loader:
            loader.peek()
            rooms.append(loader.plan.batch.layout.regions["instance_masks"])
    assert [room.nbytes for room in rooms] == [2 * HEIGHT * WIDTH, 300 * HEIGHT * WIDTH]
    assert [room.dtype for room in rooms] == [np.int16, np.uint8]


def test_images_of_many_sizes_have_masks_in_lists(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20)).save(tmp_path / "small.png")
    target = {"boxes": BOX, "labels": [1]}
    samples = [
        {"image": np.zeros((*SIZE, 3), np.uint8), **target, "masks": SQUARE},
        {"image": np.zeros((36, 60, 3), np.uint8), **target, "masks": SQUARE[:, :36, :60]},
    ]
    made = sp.MapSource(samples, instances=("boxes", "labels"), instance_masks=True)
    pipeline = sp.Pipeline(made).map(sp.RandomShortestSize([24]))
    how: dict[str, Any] = {"collate": {"image": list}, "masks": "dense", **ROOM}
    with pipeline.batch(2, **how).loader(memory="512MiB", executor="thread") as loader:
        (batch,) = loader
    assert [each.shape for each in batch["instance_masks"]] == [(1, 24, 32), (1, 24, 40)]
