"""Test that boxes of a batch's images go back to the stored images."""

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
