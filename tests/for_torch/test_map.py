"""COCO's mAP is 1 where a batch's own boxes, taken back to the stored images, are the predictions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
import standpipe.torch
from painted import painted
from standpipe.torch.targets import TargetForm

coco = pytest.importorskip("pycocotools.coco")
cocoeval = pytest.importorskip("pycocotools.cocoeval")

IMAGES, ROWS = 21, 4
# They keep all boxes whole.
STEPS = [
    sp.RandomHorizontalFlip(),
    sp.RandomShortestSize((50, 64, 90), 120),
    sp.PadImage((3, 5, 7, 9)),
    sp.ToDtype("float32", scale=True),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def cornered(boxes: Any, sides: Any) -> Any:
    """xyxy in pixels, from centre, width and height as fractions of ``sides``, (width, height)."""
    centre, size = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([centre - size / 2, centre + size / 2], axis=1) * np.tile(sides, 2)


def predictions(form: TargetForm, batch: Any, shift: float) -> list[dict[str, Any]]:
    """Return the batch's boxes in COCO's format, in pixels of the stored images.

    ``shift``: of the batch's boxes, in pixels.
    """
    if form == "yolo":
        height, width = batch["img"].shape[-2:]
        numbers = batch["batch_idx"].numpy().astype(int)
        pixels = cornered(batch["bboxes"].numpy(), [width, height])
        boxes = sp.boxes_to_original(pixels + shift, batch, numbers)
        ids, labels = batch["image_id"].numpy()[numbers], batch["cls"].numpy()[:, 0] + 1
    else:
        *_, targets = batch
        given = [each["boxes"].numpy() for each in targets]
        if form == "detr":
            sides = [each["size"].numpy()[::-1] for each in targets]
            given = [cornered(each, side) for each, side in zip(given, sides, strict=True)]
        boxes = np.concatenate(sp.boxes_to_original([each + shift for each in given], targets))
        ids = np.repeat([each["image_id"] for each in targets], [len(each) for each in given])
        labels = np.concatenate([each["labels"].numpy() for each in targets])
    return [
        {
            "image_id": int(image),
            "category_id": int(label),
            "bbox": [*box[:2], *(box[2:] - box[:2])],
            "score": 1.0,
        }
        for image, label, box in zip(ids, labels, boxes.astype(float), strict=True)
    ]


def mean_average_precision(form: TargetForm, folder: Path, shift: float = 0.0) -> float:
    options: dict[str, Any] = {"labels": "contiguous"} if form == "yolo" else {}
    source = painted(folder / "data", IMAGES, **options)
    pipeline = sp.Pipeline(source).shuffle(seed=3).map(*STEPS)
    padded = pipeline.batch(ROWS, last_batch="partial", collate={"image": sp.Pad(max_shape=(3, 160, 160))})
    with standpipe.torch.loader(padded, targets=form, num_workers=1, memory="256MiB") as loader:
        found = [each for batch in loader for each in predictions(form, batch, shift)]
    file = folder / "data" / "instances.json"
    assert len(found) == len(json.loads(file.read_text())["annotations"])
    truth = coco.COCO(str(file))
    evaluation = cocoeval.COCOeval(truth, truth.loadRes(found), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return float(evaluation.stats[0])


@pytest.mark.parametrize("form", ["torchvision", "detr", "yolo"])
def test_boxes_taken_back_are_the_annotations(form: TargetForm, tmp_path: Path) -> None:
    assert math.isclose(mean_average_precision(form, tmp_path), 1.0, abs_tol=1e-6)


@pytest.mark.parametrize("form", ["torchvision", "detr", "yolo"])
def test_boxes_two_pixels_away_are_not(form: TargetForm, tmp_path: Path) -> None:
    assert mean_average_precision(form, tmp_path, shift=2.0) < 0.99
