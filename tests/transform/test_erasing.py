"""RandomErasing erases what torchvision's and timm's erase, in every layout and type, after Normalize."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from draws import Draws, Sample
from model.pictures import erased_box
from reference import in_order
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform import simd_paths

KIND = 23 << 16


def noise(seed: int, *shape: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def rows_of(images: UInt8Array, *transforms: Any, seed: int = 0) -> AnyArray:
    with in_order(sp.Arrays(image=images), *transforms, seed=seed).loader() as loader:
        return np.concatenate([batch["image"].copy() for batch in loader])


def normal(draws: Draws) -> float:
    return NormalDist().inv_cdf(((draws.word() >> 11) + 0.5) * 2.0**-53)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "erasing",
    [
        sp.RandomErasing(0.7, value=(0.5, -1.0, 2.25)),
        sp.RandomErasing(0.7, value="random"),
        sp.RandomErasing(0.7, mode="rand"),
        sp.RandomErasing(1.0, (0.02, 1 / 3), (0.3, 1 / 0.3), mode="pixel"),
    ],
    ids=str,
)
def test_rectangles_and_values_are_those_of_the_rule(
    erasing: sp.RandomErasing, layout: Any, dtype: Any
) -> None:
    images = noise(1, 30, 21, 34, 3)
    plain = rows_of(images, sp.Normalize(), sp.ToDtype(dtype), sp.ToLayout(layout))
    rows = rows_of(images, sp.Normalize(), erasing, sp.ToDtype(dtype), sp.ToLayout(layout), seed=6)
    if layout == "NCHW":
        plain, rows = np.moveaxis(plain, 1, -1), np.moveaxis(rows, 1, -1)
    erased = 0
    for position, (wanted, row) in enumerate(zip(plain, rows, strict=True)):
        draws = Sample(6, 0, position).draws(KIND)
        if draws.uniform() < erasing.p and (box := erased_box(erasing, wanted.shape, draws)):
            h, w = (each.stop - each.start for each in box)
            if erasing.value == "random" or erasing.mode == "pixel":
                values = np.array([normal(draws) for _ in range(h * w * 3)]).reshape(h, w, 3)
            elif erasing.mode == "rand":
                values = np.array([normal(draws) for _ in range(3)])
            else:
                values = np.asarray(erasing.value)
            wanted = wanted.copy()
            wanted[box] = values
            erased += 1
        assert np.allclose(row, wanted, rtol=2e-3 if dtype == "float16" else 2e-6, atol=1e-6), position
    assert erased > 10


@pytest.mark.parametrize("simd", simd_paths())
def test_bytes_may_become_a_level(simd: str) -> None:
    images = noise(2, 20, 9, 9, 3)
    pipeline = in_order(sp.Arrays(image=images), sp.CenterCrop(8), sp.RandomErasing(1.0, value=7))
    with pipeline.loader() as loader:
        rows = np.concatenate([batch["image"] for batch in loader])
    assert rows.dtype == np.uint8
    assert simd in simd_paths()
    assert all((row == 7).all(axis=-1).any() for row in rows)


def test_counts_and_areas_are_timms() -> None:
    """Several rectangles share the area: their number is uniform, and each takes its part."""
    images = np.full((4000, 40, 40, 3), 255, np.uint8)
    rows = rows_of(
        images, sp.ToDtype("float32"), sp.RandomErasing(1.0, (0.1, 0.1), (1, 1), min_count=1, max_count=4)
    )
    areas = (rows[:, 0] == 0).sum(axis=(1, 2))
    # sides: round(sqrt(160 / count)): 13, 9, 7 and 6; larger sums are those without overlap
    most = {1: 169, 2: 162, 3: 147, 4: 144}
    assert areas.max() == 169
    for count, area in most.items():
        at_most = (areas == area).mean()
        assert 0.02 < at_most < 0.27, count
    assert abs((areas == 169).mean() - 0.25) < 0.03


def test_normal_numbers_are_normal() -> None:
    images = np.zeros((40, 64, 64, 3), np.uint8)
    erasing = sp.RandomErasing(1.0, (0.9, 0.9), (1, 1), mode="pixel")
    rows = rows_of(images, sp.Normalize((0, 0, 0), (1, 1, 1)), erasing)
    values = np.sort(rows[rows != 0])
    assert len(values) > 400_000
    wanted = np.array([NormalDist().cdf(float(each)) for each in values[::50]])
    seen = np.arange(len(values))[::50] / len(values)
    assert np.abs(wanted - seen).max() < 2.2 / math.sqrt(len(values))


@pytest.mark.parametrize(
    ("transforms", "says"),
    [
        ([sp.RandomErasing(), sp.Normalize()], r"RandomErasing\(.*must come after Normalize"),
        ([sp.Normalize(), sp.RandomErasing(), sp.CenterCrop(4)], r"CenterCrop.*must come before"),
        ([sp.RandomErasing(value="random")], r"needs images of floats"),
        ([sp.RandomErasing(value=0.5)], r"needs images of floats"),
        ([sp.RandomErasing(p=2)], r"p=2"),
        ([sp.RandomErasing(scale=(0.3, 0.1))], r"scale"),
        ([sp.RandomErasing(ratio=(0, 1))], r"ratio"),
        ([sp.RandomErasing(mode="noise")], r"'const', 'rand', 'pixel'"),  # type: ignore[list-item]
        ([sp.RandomErasing(value=(1, 2))], r"must have 3 numbers"),  # type: ignore[list-item]
        ([sp.RandomErasing(min_count=0)], r"min_count=0"),
        ([sp.RandomErasing(min_count=3, max_count=2)], r"max_count=2"),
        ([sp.Normalize(), sp.RandomErasing(), sp.RandomErasing()], r"twice"),
    ],
)
def test_what_cannot_work_is_refused(transforms: list[Any], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(sp.Arrays(image=noise(0, 2, 9, 9, 3))).map(*transforms).batch(1).plan()
