"""TFRecord files: their records, features of every form, indexes, and files that can't be read."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import standpipe as sp
from photos import encoded, picture
from record_files import example, feature, framed, message, tfrecord, varint
from standpipe.contracts import Encoded, check_source
from standpipe.spec import Listed

PHOTOS = [encoded(picture(seed), quality=90) for seed in range(8)]
IMAGENET = {"image": "image/encoded", "label": "image/class/label"}


@pytest.fixture(autouse=True)
def _own_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def record(number: int, *, packed: bool = True) -> bytes:
    return example(
        {
            "image/class/label": [number + 1],
            "image/encoded": PHOTOS[number],
            "image/class/text": b"text %d" % number,
            "box": [0.5, float(number)],
            "negative": [-number],
        },
        packed=packed,
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two files of four records, with numbers of both forms."""
    for shard in range(2):
        records = [record(4 * shard + n, packed=n % 2 == 0) for n in range(4)]
        tfrecord(tmp_path / f"train-{shard}.tfrecord", records)
    return tmp_path / "train-*.tfrecord"


def values(source: sp.TFRecords, field: str = "image") -> list[bytes]:
    """The bytes of a field, in order, where the source says that they are."""
    opened = source.open()
    places = opened.locate(np.arange(opened.num_records)).files[field]
    return [
        Path(os.fsdecode(places.paths[n])).read_bytes()[offset : offset + length]
        for n, (offset, length) in enumerate(zip(places.offset, places.length, strict=True))
    ]


def refusal(source: sp.TFRecords) -> str:
    with pytest.raises(sp.PlanError) as error:
        source.open()
    return str(error.value)


def test_fields_are_the_features_that_are_named(files: Path) -> None:
    source = sp.TFRecords(files, text="image/class/text", box="box", negative="negative", **IMAGENET)
    check_source(source)
    check_source(sp.Concat(source, source))
    opened = source.open()
    assert opened.fields["image"] == Encoded()
    assert opened.fields["text"] == Encoded("file")
    assert values(source) == PHOTOS
    assert values(source, "text") == [b"text %d" % n for n in range(8)]
    plain = opened.locate(np.array([5, 2])).plain
    assert plain["label"].tolist() == [6, 3]
    assert plain["negative"].tolist() == [-5, -2]
    assert plain["box"].dtype == np.float32
    assert plain["box"].tolist() == [[0.5, 5], [0.5, 2]]
    assert opened.columns == ("label", "negative")
    place = opened.locate(np.array([5])).files["image"]
    assert opened.name(5) == f"{files.parent / 'train-1.tfrecord'} at byte {place.offset[0]:,}"


def test_texts_are_named(files: Path) -> None:
    fields = {"caption": "image/class/text", **IMAGENET}
    source = sp.TFRecords(files, texts="caption", **fields)
    check_source(source)
    check_source(sp.Concat(source, source))
    assert source.describe().endswith("label='image/class/label', texts='caption')")
    opened = source.open()
    assert opened.fields["caption"] == Listed("str", 6)
    assert opened.locate(np.array([5, 2])).texts["caption"].texts() == ["text 5", "text 2"]
    assert sp.TFRecords(files, **fields).open().fields["caption"] == Encoded("file")
    index = sp.build_index(sp.TFRecords(files, texts=["caption"], **fields))
    assert index.records == 8
    assert sp.verify_index(source).ok
    pipeline = sp.Pipeline(source).shuffle(seed=3).map(sp.CenterCrop(8)).batch(4)
    with pipeline.loader(num_workers=2, memory="256MiB") as loader:
        for batch in loader:
            assert batch["caption"] == [f"text {index}" for index in batch["index"]]


@settings(deadline=None)
@given(st.lists(st.text() | st.binary(), min_size=1, max_size=20), st.data())
def test_any_texts_come_back(
    tmp_path_factory: pytest.TempPathFactory, written: list[str | bytes], data: st.DataObject
) -> None:
    """Bytes that aren't UTF-8 become surrogates."""
    folder = tmp_path_factory.mktemp("any")
    texts = [text.encode() if isinstance(text, str) else text for text in written]
    cut = data.draw(st.integers(1, len(texts)))
    for number, part in enumerate(filter(None, (texts[:cut], texts[cut:]))):
        tfrecord(folder / f"{number}", [example({"image": b"x", "text": text}) for text in part])
    opened = sp.TFRecords(folder / "*", image="image", text="text", texts=("text",)).open()
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=30))
    found = opened.locate(np.array(rows, np.int64)).texts["text"].texts()
    assert [text.encode("utf-8", "surrogateescape") for text in found] == [texts[row] for row in rows]


def test_texts_that_arent(files: Path) -> None:
    for texts in ("text", ("image",), ["label"], 5, [[]], b"image"):
        said = refusal(sp.TFRecords(files, texts=texts, **IMAGENET))  # type: ignore[arg-type]
        assert "can't be a text; a text is a field that is named, other than image and label" in said
    said = refusal(sp.TFRecords(files, texts="box", box="box", **IMAGENET))
    assert "the field 'box' has numbers, so it can't be a text" in said


def test_an_index_is_used_until_a_file_changes(files: Path) -> None:
    source = sp.TFRecords(files, index=files.parent / "index", **IMAGENET)
    built = sp.build_index(source, columns={"weight": np.arange(8)})
    before = built.path.read_bytes()
    assert source.open().fields.keys() == {"image", "label", "weight"}
    assert built.path.read_bytes() == before
    assert sp.verify_index(source).ok
    more = sp.TFRecords(files, index=files.parent / "index", box="box", **IMAGENET)
    assert more.open().fields.keys() == {"image", "label", "weight", "box"}
    tfrecord(files.parent / "train-1.tfrecord", [record(n) for n in (4, 5, 7)])
    assert "has other records now" in refusal(source)


def test_the_digest_is_of_the_records(files: Path, tmp_path: Path) -> None:
    source = sp.TFRecords(files, **IMAGENET)
    (tmp_path / "moved").mkdir()
    for number in range(2):
        name = f"train-{number}.tfrecord"
        (tmp_path / "moved" / name).write_bytes((tmp_path / name).read_bytes())
    moved = sp.TFRecords(tmp_path / "moved/train-*.tfrecord", **IMAGENET)
    assert moved.open().digest == source.open().digest
    assert moved.open().here() != source.open().here()
    digest = source.open().digest
    other = bytearray(record(4))
    other[other.index(b"text")] ^= 1
    tfrecord(tmp_path / "train-1.tfrecord", [bytes(other), *map(record, range(5, 8))])
    assert source.open().digest != digest


def test_what_protobuf_allows_is_read(tmp_path: Path) -> None:
    """Unknown fields, a value before its name, a name twice, of which the last counts, and merged maps."""
    unknown = (
        varint(9 << 3) + varint(5) + varint(9 << 3 | 1) + bytes(8) + message(9, b"x") + varint(9 << 3 | 5)
    )
    unknown += bytes(4)
    image = message(2, feature(PHOTOS[0]) + unknown) + message(1, b"image")
    labels = [message(1, message(1, b"label") + message(2, feature([n]))) for n in (1, 2**63 - 1)]
    split = message(3, varint(8) + varint(3) + message(1, varint(4) + varint(5)))  # packed or not in one list
    split_entry = message(1, message(1, b"ids") + message(2, split))
    whole = (
        message(1, message(1, image + unknown) + labels[0]) + unknown + message(1, labels[1] + split_entry)
    )
    path = tfrecord(tmp_path / "a", [whole])
    source = sp.TFRecords(path, image="image", label="label", ids="ids")
    assert values(source) == PHOTOS[:1]
    plain = source.open().locate(np.array([0])).plain
    assert plain["label"].tolist() == [2**63 - 1]
    assert plain["ids"].tolist() == [[3, 4, 5]]


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (
            [{"image": b"x"}, {"other": b"x", "n": [1]}],
            "record 1 at byte .*: it has no feature 'image'.* it has 'n' ",
        ),
        ([{"image": []}], "record 0 at byte 0: it has no feature 'image' with a value"),
        ([{"image": b"x"}, {"image": [1]}], "record 1 at .* 'image' isn't bytes as in the first record"),
        ([{"image": [b"x", b"y"]}], "record 0 .*'image' hasn't as many values .* or several byte strings"),
        ([{"image": [1]}], "has no images: its first record has no bytes"),
        ([{"image": b""}], "has no records with an image that has any bytes"),
        ([{}], "it has no features"),
    ],
)
def test_records_that_lack_a_feature(records: list[dict[str, bytes]], text: str, tmp_path: Path) -> None:
    path = tfrecord(tmp_path / "a", [example(each) for each in records])
    with pytest.raises(sp.PlanError, match=text):
        sp.TFRecords(path, image="image").open()


def test_numbers_that_differ(tmp_path: Path) -> None:
    path = tfrecord(tmp_path / "a", [example({"image": b"x", "n": [1] * n, "f": [0.5]}) for n in (2, 3)])
    assert "record 1" in refusal(sp.TFRecords(path, image="image", n="n"))
    assert "the field 'label' is float32 of shape ()" in refusal(sp.TFRecords(path, image="image", label="f"))


def test_arguments_that_dont_fit(files: Path) -> None:
    assert "has 'box' (floats), 'image/class/label' (integers)" in refusal(sp.TFRecords(files))
    assert "the name of its values is text, such as image=" in refusal(sp.TFRecords(files, image=1))  # type: ignore[arg-type]
    assert "TFRecords(valid='box'): a field is an identifier other than index, valid, source" in refusal(
        sp.TFRecords(files, valid="box")
    )
    assert "TFRecords: no file fits" in refusal(sp.TFRecords("/nowhere-*", image="x"))
    assert "has no images: its first record has text, which" in refusal(
        sp.TFRecords(files, text="image/class/text")
    )


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lambda data: zlib.compress(data, 1)])
def test_compressed_files_are_refused_with_a_command(pack: object, files: Path) -> None:
    assert callable(pack)
    path = files.parent / "packed"
    path.write_bytes(pack((files.parent / "train-0.tfrecord").read_bytes()))
    assert "gzip -dc" in refusal(sp.TFRecords(path, image="image"))


def test_each_cut_is_found_with_its_place(tmp_path: Path) -> None:
    parts = [framed(example({"image": b"x" * 5, "n": [n]})) for n in range(2)]
    whole = b"".join(parts)
    for size in range(1, len(whole)):
        (tmp_path / "a").write_bytes(whole[:size])
        if size == len(parts[0]):
            continue  # TFRecord files have no end mark
        number, at = (0, 0) if size < len(parts[0]) else (1, len(parts[0]))
        said = refusal(sp.TFRecords(tmp_path / "a", image="image"))
        assert f"record {number} at byte {at}: the file ends inside this record" in said


def test_each_flipped_byte_is_found_with_its_record(tmp_path: Path) -> None:
    parts = [framed(example({"image": b"x" * 5, "n": [n]})) for n in range(2)]
    for at in range(len(b"".join(parts))):
        damaged = bytearray(b"".join(parts))
        damaged[at] ^= 1 << at % 8
        (tmp_path / "a").write_bytes(damaged)
        number = int(at >= len(parts[0]))
        said = refusal(sp.TFRecords(tmp_path / "a", image="image"))
        assert f"record {number} at byte {number * len(parts[0])}: " in said


def test_records_of_other_messages(tmp_path: Path) -> None:
    """Records with right checksums are refused if they are no tf.train.Example."""
    entry = message(1, b"image") + message(2, feature(b"x"))
    for data in (
        b"\x0a",
        b"\x0b",
        b"\0\0",
        message(1, b"\x0a\x7f"),
        message(1, message(1, entry + message(2, feature(b"y")))),
        message(1, message(1, message(1, b"image") + message(2, feature(b"x") + feature(b"y")))),
        message(1, message(1, message(1, b"image") + message(2, message(1, b"\x0a\x05x")))),
        b"\x08" + b"\xff" * 11,
    ):
        said = refusal(sp.TFRecords(tfrecord(tmp_path / "a", [data]), image="image"))
        assert "record 0 at byte 0: the record isn't a tf.train.Example" in said


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=300), st.integers(-(2**63), 2**63 - 1), st.booleans()),
        min_size=1,
        max_size=20,
    ),
)
def test_any_values_come_back(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[bytes, int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "a"
    records = [example({"image": data, "label": [n]}, packed=packed) for data, n, packed in written]
    source = sp.TFRecords(tfrecord(path, records), image="image", label="label")
    assert values(source) == [data for data, _, _ in written]
    assert source.open().locate(np.arange(len(written))).plain["label"].tolist() == [n for _, n, _ in written]


@pytest.mark.parametrize("images", [1, 3])
def test_records_larger_than_the_window(images: int, tmp_path: Path) -> None:
    """Of more than a mebibyte, between small ones."""
    data = [bytes([n]) * (size << 10) for n, size in enumerate((1, 1500, 1, 3000, 700, 700))] * images
    path = tfrecord(tmp_path / "a", [example({"image": each}) for each in data])
    assert values(sp.TFRecords(path, image="image")) == data
