"""Batches of images that differ in size, padded natively, beside those whose images are made one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import painted
from sized import Sized

ROWS, IMAGES = 5, 23
MOST = 160
CHANNELS_LAST, CHANNELS_FIRST = (MOST, MOST, 3), (3, MOST, MOST)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def described(source: Any, *transforms: Any, shape: Any = CHANNELS_LAST, **pad: Any) -> sp.Pipeline:
    collate = {"image": sp.Pad(max_shape=shape, **pad)}
    return sp.Pipeline(source).shuffle(seed=3).map(*transforms).batch(ROWS, collate=collate)


def epoch(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    """Copies of all batches of an epoch."""
    with pipeline.loader(memory="512MiB", **options) as loader:
        return copied(loader)


def copied(batches: Any) -> list[dict[str, Any]]:
    return [{name: np.array(value) for name, value in batch.items()} for batch in batches]


def pads_natively(pipeline: sp.Pipeline) -> bool:
    kernel = pipeline.plan(memory="512MiB").samples.kernel
    return kernel is not None and all(head.varies for head in kernel.heads)


def assert_same(got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


NORMALIZED = [sp.Resize(48), sp.RandomHorizontalFlip(), sp.Normalize()]
WAYS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "as they are": ([], {}),
    "bytes": ([sp.Resize(50)], {"value": 9}),
    "planes of bytes": ([sp.Resize(50), sp.ToLayout("NCHW")], {"value": 255, "shape": CHANNELS_FIRST}),
    "normalized": (NORMALIZED, {"to_multiple_of": 32, "shape": CHANNELS_FIRST}),
    "normalized, channels last": ([*NORMALIZED, sp.ToLayout("NHWC")], {"value": -1.5}),
    "float16": (
        [*NORMALIZED, sp.ToDtype("float16")],
        {"value": 0.1, "to_multiple_of": 7, "shape": CHANNELS_FIRST},
    ),
    "floats": ([sp.ToDtype("float32", scale=True)], {"shape": CHANNELS_FIRST, "value": 2}),
    "grey": ([sp.RandomResize(30, 70), sp.Grayscale()], {"shape": (MOST, MOST, 1)}),
    "several passes": (
        [
            sp.RandomResize(30, 70),
            sp.RandomRotation(20),
            sp.PadImage((3, 1)),
            sp.ColorJitter(0.2),
            sp.Normalize(),
        ],
        {"shape": CHANNELS_FIRST},
    ),
    "erased": ([*NORMALIZED, sp.RandomErasing(p=1.0)], {"shape": CHANNELS_FIRST}),
    "a fixed canvas": ([sp.Resize(40)], {"length": CHANNELS_LAST, "shape": None}),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_that_are_made_one_by_one(tmp_path: Path, way: str) -> None:
    transforms, pad = WAYS[way]
    pipeline = described(painted(tmp_path, IMAGES), *transforms, **pad)
    assert pads_natively(pipeline)
    alone = epoch(pipeline, executor="inline")
    assert_same(epoch(pipeline, num_workers=2), alone)
    assert len({batch["image"].shape for batch in alone}) > 1 or way == "a fixed canvas"
    for batch in alone:
        largest = batch["image_length"].max(axis=0)
        multiple = pad.get("to_multiple_of", 1)
        if way != "a fixed canvas":
            rounded = [side if side <= 3 else -(-side // multiple) * multiple for side in largest]
            assert batch["image"].shape[1:] == tuple(rounded)


KINDS = ("mask", "second", "depth")


def with_masks(folder: Path, images: int) -> Sized:
    """Images with masks, depths and a second image, which have the same size."""
    source = painted(folder, images)
    paths = sorted((folder / "images").iterdir())
    for kind in KINDS:
        (folder / kind).mkdir()
        for path in paths:
            with Image.open(path) as image:
                made = image.transpose(Image.Transpose.ROTATE_180)
                if kind == "depth":
                    made = Image.fromarray(np.asarray(image)[..., 0].astype(np.uint16) * 200)
                elif kind == "mask":
                    made = image.quantize(8).convert("L")
                made.save(folder / kind / f"{path.stem}.png")
        lines = (f"{folder / kind / path.stem}.png\n" for path in paths)
        (folder / f"{kind}.txt").write_text("".join(lines))
    (folder / "list.txt").write_text("".join(f"{path}\n" for path in paths))
    lists = {kind: folder / f"{kind}.txt" for kind in KINDS}
    return Sized(source, sp.FileList(folder / "list.txt", **lists))


def test_masks_and_further_images_are_padded_likewise(tmp_path: Path) -> None:
    source = with_masks(tmp_path, 11)
    pad = {"max_shape": CHANNELS_FIRST, "to_multiple_of": 16}
    collate = {
        "image": sp.Pad(**pad),
        "second": sp.Pad(**pad, value=1),
        "mask": sp.Pad(max_shape=(MOST, MOST), to_multiple_of=16, value=255),
        "depth": sp.Pad(max_shape=(MOST, MOST), to_multiple_of=16, value=0x1234),
    }
    transforms = [sp.RandomResize(30, 60), sp.RandomHorizontalFlip(), sp.Normalize()]
    pipeline = sp.Pipeline(source).decode(images=("second",)).shuffle(seed=1).map(*transforms)
    pipeline = pipeline.batch(4, collate=collate)
    assert pads_natively(pipeline)
    batches = epoch(pipeline)
    assert_same(batches, epoch(pipeline, executor="inline"))
    for batch in batches:
        assert batch["image"].shape[2:] == batch["second"].shape[2:] == batch["mask"].shape[1:]
        np.testing.assert_array_equal(batch["mask_length"], batch["image_length"][:, 1:])
        assert batch["depth"].dtype == np.uint16
        assert 0x1234 in batch["depth"]
        for mask, (height, width) in zip(batch["mask"], batch["mask_length"], strict=True):
            assert (mask[height:] == 255).all()
            assert (mask[:, width:] == 255).all()


def test_a_mask_without_pad_is_made_one_by_one(tmp_path: Path) -> None:
    source = with_masks(tmp_path, 5)
    pipeline = sp.Pipeline(source).decode(images=("second",)).map(sp.Resize(30))
    assert not pads_natively(pipeline.batch(2, collate={"image": sp.Pad(max_shape=CHANNELS_LAST)}))


def spoilt(folder: Path, *names: str) -> sp.Pipeline:
    """A pipeline in which some files are no images, and the other images may take their places."""
    source = painted(folder, IMAGES)
    for name in names:
        (folder / "images" / name).write_bytes(b"no image")
    transforms = [sp.RandomResize(30, 70), sp.RandomHorizontalFlip(), sp.Normalize()]
    return described(source, *transforms, shape=CHANNELS_FIRST).on_error(sp.Replace(at_most=50))


def test_a_batch_is_the_same_when_its_rows_are_replaced(tmp_path: Path) -> None:
    pipeline = spoilt(tmp_path, *(f"{number:04d}.jpg" for number in range(0, IMAGES, 4)))
    assert pads_natively(pipeline)
    alone = epoch(pipeline, executor="inline")
    assert_same(epoch(pipeline, num_workers=2), alone)
    lengths = np.stack([batch["image_length"].max(axis=0) for batch in alone])
    np.testing.assert_array_equal(lengths, np.stack([batch["image"].shape[1:] for batch in alone]))


def test_a_picture_above_max_shape_is_a_bad_sample_of_a_name(tmp_path: Path) -> None:
    # The largest images are above 110 pixels.
    pipeline = described(painted(tmp_path, IMAGES), shape=(110, 110, 3))
    assert pads_natively(pipeline)
    with pytest.raises(sp.TransformError, match=r"max_shape.*record \d+, .*\d{4}.jpg") as native:
        epoch(pipeline)
    with pytest.raises(sp.TransformError, match="there is room for \\(110, 110, 3\\)") as alone:
        epoch(pipeline, executor="inline")
    assert native.value.index == alone.value.index
    assert native.value.place == alone.value.place

    replacing = pipeline.on_error(sp.Replace(at_most=50))
    with replacing.loader(memory="512MiB") as loader:
        batches = copied(loader)
        bad = {(each.position, each.index) for each in loader.bad_samples}
        assert loader.stats().bad >= len(bad) > 0
    assert_same(batches, epoch(replacing, executor="inline"))


def test_a_file_of_another_size_than_the_index_has_is_a_bad_sample(tmp_path: Path) -> None:
    source = painted(tmp_path, 6)
    pipeline = sp.Pipeline(source).batch(3, collate={"image": sp.Pad(max_shape=CHANNELS_LAST)})
    pipeline.plan()  # builds the index
    Image.new("RGB", (33, 22)).save(tmp_path / "images" / "0001.jpg")
    with pytest.raises(sp.SampleError, match=r"33.*0001.jpg"):
        epoch(pipeline)


def test_an_image_too_small_for_its_crop_says_so(tmp_path: Path) -> None:
    source = painted(tmp_path, 6)
    pipeline = sp.Pipeline(source).map(sp.RandomCrop(200), sp.PadImage(1), sp.RandomResize(300, 320))
    pipeline = pipeline.batch(3, collate={"image": sp.Pad(max_shape=CHANNELS_LAST)})
    with pytest.raises(sp.DecodeError, match="too small: RandomCrop"):
        epoch(pipeline)


@pytest.mark.parametrize(
    "options", [{"executor": "process", "num_workers": 2}, {"num_workers": 1}, {"num_workers": 5}]
)
def test_any_workers_make_the_same_epoch(tmp_path: Path, options: dict[str, Any]) -> None:
    pipeline = spoilt(tmp_path, "0003.jpg")
    assert_same(epoch(pipeline, **options), epoch(pipeline, executor="inline"))


def test_a_run_goes_on_within_an_epoch_and_on_other_ranks(tmp_path: Path) -> None:
    pipeline = spoilt(tmp_path, "0003.jpg")
    whole = epoch(pipeline)
    with pipeline.loader(memory="512MiB") as loader:
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
    with pipeline.loader(memory="512MiB", num_workers=2) as loader:
        loader.load_state_dict(state)
        assert_same(copied(loader), whole[2:])
    lengths = [batch["image_length"] for batch in whole[:4]]
    parts = [epoch(pipeline.shard(rank, 2)) for rank in range(2)]
    of_ranks = [batch["image_length"] for pair in zip(*parts, strict=True) for batch in pair]
    by_index = {
        int(index): tuple(length)
        for batch in whole
        for index, length in zip(batch["index"], batch["image_length"], strict=True)
    }
    assert len(of_ranks) == len(lengths)
    for rank in parts:
        for batch in rank:
            for index, length in zip(batch["index"], batch["image_length"], strict=True):
                assert by_index.get(int(index), tuple(length)) == tuple(length)


def test_a_cache_after_the_source_has_the_files(tmp_path: Path) -> None:
    pipeline = spoilt(tmp_path, "0003.jpg")
    wanted = epoch(pipeline, executor="inline")
    cached = replace(
        pipeline, cached=sp.Pipeline(pipeline.source).cache(sp.Cache("pads", memory="8MiB")).cached
    )
    with cached.loader(memory="512MiB") as loader:
        assert_same(copied(loader), wanted)
        before = loader.stats().read.bytes
        for _ in loader:
            pass
        assert loader.stats().read.bytes - before < before


def test_a_plan_counts_the_largest_batch_and_nothing_that_waits(tmp_path: Path) -> None:
    pipeline = described(painted(tmp_path, IMAGES), sp.Resize(48), sp.Normalize(), shape=CHANNELS_FIRST)
    plan = pipeline.plan(memory="512MiB")
    most_bytes = ROWS * 3 * MOST * MOST * 4
    assert plan.batch.layout.slot_bytes >= most_bytes > 100 * plan.batch.layout.waiting_bytes
    assert "image: (≤5, ≤3, ≤160, ≤160) float32" in plan.explain()


def test_a_list_has_images_in_their_own_sizes_and_their_instances(tmp_path: Path) -> None:
    padded = described(painted(tmp_path, IMAGES), sp.RandomResize(40, 60), sp.RandomHorizontalFlip())
    wanted = epoch(padded)
    for options in ({}, {"executor": "inline"}):
        with padded.batch(ROWS, collate={"image": list}).loader(memory="512MiB", **options) as loader:
            for batch, other in zip(loader, wanted, strict=True):
                np.testing.assert_array_equal(batch["boxes"], other["boxes"])
                for image, canvas in zip(batch["image"], other["image"], strict=True):
                    height, width, _ = image.shape
                    np.testing.assert_array_equal(image, canvas[:height, :width])


def test_large_slots_are_enough_to_fill_one_while_another_is_ready(tmp_path: Path) -> None:
    pipeline = described(painted(tmp_path, IMAGES), sp.Normalize(), shape=(3, 1344, 1344))
    assert pipeline.plan(memory="2GiB").slots == 3


def test_instances_fit_their_padded_images(tmp_path: Path) -> None:
    pipeline = described(painted(tmp_path, IMAGES), sp.RandomResize(40, 60), sp.RandomHorizontalFlip())
    batches = epoch(pipeline)
    assert_same(batches, epoch(pipeline, executor="inline"))
    for batch in batches:
        limits = batch["image_length"][batch["batch_index"]][:, [1, 0]]
        assert (batch["boxes"][:, 2:] <= limits + 1e-3).all()
