"""Shapes of instances: as annotation files have them, what is wrong with them, and in an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from annotated import faults, instances
from painted import annotation, written
from standpipe.contracts import check_source
from tars import shard

HEIGHT, WIDTH = 30, 40
TRIANGLE = [2.0, 3.0, 12.0, 3.0, 12.0, 13.0]
LEFT_HALF = {"counts": [0, 600, 600], "size": [HEIGHT, WIDTH]}
AS_TEXT = {"counts": "0hb0hb0", "size": [HEIGHT, WIDTH]}
EXAMPLES = [[TRIANGLE], [TRIANGLE, [20, 20, 20, 28, 28, 28]], LEFT_HALF, AS_TEXT]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def coco(folder: Path, *shapes: Any, images: int = 3, **options: Any) -> Any:
    """A source of images, of which image n % images has the n-th of the shapes."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    entries = []
    for number in range(images):
        Image.new("RGB", (WIDTH, HEIGHT)).save(folder / "images" / f"{number}.png")
        entries.append({"id": number, "file_name": f"{number}.png", "width": WIDTH, "height": HEIGHT})
    boxes = [
        annotation(number, number % images, (1, 1, 20, 20)) | {"segmentation": each}
        for number, each in enumerate(shapes)
    ]
    return written(folder, entries, boxes, **({"instance_masks": True} | options))


def points(source: Any) -> list[Any]:
    """The points of each shape of all records, as one list with None behind each ring."""
    opened = source.open()
    found = opened.locate(np.arange(opened.num_records)).shapes
    parts = np.split(found.values, found.ends[:-1])
    return [[None if np.isnan(x) else (x, y) for x, y in part.tolist()] for part in parts]


def test_all_forms_of_coco(tmp_path: Path) -> None:
    source = coco(tmp_path, *EXAMPLES, images=4)
    half = [(20, 0), (20, 30), (0, 30), (0, 0), None]
    assert points(source) == [
        [(2, 3), (12, 3), (12, 13), None],
        [
            (2, 3),
            (12, 3),
            (12, 13),
            None,
            (28, 28),
            (20, 28),
            (20, 20),
            None,
        ],  # in the same sense of rotation
        half,
        half,
    ]
    check_source(source)
    assert not coco(tmp_path, *EXAMPLES, instance_masks=False).open().has_masks


def test_records_have_their_own_shapes(tmp_path: Path) -> None:
    rings = [[[x, 0, x + 1, 0, x, y]] for x in range(5) for y in (1.0, 2.0)]
    opened = coco(tmp_path, *rings, images=4).open()
    wanted = [points[0][-2:] for points in rings]
    for indices in ([0], [3, 1], [2, 2, 0], [1, 3, 0, 2], []):
        records = opened.locate(np.array(indices, np.int64))
        assert records.shapes is not None
        numbers = [number for index in indices for number in range(index, 10, 4)]
        ends = records.shapes.ends
        assert ends.tolist() == [4 * (place + 1) for place in range(len(numbers))]
        assert records.shapes.values[ends - 2].tolist() == [wanted[number] for number in numbers]
    taken = opened.locate(np.arange(4)).take(np.array([3, 1, 3]))
    assert taken.shapes is not None
    found = opened.locate(np.array([3, 1, 3])).shapes
    assert found is not None
    assert np.array_equal(taken.shapes.values, found.values, equal_nan=True)
    assert taken.shapes.ends.tolist() == found.ends.tolist()


WRONG = {
    "instance without a mask": [None, [], {}],
    "mask that isn't polygons or runs of pixels": [
        *([[1, 2, 3, 4]], [[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5, 6, 7]], [[1, 2, 3, 4, 5, float("nan")]]),
        *([TRIANGLE, [1, 2]], [["a"] * 6], [7], 7, "text", True, [[1, 2, 3, 4, 5, 1e999]]),
        {"counts": [0, 600, 599], "size": [HEIGHT, WIDTH]},
        {"counts": [-1, 601, 600], "size": [HEIGHT, WIDTH]},
        {"counts": [0, 600, 600], "size": [HEIGHT]},
        {"counts": [0, 600, 600]},
        {"counts": "0hb0hb0", "size": [HEIGHT, WIDTH + 1]},
        {"counts": "é", "size": [HEIGHT, WIDTH]},
        {"counts": None, "size": [HEIGHT, WIDTH]},
        {"counts": [1 << 80], "size": [HEIGHT, WIDTH]},
        {"counts": [0, 1 << 60], "size": [1 << 30, 1 << 30]},
    ],
    "mask of another size than its image": [{"counts": [0, 1200], "size": [WIDTH, HEIGHT]}],
}


@pytest.mark.parametrize("kind", WRONG)
def test_faults_are_named_and_dropped(tmp_path: Path, kind: str) -> None:
    shapes = [[TRIANGLE], *WRONG[kind], LEFT_HALF]
    source = coco(tmp_path, *shapes, images=1)
    assert instances(source)["id"] == [[0, len(shapes) - 1]]
    assert len(points(source)) == 2
    texts = faults(source)
    assert [text.partition(": annotation ")[0] for text in texts] == [kind] * len(WRONG[kind])
    assert [int(text.split("annotation ")[1].split(":")[0]) for text in texts] == [*range(1, len(shapes) - 1)]
    assert f"{len(texts)} × {kind}" in sp.Pipeline(source).map(sp.CenterCrop(8)).batch(
        1
    ).plan().explain().replace("\n              ", " ")
    with pytest.raises(sp.PlanError, match=f"{len(texts)} faults, first {kind}"):
        coco(tmp_path, *shapes, images=1, invalid="error").open()


def test_an_option_of_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sp.PlanError, match="instance_masks must be False or True, got 'yes'"):
        coco(tmp_path, instance_masks="yes").open()


def yolo(folder: Path, lines: str, **options: Any) -> Any:
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    Image.new("RGB", (WIDTH, HEIGHT)).save(folder / "images" / "a.png")
    (folder / "labels" / "a.txt").write_text(lines)
    return sp.YoloLabels(folder, **options)


SEGMENTS = "1 0.1 0.2 0.5 0.2 0.5 0.6\n0 0.5 0.5 0.2 0.2\n2 0.1 0.2 0.5 0.2 0.5\n3 0.1 0.1 0.1 0.2 0.2 1.5"


def test_segments_of_the_yolo_family(tmp_path: Path) -> None:
    source = yolo(tmp_path, SEGMENTS, instance_masks=True)
    assert instances(source)["labels"] == [[1]]
    assert np.allclose(instances(source)["boxes"][0], [[4, 6, 20, 18]], atol=1e-5)
    (found,) = points(source)
    assert found[-1] is None
    assert np.allclose(found[:-1], [(4, 6), (20, 6), (20, 18)], atol=1e-5)
    kinds = [text.rpartition(": ")[0] for text in faults(source)]
    needs = "line that isn't of a class and at least three points"
    assert sorted(kinds) == sorted([needs, needs, "line whose polygon isn't in fractions of the image"])


def test_polygons_of_the_yolo_family_are_boxes_without_masks(tmp_path: Path) -> None:
    source = yolo(tmp_path, SEGMENTS)
    assert instances(source)["labels"] == [[1, 0]]
    assert np.allclose(instances(source)["boxes"][0], [[4, 6, 20, 18], [16, 12, 24, 18]], atol=1e-5)
    assert not source.open().has_masks


def test_shapes_of_json_lines_and_tar_shards(tmp_path: Path) -> None:
    target = {"boxes": [[1, 1, 20, 20]] * 2, "labels": [3, 4], "segmentation": [[TRIANGLE], LEFT_HALF]}
    objects = [target, {"boxes": [], "labels": []}, {"boxes": [[2, 2, 9, 9]], "labels": [5]}, target]
    Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.png\n" * 4)
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in objects))
    lines = sp.FileList(tmp_path / "list.txt", instances=tmp_path / "lines.jsonl", instance_masks=True)
    image = (tmp_path / "a.png").read_bytes()
    members = [
        (f"{number}.{name}", content)
        for number, each in enumerate(objects)
        for name, content in (("png", image), ("json", json.dumps(each).encode()))
    ]
    for number in range(2):
        shard(tmp_path / f"{number}.tar", members[4 * number : 4 * number + 4])
    shards = sp.TarShards(tmp_path / "[01].tar", instances="json", instance_masks=True)
    for source in (lines, shards):
        assert instances(source)["labels"] == [[3, 4], [], [], [3, 4]]
        triangle, half = [(2, 3), (12, 3), (12, 13), None], [(20, 0), (20, 30), (0, 30), (0, 0), None]
        assert points(source) == [triangle, half, triangle, half]
        assert [text.partition(":")[0] for text in faults(source)] == ["instance without a mask"]
    wrong = {**target, "segmentation": [[TRIANGLE]]}
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(wrong)}\n" for _ in objects))
    with pytest.raises(sp.PlanError, match="'segmentation' must be a list with a mask for each box"):
        lines.open()


def test_fractions_are_of_polygons_and_not_of_runs(tmp_path: Path) -> None:
    polygon = [0.25, 0.5, 0.5, 0.5, 0.5, 0.9]
    target = {"boxes": [[0, 0, 0.5, 1]] * 2, "labels": [3, 4], "segmentation": [[polygon], LEFT_HALF]}
    Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.png\n")
    (tmp_path / "lines.jsonl").write_text(json.dumps(target))
    files = tmp_path / "list.txt", tmp_path / "lines.jsonl"
    source = sp.FileList(files[0], instances=files[1], normalized=True, instance_masks=True)
    expected = [[(10, 15), (20, 15), (20, 27), None], [(20, 0), (20, 30), (0, 30), (0, 0), None]]
    assert points(source) == expected


def test_concat_has_shapes_if_all_parts_have(tmp_path: Path) -> None:
    parts = [coco(tmp_path / str(n), *([[n, 0, 9, 0, 9, k]] for k in (1, 2)), images=2) for n in range(3)]
    opened = sp.Concat(*parts).open()
    assert opened.has_masks
    found = opened.locate(np.array([5, 0, 3, 3])).shapes
    assert found is not None
    assert found.values[found.ends - 4, 0].tolist() == [2, 0, 1, 1]
    assert found.values[found.ends - 2, 1].tolist() == [2, 1, 2, 2]
    mixed = sp.Concat(parts[0], coco(tmp_path / "3", [TRIANGLE], instance_masks=False)).open()
    assert not mixed.has_masks
    assert mixed.locate(np.array([0, 2])).shapes is None


def test_an_index_is_built_again_for_masks(tmp_path: Path) -> None:
    digests = {
        coco(tmp_path, *shapes, **options).open().digest
        for shapes, options in (
            ([[TRIANGLE]], {"instance_masks": False}),
            ([[TRIANGLE]], {}),
            ([LEFT_HALF], {}),
        )
    }
    assert len(digests) == 3
