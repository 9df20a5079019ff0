"""Fields of another size are cropped at the same places as their image, exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from field_files import written
from standpipe.spec import UInt8Array

SIZES = [(12, 15), (10, 10), (15, 9), (8, 20), (13, 11), (9, 9)]  # (height, width) of the smallest field


def painted(height: int, width: int) -> UInt8Array:
    """A small picture with its places in two channels, from 1 on, so that padding is different."""
    y, x = np.mgrid[:height, :width].astype(np.uint8)
    return np.stack([x + 1, y + 1, np.full_like(y, 7)], -1)


def enlarged(picture: UInt8Array, times: int) -> UInt8Array:
    """Make a block of equal pixels of each pixel."""
    return picture.repeat(times, -3).repeat(times, -2)


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(memory="256MiB", **options) as loader:
        return [{name: np.array(field) for name, field in batch.items()} for batch in loader]


EXACT: dict[str, list[Any]] = {
    "RandomCrop": [sp.RandomCrop((24, 16), pad_if_needed=True)],
    "padding": [sp.RandomCrop((24, 32), padding=(4, 8), pad_if_needed=True), sp.PadImage((0, 4, 8, 12))],
    "symmetric": [sp.CenterCrop(24), sp.RandomCrop(32, padding=8, padding_mode="symmetric")],
    "CenterCrop": [sp.CenterCrop((36, 28)), sp.RandomHorizontalFlip(), sp.RandomVerticalFlip()],
    "groups": [sp.CenterCrop(24), sp.RandomApply([sp.RandomVerticalFlip(1.0), sp.RandomInvert(1.0)])],
    "colours": [
        sp.RandomCrop(24, pad_if_needed=True),
        sp.RandomPosterize(6),
        sp.RandomSolarize(5),
        sp.Normalize(),
    ],
    "erasing": [sp.CenterCrop(32), sp.ToDtype("float32"), sp.RandomErasing(0.9, value=3)],
}


def check_blocks(batch: dict[str, Any], small: str, large: str, times: int) -> None:
    """Check that a batch's large pictures are its small ones, enlarged."""
    axes = (0, 2, 3, 1) if batch[small].dtype != np.uint8 else (0, 1, 2, 3)
    one, other = (batch[name].transpose(axes) for name in (small, large))
    assert one.shape[1] * times == other.shape[1]
    assert (enlarged(one, times) == other).all()
    assert len(np.unique(one[..., 0])) > 3


@pytest.mark.parametrize("transforms", EXACT.values(), ids=EXACT)
def test_both_fields_are_cropped_at_the_same_places(transforms: list[Any], tmp_path: Path) -> None:
    low = [painted(*size) for size in SIZES]
    source = written(tmp_path, {"hr": [enlarged(each, 4) for each in low], "lr": low})
    pipeline = sp.Pipeline(source, seed=4).decode(scale={"lr": 0.25}).map(*transforms).batch(6)
    found = [batches(pipeline, **options) for options in ({"num_workers": 2}, {"executor": "inline"})]
    for (batch,) in found:
        check_blocks(batch, "lr", "hr", 4)
    assert (found[0][0]["lr"] == found[1][0]["lr"]).all()


def test_the_reference_may_be_the_small_field_and_scales_may_be_several(tmp_path: Path) -> None:
    low = [painted(*size) for size in SIZES]
    fields = {
        "image": low,
        "large": [enlarged(each, 3) for each in low],
        "wide": [enlarged(each, 2) for each in low],
    }
    scale: dict[str, float] = {"large": 3, "wide": 2}
    pipeline = sp.Pipeline(written(tmp_path, fields)).decode(scale=scale)
    (batch,) = batches(pipeline.map(sp.RandomCrop(8)).batch(6))
    check_blocks(batch, "image", "large", 3)
    check_blocks(batch, "image", "wide", 2)
    whole = {"image": [enlarged(each, 6) for each in low], "half": fields["large"], "third": fields["wide"]}
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
    scale = {"half": 1 / 2, "third": 1 / 3}
    pipeline = sp.Pipeline(written(tmp_path / "a", whole)).decode(scale=scale)
    (batch,) = batches(pipeline.map(sp.RandomCrop(24), sp.RandomHorizontalFlip()).batch(6))
    assert (enlarged(batch["half"], 2) == batch["image"]).all()
    assert (enlarged(batch["third"], 3) == batch["image"]).all()


def test_masks_are_moved_beside_fields_of_another_size() -> None:
    low = np.stack([painted(12, 15)] * 6)
    image = enlarged(low, 4)
    source = sp.Arrays(image=image, lr=low, mask=image[..., 0].copy())
    pipeline = sp.Pipeline(source).decode(images=("image", "lr"), scale={"lr": 0.25})
    for executor in (None, "inline", "process"):
        (batch,) = batches(pipeline.map(sp.RandomCrop(16)).batch(6), executor=executor)
        check_blocks(batch, "lr", "image", 4)
        assert (batch["mask"] == batch["image"][..., 0]).all()
    assert sp.Pipeline.from_dict(pipeline.to_dict(), source=source) == pipeline
    assert "lr at 1/4" in pipeline.map(sp.RandomCrop(16)).batch(2).plan().explain()


def test_exact_resizes_are_of_the_scale() -> None:
    low = np.stack([painted(12, 15)] * 6)
    source = sp.Arrays(image=enlarged(low, 4), lr=low)
    resize = [sp.Resize((96, 120), interpolation="nearest"), sp.RandomCrop(32), sp.RandomHorizontalFlip()]
    pipeline = sp.Pipeline(source).decode(images=("lr",), scale={"lr": 0.25}).map(*resize).batch(6)
    (batch,) = batches(pipeline)
    check_blocks(batch, "lr", "image", 4)
    assert batch["lr"].shape == (6, 8, 8, 3)


@pytest.mark.parametrize("executor", [None, "inline"])
def test_a_field_that_is_not_of_its_scale_is_a_bad_sample(executor: Any, tmp_path: Path) -> None:
    source = written(
        tmp_path, {"hr": [np.zeros((42, 40, 3), np.uint8)], "lr": [np.zeros((10, 10, 3), np.uint8)]}
    )
    pipeline = sp.Pipeline(source).decode(scale={"lr": 0.25}).map(sp.CenterCrop(8)).batch(1)
    says = "lr: it has 10 × 10 pixels, but its image 40 × 42; with its scale=, sides are 1/4 of the image's"
    with pytest.raises(sp.DecodeError, match=says):
        batches(pipeline, executor=executor)


INEXACT: list[tuple[list[Any], str]] = [
    (
        [sp.RandomResizedCrop(24)],
        r"lr: RandomResizedCrop\(.* has no exact counterpart in a picture at scale 1/4",
    ),
    ([sp.RandomResize(20, 40), sp.RandomCrop(16)], r"lr: RandomResize\(.* has no exact counterpart"),
    ([sp.CenterCrop(24), sp.RandomRotation(9)], r"lr: RandomRotation\(.* has no exact counterpart"),
    ([sp.CenterCrop(24), sp.GaussianBlur(3)], r"lr: GaussianBlur\(.* has no exact counterpart"),
    ([sp.CenterCrop(24), sp.RandAugment()], r"lr: RandAugment\(.* has no exact counterpart"),
    (
        [sp.CenterCrop(24), sp.RandomApply([sp.RandomAffine(5)])],
        r"lr: RandomAffine\(.* has no exact counterpart",
    ),
    ([sp.RandomCrop(24, padding=4, padding_mode="reflect")], r"lr: RandomCrop\(.* has no exact counterpart"),
    (
        [sp.Resize(24), sp.CenterCrop(24)],
        r"lr: Resize\(size=24\): size must be \(height, width\) beside a picture",
    ),
    (
        [sp.RandomCrop(26)],
        r"lr: RandomCrop\(size=26\): size must be a multiple of 4 beside a picture at scale 1/4",
    ),
    ([sp.CenterCrop((24, 30))], r"lr: CenterCrop\(size=\(24, 30\)\): size must be a multiple of 4"),
    ([sp.RandomCrop(24, padding=2)], r"lr: RandomCrop\(padding=2\): padding must be a multiple of 4"),
]


@pytest.mark.parametrize(("transforms", "says"), INEXACT)
def test_what_is_not_exact_is_refused(transforms: list[Any], says: str, tmp_path: Path) -> None:
    source = written(
        tmp_path, {"hr": [np.zeros((40, 40, 3), np.uint8)], "lr": [np.zeros((10, 10, 3), np.uint8)]}
    )
    with pytest.raises(sp.PlanError, match=says):
        sp.Pipeline(source).decode(scale={"lr": 0.25}).map(*transforms).batch(1).plan()


def test_impossible_scales_are_refused() -> None:
    wrong: list[Any] = [
        0.25,
        {"lr": 0.3},
        {"lr": 0},
        {"lr": -2},
        {"lr": 1.5},
        {"lr": "a"},
        {3: 1},
        {"lr": 1 / 100},
    ]
    for scale in wrong:
        with pytest.raises(sp.PlanError, match=r"decode\(scale=.*give the sides of fields as a multiple"):
            sp.Pipeline(sp.Arrays(x=np.zeros(2))).decode(scale=scale)
    arrays = {"image": np.zeros((2, 40, 40, 3), np.uint8), "lr": np.zeros((2, 10, 11, 3), np.uint8)}
    for name, says in (
        ("lr", r"'lr' has \(10, 11\) pixels"),
        ("low", r"decode\(scale=…\): there is no field 'low'"),
    ):
        pipeline = sp.Pipeline(sp.Arrays(arrays)).decode(images=("lr",), scale={name: 0.25})
        with pytest.raises(sp.PlanError, match=says):
            pipeline.map(sp.CenterCrop(8)).batch(2).plan()
