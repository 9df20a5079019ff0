from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from standpipe.contracts import check_source

DIGITS = np.random.default_rng(7).integers(0, 256, (10, 28, 28), np.uint8)
LABELS = np.arange(10, dtype=np.uint8)


def idx(array: np.ndarray, code: int = 0x08) -> bytes:
    """Return what an IDX file of an array holds."""
    return struct.pack(f">4B{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> dict[str, Path]:
    paths = {"image": tmp_path / "train-images-idx3-ubyte", "label": tmp_path / "train-labels-idx1-ubyte"}
    paths["image"].write_bytes(idx(DIGITS))
    paths["label"].write_bytes(idx(LABELS))
    return paths


def test_idx_files_keep_the_contract(mnist: dict[str, Path]) -> None:
    check_source(sp.IdxFiles(**mnist))
    check_source(sp.IdxFiles(**mnist, image_axes="HW"))


def test_images_and_labels_come_from_two_files(mnist: dict[str, Path]) -> None:
    source = sp.IdxFiles(**mnist, image_axes="HW")
    pipeline = sp.Pipeline(source).shuffle(seed=7).map(sp.CenterCrop(28)).batch(5)
    seen = []
    with pipeline.loader(memory="512MiB", num_workers=1) as loader:
        for batch in loader:
            for label, image in zip(batch["label"].tolist(), batch["image"], strict=True):
                assert np.array_equal(image, DIGITS[label][..., None])
                seen.append(label)
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize(
    ("code", "dtype"), {8: "u1", 9: "i1", 0xB: ">i2", 0xC: ">i4", 0xD: ">f4", 0xE: ">f8"}.items()
)
def test_every_kind_of_number(code: int, dtype: str, tmp_path: Path) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    (tmp_path / "a").write_bytes(idx(array, code))
    opened = sp.IdxFiles(a=tmp_path / "a").open()
    assert opened.locate(np.array([2, 0])).rows["a"].array.tolist() == array[[2, 0]].tolist()
    assert opened.fields["a"] == sp.ArraySpec((4,), array.dtype.newbyteorder("="))


WHOLE = idx(DIGITS)
REFUSED = {
    "gzip": (gzip.compress(WHOLE), "is compressed with gzip; decompress it first, for example with gunzip"),
    "empty": (b"", "isn't an IDX file: it begins with nothing"),
    "JPEG": (
        b"\xff\xd8\xff\xe0" + WHOLE,
        "isn't an IDX file: it begins with ff d8 ff e0, but .* use FixedRecords",
    ),
    "code": (b"\0\0\x07" + WHOLE[3:], "isn't an IDX file: it begins with 00 00 07 03"),
    "no axes": (b"\0\0\x08\0" + WHOLE[4:], "is cut or damaged: its header says 0 axes"),
    "axes": (b"\0\0\x08\xff" + WHOLE[4:], "is cut or damaged: its header says 255 axes"),
    "header": (WHOLE[:14], "is cut or damaged: its header says 3 axes, but ends after 14 bytes"),
    "no records": (idx(DIGITS[:0]), r"has the shape \(0, 28, 28\): it has no records"),
    "cut": (
        WHOLE[:-1],
        r"has 7,855 bytes, but its header says \(10, 28, 28\) uint8, .* 7,856: the file is cut",
    ),
    "longer": (WHOLE + b"\0", "which makes 7,856: the file is damaged"),
    "huge": (struct.pack(">4B3I", 0, 0, 14, 3, *[2**32 - 1] * 3), "the file is cut"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_idx_file_is_said(case: str, tmp_path: Path) -> None:
    data, message = REFUSED[case]
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(sp.PlanError, match=message):
        sp.IdxFiles(image=tmp_path / "a").open()


def test_a_record_beyond_a_gibibyte_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(struct.pack(">4B2I", 0, 0, 8, 2, 1, (1 << 30) + 1))
    os.truncate(tmp_path / "a", 12 + (1 << 30) + 1)
    with pytest.raises(
        sp.PlanError, match=r"has records of 1,073,741,825 bytes; a record may have at most 1 GiB"
    ):
        sp.IdxFiles(a=tmp_path / "a").open()


def test_fields_that_dont_go_together_are_refused(mnist: dict[str, Path]) -> None:
    with pytest.raises(sp.PlanError, match=r"IdxFiles has no fields; give it paths by name"):
        sp.IdxFiles().open()
    with pytest.raises(
        sp.PlanError, match=r"IdxFiles: 'index' is the name of a field that standpipe adds to every batch"
    ):
        sp.IdxFiles(index=mnist["label"]).open()
    mnist["label"].write_bytes(idx(LABELS[:9]))
    with pytest.raises(
        sp.PlanError, match=r"'image' has 10 records and 'label' has 9; all files must have the same"
    ):
        sp.IdxFiles(**mnist).open()
