from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forked import output
from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.source import Arrays
from standpipe.spec import ArraySpec, Listed

IMAGE = np.arange(4 * 3 * 2 * 3, dtype=np.uint8).reshape(4, 3, 2, 3)
LABEL = np.array([3, 1, 2, 0])


def npy_bytes(header: str, data: bytes = bytes(64), version: tuple[int, int] = (1, 0)) -> bytes:
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + size + header.encode("latin-1") + data


def test_scalars_are_gathered_and_larger_rows_stay_where_they_are() -> None:
    opened = Arrays(image=IMAGE, label=LABEL, box=np.zeros((4, 4), np.float32)).open()
    assert opened.num_records == 4
    assert opened.classes is None
    assert opened.name(0) is None
    assert opened.fields == {
        "image": ArraySpec((3, 2, 3), np.dtype(np.uint8)),
        "label": ArraySpec((), np.dtype(np.int64)),
        "box": ArraySpec((4,), np.dtype(np.float32)),
    }
    records = opened.locate(np.array([2, 0, 2]))
    assert records.plain["label"].tolist() == [2, 3, 2]
    assert list(records.rows) == ["image", "box"]
    assert np.shares_memory(records.rows["image"].array, IMAGE)
    assert records.rows["image"].rows.tolist() == [2, 0, 2]
    assert not records.rows["image"].array.flags.writeable
    assert IMAGE.flags.writeable


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=20)


@given(TEXTS, st.data())
def test_texts_come_back_as_they_are(texts: list[str], data: st.DataObject) -> None:
    opened = Arrays(caption=texts, length=np.array([len(each) for each in texts])).open()
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=40))
    found = opened.locate(np.array(rows, np.int64))
    assert found.texts["caption"].texts() == [texts[row] for row in rows]
    assert found.take(np.arange(len(rows))[::-1]).texts["caption"].texts() == [
        texts[row] for row in rows[::-1]
    ]
    assert opened.index_bytes == len("".join(texts).encode()) + 8 * len(texts)


@given(st.lists(st.binary()))
def test_bytes_that_are_no_text_are_kept_as_surrogates(strings: list[bytes]) -> None:
    texts = Paths.pack(strings).texts()
    assert [text.encode("utf-8", "surrogateescape") for text in texts] == strings


@pytest.mark.parametrize(
    "texts",
    [
        ("a", "", "é", "\0"),
        np.array(["a", "", "é", "\0"], object),
        np.array(["a", "", "é", "x"]),
        np.array(["a", "b", "é", "x"], np.dtypes.StringDType())
        if hasattr(np.dtypes, "StringDType")
        else ["a"] * 4,
    ],
    ids=["tuple", "objects", "fixed width", "any length"],
)
def test_texts_may_be_an_array(texts: Any) -> None:
    opened = Arrays(label=LABEL, caption=texts).open()
    assert opened.fields["caption"] == Listed("str")
    assert opened.locate(np.arange(4)).texts["caption"].texts() == [*texts]
    assert opened.columns == ("label",)
    assert opened.digest == Arrays(label=LABEL, caption=[*texts]).open().digest


def test_each_text_counts_in_the_digest() -> None:
    found = [["ab", "c"], ["a", "bc"], ["ab", "d"], ["abc", ""]]
    assert len({Arrays(caption=texts).open().digest for texts in found}) == len(found)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "'caption' has no rows"),
        (["a", None], "'caption' has a value of type NoneType in row 1; give a str for each record"),
        ([b"a"], "'caption' has a value of type bytes in row 0"),
        (np.array([{}, "a"]), "'caption' has a value of type dict in row 0"),
        (["a", "b\ud800"], "'caption' has a surrogate in row 1"),
    ],
)
def test_texts_that_cant_be_used(texts: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Arrays(caption=texts).open()


def test_rows_of_files_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", IMAGE)
    np.save(tmp_path / "label.npy", LABEL)
    opened = Arrays(image=str(tmp_path / "image.npy"), label=os.fsencode(tmp_path / "label.npy")).open()
    asked = np.array([3, 1, 3])
    records = opened.locate(asked)
    image = records.rows["image"]
    assert np.array_equal(image.array[image.rows], IMAGE[asked])
    assert len(image.array) == len(asked)
    assert not image.array.flags.writeable
    assert records.plain["label"].tolist() == [0, 1, 0]
    assert opened.index_bytes == 0


def test_memory_does_not_grow_with_a_file(tmp_path: Path) -> None:
    """A file of 4 GiB, most of it a hole."""
    np.save(tmp_path / "a.npy", np.zeros((1 << 22, 0), np.uint8))
    content = (tmp_path / "a.npy").read_bytes().replace(b"(4194304, 0)", b"(4194304, 1024)")
    (tmp_path / "a.npy").write_bytes(content[:115] + content[118:])  # the header has spaces there
    os.truncate(tmp_path / "a.npy", 128 + (1 << 32))
    grown = output(
        f"""
        import resource
        opened = sp.Arrays(a={str(tmp_path / "a.npy")!r}).open()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for start in range(0, opened.num_records, 1 << 16):
            opened.locate(np.arange(start, start + 256))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """
    )
    assert int(grown) < 16 << 10  # KiB


def test_every_version_of_the_format(tmp_path: Path) -> None:
    for version in [(1, 0), (2, 0)]:
        with (tmp_path / "a.npy").open("wb") as file:
            np.lib.format.write_array(file, IMAGE, version=version)
        opened = Arrays(a=tmp_path / "a.npy").open()
        assert np.array_equal(opened.locate(np.arange(4)).rows["a"].array, IMAGE)


def test_one_number_per_record_may_have_strides_and_byte_order(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", LABEL.astype(">i4"))
    opened = Arrays(a=tmp_path / "a.npy", b=np.arange(8)[::-2], c=LABEL.astype(">f8")).open()
    plain = opened.locate(np.array([1, 0])).plain
    assert [plain[name].tolist() for name in "abc"] == [[1, 3], [5, 7], [1.0, 3.0]]
    assert all(values.dtype.isnative for values in plain.values())


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_dtypes_of_numbers(dtype: str) -> None:
    opened = Arrays(a=np.ones((2, 2), dtype), b=np.ones(2, dtype)).open()
    assert [spec.dtype for spec in opened.fields.values()] == [np.dtype(dtype)] * 2


REFUSED = [
    (np.array([[{}, None]]), "dtype object; Python objects"),
    (np.zeros(2, [("x", "i4")]), "each of its fields"),
    (np.zeros(2, "V3"), "view it as numbers"),
    (np.zeros(2, "M8[s]"), "astype.np.int64"),
    (np.array([["a"], ["b"]]), "text to numbers"),
    (np.array([b"a"]), "text to numbers"),
    (np.zeros(2, np.longdouble), "astype.np.float64"),
    (np.array(5), "a single value"),
    (np.zeros((0, 3)), r"shape \(0, 3\): it has no rows"),
    (np.zeros((3, 0)), r"shape \(3, 0\): it has no rows"),
    (np.zeros((2, 3)).astype(">f4"), "byte order"),
    (np.asfortranarray(np.zeros((2, 3))), "C order|ascontiguousarray"),
]
REFUSED_IN_MEMORY = [
    (np.zeros((2, 6))[:, ::2], "C order"),
    (IMAGE.transpose(0, 3, 1, 2), "C order"),
    (np.frombuffer(bytes(33), np.int64, 4, offset=1).reshape(2, 2), "not aligned"),
    (np.ma.masked_array([1, 2], [True, False]), "masked"),
    ([1, 2], "a value of type int in row 0; give a str for each record, or numbers as a NumPy array"),
    (None, "is a NoneType"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED + REFUSED_IN_MEMORY)
def test_what_is_no_array_of_rows(value: object, message: str) -> None:
    source = Arrays({"field": value})
    assert source.describe().startswith("Arrays(field=")
    with pytest.raises(PlanError, match=f"'field'.*{message}"):
        source.open()


def test_masked_arrays_are_not_imported_to_refuse_them() -> None:
    """That would take as long as half of a plan."""
    text = "sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(2).plan()\nprint('numpy.ma' in sys.modules)"
    assert output(text) == "False\n"


@pytest.mark.parametrize(("value", "message"), REFUSED)
def test_what_is_no_array_of_rows_in_a_file(tmp_path: Path, value: np.ndarray, message: str) -> None:
    np.save(tmp_path / "a.npy", value, allow_pickle=True)
    with pytest.raises(PlanError, match=rf"'field', .*a\.npy, .*{message}"):
        Arrays(field=tmp_path / "a.npy").open()


def test_fields_must_have_the_same_rows_and_good_names() -> None:
    with pytest.raises(PlanError, match="'image' has 4 rows and 'label' has 3"):
        Arrays(image=IMAGE, label=LABEL[:3]).open()
    with pytest.raises(PlanError, match="no fields"):
        Arrays().open()
    for name in ("index", "", 3):
        with pytest.raises(PlanError, match="can't be a field's name"):
            Arrays({name: LABEL}).open()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"PK\x03\x04" + bytes(100),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (17,)}"),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (-1, -16)}"),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 99999999999999999999999)}"),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (0,)}"),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': ()}"),
        npy_bytes("{'descr': '<i4', 'fortran_order': True, 'shape': (4, 4)}"),
        npy_bytes("{'descr': '<i4', 'fortran_order': 0, 'shape': (4,)}"),
        npy_bytes("{'descr': '|O', 'fortran_order': False, 'shape': (4,)}"),
        npy_bytes("{'descr': '<i4', 'shape': (4,)}"),
        npy_bytes("(" * 5000),
        npy_bytes("__import__('os').abort()"),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (4,)}".ljust(70_000), version=(2, 0)),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (4,)}", version=(9, 9)),
        npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (4L,)}"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(PlanError, match=r"a\.npy"):
        Arrays(a=tmp_path / "a.npy").open()


@given(at=st.integers(0, 140), junk=st.binary(min_size=1, max_size=8))
def test_any_header_is_an_array_or_a_plan_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes
) -> None:
    file = io.BytesIO()
    np.save(file, IMAGE)
    content = bytearray(file.getvalue())
    content[at : at + len(junk)] = junk
    path = tmp_path_factory.getbasetemp() / "junk.npy"
    path.write_bytes(content)
    try:
        opened = Arrays(a=path).open()
    except PlanError:
        return
    opened.locate(np.arange(opened.num_records))


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(PlanError, match="pipe, socket or device"):
        Arrays(a=tmp_path / "pipe.npy").open()
    with pytest.raises(PlanError, match="check the path"):
        Arrays(a=tmp_path / "gone.npy").open()


def test_digest_of_arrays_in_memory() -> None:
    def digest(**fields: np.ndarray) -> str:
        return Arrays(fields).open().digest

    first = digest(image=IMAGE, label=LABEL)
    assert digest(label=LABEL.copy(), image=IMAGE.copy()) == first
    assert digest(image=IMAGE, label=np.repeat(LABEL, 2)[::2]) == first
    changed = IMAGE.copy()
    changed[-1, -1, -1, -1] ^= 1
    different = [
        digest(image=changed, label=LABEL),
        digest(image=IMAGE, label=LABEL[::-1]),
        digest(image=IMAGE, label=LABEL.astype(np.int32)),
        digest(image=IMAGE, target=LABEL),
        digest(image=IMAGE.reshape(4, 2, 3, 3), label=LABEL),
        digest(image=IMAGE),
    ]
    assert len({first, *different}) == len(different) + 1


def test_digest_of_a_large_array_samples_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "standpipe.source.records.arrays.HASHED_BYTES", 2 << 20
    )  # the real limit takes seconds to hash
    large = np.zeros((9, (1 << 20) - 1), np.uint8)
    first = Arrays(a=large).open().digest
    for row, is_hashed in [(0, True), (8, True), (4, False)]:
        large[row, 5000] = 1
        assert (Arrays(a=large).open().digest != first) == is_hashed
        large[row, 5000] = 0


def test_digest_of_files_is_their_size_and_time_not_their_path(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", LABEL)
    first = Arrays(a=tmp_path / "a.npy").open().digest
    (tmp_path / "a.npy").rename(tmp_path / "b.npy")
    assert Arrays(a=tmp_path / "b.npy").open().digest == first
    os.utime(tmp_path / "b.npy", ns=(1, 1))
    assert Arrays(a=tmp_path / "b.npy").open().digest != first


def test_here_tells_values_that_the_digest_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standpipe.source.records.arrays.HASHED_BYTES", 2 << 20)
    large = np.zeros((9, (1 << 20) - 1), np.uint8)
    before = Arrays(a=large).open()
    here = before.here()
    large[4, 5000] = 1
    after = Arrays(a=large).open()
    assert after.digest == before.digest
    assert after.here() != here


def test_here_tells_files_of_equal_size_and_time(tmp_path: Path) -> None:
    """As two that were taken out of one archive."""
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, LABEL)
        os.utime(tmp_path / name, ns=(1, 1))
    one, other = (Arrays(a=tmp_path / name).open() for name in ("a.npy", "b.npy"))
    assert one.digest == other.digest
    assert one.here() != other.here()
    np.save(tmp_path / "a.npy", LABEL[::-1])
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    assert Arrays(a=tmp_path / "a.npy").open().here() != one.here()


def test_here_of_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is only read is its file, others what they hold."""
    monkeypatch.setattr("standpipe.source.records.arrays.HASHED_BYTES", 0)
    np.save(tmp_path / "a.npy", LABEL)
    read, written = (np.load(tmp_path / "a.npy", mmap_mode=mode) for mode in ("r", "r+"))
    assert "a.npy" in Arrays(a=read).open().here()
    before = Arrays(a=written).open().here()
    written[0] += 1
    assert "a.npy" not in before
    assert Arrays(a=written).open().here() != before


def test_describe() -> None:
    assert Arrays(image=IMAGE, label="l.npy").describe() == "Arrays(image=uint8[4, 3, 2, 3], label='l.npy')"
