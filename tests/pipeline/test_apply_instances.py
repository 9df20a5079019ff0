"""``Pipeline.apply`` moves given boxes as a loader moves those of its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import painted

MEMORY = "256MiB"
EVALUATION = (sp.Resize((64, 96)), sp.CenterCrop(48), sp.SanitizeBoundingBoxes(2), sp.Normalize())
VIEWS = sp.Views(
    a=[sp.Resize((40, 40)), sp.RandomHorizontalFlip(1.0)], b=[*EVALUATION[:3], sp.ClampBoundingBoxes()]
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def stored(source: Any) -> dict[str, list[Any]]:
    """The images of a source as paths, and the values of their instances."""
    opened = source.open()
    records = opened.locate(np.arange(opened.num_records))
    columns = {name: np.split(column.values, column.ends[:-1]) for name, column in records.ragged.items()}
    return {"image": [opened.name(row) for row in range(opened.num_records)], **columns}


@pytest.mark.parametrize("instances", [None, sp.Pad(length=6)], ids=["ragged", "padded"])
@pytest.mark.parametrize("transforms", [EVALUATION, (VIEWS,)], ids=["one", "views"])
def test_the_batch_is_that_of_a_loader(tmp_path: Path, transforms: Any, instances: Any) -> None:
    source = painted(tmp_path, 14, keypoints=True)
    pipeline = sp.Pipeline(source).map(*transforms).batch(14, instances=instances)
    with pipeline.loader(memory=MEMORY) as loader:
        expected = {name: np.array(value) for name, value in loader.peek().items()}
    given = stored(source)
    pixels = []
    for path in given["image"]:
        with Image.open(path) as image:
            pixels.append(np.asarray(image))
    served = sp.Pipeline.from_dict(pipeline.to_dict()).decode(flip_pairs=[(1, 2)])
    for images in (given["image"], pixels):
        batch = served.apply({**given, "image": images})
        assert batch.keys() == expected.keys() - {"image_id", "index", "valid"}
        for name, value in batch.items():
            assert value.dtype == expected[name].dtype, name
            assert np.array_equal(value, expected[name]), name


def test_predictions_are_taken_back_without_boxes(tmp_path: Path) -> None:
    source = painted(tmp_path, 6)
    given = stored(source)
    image = given["image"]
    transforms = [sp.Resize((64, 96)), sp.Normalize()]
    bare = sp.Pipeline(sp.ImageFolder("nowhere"))
    assert bare.map(*transforms).apply(image).keys() == {"image"}
    whole = bare.map(*transforms).apply(given)
    predictions = np.split(whole["boxes"], whole["instance_offsets"][1:-1])
    for pipeline in (
        sp.Pipeline(source),
        bare.batch(4, instances=sp.Ragged()),
        bare.map(sp.ClampBoundingBoxes()),
    ):
        for images in (image, {"image": image}):
            batch = pipeline.map(*transforms).apply(images)
            assert batch.keys() == {"image", "orig_size", "to_original"}
            found = sp.boxes_to_original(predictions, batch)
            for boxes, expected in zip(found, given["boxes"], strict=True):
                assert np.abs(boxes - expected).max(initial=0) < 1e-3


def test_boxes_may_be_lists_and_images_may_have_none(tmp_path: Path) -> None:
    image = np.zeros((20, 40, 3), np.uint8)
    pipeline = sp.Pipeline(sp.ImageFolder("nowhere")).map(sp.Resize((40, 40)))
    points = [[], [[(10, 5, 2), (50, 5, 1)]], []]
    batch = pipeline.apply(
        {
            "image": [image] * 3,
            "boxes": [[], [(0, 0, 10, 10)], []],
            "labels": [[], [7], []],
            "area": [[], [100], []],
            "keypoints": points,
        }
    )
    assert batch["boxes"].tolist() == [[0, 0, 10, 20]]
    assert batch["labels"].tolist() == [7]
    assert batch["labels"].dtype == np.int64
    assert batch["area"].dtype == np.float32  # as a source's
    assert batch["keypoints"].tolist() == [[[10, 10, 2], [50, 10, 0]]]
    assert batch["batch_index"].tolist() == [1]
    nothing = pipeline.apply({"image": [image], "boxes": [[]], "labels": [[]], "keypoints": [[]]})
    assert nothing["boxes"].shape == (0, 4)
    assert nothing["instance_offsets"].tolist() == [0, 0]


def test_wrong_values_are_refused() -> None:
    image, box = np.zeros((20, 40, 3), np.uint8), (0, 0, 10, 10)
    pipeline = sp.Pipeline(sp.ImageFolder("nowhere")).map(sp.Resize((40, 40)))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"boxes": [[box]]}, r"got 2 images, and 'boxes' of 1"),
        ({"boxes": [[box], [box[:3]]]}, r"arrays of numbers for 'boxes', of the shape \('M', 4\)"),
        ({"boxes": [[box], [(np.nan, 0, 5, 5)]]}, "a box of input 1 isn't finite, or ends before it begins"),
        ({"boxes": [[(5, 5, 4, 9)], [box]]}, "a box of input 0 isn't finite"),
        ({"boxes": [[box], [box]], "labels": [[1], [1, 2]]}, "'labels' of input 1 has another number"),
        ({"boxes": [[box], [box]], "names": [["a"], ["b"]]}, "arrays of numbers for 'names'"),
        ({"boxes": [[box], [box]], "labels": [["a"], ["b"]]}, "arrays of numbers for 'labels'"),
    ]
    for given, reason in wrong:
        with pytest.raises(sp.PlanError, match=reason):
            pipeline.apply({"image": [image, image], **given})
    with pytest.raises(sp.TransformError, match="it has 2 instances, and a row has room for 1") as raised:
        pipeline.batch(2, instances=sp.Pad(length=1)).apply(
            {"image": [image] * 2, "boxes": [[box], [box, box]]}
        )
    assert raised.value.index == 1
    mirrored = pipeline.map(sp.RandomHorizontalFlip(1.0))
    with pytest.raises(sp.PlanError, match="mirrors keypoints"):
        mirrored.apply({"image": [image], "boxes": [[box]], "keypoints": [[[(1, 1, 1)]]]})
