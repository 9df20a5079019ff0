"""Warps with ``pixels="opencv"`` have OpenCV's pixels, and ``RandomHSV`` those of the YOLO family."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

import standpipe as sp
from draws import Draws, Sample, affine_of, corners
from reference import delivered, in_order
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform import simd_paths

pytest.importorskip("torch")
from torchvision_cpu import torchvision

F = torchvision.transforms.v2.functional._geometry
SIZES = ((1, 1), (1, 7), (9, 1), (2, 3), (33, 48), (41, 301))
FILL = (9, 100, 255)
MODES = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR}
SEED = 4

needs_fixed_point = pytest.mark.skipif(
    int(cv2.__version__.split(".")[0]) > 4,
    reason="OpenCV 5 warps with floats: install opencv-python-headless<5",
)


def noise(seed: int, *shape: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def between_centres(numbers: list[float]) -> AnyArray:
    """Return Pillow's matrix, of 6 or 8 numbers, as OpenCV's: its places are those of pixels' centres."""
    matrix = np.array([*numbers, *(0, 0, 1)[len(numbers) - 9 :]], np.float64).reshape(3, 3)
    matrix[:, 2] += 0.5 * (matrix[:, 0] + matrix[:, 1])
    matrix[:2] -= 0.5 * matrix[2]
    return matrix


def warped(
    image: UInt8Array, numbers: list[float], interpolation: str, fill: tuple[int, ...] = FILL
) -> UInt8Array:
    matrix, size = between_centres(numbers), image.shape[1::-1]
    options = {"flags": MODES[interpolation] | cv2.WARP_INVERSE_MAP, "borderValue": fill}
    if len(numbers) == 6:
        made = cv2.warpAffine(image, matrix[:2], size, **options)
    else:
        made = cv2.warpPerspective(image, matrix, size, **options)
    return np.asarray(made, np.uint8).reshape(image.shape)


def rotation(angle: float, height: int, width: int) -> list[float]:
    """Return the matrix of Pillow's ``rotate``."""
    x, y = width / 2, height / 2
    turn = -math.radians(angle % 360)
    cosine, sine = round(math.cos(turn), 15), round(math.sin(turn), 15)
    return [cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y]


def drawn(kind: int, position: int) -> Draws:
    draws = Sample(SEED, 0, position).draws(kind << 16)
    draws.uniform()
    return draws


@needs_fixed_point
@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("interpolation", MODES)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_rotations_are_opencvs(channels: int, interpolation: Any, simd: str) -> None:
    fill = (9, 100, 255, 3)[:channels]
    turn = sp.RandomRotation((-200, 300), interpolation, fill=fill, pixels="opencv")
    for size in SIZES:
        images = noise(1, 8, *size, channels)
        rows = delivered(in_order(sp.Arrays(image=images), turn, seed=SEED), simd=simd)
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            angle = drawn(25, position).uniform(-200, 300)
            wanted = warped(image, rotation(angle, *size), interpolation, fill)
            assert np.array_equal(row, wanted), (size, position)


@needs_fixed_point
@pytest.mark.parametrize("scale", [(0.5, 2.0), (1e-4, 1e-3), (20.0, 1e4)])
@pytest.mark.parametrize("interpolation", MODES)
def test_affine_warps_are_opencvs(interpolation: Any, scale: tuple[float, float]) -> None:
    """The last bit of a coefficient may decide between two places, which are 1/32 pixels apart."""
    warp = sp.RandomAffine(30, (0.2, 0.3), scale, (-20, 20, -5, 10), interpolation, FILL, pixels="opencv")
    different = total = 0
    for height, width in SIZES:
        images = noise(3, 8, height, width, 3)
        rows = delivered(in_order(sp.Arrays(image=images), warp, seed=SEED))
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            numbers = affine_of(drawn(26, position), height, width, scale)
            center = [width * 0.5, height * 0.5]
            matrix = F._get_inverse_affine_matrix(center, *numbers.values())
            different += int((row != warped(image, matrix, interpolation)).any(axis=-1).sum())
            total += row.size // 3
    assert different <= 0.001 * total


@needs_fixed_point
@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("interpolation", MODES)
def test_perspectives_are_opencvs(interpolation: Any, simd: str) -> None:
    warp = sp.RandomPerspective(0.6, 1.0, interpolation, FILL, pixels="opencv")
    different = total = 0
    for height, width in ((2, 5), (17, 20), (33, 48), (41, 301)):
        images = noise(3, 8, height, width, 3)
        rows = delivered(in_order(sp.Arrays(image=images), warp, seed=SEED), simd=simd)
        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            numbers = F._get_perspective_coeffs(start, corners(drawn(27, position), height, width, 0.6))
            different += int((row != warped(image, numbers, interpolation)).any(axis=-1).sum())
            total += row.size // 3
    assert different <= 0.005 * total


def test_places_beyond_all_numbers_are_outside() -> None:
    """A shear by a right angle has a tangent of 1.6e16."""
    warp = sp.RandomAffine(0, shear=(90, 90), fill=FILL, interpolation="bilinear", pixels="opencv")
    for row in delivered(in_order(sp.Arrays(image=noise(3, 4, 33, 48, 3)), warp)):
        assert np.count_nonzero((row != FILL).any(axis=-1)) <= 48


def test_both_rules_move_to_the_same_places() -> None:
    """Of a smooth picture, the levels of both are close: the draws and the half pixel are the same."""
    y, x = np.mgrid[:64, :80]
    image = np.stack([2 * x, 3 * y, x + y], -1).astype(np.uint8)[None]
    warps: list[Any] = [
        sp.RandomAffine(30, (0.1, 0.1), (0.7, 1.3), 10, "bilinear"),
        sp.RandomRotation(90, "bilinear"),
        sp.RandomPerspective(0.5, 1.0),
    ]
    for warp in warps:
        pillow, opencv = (
            delivered(in_order(sp.Arrays(image=image), changed))[0].astype(int)
            for changed in (warp, replace(warp, pixels="opencv"))
        )
        inside = (pillow > 0).all(axis=-1) & (opencv > 0).all(axis=-1)
        assert inside.sum() > 500
        # An edge's pixels are mixed with the fill by OpenCV, and not by Pillow.
        assert np.mean(np.abs(pillow - opencv)[inside].max(axis=-1) <= 1) > 0.9


def test_masks_move_by_the_same_rule() -> None:
    image = np.repeat(noise(5, 3, 33, 48, 1), 3, axis=-1)
    source = sp.Arrays(image=image, mask=image[..., 0].copy())
    warp = sp.RandomAffine(40, (0.2, 0.2), (0.6, 1.6), fill=255, pixels="opencv")
    with in_order(source, warp).batch(3).loader() as loader:
        batch = loader.peek()
    assert np.array_equal(batch["image"][..., 0], batch["mask"])


def test_the_default_rule_is_no_part_of_a_description() -> None:
    """Digests of recipes have descriptions in them, and older versions had no other rule."""
    assert repr(sp.RandomPerspective()) == (
        "RandomPerspective(distortion_scale=0.5, p=0.5, interpolation='bilinear', fill=0)"
    )
    warp = sp.RandomRotation(5, pixels="opencv", mask_fill=0)
    assert warp.describe().endswith("fill=0, pixels='opencv', mask_fill=0)")
    pipeline = sp.Pipeline(sp.Arrays(image=noise(0, 2, 9, 9, 3))).map(warp).batch(1)
    assert "pixels='opencv'" in pipeline.plan().explain()


def of_the_yolo_family(
    image: UInt8Array, draws: Draws, hue: float, saturation: float, value: float
) -> UInt8Array:
    """Change an image by its recipe. Factors have 14 bits after the point, so that tables are exact."""
    gains = [draws.uniform(-1, 1) * gain for gain in (hue, saturation, value)]
    x = np.arange(256)
    tables = [((x + gains[0] * 180) % 180).astype(np.uint8)]
    tables += [
        np.clip(x * (round((gain + 1) * 16384) / 16384), 0, 255).astype(np.uint8) for gain in gains[1:]
    ]
    changed = cv2.LUT(cv2.cvtColor(image, cv2.COLOR_RGB2HSV), np.stack(tables, -1)[None])
    return np.asarray(cv2.cvtColor(changed, cv2.COLOR_HSV2RGB), np.uint8)


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("gains", [(0.015, 0.7, 0.4), (1.0, 1.0, 1.0), (0.5, 0.0, 0.0)])
def test_gains_are_those_of_the_yolo_family(gains: tuple[float, float, float], simd: str) -> None:
    images = noise(1, 12, 64, 128, 3)
    images[:2] //= 16  # greys and dark colours
    rows = delivered(in_order(sp.Arrays(image=images), sp.RandomHSV(*gains), seed=SEED), simd=simd)
    wanted = [of_the_yolo_family(image, drawn(56, i), *gains) for i, image in enumerate(images)]
    away = np.abs(np.array(rows, int) - wanted)
    assert away.max() <= 1
    assert (away > 0).mean() <= 0.04  # OpenCV has floats on the way back


def test_last_pixels_of_a_row_are_within_a_level() -> None:
    """OpenCV rounds those that don't fill its vectors, and truncates the others."""
    for size in SIZES:
        images = noise(2, 6, *size, 3)
        rows = delivered(in_order(sp.Arrays(image=images), sp.RandomHSV(0.5, 0.5, 0.5), seed=SEED))
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            wanted = of_the_yolo_family(image, drawn(56, position), 0.5, 0.5, 0.5)
            assert np.abs(row.astype(int) - wanted).max() <= 1, (size, position)


def test_every_colour_goes_there_and_back_as_in_opencv() -> None:
    colours = np.arange(1 << 24, dtype=np.uint32)
    image = np.stack([colours & 255, colours >> 8 & 255, colours >> 16], -1).astype(np.uint8)
    rows = delivered(in_order(sp.Arrays(image=image.reshape(256, 256, 256, 3)), sp.RandomHSV(0, 0, 0)))
    image = image.reshape(4096, 4096, 3)
    wanted = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2HSV), cv2.COLOR_HSV2RGB)
    away = cv2.absdiff(np.concatenate(rows).reshape(image.shape), wanted)
    assert away.max() <= 1
    assert np.count_nonzero(away) <= 0.01 * away.size


def test_grey_images_stay() -> None:
    images = noise(2, 3, 17, 20, 1)
    assert np.array_equal(delivered(in_order(sp.Arrays(image=images), sp.RandomHSV(1, 1, 1))), images)


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.RandomHSV(hue=2), r"hue=2.*from 0 to 1"),
        (sp.RandomHSV(saturation=-0.1), r"saturation=-0.1"),
        (sp.RandomHSV(value="x"), r"value='x'"),  # type: ignore[arg-type]
        (sp.RandomAffine(1, pixels="cv"), r"pixels='cv'.*'pillow', 'opencv'"),  # type: ignore[arg-type]
    ],
)
def test_invalid_parameters_are_refused(transform: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(sp.Arrays(image=noise(0, 2, 9, 9, 3))).map(transform).batch(1).plan()
