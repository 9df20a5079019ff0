"""``LetterBox`` has the sizes and places of the YOLO family and OpenCV's pixels, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from draws import Sample
from letter_boxes import letter_boxed, loaded
from model.pictures import transformed
from painted import painted
from photos import encoded, picture
from reference import decoded, delivered, in_order, listed
from standpipe.spec import UInt8Array
from standpipe.transform import simd_paths
from standpipe.transform.kernels.fuse import fuse

FILL = (9, 100, 255, 3)
# Halves, whole multiples, a row or column alone, and sizes of all kinds.
SIZES = ((1, 1), (1, 90), (70, 1), (2, 2), (24, 32), (23, 33), (64, 48), (33, 130), (300, 41))
TARGETS = ((1, 1), (32, 32), (48, 31), (12, 16), (64, 161))
MOST = {"memory": "256MiB"}


def noise(seed: int, *shape: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def rows_of(images: UInt8Array, *steps: Any, **options: Any) -> list[Any]:
    return delivered(in_order(sp.Arrays(image=images), *steps), **options)


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_letter_boxes_are_those_of_the_yolo_family(channels: int, simd: str) -> None:
    fill = FILL[:channels]
    for number, (shape, size) in enumerate((shape, size) for shape in SIZES for size in TARGETS):
        images, scaleup, center = noise(number, 2, *shape, channels), number % 2 == 0, number % 3 > 0
        made = rows_of(images, sp.LetterBox(size, fill, scaleup, center), simd=simd)
        for image, row in zip(images, made, strict=True):
            wanted = letter_boxed(image, size, fill, scaleup=scaleup, center=center)
            assert np.array_equal(row, wanted), (shape, size, scaleup, center)


@pytest.mark.parametrize("simd", simd_paths())
def test_any_sizes_have_opencvs_pixels(simd: str) -> None:
    random = np.random.default_rng(1)
    for number in range(150):
        shape, size = random.integers(1, 120, 2), (int(random.integers(1, 200)), int(random.integers(1, 200)))
        images = noise(number, 1, *shape, 3)
        (row,) = rows_of(images, sp.LetterBox(size), simd=simd)
        assert np.array_equal(row, letter_boxed(images[0], size)), (shape, size)


def test_frames_are_those_of_the_loader_of_the_yolo_family() -> None:
    for shape in SIZES:
        images = noise(2, 2, *shape, 3)
        for size in (1, 17, 32, 100):
            frame = sp.LetterBox(size, pad=False)
            for image, row in zip(images, rows_of(images, frame), strict=True):
                assert np.array_equal(row, loaded(image, size)), (shape, size)
            both = rows_of(images, frame, sp.LetterBox(size))
            assert np.array_equal(both[0], letter_boxed(loaded(images[0], size), (size, size)))
    assert rows_of(noise(2, 1, 20, 30, 3), sp.LetterBox(60, scaleup=False, pad=False))[0].shape == (20, 30, 3)


def test_files_become_frames_of_differing_sizes(tmp_path: Path) -> None:
    source = painted(tmp_path, 9)
    opened = sp.Pipeline(source).map(sp.LetterBox(64, pad=False))
    with pytest.raises(sp.PlanError, match="size"):
        opened.batch(9).plan()
    pipeline = opened.batch(9, collate={"image": sp.Pad(to_multiple_of=32, max_shape=(64, 64, 3))})
    with pipeline.loader(**MOST) as loader:
        images = loader.peek()["image"].copy()
    for number, row in enumerate(images):
        stored = np.asarray(Image.open(tmp_path / "images" / f"{number:04d}.jpg"))
        wanted = loaded(stored, 64)
        assert np.array_equal(row[: wanted.shape[0], : wanted.shape[1]], wanted)
        assert not row[wanted.shape[0] :].any()
        assert not row[:, wanted.shape[1] :].any()


@pytest.mark.parametrize("simd", simd_paths())
def test_other_steps_of_the_same_pass(simd: str) -> None:
    """A zoomed-out canvas is resized without being made, and a flip moves an odd column of padding."""
    before = [sp.RandomZoomOut(FILL[:3], (1.0, 3.0), 0.8), sp.RandomHorizontalFlip()]
    letter, flip = sp.LetterBox((40, 51), FILL[:3]), sp.RandomHorizontalFlip(1)
    assert len(fuse([*before, letter, flip], None).image.stages) == 1
    for shape in SIZES:
        images = noise(3, 8, *shape, 3)
        rows = delivered(in_order(sp.Arrays(image=images), *before, letter, flip, seed=5), simd=simd)
        for position, (image, row) in enumerate(zip(images, rows, strict=True)):
            canvas = np.asarray(transformed(Image.fromarray(image), before, Sample(5, 0, position)))
            assert np.array_equal(row[:, ::-1], letter_boxed(canvas, (40, 51), FILL[:3])), (shape, position)


def test_masks_have_the_nearest_pixels_of_opencv() -> None:
    for shape in SIZES:
        for size in TARGETS:
            masks = noise(4, 2, *shape)
            source = sp.Arrays(image=noise(4, 2, *shape, 3), mask=masks)
            with in_order(source, sp.LetterBox(size)).batch(2).loader(**MOST) as loader:
                found = loader.peek()["mask"].copy()
            for mask, row in zip(masks, found, strict=True):
                wanted = letter_boxed(mask, size, 255, interpolation=cv2.INTER_NEAREST)
                assert np.array_equal(row, wanted), (shape, size)
    (row,) = rows_of(noise(4, 1, 9, 7, 3), sp.LetterBox(20, interpolation="nearest"))
    assert np.array_equal(
        row, letter_boxed(noise(4, 1, 9, 7, 3)[0], (20, 20), interpolation=cv2.INTER_NEAREST)
    )


def test_pictures_at_another_scale_are_refused() -> None:
    source = sp.Arrays(image=noise(4, 1, 8, 8, 3), mask=noise(4, 1, 4, 4))
    pipeline = in_order(source, sp.LetterBox(8)).decode(scale={"mask": 1 / 2}).batch(1)
    with pytest.raises(sp.PlanError, match="no exact counterpart"):
        pipeline.plan()


@pytest.mark.parametrize("center", [True, False])
def test_painted_rectangles_stay_in_their_boxes(center: bool, tmp_path: Path) -> None:
    source = painted(tmp_path, 20, most=1)
    stored = source.open().locate(np.arange(20)).ragged["boxes"].values
    pipeline = sp.Pipeline(source).map(sp.LetterBox((75, 96), 0, center=center)).batch(20)
    with pipeline.loader(**MOST) as loader:
        batch = {name: np.array(value) for name, value in loader.peek().items()}
    for row, (left, top, right, bottom) in zip(batch["batch_index"], batch["boxes"], strict=True):
        y, x = np.nonzero(batch["image"][row].min(axis=-1) > 60)
        assert (
            np.abs(np.array([x.min(), y.min(), x.max() + 1, y.max() + 1]) - (left, top, right, bottom)).max()
            <= 1
        )
    there = sp.boxes_to_original(batch["boxes"], batch, batch["batch_index"])
    assert np.abs(there - stored).max() < 1e-3
    ratios, before = sp.ratio_pad(batch)
    assert (before >= 0).all()
    assert np.abs(ratios[:, 0] / ratios[:, 1] - 1).max() < 0.02


def test_photos_are_decoded_whole(tmp_path: Path) -> None:
    """``decode("exact")`` takes no smaller picture out of a JPEG, as OpenCV's decoder takes none."""
    photo = encoded(picture(1, 150, 200))
    rows = delivered(in_order(listed(tmp_path, [photo]), sp.LetterBox(24)))
    assert np.array_equal(rows[0], letter_boxed(np.asarray(decoded(photo)), (24, 24)))


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (sp.LetterBox(0), "size must be an int or"),
        (sp.LetterBox(8, fill=256), "fill must be a level"),
        (sp.LetterBox(8, fill=(1, 2)), "fill must have 3 numbers"),
        (sp.LetterBox(8, scaleup=1), "scaleup must be True or False"),  # type: ignore[arg-type]
        (sp.LetterBox(8, center=None), "center must be True or False"),  # type: ignore[arg-type]
        (sp.LetterBox(8, pad=0), "pad must be True or False"),  # type: ignore[arg-type]
        (sp.LetterBox(8, interpolation="bicubic"), "one of 'nearest', 'bilinear'"),  # type: ignore[arg-type]
        (sp.LetterBox(8, mask_fill=-1), "mask_fill must be"),
    ],
    ids=repr,
)
def test_parameters_are_checked(transform: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        in_order(sp.Arrays(image=noise(0, 2, 9, 9, 3)), transform).plan()
