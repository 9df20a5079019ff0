"""Test that boxes of a batch's images go back to the stored images, and where its images are padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import standpipe as sp

# The first image was doubled in size and mirrored; the second one was cropped at (10, 20).
BACK = np.array([[[-0.5, 0, 50], [0, 0.5, 0], [0, 0, 1]], [[1, 0, 10], [0, 1, 20], [0, 0, 1]]])
BATCH = {"to_original": BACK, "orig_size": np.array([[40, 50], [60, 70]]), "batch_index": np.array([1, 0])}
TARGETS = [{"to_original": BACK[row], "orig_size": BATCH["orig_size"][row]} for row in range(2)]
MIRRORED, CROPPED = [10, 20, 30, 40], [1, 2, 3, 4]
THERE = [[35, 10, 45, 20], [11, 22, 13, 24]]


def test_boxes_go_back_through_what_moved_their_image() -> None:
    moved = sp.boxes_to_original(np.array([CROPPED, MIRRORED]), BATCH)
    assert moved.tolist() == THERE[::-1]
    assert moved.dtype == np.float32


def test_predictions_may_have_places_of_their_own() -> None:
    moved = sp.boxes_to_original(np.array([MIRRORED, CROPPED, MIRRORED]), BATCH, np.array([0, 1, 0]))
    assert moved.tolist() == [*THERE, THERE[0]]


def test_boxes_of_all_images_may_be_one_array() -> None:
    moved = sp.boxes_to_original(np.array([[MIRRORED] * 3, [CROPPED] * 3]), BATCH)
    assert moved.tolist() == [[THERE[0]] * 3, [THERE[1]] * 3]


@pytest.mark.parametrize("batch", [BATCH, TARGETS])
def test_boxes_may_be_a_list(batch: Any) -> None:
    moved = sp.boxes_to_original([np.array([MIRRORED]), np.zeros((0, 4))], batch)
    assert [each.tolist() for each in moved] == [THERE[:1], []]


def test_boxes_are_clipped_to_the_stored_image() -> None:
    assert sp.boxes_to_original(np.array([[-10, -20, 500, 600]]), BATCH, [0]).tolist() == [[0, 0, 50, 40]]


def test_ratio_pad_is_the_scale_and_place_of_the_stored_image() -> None:
    doubled = np.array([[0.5, 0, -1.5], [0, 0.25, -0.5], [0, 0, 1]])
    batch = {"to_original": np.stack([doubled, BACK[1]]), "orig_size": BATCH["orig_size"]}
    targets = [{name: value[row] for name, value in batch.items()} for row in range(2)]
    for given in (batch, targets):
        ratios, before = sp.ratio_pad(given)
        assert ratios.tolist() == [[4, 2], [1, 1]]
        assert before.tolist() == [[3, 2], [-10, -20]]


@pytest.mark.parametrize("axes", ["NHW", "NHWC", "NCHW"])
def test_the_mask_is_true_for_padding(axes: str) -> None:
    places = {"H": [5, 7], "W": [9, 6], "C": [3, 3]}
    shape = [{"N": 2, "H": 8, "W": 10, "C": 3}[axis] for axis in axes]
    lengths = np.array([places[axis] for axis in axes[1:]]).T
    mask = sp.padding_mask({"a": np.zeros(shape), "a_length": lengths}, "a")
    expected = np.ones((2, 8, 10), np.bool_)
    expected[0, :5, :9] = expected[1, :7, :6] = False
    assert mask.dtype == np.bool_
    assert np.array_equal(mask, expected)
    assert not sp.padding_mask({"image": np.zeros(shape)}).any()
    assert sp.padding_mask({"image": np.zeros(shape)}).shape == (2, 8, 10)


def test_the_mask_is_that_of_a_loader() -> None:
    sizes = [(5, 9), (7, 6), (3, 3), (8, 8)]
    source = sp.MapSource([{"image": np.full((*size, 3), 9, np.uint8)} for size in sizes])
    pad = sp.Pad(to_multiple_of=4, max_shape=(16, 16, 3))
    with sp.Pipeline(source).batch(4, collate={"image": pad}).loader(executor="inline") as loader:
        batch = loader.peek()
    assert batch["image"].shape == (4, 8, 12, 3)
    assert np.array_equal(sp.padding_mask(batch), batch["image"][..., 0] == 0)


@pytest.mark.parametrize(
    ("boxes", "batch", "text"),
    [
        (np.zeros((2, 5)), BATCH, r"got \(2, 5\)"),
        ([np.zeros((1, 4))], BATCH, "boxes of 1 images, and a batch of 2"),
        (np.zeros((1, 4)), TARGETS, "needs batch_index="),
        (np.zeros((1, 4)), {"image": None}, "'to_original' and 'orig_size'"),
    ],
)
def test_other_values_are_refused(boxes: Any, batch: Any, text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        sp.boxes_to_original(boxes, batch)


def test_batches_without_what_is_needed_are_refused() -> None:
    with pytest.raises(sp.PlanError, match=r"ratio_pad\(\) needs a batch with 'to_original'"):
        sp.ratio_pad({"image": None})
    for batch in ({}, {"image": [np.zeros((4, 4, 3))]}, {"image": np.zeros((4, 4))}):
        with pytest.raises(sp.PlanError, match=r"collate=\{'image': sp.Pad\(…\)\}"):
            sp.padding_mask(batch)
