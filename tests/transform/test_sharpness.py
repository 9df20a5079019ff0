"""RandomAdjustSharpness has Pillow's pixels, and draws by (seed, epoch, position, op) as the others do."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

import standpipe as sp
from draws import Sample
from jpegs import photo, saved
from reference import decoded, delivered, explain_difference, in_order, listed
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths, what_draws

FACTORS = (0.0, 0.3, 1.0, 1.7, 2.0, 50.0, 1e6)
SIZES = [(height, width) for height in (1, 2, 3, 4, 37) for width in (1, 2, 3, 4, 5, 16, 61)]
OP = 3 << 16  # the first RandomAdjustSharpness of a pipeline


def sharpened(rgb: UInt8Array, factor: float) -> UInt8Array:
    return np.asarray(ImageEnhance.Sharpness(Image.fromarray(rgb)).enhance(factor))


def noise(seed: int, *shape: int) -> UInt8Array:
    """Random bytes, of which many are at the ends of their range."""
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, shape, np.uint8)
    return np.where(draw.random(shape) < 0.3, draw.choice([0, 255], shape), images).astype(np.uint8)


@pytest.mark.parametrize("factor", FACTORS)
def test_images_of_every_size_are_sharpened_as_by_pillow(factor: float) -> None:
    for number, (height, width) in enumerate(SIZES):
        images = noise(number, 3, height, width, 3)
        rows = delivered(in_order(sp.Arrays(image=images), sp.RandomAdjustSharpness(factor, p=1)))
        for image, row in zip(images, rows, strict=True):
            assert explain_difference(row, sharpened(image, factor)) == "", (height, width)


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("factor", [0.3, 1e6])
def test_every_instruction_set_sharpens_rows_of_every_length(factor: float, simd: str) -> None:
    for width in (3, 7, 8, 12, 13, 14):  # a vector has 16 bytes, and ends of rows stay
        images = noise(width, 3, 4, width, 3)
        sharpen = sp.RandomAdjustSharpness(factor, p=1)
        rows = delivered(in_order(sp.Arrays(image=images), sharpen), simd=simd, executor="inline")
        for image, row in zip(images, rows, strict=True):
            assert explain_difference(row, sharpened(image, factor)) == "", width


@pytest.mark.parametrize("simd", simd_paths())
def test_every_instruction_set_sharpens_alike(simd: str, tmp_path: Path) -> None:
    """In front of a crop, between two, and behind both; of files."""
    sharper = sp.RandomAdjustSharpness(1.6, p=1)
    files = [saved(photo(50, 71), quality=90), saved(photo(33, 40), "PNG")]
    transforms = (sharper, sp.CenterCrop((30, 37)), sharper, sharper, sp.CenterCrop((45, 20)), sharper)
    rows = delivered(in_order(listed(tmp_path, files), *transforms), simd=simd)
    for data, row in zip(files, rows, strict=True):
        picture = np.asarray(decoded(data))
        for transform in transforms:
            if transform is sharper:
                picture = sharpened(picture, 1.6)
            else:
                (picture,) = delivered(in_order(sp.Arrays(image=picture[None]), transform))
        assert explain_difference(row, picture) == ""


def test_it_takes_place_by_the_samples_own_draw() -> None:
    images = noise(8, 200, 9, 7, 3)
    for transforms, op in (
        ((sp.RandomAdjustSharpness(2.0),), OP),
        ((sp.RandomHorizontalFlip(0), sp.RandomAdjustSharpness(2.0)), OP),
        ((sp.RandomAdjustSharpness(0.5, p=0), sp.RandomAdjustSharpness(2.0)), OP + 1),
    ):
        for epoch in (0, 5):
            rows = delivered(in_order(sp.Arrays(image=images), *transforms, seed=11), epoch=epoch)
            for position, (image, row) in enumerate(zip(images, rows, strict=True)):
                takes_place = Sample(11, epoch, position).draws(op).uniform() < 0.5
                assert explain_difference(row, sharpened(image, 2.0) if takes_place else image) == ""


def test_workers_in_python_sharpen_alike() -> None:
    """A function between two native parts doesn't change a draw: the second part goes on counting."""
    images = noise(9, 60, 12, 12, 3)
    transforms = [sp.RandomAdjustSharpness(3.0), sp.RandomAdjustSharpness(0.0), sp.Normalize()]
    natively = delivered(in_order(sp.Arrays(image=images), *transforms))
    transforms.insert(1, lambda sample: sample)
    in_python = delivered(in_order(sp.Arrays(image=images), *transforms))
    assert np.array_equal(natively, in_python)


@pytest.mark.parametrize(("p", "is_random"), [(0, False), (0.5, True), (1, False)])
def test_it_says_whether_it_draws(p: float, is_random: bool) -> None:
    assert (what_draws(sp.RandomAdjustSharpness(2.0, p)) is not None) == is_random


@pytest.mark.parametrize(
    ("factor", "p", "says"),
    [
        (-0.1, 0.5, r"sharpness_factor=-0.1\): sharpness_factor must be a number from 0"),
        (math.nan, 0.5, "sharpness_factor=nan"),
        (1.1e6, 0.5, "from 0 to 1e.06"),
        ("2", 0.5, "sharpness_factor='2'"),
        (2.0, 1.5, r"RandomAdjustSharpness\(p=1.5\): p must be a probability"),
    ],
)
def test_parameters_that_cannot_work_are_refused(factor: float, p: float, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        in_order(sp.Arrays(image=noise(1, 2, 4, 4, 3)), sp.RandomAdjustSharpness(factor, p)).plan()
