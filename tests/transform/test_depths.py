"""Depths of 8 and 16 bits are moved with their image, and no value changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from field_files import INSIDE, Lists, painted, written
from photos import encoded
from standpipe.spec import UInt8Array

SIZES = [(41, 60), (60, 41), (37, 37), (50, 50), (33, 80), (300, 900)]  # the last one is copied in strips
MOVING: dict[str, list[Any]] = {
    "RandomResizedCrop": [sp.RandomResizedCrop(24, interpolation="nearest")],
    "RandomCrop": [
        sp.Resize(30, interpolation="nearest"),
        sp.RandomCrop((30, 36), padding=7, pad_if_needed=True),
    ],
    "PadImage": [
        sp.Resize((30, 20), interpolation="nearest"),
        sp.PadImage((3, 4, 5, 6)),
        sp.RandomVerticalFlip(),
    ],
    "RandomAffine": [sp.CenterCrop(100), sp.RandomHorizontalFlip(), sp.RandomAffine(40, scale=(0.7, 1.4))],
    "RandomRotation": [sp.CenterCrop(30), sp.RandomRotation(60, center=(9, 12))],
    "RandomPerspective": [sp.CenterCrop(30), sp.RandomPerspective(0.6, p=0.8, interpolation="nearest")],
    "groups": [sp.CenterCrop(30), sp.RandomApply([sp.RandomRotation(20), sp.RandomPosterize(8)], p=0.7)],
}


def depth_of(image: UInt8Array) -> Any:
    """The depth of painted places, (H, W) uint16, with different high and low bytes."""
    return (image[..., 1].astype(np.uint16) + 1) * 257 + image[..., 0]


def source(folder: Path) -> Any:
    images = [painted(*size) for size in SIZES]
    return written(folder, {"image": images, "depth": [depth_of(each) for each in images]})


def batch_of(pipeline: sp.Pipeline, **options: Any) -> dict[str, Any]:
    with pipeline.loader(memory="256MiB", **options) as loader:
        (batch,) = [{name: np.array(field) for name, field in each.items()} for each in loader]
    return batch


def check_depth(image: UInt8Array, depth: Any) -> None:
    inside = image[..., 2] == INSIDE
    assert depth.dtype == np.uint16
    assert inside.any()
    assert (depth[inside] == depth_of(image)[inside]).all()
    assert (depth[~inside] == 0).all()


@pytest.mark.parametrize("transforms", MOVING.values(), ids=MOVING)
def test_depths_of_painted_places_go_where_their_image_goes(transforms: list[Any], tmp_path: Path) -> None:
    pipeline = sp.Pipeline(source(tmp_path), seed=4).map(*transforms).batch(6)
    for options in ({"num_workers": 2}, {"executor": "inline"}):
        batch = batch_of(pipeline, **options)
        check_depth(batch["image"], batch["depth"])


def test_arrays_of_8_and_16_bits_keep_their_dtype() -> None:
    image = np.stack([painted(30, 44)] * 6)
    arrays = sp.Arrays(image=image, near=image[..., 0].copy(), far=depth_of(image))
    crop = sp.RandomCrop(20, padding=3)
    pipeline = sp.Pipeline(arrays, seed=2).decode(depths=("near", "far")).map(crop).batch(6)
    for executor in (None, "inline", "process"):
        batch = batch_of(pipeline, executor=executor)
        check_depth(batch["image"], batch["far"])
        assert batch["near"].dtype == np.uint8
        inside = batch["image"][..., 2] == INSIDE
        assert (batch["near"] == np.where(inside, batch["image"][..., 0], 0)).all()
    assert sp.Pipeline.from_dict(pipeline.to_dict(), source=arrays) == pipeline
    floats = sp.Arrays(image=image, far=depth_of(image).astype(np.float32))
    with pytest.raises(
        sp.PlanError, match=r"can't take the field 'far', which is .* float32: give it depths"
    ):
        sp.Pipeline(floats).decode(depths=("far",)).map(crop).batch(2).plan()


def test_each_view_has_its_depth(tmp_path: Path) -> None:
    views = sp.Views(
        a=[sp.RandomResizedCrop(9, interpolation="nearest")], some=sp.Repeat(2, [sp.CenterCrop(20)])
    )
    batch = batch_of(sp.Pipeline(source(tmp_path)).map(views).batch(6))
    check_depth(batch["a"], batch["a_depth"])
    check_depth(batch["some"], batch["some_depth"])


FILES: dict[str, tuple[Any, str]] = {
    "8 bits": (np.full((9, 9), 200, np.uint8), ""),
    "16 bits": (np.full((9, 9), 60000, np.uint16), ""),
    "32 bits": (np.full((9, 9), 65535, np.int32), ""),
    "too large": (np.full((9, 9), 65536, np.int32), "integers from 0 to 65535, but it is a TIFF of mode I"),
    "negative": (np.full((9, 9), -1, np.int32), "integers from 0 to 65535"),
    "floats": (np.zeros((9, 9), np.float32), "but it is a TIFF of mode F"),
    "colours": (np.zeros((9, 9, 3), np.uint8), "but it is a TIFF of mode RGB"),
}


@pytest.mark.parametrize(("values", "says"), FILES.values(), ids=FILES)
def test_files_have_exact_values_or_are_bad_samples(values: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(encoded(painted(9, 9), "PNG"))
    Image.fromarray(values).save(tmp_path / "depth.tif")
    lists = Lists({"image": [tmp_path / "image.png"], "left_depth": [tmp_path / "depth.tif"]})
    pipeline = sp.Pipeline(lists).map(sp.CenterCrop(8)).batch(1)
    if says:
        with pytest.raises(sp.DecodeError, match=f"left_depth: .*{says}"):
            batch_of(pipeline)
    else:
        assert (batch_of(pipeline)["left_depth"] == values[:8, :8]).all()


def test_a_jpeg_is_no_depth(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(encoded(painted(9, 9)[..., 0]))
    lists = Lists({"image": [tmp_path / "0.jpg"], "depth": [tmp_path / "0.jpg"]})
    with pytest.raises(sp.DecodeError, match="but it is a JPEG of mode L"):
        batch_of(sp.Pipeline(lists).map(sp.CenterCrop(8)).batch(1))
