"""Masks of instances in batches: they are where the pixels are, in each form, and the same by all workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import picture
from shapes import of_polygons, polygon
from standpipe.spec import AnyArray

MEMORY = "512MiB"
SIZE = HEIGHT, WIDTH = 72, 96
LARGE, SMALL = [(10, 10), (70, 10), (70, 60), (10, 60)], [(20, 20), (30, 20), (30, 30), (20, 30)]
MOVES = {
    "crop": [sp.RandomCrop((50, 60))],
    "resize": [sp.RandomResizedCrop((64, 80))],
    "flips": [sp.RandomHorizontalFlip(), sp.RandomVerticalFlip(), sp.Resize((60, 60))],
    "rotation": [sp.CenterCrop(SIZE), sp.RandomRotation(40)],
    "affine": [sp.CenterCrop(SIZE), sp.RandomAffine(30, (0.1, 0.2), (0.7, 1.4), 10)],
    "perspective": [sp.CenterCrop(SIZE), sp.RandomPerspective(0.4, 1.0)],
    "crop and back": [sp.RandomCrop((40, 50)), sp.PadImage(20), sp.RandomAffine(20), sp.CenterCrop(48)],
    "all": [sp.RandomResizedCrop(64, (0.5, 1.0)), sp.RandomHorizontalFlip(), sp.RandomAffine(20, (0.1, 0.1))],
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    """Return copies of all batches of an epoch."""

    def copied(value: Any) -> Any:
        return [np.array(each) for each in value] if isinstance(value, list) else np.array(value)

    with pipeline.loader(memory=MEMORY, **options) as loader:
        return [{name: copied(value) for name, value in batch.items()} for batch in loader]


def dilated(mask: AnyArray, by: int = 1) -> AnyArray:
    padded = np.pad(mask, by)
    height, width = mask.shape
    near = [padded[y : y + height, x : x + width] for y in range(2 * by + 1) for x in range(2 * by + 1)]
    return np.max(near, axis=0)


def two(folder: Path, **options: Any) -> Any:
    """A source of three images: with a small shape in a large one, with none, and with one."""
    return of_polygons(folder, [[SMALL, LARGE], [], [LARGE]], size=SIZE, **options)


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_masks_are_where_painted_pixels_are(tmp_path: Path, moves: Any) -> None:
    random = np.random.default_rng(0)
    source = of_polygons(tmp_path, [[polygon(random, *SIZE)] for _ in range(60)], size=SIZE)
    whole = 0
    for batch in batches(sp.Pipeline(source).map(*moves).batch(10)):
        assert batch["instance_masks"].shape == batch["image"].shape[:3]
        for image, mask in zip(batch["image"], batch["instance_masks"], strict=True):
            painted, found = image[..., 0] > 127, mask == 1
            assert not (painted & ~dilated(found)).any()
            assert not (found & ~dilated(painted)).any()
            whole += int(found.sum())
    assert whole > 60 * 200


def test_forms_of_masks(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(two(tmp_path)).map(sp.Resize(SIZE))

    def masks(**options: Any) -> AnyArray:
        (batch,) = batches(pipeline.batch(3, **options))
        found: AnyArray = batch["instance_masks"]
        assert found.dtype == np.uint8
        return found

    both = np.zeros(SIZE, np.uint8)
    both[10:60, 10:70] = 2
    both[20:30, 20:30] = 1
    index = masks()
    assert np.array_equal(index, [both, 0 * both, both > 0])
    assert np.array_equal(masks(mask_ratio=2), index[:, 1::2, 1::2])
    assert masks(mask_ratio=5).shape == (3, HEIGHT // 5, WIDTH // 5)
    dense = masks(masks="dense")
    assert np.array_equal(dense, [both == 1, both > 0, both > 0])
    padded = masks(masks="dense", instances=sp.Pad(length=2))
    assert np.array_equal(padded, [dense[:2], 0 * dense[:2], [dense[2], 0 * both]])
    assert np.array_equal(masks(masks="dense", instances=sp.Pad(length=1, cut=True)), padded[:, :1])
    assert np.array_equal(masks(instances=sp.Pad(length=1, cut=True))[0], both == 1)
    quarter = masks(masks="dense", mask_ratio=4)
    assert quarter.shape == (3, 18, 24)
    assert quarter.sum() == pytest.approx(dense.sum() / 16, rel=0.1)


def test_masks_of_what_is_dropped_are_left_out(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(two(tmp_path)).map(sp.Resize(SIZE), sp.SanitizeBoundingBoxes(min_size=20))
    (index,), (dense,) = batches(pipeline.batch(3)), batches(pipeline.batch(3, masks="dense"))
    assert index["boxes"].tolist() == [[10, 10, 70, 60]] * 2
    assert np.array_equal(index["instance_masks"][[0, 2]], dense["instance_masks"])
    assert np.unique(index["instance_masks"]).tolist() == [0, 1]


@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_masks_of_images_of_many_sizes(tmp_path: Path, executor: Any) -> None:
    pipeline = sp.Pipeline(two(tmp_path)).map(
        sp.RandomShortestSize([40, 50, 60, 80], max_size=200), sp.Normalize()
    )
    pad = sp.Pad(to_multiple_of=16, max_shape=(3, 160, 224))
    for form in ("index", "dense"):
        (padded,) = batches(
            pipeline.batch(3, collate={"image": pad}, masks=form, mask_ratio=2), executor=executor
        )
        (listed,) = batches(
            pipeline.batch(3, collate={"image": list}, masks=form, mask_ratio=2), executor=executor
        )
        height, width = padded["image"].shape[2:]
        assert padded["instance_masks"].shape == (3, height // 2, width // 2)
        parts = [*padded["instance_masks"]] if form == "index" else np.split(padded["instance_masks"], [2, 2])
        lengths = padded["image_length"].tolist()
        for mask, (_, tall, wide), whole in zip(listed["instance_masks"], lengths, parts, strict=True):
            assert mask.shape[-2:] == (tall // 2, wide // 2)
            assert np.array_equal(mask, whole[..., : tall // 2, : wide // 2])
            assert mask.sum() == whole.sum()


def test_boxes_from_shapes(tmp_path: Path) -> None:
    diamond = [(48, 10), (74, 36), (48, 62), (22, 36)]
    source = of_polygons(tmp_path, [[diamond]] * 20, size=SIZE)
    pipeline = sp.Pipeline(source).map(
        sp.CenterCrop(SIZE), sp.RandomRotation((45, 45)), sp.SanitizeBoundingBoxes()
    )
    (corners,), (shapes,) = (batches(pipeline.batch(20, boxes_from=name)) for name in ("corners", "shape"))
    half = 26 / np.sqrt(2)
    wanted = [48 - half, 36 - half, 48 + half, 36 + half]
    assert np.abs(shapes["boxes"] - wanted).max() < 0.01
    assert (corners["boxes"][:, 2] - corners["boxes"][:, 0]).min() > 3.9 * half - 2
    moves = [sp.CenterCrop(SIZE), sp.RandomAffine(30, (0.3, 0.3), (0.7, 1.4)), sp.SanitizeBoundingBoxes()]
    random = np.random.default_rng(1)
    source = of_polygons(tmp_path / "more", [[polygon(random, *SIZE)] for _ in range(40)], size=SIZE)
    (batch,) = batches(sp.Pipeline(source).map(*moves).batch(40, boxes_from="shape", masks="dense"))
    for box, mask in zip(batch["boxes"], batch["instance_masks"], strict=True):
        y, x = np.nonzero(mask)
        left, top, right, bottom = box.tolist()
        assert max(left - x.min(), top - y.min(), x.max() + 1 - right, y.max() + 1 - bottom) <= 0.5
        assert max(x.min() - left, y.min() - top, right - x.max() - 1, bottom - y.max() - 1) <= 2


def test_visibility_of_boxes_from_shapes(tmp_path: Path) -> None:
    # Half of the shape is in the crop, and a third of its box.
    source = of_polygons(tmp_path, [[[(32, 26), (64, 26), (80, 46), (32, 46)]]], size=SIZE)
    for least, kept in ((0.65, 1), (0.68, 0)):
        drops = sp.SanitizeBoundingBoxes(min_visibility=least)
        (batch,) = batches(sp.Pipeline(source).map(sp.CenterCrop(32), drops).batch(1, boxes_from="shape"))
        assert len(batch["boxes"]) == kept == batch["instance_masks"].max()


@pytest.mark.parametrize("form", [{}, {"masks": "dense", "mask_ratio": 4}], ids=["index", "dense"])
def test_epochs_with_masks_have_one_digest(tmp_path: Path, form: Any) -> None:
    random = np.random.default_rng(2)
    polygons = [[polygon(random, *SIZE) for _ in range(number % 4)] for number in range(23)]
    source = of_polygons(tmp_path, polygons, size=SIZE)
    moves = [sp.RandomIoUCrop(), sp.RandomResizedCrop(48), sp.RandomRotation(30), sp.SanitizeBoundingBoxes()]
    pipeline = (
        sp.Pipeline(source).shuffle(seed=3).map(*moves).batch(4, last_batch="pad", boxes_from="shape", **form)
    )
    whole = sp.digest_epoch(pipeline, epoch=1, num_workers=1, memory=MEMORY)
    ways: list[dict[str, Any]] = [
        {"num_workers": 2},
        {"num_workers": 5},
        {"executor": "process", "num_workers": 2},
        {"executor": "inline"},
        {"stop_at": [3], "num_workers": 2},
        {"ranks": [1, 2], "stop_at": [2], "num_workers": 1},
    ]
    for way in ways:
        assert sp.digest_epoch(pipeline, epoch=1, memory=MEMORY, **way).sha256 == whole.sha256, way
    other = sp.digest_epoch(pipeline.batch(4, last_batch="pad", boxes_from="shape"), epoch=1, memory=MEMORY)
    assert (other.sha256 == whole.sha256) is (form == {})


def test_slots_have_room_for_masks(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(two(tmp_path)).map(sp.Resize((64, 96)))

    def room(**options: Any) -> int:
        plan = pipeline.batch(3, **options).plan()
        assert plan.memory.forecast.slots >= plan.memory.slots * plan.batch.layout.slot_bytes
        assert "instance_masks" not in plan.source.fields
        return plan.batch.layout.regions["instance_masks"].nbytes

    assert room() == 3 * 64 * 96
    assert room(mask_ratio=4) == 3 * 16 * 24
    assert room(masks="dense") == 3 * 2 * 64 * 96
    assert room(masks="dense", instances=sp.Ragged(max_values=4)) == 4 * 64 * 96
    assert room(masks="dense", instances=sp.Pad(length=7)) == 3 * 7 * 64 * 96
    assert room(collate={"image": sp.Pad(to_multiple_of=64, max_shape=(65, 100, 3))}) == 3 * 128 * 128


def test_masks_in_lists_are_in_the_forecast(tmp_path: Path) -> None:
    source = of_polygons(tmp_path, [[SMALL] * 8] * 4, size=SIZE)
    used = []
    for form in ("index", "dense"):
        pipeline = sp.Pipeline(source).map(sp.RandomHorizontalFlip())
        with pipeline.batch(4, collate={"image": list}, masks=form).loader(memory=MEMORY) as loader:
            loader.peek()
            plan = loader.plan
        used.append(plan.memory.forecast.waiting / plan.memory.slots)
    assert used[1] - used[0] >= 4 * 7 * HEIGHT * WIDTH


def test_a_crop_by_boxes_takes_masks_of_boxes_that_it_keeps(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    source = of_polygons(tmp_path, [[polygon(random, *SIZE) for _ in range(3)] for _ in range(40)], size=SIZE)
    pipeline = sp.Pipeline(source).map(sp.RandomIoUCrop(), sp.Resize(SIZE))
    empty = 0
    for batch in batches(pipeline.batch(8, masks="dense")):
        for box, mask in zip(batch["boxes"], batch["instance_masks"], strict=True):
            y, x = np.nonzero(mask)
            if not box.any():
                empty += 1
                assert not len(x)
            else:
                left, top, right, bottom = box.tolist()
                assert left - 1 < x.min() < x.max() < right
                assert top - 1 < y.min() < y.max() < bottom
    assert empty > 5


def test_many_instances_take_two_bytes(tmp_path: Path) -> None:
    places = [(3 * (n % 30), 3 * (n // 30)) for n in range(300)]
    squares = [[(x, y), (x + 2, y), (x + 2, y + 2), (x, y + 2)] for x, y in places]
    source = of_polygons(tmp_path, [squares], size=SIZE)
    (batch,) = batches(sp.Pipeline(source).map(sp.Resize(SIZE)).batch(1))
    assert batch["instance_masks"].dtype == np.int16
    assert [batch["instance_masks"][0, y, x] for x, y in places] == [*range(1, 301)]
    cut = sp.Pad(length=255, cut=True)
    (batch,) = batches(sp.Pipeline(source).map(sp.Resize(SIZE)).batch(1, instances=cut))
    assert (batch["instance_masks"].dtype, batch["instance_masks"].max()) == (np.uint8, 255)


def test_views_have_masks_of_their_own(tmp_path: Path) -> None:
    views = sp.Views(a=[sp.CenterCrop(32)], b=[sp.Resize((36, 48))])
    (batch,) = batches(sp.Pipeline(two(tmp_path)).map(views).batch(3))
    assert batch["a_instance_masks"].shape == (3, 32, 32)
    assert batch["a_instance_masks"][0].max() == 2
    assert (batch["b_instance_masks"][2] > 0).sum() == 25 * 30


def test_bad_samples_have_no_masks(tmp_path: Path) -> None:
    source = two(tmp_path)
    (tmp_path / "images" / "0.png").write_bytes(b"")
    pipeline = sp.Pipeline(source).map(sp.Resize(SIZE)).batch(3).on_error(sp.Replace(at_most=1))
    (batch,) = batches(pipeline)
    assert 0 not in batch["index"]
    for index, mask in zip(batch["index"].tolist(), batch["instance_masks"], strict=True):
        assert (mask == 1).sum() == (0 if index == 1 else 50 * 60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masks": "maps"}, "masks must be 'index' or 'dense', got 'maps'"),
        ({"mask_ratio": 0}, "mask_ratio must be an integer from 1 to 256, got 0"),
        ({"mask_ratio": 2.0}, "mask_ratio must be an integer"),
        ({"boxes_from": "points"}, "boxes_from must be 'corners' or 'shape', got 'points'"),
    ],
)
def test_other_forms_are_refused(options: Any, message: str) -> None:
    with pytest.raises(sp.PlanError, match=message):
        sp.Pipeline(sp.Arrays(x=np.arange(3))).batch(3, **options)


def test_sources_without_masks_are_refused(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(two(tmp_path)).map(sp.Resize(SIZE))
    without = sp.Pipeline(two(tmp_path / "other").__class__(tmp_path / "images", tmp_path / "instances.json"))
    for each in (without.map(sp.Resize(SIZE)), sp.Pipeline(sp.Arrays(x=np.arange(3)))):
        with pytest.raises(sp.PlanError, match="give a source instance_masks=True"):
            each.batch(3, masks="dense").plan()
    with pytest.raises(sp.PlanError, match=r"apply\(\) can't move 'instance_masks'"):
        pipeline.apply({"image": [picture(*SIZE)], "boxes": [[[1, 1, 2, 2]]], "instance_masks": [[1]]})


def test_shards_are_packed_without_masks(tmp_path: Path) -> None:
    with pytest.raises(sp.PlanError, match="without instance_masks=True"):
        sp.pack_shards(two(tmp_path), tmp_path / "shards")


def test_forms_are_in_recipes(tmp_path: Path) -> None:
    source = two(tmp_path)
    for options in ({"masks": "dense", "mask_ratio": 4}, {"boxes_from": "shape"}, {}):
        pipeline = sp.Pipeline(source).map(sp.Resize(SIZE)).batch(3, **options)
        assert all(f"{name}={value!r}" in repr(pipeline) for name, value in options.items())
        assert sp.Pipeline.from_dict(pipeline.to_dict(), source=source) == pipeline


def test_a_ratio_above_the_images_sides_is_refused(tmp_path: Path) -> None:
    source = of_polygons(tmp_path, [[LARGE]], size=SIZE)
    pipeline = sp.Pipeline(source).map(sp.Resize((64, 80))).batch(1, mask_ratio=65)
    with pytest.raises(sp.PlanError, match="mask_ratio=65 leaves masks without pixels"):
        pipeline.plan()
