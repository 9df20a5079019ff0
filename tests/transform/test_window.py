"""RandomCrop and PadImage have torchvision's places and pixels, fused with decoding and flips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Sample
from jpegs import Coding, encode, kinds, photo, saved
from model.pictures import Picture, changed, padded
from reference import decoded, delivered, explain_difference, in_order, listed
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths

KIND = 20 << 16
MODES = ("constant", "edge", "reflect", "symmetric")
FILL = (7, 100, 255)


def noise(seed: int, *shape: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def cropped(image: UInt8Array, crop: sp.RandomCrop, sample: Sample) -> UInt8Array:
    return changed(crop, Picture(image), sample.draws(KIND)).image


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("padding", "sides"), [(3, (3,) * 4), ((1, 9), (1, 9, 1, 9)), ((0, 2, 13, 4),) * 2])
def test_pad_is_numpys(padding: Any, sides: Any, mode: Any) -> None:
    for size in ((1, 1), (1, 7), (9, 1), (2, 2), (12, 17)):
        images = noise(1, 3, *size, 3)
        rows = delivered(in_order(sp.Arrays(image=images), sp.PadImage(padding, FILL, mode)))
        for image, row in zip(images, rows, strict=True):
            assert explain_difference(row, padded(image, sides, mode, FILL)) == ""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("simd", simd_paths())
def test_crops_of_files_are_those_of_the_padded_picture(mode: Any, simd: str, tmp_path: Path) -> None:
    files = [*kinds(41, 53).values()]
    crop = sp.RandomCrop((23, 60), (5, 2, 1, 9), True, FILL, mode)
    transforms = (crop, sp.RandomHorizontalFlip(1.0))
    rows = delivered(in_order(listed(tmp_path, files), *transforms, seed=3), epoch=2, simd=simd)
    for position, (data, row) in enumerate(zip(files, rows, strict=True)):
        wanted = cropped(np.asarray(decoded(data)), crop, Sample(3, 2, position))
        assert explain_difference(row, wanted[:, ::-1]) == ""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("size", "padding"), [(3, 4), (32, 4), (5, None), ((40, 6), 0), ((64, 64), 1)])
def test_windows_anywhere_even_in_the_padding_alone(size: Any, padding: Any, mode: Any) -> None:
    for shape in ((1, 1), (1, 7), (9, 1), (32, 32)):
        images = noise(4, 40, *shape, 3)
        crop = sp.RandomCrop(size, padding, True, 9, mode)
        for flips in ((), (sp.RandomHorizontalFlip(1.0),)):
            rows = delivered(in_order(sp.Arrays(image=images), crop, *flips, seed=5))
            for position, (image, row) in enumerate(zip(images, rows, strict=True)):
                wanted = cropped(image, crop, Sample(5, 0, position))
                assert explain_difference(row, wanted[:, ::-1] if flips else wanted) == "", (shape, position)


def test_a_resize_before_and_a_crop_after_another() -> None:
    images = noise(6, 8, 20, 31, 3)
    first, second = sp.RandomCrop(24, pad_if_needed=True, padding_mode="reflect"), sp.RandomCrop((9, 24), 2)
    rows = delivered(in_order(sp.Arrays(image=images), sp.Resize((26, 40)), first, second, seed=1))
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        resized = np.asarray(Image.fromarray(image).resize((40, 26), Image.Resampling.BILINEAR))
        sample = Sample(1, 0, position)
        wanted = cropped(resized, first, sample)
        wanted = changed(second, Picture(wanted), sample.draws(KIND | 1)).image
        assert explain_difference(row, wanted) == ""


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize(
    "factors", [((4, 1), (2, 1), (1, 1)), ((4, 1), (1, 2), (2, 2)), ((3, 1), (1, 1), (3, 1))]
)
def test_narrow_crops_of_odd_samplings_are_pillows(factors: Any, width: int, tmp_path: Path) -> None:
    """libjpeg chooses other upsamplers for a crop that leaves a component one column."""
    for size in ((3, 4), (3, 5), (3, 36), (3, 37)):
        file = encode(photo(*size), Coding(factors=factors, step=4))
        rows = delivered(in_order(listed(tmp_path, [file], times=300), sp.RandomCrop((3, width))))
        picture = np.asarray(decoded(file))
        seen = set()
        for position, row in enumerate(rows):
            draws = Sample(0, 0, position).draws(KIND)
            draws.below(1)
            x = draws.below(size[1] - width + 1)
            seen.add(x)
            assert explain_difference(row, picture[:, x : x + width]) == "", (size, x)
        assert seen == {*range(size[1] - width + 1)}


def test_large_crops_of_files_need_no_resize(tmp_path: Path) -> None:
    picture = photo(150, 170)
    (row,) = delivered(in_order(listed(tmp_path, [saved(picture, "PNG")]), sp.RandomCrop((150, 170))))
    assert explain_difference(row, picture) == ""


def test_an_image_that_is_too_small_is_a_bad_sample(tmp_path: Path) -> None:
    files = [saved(photo(40, 40)), saved(photo(9, 40))]
    pipeline = in_order(listed(tmp_path, files), sp.RandomCrop(16, padding=(0, 1)))
    says = r"too small: RandomCrop needs 16 × 16 pixels, but the image has 40 × 11 pixels; use .*pad_if_needed=True"
    with pytest.raises(sp.DecodeError, match=says):
        delivered(pipeline)
    with pytest.raises(sp.PlanError, match=r"images have \(9, 40\)"):
        sp.Pipeline(sp.Arrays(image=noise(0, 2, 9, 40, 3))).map(sp.RandomCrop(16)).batch(1).plan()


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.RandomCrop(0), r"size=0.*each from 1"),
        (sp.RandomCrop(8, padding=-1), r"padding=-1.*from 0 to"),
        (sp.RandomCrop(8, padding=(1, 2, 3)), r"one, two or four integers"),
        (sp.RandomCrop(8, padding_mode="wrap"), r"padding_mode='wrap'.*'constant', 'edge'"),  # type: ignore[arg-type]
        (sp.RandomCrop(8, fill=256), r"fill=256.*0 to 255"),
        (sp.RandomCrop(8, pad_if_needed=1), r"True or False"),  # type: ignore[arg-type]
        (sp.PadImage(1.5), r"PadImage\(padding=1.5\)"),  # type: ignore[arg-type]
        (sp.PadImage(1, fill=(1, 2)), r"must have 3 numbers"),  # type: ignore[arg-type]
    ],
)
def test_invalid_parameters_are_refused(transform: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(sp.Arrays(image=noise(0, 2, 9, 9, 3))).map(transform).batch(1).plan()


def test_random_resizes_draw_every_length() -> None:
    """The shorter side is from min_size to max_size - 1, and the pixels are those of Resize."""
    images = noise(7, 60, 20, 30, 3)
    transforms = (sp.RandomResize(10, 16), sp.CenterCrop((15, 22)))
    rows = delivered(in_order(sp.Arrays(image=images), *transforms, seed=5))
    seen = set()
    for position, (image, row) in enumerate(zip(images, rows, strict=True)):
        size = 10 + Sample(5, 0, position).draws(24 << 16).below(6)
        seen.add(size)
        (wanted,) = delivered(in_order(sp.Arrays(image=image[None]), sp.Resize(size), transforms[1]))
        assert explain_difference(row, wanted) == "", position
    assert seen == {*range(10, 16)}
    for transform in (sp.RandomResize(16, 16), sp.RandomResize(0, 3), sp.RandomResize(3, 9, "cubic")):  # type: ignore[arg-type]
        with pytest.raises(sp.PlanError, match="RandomResize"):
            in_order(sp.Arrays(image=images), transform, sp.CenterCrop(8)).plan()
    with pytest.raises(sp.PlanError, match="isn't fixed"):
        in_order(sp.Arrays(image=images), sp.RandomResize(3, 9)).plan()
