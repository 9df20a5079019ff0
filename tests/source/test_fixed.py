from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from forked import output
from standpipe.contracts import check_source

PIXELS = np.random.default_rng(7).integers(0, 256, (10, 3, 4, 5), np.uint8)
LABELS = np.arange(10, dtype=np.uint8)[::-1]
FIELDS = [("label", "u1"), ("image", "u1", (3, 4, 5))]


def stored(path: Path, fields: Any = FIELDS, header: bytes = b"", **values: np.ndarray) -> Path:
    """Write records of these values behind a header."""
    records = np.zeros(len(next(iter(values.values()))), fields)
    for name, value in values.items():
        records[name] = value
    path.write_bytes(header + records.tobytes())
    return path


@pytest.fixture
def two_files(tmp_path: Path) -> list[Path]:
    return [
        stored(tmp_path / "a.bin", label=LABELS[:7], image=PIXELS[:7]),
        stored(tmp_path / "b.bin", label=LABELS[7:], image=PIXELS[7:]),
    ]


def test_records_keep_the_contract(two_files: list[Path], tmp_path: Path) -> None:
    planar = sp.FixedRecords(two_files, fields=FIELDS, image_axes="CHW")
    others = stored(tmp_path / "c.bin", label=LABELS[:2], image=PIXELS[:2])
    for source in (
        sp.FixedRecords(two_files, fields=FIELDS, classes=[f"class {n}" for n in range(10)]),
        planar,
        sp.Concat(planar, sp.FixedRecords(others, fields=FIELDS, image_axes="CHW")),
    ):
        check_source(source)


@pytest.mark.parametrize("executor", [None, "thread", "process"])
def test_batches_have_the_images_of_their_labels(two_files: list[Path], executor: str | None) -> None:
    source = sp.FixedRecords(two_files, fields=FIELDS, image_axes="CHW")
    pipeline = sp.Pipeline(source).shuffle(seed=7).map(sp.CenterCrop(4))
    if executor:
        pipeline = pipeline.map(negative, field="image")
    with pipeline.batch(5).loader(memory="512MiB", num_workers=1, executor=executor) as loader:
        batches = [(batch["label"].copy(), batch["image"].copy()) for batch in loader]
    labels, images = (np.concatenate(part) for part in zip(*batches, strict=True))
    assert sorted(labels.tolist()) == list(range(10))
    crop = loader.plan.fields["image"].shape
    for label, image in zip(labels.tolist(), images, strict=True):
        whole = PIXELS[9 - label].transpose(1, 2, 0)
        assert np.array_equal(image, (255 - whole if executor else whole)[:, :4])
    assert (labels.dtype, crop) == (np.int64, (4, 4, 3))


def negative(image: np.ndarray) -> np.ndarray:
    return 255 - image


def test_records_follow_a_header_and_one_another_over_files(tmp_path: Path) -> None:
    fields = [("tokens", ">u2", (6,)), ("weight", "<f4")]
    tokens = np.arange(42).reshape(7, 6)
    paths = [
        stored(tmp_path / f"{n}.bin", fields, b"header", tokens=part, weight=part[:, 0])
        for n, part in enumerate((tokens[:3], tokens[3:]))
    ]
    opened = sp.FixedRecords(paths, fields=fields, header_bytes=6).open()
    asked = np.array([6, 2, 3, 3, 0])
    records = opened.locate(asked)
    rows = records.rows["tokens"]
    assert rows.array[rows.rows].tolist() == tokens[asked].tolist()
    assert records.plain["weight"].tolist() == tokens[asked, 0].tolist()
    assert opened.fields["tokens"] == sp.ArraySpec((6,), np.dtype(np.uint16))
    assert opened.name(4) == f"{paths[1]} at byte {6 + 16}"


def test_many_neighbours_are_read_at_once(tmp_path: Path) -> None:
    """More than the system takes in one call."""
    fields = [("x", "<u2", (2,))]
    values = np.arange(6000).reshape(3000, 2)
    opened = sp.FixedRecords(stored(tmp_path / "a.bin", fields, x=values), fields=fields).open()
    asked = np.random.default_rng(7).permutation(3000)
    assert np.array_equal(opened.locate(asked).rows["x"].array, values[asked])


def test_a_field_between_others_is_aligned(tmp_path: Path) -> None:
    fields = [("label", "u1"), ("tokens", "<u4", (3,))]
    path = stored(tmp_path / "a.bin", fields, label=LABELS[:2], tokens=np.arange(6).reshape(2, 3))
    array = sp.FixedRecords(path, fields=fields).open().locate(np.array([1])).rows["tokens"].array
    assert array.flags.aligned
    assert array.tolist() == [[3, 4, 5]]


def test_columns_of_large_records_are_read_without_the_rest(tmp_path: Path) -> None:
    fields = [("pixels", "u1", (5000,)), ("label", "<i4")]
    path = stored(tmp_path / "a.bin", fields, pixels=np.ones((10, 5000)), label=LABELS - 5.0)
    opened = sp.FixedRecords(path, fields=fields).open()
    assert opened.columns == ("label",)
    assert opened.column("label", 2, 6).tolist() == [2, 1, 0, -1]


def test_gray_images_get_an_axis_of_channels(tmp_path: Path) -> None:
    fields = [("image", "u1", (4, 5))]
    path = stored(tmp_path / "a.bin", fields, image=PIXELS[:, 0])
    rows = sp.FixedRecords(path, fields=fields, image_axes="HW").open().locate(np.arange(10)).rows["image"]
    assert rows.array.shape == (10, 4, 5, 1)
    assert np.array_equal(rows.array[..., 0], PIXELS[:, 0])


def test_cifar(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3, 32, 32)
    ten = tmp_path / "data_batch_1.bin"
    ten.write_bytes(
        b"".join(bytes([label]) + image.tobytes() for label, image in zip((9, 0), pixels, strict=True))
    )
    hundred = tmp_path / "train.bin"
    hundred.write_bytes(bytes([4, 30]) + pixels[0].tobytes())

    opened = sp.FixedRecords.cifar10(ten, ten).open()
    records = opened.locate(np.arange(4))
    assert records.plain["label"].tolist() == [9, 0, 9, 0]
    assert np.array_equal(records.rows["image"].array[1], pixels[1].transpose(1, 2, 0))
    assert opened.classes is not None
    assert opened.classes[9] == "truck"
    records = sp.FixedRecords.cifar100(hundred).open().locate(np.arange(1))
    assert [records.plain[name].tolist() for name in ("coarse_label", "label")] == [[4], [30]]
    with pytest.raises(
        sp.PlanError, match=r"3,074 bytes: after a header of 0 bytes and 1 records of 3,073 bytes, 1 by"
    ):
        sp.FixedRecords.cifar10(hundred).open()


def test_the_digest_is_of_the_content_and_not_of_the_place(two_files: list[Path], tmp_path: Path) -> None:
    def digest(*paths: Path, **settings: Any) -> str:
        return sp.FixedRecords(paths, **{"fields": FIELDS, **settings}).open().digest

    moved = tmp_path / "elsewhere.bin"
    moved.write_bytes(two_files[0].read_bytes())
    os.utime(moved, (1, 1))
    known = digest(two_files[0])
    assert digest(moved) == known
    moved.write_bytes(moved.read_bytes()[:-1] + b"\0")
    others = [
        digest(moved),
        digest(*two_files),
        digest(*reversed(two_files)),
        digest(two_files[0], image_axes="CHW"),
        digest(two_files[0], fields=[("label", "i1"), *FIELDS[1:]]),
    ]
    assert len({known, *others}) == 6


REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "no files": ({"paths": []}, "FixedRecords has no files; give it a path"),
    "missing": ({"paths": "/nowhere/a.bin"}, "can't read /nowhere/a.bin: No such file"),
    "a folder": ({"paths": "/"}, "can't read /: Is a directory; a file is needed"),
    "header": ({"header_bytes": -1}, "header_bytes must be an integer of at least 0, got -1"),
    "only a header": ({"header_bytes": 610}, "has 610 bytes, so no record follows its header of 610 bytes"),
    "size": (
        {"header_bytes": 1},
        "has 610 bytes: after a header of 1 bytes and 9 records of 61 bytes, 60 bytes are left",
    ),
    "no dtype": (
        {"fields": [("label", "what")]},
        "isn't a list of fields, such as .*data type 'what' not understood",
    ),
    "no names": ({"fields": "u1"}, "fields='u1' has no names; name the fields of a record"),
    "index": (
        {"fields": [("index", "u1")]},
        "the field 'index' has the name of a field that standpipe adds to every batch",
    ),
    "objects": (
        {"fields": [("label", "O")]},
        "the field 'label' has dtype object; Python objects are never loaded",
    ),
    "bool": (
        {"fields": [("label", "?")]},
        "the field 'label' is bool, but a byte of a file may be neither 0 nor 1",
    ),
    "nothing": (
        {"fields": [("a", "u1"), ("label", "u1", (0,))]},
        r"'label' has the shape \(0,\), which has no values",
    ),
    "axes": (
        {"image_axes": "HW"},
        r"image_axes='HW' doesn't fit the field image, which has shape \(3, 4, 5\)",
    ),
    "unknown axes": ({"image_axes": "NCHW"}, "image_axes='NCHW' doesn't fit"),
    "no image": ({"fields": [("a", "u1", (61,))], "image_axes": "CHW"}, "which has no field of that name"),
    "classes": ({"fields": [("a", "u1", (61,))], "classes": ["b"]}, "classes= needs a field 'label'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cant_be_read_is_said(case: str, tmp_path: Path) -> None:
    path = stored(tmp_path / "a.bin", label=LABELS, image=PIXELS)
    settings, message = REFUSED[case]
    with pytest.raises(sp.PlanError, match=message):
        sp.FixedRecords(**{"paths": path, "fields": FIELDS, **settings}).open()


def test_a_compressed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(gzip.compress(bytes(610)))
    with pytest.raises(
        sp.PlanError, match=r"a\.bin is compressed with gzip; decompress it first, for example with gunzip"
    ):
        sp.FixedRecords(path, fields=FIELDS).open()


def test_a_file_that_changes_under_a_loader_is_an_error(two_files: list[Path]) -> None:
    with (
        sp.Pipeline(sp.FixedRecords(two_files, fields=FIELDS))
        .batch(5)
        .loader(memory="512MiB", num_workers=1) as loader
    ):
        os.truncate(two_files[1], 61)
        with pytest.raises(
            sp.StandpipeError, match=r"b\.bin has changed since the loader was planned; plan again"
        ):
            list(loader)


def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    """A file of 4 GiB, most of it a hole."""
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(1 << 32)
    grown = output(
        f"""
        import resource
        fields = [("label", "u1"), ("image", "u1", (1023,))]
        source = sp.FixedRecords({str(path)!r}, fields=fields)
        opened = source.open()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for start in range(0, opened.num_records, 1 << 18):
            opened.locate(np.arange(start, start + 256))
        opened.column("label", 0, 1 << 17)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """
    )
    assert int(grown) < 16 << 10  # KiB
