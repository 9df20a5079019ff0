"""Indexes made on purpose: where they go, columns, checks, and builders that are killed."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from standpipe.contracts import check_source

LONG_AGO_NS = 1_600_000_000_123_456_789


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return path


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five photos of two classes, changed long ago, and nothing in the cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(5):
        path = tmp_path / f"photos/{'ab'[number % 2]}/{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (number, 0, 0)).save(path)
    for folder in ("photos", "photos/a", "photos/b"):
        os.utime(tmp_path / folder, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return tmp_path / "photos"


@pytest.fixture
def listed(photos: Path) -> Path:
    return write(
        photos.parent / "list.txt",
        b"".join(b"photos/%s/%d.jpg %d\n" % (b"ab"[n % 2 :][:1], n, n) for n in range(5)),
    )


def last_digit(path: str) -> int:
    return int(path[-5])


def columns(source: sp.FileList | sp.ImageFolder) -> dict[str, list[object]]:
    opened = source.open()
    return {name: opened.column(name, 0, opened.num_records).tolist() for name in opened.columns}


@pytest.mark.parametrize("kind", ["list", "folder"])
def test_an_index_beside_the_data_is_used(kind: str, listed: Path, photos: Path) -> None:
    source = sp.FileList(listed) if kind == "list" else sp.ImageFolder(photos)
    expected = source.open()
    built = sp.build_index(source)
    data = listed if kind == "list" else photos
    assert built.path == Path(f"{data}.standpipe-index")
    assert (built.records, built.size_bytes) == (5, built.path.stat().st_size)
    plan = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(5).plan()
    assert str(built.path) in plan.explain()
    assert plan.source.digest == expected.digest
    assert plan.source.name(3) == expected.name(3)
    assert not (photos.parent / "cache").exists()


def test_columns_are_fields_of_a_batch(listed: Path) -> None:
    np.save(listed.parent / "box.npy", np.arange(20, dtype=">f4").reshape(5, 4))
    added = {"length": last_digit, "box": listed.parent / "box.npy", "old": np.array([1, 0, 0, 1, 1], bool)}
    built = sp.build_index(sp.FileList(listed), columns=added)
    assert built.columns == ("length", "box", "old")
    crop = sp.Pipeline(sp.FileList(listed)).shuffle(seed=1).map(sp.CenterCrop(8), unmoved=("box",))
    pipeline = crop.batch(5)
    with pipeline.loader(memory="64MiB", num_workers=1) as loader:
        batch = next(iter(loader))
        assert batch["length"].dtype == np.int64
        assert batch["length"].tolist() == batch["index"].tolist() == batch["label"].tolist()
        assert batch["box"].dtype == np.float32
        assert batch["box"][:, 0].tolist() == [4 * index for index in batch["index"]]
        assert batch["old"].tolist() == [bool([1, 0, 0, 1, 1][index]) for index in batch["index"]]
    assert list(columns(sp.FileList(listed))) == ["label", "length", "old"]


def test_columns_are_known_to_orders(listed: Path) -> None:
    sp.build_index(sp.FileList(listed), columns={"length": last_digit})
    pipeline = sp.Pipeline(sp.FileList(listed)).filter("length >= 2 and label != 3").map(sp.CenterCrop(8))
    with pipeline.batch(2).loader(memory="64MiB", num_workers=1) as loader:
        assert [batch["length"].tolist() for batch in loader] == [[2, 4]]


@pytest.mark.parametrize("executor", [None, "process"])
def test_images_are_parts_of_files(listed: Path, executor: str | None) -> None:
    """All photos one after another in one file: the index says where each is."""
    photos = [gray_jpeg(number) for number in range(5)]
    write(listed.parent / "all.bin", b"begin" + b"".join(photos))
    write(listed, b"".join(b"all.bin\t%d\n" % number for number in range(5)))
    lengths = np.array([*map(len, photos[:4]), -1])
    offsets = 5 + np.cumsum([0, *map(len, photos[:4])])
    ranges = {"image_offset": offsets, "image_length": lengths.astype(np.int32)}
    assert sp.build_index(sp.FileList(listed), columns=ranges).columns == ("image_offset", "image_length")
    check_source(sp.FileList(listed))
    assert [*sp.FileList(listed).open().fields] == ["image", "label"]
    assert columns(sp.FileList(listed))["image_length"] == lengths.tolist()
    pipeline = sp.Pipeline(sp.FileList(listed)).shuffle(seed=1).map(sp.CenterCrop(8))
    if executor:
        pipeline = pipeline.map(same, field="image")
    with pipeline.batch(5).loader(memory="512MiB", num_workers=1, executor=executor) as loader:
        batch = next(iter(loader))
        assert batch["image"][:, 0, 0, 0].tolist() == batch["label"].tolist()
        assert sorted(batch["label"].tolist()) == list(range(5))


def gray_jpeg(value: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (16, 16 + 8 * value), (value, value, value)).save(data, "JPEG")
    return data.getvalue()


def same(image: np.ndarray) -> np.ndarray:
    return image


def test_the_headers_of_parts_of_files_are_in_the_forecast(listed: Path) -> None:
    data = io.BytesIO()
    Image.new("RGB", (1000, 500)).save(data, "PNG")
    write(listed.parent / "all.bin", bytes(70_000) + data.getvalue() * 2)
    write(listed, b"all.bin\t0\nall.bin\t1\n")
    size = len(data.getvalue())
    ranges = {"image_offset": 70_000 + np.arange(2) * size, "image_length": np.full(2, size)}
    sp.build_index(sp.FileList(listed), columns=ranges)
    plan = (
        sp.Pipeline(sp.FileList(listed)).map(sp.CenterCrop(8)).batch(2).plan(memory="512MiB", num_workers=1)
    )
    assert plan.forecast.whole >= 3 * 1000 * 500


def test_columns_change_the_digest_and_stay_when_the_index_is_made_again(listed: Path) -> None:
    source = sp.FileList(listed)
    digests = [source.open().digest]
    for weight in ([1, 2, 3, 4, 5], [1, 2, 3, 4, 6]):
        sp.build_index(source, columns={"weight": np.array(weight, np.int16)})
        digests.append(source.open().digest)
    assert len(set(digests)) == 3
    built = sp.build_index(source, columns={"length": last_digit})
    assert built.columns == ("weight", "length")
    assert columns(source) == {"label": [0, 1, 2, 3, 4], "weight": [1, 2, 3, 4, 6], "length": [0, 1, 2, 3, 4]}


def test_columns_of_a_list_that_changed_are_asked_for(listed: Path) -> None:
    source = sp.FileList(listed)
    np.save(listed.parent / "my width.npy", np.arange(5))
    whole = listed.read_bytes()
    for adding, says in (
        ({}, f"standpipe index {listed} --column 'width={listed.parent}"),
        ({"length": last_digit}, "by build_index(…, columns=…)"),
    ):
        write(listed, whole)
        sp.build_index(source, columns={**adding, "width": listed.parent / "my width.npy"})
        write(listed, b"photos/a/0.jpg 1\n")
        with pytest.raises(sp.PlanError) as caught:
            source.open()
        message = str(caught.value)
        assert f"has the columns {', '.join(map(repr, [*adding, 'width']))}" in message
        assert "has other records now (the list changed since)" in message
        assert says in message
    built = sp.build_index(source)
    assert (built.columns, built.dropped) == ((), ("length", "width"))
    assert source.open().num_records == 1


@pytest.mark.parametrize("place", ["beside", "read-only"])
def test_columns_of_a_list_that_was_only_touched_stay(
    listed: Path, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = sp.FileList(listed)
    built = sp.build_index(source, columns={"length": last_digit})
    if place == "read-only":
        monkeypatch.setattr("standpipe.system.claims.BUILDING", b"/no/such/folder/x")  # root may write
    os.utime(listed, ns=(LONG_AGO_NS, LONG_AGO_NS + 1))
    before = built.path.stat().st_ino
    assert columns(source)["length"] == [0, 1, 2, 3, 4]
    assert (built.path.stat().st_ino != before) == (place == "beside")
    assert ("can't write" in caplog.text) == (place == "read-only")


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"image": np.arange(5)}, "can't be named 'image'"),
        ({"a b": np.arange(5)}, "can't be named 'a b'"),
        ({"image_offset": np.arange(5)}, "half of a byte range; give both image_offset and image_length"),
        ({"image_offset": -np.arange(5)}, "it must be an integer of at least 0 per record"),
        ({"image_length": np.zeros((5, 1), int)}, "it must be an integer of at least -1 per record"),
        ({"image_length": np.zeros(5)}, "'image_length' is float64"),
        (
            {"n": np.arange(4)},
            r"'n' has the shape \(4,\); there are 5 records, so its shape must be \(5, …\)",
        ),
        ({"n": np.array(5)}, r"has the shape \(\)"),
        ({"n": np.array(["a"] * 5)}, "it must be numbers"),
        ({"n": np.arange(5).astype(object)}, "it must be numbers"),
        ({"n": np.empty((5, 0))}, "it must be numbers"),
        ({"n": "/nowhere.npy"}, "can't read /nowhere.npy"),
        ({"n": __file__}, "isn't a .npy file"),
        (
            {"n": lambda path: 0.5},
            r"for .*/photos/a/0\.jpg: the function returned 0\.5; it must be an int",
        ),
        ({"n": lambda path: 2**70}, "returned 1180591620717411303424"),
        ({"n": lambda path: {}[path]}, r"for .*0\.jpg: KeyError"),
    ],
)
def test_columns_that_do_not_fit(listed: Path, added: dict[str, object], message: str) -> None:
    before = sorted(listed.parent.rglob("*"))
    with pytest.raises(sp.PlanError, match=message):
        sp.build_index(sp.FileList(listed), columns=added)  # type: ignore[arg-type]
    assert sorted(listed.parent.rglob("*")) == before


def test_a_place_of_ones_own(listed: Path, photos: Path) -> None:
    source = sp.FileList(listed, index=listed.parent / "elsewhere/list.index")
    assert "index='" in source.describe()
    source.open()
    assert (listed.parent / "elsewhere/list.index").exists(), "asked for, so written however small it is"
    assert (
        sp.build_index(source, columns={"length": last_digit}).path == listed.parent / "elsewhere/list.index"
    )
    assert list(columns(source)) == ["label", "length"]
    assert list(columns(sp.FileList(listed))) == ["label"]
    with pytest.raises(sp.PlanError, match="inside the folder"):
        sp.ImageFolder(photos, index=photos / "index").open()


@pytest.fixture
def read_only(listed: Path) -> Iterator[Path]:
    """The list in a folder that this user can't write to, beside one that it can."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own are for root alone
    shutil.copy2(listed, folder / "list.txt")
    (folder / "cache").mkdir()
    (folder / "cache").chmod(0o777)
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:  # root may write everywhere
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    shutil.rmtree(folder)


def test_a_list_in_a_folder_that_cannot_be_written(read_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(read_only / "cache"))
    source = sp.FileList(read_only / "list.txt")
    built = sp.build_index(source, columns={"length": last_digit})
    assert read_only / "cache" in built.path.parents
    assert columns(source)["length"] == [0, 1, 2, 3, 4]
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    with pytest.raises(
        sp.StandpipeError, match=r"can't write the index .*list\.txt\.standpipe-index .* nor to /proc"
    ):
        sp.build_index(source)


def test_other_sources_have_no_index() -> None:
    with pytest.raises(sp.PlanError, match="lists, folders, shards and annotations have"):
        sp.build_index(sp.Arrays(label=np.arange(3)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["list", "folder"])
def test_an_index_that_is_right(kind: str, listed: Path, photos: Path) -> None:
    source = sp.FileList(listed) if kind == "list" else sp.ImageFolder(photos)
    with pytest.raises(sp.PlanError, match="there is no index file"):
        sp.verify_index(source)
    built = sp.build_index(source, columns={"length": last_digit})
    found = sp.verify_index(source)
    assert (found.path, found.records, found.differences, found.ok) == (built.path, 5, (), True)


def test_what_differs_is_said(listed: Path, photos: Path) -> None:
    source = sp.FileList(listed)
    built = sp.build_index(source)
    whole = built.path.read_bytes()

    def differences(index: bytes) -> str:
        built.path.write_bytes(index)
        found = sp.verify_index(source)
        assert not found.ok
        return "\n".join(found.differences)

    assert "its checksum is wrong" in differences(whole[:-1] + b"]")
    assert "should have" in differences(whole[:-1])
    text = differences(whole[:64] + b"\1" + whole[65:])
    assert text.startswith("the section 'places': ")
    assert "the bytes from 64 on aren't what was written" in text
    content = listed.read_bytes()
    write(listed, content.replace(b"1.jpg 1", b"1.jpg 7"))
    os.utime(listed, ns=(LONG_AGO_NS, LONG_AGO_NS + 1))
    text = differences(whole)
    assert "a run wouldn't use it: the list changed since" in text
    assert "/photos/b/1.jpg, label 1 in the index, and " in text
    assert "/photos/b/1.jpg, label 7 in the list" in text
    write(listed, content + b"more.jpg 5\n")
    assert "it has 5 records, the list has 6" in differences(whole)
    sp.build_index(sp.ImageFolder(photos))
    (photos / "a/new.jpg").touch()
    found = sp.verify_index(sp.ImageFolder(photos))
    assert "it has 5 records, the folder has 6" in found.differences
    assert "a run wouldn't use it: a changed since" in found.differences
    (photos / "z").mkdir()
    found = sp.verify_index(sp.ImageFolder(photos))
    assert "a run wouldn't use it: the folder changed since" in found.differences


BUILD = """
import sys
import standpipe as sp

def on_progress(what, done, total):
    if hold:
        print("building", flush=True)
        sys.stdin.readline()

hold = sys.argv[2] == "hold"
print(sp.build_index(sp.FileList(sys.argv[1]), on_progress=on_progress).records, flush=True)
"""


def builder(path: Path, what: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, path, what],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_builder_that_is_killed_leaves_its_place_to_the_next(listed: Path) -> None:
    files = {path.name for path in listed.parent.iterdir()}
    with builder(listed, "hold") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "building\n"
        assert {path.name for path in listed.parent.iterdir()} - files == {
            "list.txt.standpipe-index.building"
        }
        with builder(listed, "go on") as second:
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(1)  # it waits for the first one; if it didn't, it would be done by then
            first.send_signal(signal.SIGKILL)
            out, _ = second.communicate(timeout=60)
            assert out == "5\n"
    assert {path.name for path in listed.parent.iterdir()} - files == {"list.txt.standpipe-index"}
    assert sp.verify_index(sp.FileList(listed)).ok


def test_a_builder_that_fails_leaves_nothing(listed: Path) -> None:
    write(listed, b"a 1\nb\n")
    with pytest.raises(sp.PlanError, match=r"list\.txt:2"):
        sp.build_index(sp.FileList(listed))
    assert not list(listed.parent.glob("*.standpipe-index*"))
