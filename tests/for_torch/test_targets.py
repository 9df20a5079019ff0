"""Test the forms that detectors take batches in, and the way of boxes back to the stored images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
from standpipe.batch.instances import InstanceFields
from standpipe.batch.masks import MaskFields, MaskForm
from standpipe.spec import RaggedSpec
from standpipe.torch.targets import Targets

BOXES = ((0.0, 0.0, 8.0, 4.0), (2.0, 4.0, 10.0, 8.0), (4.0, 2.0, 6.0, 6.0))
FIELDS = InstanceFields(
    {name: RaggedSpec((), np.dtype(np.int64)) for name in ("boxes", "labels", "keypoints")},
    prefixes={"image": ""},
    rows=3,
    room=9,
)


def batch(**changed: Any) -> dict[str, Any]:
    """Return tensors of three images: with two boxes, with none, and with one."""
    points = torch.tensor([[2.0, 4.0, 2.0]]).repeat(3, 1, 1)
    return {
        "image": torch.arange(3 * 3 * 8 * 16, dtype=torch.float32).reshape(3, 3, 8, 16),
        "boxes": torch.tensor(BOXES),
        "labels": torch.tensor([5, 6, 7]),
        "keypoints": points,
        "batch_index": torch.tensor([0, 0, 2]),
        "instance_offsets": torch.tensor([0, 2, 2, 3]),
        "image_id": torch.tensor([11, 12, 13]),
        "orig_size": torch.tensor([[4, 8], [4, 8], [16, 32]]),
        "to_original": torch.diag_embed(torch.tensor([[0.5, 0.5, 1.0], [0.5, 0.5, 1.0], [2.0, 2.0, 1.0]])),
        "index": torch.arange(3),
        **changed,
    }


def formed(form: str, given: dict[str, Any]) -> Any:
    return Targets.of(form, FIELDS, None).batch(given)


def test_torchvision_gets_images_and_dicts() -> None:
    given = batch()
    images, targets = formed("torchvision", given)
    assert [image.shape for image in images] == [(3, 8, 16)] * 3
    assert images[2].data_ptr() == given["image"][2].data_ptr()
    assert [target["image_id"] for target in targets] == [11, 12, 13]
    assert targets[0]["boxes"].tolist() == [list(box) for box in BOXES[:2]]
    assert targets[1]["boxes"].shape == (0, 4)
    assert targets[2]["labels"].tolist() == [7]
    assert targets[2]["keypoints"].shape == (1, 1, 3)


def test_torchvision_gets_images_without_their_padding() -> None:
    lengths = torch.tensor([[3, 8, 16], [3, 4, 16], [3, 8, 10]])
    images, _ = formed("torchvision", batch(image_length=lengths))
    assert [tuple(image.shape) for image in images] == [(3, 8, 16), (3, 4, 16), (3, 8, 10)]


def test_detr_gets_a_mask_and_fractions_of_the_image() -> None:
    lengths = torch.tensor([[3, 8, 16], [3, 4, 16], [3, 8, 10]])
    images, mask, targets = formed("detr", batch(image_length=lengths))
    assert images.shape == (3, 3, 8, 16)
    assert [(~row).sum().item() for row in mask] == [8 * 16, 4 * 16, 8 * 10]
    assert not mask[1, 3, 15]
    assert mask[1, 4, 0]
    assert targets[2]["boxes"].tolist() == [[0.5, 0.5, pytest.approx(0.2), 0.5]]
    assert targets[2]["size"].tolist() == [8, 10]
    assert targets[2]["orig_size"].tolist() == [16, 32]


def with_masks(form: str, ratio: int) -> InstanceFields:
    asked = MaskForm(form, ratio)  # type: ignore[arg-type]
    return replace(FIELDS, masks=MaskFields.planned(asked, 3, slice(1, 3), {"image": (3, 8, 16)}))


def test_torchvision_gets_masks_of_each_instance() -> None:
    masks = torch.arange(3 * 4 * 8).reshape(3, 4, 8)
    lengths = torch.tensor([[3, 8, 16], [3, 4, 16], [3, 6, 11]])
    given = batch(instance_masks=masks, image_length=lengths)
    _, targets = Targets.of("torchvision", with_masks("dense", 2), None).batch(given)
    assert [target["masks"].shape for target in targets] == [(2, 4, 8), (0, 2, 8), (1, 3, 5)]
    assert torch.equal(targets[2]["masks"][0], masks[2, :3, :5])
    listed = batch(instance_masks=[masks[:2], masks[:0], masks[2:]], image=list(batch()["image"]))
    _, targets = Targets.of("torchvision", with_masks("dense", 2), None).batch(listed)
    assert [len(target["masks"]) for target in targets] == [2, 0, 1]
    with pytest.raises(sp.PlanError, match=r"give batch\(masks='dense'\)"):
        Targets.of("torchvision", with_masks("index", 1), None)


def test_yolo_gets_an_index_map() -> None:
    masks = torch.zeros((3, 2, 4), dtype=torch.uint8)
    masks[0, 0], masks[0, 1, 1:], masks[2, 1, 3] = 1, 2, 1
    made = Targets.of("yolo", with_masks("index", 4), None).batch(batch(instance_masks=masks))
    assert made["masks"] is masks
    assert made["sem_masks"].dtype == torch.float32
    assert made["sem_masks"].tolist() == [
        [[5, 5, 5, 5], [0, 6, 6, 6]],
        [[0, 0, 0, 0], [0, 0, 0, 0]],
        [[0, 0, 0, 0], [0, 0, 0, 7]],
    ]
    with pytest.raises(sp.PlanError, match=r"give batch\(masks='index'\)"):
        Targets.of("yolo", with_masks("dense", 1), None)


def test_yolo_gets_a_flat_dict() -> None:
    made = formed("yolo", batch())
    assert made["cls"].tolist() == [[5], [6], [7]]
    assert made["bboxes"][0].tolist() == [0.25, 0.25, 0.5, 0.5]
    assert made["batch_idx"].tolist() == [0, 0, 2]
    assert made["keypoints"][0].tolist() == [[0.125, 0.5, 2.0]]
    assert made["ori_shape"] == [(4, 8), (4, 8), (16, 32)]
    assert made["ratio_pad"] == [((2, 2), (0, 0)), ((2, 2), (0, 0)), ((0.5, 0.5), (0, 0))]


def test_yolo_is_told_where_a_padded_image_begins() -> None:
    placed = torch.tensor([[0.5, 0.0, -1.5], [0.0, 0.25, -0.5], [0.0, 0.0, 1.0]]).repeat(3, 1, 1)
    assert formed("yolo", batch(to_original=placed))["ratio_pad"] == [((4, 2), (3, 2))] * 3


@pytest.mark.parametrize(
    ("form", "classes", "text"),
    [
        ("retina", None, "'torchvision', 'detr' or 'yolo'"),
        ("torchvision", ("cat", "dog"), "label 0 is the class 'cat'"),
        ("yolo", ("", "cat"), "no class has the label 0"),
    ],
)
def test_a_form_that_does_not_suit_the_labels_is_refused(form: str, classes: Any, text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        Targets.of(form, FIELDS, classes)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (None, "needs a source with boxes and labels"),
        (replace(FIELDS, how=sp.Pad(length=(100,))), "leave batch\\(instances=sp.Pad"),
        (replace(FIELDS, prefixes={"a": "a_", "b": "b_"}), "leave Views out"),
    ],
)
def test_batches_without_boxes_one_after_another_are_refused(fields: Any, text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        Targets.of("detr", fields, None)


@pytest.mark.parametrize(
    ("form", "image", "text"),
    [
        ("torchvision", torch.zeros(3, 8, 16, 3), "images of \\(C, H, W\\)"),
        ("detr", [torch.zeros(3, 8, 16)] * 3, "in one tensor"),
        ("yolo", [torch.zeros(3, 8, 16)] * 3, "in one tensor"),
    ],
)
def test_images_in_another_form_are_refused(form: str, image: Any, text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        formed(form, batch(image=image))
