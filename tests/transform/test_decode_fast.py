"""``decode("fast")``: JPEGs at 1/2, 1/4 or 1/8 of their size, where the crop still has the pixels asked for."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile

import standpipe as sp
from draws import Sample, crop_box, mirrors, ops
from jpegs import kinds, photo, saved
from reference import SAMPLE, decoded, delivered, explain_difference, in_order, listed, needs_sample
from standpipe.spec import AnyArray, UInt8Array

Box = tuple[int, int, int, int]


def denominator(box: Box, height: int, width: int) -> int:
    """The documented rule: the largest at which the box still has as many pixels as it is resized to."""
    have_w, have_h = box[2] - box[0], box[3] - box[1]
    return next((d for d in (8, 4, 2) if have_w >= width * d and have_h >= height * d), 1)


def scaled(data: bytes, by: int) -> Image.Image:
    """The whole image as libjpeg decodes it at ``1/by``, through Pillow."""
    with Image.open(io.BytesIO(data)) as image:
        width, height = -(-image.size[0] // by), -(-image.size[1] // by)
        image.decoderconfig = (by, 0)
        image._size = (width, height)
        image.tile = [
            ImageFile._Tile(t.codec_name, (0, 0, width, height), t.offset, t.args) for t in image.tile
        ]
        return image.convert("RGB")


def box_of(image: Image.Image, box: Box, by: int, height: int, width: int) -> UInt8Array:
    """What a box of the full-size image becomes, from the image at ``1/by``."""
    left, top = box[0] // by, box[1] // by
    right, bottom = min(-(-box[2] // by), image.size[0]), min(-(-box[3] // by), image.size[1])
    inside = (
        box[0] / by - left,
        box[1] / by - top,
        min(box[2] / by, image.size[0]) - left,
        min(box[3] / by, image.size[1]) - top,
    )
    cut = image.crop((left, top, right, bottom))
    return np.asarray(cut.resize((width, height), Image.Resampling.BILINEAR, box=inside))


def test_every_kind_of_jpeg_is_libjpegs_own_smaller_picture(tmp_path: Path) -> None:
    """Within one level: Pillow chooses the order of passes by the smaller picture, standpipe by the file's."""
    height, width = 131, 150
    crop, flip = sp.RandomResizedCrop((7, 9), scale=(0.01, 1.0)), sp.RandomHorizontalFlip()
    crop_op, flip_op = ops([crop, flip])
    files = kinds(height, width)
    rows = delivered(in_order(listed(tmp_path, list(files.values()), times=6), crop, flip).decode("fast"))
    smaller: dict[tuple[str, int], Image.Image] = {}
    seen = dict.fromkeys((1, 2, 4, 8), 0)
    equal = 0
    for position, row in enumerate(rows):
        name = list(files)[position % len(files)]
        sample = Sample(0, 0, position)
        box = crop_box(crop, (width, height), sample.draws(crop_op))
        by = denominator(box, 7, 9)
        seen[by] += 1
        if (name, by) not in smaller:
            smaller[name, by] = scaled(files[name], by)
        expected = box_of(smaller[name, by], box, by, 7, 9)
        if mirrors(flip, sample.draws(flip_op)):
            expected = expected[:, ::-1]
        equal += np.array_equal(row, expected)
        assert np.abs(row.astype(int) - expected).max() <= 1, (name, by, explain_difference(row, expected))
    assert all(seen.values())
    assert equal > 0.75 * len(rows)


def test_it_is_exact_where_it_can_not_scale(tmp_path: Path) -> None:
    large, small = saved(photo(300, 400)), saved(photo(120, 120))
    exact_files = {
        "smaller than twice the output": (small, sp.RandomResizedCrop(61)),
        "no resize": (large, sp.CenterCrop(40)),
        "one side too short": (large, sp.Resize((151, 10))),
        "a PNG": (saved(photo(300, 400), "PNG"), sp.Resize((30, 40))),
    }
    for name, (data, transform) in exact_files.items():
        pipeline = in_order(listed(tmp_path, [data], times=4), transform)
        both = zip(delivered(pipeline.decode("fast")), delivered(pipeline), strict=True)
        assert all(np.array_equal(fast, exact) for fast, exact in both), name
    pipeline = in_order(listed(tmp_path, [large]), sp.Resize((150, 10)))
    assert not np.array_equal(delivered(pipeline.decode("fast")), delivered(pipeline))
    array = in_order(sp.Arrays(image=photo(300, 400)[None]), sp.Resize((30, 40)))
    assert np.array_equal(delivered(array.decode("fast")), delivered(array))


def errors(files: Mapping[str, bytes], folder: Path) -> tuple[list[AnyArray], list[AnyArray]]:
    """Absolute differences from exact decoding, per row: those that were decoded smaller, and the others."""
    crop = sp.RandomResizedCrop(224)
    pipeline = in_order(listed(folder, list(files.values()), times=5), crop)
    sizes = [decoded(data).size for data in files.values()]
    reduced, others = [], []
    for position, (fast, exact) in enumerate(
        zip(delivered(pipeline.decode("fast")), delivered(pipeline), strict=True)
    ):
        box = crop_box(crop, sizes[position % len(sizes)], Sample(0, 0, position).draws(ops([crop])[0]))
        difference = np.abs(fast.astype(np.int16) - exact.astype(np.int16))
        (reduced if denominator(box, 224, 224) > 1 else others).append(difference)
    return reduced, others


def state(name: str, reduced: list[AnyArray]) -> tuple[float, int]:
    mean, most = float(np.mean(reduced)), int(np.max(reduced))
    above = float(np.mean(np.stack(reduced) > 8))
    print(
        f"{name}, {len(reduced)} crops decoded smaller: mean {mean:.2f}, largest {most}, {above:.2%} above 8"
    )
    return mean, most


def test_its_error_on_large_synthetic_photos(tmp_path: Path) -> None:
    files = {
        name: saved(photo(960, 1280, seed=seed), quality=90, subsampling=name)
        for seed, name in enumerate(("4:4:4", "4:2:2", "4:2:0"))
    }
    reduced, others = errors(files, tmp_path)
    assert len(reduced) >= 3
    assert not np.any(others)
    mean, most = state("synthetic photos with hard edges", reduced)
    assert 0 < mean < 1.5
    assert most < 30


@needs_sample
def test_its_error_on_real_photos(tmp_path: Path) -> None:
    """Enlarged threefold, since few of them are large."""
    files = {}
    for path in sorted(SAMPLE.glob("*/*"))[::40]:
        image = decoded(path.read_bytes())
        image = image.resize((image.size[0] * 3, image.size[1] * 3), Image.Resampling.BICUBIC)
        files[path.name] = saved(np.asarray(image), quality=90)
    reduced, others = errors(files, tmp_path)
    assert len(reduced) >= 10
    assert not np.any(others)
    mean, most = state("real photos, enlarged", reduced)
    assert 0 < mean < 1
    assert most < 50
