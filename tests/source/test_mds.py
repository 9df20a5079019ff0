"""MDS shards: columns of every encoding, indexes, and shards that can't be read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import standpipe as sp
import standpipe.torch
from photos import age, encoded, picture
from record_files import mds, mds_shard
from standpipe.contracts import Encoded, check_source
from standpipe.spec import ArraySpec, Listed
from texts import check_texts

PHOTOS = [encoded(picture(seed), quality=90) for seed in range(10)]
COLUMNS = {
    "x": "jpeg",
    "y": "int",
    "area": "float32",
    "grid": "ndarray:uint8:3,4",
    "text": "str",
    "raw": "bytes",
}


@pytest.fixture(autouse=True)
def _own_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def sample(number: int) -> dict[str, Any]:
    grid = np.arange(12).reshape(3, 4) + number
    own = {"x": PHOTOS[number], "y": -number, "area": number / 2, "grid": grid}
    return own | {"text": "é" * number, "raw": b"r" * (number + 1)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards of up to four samples."""
    return mds(tmp_path / "mds", COLUMNS, [sample(n) for n in range(10)], per_shard=4)


def values(source: sp.MDS, field: str) -> list[bytes]:
    opened = source.open()
    places = opened.locate(np.arange(opened.num_records)).files[field]
    return [
        Path(os.fsdecode(places.paths[n])).read_bytes()[offset : offset + length]
        for n, (offset, length) in enumerate(zip(places.offset, places.length, strict=True))
    ]


def refusal(source: sp.MDS) -> str:
    with pytest.raises(sp.PlanError) as error:
        source.open()
    return str(error.value)


def edited(folder: Path, **changes: Any) -> sp.MDS:
    """The folder, with other values of the first shard in index.json."""
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0] |= changes
    (folder / "index.json").write_text(json.dumps(index))
    return sp.MDS(folder)


def test_columns_are_fields_of_their_names(folder: Path) -> None:
    source = sp.MDS(folder)
    check_source(source)
    opened = source.open()
    assert opened.fields == {
        "x": Encoded(),
        "y": ArraySpec((), np.dtype(np.int64)),
        "area": ArraySpec((), np.dtype(np.float32)),
        "grid": ArraySpec((3, 4), np.dtype(np.uint8)),
        "text": Listed("str"),
    }
    assert opened.index_note.endswith("values left out, by name: 10 raw (bytes)")
    assert values(source, "x") == PHOTOS
    plain = opened.locate(np.array([7, 2])).plain
    assert plain["y"].tolist() == [-7, -2]
    assert plain["area"].tolist() == [3.5, 1]
    np.testing.assert_array_equal(plain["grid"][0], sample(7)["grid"])
    assert opened.locate(np.array([7, 2, 0])).texts["text"].texts() == ["é" * 7, "é" * 2, ""]
    assert opened.fields["text"].nbytes == 9  # type: ignore[union-attr]


def test_texts_whose_names_are_of_other_fields_are_left_out(tmp_path: Path) -> None:
    """They can be named."""
    columns = {"x": "jpeg", "label": "str", "image": "str", "a-b": "str", "valid": "str"}
    samples = [{"x": photo, "label": "cat", "image": "", "a-b": "c", "valid": ""} for photo in PHOTOS[:2]]
    folder = mds(tmp_path / "mds", columns, samples)
    opened = sp.MDS(folder).open()
    assert opened.fields == {"x": Encoded()}
    assert "2 a-b (str), 2 image (str), 2 label (str), 2 valid (str)" in opened.index_note
    found = sp.MDS(folder, image="x", name="label", other="a-b").open().locate(np.array([1])).texts
    assert {name: texts.texts() for name, texts in found.items()} == {"name": ["cat"], "other": ["c"]}
    for wrong in ({"label": "label"}, {"image": "a-b", "x": "x"}):
        assert f"'{next(iter(wrong))}' can't be a text; a text is a field" in refusal(sp.MDS(folder, **wrong))


@settings(deadline=None)
@given(st.lists(st.tuples(st.text() | st.binary(), st.text(max_size=3)), min_size=1, max_size=20), st.data())
def test_any_texts_come_back(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str | bytes, str]], data: st.DataObject
) -> None:
    """Bytes that aren't UTF-8 become surrogates."""
    columns = {"x": "jpeg", "a": "str", "b": "str"}
    samples = [{"x": b"x", "a": first, "b": second} for first, second in written]
    folder = mds(tmp_path_factory.mktemp("any") / "mds", columns, samples, data.draw(st.integers(1, 5)))
    rows = data.draw(st.lists(st.integers(0, len(written) - 1), max_size=30))
    found = sp.MDS(folder).open().locate(np.array(rows, np.int64)).texts
    as_bytes = [text.encode("utf-8", "surrogateescape") for text in found["a"].texts()]
    assert as_bytes == [a.encode() if isinstance(a := written[row][0], str) else a for row in rows]
    assert found["b"].texts() == [written[row][1] for row in rows]


@pytest.mark.parametrize("in_file", [False, True])
def test_batches_have_lists_of_texts(in_file: bool, folder: Path) -> None:
    source = sp.MDS(folder, image="x", text="text")
    if in_file:
        sp.build_index(source)
    pipeline = sp.Pipeline(source).shuffle(seed=7).map(sp.RandomResizedCrop(8)).batch(3)
    check_texts(pipeline, "text", ["é" * number for number in range(len(PHOTOS))])


def test_texts_go_to_collate_fn_and_to_torchs_fields(folder: Path) -> None:
    images = sp.Pipeline(sp.MDS(folder, image="x", text="text")).map(sp.CenterCrop(8))
    gathered = images.batch(4, collate_fn=lambda samples: {"texts": [each["text"] for each in samples]})
    with gathered.loader(executor="inline", memory="256MiB") as loader:
        assert loader.peek()["texts"] == ["é" * n for n in range(4)]
    loader = standpipe.torch.loader(images.batch(4), fields=("image", "text"), memory="256MiB")
    assert next(iter(loader))[1] == ["é" * n for n in range(4)]
    loader.close()


def test_texts_are_part_of_the_digest_and_of_the_index(folder: Path) -> None:
    digest = sp.MDS(folder).open().digest
    names = {"x": "x", "y": "y", "area": "area", "grid": "grid"}
    without = sp.MDS(folder, **names).open()
    with pytest.raises(sp.PlanError, match="the column 'text' has the name of a field"):
        sp.build_index(sp.MDS(folder), columns={"text": np.arange(10)})
    mds(folder, COLUMNS, [sample(n) | {"text": "à" * n} for n in range(10)], per_shard=4)
    assert sp.MDS(folder, **names).open().digest == without.digest
    assert len({sp.MDS(folder).open().digest, digest, without.digest}) == 3
    sp.build_index(sp.MDS(folder), columns={"weight": np.arange(10)}, checksums=True)
    records = sp.MDS(folder).open().locate(np.array([3]))
    assert (records.texts["text"].texts(), records.plain["weight"].tolist()) == (["à" * 3], [3])


def test_fields_can_have_other_names(folder: Path) -> None:
    source = sp.MDS(folder, image="x", label="y", more="raw")
    check_source(source)
    opened = source.open()
    assert opened.fields["more"] == Encoded("file")
    assert values(source, "more") == [sample(n)["raw"] for n in range(10)]
    assert opened.locate(np.array([3])).plain["label"].tolist() == [-3]
    train = sp.Pipeline(sp.MDS(folder, image="x", label="y")).shuffle(seed=1).map(sp.CenterCrop(8)).batch(10)
    with train.loader(memory="256MiB", num_workers=2) as loader:
        assert sorted(loader.peek()["label"].tolist()) == list(range(-9, 1))


def test_bytes_are_an_image_by_their_name_or_beginning(tmp_path: Path) -> None:
    samples = [{"a": photo, "b": b"text", "c": 1} for photo in PHOTOS[:2]]
    folder = mds(tmp_path / "mds", {"a": "bytes", "b": "bytes", "c": "int"}, samples)
    assert sp.MDS(folder, left="a", b="b").open().fields == {"left": Encoded(), "b": Encoded("file")}
    assert sp.MDS(folder, image="b").open().fields == {"image": Encoded()}
    assert "has no images: its first record has b, which isn't an image" in refusal(sp.MDS(folder, b="b"))
    assert "has no images: its first record has no bytes" in refusal(sp.MDS(folder))


@pytest.mark.parametrize(
    "encoding",
    [
        f"{kind}{bits}"
        for kind in ("int", "uint", "float")
        for bits in (8, 16, 32, 64)
        if kind + str(bits) != "float8"
    ],
)
def test_numbers_of_every_dtype(encoding: str, tmp_path: Path) -> None:
    samples = [{"x": PHOTOS[0], "n": n} for n in (0, 1, 100)]
    opened = sp.MDS(mds(tmp_path / "mds", {"x": "png", "n": encoding}, samples)).open()
    found = opened.locate(np.arange(3)).plain["n"]
    assert found.dtype == np.dtype(encoding)
    assert found.tolist() == [0, 1, 100]


def test_large_arrays_are_left_out(tmp_path: Path) -> None:
    samples = [{"x": PHOTOS[0], "n": np.zeros((64, 65))}]
    opened = sp.MDS(mds(tmp_path / "mds", {"x": "jpeg", "n": "ndarray:uint8:64,65"}, samples)).open()
    assert opened.fields == {"x": Encoded()}
    assert "1 n (ndarray:uint8:64,65)" in opened.index_note


def test_an_index_is_used_until_the_folder_changes(folder: Path) -> None:
    built = sp.build_index(sp.MDS(folder))
    assert built.path == folder.with_name("mds.standpipe-index")
    before = built.path.read_bytes()
    digest = sp.MDS(folder).open().digest
    assert built.path.read_bytes() == before
    assert sp.verify_index(sp.MDS(folder)).ok
    mds(folder, COLUMNS, [sample(n) for n in range(9)], per_shard=4)
    assert sp.MDS(folder).open().num_records == 9
    assert sp.MDS(folder).open().digest != digest


def test_index_json_that_doesnt_fit(folder: Path) -> None:
    for changes, text in (
        ({"raw_data": {"basename": "../a.mds", "bytes": 1, "hashes": {}}}, "which isn't in the folder"),
        ({"raw_data": {"basename": "gone.mds", "bytes": 1, "hashes": {}}}, "can't read .*gone.mds"),
        ({"samples": -1}, "isn't an index of MDS shards"),
        ({"samples": 3}, r"begins with \[4\], but index.json says .* with 3 samples"),
        ({"samples": 1 << 40}, "but index.json says .* with 1,099,511,627,776 samples"),
        ({"format": "json"}, "isn't an index of MDS shards of version 2"),
        ({"column_names": ["x"]}, "isn't an index of MDS shards: ValueError"),
        (
            {"column_encodings": ["float64", *[COLUMNS[name] for name in sorted(COLUMNS)][1:]]},
            "have 8 bytes, not 4",
        ),
        ({"column_names": ["a", "grid", "raw", "text", "x", "y"]}, "shards of differing columns"),
    ):
        whole = (folder / "index.json").read_text()
        with pytest.raises(sp.PlanError, match=text):
            edited(folder, **changes).open()
        (folder / "index.json").write_text(whole)
    (folder / "index.json").write_text('{"version": 2, "shards": []}')
    assert "lists no shards" in refusal(sp.MDS(folder))
    assert "can't read /nowhere/index.json" in refusal(sp.MDS("/nowhere"))


def test_arguments_that_dont_fit(folder: Path) -> None:
    assert "image='z' must be a column of jpeg, png, bytes, str or numbers" in refusal(
        sp.MDS(folder, image="z")
    )
    assert "'text' (str)" in refusal(sp.MDS(folder, image="z"))
    assert "MDS(valid='x'): a field is an identifier" in refusal(sp.MDS(folder, valid="x"))
    assert "'label' is float32 of shape ()" in refusal(sp.MDS(folder, image="x", label="area"))


def test_compressed_shards_are_refused_with_a_command(folder: Path) -> None:
    packed = {
        "compression": "zstd:7",
        "zip_data": {"basename": "shard.00000.mds.zstd", "bytes": 1, "hashes": {}},
    }
    edited(folder, **packed).open()  # unpacked, beside index.json
    (folder / "shard.00000.mds").rename(folder / "shard.00000.mds.zstd")
    assert f"Unpack all beside them: zstd -d {folder}/*.zstd" in refusal(sp.MDS(folder))
    source = edited(folder, compression="snappy")
    assert f"StreamingDataset(local='{folder}', batch_size=1)" in refusal(source)


def test_a_cut_shard_is_found_with_its_place(folder: Path) -> None:
    path = folder / "shard.00001.mds"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    age(path)
    assert (
        f"{path} has {len(whole) - 1:,} bytes and begins with [4], but index.json says {len(whole):,} bytes"
        in refusal(sp.MDS(folder))
    )


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_changed_bytes_never_give_another_samples_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Places that overlap, go backwards or lead out are refused; others stay inside of their sample."""
    folder = tmp_path_factory.mktemp("changed")
    columns = {"x": "jpeg", "y": "int", "z": "bytes"}
    samples = [{"x": b"x" * n, "y": n, "z": b"z" * n} for n in range(1, 5)]
    mds(folder, columns, samples)
    whole = bytearray(mds_shard(columns, samples))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (folder / "shard.00000.mds").write_bytes(whole)
    try:
        opened = sp.MDS(folder).open()
    except sp.PlanError as error:
        said = str(error)
    else:
        ends = np.frombuffer(whole, "<u4", 5, 4).astype(int)
        places = opened.locate(np.arange(4)).files["x"]
        assert (places.offset >= ends[:-1]).all()
        assert (places.offset + places.length <= ends[1:]).all()
        assert (np.diff(ends) > 0).all()
        return
    assert "shard.00000.mds" in said
