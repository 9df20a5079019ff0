"""Point operations that follow one another give the pixels of each applied after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

import standpipe as sp
from draws import Sample
from reference import delivered, explain_difference, in_order
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths

CHOICE = 14 << 16  # the first RandomChoice of a pipeline
Part = tuple[Any, Callable[[Image.Image], Image.Image]]  # a transform, and what Pillow does for it
POINTS: list[Part] = [
    (sp.ColorJitter(brightness=(1.4, 1.4)), lambda image: ImageEnhance.Brightness(image).enhance(1.4)),
    (sp.ColorJitter(contrast=(0.6, 0.6)), lambda image: ImageEnhance.Contrast(image).enhance(0.6)),
    (sp.RandomPosterize(3, 1), lambda image: ImageOps.posterize(image, 3)),
    (sp.RandomSolarize(90, 1), lambda image: ImageOps.solarize(image, 90)),
    (sp.RandomInvert(1), ImageOps.invert),
    (sp.RandomAutocontrast(1), ImageOps.autocontrast),
    (sp.RandomEqualize(1), ImageOps.equalize),
]
# Operations that need the pixels themselves, in a chain.
OTHERS: list[Part] = [
    (sp.ColorJitter(saturation=(1.7, 1.7)), lambda image: ImageEnhance.Color(image).enhance(1.7)),
    (sp.RandomAdjustSharpness(0.4, 1), lambda image: ImageEnhance.Sharpness(image).enhance(0.4)),
    (sp.RandomVerticalFlip(1), ImageOps.flip),
]


def pictures(count: int, height: int, width: int) -> UInt8Array:
    """Noise within a range of each channel's own, and some of one colour."""
    draw = np.random.default_rng(height * width)
    low = draw.integers(0, 200, (count, 1, 1, 3))
    high = low + draw.integers(0, 56, (count, 1, 1, 3))
    return draw.integers(low, high + 1, (count, height, width, 3)).astype(np.uint8)


def chosen_of(
    images: UInt8Array, links: int, parts: Sequence[Part]
) -> Iterator[tuple[tuple[int, ...], UInt8Array]]:
    """Which of ``parts`` each ``RandomChoice`` takes, and the picture after them, by sample."""
    for position, image in enumerate(images):
        picture, chain = Image.fromarray(image), []
        for place in range(links):
            draws = Sample(5, 0, position).draws(CHOICE | place)
            draws.uniform()  # whether it takes place
            chain.append(int(draws.uniform() * len(parts)))
            picture = parts[chain[-1]][1](picture)
        yield tuple(chain), np.asarray(picture)


def choices(links: int, parts: Sequence[Part]) -> list[Any]:
    return [sp.RandomChoice([transform for transform, _ in parts])] * links


@pytest.mark.parametrize(("links", "size"), [(2, (1, 1)), (2, (1, 7)), (2, (11, 5)), (3, (11, 5))])
def test_every_chain_is_its_operations_in_turn(links: int, size: tuple[int, int]) -> None:
    images = pictures(3000 if links == 3 else 400, *size)
    source, transforms = sp.Arrays(image=images), choices(links, POINTS)
    bytes_ = delivered(in_order(source, *transforms, seed=5))
    floats = delivered(in_order(source, *transforms, sp.Normalize(), seed=5))
    table, chains = sp.Normalize().table(), set()
    for row, normalised, (chain, wanted) in zip(
        bytes_, floats, chosen_of(images, links, POINTS), strict=True
    ):
        chains.add(chain)
        assert explain_difference(row, wanted) == "", chain
        for channel in range(3):
            assert np.array_equal(normalised[channel], table[channel][wanted[:, :, channel]]), chain
    assert chains == set(product(range(len(POINTS)), repeat=links))


@pytest.fixture(scope="module")
def mixed() -> tuple[UInt8Array, UInt8Array]:
    """Pictures, and what five operations of all kinds make of each."""
    images = pictures(300, 9, 14)
    return images, np.stack([picture for _, picture in chosen_of(images, 5, POINTS + OTHERS)])


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize(
    "end",
    [
        (),
        (sp.ToLayout("NCHW"),),
        (sp.Normalize(),),
        (sp.Normalize(), sp.ToDtype("float16"), sp.ToLayout("NHWC")),
        (sp.RandomHorizontalFlip(1), sp.Normalize()),
        (sp.PadImage(2, fill=7), sp.Normalize()),
        (sp.Resize((20, 17)), sp.RandomInvert(1), sp.Normalize()),
        (sp.Normalize(), sp.RandomErasing(1, value=0.5)),
    ],
    ids=repr,
)
def test_whatever_follows_gets_all_changes(
    end: tuple[Any, ...], simd: str, mixed: tuple[UInt8Array, UInt8Array]
) -> None:
    images, changed = mixed
    rows = delivered(in_order(sp.Arrays(image=images), *choices(5, POINTS + OTHERS), *end, seed=5), simd=simd)
    wanted = delivered(in_order(sp.Arrays(image=changed), *end, seed=5), simd="scalar")
    assert np.array_equal(rows, wanted)


@pytest.mark.parametrize(("bits", "threshold"), list(product([1, 5, 8], [0, 1, 77.5, 255, 256])))
def test_bit_operations_alone_and_in_turn_are_pillows(bits: int, threshold: float) -> None:
    image = np.tile(np.arange(256, dtype=np.uint8), 9)[: 13 * 59 * 3].reshape(13, 59, 3)
    picture = Image.fromarray(image)
    posterized, solarized = ImageOps.posterize(picture, bits), ImageOps.solarize(picture, threshold)
    posterize, solarize = sp.RandomPosterize(bits, 1), sp.RandomSolarize(threshold, 1)
    cases = [
        ([posterize], posterized),
        ([solarize], solarized),
        ([solarize, posterize], ImageOps.posterize(solarized, bits)),
        ([posterize, solarize], ImageOps.solarize(posterized, threshold)),
        ([posterize, sp.RandomInvert(1)], ImageOps.invert(posterized)),
        ([sp.RandomInvert(1), posterize], ImageOps.posterize(ImageOps.invert(picture), bits)),
    ]
    for transforms, wanted in cases:
        (row,) = delivered(in_order(sp.Arrays(image=image[None]), *transforms))
        assert np.array_equal(row, np.asarray(wanted)), transforms
