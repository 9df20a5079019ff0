"""Checksums of records: written into an index, compared with every read, and with all records by ``verify_records``."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from forked import output
from photos import age, encoded, picture
from standpipe import _native
from standpipe.contracts import Source, check_source
from standpipe.source.index.file import PREAMBLE, DamagedIndex, preamble, read_index
from tars import shard

JPEGS = [encoded(picture(seed)) for seed in range(6)]
Makes = Callable[[Path], Any]


def folder(tmp_path: Path) -> Source:
    for number, jpeg in enumerate(JPEGS):
        path = tmp_path / f"photos/{'ab'[number % 2]}/{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg)
    age(tmp_path / "photos", tmp_path / "photos/a", tmp_path / "photos/b")
    return sp.ImageFolder(tmp_path / "photos", index=tmp_path / "index")


def listed(tmp_path: Path) -> Source:
    folder(tmp_path)
    list_of = tmp_path / "list.txt"
    list_of.write_text("".join(f"photos/{'ab'[number % 2]}/{number}.jpg\n" for number in range(len(JPEGS))))
    age(list_of)
    return sp.FileList(list_of, index=tmp_path / "index")


def shards(tmp_path: Path) -> Source:
    members = [
        (f"{number}.{kind}", jpeg) for number, jpeg in enumerate(JPEGS) for kind in ("jpg", "depth.png")
    ]
    return sp.TarShards(
        [shard(tmp_path / f"{half}.tar", members[6 * half : 6 * half + 6]) for half in range(2)],
        {"image": "jpg", "other": "depth.png"},
        index=tmp_path / "index",
    )


def annotated(tmp_path: Path) -> Source:
    folder(tmp_path)
    images = [
        {"id": number, "file_name": f"{'ab'[number % 2]}/{number}.jpg", "height": 40, "width": 56}
        for number in range(len(JPEGS))
    ]
    boxes = [{"id": 1, "image_id": 3, "category_id": 1, "bbox": [0, 0, 9, 9], "iscrowd": 0, "area": 81}]
    text = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "coco.json").write_text(json.dumps(text))
    age(tmp_path / "coco.json")
    return sp.Coco(tmp_path / "photos", tmp_path / "coco.json", index=tmp_path / "index")


SOURCES: list[Makes] = [folder, listed, shards, annotated]


def flip(source: Source, record: int, at: int = 700, *, field: str = "image") -> Path:
    """Change a bit of a record, and leave the file's size and time."""
    files = source.open().locate(np.array([record])).files[field]
    path = Path(os.fsdecode(files.paths[0]))
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.seek(int(files.offset[0]) + at)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    os.utime(path, ns=times)
    return path


def batches(source: Source, *, executor: str | None = None, bad: Any = None) -> tuple[int, list[Any]]:
    """The number of rows of an epoch, and its bad samples."""
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(16))
    if executor is not None:
        pipeline = pipeline.map(np.asarray, field="image")
    if bad is not None:
        pipeline = pipeline.on_error(bad)
    with pipeline.batch(6).loader(memory="512MiB", num_workers=1, executor=executor) as loader:
        return sum(len(batch["image"]) for batch in loader), [*loader.bad_samples]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_every_read_is_compared(make: Makes, tmp_path: Path) -> None:
    source = make(tmp_path)
    before = source.open().digest
    sp.build_index(source, checksums=True)
    check_source(source)
    opened = source.open()
    assert opened.digest == before
    for files in opened.locate(np.array([4, 1])).files.values():
        for row, found in enumerate(files.crc32c):
            offset, length = int(files.offset[row]), int(files.length[row])
            data = np.fromfile(os.fsdecode(files.paths[row]), np.uint8, length, offset=offset)
            assert found == _native.crc32c(data, 0)
    assert batches(source)[0] == len(JPEGS)
    assert sp.verify_records(source).compared == len(JPEGS) * len(opened.locate(np.array([0])).files)
    path = flip(source, 3)
    with pytest.raises(
        sp.ReadError, match="damaged, or changed since it was indexed: the CRC-32C of"
    ) as caught:
        batches(source)
    place = int(opened.locate(np.array([3])).files["image"].offset[0])
    assert (caught.value.index, caught.value.offset) == (3, place)
    assert str(path) in str(caught.value)
    rows, bad = batches(source, bad=sp.Replace(at_most=1))
    assert (rows, [each.index for each in bad]) == (len(JPEGS), [3])
    assert [error.index for error in sp.verify_records(source, num_workers=2).errors] == [3]
    assert sp.check_files(source).counts["damaged"] == 1


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_python_workers_compare_too(tmp_path: Path, executor: str) -> None:
    source = shards(tmp_path)
    sp.build_index(source, checksums=True)
    flip(source, 2)
    rows, bad = batches(source, executor=executor, bad=sp.Replace(at_most=1))
    assert (rows, [(each.index, each.place) for each in bad]) == (len(JPEGS), [(2, "read")])


def test_ranges_that_are_columns_have_checksums(tmp_path: Path) -> None:
    (tmp_path / "all.bin").write_bytes(b"".join(JPEGS))
    (tmp_path / "list.txt").write_text("all.bin\n" * len(JPEGS))
    age(tmp_path / "list.txt")
    lengths = np.array([len(jpeg) for jpeg in JPEGS])
    ranges = {"image_offset": np.cumsum(lengths) - lengths, "image_length": lengths}
    source = sp.FileList(tmp_path / "list.txt", index=tmp_path / "index")
    sp.build_index(source, columns=ranges, checksums=True)
    assert sp.verify_records(source).ok
    flip(source, 1)
    (error,) = sp.verify_records(source).errors
    assert (error.index, error.offset) == (1, len(JPEGS[0]))


def test_neighbours_that_are_read_together_are_compared(tmp_path: Path) -> None:
    """Neighbours are read together while storage is slow."""
    members = [(f"{number:03d}.jpg", JPEGS[number % len(JPEGS)]) for number in range(240)]
    source = sp.TarShards(shard(tmp_path / "a.tar", members), index=tmp_path / "index")
    sp.build_index(source, checksums=True)
    flip(source, 100)
    flip(source, 101)
    text = f"""
    source = sp.TarShards({str(tmp_path / "a.tar")!r}, index={str(tmp_path / "index")!r})
    pipeline = sp.Pipeline(source).map(sp.Resize((24, 24))).on_error(sp.Replace(at_most=2))
    with pipeline.batch(24).loader(memory="256MiB", num_workers=2) as loader:
        rows = sum(len(batch["image"]) for batch in loader)
        print(rows, loader.stats().ranges < 150, sorted(bad.index for bad in loader.bad_samples))
    """
    slow = {"STANDPIPE_FAULTS": "read.pread=delay:3ms"}
    assert output(text, environment=slow) == "240 True [100, 101]\n"


def flipped_bytes_are_found(tmp_path: Path, count: int) -> None:
    """Flip a random bit of a random byte in every second record; no other record is an error."""
    random = np.random.default_rng(count)
    members = [(f"{number:05d}.jpg", JPEGS[number % len(JPEGS)]) for number in range(2 * count)]
    path = shard(tmp_path / "a.tar", members)
    source = sp.TarShards(path, index=tmp_path / "index")
    sp.build_index(source, checksums=True)
    files = source.open().locate(np.arange(0, 2 * count, 2)).files["image"]
    content = np.fromfile(path, np.uint8)
    at = files.offset + random.integers(0, files.length)
    content[at] ^= (1 << random.integers(0, 8, count)).astype(np.uint8)
    content.tofile(path)
    age(path)
    errors = sp.verify_records(source).errors
    assert [error.index for error in errors] == list(range(0, 2 * count, 2))
    assert all("damaged" in error.reason for error in errors)


def test_flipped_bytes_are_found(tmp_path: Path) -> None:
    flipped_bytes_are_found(tmp_path, 60)


@pytest.mark.long
def test_a_thousand_flipped_bytes_are_found(tmp_path: Path) -> None:
    flipped_bytes_are_found(tmp_path, 1_000)


def test_a_file_that_is_known_to_have_changed_is_said_to_have(tmp_path: Path) -> None:
    source = shards(tmp_path)
    sp.build_index(source, checksums=True)
    with sp.Pipeline(source).map(sp.CenterCrop(16)).batch(6).loader(memory="256MiB") as loader:
        age(flip(source, 0), at_ns=5)
        with pytest.raises(sp.ReadError, match=r"^the file has changed since it was indexed"):
            next(iter(loader))


def test_checksums_of_an_outdated_index_are_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = listed(tmp_path)
    columns = {"weight": np.arange(len(JPEGS))}
    sp.build_index(source, columns=columns, checksums=True)
    age(tmp_path / "list.txt", at_ns=5)
    with caplog.at_level(logging.WARNING, "standpipe"):
        opened = source.open()
    said = (
        "aren't used: the list changed since. Write them again: by build_index(…, columns=…, checksums=True)"
    )
    assert said in caplog.text
    assert opened.locate(np.array([0])).files["image"].crc32c is None
    assert "weight" in opened.columns
    with pytest.raises(sp.PlanError, match=r"has no checksums; write them with standpipe index --checksums"):
        sp.verify_records(source)


def test_a_record_that_cant_be_read_has_no_checksum(tmp_path: Path) -> None:
    source = listed(tmp_path)
    (tmp_path / "photos/b/3.jpg").unlink()
    with pytest.raises(sp.ReadError, match=r"No such file or directory \(read, record 3, .*b/3.jpg"):
        sp.build_index(source, checksums=True)
    assert not (tmp_path / "index").exists()


def test_checksums_take_few_bytes(tmp_path: Path) -> None:
    folder(tmp_path)
    rows = 5_000
    (tmp_path / "list.txt").write_text("photos/a/0.jpg\n" * rows)
    source = sp.FileList(tmp_path / "list.txt", index=tmp_path / "index")
    without = sp.build_index(source).size_bytes
    assert sp.build_index(source, checksums=True).size_bytes - without < 5 * rows


def test_a_joined_source_compares_what_has_checksums(tmp_path: Path) -> None:
    first = shards(tmp_path)
    images = sp.TarShards([*first.shards], {"image": "jpg"}, index=tmp_path / "with")
    sp.build_index(images, checksums=True)
    joined = sp.Concat(images, sp.TarShards([*first.shards], {"image": "jpg"}, index=tmp_path / "without"))
    files = joined.open().locate(np.array([0, 11])).files["image"]
    assert files.crc32c is not None
    assert (files.crc32c >= 0).tolist() == [True, False]
    found = sp.verify_records(joined)
    assert (found.ok, found.records, found.compared) == (True, 12, 6)


def test_an_index_that_lacks_its_checksums_is_damaged(tmp_path: Path) -> None:
    source = shards(tmp_path)
    sp.build_index(source)
    index = tmp_path / "index"
    facts = read_index(os.fsencode(index)).facts
    assert facts.optional == {}
    content = index.read_bytes()
    end = PREAMBLE.unpack(content[: PREAMBLE.size])[4]
    text = content[end:].replace(b'"optional": {}', b'"optional": {"checksums": 1}')
    index.write_bytes(preamble(end + len(text), end, text) + content[PREAMBLE.size : end] + text)
    with pytest.raises(DamagedIndex, match="section crc32c of image doesn't have the size of 6 rows"):
        read_index(os.fsencode(index))


def test_packed_shards_have_checksums(tmp_path: Path) -> None:
    sp.pack_shards(folder(tmp_path), tmp_path / "out", shard_size="16KiB")
    source = sp.TarShards(tmp_path / "out/shard-*.tar")
    assert len(source.subject().shards) > 1
    assert sp.verify_records(source).compared == len(JPEGS)
    flip(source, 5)
    assert [error.index for error in sp.verify_records(source).errors] == [5]
    assert len(sp.verify_shards(tmp_path / "out").differences) == 1
