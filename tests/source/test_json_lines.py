"""Instances of listed images, in a file of JSON lines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from painted import LONG_AGO_NS, RANDOM, painted
from standpipe.contracts import check_source

MEMORY = "256MiB"
NAMES = ("boxes", "labels", "area", "iscrowd", "id")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def listed(folder: Path, source: sp.Coco, lines: list[Any] | None = None, **options: Any) -> sp.FileList:
    """A list of a source's images, with a line of their instances each, or with ``lines``."""
    opened = source.open()
    records = opened.locate(np.arange(opened.num_records))
    paths = records.files["image"].paths
    parts = {name: np.split(rows.values, rows.ends[:-1]) for name, rows in records.ragged.items()}
    own = [
        {name: values[number].tolist() for name, values in parts.items()}
        for number in range(opened.num_records)
    ]
    names = [paths[number].decode().removeprefix(f"{folder}/") for number in range(len(paths))]
    return written(folder, names, own if lines is None else lines, **options)


def written(folder: Path, names: list[str], lines: list[Any], **options: Any) -> sp.FileList:
    (folder / "images.txt").write_text("".join(f"{name}\n" for name in names))
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    (folder / "boxes.jsonl").write_text("\n".join(texts))
    for name in ("images.txt", "boxes.jsonl"):
        os.utime(folder / name, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return sp.FileList(folder / "images.txt", instances=folder / "boxes.jsonl", **options)


def test_lines_have_what_coco_has(tmp_path: Path) -> None:
    source = painted(tmp_path, 15, keypoints=True)
    found = listed(tmp_path, source)
    check_source(found)
    pipelines = [
        sp.Pipeline(each, seed=5).decode(flip_pairs=((1, 2),)).shuffle(seed=3).map(*RANDOM).batch(5)
        for each in (source, found)
    ]
    batches = []
    for pipeline in pipelines:
        with pipeline.loader(memory=MEMORY, executor="thread") as loader:
            batches.append([dict(batch) for batch in loader])
    for theirs, mine in zip(*batches, strict=True):
        assert mine.keys() == theirs.keys() - {"image_id"}
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


def test_an_index_is_used_until_a_file_changes(tmp_path: Path) -> None:
    source = painted(tmp_path, 5)
    lists = listed(tmp_path, source, index=tmp_path / "index")
    first = lists.open()
    built = (tmp_path / "index").stat().st_mtime_ns
    assert lists.open().digest == first.digest
    assert (tmp_path / "index").stat().st_mtime_ns == built
    (tmp_path / "boxes.jsonl").write_text('{"boxes": [[1, 2, 3, 4]], "labels": [7]}\n' * 5)
    assert lists.open().locate(np.arange(5)).ragged["labels"].values.tolist() == [7] * 5
    normalized = sp.FileList(lists.path, instances=tmp_path / "boxes.jsonl", normalized=True, invalid="drop")
    assert "boxes" in normalized.open().fields
    assert normalized.describe().endswith("boxes.jsonl', normalized=True, invalid='drop')")
    assert normalized.open().digest != lists.open().digest
    report = sp.build_index(lists, columns={"weight": np.arange(5)})
    assert report.columns == ("weight",)
    assert {"boxes", "weight"} <= {*lists.open().fields}


def test_a_moved_data_set_has_the_same_digest(tmp_path: Path) -> None:
    lists = listed(tmp_path / "a", painted(tmp_path / "a", 5))
    digest = lists.open().digest
    (tmp_path / "a").rename(tmp_path / "b")
    moved = sp.FileList(tmp_path / "b/images.txt", instances=tmp_path / "b/boxes.jsonl")
    assert moved.open().digest == digest
    assert moved.open().name(0) == f"{tmp_path}/b/images/0000.jpg"


def test_wrong_boxes_and_images_are_named(tmp_path: Path) -> None:
    wrong = {"boxes": [[-9, 0, 5, 5], [1, 1, 1, 4], [3, 3, 9, 9]], "labels": [1, 2, 3]}
    source = painted(tmp_path, 3)
    lists = listed(tmp_path, source, [wrong, "", {"boxes": [], "labels": []}, wrong])
    (tmp_path / "images/0002.jpg").write_bytes(b"no image")
    opened = lists.open()
    assert opened.num_records == 2
    found = opened.locate(np.arange(2)).ragged["labels"]
    assert (found.values.tolist(), found.ends.tolist()) == ([1, 3], [2, 2])
    unread, empty, outside, *_ = opened.skipped()  # type: ignore[attr-defined]
    assert unread.startswith(f"image whose size can't be read: {tmp_path}/images/0002.jpg: ")
    assert empty.startswith(
        f"empty box: {tmp_path}/boxes.jsonl:1, instance 1: the box from and to (1, 1, 1, 4)"
    )
    assert outside.startswith(f"box outside its image: {tmp_path}/boxes.jsonl:1, instance 0: ")
    with pytest.raises(sp.PlanError, match="3 faults, first image whose size"):
        sp.FileList(lists.path, instances=tmp_path / "boxes.jsonl", invalid="error").open()


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    one = {"boxes": [[1, 2, 3, 4]], "labels": [1]}
    source = painted(tmp_path, 3)
    with pytest.raises(
        sp.PlanError, match=r"images.txt has 3 lines, and .*boxes.jsonl 2; line n of one belongs"
    ):
        listed(tmp_path, source, [one, one]).open()
    with pytest.raises(
        sp.PlanError, match=r"boxes.jsonl:2: the line can't be read as instances: it isn't JSON"
    ):
        listed(tmp_path, source, [one, "{", one]).open()
    lists = listed(tmp_path, source, [one] * 3)
    with pytest.raises(sp.PlanError, match="leave out the further lists"):
        sp.FileList(lists.path, instances=tmp_path / "boxes.jsonl", right=lists.path).open()
    with pytest.raises(sp.PlanError, match=r"can't read .*none.jsonl"):
        sp.FileList(lists.path, instances=tmp_path / "none.jsonl").open()
    with pytest.raises(sp.PlanError, match="FileList: invalid must be 'clip' or 'drop' or 'error'"):
        sp.FileList(lists.path, instances=tmp_path / "boxes.jsonl", invalid="no").open()  # type: ignore[arg-type]
    labelled = written(tmp_path, [f"images/000{n}.jpg 1" for n in range(3)], [one] * 3)
    with pytest.raises(sp.PlanError, match="have labels; with instances= only objects have"):
        labelled.open()
