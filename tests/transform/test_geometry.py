"""Sizes, windows and boxes are torchvision's; draws are functions of seed, epoch, position and op alone."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Sample, crop_box, mirrors, ops
from jpegs import photo, saved
from reference import delivered, explain_difference, in_order, listed
from standpipe.transform import fuse
from torchvision_cpu import torchvision

v2 = torchvision.transforms.v2
Box = tuple[int, int, int, int]


def test_a_resize_by_the_shorter_side_has_torchvisions_size() -> None:
    draw = np.random.default_rng(1)
    sizes = [(1, 1), (1, 4000), (4000, 1), (375, 500), (500, 375), (333, 500), (3, 7)]
    sizes += [(int(h), int(w)) for h, w in draw.integers(1, 2000, (150, 2))]
    for height, width in sizes:
        image = Image.new("1", (width, height))
        for size, max_size in ((1, None), (97, None), (256, None), (256, 257), (97, 131)):
            if size * max(height, width) / min(height, width) > 10**5:
                continue
            theirs = (
                v2.functional.resize(image, [size], max_size=max_size).size
                if _has_pixels(height, width, size, max_size)
                else (1, max_size)
                if width <= height
                else (max_size, 1)
            )
            ours = fuse([sp.Resize(size, max_size=max_size)], (height, width)).image.size_px
            assert ours[::-1] == theirs, (height, width, size, max_size)


def _has_pixels(height: int, width: int, size: int, max_size: int | None) -> bool:
    """Whether torchvision's shorter side is at least one pixel: below that it fails, and standpipe keeps one."""
    longer = int(size * max(height, width) / min(height, width))
    return max_size is None or longer <= max_size or int(max_size * size / longer) > 0


def test_decoded_images_are_resized_and_cut_as_torchvision_does(tmp_path: Path) -> None:
    """The kernel works sizes out by itself, per image; a wrong one shows in every pixel."""
    draw = np.random.default_rng(2)
    images = [photo(int(h), int(w)) for h, w in draw.integers(1, 70, (80, 2))]
    source = listed(tmp_path, [saved(image, "PPM") for image in images], suffix=".ppm")
    for resize, window in (
        (sp.Resize(23), sp.CenterCrop((23, 22))),
        (sp.Resize(23, max_size=24), sp.CenterCrop((30, 21))),
        (sp.Resize(50, max_size=57), sp.CenterCrop((17, 50))),
        (None, sp.CenterCrop((31, 32))),
        (None, sp.CenterCrop((40, 25))),
    ):
        rows = delivered(in_order(source, *([resize] if resize else []), window))
        for pixels, row in zip(images, rows, strict=True):
            image = Image.fromarray(pixels)
            if resize is not None:
                image = v2.functional.resize(image, [resize.size], max_size=resize.max_size)
            image = v2.functional.center_crop(image, list(window.output_px))
            assert explain_difference(row, np.asarray(image)) == "", (pixels.shape, resize, window)


HEIGHT, WIDTH = 64, 90


def drawn_boxes(crop: sp.RandomResizedCrop, size: tuple[int, int], count: int, seed: int = 0) -> list[Box]:
    """The loader's boxes, read from its pixels: red is a pixel's column and green its row."""
    height, width = size
    assert max(size) <= 256
    y, x = np.mgrid[:height, :width]
    picture = np.stack([x, y, x], axis=-1).astype(np.uint8)
    side = max(size) // 2 + 1  # so many outputs have the first and the last in the box's first and last pixel
    crop = sp.RandomResizedCrop(side, scale=crop.scale, ratio=crop.ratio, interpolation="nearest")
    source = sp.Arrays(image=np.broadcast_to(picture, (count, *picture.shape)).copy())
    rows = delivered(in_order(source, crop, seed=seed))
    return [
        (int(row[0, 0, 0]), int(row[0, 0, 1]), int(row[-1, -1, 0]) + 1, int(row[-1, -1, 1]) + 1)
        for row in rows
    ]


@pytest.mark.parametrize(
    ("crop", "size"),
    [
        (sp.RandomResizedCrop(1), (HEIGHT, WIDTH)),
        (sp.RandomResizedCrop(1, scale=(0.5, 1.0), ratio=(1.0, 1.0)), (60, 60)),
        (sp.RandomResizedCrop(1, scale=(0.9, 1.0)), (20, 200)),
        (sp.RandomResizedCrop(1, scale=(0.9, 1.0)), (200, 20)),
        (sp.RandomResizedCrop(1, scale=(1.0, 1.0), ratio=(0.5, 0.6)), (90, 50)),
        (sp.RandomResizedCrop(1, scale=(1e-9, 1e-9)), (9, 9)),
        (sp.RandomResizedCrop(1), (1, 1)),
        (sp.RandomResizedCrop(1), (3, 250)),
    ],
    ids=lambda value: repr(value) if isinstance(value, tuple) else "",
)
def test_boxes_are_drawn_by_the_documented_rule(crop: sp.RandomResizedCrop, size: tuple[int, int]) -> None:
    boxes = drawn_boxes(crop, size, 150, seed=2**64 - 1)
    expected = [
        crop_box(crop, size[::-1], Sample(2**64 - 1, 0, position).draws(ops([crop])[0]))
        for position in range(150)
    ]
    assert boxes == expected


def flips(*transforms: sp.RandomHorizontalFlip, seed: int = 0, epoch: int = 0) -> list[bool]:
    """Which of 2,000 rows arrive mirrored."""
    picture = np.zeros((2000, 1, 2, 3), np.uint8)
    picture[:, :, 1] = 255
    rows = delivered(in_order(sp.Arrays(image=picture), *transforms, seed=seed), epoch=epoch)
    return [bool(row[0, 0, 0]) for row in rows]


def test_flips_are_drawn_by_the_documented_rule() -> None:
    for seed, epoch in ((0, 0), (7, 3)):
        for p in (0.1, 0.5):
            flip = sp.RandomHorizontalFlip(p)
            found = flips(flip, seed=seed, epoch=epoch)
            numbers = range(len(found))
            assert found == [mirrors(flip, Sample(seed, epoch, n).draws(ops([flip])[0])) for n in numbers]
            assert abs(sum(found) / len(found) - p) < 4 * math.sqrt(p * (1 - p) / len(found))
    assert not any(flips(sp.RandomHorizontalFlip(0.0)))
    assert all(flips(sp.RandomHorizontalFlip(1.0)))


def test_draws_differ_between_seeds_epochs_and_flips_of_one_pipeline() -> None:
    flip = sp.RandomHorizontalFlip()
    streams = [flips(flip), flips(flip, seed=1), flips(flip, epoch=1), flips(flip, seed=1, epoch=1)]
    both = flips(flip, flip)
    streams.append([one != two for one, two in zip(streams[0], both, strict=True)])  # the second flip alone
    for n, one in enumerate(streams):
        for other in streams[:n]:
            same = sum(a == b for a, b in zip(one, other, strict=True))
            assert 880 < same < 1120  # half of 2,000, and more than 5 deviations on either side


def test_a_transform_that_draws_nothing_changes_no_draws() -> None:
    crop = sp.RandomResizedCrop(256, interpolation="nearest")
    pixels = np.arange(50 * 60, dtype=np.uint8).reshape(1, 50, 60, 1)
    source = sp.Arrays(image=np.broadcast_to(pixels, (40, 50, 60, 3)).copy())
    alone = delivered(in_order(source, crop))
    between = delivered(in_order(source, sp.Resize((50, 60)), crop, sp.CenterCrop(256)))
    assert all(np.array_equal(one, two) for one, two in zip(alone, between, strict=True))
