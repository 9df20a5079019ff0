"""Instances of tar shards' records, in a JSON member of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from painted import RANDOM, painted
from standpipe.contracts import check_source
from tars import shard

MEMORY = "256MiB"
NAMES = ("boxes", "labels", "area", "iscrowd", "id")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


Row = dict[str, Any]


def rows_of(source: sp.Coco) -> list[tuple[bytes, Row]]:
    """The encoded image of each record, and its instances."""
    opened = source.open()
    records = opened.locate(np.arange(opened.num_records))
    files = [Path(bytes(path).decode()).read_bytes() for path in records.files["image"].paths]
    parts = {name: np.split(rows.values, rows.ends[:-1]) for name, rows in records.ragged.items()}
    return [
        (file, {name: values[number].tolist() for name, values in parts.items()})
        for number, file in enumerate(files)
    ]


def as_coco(row: Row) -> list[Row]:
    """The annotations of an image, as COCO's file has them, with a polygon and without crowds' own form."""
    found = []
    for number, (left, top, right, bottom) in enumerate(row["boxes"]):
        one = {name: values[number] for name, values in row.items() if name not in ("boxes", "labels")}
        if "keypoints" in one:
            one["keypoints"] = [value for point in one["keypoints"] for value in point]
        one |= {"bbox": [left, top, right - left, bottom - top], "category_id": row["labels"][number]}
        found.append(one | {"segmentation": [[1, 2, 3, 4, 5 + number, 6]], "image_id": 9})
    return found


FORMS: dict[str, Callable[[Row], Any]] = {
    "columns": lambda row: {**row, "caption": "painted", "version": 3},
    "bbox": lambda row: (
        {"bbox": [each["bbox"] for each in as_coco(row)]}
        | {("category" if name == "labels" else name): row[name] for name in row if name != "boxes"}
    ),
    "annotations": lambda row: {"annotations": as_coco(row), "width": 3},
    "list": as_coco,
}


def packed(tmp_path: Path, rows: list[tuple[bytes, Any]], *, shards: int = 2, **options: Any) -> sp.TarShards:
    """Shards of images and JSON members, of which records alternate."""
    for number in range(shards):
        members = [
            member
            for at, (image, target) in enumerate(rows)
            if at % shards == number
            for member in (
                (f"{at:03}.jpg", image),
                (f"{at:03}.json", target if isinstance(target, bytes) else json.dumps(target).encode()),
            )
        ]
        shard(tmp_path / f"{number}.tar", members)
    return sp.TarShards([tmp_path / f"{number}.tar" for number in range(shards)], instances="json", **options)


@pytest.mark.parametrize("form", FORMS)
def test_members_have_what_coco_has(tmp_path: Path, form: str) -> None:
    source = painted(tmp_path / "coco", 15, keypoints=True)
    rows = rows_of(source)
    shards = packed(tmp_path, [(image, FORMS[form](row)) for image, row in rows], shards=1)
    check_source(shards)
    mine, theirs = shards.open(), source.open()
    indices = np.array([9, 0, 14, 14, 3])
    found, expected = mine.locate(indices), theirs.locate(indices)
    assert np.array_equal(found.sizes, expected.sizes)
    assert found.ragged.keys() == expected.ragged.keys()
    for name, rows_found in found.ragged.items():
        assert np.allclose(rows_found.values, expected.ragged[name].values, atol=1e-4), name
        assert rows_found.values.dtype == expected.ragged[name].values.dtype, name
        assert np.array_equal(rows_found.ends, expected.ragged[name].ends)
    assert mine.most_instances == theirs.most_instances  # type: ignore[attr-defined]
    assert mine.num_instances == theirs.num_instances  # type: ignore[attr-defined]


def test_batches_are_those_of_coco(tmp_path: Path) -> None:
    source = painted(tmp_path / "coco", 15)
    shards = packed(tmp_path, rows_of(source), shards=1)
    batches = []
    for each in (source, shards):
        pipeline = sp.Pipeline(each, seed=5).shuffle(seed=3).map(*RANDOM).batch(5)
        with pipeline.loader(memory=MEMORY, executor="thread") as loader:
            batches.append([dict(batch) for batch in loader])
    for mine, theirs in zip(*batches, strict=True):
        assert all(np.array_equal(mine[name], theirs[name]) for name in ("image", *NAMES, "orig_size"))


def test_an_index_is_used_until_the_options_change(tmp_path: Path) -> None:
    rows = rows_of(painted(tmp_path / "coco", 7))
    shards = packed(tmp_path, rows, index=tmp_path / "index")
    first = shards.open()
    built = (tmp_path / "index").stat()
    assert shards.open().digest == first.digest
    assert (tmp_path / "index").stat().st_mtime_ns == built.st_mtime_ns
    other = packed(
        tmp_path / "coco", [(image, {**row, "labels": [3] * len(row["labels"])}) for image, row in rows]
    )
    assert other.open().digest != first.digest
    plain = sp.TarShards(shards.shards)
    assert sorted(plain.open().fields) == ["image"]
    report = sp.build_index(shards, columns={"weight": np.arange(7)})
    assert report.columns == ("weight",)
    assert {"boxes", "weight"} <= {*shards.open().fields}
    np.save(tmp_path / "weight.npy", np.arange(7))
    sp.build_index(shards, columns={"weight": tmp_path / "weight.npy"})
    packed(tmp_path, rows[:4])  # standpipe index has no option for instances
    with pytest.raises(sp.PlanError, match=r"has other records now .*: by build_index\(…, columns=…\)"):
        shards.open()


def test_fractions_and_further_numbers(tmp_path: Path) -> None:
    (image, _), *_ = rows_of(painted(tmp_path / "coco", 1))
    target = {
        "boxes": [[0.5, 0.5, 0.5, 0.25]],
        "labels": [4],
        "depth": [1],
        "polygon": [[1, 2]],
        "name": ["a"],
        "image": [3],
    }
    target["keypoints"] = [[[0.5, 0.5, 2]]]
    shards = packed(tmp_path, [(image, target)], shards=1, box_format="cxcywh", normalized=True)
    found = shards.open().locate(np.zeros(1, np.int64))
    assert found.sizes is not None
    ((height, width),) = found.sizes.tolist()
    box = [width / 4, 3 / 8 * height, 3 / 4 * width, 5 / 8 * height]
    assert found.ragged["boxes"].values.tolist() == [np.float32(box).tolist()]
    assert found.ragged["keypoints"].values.tolist() == [[[width / 2, height / 2, 2]]]
    assert found.ragged["depth"].values.dtype == np.float64
    assert {*found.ragged} == {"boxes", "labels", "depth", "keypoints"}


WRONG = {
    "boxes": [[-9, 0, 5, 5], [1, 1, 1, 4], [float("nan"), 1, 2, 3], [3, 3, 9, 9]],
    "labels": [1, 2, 3, 4],
}


def test_wrong_boxes_are_counted_and_named(tmp_path: Path) -> None:
    rows: list[tuple[bytes, Any]] = list(rows_of(painted(tmp_path / "coco", 2)))
    rows = [(rows[0][0], WRONG), (rows[1][0], {"boxes": [[3, 3, 9, 9]], "labels": [5]}), (b"no image", WRONG)]
    shards = packed(tmp_path, rows, shards=1)
    opened = shards.open()
    found = opened.locate(np.arange(3)).ragged
    assert found["labels"].values.tolist() == [1, 4, 5]
    assert found["labels"].ends.tolist() == [2, 3, 3]
    texts = list(opened.skipped())  # type: ignore[attr-defined]
    assert [text.partition(": ")[0] for text in texts] == [
        "image whose size can't be read",
        "box that isn't finite",
        "empty box",
        "box outside its image",
    ]
    assert f"{tmp_path}/0.tar at byte" in texts[1]
    assert ".json: instance 2: the box from and to (nan, 1, 2, 3), in an image of" in texts[1]
    plan = sp.Pipeline(shards).map(sp.Resize((9, 9))).batch(1).plan(memory=MEMORY)
    assert "faults of annotations: 1 × image whose size can't be read, 1 × box" in plan.explain()
    dropped = sp.TarShards(shards.shards, instances="json", invalid="drop").open().locate(np.arange(3))
    assert dropped.ragged["labels"].values.tolist() == [4, 5]
    with pytest.raises(sp.PlanError, match="4 faults, first image whose size can't be read"):
        sp.TarShards(shards.shards, instances="json", invalid="error").open()
    pipeline = sp.Pipeline(shards).map(sp.Resize((9, 9))).batch(3)
    with pytest.raises(sp.SampleError), pipeline.loader(memory=MEMORY, executor="thread") as loader:
        list(loader)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (b"{", "it isn't JSON: Expecting property name"),
        (b"[" * 100_000, "its values are nested too deeply"),
        (b"\xff\xfe\xfd", "it isn't JSON: .* codec can't decode"),
        (b"1" * 5000, "it isn't JSON: Exceeds the limit"),
        (3, "it must be an object with boxes and labels, or with a list of annotations"),
        ([3], "it must be an object with boxes and labels"),
        ([{"bbox": [1, 2, 3, 4]}, {"category_id": 1}], "it has no list 'boxes', only an empty object"),
        ({}, "it has no list 'boxes', only an empty object"),
        ({"boxes": [[1, 2, 3, 4]], "name": 1}, "it has no list 'labels', only 'boxes', 'name'"),
        ({"boxes": [[1, 2, 3, 4]], "labels": []}, "it has different numbers of boxes and labels"),
        ({"boxes": [[1, 2, 3]], "labels": [1]}, r"'boxes' must be numbers of the shape \(1, 4\)"),
        ({"boxes": [[1, 2, 3, None]], "labels": [1]}, "'boxes' must be numbers"),
        ({"boxes": [[1, 2, 3, 4]], "labels": ["cat"]}, "'labels' must be integers"),
        ({"boxes": [[1, 2, 3, 4]], "labels": [1.5]}, "'labels' must be integers"),
        ({"boxes": [[1, 2, 3, 4]], "labels": [2**63]}, "'labels' must be integers"),
        ({"boxes": [[1, 2, 3, 4]], "labels": [1]}, "it has no list 'area'"),
        (
            {"boxes": [[1, 2, 3, 4]], "labels": [1], "area": [[1]]},
            r"'area' must be numbers of the shape \(1,\)",
        ),
    ],
)
def test_members_of_another_form_are_refused(tmp_path: Path, target: Any, reason: str) -> None:
    rows: list[tuple[bytes, Any]] = list(rows_of(painted(tmp_path / "coco", 2)))
    first = {"boxes": [[1, 2, 3, 4]], "labels": [1], "area": [4]}
    shards = packed(tmp_path, [(rows[0][0], first), (rows[1][0], target)], shards=1)
    with pytest.raises(sp.PlanError, match=rf"0.tar at byte \d.*a member .json can't be read .*: {reason}"):
        shards.open()


def test_other_faults(tmp_path: Path) -> None:
    (image, _), *_ = rows_of(painted(tmp_path / "coco", 1))
    empty = packed(tmp_path, [(image, {"annotations": []})], shards=1)
    with pytest.raises(sp.PlanError, match=r"no member .json has any instances"):
        empty.open()
    shard(tmp_path / "0.tar", [("a.jpg", image), ("a.json", b"[]"), ("b.jpg", image)])
    with pytest.raises(sp.PlanError, match=r"member b.jpg has no .json next to it.*or instances="):
        empty.open()
    for wrong in ("jpg", "", 3):
        with pytest.raises(
            sp.PlanError, match=r"instances=.* must be the extension of the members with boxes"
        ):
            sp.TarShards(tmp_path / "0.tar", instances=wrong).open()  # type: ignore[arg-type]
    with pytest.raises(sp.PlanError, match="TarShards: box_format must be None or 'xyxy'"):
        sp.TarShards(tmp_path / "0.tar", instances="json", box_format="yolo").open()  # type: ignore[arg-type]
