"""Arrays as a source of the running loader: in memory and mapped, transformed and copied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from photos import encoded, picture, write_list
from standpipe.spec import AnyArray

ROWS = 13
RANDOM = np.random.default_rng(5)
FIELDS: Mapping[str, AnyArray] = {
    "image": np.stack([picture(seed, 20, 30) for seed in range(ROWS)]),
    "label": np.arange(ROWS) % 4,
    "half": RANDOM.normal(size=(ROWS, 3)).astype(np.float16),
    "single": RANDOM.normal(size=(ROWS, 2, 5)).astype(np.float32),
    "double": RANDOM.normal(size=ROWS),
    "complex": RANDOM.normal(size=(ROWS, 1)).astype(np.complex64),
    "flag": np.arange(ROWS) % 3 == 0,
    "marks": np.arange(ROWS * 6).reshape(ROWS, 2, 3) % 5 == 0,
    "small": np.arange(-6, ROWS - 6, dtype=np.int8),
    "wide": np.arange(ROWS * 3, dtype=np.uint64).reshape(ROWS, 3) + (1 << 63),
    "strided": np.arange(4 * ROWS, dtype=np.int32)[::4],
    "swapped": np.arange(ROWS, dtype=">i4"),
}


@pytest.fixture(params=["in memory", "mapped"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> sp.Arrays:
    if request.param == "in memory":
        return sp.Arrays(FIELDS)
    for name, array in FIELDS.items():
        np.save(tmp_path / f"{name}.npy", array)
    return sp.Arrays({name: tmp_path / f"{name}.npy" for name in FIELDS})


def epoch(pipeline: sp.Pipeline, **settings: object) -> dict[str, AnyArray]:
    """All rows of one epoch, by field."""
    with pipeline.loader(**{"memory": "64MiB", "num_workers": 2, **settings}) as loader:
        batches = list(loader)
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def check_copies(delivered: Mapping[str, AnyArray], *, without: str | None = None) -> None:
    index = delivered["index"]
    for name, array in FIELDS.items():
        if name != without:
            assert delivered[name].dtype == array.dtype.newbyteorder("=")
            assert np.array_equal(delivered[name], array[index]), name


def test_fields_are_copied_bit_for_bit(source: sp.Arrays) -> None:
    pipeline = sp.Pipeline(source).batch(5, last_batch="partial")
    delivered = epoch(pipeline)
    assert delivered["index"].tolist() == list(range(ROWS))
    check_copies(delivered)
    shuffled = epoch(sp.Pipeline(source).shuffle(seed=1).batch(4, last_batch="pad"), num_workers=3)
    assert sorted(shuffled["index"][shuffled["valid"]].tolist()) == list(range(ROWS))
    check_copies(shuffled)


def test_nan_and_its_kin_are_copied_as_they_are() -> None:
    bits = np.array([[0x7FC00001], [0xFFC00000], [0x80000000], [0x7F800000], [1]], np.uint32)
    delivered = epoch(sp.Pipeline(sp.Arrays(x=bits.view(np.float32))).batch(5))
    assert np.array_equal(delivered["x"].view(np.uint32), bits)


def test_images_take_the_same_way_as_decoded_ones(source: sp.Arrays, tmp_path: Path) -> None:
    transforms = (sp.RandomResizedCrop(9), sp.RandomHorizontalFlip(), sp.Normalize())
    pipeline = sp.Pipeline(source).shuffle(seed=3).map(*transforms).batch(4, last_batch="pad")
    delivered = epoch(pipeline)
    check_copies(delivered, without="image")
    files = write_list(
        tmp_path, {f"{i:02d}.png": encoded(image, "PNG") for i, image in enumerate(FIELDS["image"])}
    )
    decoded = epoch(sp.Pipeline(files).shuffle(seed=3).map(*transforms).batch(4, last_batch="pad"))
    assert np.array_equal(delivered["index"], decoded["index"])
    assert np.array_equal(delivered["image"], decoded["image"])


def test_images_are_resized_as_pillow_does(source: sp.Arrays) -> None:
    delivered = epoch(sp.Pipeline(source).map(sp.Resize((11, 13))).batch(ROWS))
    for row, image in enumerate(FIELDS["image"]):
        expected = Image.fromarray(image).resize((13, 11), Image.Resampling.BILINEAR)
        assert np.array_equal(delivered["image"][row], np.asarray(expected))


def test_images_that_need_no_crop_keep_their_size(source: sp.Arrays) -> None:
    delivered = epoch(sp.Pipeline(source).map(sp.ToLayout("NCHW")).batch(ROWS))
    assert np.array_equal(delivered["image"], FIELDS["image"].transpose(0, 3, 1, 2))
    floats = epoch(
        sp.Pipeline(source).map(sp.ToDtype("float16", scale=True), sp.ToLayout("NHWC")).batch(ROWS)
    )
    expected = (np.arange(256, dtype=np.float32) / np.float32(255)).astype(np.float16)[FIELDS["image"]]
    assert np.array_equal(floats["image"], expected)


def test_a_loader_changes_no_array_of_the_caller() -> None:
    arrays = {name: array.copy() for name, array in FIELDS.items()}
    with (
        sp.Pipeline(sp.Arrays(arrays))
        .batch(4, last_batch="pad")
        .loader(memory="64MiB", num_workers=2) as loader
    ):
        for batch in loader:
            for array in batch.values():
                array[...] = 0
    for name, array in FIELDS.items():
        assert np.array_equal(arrays[name], array)


def test_rows_larger_than_most_and_batches_of_one() -> None:
    large = np.arange(3 << 20, dtype=np.uint32).reshape(3, -1)
    delivered = epoch(sp.Pipeline(sp.Arrays(x=large)).shuffle(seed=2).batch(1))
    assert np.array_equal(delivered["x"], large[delivered["index"]])


def test_one_row_in_many_ranks() -> None:
    pipeline = sp.Pipeline(sp.Arrays(x=np.array([[7]]))).batch(3, last_batch="pad").shard(4, 5)
    delivered = epoch(pipeline)
    assert delivered["x"].tolist() == [[7]] * 3
    assert not delivered["valid"].any()


def test_workers_change_nothing(source: sp.Arrays) -> None:
    pipeline = sp.Pipeline(source).shuffle(seed=8).map(sp.RandomResizedCrop(6)).batch(3, last_batch="partial")
    one, many = epoch(pipeline, num_workers=1), epoch(pipeline, num_workers=9, prefetch=5)
    assert one.keys() == many.keys()
    for name, array in one.items():
        assert array.tobytes() == many[name].tobytes()
