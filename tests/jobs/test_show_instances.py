"""``Pipeline.show`` draws boxes, names and keypoints where the batch has them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from painted import LONG_AGO_NS, annotation
from shapes import of_polygons
from standpipe.jobs.show.overlay import COVERED, NAME_PX
from standpipe.jobs.show.sheet import GAP_PX, LINE_PX, MARGIN_PX, Sheet

HEIGHT, WIDTH = 150, 200  # a cell is wider than its title, and as large as the image
BOXES = [(20, 40, 80, 120), (110, 60, 190, 140)]
POINTS = [(30, 60, 2), (60, 60, 1), (60, 110, 0), (30, 110, 2)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def source(folder: Path, *, points: bool = False, count: int = 1, **names: str) -> sp.Coco:
    """Black images with two boxes, of the categories 1 and 3."""
    (folder / "images").mkdir()
    images, annotations = [], []
    for number in range(count):
        Image.new("RGB", (WIDTH, HEIGHT)).save(folder / "images" / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": WIDTH, "height": HEIGHT})
        for box, category in zip(BOXES, (1, 3), strict=True):
            annotations.append(annotation(len(annotations) + 1, number, box, category))
    more: dict[str, Any] = {}
    if points:
        more = {"keypoints": ["a", "b", "c", "d"], "skeleton": [[1, 2], [2, 3], [4, 1], [9, 1], "x"]}
        annotations[0]["keypoints"] = [value for point in POINTS for value in point]
    categories = [{"id": number, "name": names.get(f"c{number}", "ab"), **more} for number in (1, 3)]
    file = folder / "instances.json"
    file.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return sp.Coco(folder / "images", file)


def cell(sheet: Sheet, column: int = 0, size: tuple[int, int] = (HEIGHT, WIDTH)) -> np.ndarray:
    """A picture in the first row of a sheet whose columns are all as wide as ``WIDTH``."""
    left, top = MARGIN_PX + column * (WIDTH + GAP_PX), MARGIN_PX + LINE_PX + GAP_PX
    return np.asarray(sheet.image)[top : top + size[0], left : left + size[1]]


def outlined(picture: np.ndarray, box: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The colour of a box's outline, without its upper edge, where a name may be; None if there is none."""
    height, width = picture.shape[:2]
    left, top, right, bottom = np.clip(box, 0, [width - 1, height - 1] * 2)
    edges = [
        picture[bottom, left : right + 1],
        picture[top + NAME_PX : bottom, left],
        picture[top + NAME_PX : bottom, right],
    ]
    colours = {tuple(pixel.tolist()) for edge in edges for pixel in edge}
    inside = picture[top + NAME_PX : bottom - 3, left + 3 : right - 3]
    return colours.pop() if len(colours) == 1 and not inside.any() else None


FORMS = {
    "not batched": {},
    "ragged": {"batch_size": 2},
    "padded": {"batch_size": 2, "instances": sp.Pad(length=5)},
    "listed": {"batch_size": 2, "collate": {"image": list}},
    "images padded": {"batch_size": 2, "collate": {"image": sp.Pad(max_shape=(HEIGHT, WIDTH, 3))}},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=[*FORMS])
def test_boxes_are_drawn_in_the_colour_of_their_class(tmp_path: Path, form: dict[str, Any]) -> None:
    pipeline = sp.Pipeline(source(tmp_path, count=3))
    pipeline = pipeline.map(sp.ClampBoundingBoxes() if "collate" in form else sp.CenterCrop((HEIGHT, WIDTH)))
    picture = cell((pipeline.batch(**form) if form else pipeline).show(3))
    first, second = (outlined(picture, box) for box in BOXES)
    assert first == (255, 0, 0)
    assert second not in (None, first)
    assert (picture[40 - NAME_PX : 40, 20:30] == first).all(axis=-1).any()  # behind the name
    assert not picture[: 40 - NAME_PX].any()


def test_names_are_of_the_class_or_numbers(tmp_path: Path) -> None:
    pictures = []
    for name, names in (("named", {"c1": "cat"}), ("empty", {"c1": ""}), ("one", {"c1": "1"})):
        (tmp_path / name).mkdir()
        pipeline = sp.Pipeline(source(tmp_path / name, **names))
        pictures.append(cell(pipeline.show(1)).tolist())
    assert pictures[0] != pictures[1] == pictures[2]


def test_steps_and_epochs_and_views_have_their_own_boxes(tmp_path: Path) -> None:
    mirrored = [(WIDTH - right, top, WIDTH - left, bottom) for left, top, right, bottom in BOXES]
    plain, flip = sp.Pipeline(source(tmp_path)), sp.RandomHorizontalFlip(1.0)
    crop = sp.CenterCrop((HEIGHT, WIDTH))
    sheet = plain.map(crop, flip).show(1, steps=True)
    for column, boxes in enumerate((BOXES, BOXES, mirrored)):
        assert None not in [outlined(cell(sheet, column), box) for box in boxes]
    sheet = plain.map(flip).show(1, epoch=range(2))
    for column in range(2):
        assert None not in [outlined(cell(sheet, column), box) for box in mirrored]
    views = plain.map(sp.Views(a=[crop], b=[crop, flip]))
    sheet = views.show(1)
    for column, boxes in enumerate((BOXES, mirrored)):
        assert None not in [outlined(cell(sheet, column), box) for box in boxes]
    image = np.asarray(views.show(1, steps=True).image)
    rows = HEIGHT + GAP_PX + LINE_PX + MARGIN_PX
    below = Sheet(Image.fromarray(image[rows:]))
    for column, boxes in enumerate((BOXES, BOXES, mirrored)):
        assert None not in [outlined(cell(below, column), box) for box in boxes]


def test_boxes_of_a_dataset_are_drawn() -> None:
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    samples = [{"image": image, "target": {"boxes": BOXES, "labels": [1, 3]}}] * 3
    dataset = sp.Pipeline(sp.MapSource(samples, instances=("boxes", "labels"))).map(sp.CenterCrop(HEIGHT))
    moved = [(left - 25, top, right - 25, bottom) for left, top, right, bottom in BOXES]
    for form in (sp.Ragged(max_values=2), sp.Pad(length=3)):
        pipeline = dataset.batch(1, instances=form)
        for sheet, column in ((pipeline.show(2), 0), (pipeline.show(2, steps=True), 1)):
            picture = cell(sheet, column, (HEIGHT, HEIGHT))
            assert outlined(picture, moved[1]) not in (None, (255, 0, 0))


def test_sizes_of_images_may_differ_between_steps(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(source(tmp_path)).map(sp.Resize((HEIGHT // 2, WIDTH // 2)))
    sheet = pipeline.show(1, steps=True)
    assert None not in [outlined(cell(sheet), box) for box in BOXES]
    half = cell(sheet, 1, (HEIGHT // 2, WIDTH // 2))
    assert None not in [outlined(half, tuple(side // 2 for side in box)) for box in BOXES]


def test_boxes_that_were_cut_off_are_not_drawn(tmp_path: Path) -> None:
    picture = cell(sp.Pipeline(source(tmp_path)).map(sp.CenterCrop((HEIGHT, 30))).show(1), 0, (HEIGHT, 30))
    red = (picture == (255, 0, 0)).all(axis=-1)
    assert not red.any()
    assert picture.any()


def test_keypoints_have_their_skeleton_and_invisible_ones_are_not_drawn(tmp_path: Path) -> None:
    pipeline = sp.Pipeline(source(tmp_path, points=True)).map(sp.CenterCrop((HEIGHT, WIDTH)))
    picture = cell(pipeline.show(1))

    def is_red(x: int, y: int) -> bool:
        return picture[y, x].tolist() == [255, 0, 0]

    assert [is_red(x, y) for x, y, _ in POINTS] == [True, True, False, True]
    lines = [(45, 60), (60, 85), (45, 110), (30, 85)]  # the middles of a–b, b–c, c–d, d–a
    assert [is_red(*place) for place in lines] == [True, False, False, True]
    assert pipeline.source.open().skeleton == ((0, 1), (1, 2), (3, 0))  # type: ignore[attr-defined]


def test_a_skeleton_is_known_if_all_categories_and_parts_have_the_same(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = (source(tmp_path / name, points=True) for name in ("one", "other"))
    assert sp.Concat(one, other).open().skeleton == ((0, 1), (1, 2), (3, 0))  # type: ignore[attr-defined]
    content = json.loads(Path(other.annotations).read_text())
    content["categories"][0]["skeleton"] = [[1, 2]]
    Path(other.annotations).write_text(json.dumps(content))
    os.utime(other.annotations, ns=(LONG_AGO_NS + 10**9, LONG_AGO_NS + 10**9))
    assert other.open().skeleton == ()  # type: ignore[attr-defined]
    assert sp.Concat(one, other).open().skeleton == ()  # type: ignore[attr-defined]


def test_masks_are_under_their_boxes(tmp_path: Path) -> None:
    small, large = [(90, 60), (110, 60), (110, 80), (90, 80)], [(40, 30), (160, 30), (160, 120), (40, 120)]
    given = of_polygons(tmp_path, [[large, small]], size=(HEIGHT, WIDTH))
    pipeline = sp.Pipeline(given).map(sp.Resize((HEIGHT, WIDTH))).batch(1, masks="dense", mask_ratio=4)
    picture = cell(pipeline.show(1))
    assert picture[5, 5].tolist() == [0, 0, 0]
    for x, y in ((60, 50), (100, 70)):  # a colour of the class, over white
        assert 255 in picture[y, x]
        assert 255 - COVERED in picture[y, x]
