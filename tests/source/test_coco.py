"""Annotation files in COCO's format: fields, options, faults by policy, and files of any other form."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import standpipe as sp
from annotated import faults, instances
from photos import encoded, picture
from standpipe.contracts import check_source
from standpipe.source.annotations.coco import Coco

LONG_AGO_NS = 1_600_000_000_123_456_789
IMAGES = [(9, "b/9.jpg"), (2, "2.jpg"), (5, "5.jpg")]  # ids and names, not in order


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def annotation(
    number: int, image: int, box: Any = (1, 2, 3, 4), category: int = 1, **more: Any
) -> dict[str, Any]:
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": box,
        "iscrowd": 0,
        "area": 6,
    } | more


def content(*annotations: dict[str, Any]) -> dict[str, Any]:
    """The contents of a file with three images of 40 × 30 pixels, and the categories 1, 3 and 4."""
    images = [{"id": number, "file_name": name, "width": 40, "height": 30} for number, name in IMAGES]
    categories = [{"id": number, "name": name} for number, name in ((4, "dog"), (1, "cat"), (3, "a\nb"))]
    return {"images": images, "annotations": list(annotations), "categories": categories}


def write(folder: Path, what: Any, **options: Any) -> Coco:
    """The source of a file of these contents, or of this text, with all its images."""
    for _, name in IMAGES:
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    file = folder / "instances.json"
    text = what if isinstance(what, str | bytes) else json.dumps(what)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return Coco(folder / "images", file, **options)


def test_fields_of_instances(tmp_path: Path) -> None:
    crowd = annotation(8, 5, iscrowd=1)
    source = write(
        tmp_path,
        content(annotation(7, 9), crowd, annotation(3, 2, (0, 0, 40, 30), 4, area=9.5), annotation(1, 9)),
    )
    opened = source.open()
    check_source(source)
    records = opened.locate(np.arange(3))
    assert records.plain["image_id"].tolist() == [2, 5, 9]
    assert opened.column("image_id", 1, 3).tolist() == [5, 9]
    assert [opened.name(row) for row in range(3)] == [
        f"{tmp_path}/images/{name}" for name in ("2.jpg", "5.jpg", "b/9.jpg")
    ]
    assert opened.classes == ("", "cat", "", r"a\nb", "dog")
    assert opened.sizes(np.arange(3)).tolist() == [[30, 40]] * 3  # type: ignore[attr-defined]
    assert instances(source) == {
        "boxes": [[[0, 0, 40, 30]], [], [[1, 2, 4, 6], [1, 2, 4, 6]]],
        "labels": [[4], [], [1, 1]],
        "area": [[9.5], [], [6, 6]],
        "iscrowd": [[False], [], [False, False]],
        "id": [[3], [], [7, 1]],
    }
    assert instances(write(tmp_path, content(crowd), crowd="keep"))["iscrowd"] == [[], [True], []]
    assert source.describe() == f"Coco('{tmp_path}/images', '{tmp_path}/instances.json')"


@pytest.mark.parametrize(
    ("labels", "numbers", "classes"),
    [
        ("category_id", [1, 3, 4], ("", "cat", "", r"a\nb", "dog")),
        ("contiguous", [0, 1, 2], ("cat", r"a\nb", "dog")),
        ("contiguous+1", [1, 2, 3], ("", "cat", r"a\nb", "dog")),
    ],
)
def test_labels(tmp_path: Path, labels: Any, numbers: list[int], classes: tuple[str, ...]) -> None:
    three = [annotation(number, 2, category=number) for number in (1, 3, 4)]
    source = write(tmp_path, content(*three), labels=labels)
    assert instances(source)["labels"][0] == numbers
    assert source.open().classes == classes
    check_source(source)


def test_sections_in_any_order_and_unknown_ones(tmp_path: Path) -> None:
    whole = content(annotation(7, 9), annotation(3, 2))
    expected = instances(write(tmp_path, whole))
    turned = {
        "info": {"a": [1, {}]},
        "none": [],
        "other": [[1], 2, "x"],
        **dict(reversed(whole.items())),
        "version": 1.5,
    }
    assert instances(write(tmp_path, turned)) == expected
    assert instances(write(tmp_path, "\ufeff" + json.dumps(turned, indent=3))) == expected


def test_keypoints(tmp_path: Path) -> None:
    points = [1, 2, 2, 5, 6, 1]
    found = write(
        tmp_path,
        content(annotation(1, 2), annotation(2, 5, keypoints=points), annotation(3, 9, keypoints=[])),
    )
    nothing = [[0, 0, 0], [0, 0, 0]]
    assert instances(found)["keypoints"] == [[nothing], [[[1, 2, 2], [5, 6, 1]]], [nothing]]
    check_source(found)
    for wrong in ([1, 2, 2], [1, 2, 2, 5]):
        with pytest.raises(sp.PlanError, match=r"item 1 of 'annotations', at byte .* numbers of keypoints"):
            write(
                tmp_path, content(annotation(2, 5, keypoints=points), annotation(3, 9, keypoints=wrong))
            ).open()


def test_further_numbers_are_columns(tmp_path: Path) -> None:
    more = {"score": 0.5, "track": 3, "text": "a", "labels": 1, "index": 2, "a b": 3, "partly": 1, "huge": 2}
    others = {"score": 1, "track": True, "text": 1, "labels": 1, "late": 2, "partly": None, "huge": 10**400}
    found = write(tmp_path, content(annotation(1, 2, **more), annotation(2, 9, **others)))
    check_source(found)
    names = {"boxes", "labels", "area", "iscrowd", "id", "score", "track"}
    read = instances(found)
    assert {*read} == names
    assert [read[name] for name in ("score", "track")] == [[[0.5], [], [1.0]], [[3.0], [], [1.0]]]
    fields = found.open().fields
    assert [fields[name].dtype for name in ("score", "track")] == [np.float32, np.float64]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        ([["nose", "left_eye", "right_eye", "left_ear"]], ((1, 2),)),
        ([["nose", "tail"]], ()),
        ([["left_a", "right_a"], ["left_a", "right_a"]], ((0, 1),)),
        ([["left_a", "right_a"], ["right_a", "left_a"]], None),
        ([[]], None),
    ],
)
def test_pairs_of_keypoints_are_found_by_their_names(tmp_path: Path, names: Any, pairs: Any) -> None:
    whole = content(annotation(2, 5, keypoints=[1, 2, 2, 5, 6, 1]))
    for category, points in zip(whole["categories"], names, strict=False):
        category["keypoints"] = points
    assert write(tmp_path, whole).open().flip_pairs == pairs  # type: ignore[attr-defined]


def test_images_without_instances(tmp_path: Path) -> None:
    source = write(
        tmp_path, content(annotation(1, 5), annotation(2, 9, (1, 1, 0, 4))), without_instances="drop"
    )
    assert source.open().locate(np.array([0])).plain["image_id"].tolist() == [5]
    assert source.open().num_records == 1
    with pytest.raises(sp.PlanError, match="has no images with instances; 1 × empty box"):
        write(tmp_path, content(annotation(2, 9, (1, 1, 0, 4))), without_instances="drop").open()


WRONG = [
    (annotation(7, 2, (5, 5, 0, 4)), "empty box: annotation 7: the box from and to (5, 5, 5, 9)"),
    (annotation(7, 2, (5, 5, 3, -4)), "empty box: annotation 7"),
    (annotation(7, 2, (float("nan"), 5, 3, 4)), "box that isn't finite: annotation 7"),
    (annotation(7, 2, (1, 5, float("inf"), 4)), "box that isn't finite: annotation 7"),
    (annotation(7, 2, ()), "box that isn't finite: annotation 7"),
    (
        annotation(7, 2, (50, 5, 3, 4)),
        "box outside its image: annotation 7: the box from and to (50, 5, 53, 9), in an",
    ),
    (annotation(7, 2, (40, 5, 0.5, 4)), "empty box: annotation 7"),
    (annotation(7, 2, category=2), "category that isn't in the file: annotation 7 of category 2"),
    (annotation(7, 3), "annotation without an image: annotation 7 of image 3"),
    (annotation(1, 5), "annotation id that comes twice: annotation 1"),
    (annotation(7, 2, keypoints=[float("nan")] * 3), "keypoints that aren't finite: annotation 7"),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG)
@pytest.mark.parametrize("invalid", ["clip", "drop"])
def test_a_fault_is_dropped_and_named(tmp_path: Path, wrong: dict[str, Any], text: str, invalid: Any) -> None:
    good = annotation(1, 2, (2, 2, 5, 5), keypoints=[1, 1, 2])
    source = write(tmp_path, content(good, wrong), invalid=invalid)
    assert instances(source)["id"] == [[1], [], []]
    (found,) = faults(source)
    assert found.startswith(text)
    note = source.open().index_note  # type: ignore[attr-defined]
    assert f"faults of annotations: 1 × {text.partition(':')[0]}" in note
    checked = sp.check_files(source)
    assert list(checked.skipped_files()) == [found]


@pytest.mark.parametrize(("wrong", "text"), WRONG)
def test_a_fault_is_an_error(tmp_path: Path, wrong: dict[str, Any], text: str) -> None:
    source = write(tmp_path, content(annotation(1, 2), wrong), invalid="error")
    with pytest.raises(sp.PlanError) as raised:
        source.open()
    assert f"{tmp_path}/instances.json: 1 faults, first {text}" in str(raised.value)


def test_boxes_that_lead_out_of_their_image(tmp_path: Path) -> None:
    boxes = content(
        annotation(1, 2, (-5, 2, 10, 10)),
        annotation(2, 2, (38, 20, 3, 10.5)),
        annotation(3, 2, (30, 2, 20, 5)),
    )
    clipped = write(tmp_path, boxes)
    assert instances(clipped)["boxes"][0] == [[0, 2, 5, 12], [38, 20, 40, 30], [30, 2, 40, 7]]
    assert [text.partition(": the")[0] for text in faults(clipped)] == [
        "box outside its image: annotation 1",
        "box outside its image: annotation 3",
    ]
    dropped = write(tmp_path, boxes, invalid="drop")
    assert instances(dropped)["boxes"][0] == [[38, 20, 40, 30]]
    assert faults(dropped) == faults(clipped)
    within = content(annotation(2, 2, (38, 20, 3, 10.5)))
    assert instances(write(tmp_path, within, invalid="error"))["boxes"][0] == [[38, 20, 40, 30]]


def test_an_image_without_a_file_until_it_is_there(tmp_path: Path) -> None:
    source = write(tmp_path, content(annotation(1, 9), annotation(2, 5)))
    (tmp_path / "images/b/9.jpg").unlink()
    assert instances(source)["id"] == [[], [2]]
    assert faults(source) == ["image without a file: image 9, b/9.jpg"]
    os.utime(tmp_path / "images/b", ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert instances(source)["id"] == [[], [2]]
    (tmp_path / "images/b/9.jpg").touch()
    assert instances(source)["id"] == [[], [2], [1]]
    assert faults(source) == []
    with pytest.raises(sp.PlanError, match=r"nowhere/ has none of the 3 images of .*, such as 2\.jpg"):
        Coco(tmp_path / "nowhere", tmp_path / "instances.json").open()


def test_image_ids_that_come_twice(tmp_path: Path) -> None:
    whole = content(annotation(1, 9))
    whole["images"].append({"id": 9, "file_name": "2.jpg", "width": 1, "height": 1})
    source = write(tmp_path, whole)
    assert instances(source)["id"] == [[], [], [1]]
    assert faults(source) == ["image id that comes twice: image 9, 2.jpg"]


def test_the_index_is_used_until_the_file_changes(tmp_path: Path) -> None:
    source = write(tmp_path, content(annotation(1, 9)))
    source.open()
    (index,) = (tmp_path / "cache/standpipe/index").iterdir()
    before = index.stat().st_mtime_ns
    source.open()
    assert index.stat().st_mtime_ns == before
    first = source.open().digest
    for image, same in ((5, False), (9, True)):
        changed = write(tmp_path, content(annotation(1, image)))
        os.utime(tmp_path / "instances.json", ns=(LONG_AGO_NS + image, LONG_AGO_NS + image))
        assert (changed.open().digest == first) == same


def test_columns_may_be_added(tmp_path: Path) -> None:
    source = write(tmp_path, content(annotation(1, 9)))
    for name in ("boxes", "image_id"):
        with pytest.raises(sp.PlanError, match=f"the column '{name}' has the name of a field of the records"):
            sp.build_index(source, columns={name: np.arange(3)})  # type: ignore[arg-type]
    report = sp.build_index(source, columns={"weight": np.arange(3)})  # type: ignore[arg-type]
    assert report.columns == ("weight",)
    assert source.open().locate(np.array([2])).plain["weight"].tolist() == [2]
    assert instances(source)["id"] == [[], [], [1]]
    assert sp.verify_index(source).ok  # type: ignore[arg-type]


def test_sources_are_joined(tmp_path: Path) -> None:
    source = write(tmp_path, content(annotation(1, 9), annotation(2, 5)))
    check_source(sp.Concat(source, source))
    check_files = sp.check_files(sp.Concat(source, source))
    assert check_files.records == 6


def test_a_plan_reads_what_is_there(tmp_path: Path) -> None:
    source = write(tmp_path, content(annotation(1, 9)))
    (tmp_path / "images/2.jpg").write_bytes(encoded(picture(1), quality=90))
    plan = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(2).plan()
    assert plan.fields["orig_size"] == sp.ArraySpec((2,), np.dtype(np.int64))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"at byte 0: it must be a JSON object"),
        ("[]", "it must be a JSON object"),
        ('{"images": [', "ends too soon"),
        ('{"images": [{"id": 1, "file_na', r"at byte 2\d: it ends too soon"),
        ('{"other": [{"id": 1}', "ends too soon"),
        ('{"images": []', "ends too soon"),
        ('{"images": [] "annotations": []}', "',' or '}' must be here, not '\"'"),
        ('{"images": [{"id": tru}]}', "it isn't JSON: Expecting value"),
        ('{"images" []}', "a key and a colon"),
        ("{1: []}", "a key and a colon"),
        ('{"images": []} x', "more text after the end"),
        ('{"images": [], "annotations": [], "categories": []}', "has no images"),
        ('{"images": [5]}', "item 0 of 'images', at byte .*: it isn't as in COCO's format"),
        ('{"images": [{"id": 1}]}', "it has no 'file_name'"),
        ('{"images": [{"file_name": "a", "height": 1, "width": 1, "id": "x"}]}', "isn't as in COCO's format"),
        ('{"images": [{"file_name": "../a", "height": 1, "width": 1, "id": 1}]}', "isn't a path below"),
        ('{"images": [{"file_name": "/a", "height": 1, "width": 1, "id": 1}]}', "isn't a path below"),
        ('{"images": [{"file_name": "a", "height": 0, "width": 1, "id": 1}]}', "can't have 1 × 0 pixels"),
        ('{"images": [{"file_name": "a", "height": "3", "width": 1, "id": 1}]}', "isn't as in COCO's format"),
        ('{"annotations": [{"id": 1, "image_id": 1e3}]}', "isn't as in COCO's format"),
        ('{"annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": "abcd"}]}', "as in COCO's"),
        ('{"annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": null}]}', "as in COCO's"),
        ('{"annotations": [{"id": 99999999999999999999, "image_id": 1}]}', "isn't as in COCO's format"),
        ('{"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}', "two categories have the id 1"),
        ('{"annotations": [' + "1" * 5000 + "]}", "a number that can't be read"),
        ('{"annotations": ' + "[" * 200_000, "nested too deeply"),
        ('{"x": ' + '{"a":' * 200_000, "nested too deeply"),
        (b'{"images": [{"file_name": "\xff"}]}', "isn't text in UTF-8"),
        ("{\0}", "it isn't JSON"),
    ],
)
def test_files_of_another_form(tmp_path: Path, text: str | bytes, reason: str) -> None:
    with pytest.raises(sp.PlanError, match=reason) as raised:
        write(tmp_path, text).open()
    assert "instances.json" in str(raised.value)


@pytest.mark.parametrize("digit", ["1", ".", "\\\\", '\\"', "[1],"])
def test_a_value_without_an_end_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digit: str
) -> None:
    monkeypatch.setattr("standpipe.source.annotations.json_items.MOST_ITEM_BYTES", 1 << 16)
    monkeypatch.setattr("standpipe.source.annotations.json_items.PIECE_BYTES", 1 << 12)
    start = {"1": "0.1", "[1],": "[[1],"}.get(digit, '"')
    with pytest.raises(sp.PlanError, match=r"more than 0 MiB|isn't JSON"):
        write(tmp_path, f'{{"annotations": [{start}{digit * (1 << 20)}').open()


def test_any_pieces_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = content(*(annotation(n, 9, (1, 1, n + 0.25, 2), caption='ä\\"é€' * n) for n in range(20)))
    expected = instances(write(tmp_path, whole))
    for size in (1, 2, 3, 7, 50):
        monkeypatch.setattr("standpipe.source.annotations.json_items.PIECE_BYTES", size)
        for text in (json.dumps(whole), json.dumps(whole, ensure_ascii=False, indent=1)):
            (tmp_path / "cache/standpipe/index").exists()
            assert instances(write(tmp_path, text, index=tmp_path / f"{size}-{len(text)}")) == expected


def test_options_are_checked(tmp_path: Path) -> None:
    for name in ("labels", "crowd", "without_instances", "invalid"):
        with pytest.raises(sp.PlanError, match=rf"Coco: {name} must be '.*' or '.*', got 'x'"):
            write(tmp_path, content(), **{name: "x"}).open()
    ids = content()
    ids["categories"][0]["id"] = 70_000
    with pytest.raises(sp.PlanError, match=r"categories with the ids 1 to 70000, .* use labels='contiguous'"):
        write(tmp_path, ids).open()
    assert write(tmp_path, ids, labels="contiguous").open().num_records == 3


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_annotations(tmp_path: Path, data: st.DataObject) -> None:
    """A slow reader of the file gives the same instances."""
    side = st.one_of(st.floats(-60, 60), st.sampled_from([float("nan"), 0.0]))
    drawn = data.draw(
        st.lists(
            st.tuples(st.integers(1, 9), st.integers(1, 5), st.lists(side, min_size=4, max_size=4)),
            max_size=30,
        )
    )
    whole = content(*(annotation(n, image, box, category) for n, (image, category, box) in enumerate(drawn)))
    expected: list[list[int]] = []
    for image in (2, 5, 9):
        expected.append([])
        for number, (of, category, (x, y, width, height)) in enumerate(drawn):
            left, right = np.float32(max(x, 0)), np.float32(min(x + width, 40))
            top, bottom = np.float32(max(y, 0)), np.float32(min(y + height, 30))
            if (
                of == image
                and category in (1, 3, 4)
                and width > 0
                and height > 0
                and left < right
                and top < bottom
            ):
                expected[-1].append(number)
    index = tmp_path / "index"
    index.unlink(missing_ok=True)
    source = write(tmp_path, whole, index=index)
    assert instances(source)["id"] == expected
    assert sum(map(len, expected)) + len(faults(source)) >= len(drawn)
