"""Objects of one image that are pasted on another: pixels, masks and boxes, and which objects they are."""

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


def check(batch: dict[str, Any]) -> int:
    """Compare masks and boxes of a batch with its pixels, and return the number of instances that are seen."""
    seen = 0
    for row, image in enumerate(batch["image"]):
        chosen = np.flatnonzero(batch["batch_index"] == row)
        dense, ids = batch["instance_masks"][chosen] > 0, batch["id"][chosen]
        painted_at = image[..., 1] > 127
        outside = painted_at & ~near(dense.any(axis=0))
        assert not outside[1:-1, 1:-1].any()  # at an edge there are parts that SanitizeBoundingBoxes drops
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
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_pixels_masks_and_boxes_agree(tmp_path: Path, recipe: Any) -> None:
    pipeline = sp.Pipeline(random_rectangles(tmp_path)).shuffle(seed=1).map(*recipe)
    plain = sp.Pipeline(random_rectangles(tmp_path / "b")).shuffle(seed=1)
    plain = plain.map(*(each for each in recipe if not isinstance(each, sp.CopyPaste)))
    seen, before = (
        sum(check(batch) for batch in batches(each.batch(8, masks="dense", boxes_from="shape")))
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


@pytest.mark.parametrize("name", ["simple", "of the window", "of mosaics"])
def test_epochs_have_one_digest(tmp_path: Path, name: str) -> None:
    pipeline = sp.Pipeline(random_rectangles(tmp_path)).shuffle(seed=3).map(*RECIPES[name]).batch(6)
    whole = sp.digest_epoch(pipeline, epoch=1, num_workers=1, memory=MEMORY)
    ways: list[dict[str, Any]] = [{"num_workers": 2}, {"num_workers": 5}, {"stop_at": [3], "num_workers": 2}]
    for way in ways:
        assert sp.digest_epoch(pipeline, epoch=1, memory=MEMORY, **way).sha256 == whole.sha256, way


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
        ([sp.Resize(40, max_size=60), sp.CopyPaste()], "isn't fixed"),
        ([sp.Resize(SIZE), sp.CopyPaste(), sp.CopyPaste(mode="flip")], "twice"),
    ],
)
def test_what_cant_be_pasted_is_refused(tmp_path: Path, steps: list[Any], said: str) -> None:
    with pytest.raises(sp.PlanError, match=said):
        sp.Pipeline(random_rectangles(tmp_path, 8)).map(*steps).batch(4).plan()


def test_sources_without_masks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sp.PlanError, match="instance_masks=True"):
        sp.Pipeline(painted(tmp_path, 8)).map(sp.Resize(SIZE), sp.CopyPaste()).batch(4).plan()
