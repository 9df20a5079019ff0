"""Rotations, affine warps and perspectives have Pillow's pixels, and torchvision's parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Sample, affine_of, corners
from jpegs import kinds
from reference import decoded, delivered, explain_difference, in_order, listed
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths

pytest.importorskip("torch")
from torchvision_cpu import torchvision

v2 = torchvision.transforms.v2
SIZES = ((1, 1), (1, 7), (9, 1), (33, 48))
FILL = (9, 100, 255)
MODES = {"nearest": v2.InterpolationMode.NEAREST, "bilinear": v2.InterpolationMode.BILINEAR}


def noise(seed: int, *shape: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def differing(ours: UInt8Array, theirs: UInt8Array) -> int:
    """Count pixels that differ: the last bit of a coefficient may decide between two levels or two pixels."""
    return int((np.abs(ours.astype(int) - theirs).max(axis=-1) > 0).sum())


@pytest.mark.parametrize("center", [None, (3.0, 10.5)])
@pytest.mark.parametrize("interpolation", MODES)
def test_rotations_are_pillows(interpolation: Any, center: Any) -> None:
    turn = sp.RandomRotation((-200, 300), interpolation, center=center, fill=FILL)
    for size in SIZES:
        images = noise(1, 12, *size, 3)
        rows = delivered(in_order(sp.Arrays(image=images), turn, seed=4))
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            draws = Sample(4, 0, position).draws(25 << 16)
            draws.uniform()
            angle = draws.uniform(-200, 300)
            picture = Image.fromarray(image)
            wanted = v2.functional.rotate(picture, angle, MODES[interpolation], False, center, FILL)
            assert explain_difference(row, np.asarray(wanted)) == "", (size, position, angle)


@pytest.mark.parametrize("interpolation", MODES)
def test_right_angles_are_transpositions(interpolation: Any) -> None:
    images = noise(2, 2, 16, 16, 3)
    for angle in (0, 90, 180, 270):
        turn = sp.RandomRotation((angle, angle), interpolation)
        rows = delivered(in_order(sp.Arrays(image=images), turn))
        for image, row in zip(images, rows, strict=True):
            assert explain_difference(row, np.rot90(image, angle // 90)) == "", angle


@pytest.mark.parametrize("center", [None, (10.0, 21.5)])
@pytest.mark.parametrize("interpolation", MODES)
def test_places_between_two_pixels_go_where_pillow_has_them(interpolation: Any, center: Any) -> None:
    """At odd multiples of 45° the last digit of the sine decides for whole diagonals."""
    resample = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}[interpolation]
    for size in ((33, 33), (31, 50)):
        images = noise(6, 2, *size, 3)
        for angle in (*range(-315, 361, 45), 30, 120, 240):
            turn = sp.RandomRotation((angle, angle), interpolation, center=center, fill=FILL)
            rows = delivered(in_order(sp.Arrays(image=images), turn), executor="inline")
            for image, row in zip(images, rows, strict=True):
                wanted = Image.fromarray(image).rotate(angle, resample, center=center, fillcolor=FILL)
                assert explain_difference(row, np.asarray(wanted)) == "", (size, angle)


@pytest.mark.parametrize("interpolation", MODES)
def test_affine_warps_are_torchvisions(interpolation: Any) -> None:
    warp = sp.RandomAffine(30, (0.2, 0.3), (0.5, 2.0), (-20, 20, -5, 10), interpolation, FILL)
    different = total = 0
    for size in SIZES:
        images = noise(3, 12, *size, 3)
        rows = delivered(in_order(sp.Arrays(image=images), warp, seed=4))
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            draws = Sample(4, 0, position).draws(26 << 16)
            draws.uniform()
            wanted = v2.functional.affine(
                Image.fromarray(image),
                **affine_of(draws, *size),
                interpolation=MODES[interpolation],
                fill=FILL,
            )
            different += differing(row, np.asarray(wanted))
            total += row.size // 3
    assert different <= 0.001 * total


def test_a_shear_by_a_right_angle_leaves_almost_nothing() -> None:
    """Its tangent is 1.6e16, and coordinates of such warps don't fit into 64 bits with 16 behind the point."""
    images = noise(3, 4, 33, 48, 3)
    for row in delivered(in_order(sp.Arrays(image=images), sp.RandomAffine(0, shear=(90, 90), fill=FILL))):
        assert np.count_nonzero((row != FILL).any(axis=-1)) <= 48


@pytest.mark.parametrize("interpolation", MODES)
def test_perspectives_are_torchvisions(interpolation: Any) -> None:
    warp = sp.RandomPerspective(0.6, 0.7, interpolation, FILL)
    different = total = 0
    for height, width in ((2, 5), (17, 20), (33, 48)):
        images = noise(3, 12, height, width, 3)
        rows = delivered(in_order(sp.Arrays(image=images), warp, seed=4))
        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            draws = Sample(4, 0, position).draws(27 << 16)
            wanted = image
            if draws.uniform() < 0.7:
                end = corners(draws, height, width, 0.6)
                picture = Image.fromarray(image)
                mode = MODES[interpolation]
                wanted = np.asarray(v2.functional.perspective(picture, start, end, mode, FILL))
            different += differing(row, wanted)
            total += row.size // 3
    assert different <= 0.005 * total


def test_one_row_or_column_has_no_perspective() -> None:
    for size in ((1, 1), (1, 7), (9, 1)):
        images = noise(5, 3, *size, 3)
        rows = delivered(in_order(sp.Arrays(image=images), sp.RandomPerspective(0.5, 1.0)))
        assert np.array_equal(rows, images)


@pytest.mark.parametrize("simd", simd_paths())
def test_files_are_warped_after_a_crop(simd: str, tmp_path: Any) -> None:
    files = [*kinds(41, 53).values()]
    steps = (sp.CenterCrop((30, 37)), sp.RandomRotation((20, 20), "bilinear"))
    rows = delivered(in_order(listed(tmp_path, files), *steps), simd=simd)
    for data, row in zip(files, rows, strict=True):
        picture = np.asarray(decoded(data))
        (picture,) = delivered(in_order(sp.Arrays(image=picture[None]), sp.CenterCrop((30, 37))))
        wanted = Image.fromarray(picture).rotate(20, Image.Resampling.BILINEAR)
        assert explain_difference(row, np.asarray(wanted)) == ""


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.RandomRotation(-1), r"degrees=-1"),
        (sp.RandomRotation((3, 1)), r"lowest, highest"),
        (sp.RandomRotation(1, expand=True), r"expand=True.*expand=False"),
        (sp.RandomRotation(1, "bicubic"), r"must be one of 'nearest', 'bilinear'"),  # type: ignore[arg-type]
        (sp.RandomRotation(1, center=(1,)), r"center"),  # type: ignore[arg-type]
        (sp.RandomAffine(1, translate=(0.1, 2)), r"translate=.*from 0 to 1"),
        (sp.RandomAffine(1, translate=0), r"translate=0.*None, or"),  # type: ignore[arg-type]
        (sp.RandomAffine(1, scale=(0, 1)), r"scale=.*from 0.0001 up to 10000"),
        (sp.RandomAffine(1, scale=(1e-160, 1e-160)), r"scale=.*from 0.0001"),
        (sp.RandomAffine(1, scale=(2, 1)), r"scale=.*the smaller one first"),
        (sp.RandomAffine(1, shear=(1, 2, 3)), r"shear"),
        (sp.RandomAffine(1, fill=256), r"fill=256"),
        (sp.RandomPerspective(1.5), r"distortion_scale=1.5"),
        (sp.RandomPerspective(p=-1), r"p=-1"),
    ],
)
def test_invalid_parameters_are_refused(transform: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(sp.Arrays(image=noise(0, 2, 9, 9, 3))).map(transform).batch(1).plan()
