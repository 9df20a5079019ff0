"""PillowGaussianBlur has the pixels of Pillow's ImageFilter.GaussianBlur."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

import standpipe as sp
from draws import Sample
from reference import delivered, explain_difference, in_order
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths, what_draws

SIZES = [(1, 1), (1, 7), (9, 1), (2, 3), (33, 48), (40, 21)]
OP = 48 << 16  # the first PillowGaussianBlur of a pipeline


def noise(seed: int, *shape: int) -> UInt8Array:
    """Random bytes, with a flat part and an edge."""
    images = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    images[:, : shape[1] // 2] //= 3
    return images


def blurred(image: UInt8Array, radius: float) -> UInt8Array:
    return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius)))


@pytest.mark.parametrize("radius", [0, 0.1, 0.5, 1.0, 1.7, 2.0, 5.3, 40, 1000])
@pytest.mark.parametrize("size", SIZES)
def test_a_radius_has_pillows_pixels(radius: float, size: tuple[int, int]) -> None:
    images = noise(3, 3, *size, 3)
    rows = delivered(in_order(sp.Arrays(image=images), sp.PillowGaussianBlur(radius)))
    for image, row in zip(images, rows, strict=True):
        assert explain_difference(row, blurred(image, radius)) == ""


@pytest.mark.parametrize("simd", simd_paths())
def test_a_range_is_uniform_and_keyed_by_the_sample(simd: str) -> None:
    images = noise(4, 40, 21, 30, 3)
    pipeline = in_order(
        sp.Arrays(image=images), sp.CenterCrop((19, 24)), sp.PillowGaussianBlur((0.1, 2.0)), seed=8
    )
    rows = delivered(pipeline, epoch=2, simd=simd)
    whole = in_order(sp.Arrays(image=images), sp.CenterCrop((19, 24)), seed=8)
    for position, (image, row) in enumerate(zip(delivered(whole), rows, strict=True)):
        draws = Sample(8, 2, position).draws(OP)
        draws.uniform()  # whether it is applied
        assert explain_difference(row, blurred(image, draws.uniform(0.1, 2.0))) == "", position


def test_a_group_blurs_some_images_as_the_recipes_do() -> None:
    images = noise(5, 400, 4, 4, 3)
    rows = delivered(
        sp.Pipeline(sp.Arrays(image=images)).map(sp.RandomApply([sp.PillowGaussianBlur(1.0)], 0.5)).batch(400)
    )
    changed = 0
    for image, row in zip(images, rows, strict=True):
        if not np.array_equal(image, row):
            assert explain_difference(row, blurred(image, 1.0)) == ""
            changed += 1
    assert 150 < changed < 250


def test_python_workers_give_the_same_rows() -> None:
    images = noise(6, 6, 9, 8, 3)
    pipeline = sp.Pipeline(sp.Arrays(image=images), seed=1).map(sp.PillowGaussianBlur())
    native = delivered(pipeline.batch(6))
    python = delivered(pipeline.map(np.ascontiguousarray, field="image").batch(6))
    np.testing.assert_array_equal(native, python)


def test_one_radius_is_not_random() -> None:
    assert sp.PillowGaussianBlur().is_random
    assert not sp.PillowGaussianBlur(2).is_random
    assert what_draws([sp.PillowGaussianBlur((1, 1))]) is None


@pytest.mark.parametrize("radius", [-1, (2, 1), (0.1,), 1001, "2", None, float("nan")])
def test_invalid_radii(radius: Any) -> None:
    with pytest.raises(sp.PlanError, match="radius must be a number of pixels from 0 to 1000, or a pair"):
        in_order(sp.Arrays(image=noise(1, 1, 2, 2, 3)), sp.PillowGaussianBlur(radius)).plan()
