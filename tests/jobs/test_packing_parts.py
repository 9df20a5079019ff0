"""Packing of records that are parts of files, such as those of TFRecord files, with all their values."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import age, encoded, picture
from record_files import mds
from standpipe.contracts import OpenSource, Paths, Records

COUNT = 6
PHOTOS = [encoded(picture(n), "PNG") for n in range(COUNT)]
COLUMNS = {"image": "png", "label": "int", "area": "float32", "grid": "ndarray:uint8:2"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source() -> sp.MDS:
    """Two shards of three samples."""
    samples = [
        {"image": photo, "label": n % 2, "area": n / 4, "grid": [n, 1]} for n, photo in enumerate(PHOTOS)
    ]
    return sp.MDS(mds(Path("mds"), COLUMNS, samples, per_shard=3))


def facts(folder: str = "packed") -> list[dict[str, Any]]:
    """The JSON members of the first shard."""
    with tarfile.open(f"{folder}/shard-000000.tar") as shard:
        files = [shard.extractfile(each) for each in shard if each.name.endswith(".json")]
        return [json.loads(each.read()) for each in files if each is not None]


def test_numbers_are_columns_of_the_shards(source: sp.MDS) -> None:
    assert sp.pack_shards(source, "packed", seed=3).records == COUNT
    found = facts()
    numbers = [int(each["path"].removesuffix(".png")) for each in found]
    assert sorted(numbers) == list(range(COUNT)) != numbers
    assert found[0] == {"path": f"{numbers[0]:09d}.png", "area": numbers[0] / 4, "grid": [numbers[0], 1]}
    packed = sp.TarShards("packed/*.tar")
    located = packed.open().locate(np.arange(COUNT))
    assert located.plain["label"].tolist() == [number % 2 for number in numbers]
    assert located.plain["area"].tolist() == [number / 4 for number in numbers]
    assert located.plain["grid"].tolist() == [[number, 1] for number in numbers]


def test_the_epoch_is_that_of_the_source(source: sp.MDS) -> None:
    sp.pack_shards(source, "packed", order="source", shard_size="4KiB")
    packed = sp.TarShards("packed/*.tar")
    pipelines = (
        sp.Pipeline(each).shuffle(seed=1).map(sp.CenterCrop(16)).batch(2) for each in (source, packed)
    )
    assert len({sp.digest_epoch(each, num_workers=1).sha256 for each in pipelines}) == 1
    sp.pack_shards(packed, "again", order="source")
    assert facts("again")[5] == {"path": "000000005.png", "area": 1.25, "grid": [5, 1]}


def test_a_shard_that_changes_is_a_read_error(source: sp.MDS) -> None:
    opened = source.open()
    shard = Path("mds/shard.00001.mds")

    class Opened:
        def open(self) -> OpenSource:
            return opened

        def describe(self) -> str:
            return "opened"

    shard.write_bytes(shard.read_bytes()[:-1])
    age(shard)
    with pytest.raises(sp.ReadError, match="was changed while it was packed"):
        sp.pack_shards(Opened(), "packed")


def test_bytes_of_another_checksum_arent_packed(source: sp.MDS) -> None:
    sp.build_index(source, checksums=True)
    shard, before = Path("mds/shard.00001.mds"), Path("mds/shard.00001.mds").stat()
    place = int(source.open().locate(np.array([4])).files["image"].offset[0])
    with shard.open("r+b") as file:
        file.seek(place + 40)
        file.write(b"?")
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(sp.ReadError, match="its CRC-32C differs") as error:
        sp.pack_shards(source, "packed")
    assert error.value.index == 4
    assert not list(Path("packed").glob("*.tar"))


class Described:
    """A source that adds texts to the records of another one."""

    def __init__(self, source: sp.MDS, text: str, classes: tuple[str, ...] | None = None) -> None:
        self.source, self.text, self.classes = source, text, classes

    def open(self) -> OpenSource:
        return _Opened(self.source.open(), self.text, self.classes)  # type: ignore[return-value]

    def describe(self) -> str:
        return "described"


class _Opened:
    def __init__(self, opened: OpenSource, text: str, classes: tuple[str, ...] | None) -> None:
        self.opened, self.text, self.classes = opened, text, classes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.opened, name)

    def locate(self, indices: np.ndarray[Any, Any]) -> Records:
        texts = [f"{self.text} {n}".encode() for n in indices.tolist()]
        records = self.opened.locate(indices)
        plain = {**records.plain, "label": records.plain["label"] - 1}
        return replace(records, plain=plain, texts={"path": Paths.pack(texts), "text": Paths.pack(texts)})


def test_texts_and_classes(source: sp.MDS) -> None:
    sp.pack_shards(Described(source, "é", ("cat",)), "packed", order="source")
    assert facts()[2] == {"path": "000000002.png", "area": 0.5, "grid": [2, 1], "text": "é 2"}  # label -1
    assert facts()[3]["class"] == "cat"
    with pytest.raises(sp.PlanError, match=r"at byte .* has .* bytes of columns and texts; there can be"):
        sp.pack_shards(Described(source, "x" * (1 << 20)), "large")


def test_boxes_can_be_read_from_the_shards() -> None:
    for n in range(2):
        Path(f"{n}.png").write_bytes(PHOTOS[n])
    height, width = picture(0).shape[:2]
    images = [{"id": n, "file_name": f"{n}.png", "height": height, "width": width} for n in range(2)]
    boxes = [{"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 3, "name": "cat"}]}
    Path("boxes.json").write_text(json.dumps(content))
    source = sp.Coco(".", "boxes.json")
    sp.pack_shards(source, "packed", order="source")
    found, expected = (
        each.open().locate(np.arange(2)).ragged
        for each in (sp.TarShards("packed/*.tar", instances="json"), source)
    )
    for name in ("boxes", "labels", "area"):
        np.testing.assert_array_equal(found[name].values, expected[name].values)
        np.testing.assert_array_equal(found[name].ends, [0, 1])


def test_arrow_rows_that_are_files_or_null(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    Path("own.png").write_bytes(PHOTOS[1])
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": PHOTOS[0], "path": None}, {"bytes": None, "path": str(tmp_path / "own.png")}, None]
    table = pa.table({"image": pa.array(rows, kind), "label": [0, 1, 2]})
    with pa.OSFile("a.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    sp.pack_shards(sp.Arrow("a.arrow"), "packed", order="source")
    assert sp.unpack_shards("packed", "unpacked").files == 3
    found = [path.read_bytes() for path in sorted(Path("unpacked").glob("0*"))]
    assert found == [PHOTOS[0], PHOTOS[1], b""]
