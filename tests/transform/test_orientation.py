"""decode(orientation="apply") turns JPEGs as Pillow's exif_transpose does; by default the tag is ignored."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

import standpipe as sp
from jpegs import photo, saved
from reference import decoded, delivered, explain_difference, in_order, listed

SIZE = (40, 40)


def tagged(orientation: int, *, order: str = "<", height: int = 50, width: int = 71) -> bytes:
    """A JPEG with an EXIF segment of one entry."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    body = b"Exif\0\0" + head + struct.pack(order + "HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)
    data = saved(photo(height, width), quality=90)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:]


@pytest.mark.parametrize("order", ["<", ">"])
def test_each_orientation_is_pillows(order: str, tmp_path: Path) -> None:
    files = [tagged(number, order=order) for number in range(10)] + [
        saved(photo(50, 71)),
        saved(photo(50, 71), "PNG"),
    ]
    pipeline = in_order(listed(tmp_path, files), sp.Resize(SIZE))
    for source, turn in ((pipeline, False), (pipeline.decode(orientation="apply"), True)):
        rows = delivered(source)
        for number, (data, row) in enumerate(zip(files, rows, strict=True)):
            picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data))) if turn else decoded(data)
            wanted = picture.convert("RGB").resize(SIZE[::-1], Image.Resampling.BILINEAR)
            assert explain_difference(row, np.asarray(wanted)) == "", (number, turn)
    assert "EXIF orientation applied" in pipeline.decode(orientation="apply").plan().explain()


def test_damaged_exif_data_is_ignored(tmp_path: Path) -> None:
    """A byte of the segment is inverted: offsets far outside, wrong types and lengths leave the image as it is."""
    whole = tagged(1)
    files = []
    for at in range(10, 38):
        data = bytearray(whole)
        data[at] ^= 0xFF
        files.append(bytes(data))
    pipeline = in_order(listed(tmp_path, [*files, whole]), sp.Resize(SIZE)).decode(orientation="apply")
    *rows, plain = delivered(pipeline)
    assert all(np.array_equal(row, plain) for row in rows)


def test_another_word_is_refused() -> None:
    with pytest.raises(sp.PlanError, match="orientation must be 'ignore' or 'apply'"):
        sp.Pipeline(sp.ImageFolder("photos")).decode(orientation="yes")  # type: ignore[arg-type]


def test_images_that_are_turned_have_their_own_size_where_no_transform_fixes_it() -> None:
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(tagged(6, height=20, width=40))))
    source = sp.MapSource([tagged(6, height=20, width=40)] * 4, encoded="image")
    pipeline = sp.Pipeline(source).map(sp.RandomHorizontalFlip(p=0.0)).decode(orientation="apply").batch(2)
    with pipeline.loader(executor="inline") as loader:
        for batch in loader:
            for row in batch["image"]:
                assert explain_difference(row, np.asarray(wanted)) == ""
