"""Boxes and points go where torchvision's functions put them, with the same random numbers; the same ones survive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from draws import Draws, Sample
from standpipe.spec import AnyArray
from standpipe.transform.instances import mirrored, moved_boxes, moved_points, to_stored, whole_areas

pytest.importorskip("torch")
import torch

from torchvision_cpu import torchvision

F = torchvision.transforms.v2.functional
tv_tensors = torchvision.tv_tensors

SEED, EPOCH, ROWS, BOXES = 3, 1, 24, 300  # boxes of each row
SIZE = 61, 83
Boxes = Any
Warp = Callable[[Draws, Boxes], Boxes]


def rotated(draws: Draws, boxes: Boxes) -> Boxes:
    return F.rotate(boxes, draws.uniform(-40, 40))


def affine(draws: Draws, boxes: Boxes) -> Boxes:
    height, width = boxes.canvas_size
    angle = draws.uniform(-30, 30)
    translate = [
        round(draws.uniform(-part * side, part * side)) for part, side in ((0.2, width), (0.3, height))
    ]
    scale, shear = draws.uniform(0.5, 2.0), [draws.uniform(-20, 20), draws.uniform(-5, 10)]
    return F.affine(boxes, angle, translate, scale, shear)


def perspective(draws: Draws, boxes: Boxes) -> Boxes:
    height, width = boxes.canvas_size
    across, down = int(0.6 * (width // 2)) + 1, int(0.6 * (height // 2)) + 1
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    end = []
    for right, low in ((0, 0), (1, 0), (1, 1), (0, 1)):
        x = draws.below(across) + right * (width - across)
        end.append([x, draws.below(down) + low * (height - down)])
    return F.perspective(boxes, start, end)


def upside_down(_: Draws, boxes: Boxes) -> Boxes:
    return F.vertical_flip(boxes)


def a_number(draws: Draws, boxes: Boxes) -> Boxes:
    draws.uniform()  # which of several lists
    return boxes


def perhaps(p: float, *parts: Warp) -> Warp:
    """The parts one after another with a probability, by the same random numbers."""

    def of(draws: Draws, boxes: Boxes) -> Boxes:
        if draws.uniform() < p:
            for part in parts:
                boxes = part(draws, boxes)
        return boxes

    return of


def one_of(*parts: Warp) -> Warp:
    def of(draws: Draws, boxes: Boxes) -> Boxes:
        draws.uniform()  # whether it takes place
        return parts[int(draws.uniform() * len(parts))](draws, boxes)

    return of


TURN, AFFINE = sp.RandomRotation(40), sp.RandomAffine(30, (0.2, 0.3), (0.5, 2.0), (-20, 20, -5, 10))
WARPS: dict[str, tuple[list[Any], int, Warp]] = {
    "RandomRotation": ([TURN], 25, perhaps(2, rotated)),
    "RandomAffine": ([AFFINE], 26, perhaps(2, affine)),
    "RandomPerspective": ([sp.RandomPerspective(0.6, 0.7)], 27, perhaps(0.7, perspective)),
    "RandomApply": (
        [sp.RandomApply([TURN, sp.RandomVerticalFlip(0.4)], 0.6)],
        13,
        perhaps(0.6, a_number, perhaps(2, rotated), perhaps(0.4, upside_down)),
    ),
    "RandomChoice": (
        [sp.RandomChoice([TURN, AFFINE])],
        14,
        one_of(perhaps(2, rotated), perhaps(2, affine)),
    ),
}
STEPS: dict[str, list[Any]] = {
    "RandomResizedCrop": [sp.RandomResizedCrop((40, 52))],
    "Resize": [sp.Resize((90, 70))],
    "Resize, CenterCrop": [sp.Resize(40), sp.CenterCrop(36)],
    "CenterCrop, larger": [sp.CenterCrop((70, 90))],
    "RandomCrop": [sp.RandomCrop(50)],
    "RandomCrop, padded": [sp.RandomCrop(96, padding=9, pad_if_needed=True)],
    "PadImage": [sp.PadImage((3, 4, 5, 6))],
    "RandomHorizontalFlip": [sp.RandomHorizontalFlip()],
    "RandomVerticalFlip": [sp.RandomVerticalFlip()],
    "RandomResize": [sp.RandomResize(40, 70), sp.RandomCrop(40)],
    "RandomApply": [
        sp.RandomApply(
            [sp.RandomShortestSize((50, 70)), sp.RandomSizeCrop(40, 60), sp.RandomHorizontalFlip()]
        ),
        sp.Resize((71, 83)),
    ],
    "several": [
        sp.RandomResizedCrop(56),
        sp.RandomVerticalFlip(),
        sp.RandomCrop(50, padding=4),
        sp.Resize((70, 31)),
    ],
}


def traced(transforms: list[Any]) -> AnyArray:
    """The moves of ``ROWS`` rows."""
    pipeline = sp.Pipeline(sp.Arrays(image=np.zeros((ROWS, *SIZE, 3), np.uint8)))
    kernel = pipeline.map(*transforms).batch(ROWS).plan(memory="256MiB").samples.kernel
    assert kernel is not None
    keys = np.arange(ROWS, dtype=np.uint64), np.zeros(ROWS, np.uint64)
    flat, _ = kernel.compile(pipeline.decoding).trace(0, np.array([SIZE] * ROWS), SEED, EPOCH, *keys)
    return np.asarray(flat).reshape(ROWS, -1, 12)


def random_boxes() -> AnyArray:
    """Boxes of all rows, many of them at edges, of whole pixels, small or empty, (ROWS × BOXES, 4)."""
    random = np.random.default_rng(7)
    corners = random.uniform(-0.1, 1.1, (ROWS * BOXES, 2, 2))
    corners[::3, 1] = corners[::3, 0] + random.uniform(0, 0.05, corners[::3, 0].shape)
    corners = np.clip(corners, 0, 1) * SIZE[::-1]
    corners[::2] = corners[::2].round()
    corners.sort(axis=1)
    return corners.reshape(-1, 4).astype(np.float32)


def of_torchvision(boxes: AnyArray) -> Boxes:
    return tv_tensors.BoundingBoxes(torch.tensor(boxes, dtype=torch.float64), format="XYXY", canvas_size=SIZE)


def stepped(boxes: Boxes, moves: AnyArray) -> Boxes:
    """Boxes after crops, pads, resizes and flips: what each is shows in its matrix."""
    for move in moves:
        (sx, _, tx), (_, sy, ty), _ = move[:9].reshape(3, 3)
        height, width = (int(side) for side in move[9:11])
        if (sx, sy) == (-1, 1):
            boxes = F.horizontal_flip(boxes)
        elif (sx, sy) == (1, -1):
            boxes = F.vertical_flip(boxes)
        elif (sx, sy) == (1, 1):
            boxes = F.crop(boxes, -int(ty), -int(tx), height, width)
        else:
            boxes = F.resize(boxes, [height, width])
        assert boxes.canvas_size == (height, width)
    return boxes


def check(boxes: AnyArray, moves: AnyArray, expected: list[Boxes]) -> None:
    rows = np.repeat(np.arange(ROWS), BOXES)
    theirs = torch.cat([each.as_subclass(torch.Tensor) for each in expected])
    ours = moved_boxes(boxes, rows, moves)
    assert np.abs(ours - theirs.numpy()).max() < 1e-4
    size = tuple(int(side) for side in moves[0, -1, 9:11])
    # No integers: torchvision's float32 decides about boxes of just that size.
    for how in ({}, {"min_size": 4.03, "min_area": 30.3}):
        _, survive = F.sanitize_bounding_boxes(theirs.float(), format="XYXY", canvas_size=size, **how)
        kept = sp.SanitizeBoundingBoxes(**how).keeps(ours.astype(np.float32), None)
        assert (kept == survive.numpy()).all()
        assert 0.1 < kept.mean() < 0.99


@pytest.mark.parametrize("transforms", STEPS.values(), ids=STEPS)
def test_steps_move_boxes_as_torchvision_does(transforms: list[Any]) -> None:
    boxes, moves = random_boxes(), traced(transforms)
    parts = boxes.reshape(ROWS, BOXES, 4)
    check(boxes, moves, [stepped(of_torchvision(part), moves[row]) for row, part in enumerate(parts)])


@pytest.mark.parametrize(("transforms", "kind", "warp"), WARPS.values(), ids=WARPS)
def test_warps_move_boxes_as_torchvision_does(transforms: list[Any], kind: int, warp: Warp) -> None:
    boxes = random_boxes()
    parts = boxes.reshape(ROWS, BOXES, 4)
    expected = [
        warp(Sample(SEED, EPOCH, row).draws(kind << 16), of_torchvision(part))
        for row, part in enumerate(parts)
    ]
    check(boxes, traced(transforms), expected)


def test_points_go_where_boxes_of_no_size_go_and_are_hidden_outside() -> None:
    moves = traced([sp.RandomResizedCrop(40), sp.RandomAffine(30, (0.3, 0.3)), sp.RandomHorizontalFlip()])
    random = np.random.default_rng(2)
    points = random.uniform(0, 1, (ROWS * 20, 5, 3)) * [*SIZE[::-1], 0] + [0, 0, 2]
    points[:, 4, 2] = 0
    rows = np.repeat(np.arange(ROWS), 20)
    moved = moved_points(points, rows, moves)
    flat = np.repeat(rows, 5)
    boxes = np.concatenate([points[..., :2], points[..., :2]], axis=-1).reshape(-1, 4)
    anywhere = moved_boxes(boxes, flat, moves, cut=False)
    inside = moved_boxes(boxes, flat, moves)
    assert moved.dtype == np.float32
    assert np.abs(moved[..., :2].reshape(-1, 2) - anywhere[:, :2]).max() < 1e-3
    seen = moved[:, :4, 2].ravel()
    assert ((seen == 2) == (inside == anywhere).all(axis=1).reshape(-1, 5)[:, :4].ravel()).all()
    assert 0.1 < (seen == 2).mean() < 0.9
    assert not moved[:, 4, 2].any()


def test_points_that_left_a_picture_stay_hidden() -> None:
    """A pad brings back a place, and not its pixels."""
    moves = traced([sp.CenterCrop(40), sp.PadImage(30)])
    (moved,) = moved_points(np.array([[[2.0, 30.0, 2.0], [41.5, 30.5, 1.0]]]), np.array([0]), moves)
    assert moved.tolist() == [[2 - 22 + 30, 30 - 10 + 30, 0], [41.5 - 22 + 30, 30.5 - 10 + 30, 1]]


def test_mirrored_rows_and_the_way_back() -> None:
    flips = [sp.RandomHorizontalFlip(), sp.RandomVerticalFlip(), sp.RandomRotation(30)]
    moves = traced(flips)
    horizontal = [Sample(SEED, EPOCH, row).draws(2 << 16).uniform() < 0.5 for row in range(ROWS)]
    vertical = [Sample(SEED, EPOCH, row).draws(12 << 16).uniform() < 0.5 for row in range(ROWS)]
    assert (mirrored(moves) == (np.array(horizontal) ^ np.array(vertical))).all()

    moves = traced([sp.RandomResizedCrop(40), sp.RandomPerspective(0.4, 1.0), *flips])
    points = np.random.default_rng(2).uniform(0, 1, (ROWS, 9, 3)) * [*SIZE[::-1], 1]
    moved = moved_points(points, np.arange(ROWS), moves).astype(np.float64)
    moved[..., 2] = 1
    back = moved @ to_stored(moves).transpose(0, 2, 1)
    assert np.abs(back[..., :2] / back[..., 2:] - points[..., :2]).max() < 1e-3


def test_visibility_is_the_part_of_the_moved_box_that_is_left() -> None:
    """A resize and a flip take nothing away, whatever the sizes are."""
    boxes = np.array([[0, 0, 10, 10], [30, 30, 60, 60]], np.float32)
    moves = traced([sp.Resize((122, 166)), sp.RandomHorizontalFlip(1.0)])
    rows = np.zeros(2, np.int64)
    drops = sp.SanitizeBoundingBoxes(min_visibility=1.0)
    whole = whole_areas(boxes, rows, moves, of="source")
    assert drops.keeps(moved_boxes(boxes, rows, moves).astype(np.float32), whole).all()
    moves = traced([sp.Resize((122, 166)), sp.CenterCrop((102, 166))])  # 10 of 20 rows of the first
    whole = whole_areas(boxes, rows, moves, of="source")
    for visibility, kept in ((0.49, [True, True]), (0.51, [False, True])):
        drops = sp.SanitizeBoundingBoxes(min_visibility=visibility)
        found = drops.keeps(moved_boxes(boxes, rows, moves).astype(np.float32), whole)
        assert found.tolist() == kept


def kept_by_the_family(boxes: AnyArray, moves: AnyArray, warp: AnyArray, size: tuple[int, int]) -> AnyArray:
    """Return what ``box_candidates`` of ultralytics keeps; one row. ``warp``: 2 × 3, and the boxes in front of it."""
    before = moved_boxes(boxes, np.zeros(len(boxes), np.int64), moves)
    x, y = (before[:, [0, 2, 2, 0]], before[:, [1, 1, 3, 3]])
    x, y = (row[0] * x + row[1] * y + row[2] for row in warp)
    clipped = [
        np.clip(edge, 0, side)
        for edge, side in ((x.min(1), size[1]), (y.min(1), size[0]), (x.max(1), size[1]), (y.max(1), size[0]))
    ]
    scale = abs(np.linalg.det(warp[:, :2])) ** 0.5  # without shears, that of the rotation
    w1, h1 = ((before[:, 2:] - before[:, :2]) * scale).T
    w2, h2 = clipped[2] - clipped[0], clipped[3] - clipped[1]
    ratio = np.maximum(w2 / (h2 + 1e-16), h2 / (w2 + 1e-16))
    return (w2 > 2) & (h2 > 2) & (w2 * h2 / (w1 * h1 + 1e-16) > 0.1) & (ratio < 100)


def test_the_familys_boxes_survive() -> None:
    """A crop in front of the warp cuts boxes off, as a mosaic does; a resize and a flip follow."""
    drops = sp.SanitizeBoundingBoxes(2, 1, 0.1, "warp", 100)
    warp = sp.RandomAffine(45, (0.4, 0.4), (0.3, 1.5), pixels="opencv", size=(300, 200))
    moves = traced([sp.CenterCrop((40, 50)), warp, sp.Resize((600, 400)), sp.RandomHorizontalFlip(1.0)])
    boxes = random_boxes().reshape(ROWS, BOXES, 4)
    boxes[:, :40, 2] = boxes[:, :40, 0] + 0.4  # as thin as the family drops them
    counts = []
    for row, own in enumerate(boxes):
        rows, (number,) = np.full(BOXES, row), np.flatnonzero(moves[row, :, 11] == 2)
        matrix = np.diag([2.0, 2.0, 1.0]) @ moves[row, number, :9].reshape(3, 3)
        wanted = kept_by_the_family(own, moves[row : row + 1, :number], matrix[:2], (600, 400))
        found = moved_boxes(own, rows, moves).astype(np.float32)
        kept = drops.keeps(found, whole_areas(own, rows, moves, of="warp"))
        assert (kept == wanted).all()
        fewer = drops.keeps(found, whole_areas(own, rows, moves, of="source"))
        counts.append([kept.sum(), fewer.sum(), BOXES])
    kept_boxes, of_source_boxes, total = np.sum(counts, axis=0)
    assert 0.1 * total < of_source_boxes < kept_boxes < 0.9 * total


def test_thin_boxes_are_dropped() -> None:
    boxes = np.array([[0, 0, 20, 4], [0, 0, 4, 20.5]], np.float32)
    assert sp.SanitizeBoundingBoxes(max_aspect=5).keeps(boxes, None).tolist() == [True, False]


def test_areas_follow_a_perspective_at_the_centre() -> None:
    moves = traced([sp.RandomAffine(20, pixels="opencv", size=50, perspective=3e-3)])
    rows = np.arange(ROWS)
    boxes = np.tile([30, 20, 30.01, 20.01], (ROWS, 1))
    corners = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(ROWS, 4, 2)
    points = np.concatenate([corners, np.ones((ROWS, 4, 1))], axis=2) @ moves[:, 0, :9].reshape(
        -1, 3, 3
    ).transpose(0, 2, 1)
    x, y = (points[..., :2] / points[..., 2:]).transpose(2, 0, 1)
    shoelace = np.abs((x * np.roll(y, -1, axis=1) - y * np.roll(x, -1, axis=1)).sum(axis=1)) / 2
    areas = whole_areas(boxes, rows, moves, of="warp")
    assert np.allclose(areas, shoelace, rtol=1e-4)
    assert np.ptp(areas) > 1e-5  # they differ


def test_a_warp_to_nothing_leaves_nothing() -> None:
    move = np.full((1, 1, 12), np.nan)
    move[..., 9:] = 40, 40, 0
    rows = np.zeros(1, np.int64)
    assert moved_boxes(np.array([[1, 2, 3, 4]], np.float32), rows, move).tolist() == [[0, 0, 0, 0]]
    assert moved_points(np.array([[[1, 2, 2]]], np.float32), rows, move).tolist() == [[[0, 0, 0]]]


def test_torchvisions_transforms_of_boxes_are_converted() -> None:
    v2 = torchvision.transforms.v2
    composed = v2.Compose(
        [
            v2.RandomHorizontalFlip(),
            v2.ClampBoundingBoxes(),
            v2.CenterCrop(40),
            v2.ToImage(),
            v2.ToDtype(torch.float, scale=True),
            v2.ConvertBoundingBoxFormat("XYXY"),
            v2.SanitizeBoundingBoxes(min_size=3, min_area=20),
            v2.ToPureTensor(),
        ]
    )
    converted = sp.from_torchvision(composed)
    assert not converted.python
    assert converted.native == (
        sp.RandomHorizontalFlip(),
        sp.ClampBoundingBoxes(),
        sp.CenterCrop((40, 40)),
        sp.SanitizeBoundingBoxes(3.0, 20.0),
        sp.ToDtype("float32", True),
    )
    for part, reason in (
        (v2.ConvertBoundingBoxFormat("CXCYWH"), "boxes of a batch are XYXY"),
        (v2.SanitizeBoundingBoxes(labels_getter=None), "labels_getter=None would leave the labels"),
    ):
        converted = sp.from_torchvision([v2.CenterCrop(40), part])
        assert reason in str(converted)
        assert converted.python == (part,)


def test_no_boxes_stay_no_boxes() -> None:
    assert moved_boxes(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), traced([TURN])).shape == (0, 4)
    points = moved_points(np.zeros((0, 5, 3), np.float32), np.zeros(0, np.int64), traced([TURN]))
    assert points.shape == (0, 5, 3)
