"""``RandomAffine(size=…)`` has the YOLO family's matrix and OpenCV's pixels, whatever the image's size is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import standpipe as sp
from draws import Draws, Sample
from photos import encoded, picture
from reference import decoded, delivered, in_order, listed
from standpipe.spec import AnyArray, UInt8Array
from standpipe.transform import simd_paths

SEED = 4
FILL = (9, 100, 255)
MODES = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR}
INPUTS, OUTPUTS = ((1, 7), (33, 48), (90, 41)), ((48, 61), (20, 9))
HALF = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])  # from pixels' centres, OpenCV's places, to corners

needs_fixed_point = pytest.mark.skipif(
    int(cv2.__version__.split(".")[0]) > 4,
    reason="OpenCV 5 warps with floats: install opencv-python-headless<5",
)


def noise(seed: int, *shape: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def drawn(position: int) -> Draws:
    draws = Sample(SEED, 0, position).draws(26 << 16)
    draws.uniform()
    return draws


def of_the_family(
    draws: Draws, before: tuple[int, int], after: tuple[int, int], perspective: float
) -> AnyArray:
    """Return T·S·R·P·C of ultralytics, in pixels from the corner; turns and shears are torchvision's way round."""
    (height, width), (out_height, out_width) = before, after
    angle = math.radians(draws.uniform(-30, 30))
    translate = [draws.uniform(-0.2, 0.2), draws.uniform(-0.3, 0.3)]
    scale = draws.uniform(0.5, 1.5)
    shears = [math.tan(math.radians(draws.uniform(-10, 10))), math.tan(math.radians(draws.uniform(-5, 5)))]
    centre, tilt, turn, shear, move = np.tile(np.eye(3), (5, 1, 1))
    centre[:2, 2] = -width / 2, -height / 2
    tilt[2, :2] = [draws.uniform(-perspective, perspective) for _ in range(2)]
    turn[:2] = cv2.getRotationMatrix2D((0, 0), -math.degrees(angle), scale)
    shear[0, 1], shear[1, 0] = -shears[0], -shears[1]
    move[:2, 2] = (0.5 + translate[0]) * out_width, (0.5 + translate[1]) * out_height
    return move @ shear @ turn @ tilt @ centre


def affine(**parameters: Any) -> sp.RandomAffine:
    return sp.RandomAffine(
        30, (0.2, 0.3), (0.5, 1.5), (-10, 10, -5, 5), fill=FILL, pixels="opencv", **parameters
    )


@needs_fixed_point
@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("interpolation", MODES)
@pytest.mark.parametrize("perspective", [0.0, 2e-3])
def test_pixels_are_opencvs_by_the_familys_matrix(perspective: float, interpolation: str, simd: str) -> None:
    """The last bit of a coefficient may decide between two places, which are 1/32 pixels apart."""
    different = total = 0
    for before in INPUTS:
        for after in OUTPUTS:
            images = noise(3, 8, *before, 3)
            warp = affine(interpolation=interpolation, size=after, perspective=perspective)
            rows = delivered(in_order(sp.Arrays(image=images), warp, seed=SEED), simd=simd)
            for position, (image, row) in enumerate(zip(images, rows, strict=True)):
                matrix = np.linalg.inv(HALF) @ of_the_family(drawn(position), before, after, perspective)
                options = {"flags": MODES[interpolation], "borderValue": FILL}
                if perspective:
                    wanted = cv2.warpPerspective(image, matrix @ HALF, after[::-1], **options)
                else:
                    wanted = cv2.warpAffine(image, (matrix @ HALF)[:2], after[::-1], **options)
                assert row.shape == wanted.shape
                different += int((row != wanted).any(axis=-1).sum())
                total += row.size // 3
    assert different <= 0.005 * total


def test_images_of_different_sizes_get_one_size(tmp_path: Path) -> None:
    files = [encoded(picture(*each)) for each in ((1, 32, 48), (2, 91, 40), (3, 20, 21))]
    rows = delivered(in_order(listed(tmp_path, files), affine(size=(31, 40)), seed=SEED))
    for position, data in enumerate(files):
        image = np.repeat(np.asarray(decoded(data))[None], len(files), axis=0)
        alone = delivered(in_order(sp.Arrays(image=image), affine(size=(31, 40)), seed=SEED))
        assert np.array_equal(rows[position], alone[position])


def test_the_centre_goes_to_the_centre() -> None:
    image = np.zeros((1, 40, 60, 3), np.uint8)
    image[:, 19:21, 29:31] = 255
    (row,) = delivered(in_order(sp.Arrays(image=image), sp.RandomAffine(180, pixels="opencv", size=(24, 88))))
    y, x = np.nonzero(row[..., 0])
    assert (y.mean() + 0.5, x.mean() + 0.5) == (12, 44)


def test_stages_before_and_behind_have_their_sizes() -> None:
    """A warp that does nothing pads or crops; colours take place before and behind it."""
    images = noise(5, 4, 50, 40, 3)

    def sized(height: int, width: int, fill: int) -> sp.RandomAffine:
        return sp.RandomAffine(0, fill=fill, pixels="opencv", size=(height, width))

    steps = [sized(130, 122, 1), sp.RandomInvert(1.0), sized(10, 8, 2), sp.RandomVerticalFlip(1.0)]
    steps += [sized(250, 252, 3), sp.CenterCrop((200, 210))]
    wanted = np.full((4, 200, 210, 3), 3, np.uint8)
    wanted[:, 95:105, 101:109] = 255 - images[:, 29:19:-1, 16:24]
    assert np.array_equal(delivered(in_order(sp.Arrays(image=images), *steps)), wanted)


def test_masks_get_the_size() -> None:
    image = np.repeat(noise(5, 3, 33, 48, 1), 3, axis=-1)
    source = sp.Arrays(image=image, mask=image[..., 0].copy())
    warp = sp.RandomAffine(40, (0.2, 0.2), (0.6, 1.6), fill=255, pixels="opencv", size=(50, 40))
    with in_order(source, warp).batch(3).loader() as loader:
        batch = loader.peek()
    assert batch["mask"].shape == (3, 50, 40)
    assert np.array_equal(batch["image"][..., 0], batch["mask"])


def test_newer_parameters_are_no_part_of_older_descriptions() -> None:
    assert repr(sp.RandomAffine(3)).endswith("fill=0, center=None)")
    assert repr(affine(size=8)).endswith("center=None, pixels='opencv', size=8)")


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.RandomAffine(1, size=9), r"size=9.*pixels='opencv'"),
        (affine(size=0), r"size=0.*\(height, width\)"),
        (affine(size=9, center=(2, 2)), r"center=\(2, 2\).*None with size="),
        (affine(perspective=0.1), r"perspective=0.1.*without size="),
        (affine(size=9, perspective=-0.1), r"perspective=-0.1.*from 0 to 1"),
        (sp.RandomApply([affine(size=9)]), r"can't contain .*changes the size"),
    ],
)
def test_invalid_parameters_are_refused(transform: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(sp.Arrays(image=noise(0, 2, 12, 12, 3))).map(transform).batch(1).plan()
