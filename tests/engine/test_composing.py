"""Rows that are made of several images: their pixels, their instances, and which images they are made of."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from fleets import Makers
from painted import annotation, painted, written
from reference import delivered, in_order
from standpipe.source.annotations.coco import Coco
from standpipe.transform import simd_paths

SIDE, FILL = 40, 7
LAST = sp.Recent(128)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def levels(folder: Path, images: int, bad: tuple[int, ...] = (), **options: Any) -> Coco:
    """A source of images of one level each, 100 + their number, with a box around all of the image."""
    (folder / "images").mkdir(parents=True)
    random, entries, boxes = np.random.default_rng(4), [], []
    for number in range(images):
        height, width = (int(side) for side in random.integers(SIDE // 2, SIDE + 1, 2))
        name = f"{number:03d}.jpg"
        Image.new("RGB", (width, height), (100 + number,) * 3).save(folder / "images" / name)
        if number in bad:
            (folder / "images" / name).write_bytes(b"no image")
        entries.append({"id": number, "file_name": name, "width": width, "height": height})
        corners = [0, 0, width, 0, width, height, 0, height]
        boxes.append(annotation(number + 1, number, (0, 0, width, height)) | {"segmentation": [corners]})
    return written(folder, entries, boxes, **options)


def digest(pipeline: sp.Pipeline, skip: int = 0, **options: Any) -> str:
    """The digest of the epoch's batches, without the first ones."""
    made = hashlib.sha256()
    with pipeline.loader(memory="600MiB", **options) as loader:
        for number, batch in enumerate(loader):
            for name in sorted(batch) if number >= skip else ():
                made.update(
                    f"{name} {batch[name].shape}".encode() + np.ascontiguousarray(batch[name]).tobytes()
                )
    return made.hexdigest()


def recipe(source: Any, partners: Any = LAST, mixed: Any = None) -> sp.Pipeline:
    """Mosaics, and some rows of two of them. ``mixed``: partners of these; None: the same."""
    return (
        sp.Pipeline(source)
        .shuffle(seed=2)
        .map(sp.Resize(30, max_size=40), sp.RandomVerticalFlip())
        .map(sp.Mosaic(40, partners=partners), sp.RandomResizedCrop(48, scale=(0.3, 1.0)))
        .map(sp.MixUpInstances(p=0.4, partners=mixed or partners), sp.RandomHorizontalFlip())
    )


def test_each_box_of_a_mosaic_is_filled_with_its_image_and_the_rest_with_the_fill(tmp_path: Path) -> None:
    source = levels(tmp_path, 60)
    whole = sp.Pipeline(source).shuffle(seed=1).map(sp.Resize(SIDE, max_size=SIDE + 1))
    with whole.map(sp.Mosaic(SIDE, fill=FILL)).batch(12).loader() as loader:
        seen = 0
        for batch in loader:
            for row, image in enumerate(batch["image"]):
                assert image.shape == (2 * SIDE, 2 * SIDE, 3)
                rest = np.ones(image.shape[:2], bool)
                chosen = batch["batch_index"] == row
                for box, number in zip(batch["boxes"][chosen], batch["id"][chosen], strict=True):
                    left, top, right, bottom = box.round().astype(int)
                    assert (box == (left, top, right, bottom)).all()
                    assert (image[top:bottom, left:right] == 99 + number).all()
                    rest[top:bottom, left:right] = False
                assert (image[rest] == FILL).all()
                seen += len(set(batch["id"][chosen].tolist())) == 4
    assert seen > 30  # rows of four different images


@pytest.mark.parametrize("simd", simd_paths())
@pytest.mark.parametrize("degrees", [0, 20])
@pytest.mark.parametrize("scale", [(0.5, 2.0), (0.01, 0.6), (8.0, 80.0)])
def test_a_mosaic_is_warped_as_its_canvas_is(
    tmp_path: Path, scale: tuple[float, float], degrees: float, simd: str
) -> None:
    """Without a rotation no canvas is made: its rows are interpolated across, and then down."""
    source = levels(tmp_path, 12)
    for path in (tmp_path / "images").iterdir():
        with Image.open(path) as image:
            size = image.size[::-1]
        levels_of = np.random.default_rng(len(path.name)).integers(0, 256, (*size, 3), np.uint8)
        Image.fromarray(levels_of).save(path)
    parts = sp.Resize((SIDE - 7, SIDE)), sp.Mosaic(SIDE, partners="any", fill=FILL)
    warp = sp.RandomAffine(
        degrees, (0.3, 0.3), scale, interpolation="bilinear", fill=(1, 2, 3), pixels="opencv", size=270
    )
    canvases = delivered(in_order(source, *parts))
    rows = delivered(in_order(source, *parts, warp), simd=simd)
    for position, (canvas, row) in enumerate(zip(canvases, rows, strict=True)):
        alone = in_order(sp.Arrays(image=np.stack([canvas] * (position + 1))), warp)
        assert np.array_equal(row, delivered(alone, simd=simd)[position]), position


def test_an_index_map_has_the_images_of_a_mosaic(tmp_path: Path) -> None:
    source = levels(tmp_path, 40, instance_masks=True)
    pipeline = sp.Pipeline(source).shuffle(seed=1).map(sp.Resize(SIDE, max_size=SIDE + 1))
    with pipeline.map(sp.Mosaic(SIDE, fill=FILL)).batch(8).loader() as loader:
        for batch in loader:
            for row, (image, numbers) in enumerate(zip(batch["image"], batch["instance_masks"], strict=True)):
                ids = batch["id"][batch["batch_index"] == row]
                expected = np.append(FILL, 99 + ids)[numbers]
                assert (image[..., 0] == expected).all()


@pytest.mark.parametrize("first", [sp.MixUpInstances(), sp.CopyPaste()])
def test_an_index_map_has_the_images_of_a_mosaic_of_composed_pictures(tmp_path: Path, first: Any) -> None:
    """Neither MixUpInstances nor CopyPaste moves pixels, and no transform follows them here."""
    source = levels(tmp_path, 24, instance_masks=True)
    pipeline = sp.Pipeline(source).shuffle(seed=1).map(sp.Resize((SIDE - 9, SIDE - 3)), first)
    with pipeline.map(sp.Mosaic(SIDE, fill=FILL)).batch(8).loader() as loader:
        for batch in loader:
            assert ((batch["image"][..., 0] != FILL) == (batch["instance_masks"] > 0)).all()


@pytest.mark.parametrize("mode", ["simple", "flip"])
def test_a_picture_stays_as_it_is_while_the_one_for_its_blend_is_made(tmp_path: Path, mode: Any) -> None:
    source = levels(tmp_path, 24, instance_masks=True)
    pipeline = sp.Pipeline(source).shuffle(seed=1).map(sp.Resize(SIDE, max_size=SIDE + 1))
    pipeline = pipeline.map(sp.Mosaic(SIDE, fill=0), sp.CopyPaste(0.5, mode), sp.MixUpInstances())
    with pipeline.batch(8).loader() as loader:
        for batch in loader:
            assert ((batch["image"][..., 0] > 0) == (batch["instance_masks"] > 0)).all()


def test_the_own_image_comes_first_and_the_others_are_of_rows_before(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(levels(tmp_path, 60)).shuffle(seed=1).map(sp.Resize((SIDE, SIDE)))
    with pipeline.map(sp.Mosaic(SIDE, partners=sp.Recent(5))).batch(10).loader() as loader:
        batches = list(loader)
    order = [int(index) for batch in batches for index in batch["index"]]
    for batch in batches:
        for row, index in enumerate(batch["index"]):
            ids = batch["id"][batch["batch_index"] == row] - 1
            place = order.index(int(index))
            assert ids[0] == index
            assert set(ids[1:].tolist()) <= {*(order[max(place - 5, 0) : place] or [index])}


@pytest.mark.parametrize("partners", [sp.Recent(20), "batch", "any"])
def test_equal_batches_however_they_are_made(tmp_path: Path, partners: Any) -> None:
    pipeline = recipe(painted(tmp_path, 70), partners=partners).batch(8)
    first = digest(pipeline, num_workers=1)
    assert digest(pipeline, num_workers=2) == digest(pipeline, num_workers=5) == first
    assert digest(pipeline, num_workers=2, executor="process") == first


@pytest.mark.parametrize("partners", [sp.Recent(20), "any"])
def test_rows_dont_depend_on_the_batch_size(tmp_path: Path, partners: Any) -> None:
    pipeline = recipe(painted(tmp_path, 70), partners=partners)
    rows: dict[int, list[Any]] = {}
    for size in (5, 14):
        with pipeline.batch(size).loader() as loader:
            for batch in loader:
                for row in range(size):
                    chosen = batch["batch_index"] == row
                    key = batch["image"][row].tobytes(), batch["boxes"][chosen].tobytes()
                    rows.setdefault(size, []).append((int(batch["index"][row]), key))
    assert rows[5] == rows[14]


@pytest.mark.parametrize(
    ("partners", "mixed"), [(sp.Recent(20), None), ("batch", None), ("any", None), (sp.Recent(20), "any")]
)
def test_a_resume_in_the_middle_of_a_window_gives_equal_batches(
    tmp_path: Path, partners: Any, mixed: Any
) -> None:
    pipeline = recipe(painted(tmp_path, 70), partners, mixed).batch(8)
    whole = digest(pipeline, skip=3)
    made = hashlib.sha256()
    with pipeline.loader(memory="600MiB") as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
    with pipeline.loader(memory="600MiB") as loader:
        loader.load_state_dict(state)
        for batch in loader:
            for name in sorted(batch):
                made.update(
                    f"{name} {batch[name].shape}".encode() + np.ascontiguousarray(batch[name]).tobytes()
                )
    assert made.hexdigest() == whole


def test_any_partners_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    pipeline = recipe(painted(tmp_path, 64), partners="any")
    rows: dict[int, dict[int, bytes]] = {1: {}, 2: {}}
    for world in rows:
        for rank in range(world):
            with pipeline.shard(rank, world).batch(8).loader() as loader:
                for batch in loader:
                    rows[world] |= {
                        int(index): image.tobytes()
                        for index, image in zip(batch["index"], batch["image"], strict=True)
                    }
    assert rows[1] == rows[2]


def test_too_little_memory_is_told_with_the_images_of_earlier_rows(tmp_path: Path) -> None:
    pipeline = recipe(levels(tmp_path, 24), partners=sp.Recent(60_000)).batch(4)
    with pytest.raises(sp.BudgetError, match=r"MiB for images of which rows are made \(sp\.Recent"):
        pipeline.plan(memory="64MiB")


def test_mosaics_end_with_a_schedule(tmp_path: Path) -> None:
    on = sp.Schedule({0: 1.0, 1: 0.0})
    pipeline = sp.Pipeline(levels(tmp_path, 24)).shuffle(seed=1).map(sp.Resize((SIDE, SIDE)))
    pipeline = pipeline.map(sp.Mosaic(SIDE, p=on), sp.Resize((SIDE, SIDE))).batch(6)
    with pipeline.loader() as loader:
        first, second = (list(loader) for _ in range(2))
        state = loader.state_dict()
    assert all(len(batch["id"]) > 6 for batch in first)
    assert all((batch["id"] == batch["index"] + 1).all() for batch in second)
    assert state["epoch"] == 2


def test_images_are_blended_and_all_their_instances_stay(tmp_path: Path) -> None:
    source = levels(tmp_path, 24)
    pipeline = sp.Pipeline(source).shuffle(seed=1).map(sp.Resize((SIDE, SIDE)), sp.MixUpInstances(alpha=0.5))
    shares = set()
    with pipeline.batch(6).loader() as loader:
        for batch in loader:
            for row, image in enumerate(batch["image"]):
                own, other = batch["id"][batch["batch_index"] == row] + 99
                value = int(image[0, 0, 0])
                assert (image == value).all()
                assert min(own, other) <= value <= max(own, other)
                shares.add(abs(int(own) - value) / max(abs(int(own) - int(other)), 1))
    assert len(shares) > 6


@pytest.mark.parametrize("partners", [sp.Recent(20), "batch", "any"])
def test_a_bad_image_is_replaced_wherever_it_is_a_partner(tmp_path: Path, partners: Any) -> None:
    bad = (5, 11, 17)
    pipeline = recipe(levels(tmp_path, 50, bad), partners=partners).batch(8).on_error(sp.Replace(at_most=5))
    with pipeline.loader(num_workers=2) as loader:
        ids = [int(number) for batch in loader for number in batch["id"]]
        assert {sample.index for sample in loader.bad_samples} <= {*bad}
    assert not {*ids} & {number + 1 for number in bad}
    assert digest(pipeline, num_workers=1) == digest(pipeline, num_workers=3)
    with pytest.raises(sp.DecodeError):
        list(recipe(levels(tmp_path / "again", 50, bad), partners=partners).batch(8).loader())


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_bad_partner_of_many_rows_counts_once(tmp_path: Path, executor: Any) -> None:
    pipeline = recipe(levels(tmp_path, 6, (2,)), partners="any").batch(6).on_error(sp.Replace(at_most=1))
    with pipeline.loader(memory="300MiB", executor=executor) as loader:
        (batch,) = loader
        assert 2 not in batch["index"]
        assert 3 not in batch["id"]
        assert len({(sample.index, sample.position) for sample in loader.bad_samples}) == 1


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("side", [1, 30])
def test_images_without_instances_and_of_one_pixel(tmp_path: Path, side: int, executor: Any) -> None:
    (tmp_path / "images").mkdir()
    entries = []
    for number in range(8):
        Image.new("RGB", (side, side), (200, 200, 200)).save(tmp_path / "images" / f"{number}.png")
        entries.append({"id": number, "file_name": f"{number}.png", "width": side, "height": side})
    boxes = [annotation(1, 0, (0, 0, side, side)) | {"segmentation": [[0, 0, side, 0, side, side, 0, side]]}]
    source = written(tmp_path, entries, boxes, instance_masks=True)
    steps = [sp.LetterBox(32, pad=False), sp.Mosaic(32), sp.CopyPaste(1.0), sp.Resize((32, 32))]
    pipeline = sp.Pipeline(source).map(*steps, sp.MixUpInstances(1.0), sp.SanitizeBoundingBoxes()).batch(4)
    with pipeline.loader(memory="300MiB", executor=executor) as loader:
        first, second = loader
        assert {*first["id"]} == {1}
        assert len(second["instance_offsets"]) == 5
        assert (second["instance_masks"].max(axis=(1, 2)) == np.diff(second["instance_offsets"])).all()
        assert set(np.unique(first["image"])) > {114, 200}


def test_a_resume_behind_a_bad_image_has_its_replacement_as_a_partner(tmp_path: Path) -> None:
    pipeline = recipe(levels(tmp_path, 50, (5, 11, 17)), partners=sp.Recent(20)).batch(8)
    pipeline = pipeline.on_error(sp.Replace(at_most=5))
    with pipeline.loader() as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state, bad = loader.state_dict(), len(loader.bad_samples)
        expected = {name: np.array(values) for name, values in next(batches).items()}
    with pipeline.loader() as loader:
        loader.load_state_dict(state)
        batch = next(iter(loader))
        assert all((batch[name] == values).all() for name, values in expected.items())
        assert len(loader.bad_samples) <= 3 - bad


@pytest.mark.parametrize("partners", [sp.Recent(32), "any"])
def test_memory_stays_within_the_forecast(tmp_path: Path, partners: Any) -> None:
    with recipe(painted(tmp_path, 70), partners=partners).batch(8).loader(memory="300MiB") as loader:
        list(loader)
        images = loader.memory()["images of rows of several"]
    assert 32 * 30 * 30 * 3 < images.peak <= images.forecast


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([sp.Mosaic(32)], "LetterBox"),
        ([sp.Resize((32, 32)), sp.Mosaic(32, p=2.0)], "probability"),
        ([sp.Resize((32, 32)), sp.Mosaic(32, partners=sp.Recent(0))], "Recent"),
        ([sp.Resize((32, 32)), sp.Normalize(), sp.Mosaic(32)], "behind all compositions"),
        ([sp.Resize(32, max_size=40), sp.MixUpInstances()], r"takes images of one size: put .* before it"),
        ([sp.Resize((32, 32)), sp.Mosaic(32, p=0.5)], r"no fixed size: put .* behind it"),
        (
            [sp.Resize((32, 32)), sp.Mosaic(32, p=0.5), sp.CopyPaste("flip"), sp.Resize((32, 32))],
            r"behind Mosaic\(.*no fixed size: put RandomAffine",
        ),
        (
            [sp.Resize((32, 32)), np.asarray, sp.Mosaic(32)],
            r"can't be beside numpy.asarray, which runs .* in your loop",
        ),
        ([sp.Resize((32, 32)), sp.Grayscale(), sp.Mosaic(32)], "channels"),
    ],
)
def test_what_cant_be_put_together_is_refused(tmp_path: Path, steps: list[Any], said: str) -> None:
    with pytest.raises(sp.PlanError, match=said):
        sp.Pipeline(painted(tmp_path, 8)).map(*steps).batch(4).plan()


@pytest.mark.parametrize("partners", [sp.Recent(20), "any"])
def test_what_runs_python_code_is_refused(tmp_path: Path, partners: Any) -> None:
    dataset = sp.MapSource([b""] * 4, encoded="image", instances=("boxes", "labels"))
    with pytest.raises(
        sp.PlanError, match=r"(?s)a dataset's Python code.*FileList\('images.txt', instances="
    ):
        recipe(dataset, partners=partners).batch(4, instances=sp.Pad(length=4)).plan()
    pipeline = recipe(painted(tmp_path, 8), partners=partners).batch(4)
    with pytest.raises(sp.PlanError, match=r"can't be beside .*asarray.*store images that it has changed"):
        pipeline.map_batch(np.asarray).plan()


def test_sources_without_sizes_are_refused() -> None:
    images = sp.Arrays(image=np.zeros((8, 32, 32, 3), np.uint8))
    with pytest.raises(sp.PlanError, match="Coco or YoloLabels"):
        sp.Pipeline(images).map(sp.Mosaic(32)).batch(4).plan()


def test_fleets_are_refused(tmp_path: Path) -> None:
    pipeline = recipe(painted(tmp_path, 20)).batch(4)
    with pytest.raises(sp.PlanError, match="rows of several images"):
        pipeline.plan(memory="300MiB", fleet=Makers([pipeline.plan(memory="300MiB")]))


def test_what_the_plan_says(tmp_path: Path) -> None:
    said = recipe(painted(tmp_path, 70)).batch(8).plan().explain()
    assert "rows of up to 8 images each" in said
    assert "the last 128 rows" in said
    assert (
        "up to 7 images of any records"
        in recipe(painted(tmp_path / "a", 9), partners="any").batch(8).plan().explain()
    )
