"""Tar shards: the headers of every kind of tar, records, indexes, and shards that can't be read."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

import standpipe as sp
from interrupts import hears_ctrl_c
from photos import age, encoded, picture, write_list
from standpipe import _native
from standpipe.contracts import check_source
from tars import BLOCK, END, header, padded, pax, raw, shard

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
PHOTOS = [encoded(picture(seed), quality=90) for seed in range(12)]


@pytest.fixture(autouse=True)
def _own_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def labelled(first: int, count: int) -> list[tuple[str | bytes, bytes]]:
    """Members of ``count`` records, with images, labels and texts."""
    return [
        member
        for number in range(first, first + count)
        for member in (
            (f"train/{number:04}.jpg", PHOTOS[number % len(PHOTOS)]),
            (f"train/{number:04}.cls", b"%d\n" % (number % 5)),
            (f"train/{number:04}.json", b"{}"),
        )
    ]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with three shards of four records."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        shard(folder / f"train-{number:03}.tar", labelled(4 * number, 4))
    return folder


def found(source: sp.TarShards) -> list[bytes]:
    """Every image's bytes, in order, where the source says that they are."""
    opened = source.open()
    files = opened.locate(np.arange(opened.num_records)).files["image"]
    rows = []
    for row in range(opened.num_records):
        with Path(os.fsdecode(files.paths[row])).open("rb") as file:
            file.seek(files.offset[row])
            rows.append(file.read(files.length[row]))
    return rows


def refusal(source: sp.TarShards) -> str:
    with pytest.raises(sp.PlanError) as error:
        source.open()
    return str(error.value)


def members(path: Path) -> tuple[list[tuple[Any, ...]], Any]:
    """What the native reader finds in a shard, and its fault."""
    with path.open("rb") as file:
        return _native.tar_members(file.fileno(), path.stat().st_size, 0, 1 << 20)


def test_shards_keep_the_contract(shards: Path, tmp_path: Path) -> None:
    bare = shard(tmp_path / "bare.tar", [(f"{n}.PNG", b"x" * n) for n in range(1, 6)])
    masks = shard(
        tmp_path / "masks.tar", [(f"{n}.{kind}", b"x") for n in range(3) for kind in ("jpg", "seg.png")]
    )
    with_masks = sp.TarShards(masks, fields={"image": "jpg", "mask": "seg.png"})
    every = sp.TarShards(shards / "*.tar", index=tmp_path / "index")
    sp.build_index(every, columns={"weight": np.linspace(0, 1, 12), "box": np.arange(24).reshape(12, 2)})
    for source in (sp.TarShards(shards / "train-{000..002}.tar"), sp.TarShards(bare), with_masks, every):
        check_source(source)
    assert sorted(every.open().fields) == ["box", "image", "label", "weight"]
    assert sorted(with_masks.open().fields) == ["image", "mask"]
    check_source(sp.Concat(every, every))


@pytest.mark.parametrize("kind", FORMATS.values(), ids=FORMATS)
def test_names_and_places_are_those_of_tarfile(kind: int, tmp_path: Path) -> None:
    names = ["a.jpg", "./b/c d.jpg", "x" * 90 + "/" + "y" * 90 + ".jpg", "é/ü.png"]
    if kind != tarfile.USTAR_FORMAT:
        names += ["long/" * 300 + "name.jpg", "z" * 101 + ".jpg"]
    path = shard(tmp_path / "a.tar", [(name, bytes(n * 300)) for n, name in enumerate(names)], kind)
    with tarfile.open(path, encoding="utf-8") as tar:
        expected = [(member.offset, member.offset_data, member.size, True, member.name) for member in tar]
    got, fault = members(path)
    assert [(*facts, os.fsdecode(name)) for *facts, name in got] == expected
    assert fault is None
    opened = sp.TarShards(path).open()
    assert [opened.name(n) for n in range(len(names))] == [f"{path}: {name}" for name in names]


def test_headers_of_old_tars_are_read(tmp_path: Path) -> None:
    """Without a magic, with numbers of base 256, signed sums, global pax records, and odd types."""
    big = b"\x80" + (3).to_bytes(11, "big")
    signed = bytearray(header(b"s\xff\xfe.jpg", 1))
    signed[148:156] = b" " * 8
    total = sum(byte - 256 if byte > 127 else byte for byte in signed)
    signed[148:156] = b"%06o\0 " % total
    content = b"".join(
        [
            header(b"folder/", 0, kind=b"\0"),
            header(b"v7.jpg", b"%11o " % 3, kind=b"\0") + padded(b"abc"),
            header(b"base256.jpg", big) + padded(b"def"),
            bytes(signed) + padded(b"g"),
            header(b"pax_global_header", len(pax(comment="x")), b"g") + padded(pax(comment="x", path="")),
            header(b"ignored", len(pax(path="pax/name.jpg", size="2")), b"x")
            + padded(pax(path="pax/name.jpg", size="2")),
            header(b"short.jpg", 1) + padded(b"hi"),
            header(b"l.jpg", 0, b"2") + header(b"dev.jpg", 0, b"3") + header(b"fifo.jpg", 0, b"6"),
            header(b"base.jpg", 1, magic=b"ustar\x0000", prefix=b"in/front") + padded(b"j"),
            header(b"gnu.jpg", 1, magic=b"ustar  \0", prefix=b"12345670") + padded(b"k"),
            header(b"./././@LongLink", 21, b"L") + padded(b"long/" * 3 + b"a.jpg\0"),
            header(b"long/", 1, b"7") + padded(b"m"),
        ]
    )
    path = raw(tmp_path / "old.tar", content + END)
    assert members(path)[1] is None
    assert found(sp.TarShards(path)) == [b"abc", b"def", b"g", b"hi", b"j", b"k", b"m"]
    opened = sp.TarShards(path).open()
    names = [opened.name(n).rpartition(": ")[2] for n in range(7)]
    assert names == [
        "v7.jpg",
        "base256.jpg",
        "s\\xff\\xfe.jpg",
        "pax/name.jpg",
        "in/front/base.jpg",
        "gnu.jpg",
        "long/long/long/a.jpg",
    ]


NAMES = st.sampled_from(["a", "b", "c/a", ".d", "e"])
SUFFIXES = st.sampled_from([".jpg", ".JPG", ".cls", ".txt", ".seg.png", "", "."])


@given(st.lists(st.tuples(NAMES, SUFFIXES), max_size=12))
def test_records_are_groups_of_neighbours(made: list[tuple[str, str]]) -> None:
    """The rules of ``TarShards`` in the plainest way."""
    path = Path("/dev/shm") / f"tar-{os.getpid()}.tar"
    shard(path, [(name + suffix, b"7") for name, suffix in made])
    try:
        groups: list[tuple[str, list[str]]] = []
        for name, suffix in made:
            folder, _, base = (name + suffix).rpartition("/")
            stem, _, extension = base.lower().partition(".")
            if not stem or not extension:
                continue
            key = f"{folder}/{base[: len(stem)]}"
            if not groups or groups[-1][0] != key or (extension in ("jpg",) and extension in groups[-1][1]):
                groups.append((key, []))
            groups[-1][1].append(extension)
        records = [group for group in groups if "jpg" in group[1]]
        source = sp.TarShards(path, fields={"image": "jpg"})
        if not records:
            assert "no images" in refusal(source)
            return
        opened = source.open()
        assert opened.num_records == len(records)
        skipped = len(groups) - len(records)
        assert len(list(opened.skipped())) == skipped
        assert ("groups without an image" in opened.index_note) == (skipped > 0)
        again = len(records) - len({key for key, _ in records})
        assert (f"keys that come again in their shard: {again}" in opened.index_note) == (again > 0)
    finally:
        path.unlink()


def test_batches_are_those_of_files(shards: Path, tmp_path: Path) -> None:
    files = write_list(tmp_path, PHOTOS)
    listed = sp.Pipeline(files).shuffle(seed=3).map(sp.RandomResizedCrop(16)).batch(5, last_batch="partial")
    tarred = sp.Pipeline(sp.TarShards(shards / "*.tar")).shuffle(seed=3).map(sp.RandomResizedCrop(16))
    with (
        listed.loader(memory="256MiB", num_workers=2) as one,
        tarred.batch(5, last_batch="partial").loader(memory="256MiB", num_workers=1) as two,
    ):
        for a, b in zip(one, two, strict=True):
            assert np.array_equal(a["image"], b["image"])
            assert np.array_equal(a["index"], b["index"])
            assert np.array_equal(a["label"] % 5, b["label"])


def test_digest_leaves_out_where_shards_are(shards: Path, tmp_path: Path) -> None:
    digest = sp.TarShards(shards / "*.tar").open().digest
    moved = tmp_path / "elsewhere"
    shutil.copytree(shards, moved)
    for number, path in enumerate(sorted(moved.iterdir())):
        path.rename(moved / f"part{number}")
    source = sp.TarShards(moved / "part*")
    assert source.open().digest == digest
    (image, content), (label, _), *others = labelled(8, 4)
    for first in (
        [(image, content + b"x"), (label, b"3")],
        [("train/other.jpg", content), ("train/other.cls", b"3")],
        [(image, content), (label, b"4")],
    ):
        shard(moved / "part2", [*first, *others])
        assert source.open().digest != digest
    shard(moved / "part2", [(image, content), (label, b" 3"), *others])
    assert source.open().digest == digest


def test_names_are_expanded_and_sorted(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [str(path) for path in sorted(shards.iterdir())]
    shard(shards / "odd{1}.tar", labelled(0, 1))
    monkeypatch.chdir(shards)
    for names in (
        "train-{000..002}.tar",
        "train-{002..000}.tar",
        "train-*.tar",
        "train-00[0-2].tar",
        "{train-{000,001},train-002}.tar",
        "tr{a,a}in-00?.tar",
        ["train-001.tar", "train-{000,002}.tar", Path("train-001.tar")],
        shards / "train-*.tar",
        ["../shards/train-000.tar", "train-00[12].tar"],
    ):
        opened = sp.TarShards(names).open()
        paths = opened.locate(np.arange(opened.num_records)).files["image"].paths
        found_paths = [os.fsdecode(paths[row]) for row in range(len(paths))]
        assert found_paths == [path for path in expected for _ in range(4)], names
    assert sp.TarShards("odd{1}.tar").open().num_records == 1
    assert "no file fits none-*.tar" in refusal(sp.TarShards("none-*.tar"))
    assert "can't read" in refusal(sp.TarShards("train-{000..003}.tar"))
    assert "more than 1,048,576 shards" in refusal(sp.TarShards("{0..9999999}.tar"))
    assert "more than 1,048,576 shards" in refusal(sp.TarShards("{0..9999}{0..9999}.tar"))
    assert "no shards" in refusal(sp.TarShards([]))
    for wrong in ("a-{000-002}.tar", "a-{000.002}.tar", "a-{000..002.tar", "a-000..002}.tar", "{*}.tar"):
        said = refusal(sp.TarShards(wrong))
        assert f"{wrong} aren't a range or a choice; write them as in 'train-{{000..146}}'" in said


def test_index_is_used_until_a_shard_changes(shards: Path, tmp_path: Path) -> None:
    source = sp.TarShards(shards / "*.tar")
    report = sp.build_index(source)
    assert report.path == shards / "train-000.tar+2.standpipe-index"
    assert report.size_bytes < 64 * 36 + 4096  # and a few thousand bytes, however many members there are
    assert str(report.path) in source.open().index_note
    assert sp.verify_index(source).ok
    shard(shards / "train-001.tar", labelled(0, 5))
    assert source.open().num_records == 13
    differences = sp.verify_index(source).differences
    assert "train-001.tar changed since" in differences[0]
    assert differences[1] == "it has 12 records, the shards have 13"
    with pytest.raises(sp.PlanError, match="as an array"):
        sp.build_index(source, columns={"length": len})
    with pytest.raises(sp.PlanError, match="as an array"):
        sp.build_index(source, columns={"image_offset": np.zeros(13, int), "image_length": np.zeros(13, int)})
    shard(shards / "train-001.tar", labelled(20, 5))  # of the same size
    os.utime(shards / "train-001.tar", ns=(1, 1))
    assert source.open().name(4).endswith("train-001.tar: train/0020.jpg")


def test_the_index_of_many_shards_is_stored_though_it_is_small(tmp_path: Path) -> None:
    """Headers in many files take long to read where opens are slow."""
    first = shard(tmp_path / "00.tar", labelled(0, 1))
    for number in range(1, 65):
        age(shutil.copyfile(first, tmp_path / f"{number:02}.tar"))
    assert "in memory" in sp.TarShards(tmp_path / "{00..63}.tar").open().index_note
    assert str(tmp_path / "cache") in sp.TarShards(tmp_path / "{00..64}.tar").open().index_note


def test_columns_stay_while_records_are_the_same(shards: Path, tmp_path: Path) -> None:
    source = sp.TarShards(shards / "*.tar")
    sp.build_index(source, columns={"weight": np.arange(12.0)})
    age(shards / "train-001.tar", at_ns=10**18 + 7)
    assert source.open().column("weight", 0, 3).tolist() == [0, 1, 2]
    shard(shards / "train-001.tar", labelled(20, 4))
    assert re.search(r"has other records now .*train-001.tar changed.*build it again", refusal(source))


def test_other_members_are_counted_and_named(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "a.tar",
        [
            ("1.jpg", PHOTOS[0]),
            ("1.json", b"{}"),
            ("2.json", b"{}"),
            ("3.jpg", PHOTOS[1]),
            ("README", b"hello"),
            ("1.jpg", PHOTOS[2]),
        ],
    )
    opened = sp.TarShards(path).open()
    assert opened.num_records == 3
    assert "members left out, by extension: 2 json, 1 names without one" in opened.index_note
    assert "groups without an image: 1; keys that come again in their shard: 1" in opened.index_note
    assert "pipes" not in opened.index_note
    (skipped,) = opened.skipped()
    assert "a.tar: 2.json (no image of this key" in skipped
    bare = shard(tmp_path / "b.tar", [("1.jpg", PHOTOS[0]), ("1.jpg", PHOTOS[1])])
    report = sp.check_files(sp.Concat(sp.TarShards(path), sp.TarShards(bare)), num_workers=1)
    assert (report.skipped, dict(report.counts)) == (1, {"copy": 2, "repeated-key": 2})
    again, other = report.findings("repeated-key")
    assert (again.index, again.like, again.path) == (2, 0, f"{path}: 1.jpg")
    assert (other.index, other.like, other.text) == (4, 3, f"the same key as record 3, {bare}: 1.jpg")


def test_links_are_counted_and_files_of_macos_are_no_members(tmp_path: Path) -> None:
    apple = b"\0\5\x16\7"
    path = raw(
        tmp_path / "a.tar",
        b"".join(
            [
                *(header(b"._1.jpg", 4) + padded(apple), header(b"1.jpg", 1) + padded(b"a")),
                *(
                    header(b"._1.cls", 4) + padded(apple),
                    header(b"folder/", 0, b"5"),
                    header(b"1.cls", 1) + padded(b"3"),
                ),
                *(header(b"2.jpg", 0, b"1"), header(b"3.jpg", 0, b"2"), END),
            ]
        ),
    )
    opened = sp.TarShards(path).open()
    assert opened.column("label", 0, opened.num_records).tolist() == [3]
    assert "2 links to other members, 2 names without one" in opened.index_note


CUT = labelled(0, 2)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"x" * 600, "isn't a tar archive"),
        (b"\x1f\x8b\x08" + bytes(900), "is compressed.*gunzip"),
        (b"\x28\xb5\x2f\xfd" + bytes(60), "is compressed"),
        (header(b"a.jpg", 5) + b"hello", "ends without the zeros that mark the end.*byte 517"),
        (header(b"a.jpg", 5) + b"hell", "byte 0: the member a.jpg says that it has 5 bytes.*ends at byte 516"),
        (header(b"a.jpg", b"\x80" + (8 << 60).to_bytes(11, "big")) + END, "the member a.jpg says that it has .*cut"),
        (header(b"a.jpg", b"\xff" * 12) + END, "the member a.jpg says that it has .* bytes"),
        (header(b"a.jpg", b"7" * 12) + END, "the member a.jpg says that it has 68,719,476,735 bytes"),
        (header(b"a.jpg", b"12x" + b" " * 9) + END, "the member a.jpg says that it has"),
        (header(b"a.jpg", 1) + padded(b"a") + b"y" * 512 + END, r"is damaged.*\(byte 1,024"),
        (header(b"a.jpg", 1) + padded(b"a") + END + header(b"b.jpg", 0) + END, "goes on after its end mark"),
        (header(b"a.jpg", 1, b"S") + padded(b"a") + END, r"sparse member.*a.jpg"),
        (header(b"x", len(pax(GNU__sparse__major="1")), b"x") + padded(pax(GNU__sparse__major="1"))
         + header(b"a.jpg", 0) + END, "sparse member"),
        (header(b"a.jpg", 1, b"M") + padded(b"a") + END, "several volumes"),
        (header(b"x", 3, b"x") + padded(b"99 ") + header(b"a.jpg", 0) + END, "is damaged"),
        (header(b"x", 2 << 20, b"x") + bytes(2 << 20) + END, "of more than a member's may have"),
        (header(b"x", 1 << 40, b"L") + bytes(2 << 20) + END, "x says that it has 17,179,869,184 bytes.*is cut"),
        (header(b"x", 70_000, b"L") + padded(b"n" * 70_000) + header(b"a.jpg", 0) + END, "of more than"),
        (header(b"x", 6, b"L") + padded(b"a.jpg\0") + END, "the member x isn't complete|cut"),
        (header(b"a.jpg", 0) + header(b"b.jpg", 0) + END, "all images are empty"),
        (header(b"a.txt", 0) + header(b"b.json", 0) + END, "no images, only members with .json, .txt"),
        (END, "has no images"),
    ],
)  # fmt: skip
def test_shards_that_cant_be_read_are_refused(content: bytes, text: str, tmp_path: Path) -> None:
    path = raw(tmp_path / "bad.tar", content)
    said = refusal(sp.TarShards(path))
    assert re.search(text, said, re.DOTALL), said
    assert "bad.tar" in said


@pytest.mark.parametrize("before", [b"", header(b"a.jpg", 1) + padded(b"a") + END])
def test_a_shard_that_is_a_hole_is_refused_at_once(before: bytes, tmp_path: Path) -> None:
    """An incomplete download, of 8 TiB; reading all of it would take hours."""
    path = raw(tmp_path / "bad.tar", before)
    os.truncate(path, 8 << 40)
    said = refusal(sp.TarShards(path))
    assert "bad.tar has more than 16 MiB of zeros where it should end" in said
    assert f"(byte {len(before) and 1024:,})" in said


def test_zeros_after_the_end_mark_are_padding(tmp_path: Path) -> None:
    """As ``tar -b`` writes for tapes."""
    path = raw(tmp_path / "a.tar", header(b"a.jpg", 1) + padded(b"a") + END)
    os.truncate(path, 1024 + (16 << 20))
    assert sp.TarShards(path).open().num_records == 1
    os.truncate(path, 1024 + (16 << 20) + 1)
    assert "16 MiB of zeros" in refusal(sp.TarShards(path))


def test_a_member_that_is_a_hole_is_skipped(tmp_path: Path) -> None:
    path = raw(tmp_path / "a.tar", header(b"a.jpg", 1) + padded(b"a") + header(b"a.bin", 7 << 30))
    with path.open("r+b") as file:
        file.seek(7 << 30, os.SEEK_END)
        file.write(header(b"b.jpg", 1) + padded(b"b") + END)
    assert found(sp.TarShards(path)) == [b"a", b"b"]


def test_ctrl_c_ends_the_reading_of_headers(shards: Path) -> None:
    path = shards / "train-000.tar"
    records = _native.TarRecords([(["jpg"], False)], [], [])
    with path.open("rb") as file:
        records.begin(file.fileno(), path.stat().st_size)
        assert hears_ctrl_c(partial(records.take, 100))
        assert len(records.headers) == 0
        assert records.take(100) is False
    assert len(records.headers) == 4


def test_a_shard_cut_anywhere_is_an_error(tmp_path: Path) -> None:
    whole = shard(
        tmp_path / "a.tar", [("1.jpg", b"x" * 700), ("1.cls", b"1"), ("2.jpg", b"y"), ("2.cls", b"2")]
    )
    data = whole.read_bytes()
    with tarfile.open(whole) as tar:
        end = max(member.offset_data + BLOCK for member in tar)
        between = {tar.getmember(name).offset for name in ("1.cls", "2.jpg")}
    for cut in range(0, end, 64):
        if cut in between:  # whole records before, which a program that marks no end may have written
            assert "which may be cut" in sp.TarShards(raw(tmp_path / "cut.tar", data[:cut])).open().index_note
            continue
        said = refusal(sp.TarShards(raw(tmp_path / "cut.tar", data[:cut])))
        assert "cut.tar" in said
        assert cut == 0 or re.search(r"cut|isn't a tar|damaged|no label", said), said


def test_a_shard_without_its_end_mark_is_read_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Many programs write none, and Python's tarfile reads such archives."""
    whole = shard(tmp_path / "whole.tar", labelled(0, 3)).read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as tar:
        end = max(member.offset_data + BLOCK for member in tar)
    for name in ("b.tar", "c.tar"):
        raw(tmp_path / name, whole[:end])
    with caplog.at_level("WARNING", "standpipe"):
        opened = sp.TarShards(tmp_path / "{whole,b,c}.tar").open()
    assert opened.num_records == 9
    (warned,) = caplog.messages
    assert warned.startswith(
        f"{tmp_path}/b.tar (ends without an end mark, as 1 other shards, so it may be cut); copy"
    )
    assert "shards without an end mark, which may be cut: 2, first b.tar" in opened.index_note
    assert list(opened.skipped()) == [
        f"{tmp_path}/b.tar (ends without an end mark, as 1 other shards, so it may be cut)"
    ]
    assert (
        sp.TarShards(tmp_path / "b.tar").open().digest == sp.TarShards(tmp_path / "whole.tar").open().digest
    )


@pytest.mark.parametrize(
    ("made", "fields", "text"),
    [
        ("1.jpg 1.cls 2.jpg", None, "byte 2,048: the member 2.jpg has no label next to it.*--sort=name"),
        ("1.jpg 2.jpg 1.cls", None, "the member 1.cls is a label, but the first record has none"),
        ("1.jpg 1.png", None, "the member 1.png is a second image of its record"),
        ("1.jpg 1.pth", None, "the member 1.pth may hold Python code"),
        ("1.jpg 1.x.pickle", None, "the member 1.x.pickle may hold Python code"),
        ("1.jpg 2.jpg", {"image": "jpg", "mask": "seg.png"}, "1.jpg has no mask next to it"),
        ("1.jpg 1.id", {"image": "jpg", "label": "id"}, "1.id isn't an integer of 64 bits as text"),
        ("1.cls 2.cls", None, "has no images; name the extensions of yours"),
        ("1.x.jpg 1.cls", None, "no images, only members with .x.jpg; a key ends at the first dot of a name"),
        ("1.jpg", {"image": "gif;png"}, "no images, only members with .jpg"),
        ("1.jpg", {"label": "cls"}, "must say what the image is"),
        ("1.jpg", "jpg", "must say what the image is"),
        ("1.jpg", {"image": "jpg", "index": "png"}, "can't be named 'index'"),
        ("1.jpg", {"image": ""}, "needs extensions as text"),
        ("1.jpg", {"image": "jpg", "text": "pkl"}, "'pkl' members may hold Python code.*leave the field 'text' out"),
        ("1.jpg", {"image": "txt"}, "the field 'image' is an image, but 'txt' isn't one of.*fields={…, 'text': 'txt'}"),
        ("1.jpg", {"image": "jpg", "label": "txt"}, "the field 'label' is an integer"),
        ("1.jpg", {"image": "jpg", "mask": "jpg"}, "'jpg' can't be both 'image' and 'mask'"),
    ],
)  # fmt: skip
def test_records_that_arent_alike_are_refused(made: str, fields: Any, text: str, tmp_path: Path) -> None:
    path = shard(
        tmp_path / "a.tar", [(name, b"1e5" if name.endswith(".id") else b"1") for name in made.split()]
    )
    said = refusal(sp.TarShards(path, fields=fields))
    assert re.search(text, said), said


@pytest.mark.parametrize(
    ("shards", "text"),
    [
        (None, "TarShards needs a name such as .* got None"),
        (7, "TarShards needs a name such as .* got 7"),
        ([None], "TarShards needs a name such as .* got \\[None]"),
        ([], "TarShards has no shards"),
        (Path("s3://bucket/a.tar"), r"TarShards' shards: pathlib makes one slash of the two in a URL"),
        (["pipe:cat a.tar"], "TarShards' shards: standpipe runs no commands such as pipe:"),
        (".", r"Is a directory; .*of shards 'FOLDER/\*\.tar'"),
    ],
)
def test_names_that_arent_shards(shards: Any, text: str) -> None:
    said = refusal(sp.TarShards(shards))
    assert re.search(text, said), said


def test_other_fields_than_named_are_left_out(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "a.tar",
        [("1.jpg", PHOTOS[0]), ("1.png", b"x"), ("1.pth", b"x"), ("1.index", b" -7\n"), ("1.cls", b"?")],
    )
    opened = sp.TarShards(path, fields={"label": "index", "image": ".JPG; webp"}).open()
    assert opened.column("label", 0, 1).tolist() == [-7]
    assert found(sp.TarShards(path, fields={"image": "jpg"})) == [PHOTOS[0]]


def decode(data: np.ndarray) -> np.ndarray:
    with Image.open(io.BytesIO(data.tobytes())) as image:
        return np.asarray(image.convert("RGB"))


def test_two_images_need_code_that_decodes_the_second(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "a.tar", [(f"{n}.{kind}", PHOTOS[n]) for n in range(3) for kind in ("jpg", "right.jpg")]
    )
    source = sp.TarShards(path, fields={"image": "jpg", "right": "right.jpg"})
    files = source.open().locate(np.array([2])).files
    places = [(int(files[name].offset[0]), int(files[name].length[0])) for name in ("image", "right")]
    assert [path.read_bytes()[at : at + size] for at, size in places] == [PHOTOS[2]] * 2
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8), unmoved=("right",))
    with pytest.raises(sp.PlanError, match="'right' is an encoded image that no transform decodes"):
        pipeline.batch(2).plan()
    for executor in ("thread", "process"):
        decoded = pipeline.map(decode, field="right").batch(3)
        with decoded.loader(memory="256MiB", num_workers=1, executor=executor) as loader:
            (batch,) = loader
        rights = [decode(np.frombuffer(PHOTOS[n], np.uint8)) for n in range(3)]
        assert np.array_equal(batch["right"], np.stack(rights))
        assert batch["image"].shape == (3, 8, 8, 3)


def text_of(data: np.ndarray) -> str:
    return data.tobytes().decode()


def json_of(data: np.ndarray) -> Any:
    return json.loads(data.tobytes())


def array_of(data: np.ndarray) -> np.ndarray:
    return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def test_texts_json_and_arrays_come_into_the_batch(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "a.tar",
        [
            member
            for n in range(3)
            for member in (
                (f"{n}.jpg", PHOTOS[n]),
                (f"{n}.cls", b"dog"),
                (f"{n}.txt", f"caption é {n}".encode()),
                (f"{n}.json", b'{"width": %d}' % n),
                (f"{n}.npy", npy(np.full(4, n, np.float32))),
            )
        ],
    )
    assert re.search(
        r"0.cls isn't an integer.*fields=\{'image': 'jpg', 'name': 'cls'}", refusal(sp.TarShards(path))
    )
    fields = {"image": "jpg", "name": "cls", "text": "txt", "facts": "json", "vector": "npy"}
    pipeline = sp.Pipeline(sp.TarShards(path, fields=fields)).map(sp.CenterCrop(8))
    for field, decoded in {"name": text_of, "text": text_of, "facts": json_of, "vector": array_of}.items():
        pipeline = pipeline.map(decoded, field=field)
    for executor in ("thread", "process"):
        with pipeline.batch(3).loader(memory="256MiB", num_workers=1, executor=executor) as loader:
            (batch,) = loader
        assert (batch["name"], batch["text"]) == (["dog"] * 3, ["caption é 0", "caption é 1", "caption é 2"])
        assert batch["facts"] == [{"width": 0}, {"width": 1}, {"width": 2}]
        assert np.array_equal(batch["vector"], np.repeat(np.arange(3, dtype=np.float32), 4).reshape(3, 4))


def test_arrays_of_objects_are_refused_by_name(tmp_path: Path) -> None:
    for number, array in enumerate((np.array([{}]), np.zeros(2, [("a", "i4"), ("b", "O")]))):
        path = shard(tmp_path / f"{number}.tar", [("1.jpg", PHOTOS[0]), ("1.npy", npy(array))])
        for fields in (None, {"image": "jpg", "vector": "npy"}):
            assert "the member 1.npy has Python objects" in refusal(sp.TarShards(path, fields=fields))
        assert sp.TarShards(path, fields={"image": "jpg"}).open().num_records == 1


def test_a_shard_that_was_cut_later_names_shard_member_and_byte(shards: Path) -> None:
    path = shards / "train-002.tar"
    pipeline = sp.Pipeline(sp.TarShards(shards / "*.tar")).map(sp.CenterCrop(8)).batch(4)
    with pipeline.loader(memory="128MiB", num_workers=1) as loader:
        with tarfile.open(path) as tar:
            members = [member for member in tar if member.name.endswith(".jpg")]
        os.truncate(path, members[-1].offset_data + 10)
        with pytest.raises(sp.SampleError) as error:
            list(loader)
    assert (error.value.index, error.value.offset) == (8, members[0].offset_data), (
        "of what changed nothing is read"
    )
    assert error.value.path == f"{path}: {members[0].name}"


def test_an_index_that_points_outside_of_a_shard_is_an_error(shards: Path, tmp_path: Path) -> None:
    from indexes import change_section

    index = tmp_path / "index"
    source = sp.TarShards(shards / "*.tar", index=index)
    sp.build_index(source)
    for number, value in enumerate((1 << 40, -1, 1 << 62)):

        def change(data: bytearray, value: int = value) -> None:
            data[:8] = np.int64(value).tobytes()

        change_section(index, "offset of image" if number < 2 else "length of image", change)
        pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(4)
        with pytest.raises(sp.StandpipeError), pipeline.loader(memory="128MiB", num_workers=1) as loader:
            list(loader)
        assert source.open().name(0).startswith(str(shards / "train-000.tar"))
        sp.build_index(source)


@pytest.mark.parametrize("name", ["train.json", "train-000.idx", "train-000.tar.idx"])
def test_lists_of_shards_and_members_are_no_shards(shards: Path, name: str) -> None:
    (shards / name).touch()
    assert f"{name} only lists shards or their members" in refusal(sp.TarShards(shards / name))


def test_many_empty_members_are_an_error_in_little_memory(tmp_path: Path) -> None:
    path = raw(tmp_path / "a.tar", header(b"a.jpg", 0) * 50_000 + END)
    assert "all images are empty" in refusal(sp.TarShards(path))
    path = raw(tmp_path / "b.tar", header(b"a.txt", 0) * 50_000 + END)
    assert "no images" in refusal(sp.TarShards(path))
