"""decode(orientation="apply") turns JPEGs as Pillow's exif_transpose does; by default the tag is ignored."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

import standpipe as sp
from jpegs import photo, saved
from model.pictures import centred
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


def xmp(orientation: int, *, as_element: bool = False) -> bytes:
    if as_element:
        return b"<rdf:li><tiff:Orientation>%d</tiff:Orientation></rdf:li>" % orientation
    return b'<rdf:Description tiff:Orientation="%d"/>' % orientation


def odd_places() -> Iterator[tuple[str, bytes]]:
    """Images of other formats with EXIF data, and images whose XMP data alone name the orientation."""
    pixels, exif = photo(50, 71), Image.Exif()
    exif[0x0112] = 6
    for name, options in {
        "PNG": {},
        "WEBP": {"lossless": True},
        "TIFF": {},
        "AVIF": {},
        "MPO": {"save_all": True, "append_images": [Image.fromarray(pixels[::-1])]},
    }.items():
        yield name, saved(pixels, name, exif=exif, **options)
    for number in (1, 5, 8):
        for as_element in (False, True):
            data = xmp(number, as_element=as_element)
            yield f"JPEG, XMP {number}, {as_element}", saved(pixels, xmp=data)
            yield f"WebP, XMP {number}, {as_element}", saved(pixels, "WEBP", lossless=True, xmp=data)
    exif[0x0112] = 1
    yield "EXIF before XMP", saved(pixels, exif=exif, xmp=xmp(6))
    yield "WebP, EXIF before XMP", saved(pixels, "WEBP", lossless=True, exif=exif, xmp=xmp(6))
    yield "XMP that is cut", saved(pixels, xmp=b"tiff:Orientation=")


def test_every_format_is_turned_as_pillow_does(tmp_path: Path) -> None:
    names, files = zip(*odd_places(), strict=True)
    pipeline = in_order(listed(tmp_path, files), sp.CenterCrop((64, 60))).decode(orientation="apply")
    for name, data, row in zip(names, files, delivered(pipeline), strict=True):
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        assert explain_difference(row, centred(np.asarray(upright), 64, 60)) == "", name
    (whole,) = delivered(
        sp.Pipeline(sp.MapSource([files[1]], encoded="image")).decode(orientation="apply").batch(1)
    )
    assert whole.shape == (71, 50, 3)


def test_hugging_faces_images_are_those_of_its_own_decoding() -> None:
    """``datasets.Image().decode_example`` gives them to ``exif_transpose``; coming-from/huggingface.md says how to."""
    structs = [{"image": {"bytes": tagged(number), "path": None}, "label": number} for number in (1, 3, 6, 8)]
    pipeline = sp.Pipeline(sp.MapSource(structs, encoded="image")).map(sp.CenterCrop(45))
    rows = delivered(pipeline.decode(orientation="apply").batch(4), executor="inline")
    for struct_, row in zip(structs, rows, strict=True):
        image = Image.open(io.BytesIO(struct_["image"]["bytes"]))
        wanted = centred(np.asarray(ImageOps.exif_transpose(image)), 45, 45)
        assert explain_difference(row, wanted) == "", struct_["label"]


def test_masks_are_turned_as_their_own_data_say() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    classes = photo(50, 71, channels=1) // 26
    sample = {"image": tagged(6), "mask": saved(classes, "PNG", exif=exif)}
    pipeline = sp.Pipeline(sp.MapSource([sample], encoded="image")).map(sp.CenterCrop((71, 50))).batch(1)
    with pipeline.decode(orientation="apply").loader(executor="inline") as loader:
        assert np.array_equal(next(iter(loader))["mask"][0], np.rot90(classes[..., 0], -1))


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
