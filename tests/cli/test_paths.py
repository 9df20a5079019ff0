"""Commands take every kind of data by its path, and find out which kind it is."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import standpipe as sp
from photos import encoded, picture
from record_files import example, mds, tfrecord
from standpipe.cli import main
from standpipe.source.at_path import source_at

COUNT = 6
PHOTOS = [encoded(picture(n, 240, 320)) for n in range(COUNT)]
LABELS = [0, 0, 0, 1, 1, 1]
TEXTS = [f"é {n}" for n in range(COUNT)]
SMALL = ["--batch", "4", "--memory", "256MiB", "--dtype", "uint8"]


def loose(path: Path) -> None:
    for n, photo in enumerate(PHOTOS):
        file = path / ("cat", "dog")[LABELS[n]] / f"{n}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(photo)


def tfrecords(path: Path) -> None:
    path.mkdir()
    for shard in range(2):
        records = [
            example({"image/encoded": PHOTOS[n], "image/class/label": [LABELS[n]], "text": TEXTS[n].encode()})
            for n in range(3 * shard, 3 * shard + 3)
        ]
        tfrecord(path / f"train-{shard:05}-of-00002", records)


def mosaic(path: Path) -> None:
    columns = {"x": "jpeg", "label": "int"}
    mds(path, columns, [{"x": PHOTOS[n], "label": LABELS[n]} for n in range(COUNT)], per_shard=4)


def saved(path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = {"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    images = [{"bytes": photo, "path": f"{n}.jpg"} for n, photo in enumerate(PHOTOS)]
    values = {"img": images, "label": LABELS}
    datasets.Dataset.from_dict(values, datasets.Features(features)).save_to_disk(path, num_shards=2)
    shutil.copy(
        path / "data-00000-of-00002.arrow", path / "cache-0123456789abcdef.arrow"
    )  # as map() leaves them


def arrow(path: Path) -> None:
    saved(path.with_name("saved"))
    path.mkdir()
    for file in path.with_name("saved").glob("data-*.arrow"):
        shutil.move(file, path)


def tar(path: Path) -> None:
    loose(path.with_name("loose"))
    sp.pack_shards(sp.ImageFolder(path.with_name("loose")), path, order="source")


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "tfrecords": (tfrecords, "TFRecords("),
    "tfrecords/train-*": (tfrecords, "TFRecords("),
    "mds": (mosaic, "MDS("),
    "saved": (saved, "Arrow("),
    "arrow": (arrow, "Arrow("),
    "arrow/*.arrow": (arrow, "Arrow("),
    "tar": (tar, "TarShards("),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(params=KINDS)
def path(here: Path, request: pytest.FixtureRequest) -> str:
    """The path of six photos, and the path of data of some kind."""
    made: str = request.param
    KINDS[made][0](Path(made.partition("/")[0]))
    return made


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 1
    return " ".join(capsys.readouterr().err.split())


def test_each_command_takes_each_kind(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(said(capsys, "bench", path, "--seconds", "0.1", "--json", *SMALL))["images_per_s"] > 0
    io = json.loads(said(capsys, "bench", path, "--io", "--seconds", "0.1", "--json", *SMALL))
    assert io["decode_images_per_s"] > 0
    assert KINDS[path][1] in said(capsys, "explain", path, *SMALL)
    assert "every row once" in said(capsys, "audit", path, "--batch", "2")
    assert "bad: 0" in said(capsys, "scan", path)
    assert "1406 ×" in said(capsys, "show", path, "--output", "sheet.png", "--images", "2")
    assert json.loads(said(capsys, "doctor", path, "--seconds", "0.5", "--json"))["images"] == COUNT
    if KINDS[path][1] == "Arrow(":
        assert "need no index" in refusal(capsys, "index", path)
        assert "standpipe pack" in refusal(capsys, "verify", path)
    else:
        assert "6 records" in said(capsys, "index", path, "--checksums")
        assert "right: 6 records" in said(capsys, "index", path, "--verify")
        assert "right: " in said(capsys, "verify", path)


def test_all_kinds_and_packed_ones_have_the_same_epoch(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    loose(Path("photos"))
    files = said(capsys, "bench", "photos", "--digest", *SMALL)
    assert said(capsys, "bench", path, "--digest", "--workers", "2", *SMALL) == files
    said(capsys, "pack", path, "packed", "--order", "source", "--shard-size", "24KiB")
    assert len([*Path("packed").glob("*.tar")]) > 1
    assert said(capsys, "bench", "packed", "--digest", *SMALL) == files
    assert "right: 18 members" in said(capsys, "verify", "packed")
    said(capsys, "unpack", "packed", "unpacked")
    assert [file.read_bytes() for file in sorted(Path("unpacked").glob("*.jpg"))] == PHOTOS


def test_a_folder_of_several_kinds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tfrecords(Path("both"))
    mosaic(Path("mds"))
    for file in Path("mds").iterdir():
        shutil.copy(file, "both")
    expected = (
        "both has TFRecord files and MDS shards; name files of one kind by a pattern such as '*.tfrecord*'"
    )
    assert expected in refusal(capsys, "bench", "both")
    assert isinstance(source_at("both/train-*"), sp.TFRecords)
    Path("mds/README.txt").touch()
    Path("mds/notes").mkdir()
    assert isinstance(source_at("mds"), sp.MDS)
    loose(Path("mds"))
    assert "mds has MDS shards and images" in refusal(capsys, "audit", "mds")


def test_what_a_file_is(here: Path) -> None:
    tfrecords(Path("tf"))
    for name in ("train-00000-of-00002", "bare", "x.bin", "x.tfrecord", "x.tfrec.gz", "x-of-00002.txt"):
        shutil.copy("tf/train-00001-of-00002", name)
        assert isinstance(source_at(name), sp.TFRecords)
    Path("list-00000-of-00001").write_text("photos/0.jpg 1")
    assert isinstance(source_at("list-00000-of-00001"), sp.FileList)
    Path("empty").touch()
    assert isinstance(source_at("empty"), sp.FileList)
    for name in ("bare", "x.tfrecord.idx", "x.tfrecord.standpipe-index", "part-of-1.parquet", "x.txt"):
        Path("more").mkdir(exist_ok=True)
        shutil.copy("bare" if name == "bare" else "list-00000-of-00001", f"more/{name}")
    assert source_at("more") == sp.TFRecords(["more/bare"], image="image/encoded", label="image/class/label")


def test_splits_of_a_data_set(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(Path("both/train"))
    saved(Path("both/test"))
    Path("both/dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    expected = "both has the splits train, test of a data set; name one of them, such as both/train"
    assert expected in refusal(capsys, "explain", "both")
    assert isinstance(source_at("both/test"), sp.Arrow)
    state = json.loads(Path("both/test/state.json").read_text()) | {
        "_indices_data_files": [{"filename": "i"}]
    }
    Path("both/test/state.json").write_text(json.dumps(state))
    assert "flatten_indices().save_to_disk" in refusal(capsys, "explain", "both/test")
    Path("both/test/state.json").write_text("{")
    assert "both/test: can't read state.json" in refusal(capsys, "explain", "both/test")


def test_without_pyarrow(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(Path("saved"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pyarrow, which is missing: pip install pyarrow" in refusal(capsys, "explain", "saved")


def test_values_are_named_where_they_arent_clear(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        example({"a": photo, "b": photo, "c": b"text", "n": [7], "names": [b"x", b"y"]}) for photo in PHOTOS
    ]
    tfrecord(Path("a.tfrecord"), records)
    said_of = refusal(capsys, "explain", "a.tfrecord")
    assert "a.tfrecord: several features begin like an image. Name it, as in" in said_of
    assert (
        "--field image=NAME; the first record has 'a' (bytes), 'b' (bytes), 'c' (bytes), 'n' (integers), 'na"
        in said_of
    )
    tfrecord(Path("b.tfrecord"), [example({"c": b"text", "label": []})])
    assert "no feature begins like an image" in refusal(capsys, "explain", "b.tfrecord")
    found = said(capsys, "explain", "a.tfrecord", "--field", "image=b", "--field", "label=n", *SMALL)
    assert "TFRecords('a.tfrecord', image='b', label='n')" in found
    assert "it has no feature 'z'" in refusal(capsys, "explain", "a.tfrecord", "--field", "image=z")
    mosaic(Path("mds"))
    assert source_at("mds").open().digest == sp.MDS("mds", label="label", image="x").open().digest
    found = said(capsys, "explain", "mds", "--field", "target=label", *SMALL)
    assert "MDS('mds', target='label', image='x')" in found
    tar(Path("tar"))
    found = said(capsys, "explain", "tar", "--field", "image=jpg", *SMALL)
    assert "fields={'image': 'jpg'}" in found
    saved(Path("saved"))
    assert "Arrow(" in said(capsys, "explain", "saved", "--field", "image=img", *SMALL)
    assert "columns of Arrow files are" in refusal(capsys, "explain", "saved", "--field", "label=y")
    assert "--field works with tar shards" in refusal(capsys, "explain", "loose", "--field", "image=y")
    assert main(["explain", "tar", "--field", "image"]) == 2
    assert "write FIELD=NAME" in capsys.readouterr().err
