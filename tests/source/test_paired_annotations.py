"""Images with a label file of the YOLO family each, or an XML file of Pascal VOC: fields, faults, and any layout."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from annotated import faults, instances
from photos import encoded, picture
from standpipe.contracts import check_source
from standpipe.source.annotations.voc import PascalVoc
from standpipe.source.annotations.yolo import YoloLabels

LONG_AGO_NS = 1_600_000_000_123_456_789
JPEG = encoded(picture(1, height_px=30, width_px=40), quality=90)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def put(path: Path, content: str | bytes, mtime_ns: int = LONG_AGO_NS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def yolo(folder: Path, labels: dict[str, str], yaml: str = "", **options: Any) -> YoloLabels:
    """The source of images a, b and d/c of 40 × 30 pixels, with these label files, below ``data``."""
    for name in ("a", "b", "d/c"):
        put(folder / f"data/images/train/{name}.jpg", JPEG)
    for name, content in labels.items():
        put(folder / f"data/labels/train/{name}.txt", content)
    description = put(
        folder / "data/data.yaml", yaml or "train: images/train\nval: images/train\nnames: [cat, dog]\n"
    )
    return YoloLabels(description, **options)


def voc(folder: Path, files: dict[str, str], **options: Any) -> PascalVoc:
    """The source of images a, b and c of 40 × 30 pixels with these XML files; others have no objects."""
    for name in ("a", "b", "c"):
        put(folder / f"VOC/JPEGImages/{name}.jpg", JPEG)
        put(folder / f"VOC/Annotations/{name}.xml", files.get(name, "<annotation/>"))
    for name in {*files} - {*"abc"}:
        put(folder / f"VOC/Annotations/{name}.xml", files[name])
    return PascalVoc(folder / "VOC", **options)


def thing(name: str, box: tuple[float, ...], more: str = "") -> str:
    sides = "".join(
        f"<{side}>{value}</{side}>"
        for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=False)
    )
    parts = f"<part><name>head</name><bndbox>{sides.replace('1', '9')}</bndbox></part>"
    return f"<object>\n<name>\n {name} </name><bndbox>{sides}</bndbox>{parts}{more}</object>"


def xml(*things: str) -> str:
    return f"<annotation><size><width>1</width></size>{''.join(things)}</annotation>"


def paths(source: Any) -> list[str]:
    opened = source.open()
    return [opened.name(row) for row in range(opened.num_records)]


def test_label_files(tmp_path: Path) -> None:
    source = yolo(tmp_path, {"a": "1 0.5 0.5 0.5 0.4\n\n0 .25 .5 0.1 1.0\n", "d/c": "0 0.5 0.5 1 1"})
    check_source(source)
    assert paths(source) == [f"{tmp_path}/data/images/train/{name}.jpg" for name in ("a", "b", "d/c")]
    found = instances(source)
    assert found["labels"] == [[1, 0], [], [0]]
    assert np.allclose(found["boxes"][0], [[10, 9, 30, 21], [8, 0, 12, 30]])
    assert found["boxes"][2] == [[0, 0, 40, 30]]
    assert source.open().classes == ("cat", "dog")
    assert source.open().sizes(np.arange(3)).tolist() == [[30, 40]] * 3  # type: ignore[attr-defined]
    assert faults(source) == []
    assert source.describe() == f"YoloLabels('{tmp_path}/data/data.yaml')"
    plan = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(2).plan()
    assert plan.fields["orig_size"] == sp.ArraySpec((2,), np.dtype(np.int64))


@pytest.mark.parametrize(
    "yaml",
    [
        "path: .\ntrain: images/train\nnames: {0: cat, 1: dog}\n",
        "path: images\ntrain: [train/d, train/a.txt]\nnames: {1: dog, 0: cat}\n",
        "train: ../images/train\nnames: [cat, dog]\n",
        "path: ../data\ntrain: list.txt\nnames: [cat, dog]\n",
    ],
)
def test_layouts(tmp_path: Path, yaml: str) -> None:
    put(tmp_path / "data/images/train/a.txt", "./a.jpg\nb.jpg")
    names = "\n".join(f"{tmp_path}/data/images/train/{name}.jpg" for name in ("d/c", "b", "a"))
    put(tmp_path / "data/list.txt", names)
    source = yolo(tmp_path, {"b": "1 0.5 0.5 0.5 0.4"}, yaml)
    assert paths(source) == [f"{tmp_path}/data/images/train/{name}.jpg" for name in ("a", "b", "d/c")]
    assert instances(source)["labels"] == [[], [1], []]
    check_source(source)


def test_a_folder_without_a_description(tmp_path: Path) -> None:
    yolo(tmp_path, {"b": "7 0.5 0.5 0.5 0.4"})
    source = YoloLabels(tmp_path / "data")
    assert instances(source)["labels"] == [[], [7], []]
    assert source.open().classes is None
    check_source(source)


def test_images_beside_the_data_set(tmp_path: Path) -> None:
    put(tmp_path / "other/images/x.png", encoded(picture(2, height_px=6, width_px=9), "PNG"))
    put(tmp_path / "other/labels/x.txt", "0 0.5 0.5 1 1")
    source = yolo(tmp_path, {}, "train: [images/train, ../other/images]\nnames: [cat]")
    assert paths(source)[-1] == f"{tmp_path}/other/images/x.png" or paths(source)[0].endswith("x.png")
    assert [[0, 0, 9, 6]] in instances(source)["boxes"]


@pytest.mark.parametrize(
    ("shape", "numbers", "points"),
    [
        ("[2, 3]", "0.5 0.5 2 0 0 0", [[20, 15, 2], [0, 0, 0]]),
        ("[2, 2]", "0.5 0.5 0 0", [[20, 15, 2], [0, 0, 0]]),
    ],
)
def test_keypoints(tmp_path: Path, shape: str, numbers: str, points: list[Any]) -> None:
    yaml = f"train: images/train\nnames: [person]\nkpt_shape: {shape}\nflip_idx: [1, 0]"
    source = yolo(tmp_path, {"b": f"0 0.5 0.5 0.5 0.4 {numbers}\n0 0.5 0.5 0.5 0.3"}, yaml)
    assert instances(source)["keypoints"] == [[], [points], []]
    assert source.open().flip_pairs == ((0, 1),)  # type: ignore[attr-defined]
    assert faults(source)[0].startswith("line that isn't of ")
    check_source(source)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("0 0.5 0.5 0.5", "line that isn't of 5 numbers"),
        ("0 0.5 0.5 0.5 0.1 0.9", "line that isn't of 5 numbers"),
        ("cat 0.5 0.5 0.5 0.1", "line that isn't of 5 numbers"),
        ("0 nan 0.5 0.5 0.1", "line with a number that isn't finite"),
        ("2 0.5 0.5 0.5 0.1", "class out of range"),
        ("-1 0.5 0.5 0.5 0.1", "class out of range"),
        ("0.5 0.5 0.5 0.5 0.1", "class out of range"),
        ("0 20 15 10 10", "line whose box isn't in fractions of the image"),
        ("0 0.1 0.1 0.2 0.2", "line that comes twice"),
        ("0 0.5 0.5 0.5 0", "empty box"),
        ("\0\xff", "line that isn't of 5 numbers"),
    ],
)
def test_a_bad_line_is_dropped_and_named(tmp_path: Path, line: str, kind: str) -> None:
    source = yolo(tmp_path, {"b": f"0 0.1 0.1 0.2 0.2\n{line}\n1 0.5 0.5 1 1\n"})
    assert instances(source)["labels"] == [[], [0, 1], []]
    (found,) = faults(source)
    assert found.startswith(f"{kind}: {tmp_path}/data/labels/train/b.txt:2")
    assert list(sp.check_files(source).skipped_files()) == [found]
    with pytest.raises(sp.PlanError, match=rf"1 faults, first {kind}: .*/b\.txt:2"):
        YoloLabels(source.data, invalid="error").open()


def test_label_files_without_images_and_broken_images(tmp_path: Path) -> None:
    source = yolo(tmp_path, {"b": "0 0.5 0.5 1 1", "x": "0 0.5 0.5 1 1"})
    put(tmp_path / "data/images/train/a.jpg", b"no JPEG")
    assert paths(source) == [f"{tmp_path}/data/images/train/{name}.jpg" for name in ("b", "d/c")]
    assert instances(source)["labels"] == [[0], []]
    first, second = faults(source)
    assert first == f"annotation file without an image: {tmp_path}/data/labels/train/x.txt"
    assert second.startswith(f"image whose size can't be read: {tmp_path}/data/images/train/a.jpg: ")
    without = YoloLabels(source.data, without_instances="drop")
    assert paths(without) == [f"{tmp_path}/data/images/train/b.jpg"]


def test_images_without_any_label_file(tmp_path: Path) -> None:
    with pytest.raises(
        sp.PlanError, match=r"has 3 images and no annotation files: there is no .*/labels/train/a\.txt"
    ):
        yolo(tmp_path, {}).open()
    (tmp_path / "data/empty").mkdir()
    with pytest.raises(sp.PlanError, match="has no images"):
        yolo(tmp_path, {}, "train: empty\nnames: []").open()


@pytest.mark.parametrize(
    ("yaml", "reason"),
    [
        ("train: [", "isn't YAML"),
        ("[1]", "has no split 'train'"),
        ("val: images", "has no split 'train'"),
        ("train:\nnames: []", "path and train must be paths"),
        ("train: 5\nnames: []", "path and train must be paths"),
        ("path: 3\ntrain: images\nnames: []", "path and train must be paths"),
        ("train: images", "names must be a list"),
        ("train: images\nnames: cat", "names must be a list"),
        ("train: images\nnames: {1: cat}", "names must be a list"),
        ("train: images\nnames: [a]\nkpt_shape: 5", "kpt_shape must be"),
        ("train: images\nnames: [a]\nkpt_shape: [2, 4]", "kpt_shape must be"),
        ("train: images\nnames: [a]\nkpt_shape: [3, 3]\nflip_idx: [1, 0]", "flip_idx must have each number"),
        (
            "train: images\nnames: [a]\nkpt_shape: [3, 3]\nflip_idx: [1, 2, 0]",
            "flip_idx must have each number",
        ),
        ("train: images\nnames: [a]\nkpt_shape: [2, 3]\nflip_idx: 5", "flip_idx must have each number"),
        ("train: nowhere\nnames: [a]", "can't read the folder .*nowhere"),
        ("[" * 5000, "isn't YAML"),
        ("train: !!python/object/apply:os.getcwd []", "isn't YAML"),
    ],
)
def test_descriptions_of_another_form(tmp_path: Path, yaml: str, reason: str) -> None:
    with pytest.raises(sp.PlanError, match=reason):
        yolo(tmp_path, {"a": "0 0.5 0.5 1 1"}, yaml).open()


def test_without_pyyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(sp.PlanError, match="pip install pyyaml"):
        yolo(tmp_path, {}).open()


def test_the_index_of_label_files_is_used_until_one_changes(tmp_path: Path) -> None:
    source = yolo(tmp_path, {"b": "0 0.5 0.5 1 1"})
    source.open()
    (index,) = (tmp_path / "cache/standpipe/index").iterdir()
    made = index.stat().st_mtime_ns
    source.open()
    assert index.stat().st_mtime_ns == made
    put(tmp_path / "data/labels/train/b.txt", "1 0.5 0.5 1 1", LONG_AGO_NS + 1)
    assert instances(source)["labels"] == [[], [1], []]
    put(tmp_path / "data/labels/train/a.txt", "0 0.5 0.5 1 1")
    assert instances(source)["labels"] == [[0], [1], []]
    put(tmp_path / "data/images/train/0.jpg", JPEG)
    assert instances(source)["labels"] == [[], [0], [1], []]
    assert sp.verify_index(source).ok  # type: ignore[arg-type]


def test_xml_files(tmp_path: Path) -> None:
    objects = thing("dog", (1, 1, 40, 30)), thing("cat", (3, 5, 7.5, 9), "<difficult>1</difficult>")
    source = voc(
        tmp_path, {"c": xml(*objects), "a": xml(thing("a&amp;b", (2, 2, 4, 4), "<pose>Left</pose>"))}
    )
    check_source(source)
    assert paths(source) == [f"{tmp_path}/VOC/JPEGImages/{name}.jpg" for name in "abc"]
    assert source.open().classes == ("a&b", "dog")
    assert instances(source) == {
        "boxes": [[[1, 1, 4, 4]], [], [[0, 0, 40, 30]]],
        "labels": [[0], [], [1]],
        "difficult": [[False], [], [False]],
    }
    both = instances(voc(tmp_path, {"c": xml(*objects)}, difficult="keep"))
    assert both["difficult"] == [[], [], [False, True]]
    assert both["labels"] == [[], [], [1, 0]]
    assert both["boxes"][2][1] == [2, 4, 7.5, 9]
    assert source.describe() == f"PascalVoc('{tmp_path}/VOC')"


def test_a_split_of_voc(tmp_path: Path) -> None:
    put(tmp_path / "VOC/ImageSets/Main/train.txt", "c\n\na  1\nx\n")
    source = voc(tmp_path, {"c": xml(thing("dog", (1, 1, 40, 30)))}, split="train")
    assert paths(source) == [f"{tmp_path}/VOC/JPEGImages/{name}.jpg" for name in "ac"]
    assert faults(source) == [f"annotation file without an image: {tmp_path}/VOC/Annotations/x.xml"]
    with pytest.raises(sp.PlanError, match=r"can't read .*ImageSets/Main/val\.txt"):
        voc(tmp_path, {}, split="val").open()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no element found"),
        ("<annotation><object>", "no element found"),
        ("<annotation></object>", "mismatched tag: line 1"),
        ("<html></html>", "its root is <html>, not <annotation>"),
        (
            '<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>',
            "it has a document",
        ),
        ("<annotation>&b;</annotation>", "undefined entity"),
        (
            "<annotation>" + "<a>" * 100_000,
            "its elements are nested more than 32 deep",
        ),
    ],
)
def test_an_image_with_a_broken_xml_file_is_no_record(tmp_path: Path, text: str, fault: str) -> None:
    source = voc(tmp_path, {"b": text})
    assert paths(source) == [f"{tmp_path}/VOC/JPEGImages/{name}.jpg" for name in "ac"]
    (found,) = faults(source)
    assert found.startswith(f"file that isn't VOC's XML: {tmp_path}/VOC/Annotations/b.xml: {fault}")
    assert source.open().index_note.endswith("; faults of annotations: 1 × file that isn't VOC's XML")  # type: ignore[attr-defined]
    check_source(source)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (thing("dog", (5, 5)), "object without a name or a box of four numbers: {}:2"),
        ("\n<object/>", "object without a name or a box of four numbers: {}:3"),
        (thing("dog", (5, 5, "x", 9)), "object without a name or a box of four numbers: {}:2"),  # type: ignore[arg-type]
        (thing("dog", (5, 5, 3, 9)), "empty box: {}:2: the box from and to (4, 4, 3, 9)"),
        (thing("dog", (5, 5, "nan", 9)), "box that isn't finite: {}:2"),  # type: ignore[arg-type]
        (thing("dog", (50, 5, 60, 9)), "box outside its image: {}:2: the box from and to (49, 4, 60, 9)"),
    ],
)
def test_a_bad_object_is_dropped_and_named(tmp_path: Path, wrong: str, fault: str) -> None:
    source = voc(tmp_path, {"b": f"<annotation>\n{wrong}{thing('cat', (1, 1, 5, 5))}</annotation>"})
    assert [len(labels) for labels in instances(source)["labels"]] == [0, 1, 0]
    (found,) = faults(source)
    assert found.startswith(fault.format(f"{tmp_path}/VOC/Annotations/b.xml"))


def test_images_and_xml_files_without_one_another(tmp_path: Path) -> None:
    source = voc(tmp_path, {"x": xml()})
    (tmp_path / "VOC/Annotations/b.xml").unlink()
    assert paths(source) == [f"{tmp_path}/VOC/JPEGImages/{name}.jpg" for name in "ac"]
    assert sorted(faults(source)) == [
        f"annotation file without an image: {tmp_path}/VOC/Annotations/x.xml",
        f"image without an annotation file: {tmp_path}/VOC/Annotations/b.xml",
    ]
    with pytest.raises(sp.PlanError, match=r"can't read the folder .*JPEGImages"):
        PascalVoc(tmp_path).open()


def test_labels_may_count_from_one(tmp_path: Path) -> None:
    of_yolo = replace(yolo(tmp_path, {"a": "1 0.5 0.5 0.5 0.5\n0 0.5 0.5 0.2 0.2\n"}), labels="contiguous+1")
    of_voc = replace(voc(tmp_path, {"a": xml(thing("dog", (1, 1, 9, 9)))}), labels="contiguous+1")
    assert instances(of_yolo)["labels"][0] == [2, 1]
    assert of_yolo.open().classes == ("", "cat", "dog")
    assert instances(of_voc)["labels"][0] == [1]
    assert of_voc.open().classes == ("", "dog")


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(sp.PlanError, match="PascalVoc: difficult must be 'drop' or 'keep', got 1"):
        PascalVoc(tmp_path, difficult=1).open()  # type: ignore[arg-type]
    with pytest.raises(
        sp.PlanError, match="YoloLabels: invalid must be 'clip' or 'drop' or 'error', got None"
    ):
        YoloLabels(tmp_path, invalid=None).open()  # type: ignore[arg-type]
    for split in (5, "a\0b"):
        with pytest.raises(sp.PlanError, match=r"split must be the name of a list|contains a NUL byte"):
            voc(tmp_path, {}, split=split).open()
    with pytest.raises(sp.PlanError, match=r"has no split \[5\]"):
        yolo(tmp_path, {}, split=[5]).open()
