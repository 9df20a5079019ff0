"""The pixel contract: standpipe's images are, bit for bit, what Pillow's crop and resize give."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

import standpipe as sp
from draws import Geometric, Sample, crop_box, ops
from jpegs import Coding, encode, kinds, photo, saved
from model.pictures import FILTERS, transformed
from reference import (
    SAMPLE,
    check_rows,
    decoded,
    delivered,
    explain_difference,
    in_order,
    listed,
    needs_sample,
)
from standpipe.transform import simd_paths

TRAIN = (sp.RandomResizedCrop(224), sp.RandomHorizontalFlip())
EVAL = (sp.Resize(256), sp.CenterCrop(224))
SMALL_BOXES = (sp.RandomResizedCrop((30, 41), scale=(0.001, 0.2), ratio=(0.2, 5)), sp.RandomHorizontalFlip())
LARGE_BOXES = (sp.RandomResizedCrop((30, 41), scale=(0.5, 1.0)), sp.RandomHorizontalFlip())

# (height, width): one pixel, one row, one column, one block, whole and broken MCUs.
SIZES = [(1, 1), (2, 3), (8, 8), (15, 17), (16, 33), (64, 64), (75, 101), (1, 200), (200, 1)]


@needs_sample
@pytest.mark.parametrize(
    ("transforms", "epochs"),
    [
        pytest.param(TRAIN, (0, 1, 89), id="train"),
        pytest.param(EVAL, (0,), id="eval", marks=pytest.mark.long),
    ],
)
def test_real_photos_are_as_pillow_has_them(transforms: Sequence[Geometric], epochs: Sequence[int]) -> None:
    plan = (
        sp.Pipeline(sp.ImageFolder(SAMPLE), seed=7)
        .map(*transforms)
        .batch(50)
        .plan(memory="128MiB", num_workers=2)
    )
    loaders = [sp.Loader(plan) for _ in epochs]
    for loader, epoch in zip(loaders, epochs, strict=True):
        loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
    compared, wrong = 0, []
    for batches in zip(*loaders, strict=True):
        for row, index in enumerate(batches[0]["index"].tolist()):
            path = plan.source.name(index)
            assert path is not None
            image = decoded(Path(path).read_bytes())
            for epoch, batch in zip(epochs, batches, strict=True):
                expected = transformed(image, transforms, Sample(7, epoch, index))
                compared += 1
                if difference := explain_difference(batch["image"][row], expected):
                    wrong.append(f"{path}, epoch {epoch}: {difference}")
    for loader in loaders:
        loader.close()
    assert compared == plan.source.num_records * len(epochs)
    assert not wrong, "\n".join([f"{len(wrong)} of {compared} images", *wrong[:10]])


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[1]}x{size[0]}")
def test_every_kind_of_jpeg_is_as_pillow_has_it(size: tuple[int, int], tmp_path: Path) -> None:
    files = kinds(*size)
    images = {name: decoded(data) for name, data in files.items()}
    source = listed(tmp_path, list(files.values()), times=5)
    for transforms in (SMALL_BOXES, LARGE_BOXES):
        check_rows(delivered(in_order(source, *transforms)), images, transforms)
    source = listed(tmp_path, list(files.values()))
    for whole in ((sp.Resize(20), sp.CenterCrop(18)), (sp.Resize((9, 60)),), (sp.CenterCrop((40, 31)),)):
        check_rows(delivered(in_order(source, *whole)), images, whole)


@pytest.mark.parametrize("size", [(1, 4000), (4000, 1)])
def test_long_strips(size: tuple[int, int], tmp_path: Path) -> None:
    strip = photo(*size)
    files = {name: saved(strip, subsampling=name) for name in ("4:4:4", "4:2:2", "4:2:0")}
    images = {name: decoded(data) for name, data in files.items()}
    source = listed(tmp_path, list(files.values()), times=10)
    for transforms in (
        TRAIN,
        SMALL_BOXES,
        (sp.Resize((7, 5)),),
        (sp.Resize(1, max_size=300), sp.CenterCrop(9)),
    ):
        check_rows(delivered(in_order(source, *transforms)), images, transforms)


@pytest.mark.parametrize("kind", ["4:2:0", "4:2:2", "4:1:1 by hand", "4:4:0 by hand"])
def test_boxes_at_every_edge_and_of_one_pixel(kind: str, tmp_path: Path) -> None:
    image = kinds(64, 64)[kind]
    source = listed(tmp_path, [image], times=120)
    width = height = 64
    seen: set[tuple[bool, bool, bool, bool]] = set()
    one_pixel = 0
    for scale in ((0.6, 1.0), (0.0001, 0.0004), (0.0001, 1.0)):
        crop = sp.RandomResizedCrop(24, scale=scale)
        for position in range(120):
            box = crop_box(crop, (width, height), Sample(0, 0, position).draws(ops([crop])[0]))
            left, top, right, bottom = box
            seen.add((left == 0, top == 0, right == width, bottom == height))
            one_pixel += (right - left, bottom - top) == (1, 1)
        check_rows(delivered(in_order(source, crop)), {kind: decoded(image)}, [crop])
    corners = {(True, True, False, False), (False, True, True, False)}
    corners |= {(True, False, False, True), (False, False, True, True)}
    edges = {tuple(place == edge for place in range(4)) for edge in range(4)}
    assert corners | edges <= seen
    assert one_pixel > 30


def test_every_pixel_of_inverted_cmyk(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (160, 160, 4), np.uint8)
    data = encode(noise, Coding(factors=((1, 1),) * 4, adobe=0, step=8))
    (ours,) = delivered(in_order(listed(tmp_path, [data]), sp.CenterCrop(160)))
    assert explain_difference(ours, np.asarray(decoded(data))) == ""


@pytest.mark.parametrize("scans", ["dc only", "progressive"])
def test_a_crop_of_a_jpeg_that_lacks_scans_is_a_crop_of_the_whole(scans: str, tmp_path: Path) -> None:
    """What is missing is smoothed over from block to block, so a crop needs blocks far around it."""
    crop = sp.RandomResizedCrop((30, 40), scale=(0.01, 0.5))
    for first in ((1, 1), (2, 1), (2, 2), (1, 2)):
        data = encode(photo(90, 120), Coding(factors=(first, (1, 1), (1, 1)), scans=scans))
        (whole,) = delivered(in_order(listed(tmp_path, [data]), sp.Resize((90, 120))))
        rows = delivered(in_order(listed(tmp_path, [data], times=20), crop))
        check_rows(rows, {f"{first}": Image.fromarray(whole)}, [crop])


def noise(height: int, width: int) -> np.ndarray:
    """Every value, and more of the extremes, at which sums are clipped."""
    values = np.random.default_rng([height, width]).integers(-200, 456, (height, width, 3))
    return np.clip(values, 0, 255).astype(np.uint8)


# (height, width) before and after: smaller, larger, one of each; with the vertical pass first and last.
RESIZES = [
    ((60, 80), (20, 30)),
    ((200, 40), (33, 35)),
    ((40, 200), (35, 33)),
    ((20, 30), (60, 80)),
    ((90, 20), (30, 70)),
    ((20, 90), (70, 30)),
    ((50, 60), (50, 17)),
    ((50, 60), (17, 60)),
    ((50, 60), (50, 60)),
    ((1, 1), (9, 9)),
    ((7, 500), (3, 2)),
    ((500, 7), (2, 3)),
    ((300, 301), (1, 1)),
]


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("interpolation", FILTERS)
def test_every_interpolation(interpolation: str, simd: str) -> None:
    for before, after in RESIZES:
        pixels = noise(*before)
        resize = sp.Resize(after, interpolation=interpolation)
        (ours,) = delivered(in_order(sp.Arrays(image=pixels[None]), resize), simd=simd)
        expected = transformed(Image.fromarray(pixels), [resize], Sample())
        assert explain_difference(ours, expected) == "", (before, after)


@pytest.mark.parametrize("interpolation", FILTERS)
def test_a_window_of_a_resize_is_cut_out_of_the_whole(interpolation: str) -> None:
    for before, after in RESIZES:
        pixels = noise(*before)
        middle = sp.CenterCrop((after[0] // 2 + 1, after[1] // 2 + 1))
        transforms = (sp.Resize(after, interpolation=interpolation), middle)
        (ours,) = delivered(in_order(sp.Arrays(image=pixels[None]), *transforms))
        expected = transformed(Image.fromarray(pixels), transforms, Sample())
        assert explain_difference(ours, expected) == "", (before, after)


@pytest.mark.parametrize("interpolation", FILTERS)
def test_the_last_bit_of_every_weight(interpolation: str) -> None:
    """It turns one byte in a million: Hamming's single-precision constants show nowhere else."""
    pixels = noise(1500, 1500)
    resize = sp.Resize((1499, 1498), interpolation=interpolation)
    (ours,) = delivered(in_order(sp.Arrays(image=pixels[None]), resize).batch(1))
    assert explain_difference(ours, transformed(Image.fromarray(pixels), [resize], Sample())) == ""


def test_the_order_of_passes_changes_where_pillow_changes_it() -> None:
    draw = np.random.default_rng(13)
    for _ in range(40):
        width, new_height, new_width = (int(side) for side in draw.integers(2, 40, 3))
        turning = new_height + max(2 * (width - new_width), 0)
        for height in (max(turning - 1, 1), turning, turning + 1):
            pixels = noise(height, width)
            resize = sp.Resize((new_height, new_width), interpolation="bicubic")
            (ours,) = delivered(in_order(sp.Arrays(image=pixels[None]), resize))
            expected = transformed(Image.fromarray(pixels), [resize], Sample())
            assert explain_difference(ours, expected) == "", (pixels.shape, resize)


sides = st.integers(1, 90)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.tuples(sides, sides), st.tuples(sides, sides), st.sampled_from(sorted(FILTERS)))
def test_any_size_to_any_size(before: tuple[int, int], after: tuple[int, int], interpolation: str) -> None:
    pixels = noise(*before)
    resize = sp.Resize(after, interpolation=interpolation)
    (ours,) = delivered(in_order(sp.Arrays(image=pixels[None]), resize))
    assert explain_difference(ours, transformed(Image.fromarray(pixels), [resize], Sample())) == ""


CHAINS = {
    "crop of a resized one": (sp.Resize(50), sp.RandomResizedCrop(40), sp.CenterCrop(33)),
    "flip, then crop": (sp.RandomHorizontalFlip(), sp.RandomResizedCrop(31), sp.RandomHorizontalFlip()),
    "two crops, two flips": (
        sp.RandomResizedCrop(60, interpolation="lanczos"),
        sp.RandomHorizontalFlip(),
        sp.RandomResizedCrop((20, 30), interpolation="nearest"),
        sp.RandomHorizontalFlip(0.3),
    ),
    "flips alone": (sp.CenterCrop(20), sp.RandomHorizontalFlip(), sp.RandomHorizontalFlip()),
    "padded and mirrored": (sp.CenterCrop((91, 128)), sp.RandomHorizontalFlip()),
    "padded on one side, cut on the other": (sp.CenterCrop((30, 201)), sp.RandomHorizontalFlip(1.0)),
    "padded, then resized": (sp.CenterCrop((130, 99)), sp.Resize((40, 50), interpolation="bicubic")),
    "mirrored, then padded": (sp.RandomHorizontalFlip(), sp.CenterCrop((95, 98)), sp.RandomHorizontalFlip()),
    "resized, padded, mirrored": (sp.Resize((21, 24)), sp.CenterCrop(29), sp.RandomHorizontalFlip()),
    "two windows": (sp.CenterCrop(64), sp.CenterCrop((33, 80)), sp.CenterCrop((40, 40))),
    "capped": (sp.Resize(60, max_size=70), sp.CenterCrop((44, 63))),
    "capped and padded": (sp.Resize(60, max_size=62), sp.CenterCrop(64), sp.RandomHorizontalFlip()),
    "three resizes": (sp.Resize(40), sp.Resize((70, 30), interpolation="box"), sp.Resize((30, 31))),
}


@pytest.mark.parametrize("transforms", CHAINS.values(), ids=CHAINS)
def test_chains_are_as_pillow_step_by_step(transforms: Sequence[Geometric], tmp_path: Path) -> None:
    files = {f"{h}x{w}": saved(photo(h, w)) for h, w in [(75, 101), (101, 75), (64, 64), (20, 90), (1, 3)]}
    files["PNG"] = saved(photo(60, 77), "PNG")
    images = {name: decoded(data) for name, data in files.items()}
    rows = delivered(in_order(listed(tmp_path, list(files.values()), times=6), *transforms, seed=3))
    check_rows(rows, images, transforms, seed=3)


@pytest.mark.parametrize("transforms", CHAINS.values(), ids=CHAINS)
def test_rows_of_arrays_take_the_same_way(transforms: Sequence[Geometric]) -> None:
    pixels = np.stack([photo(75, 101, seed=seed) for seed in range(12)])
    images = {str(row): Image.fromarray(pixels[row]) for row in range(12)}
    rows = delivered(in_order(sp.Arrays(image=pixels), *transforms, seed=3))
    check_rows(rows, images, transforms, seed=3)


def test_a_sample_is_drawn_by_its_position_and_not_by_its_number() -> None:
    pixels = np.stack([photo(40, 50, seed=seed) for seed in range(30)])
    pipeline = sp.Pipeline(sp.Arrays(image=pixels)).shuffle(seed=5).map(*LARGE_BOXES).batch(30)
    with pipeline.loader(memory="64MiB", num_workers=2) as loader:
        for epoch in range(3):
            (batch,) = loader
            order = batch["index"].tolist()
            assert order != sorted(order)
            for position, index in enumerate(order):
                sample = Sample(5, epoch, position)
                expected = transformed(Image.fromarray(pixels[index]), LARGE_BOXES, sample)
                assert explain_difference(batch["image"][position], expected) == ""
