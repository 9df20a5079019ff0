"""The moves of a picture's pixels, beside depths that say where each pixel came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import standpipe as sp
from standpipe.spec import AnyArray
from standpipe.transform import NativeKernel

SIZE = 61, 83
ROWS = 24
SEED, EPOCH = 5, 2

COMPOSITIONS: list[list[Any]] = [
    [sp.RandomResizedCrop((40, 52))],
    [sp.Resize(40), sp.CenterCrop(36)],
    [sp.Resize((90, 70)), sp.RandomCrop(50)],
    [sp.RandomCrop(96, padding=9, pad_if_needed=True), sp.RandomHorizontalFlip()],
    [sp.PadImage((3, 4, 5, 6), fill=7), sp.RandomVerticalFlip(), sp.RandomHorizontalFlip()],
    [sp.RandomRotation(40), sp.CenterCrop(48)],
    [sp.RandomAffine(25, (0.1, 0.2), (0.7, 1.3), 12), sp.RandomHorizontalFlip(), sp.RandomCrop(50)],
    [sp.RandomPerspective(0.4, p=0.8), sp.Resize((33, 44))],
    [sp.RandomResizedCrop(56), sp.RandAugment(num_ops=3)],
    [sp.RandomResizedCrop(56), sp.AutoAugment()],
    [sp.RandomResizedCrop(56), sp.TrivialAugmentWide(), sp.RandomVerticalFlip(), sp.RandomCrop(40)],
    [sp.RandomApply([sp.RandomRotation(30), sp.RandomVerticalFlip()], p=0.6), sp.CenterCrop(40)],
    [
        sp.RandomChoice([sp.RandomRotation(30), sp.RandomVerticalFlip()]),
        sp.ColorJitter(0.3),
        sp.CenterCrop(40),
    ],
    [
        sp.RandomVerticalFlip(),
        sp.RandomAffine(25, (0.1, 0.2), (0.7, 1.3), 12, pixels="opencv", size=(70, 50), perspective=1e-3),
        sp.RandomRotation(20),
        sp.CenterCrop(60),
    ],
    [sp.RandomResize(40, 70), sp.RandomAffine(25, scale=(0.7, 1.3), pixels="opencv", size=(30, 90))],
    [sp.RandomResize(40, 70), sp.RandomCrop(40)],
    [sp.RandomZoomOut(side_range=(1.0, 2.5), p=0.8), sp.RandomHorizontalFlip(), sp.Resize((40, 52))],
    [sp.RandomZoomOut(side_range=(1.0, 2.0)), sp.RandomResizedCrop(40), sp.RandomVerticalFlip()],
    [sp.ScaleJitter((50, 60), (0.6, 1.6)), sp.FixedSizeCrop((48, 52)), sp.RandomHorizontalFlip()],
    [sp.RandomHorizontalFlip(), sp.RandomShortestSize((40, 55, 70), 90), sp.FixedSizeCrop(60)],
    [sp.RandomHorizontalFlip(), sp.CenterCrop((40, 70)), sp.RandomHorizontalFlip()],
    [sp.LetterBox((90, 61)), sp.RandomHorizontalFlip(), sp.LetterBox(50, center=False)],
    [
        sp.RandomHorizontalFlip(),
        sp.RandomApply(
            [sp.RandomShortestSize((50, 70)), sp.RandomSizeCrop(30, 60), sp.RandomHorizontalFlip()]
        ),
        sp.RandomShortestSize((40, 55, 70), 90),
        sp.FixedSizeCrop(60),
    ],
]


def moved(moves: AnyArray, places: AnyArray) -> AnyArray:
    """Places (…, 2), x and y, after all moves of one row, (moves, 11)."""
    points = np.concatenate([places, np.ones((*places.shape[:-1], 1))], axis=-1)
    for move in moves:
        points = points @ move[:9].reshape(3, 3).T
        points = points / points[..., 2:]
    return points[..., :2]


def traced(kernel: NativeKernel, head: int, positions: AnyArray) -> AnyArray:
    program = kernel.compile(sp.Pipeline(sp.Arrays(image=np.zeros((1, 1, 1, 3), np.uint8))).decoding)
    keys = positions.astype(np.uint64), np.zeros(len(positions), np.uint64)
    flat, _ = program.trace(head, np.array([SIZE] * len(positions)), SEED, EPOCH, *keys)
    return np.asarray(flat).reshape(len(positions), -1, 12)


@pytest.mark.parametrize(
    "transforms", COMPOSITIONS, ids=lambda each: "-".join(type(one).__name__ for one in each)
)
def test_places_are_where_the_pixels_went(transforms: list[Any]) -> None:
    y, x = np.indices(SIZE).astype(np.uint16)
    fields = {name: np.stack([1 + values] * ROWS) for name, values in (("x_depth", x), ("y_depth", y))}
    image = np.zeros((ROWS, *SIZE, 3), np.uint8)
    pipeline = sp.Pipeline(sp.Arrays(image=image, **fields)).shuffle(seed=SEED).map(*transforms)
    pipeline = pipeline.decode(depths=("x_depth", "y_depth"))
    with pipeline.batch(ROWS).loader(num_workers=1) as loader:
        loader.load_state_dict({**loader.state_dict(), "epoch": EPOCH})
        batch = next(iter(loader))
        kernel = loader.plan.samples.kernel
        assert kernel is not None
        found = traced(kernel, 0, np.arange(ROWS))
    known = batch["x_depth"] > 0
    places = np.stack([batch["x_depth"] - 0.5, batch["y_depth"] - 0.5], axis=-1)
    height, width = known.shape[1:]
    there = np.stack(np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5), axis=-1)
    shares = []
    for row in range(ROWS):
        assert tuple(found[row, -1, 9:11]) == (height, width)
        # Each pass takes the nearest pixel, half a pixel away at most.
        back = moved(found[row], places[row]) - there
        step = 1.5 + np.abs(moved(found[row], places[row] + 1) - moved(found[row], places[row]))
        assert (np.abs(back) <= step)[known[row]].all()
        shares.append(known[row].mean())
    assert np.mean(shares) > 0.2
