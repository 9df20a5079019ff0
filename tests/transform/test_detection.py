"""Transforms of detection recipes have torchvision's pixels, whatever they are fused with."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Sample
from jpegs import kinds
from model.pictures import transformed
from reference import decoded, delivered, explain_difference, in_order, listed
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths
from standpipe.transform.kernels.fuse import fuse

FILL = (7, 100, 255)
FILTERS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
ZOOM = sp.RandomZoomOut(FILL, (1.0, 4.0), 0.9)


def noise(seed: int, *shape: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def check(images: UInt8Array, *transforms: Any, seed: int = 3) -> None:
    rows = delivered(in_order(sp.Arrays(image=images), *transforms, seed=seed))
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        wanted = transformed(Image.fromarray(image), transforms, Sample(seed, 0, position))
        assert explain_difference(row, wanted) == "", (image.shape, transforms, position)


def in_one_pass(*transforms: Any) -> bool:
    """Return True if a kernel makes its rows of the decoder's rows, without a picture between."""
    return len(fuse(transforms, None).image.stages) == 1


@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("side", [(16, 9), (40, 61), (3, 90), (1, 1)])
def test_zoomed_out_pictures_are_resized_without_their_canvas(side: Any, how: Any) -> None:
    steps = [ZOOM, sp.RandomHorizontalFlip(), sp.Resize(side, interpolation=how)]
    assert in_one_pass(*steps)
    for size in ((1, 1), (1, 9), (11, 1), (23, 37), (64, 40)):
        check(noise(1, 12, *size, 3), *steps)


@pytest.mark.parametrize("seed", range(60))
def test_any_steps_of_one_pass(seed: int) -> None:
    draw = random.Random(seed)
    how: Any = draw.choice(FILTERS)
    fill = draw.choice((FILL, 9))
    mode: Any = draw.choice(("constant", "constant", "edge", "reflect", "symmetric"))
    size = draw.randrange(1, 50), draw.randrange(1, 50)
    resizes: list[Any] = [
        sp.Resize((draw.randrange(1, 60), draw.randrange(1, 60)), interpolation=how),
        sp.Resize(draw.randrange(1, 40), interpolation=how),
        sp.ScaleJitter((40, 30), (0.1, 2.0), how),
        sp.RandomShortestSize((5, 20, 33), draw.choice((None, 30)), how),
    ]
    windows: list[Any] = [
        sp.FixedSizeCrop(size, fill, mode),
        sp.CenterCrop(size),
        sp.RandomCrop(size, draw.choice((None, 7)), True, fill, mode),
    ]
    steps = [
        *draw.choice(([ZOOM], [ZOOM], [])),
        *([sp.RandomHorizontalFlip()] * draw.randrange(3)),
        *draw.choice(([draw.choice(resizes)], [draw.choice(resizes)], [])),
        draw.choice(windows),
        *([sp.RandomHorizontalFlip()] * draw.randrange(2)),
    ]
    assert in_one_pass(*steps)
    for shape in ((1, 1), (31, 20), (50, 70)):
        check(noise(seed, 10, *shape, 3), *steps)


def test_a_crop_of_the_canvas_and_a_flip_before_it() -> None:
    crop = sp.RandomResizedCrop((20, 31), (0.01, 0.4), (0.3, 3))
    assert in_one_pass(ZOOM, crop, sp.RandomHorizontalFlip())
    check(noise(1, 40, 23, 37, 3), ZOOM, crop, sp.RandomHorizontalFlip())
    # The crop's place is one of the mirrored picture: a pass of its own.
    check(noise(1, 40, 23, 37, 3), ZOOM, sp.RandomHorizontalFlip(), crop)
    check(noise(1, 40, 23, 37, 3), sp.Resize((20, 50)), sp.RandomHorizontalFlip(), sp.CenterCrop(16))
    check(noise(1, 9, 23, 37, 3), ZOOM, sp.RandomVerticalFlip(), ZOOM, sp.Resize((8, 60)))


DETR = [
    sp.RandomHorizontalFlip(),
    sp.RandomApply([sp.RandomShortestSize((30, 40)), sp.RandomSizeCrop(24, 36)]),
    sp.RandomShortestSize((18, 25, 48), 70),
]


@pytest.mark.parametrize(
    "steps",
    [
        DETR,
        [ZOOM, sp.RandomApply([ZOOM, sp.RandomSizeCrop(9, 12), sp.RandomHorizontalFlip()]), ZOOM],
        [sp.RandomApply([sp.RandomHorizontalFlip(), sp.RandomSizeCrop(90, 99)], 0.7)] * 3,
        [sp.RandomApply([sp.RandomHorizontalFlip()], 0.5), sp.RandomInvert()],
    ],
)
def test_geometric_transforms_in_a_group(steps: list[Any]) -> None:
    for shape in ((1, 1), (1, 9), (31, 20), (50, 70)):
        check(noise(5, 20, *shape, 3), *steps, sp.FixedSizeCrop((50, 60), FILL))


def test_a_group_that_keeps_sizes() -> None:
    flips = sp.RandomApply([sp.RandomHorizontalFlip(), sp.RandomCrop(9, padding=3)], 0.5)
    check(noise(5, 20, 9, 9, 3), flips)
    check(noise(5, 20, 12, 12, 3), sp.RandomApply([sp.CenterCrop(9)], 1.0))
    check(noise(5, 20, 12, 12, 3), sp.RandomApply([sp.CenterCrop(9)], 0.0))


@pytest.mark.parametrize("simd", simd_paths())
def test_files_of_every_kind(simd: str, tmp_path: Path) -> None:
    files = [*kinds(41, 53).values()]
    chains: list[list[Any]] = [
        [ZOOM, sp.RandomHorizontalFlip(), sp.Resize((19, 30))],
        [sp.RandomHorizontalFlip(), sp.ScaleJitter((60, 60)), sp.FixedSizeCrop(50, FILL)],
        [*DETR, sp.CenterCrop(40)],
        [sp.RandomPhotometricDistort(), ZOOM, sp.RandomCrop(12, pad_if_needed=True)],
    ]
    source = listed(tmp_path, files)
    for steps in chains:
        rows = delivered(in_order(source, *steps, seed=3), epoch=2, simd=simd)
        for position, (data, row) in enumerate(zip(files, rows, strict=True)):
            wanted = transformed(decoded(data), steps, Sample(3, 2, position))
            assert explain_difference(row, wanted) == "", (steps, position)


def test_files_decoded_at_a_fraction_are_zoomed_out_as_whole_ones(tmp_path: Path) -> None:
    """decode("fast") takes pictures at 1/2 to 1/8 only where nothing surrounds them."""
    source = listed(tmp_path, [*kinds(96, 128).values()])
    whole = in_order(source, sp.RandomZoomOut(p=1), sp.RandomHorizontalFlip(), sp.Resize((6, 7)))
    assert np.array_equal(delivered(whole.decode("fast")), delivered(whole))


def test_a_canvas_far_larger_than_memory_is_resized() -> None:
    """25,600 × 25,600 pixels would take 1.9 GB; the loader has 128 MiB."""
    images = noise(4, 2, 100, 100, 3)
    huge = sp.RandomZoomOut(90, (256, 256), 1)
    rows = np.stack(delivered(in_order(sp.Arrays(image=images), huge, sp.Resize((512, 512)))))
    assert rows.shape == (2, 512, 512, 3)
    seen = (rows != 90).any(axis=(1, 3)).sum(axis=1)
    assert ((seen >= 2) & (seen <= 5)).all()  # 100 pixels are two


@pytest.mark.parametrize(
    ("transform", "match"),
    [
        (
            sp.RandomZoomOut(side_range=(0.5, 2)),
            "RandomZoomOut.*side_range must be two numbers from 1 up to 256",
        ),
        (sp.RandomZoomOut(side_range=(3, 2)), "the smaller one first"),
        (sp.RandomZoomOut(side_range=(1, 257)), "two numbers from 1 up to 256"),
        (sp.RandomZoomOut(fill=300), "fill must be a level"),
        (sp.RandomZoomOut(mask_fill=-1), "mask_fill must be"),
        (sp.RandomZoomOut(p=1.5), "p must be a probability"),
        (sp.ScaleJitter(64), r"target_size must be a pair such as \(64, 64\)"),  # type: ignore[arg-type]
        (sp.ScaleJitter((64, 0)), "target_size"),
        (sp.ScaleJitter((64, 64), (0, 1)), "scale_range must be two numbers above 0"),
        (sp.ScaleJitter((64, 64), interpolation="cubic"), "interpolation must be one of"),  # type: ignore[arg-type]
        (sp.RandomShortestSize(()), "min_size must be an integer, or a list"),
        (sp.RandomShortestSize((3, 0)), "min_size must be an integer, or a list"),
        (sp.RandomShortestSize(8, 0), "max_size must be an integer from 1"),
        (sp.FixedSizeCrop((8, 8, 8)), "size must be an int or"),  # type: ignore[arg-type]
        (sp.FixedSizeCrop(8, padding_mode="wrap"), "padding_mode must be one of"),  # type: ignore[arg-type]
        (sp.RandomSizeCrop(0, 9), "min_size must be an integer from 1 to 9"),
        (sp.RandomSizeCrop(9, 8), "min_size must be an integer from 1 to 8"),
        (sp.RandomSizeCrop(9, 1 << 20), "max_size must be an integer from 1"),
        (sp.RandomPhotometricDistort(hue=0.6), "hue must be within"),
        (sp.RandomPhotometricDistort(contrast=(2, 1)), "contrast must be within"),
        (sp.RandomPhotometricDistort(p=2), "p must be a probability"),
    ],
    ids=repr,
)
def test_parameters_are_checked(transform: Any, match: str) -> None:
    with pytest.raises(sp.PlanError, match=match):
        in_order(sp.Arrays(image=noise(1, 2, 9, 9, 3)), transform, sp.CenterCrop(8)).plan()


@pytest.mark.parametrize(
    "transform", [ZOOM, sp.ScaleJitter((8, 8)), sp.RandomShortestSize(8), sp.RandomSizeCrop(7, 8)], ids=repr
)
def test_images_that_differ_in_size_need_a_last_step(transform: Any) -> None:
    with pytest.raises(sp.PlanError, match="size isn't fixed"):
        in_order(sp.Arrays(image=noise(1, 2, 9, 9, 3)), transform).plan()
