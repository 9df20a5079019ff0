"""Objects and rectangles of one image that are pasted on another: pixels, masks and boxes, and which ones they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import annotation, painted, written
from standpipe.source.annotations.coco import Coco
from standpipe.spec import AnyArray

SIZE = HEIGHT, WIDTH = 60, 80
MEMORY = "512MiB"
SEEN = sp.SanitizeBoundingBoxes()
MOVES = [sp.RandomResizedCrop((48, 64), (0.5, 1.0)), sp.RandomHorizontalFlip()]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rectangles(folder: Path, images: Any, bad: tuple[int, ...] = ()) -> Coco:
    """A source of images with rectangles, xyxy: the one with id n is painted with red 2 n and green 255 on black."""
    entries, found = [], []
    (folder / "images").mkdir(parents=True)
    for number, boxes in enumerate(images):
        pixels = np.zeros((*SIZE, 3), np.uint8)
        for left, top, right, bottom in boxes:
            identity = len(found) + 1
            pixels[top:bottom, left:right] = 2 * identity, 255, 0
            corners = [left, top, right, top, right, bottom, left, bottom]
            box = annotation(identity, number, (left, top, right, bottom))
            found.append(box | {"segmentation": [corners]})
        name = f"{number:03d}.png"
        Image.fromarray(pixels).save(folder / "images" / name)
        if number in bad:
            (folder / "images" / name).write_bytes(b"no image")
        entries.append({"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT})
    return written(folder, entries, found, instance_masks=True)


def random_rectangles(folder: Path, images: int = 40, **options: Any) -> Coco:
    """A source of images with 0 to 3 rectangles side by side."""
    random = np.random.default_rng(5)
    found = []
    for number in range(images):
        boxes = []
        for part in range(number % 4):
            left, top = 26 * part + int(random.integers(0, 6)), int(random.integers(0, 30))
            boxes.append((left, top, left + int(random.integers(12, 20)), top + int(random.integers(12, 30))))
        found.append(boxes)
    return rectangles(folder, found, **options)


def batches(pipeline: sp.Pipeline, **options: Any) -> list[dict[str, Any]]:
    with pipeline.loader(memory=MEMORY, **options) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


def near(mask: AnyArray) -> AnyArray:
    """Return a mask that is wider by one pixel."""
    padded, (height, width) = np.pad(mask, 1), mask.shape
    return np.max([padded[y : y + height, x : x + width] for y in range(3) for x in range(3)], axis=0)


def check(batch: dict[str, Any], most_without: int = 0) -> int:
    """Compare masks and boxes of a batch with its pixels, and return the number of instances that are seen.

    most_without  the most pixels of objects in an image that have no mask
    """
    seen = 0
    for row, image in enumerate(batch["image"]):
        chosen = np.flatnonzero(batch["batch_index"] == row)
        dense, ids = batch["instance_masks"][chosen] > 0, batch["id"][chosen]
        painted_at = image[..., 1] > 127
        outside = painted_at & ~near(dense.any(axis=0))
        # At an edge there are parts that SanitizeBoundingBoxes drops.
        assert outside[1:-1, 1:-1].sum() <= most_without
        assert dense.sum(axis=0).max(initial=0) <= 1
        for mask, number, box in zip(dense, ids, batch["boxes"][chosen], strict=True):
            same = painted_at & (
                np.abs(image[..., 0] / np.maximum(image[..., 1], 1) * 255 - 2 * number) < 1.5
            )
            inner = ~near(near(~mask))
            assert same[inner].all()
            if mask.sum() < 12:
                continue
            y, x = np.nonzero(mask)
            hull = np.array([x.min(), y.min(), x.max() + 1, y.max() + 1])
            assert np.abs(box - hull).max() <= 1, (box, hull)
            seen += 1
    return seen


RECIPES: dict[str, list[Any]] = {
    "simple": [*MOVES, sp.CopyPaste(), SEEN],
    "of the window": [
        sp.Resize(SIZE),
        sp.CopyPaste(partners=sp.Recent(9)),
        *MOVES,
        SEEN,
    ],
    "of any": [*MOVES, sp.CopyPaste(0.7, partners="any"), sp.Resize((60, 60)), SEEN],
    "flip": [*MOVES, sp.CopyPaste(mode="flip", share=1.0), SEEN],
    "of mosaics": [
        sp.LetterBox(60, pad=False),
        sp.Mosaic(60, fill=0),
        sp.CopyPaste(mode="flip", share=1.0),
        sp.RandomResizedCrop(90, (0.4, 1.0)),
        SEEN,
    ],
    "on mosaics": [
        sp.LetterBox(60, pad=False),
        sp.Mosaic(60, fill=0),
        sp.RandomResizedCrop(90, (0.4, 1.0)),
        sp.CopyPaste(),
        SEEN,
    ],
    "cut": [*MOVES, sp.CutMixInstances(), SEEN],
    "cut, then mixed": [
        sp.LetterBox(60, pad=False),
        sp.Mosaic(60, fill=0, partners="any"),
        sp.RandomResizedCrop(90, (0.1, 0.4)),
        sp.CutMixInstances(),
        *MOVES,
        SEEN,
    ],
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_pixels_masks_and_boxes_agree(tmp_path: Path, recipe: Any) -> None:
    pipeline = sp.Pipeline(random_rectangles(tmp_path)).shuffle(seed=1).map(*recipe)
    plain = sp.Pipeline(random_rectangles(tmp_path / "b")).shuffle(seed=1)
    plain = plain.map(*(each for each in recipe if not isinstance(each, sp.CopyPaste | sp.CutMixInstances)))
    without = 30 * any(isinstance(each, sp.CutMixInstances) for each in recipe)  # a hundredth of an object
    seen, before = (
        sum(check(batch, without) for batch in batches(each.batch(8, masks="dense", boxes_from="shape")))
        for each in (pipeline, plain)
    )
    assert seen > before * 1.2


def test_own_objects_lose_what_is_covered(tmp_path: Path) -> None:
    source = rectangles(tmp_path, [[(10, 10, 50, 40), (60, 45, 70, 55)], [(5, 5, 30, 50)]])
    pipeline = sp.Pipeline(source).map(sp.Resize(SIZE), sp.CopyPaste())
    for options in ({"masks": "dense"}, {"masks": "index"}):
        (batch,) = batches(pipeline.batch(2, **options))
        first = batch["batch_index"] == 0
        assert batch["id"][first].tolist() == [1, 2, 3]
        assert batch["boxes"][first].tolist() == [[30, 10, 50, 40], [60, 45, 70, 55], [5, 5, 30, 50]]
        index = np.zeros(SIZE, int)
        index[10:40, 10:50], index[45:55, 60:70], index[5:50, 5:30] = 1, 2, 3
        assert np.array_equal(batch["image"][0][..., 0], 2 * index)
        masks = batch["instance_masks"]
        assert np.array_equal(
            masks[:3] > 0 if masks.shape[0] > 2 else masks[0],
            [index == n for n in (1, 2, 3)] if masks.shape[0] > 2 else index,
        )


def test_a_covered_object_has_an_empty_box_or_is_dropped(tmp_path: Path) -> None:
    source = rectangles(tmp_path, [[(12, 12, 20, 20)], [(5, 5, 30, 50)]])
    pipeline = sp.Pipeline(source).map(sp.Resize(SIZE), sp.CopyPaste())
    (batch,) = batches(pipeline.batch(2))
    first = batch["batch_index"] == 0
    assert batch["boxes"][first].tolist() == [[0, 0, 0, 0], [5, 5, 30, 50]]
    assert np.unique(batch["instance_masks"][0]).tolist() == [0, 2]
    (batch,) = batches(pipeline.map(sp.SanitizeBoundingBoxes()).batch(2))
    assert batch["id"].tolist() == [2, 2, 1]
    assert np.unique(batch["instance_masks"][0]).tolist() == [0, 1]


def test_partners_and_chosen_objects_are_torchvisions(tmp_path: Path) -> None:
    boxes = [(8 * n, 10, 8 * n + 6, 20) for n in range(8)]
    pipeline = sp.Pipeline(rectangles(tmp_path, [boxes] * 12)).map(sp.Resize(SIZE), sp.CopyPaste())
    counts = []
    for batch in batches(pipeline.batch(12), executor="thread"):
        for row in range(12):
            objects = (batch["id"][batch["batch_index"] == row] - 1) // 8
            assert set(objects[8:].tolist()) == {(row - 1) % 12}
            counts.append(len(objects) - 8)
    assert 1 <= min(counts) < max(counts) < 8
    assert np.mean(counts) == pytest.approx(8 * (1 - (7 / 8) ** 8), abs=1)


def test_mirrored_objects_that_cover_little_are_pasted(tmp_path: Path) -> None:
    # Mirrored, the first one covers itself, the second one a fifth of the third, and this an eighth of the second.
    source = rectangles(tmp_path, [[(35, 5, 45, 15), (0, 30, 17, 40), (55, 30, 65, 40)]])
    for share, pasted in ((1.0, [3, 2]), (0.5, [3]), (0.2, [])):
        recipe = sp.Resize(SIZE), sp.CopyPaste(mode="flip", share=share)
        (batch,) = batches(sp.Pipeline(source).map(*recipe).batch(1))
        assert batch["id"].tolist() == [1, 2, 3, *sorted(pasted)]
    (batch,) = batches(sp.Pipeline(source).map(sp.Resize(SIZE), sp.CopyPaste(0.0, "flip")).batch(1))
    assert batch["id"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["simple", "of the window", "of mosaics", "cut", "cut, then mixed"])
def test_epochs_have_one_digest(tmp_path: Path, name: str) -> None:
    pipeline = sp.Pipeline(random_rectangles(tmp_path)).shuffle(seed=3).map(*RECIPES[name]).batch(6)
    whole = sp.digest_epoch(pipeline, epoch=1, num_workers=1, memory=MEMORY)
    ways: list[dict[str, Any]] = [{"num_workers": 2}, {"num_workers": 5}, {"stop_at": [3], "num_workers": 2}]
    for way in ways:
        assert sp.digest_epoch(pipeline, epoch=1, memory=MEMORY, **way).sha256 == whole.sha256, way


def plain_images(folder: Path, boxes: Any) -> Coco:
    """A source of images of one level each, 100 + their number, with boxes."""
    (folder / "images").mkdir(parents=True)
    entries, found = [], []
    for number, each in enumerate(boxes):
        name = f"{number:03d}.png"
        Image.new("RGB", (WIDTH, HEIGHT), (100 + number,) * 3).save(folder / "images" / name)
        entries.append({"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT})
        found += [annotation(len(found) + place, number, box) for place, box in enumerate(each, 1)]
    return written(folder, entries, found)


def test_a_rectangle_without_boxes_gets_the_partners_pixels_and_boxes(tmp_path: Path) -> None:
    boxes = np.random.default_rng(3).integers((0, 0, 1, 1), (50, 40, 30, 20), (150, 3, 4))  # x, y and sides
    boxes[..., 2:] += boxes[..., :2]
    # What a rectangle cuts off doesn't count for the visibility, but an instance that is dropped doesn't count at all.
    seen = sp.SanitizeBoundingBoxes(min_size=3, min_visibility=0.5, visibility_of="warp")
    steps = sp.Resize(SIZE), sp.CutMixInstances(partners="batch"), seen
    pipeline = sp.Pipeline(plain_images(tmp_path, boxes.tolist())).map(*steps)
    cut = over_dropped = dropped = 0
    for batch in batches(pipeline.batch(10)):
        for row, (number, image) in enumerate(zip(batch["index"], batch["image"], strict=True)):
            other = number - row + (row - 1) % 10
            found = batch["boxes"][batch["batch_index"] == row]
            own, others = (boxes[each][large(boxes[each])] for each in (number, other))
            assert np.array_equal(found[: len(own)], own)
            level = image[..., 0].astype(int) - 100
            y, x = np.nonzero(level != number)
            if not len(y):
                assert len(found) == len(own)
                continue
            rectangle = x.min(), y.min(), x.max() + 1, y.max() + 1
            assert set(level[level != number]) == {other}
            assert len(y) == area(np.array(rectangle))
            assert not area(inside(own, *rectangle)).any()
            cut_off = inside(others, *rectangle)
            come = area(cut_off) >= 0.1 * area(others)
            assert come.any()
            assert np.array_equal(found[len(own) :], cut_off[come & large(cut_off)])
            cut += 1
            over_dropped += int(area(inside(boxes[number], *rectangle)).any())
            dropped += int((come & ~large(cut_off)).any())
    assert 10 < cut < 90
    assert min(over_dropped, dropped) > 0


def test_the_yolo_recipe_cuts_until_its_schedule_ends(tmp_path: Path) -> None:
    source = plain_images(tmp_path, [[(0, 0, 20, 20)], [(40, 40, 60, 60)]] * 10)
    recipe = sp.recipes.yolo(WIDTH, mosaic=0.0, cutmix=sp.Schedule({0: 1.0, 1: 0.0}))
    with sp.Pipeline(source).map(*recipe).batch(10).loader(memory=MEMORY) as loader:
        counts = [sum(len(batch["id"]) for batch in loader) for _ in range(2)]
    assert counts[0] > counts[1]
    assert not any(isinstance(each, sp.CutMixInstances) for each in sp.recipes.yolo(WIDTH))


def large(boxes: AnyArray) -> AnyArray:
    return (boxes[:, 2:] - boxes[:, :2] >= 3).all(axis=1)


def area(boxes: AnyArray) -> AnyArray:
    return (boxes[..., 2:] - boxes[..., :2]).prod(axis=-1)


def inside(boxes: AnyArray, *rectangle: int) -> AnyArray:
    """Return boxes cut off at a rectangle's edges; those outside of it have no area."""
    return np.clip(boxes, rectangle[:2] * 2, rectangle[2:] * 2)


def test_an_image_full_of_boxes_stays_and_one_without_any_comes_with_none(tmp_path: Path) -> None:
    source = plain_images(tmp_path, [[(0, 0, WIDTH, HEIGHT)], [], []] * 8)
    steps = sp.Resize(SIZE), sp.CutMixInstances(partners="batch")
    (batch,) = batches(sp.Pipeline(source).map(*steps).batch(24))
    changed = {row % 3 for row, image in enumerate(batch["image"]) if len(np.unique(image)) > 1}
    assert changed == {1}  # without boxes, behind an image with one


def test_a_bad_partner_is_replaced(tmp_path: Path) -> None:
    source = random_rectangles(tmp_path, bad=(3, 7, 18))
    pipeline = sp.Pipeline(source).shuffle(seed=1).map(*RECIPES["simple"])
    pipeline = pipeline.batch(8, masks="dense", boxes_from="shape").on_error(sp.Replace(at_most=5))
    assert sum(check(batch) for batch in batches(pipeline, num_workers=2)) > 60
    assert not {3, 7, 18} & {int(number) for batch in batches(pipeline) for number in batch["index"]}


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([sp.Resize(SIZE), sp.CopyPaste(mode="mirror")], "mode"),  # type: ignore[arg-type]
        ([sp.Resize(SIZE), sp.CopyPaste(share=1.5)], "share"),
        ([sp.Resize(40, max_size=60), sp.CopyPaste()], "takes images of one size"),
        ([sp.Resize(SIZE), sp.CopyPaste(), sp.CopyPaste(mode="flip")], "twice"),
        ([sp.Resize(SIZE), sp.CopyPaste(mode="flip"), sp.CutMixInstances()], "together"),
        ([sp.Resize(40, max_size=60), sp.CutMixInstances()], "takes images of one size"),
        ([sp.Resize(SIZE), sp.CutMixInstances(p=1.5)], "probability"),
    ],
)
def test_what_cant_be_pasted_is_refused(tmp_path: Path, steps: list[Any], said: str) -> None:
    with pytest.raises(sp.PlanError, match=said):
        sp.Pipeline(random_rectangles(tmp_path, 8)).map(*steps).batch(4).plan()


def test_sources_without_masks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sp.PlanError, match="instance_masks=True"):
        sp.Pipeline(painted(tmp_path, 8)).map(sp.Resize(SIZE), sp.CopyPaste()).batch(4).plan()
