"""Colour transforms, blurs and vertical flips have the pixels of Pillow and torchvision, and draw by their own keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

import standpipe as sp
from draws import Sample
from jpegs import photo, saved
from model.pictures import blurred, turned_hue
from reference import decoded, delivered, explain_difference, in_order, listed
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths, what_draws

Reference = Callable[[Image.Image], Image.Image]
SIZES = ((1, 1), (1, 7), (9, 1), (40, 33))


def noise(seed: int, *shape: int) -> UInt8Array:
    """Random bytes, of which many are at the ends of their range."""
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, shape, np.uint8)
    return np.where(draw.random(shape) < 0.3, draw.choice([0, 255], shape), images).astype(np.uint8)


def pale(images: UInt8Array) -> UInt8Array:
    """The same with few levels, all of them near the middle."""
    return (images // 8 + 100).astype(np.uint8)


def enhanced(enhancer: Any, factor: float) -> Reference:
    return lambda image: enhancer(image).enhance(factor)


CASES: list[tuple[Any, Reference]] = [
    (sp.RandomInvert(1), ImageOps.invert),
    *(
        (sp.RandomPosterize(bits, 1), lambda image, bits=bits: ImageOps.posterize(image, bits))
        for bits in (1, 4, 8)
    ),
    *(
        (sp.RandomSolarize(level, 1), lambda image, level=level: ImageOps.solarize(image, level))
        for level in (0, 100, 128.5, 255, 256)
    ),
    (sp.RandomAutocontrast(1), ImageOps.autocontrast),
    (sp.RandomEqualize(1), ImageOps.equalize),
    (sp.RandomGrayscale(1), lambda image: image.convert("L").convert("RGB")),
    (sp.RandomVerticalFlip(1), ImageOps.flip),
    *(
        (sp.ColorJitter(**{name: (factor, factor)}), enhanced(enhancer, factor))
        for name, enhancer in (
            ("brightness", ImageEnhance.Brightness),
            ("contrast", ImageEnhance.Contrast),
            ("saturation", ImageEnhance.Color),
        )
        for factor in (0, 0.3, 1, 1.7, 5.0)
    ),
    *(
        (sp.ColorJitter(hue=(turn, turn)), lambda image, turn=turn: turned_hue(image, turn))
        for turn in (-0.5, -0.1, 0.003, 0.25, 0.5)
    ),
]


@pytest.mark.parametrize(("transform", "by_pillow"), CASES, ids=[repr(transform) for transform, _ in CASES])
def test_pixels_are_pillows(transform: Any, by_pillow: Reference) -> None:
    for number, (height, width) in enumerate(SIZES):
        for images in (noise(number, 3, height, width, 3), pale(noise(number, 3, height, width, 3))):
            rows = delivered(in_order(sp.Arrays(image=images), transform))
            for image, row in zip(images, rows, strict=True):
                wanted = np.asarray(by_pillow(Image.fromarray(image)))
                assert explain_difference(row, wanted) == "", (height, width)


def test_every_hue_of_every_colour_is_pillows() -> None:
    """All values of two channels beside 16 of the third."""
    levels = np.arange(256, dtype=np.uint8)
    images = np.stack(np.broadcast_arrays(levels[::17, None, None], levels[:, None], levels), axis=-1)
    rows = delivered(in_order(sp.Arrays(image=np.ascontiguousarray(images)), sp.ColorJitter(hue=(0.1, 0.1))))
    for image, row in zip(images, rows, strict=True):
        assert explain_difference(row, np.asarray(turned_hue(Image.fromarray(image), 0.1))) == ""


@pytest.mark.parametrize(("kernel", "sigma"), [(1, 1.0), (3, 0.1), (3, 1.0), (5, 2.0), (23, 2.0), (31, 9.0)])
def test_a_blur_is_torchvisions_within_a_level(kernel: int, sigma: float) -> None:
    images = np.concatenate([noise(3, 3, 40, 33, 3), np.full((1, 40, 33, 3), 255, np.uint8)])
    rows = delivered(in_order(sp.Arrays(image=images), sp.GaussianBlur(kernel, sigma)))
    away = np.arange(kernel) - kernel // 2
    weights = np.exp(-0.5 * (away / sigma) ** 2)
    weights /= weights.sum()
    for image, row in zip(images, rows, strict=True):
        padded = np.pad(image.astype(float), ((kernel // 2,) * 2, (kernel // 2,) * 2, (0, 0)), mode="reflect")
        down = sum(weight * padded[k : k + 40] for k, weight in enumerate(weights))
        both = sum(weight * down[:, k : k + 33] for k, weight in enumerate(weights))
        assert np.abs(row - both).max() <= 0.6  # half a level of rounding, and what integer weights add
    assert (rows[-1] == 255).all()


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("sigma", [0.05, 0.6, 4.0])
def test_every_instruction_set_blurs_alike(sigma: float, simd: str) -> None:
    """Images narrower than a vector as well, weights of more than 15 bits, and kernels as large as images."""
    for height, width, kernel in ((1, 1, 1), (5, 5, 9), (3, 6, 5), (40, 33, 23), (13, 50, 25)):
        images = np.concatenate(
            [noise(height, 2, height, width, 3), np.full((1, height, width, 3), 255, np.uint8)]
        )
        blur = sp.GaussianBlur(kernel, sigma)
        rows = delivered(in_order(sp.Arrays(image=images), blur), simd=simd, executor="inline")
        for image, row in zip(images, rows, strict=True):
            assert explain_difference(row, blurred(image, kernel, sigma)) == "", (height, width, kernel)


@pytest.mark.parametrize("simd", simd_paths())
def test_files_and_crops_before_and_after(simd: str, tmp_path: Path) -> None:
    files = [saved(photo(50, 71), quality=90), saved(photo(33, 40), "PNG")]
    transforms = (sp.RandomEqualize(1), sp.CenterCrop((30, 37)), sp.RandomInvert(1), sp.RandomVerticalFlip(1))
    rows = delivered(in_order(listed(tmp_path, files), *transforms), simd=simd)
    for data, row in zip(files, rows, strict=True):
        picture = np.asarray(ImageOps.equalize(decoded(data)))
        (picture,) = delivered(in_order(sp.Arrays(image=picture[None]), sp.CenterCrop((30, 37))))
        wanted = np.asarray(ImageOps.flip(ImageOps.invert(Image.fromarray(picture))))
        assert explain_difference(row, wanted) == ""


@pytest.mark.parametrize(
    ("transform", "kind", "change"),
    [
        (sp.RandomInvert(), 4, ImageOps.invert),
        (sp.RandomPosterize(3), 5, lambda image: ImageOps.posterize(image, 3)),
        (sp.RandomSolarize(99), 6, lambda image: ImageOps.solarize(image, 99)),
        (sp.RandomAutocontrast(), 7, ImageOps.autocontrast),
        (sp.RandomEqualize(), 8, ImageOps.equalize),
        (sp.RandomGrayscale(0.5), 9, lambda image: image.convert("L").convert("RGB")),
        (sp.RandomVerticalFlip(), 12, ImageOps.flip),
    ],
)
def test_each_takes_place_by_the_samples_own_draw(transform: Any, kind: int, change: Reference) -> None:
    images = pale(noise(8, 60, 9, 7, 3))
    rows = delivered(in_order(sp.Arrays(image=images), transform, seed=11), epoch=3)
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        takes_place = Sample(11, 3, position).draws(kind << 16).uniform() < 0.5
        wanted = np.asarray(change(Image.fromarray(image))) if takes_place else image
        assert explain_difference(row, wanted) == ""


def test_jitter_draws_an_order_and_a_factor_for_each_change() -> None:
    images = noise(8, 60, 9, 7, 3)
    rows = delivered(in_order(sp.Arrays(image=images), sp.ColorJitter(0.4, (0.2, 3.0), 0.3, 0.1), seed=11))
    ranges = [(0.6, 1.4), (0.2, 3.0), (0.7, 1.3), (-0.1, 0.1)]
    changes = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]
    orders = set()
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        draws = Sample(11, 0, position).draws(10 << 16)
        draws.uniform()  # whether it takes place
        picture = Image.fromarray(image)
        order, left = [], list(range(4))
        for place in range(4):
            other = place + draws.below(4 - place)
            left[place], left[other] = left[other], left[place]
            order.append(left[place])
            draws.uniform()
            factor = draws.uniform(*ranges[left[place]])
            picture = (
                turned_hue(picture, factor)
                if left[place] == 3
                else changes[left[place]](picture).enhance(factor)
            )
        orders.add(tuple(order))
        assert explain_difference(row, np.asarray(picture)) == ""
    assert len(orders) > 15  # of 24


def test_python_workers_give_the_same_rows() -> None:
    images = noise(9, 40, 12, 12, 3)
    transforms: list[Any] = [sp.ColorJitter(0.4, 0.4, 0.4, 0.1), sp.RandomGrayscale(0.4), sp.GaussianBlur(5)]
    natively = delivered(in_order(sp.Arrays(image=images), *transforms))
    transforms.insert(1, lambda sample: sample)
    assert np.array_equal(natively, delivered(in_order(sp.Arrays(image=images), *transforms)))


@pytest.mark.parametrize(
    ("transform", "is_random"),
    [
        (sp.ColorJitter(), False),
        (sp.ColorJitter(brightness=(2.0, 2.0)), False),
        (sp.ColorJitter(brightness=(2.0, 2.0), contrast=(2.0, 2.0)), True),
        (sp.ColorJitter(hue=0.1), True),
        (sp.GaussianBlur(3, 1.0), False),
        (sp.GaussianBlur(3), True),
        (sp.RandomInvert(1), False),
    ],
)
def test_each_says_whether_it_draws(transform: Any, is_random: bool) -> None:
    assert (what_draws(transform) is not None) == is_random


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.RandomInvert(1.5), r"RandomInvert\(p=1.5\): p must be a probability"),
        (sp.RandomPosterize(0), "bits must be an integer from 1 to 8"),
        (sp.RandomPosterize(2.0), "bits must be an integer"),  # type: ignore[arg-type]
        (sp.RandomSolarize("a"), "threshold='a'"),  # type: ignore[arg-type]
        (sp.ColorJitter(brightness=-1), "brightness must be at least 0"),
        (sp.ColorJitter(contrast="1"), "contrast must be a number, or a pair"),  # type: ignore[arg-type]
        (sp.ColorJitter(saturation=(2, 1)), "the lowest value first"),
        (sp.ColorJitter(hue=0.6), "hue must be within -0.5 to 0.5"),
        (sp.GaussianBlur(4), "kernel_size must be odd, such as 5"),
        (sp.GaussianBlur(257), "from 1 to 255"),
        (sp.GaussianBlur(3, 0), "above 0, or a pair"),
        (sp.GaussianBlur(3, (2, 1)), "above 0, or a pair"),
        (sp.GaussianBlur(9), r"needs images of more than 4 pixels along each side, got \(4, 4\)"),
    ],
)
def test_parameters_that_cannot_work_are_refused(transform: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        in_order(sp.Arrays(image=noise(1, 2, 4, 4, 3)), transform).plan()


def test_a_blur_needs_to_know_the_size(tmp_path: Path) -> None:
    with pytest.raises(
        sp.PlanError, match="GaussianBlur needs images of one size: put it after RandomResizedCrop"
    ):
        in_order(listed(tmp_path, [saved(photo(9, 9))]), sp.GaussianBlur(3), sp.CenterCrop(4)).plan()
