"""Other formats than JPEG: Pillow's ``convert("RGB")`` of the first frame, then the same crop and resize."""

import io
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from PIL import AvifImagePlugin, Image, features

import standpipe as sp
from every_format import FILES, GREY, RGB, RGBA, written
from jpegs import kinds, photo, saved
from reference import check_rows, decoded, delivered, in_order, listed
from standpipe.spec import DecodeLimits, DecodeMode, Decoding
from standpipe.transform.decoders.foreign import decode_foreign

TRAIN = (sp.RandomResizedCrop((24, 31)), sp.RandomHorizontalFlip())
EVAL = (sp.Resize(28), sp.CenterCrop(26))

# Pillow says so at each conversion, the tests' own among them; the pixels are what convert("RGB") gives.
pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency:UserWarning")


@pytest.mark.parametrize("transforms", [TRAIN, EVAL], ids=["train", "eval"])
def test_every_format_is_as_pillow_has_it(
    transforms: tuple[sp.RandomResizedCrop, sp.RandomHorizontalFlip] | tuple[sp.Resize, sp.CenterCrop],
    tmp_path: Path,
) -> None:
    images = {name: decoded(data) for name, data in FILES.items()}
    source = listed(tmp_path, list(FILES.values()), times=3, suffix=".img")
    check_rows(delivered(in_order(source, *transforms)), images, transforms)


@pytest.mark.parametrize("name", ["QOI", "PPM, 100 levels"])
def test_a_decoder_in_python_reads_blocks(name: str) -> None:
    """It asks for a byte or a pixel at a time, which calls Python again each time if nobody reads ahead."""
    data = np.frombuffer(FILES[name], np.uint8)
    reads = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal reads
        reads += event == "call" and frame.f_code.co_name == "readinto"

    sys.setprofile(count)
    try:
        decode_foreign(data, Decoding(DecodeMode.EXACT, DecodeLimits(), False), lambda *_: "")
    finally:
        sys.setprofile(None)
    assert 0 < reads < 50


DEEP = (photo(40, 53, channels=1, seed=1)[..., 0].astype(np.uint16) << 8) + GREY
FLOATS = GREY.astype(np.float32) / 255
CLIPPED: Mapping[str, tuple[str, bytes]] = {
    "PNG": ("I;16 (16-bit grey levels)", written(Image.fromarray(DEEP), "PNG")),
    "TIFF": ("I;16 (16-bit grey levels)", written(Image.fromarray(DEEP), "TIFF")),
    "TIFF of the other byte order": (
        "I;16B (16-bit grey levels)",
        written(Image.fromarray(DEEP.astype(">u2")), "TIFF"),
    ),
    "TIFF of integers": ("I (32-bit integers)", written(Image.fromarray(DEEP.astype(np.int32)), "TIFF")),
    "TIFF of floats": ("F (floats)", written(Image.fromarray(FLOATS), "TIFF")),
    "PGM": ("I (32-bit integers)", written(Image.fromarray(DEEP), "PPM")),
    "PFM": ("F (floats)", written(Image.fromarray(FLOATS), "PPM")),
    "JPEG 2000": ("I;16 (16-bit grey levels)", written(Image.fromarray(DEEP), "JPEG2000")),
}


def clips(mode: str) -> str:
    return re.escape(
        f"the image has mode {mode}, and Pillow's conversion to RGB clips its values to 0 to 255; convert"
    )


@pytest.mark.parametrize("name", CLIPPED)
def test_values_that_pillow_clips_are_refused(tmp_path: Path, name: str) -> None:
    mode, data = CLIPPED[name]
    source = listed(tmp_path, [data])
    with pytest.raises(sp.DecodeError, match=clips(mode)):
        delivered(in_order(source, *EVAL))
    with pytest.raises(sp.DecodeError, match=clips(mode)):
        delivered(sp.Pipeline(sp.MapSource([data], encoded="image")).map(*EVAL).batch(1), executor="inline")
    with pytest.raises(sp.DecodeError, match=clips(mode)):
        in_order(source, *EVAL).apply([data])
    (finding,) = sp.check_files(source).findings()
    assert (finding.kind, finding.text.startswith("unsupported")) == ("unsupported", True)


MODES = ("1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "LA", "PA", "RGBX", "RGBa")


@pytest.mark.parametrize("mode", MODES)
def test_a_datasets_images_of_every_mode_are_as_pillow_has_them(mode: str) -> None:
    image = Image.fromarray(RGB).convert(mode)
    source = sp.MapSource([image], fields=("image",))
    (row,) = delivered(sp.Pipeline(source).map(sp.CenterCrop((40, 53))).batch(1), executor="inline")
    assert np.array_equal(row, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["I", "F", "I;16", "I;16L", "I;16B", "I;16N"])
def test_a_datasets_images_that_pillow_clips_are_refused(mode: str) -> None:
    source = sp.MapSource([Image.new(mode, (53, 40), 7)] * 2, fields=("image",))
    with pytest.raises(sp.DecodeError, match=f"the image has mode {mode} .*clips its values"):
        delivered(sp.Pipeline(source).map(*EVAL).batch(1), executor="inline")
    # Without a native transform nothing is converted.
    (row, _) = delivered(sp.Pipeline(source).batch(1), executor="inline")
    assert (row == 7).all()


class Lazy:
    """A dataset of files that Pillow opens, and loads when pixels are asked for. One of them is cut."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, object]:
        data = saved(RGB)
        return {"image": Image.open(io.BytesIO(data[:900] if index == 3 else data)), "label": index}


@pytest.mark.parametrize("executor", ["inline", "thread"])
@pytest.mark.parametrize("transforms", [(), (sp.CenterCrop(9),)], ids=["plain", "native"])
def test_a_datasets_image_that_can_not_be_loaded_is_one_bad_sample(transforms: Any, executor: Any) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Lazy())).map(*transforms).batch(5)
    with (
        pipeline.loader(executor=executor) as loader,
        pytest.raises(sp.SampleError, match="image file is truncated") as caught,
    ):
        next(iter(loader))
    assert caught.value.index == 3
    assert isinstance(caught.value, sp.DecodeError) == bool(transforms)
    with pipeline.on_error(sp.Replace(at_most=1)).loader(executor=executor) as loader:
        (batch,) = loader
        assert (batch["label"][:3].tolist(), batch["label"][4]) == ([0, 1, 2], 4)
        assert all((image == batch["image"][0]).all() for image in batch["image"])
        assert [bad.index for bad in loader.bad_samples] == [3]


UNREAD = {
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "PDF": b"%PDF-1.7\n",
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0",
    "JPEG XL": b"\xff\x0a\x7f",
    "SVG": b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>',
    "ICNS": written(Image.fromarray(RGB).resize((128, 128)), "ICNS"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_another_format_is_named_with_a_way_out(tmp_path: Path, name: str) -> None:
    """EPS among them: Pillow would start Ghostscript for it."""
    with pytest.raises(sp.DecodeError) as caught:
        delivered(in_order(listed(tmp_path, [UNREAD[name]]), *EVAL))
    assert caught.value.reason == f"standpipe doesn't read {name} files; convert it to PNG or JPEG"


def test_a_codec_that_pillow_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AvifImagePlugin, "SUPPORTED", False)
    monkeypatch.setattr(features, "check", lambda codec: codec != "avif")
    with pytest.raises(sp.DecodeError) as caught:
        delivered(in_order(listed(tmp_path, [FILES["AVIF"]]), *EVAL))
    assert caught.value.reason.startswith("unsupported AVIF: the installed Pillow ")
    assert "convert the file to PNG or JPEG" in caught.value.reason


@pytest.mark.parametrize(
    "content",
    [
        FILES["JPEG 2000"].replace(b"\0\0\0\x35\0\0\0\x28", b"\0\0\0\x35\0\0\0\x08", 1),
        FILES["ICO"][:6] + bytes(300),
        FILES["ICO"][:22],
    ],
    ids=["a picture larger than its container", "an icon of nothing", "an icon without a picture"],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(sp.DecodeError):
        delivered(in_order(listed(tmp_path, [content]), *EVAL))


def test_folders_take_the_usual_names_of_every_format(tmp_path: Path) -> None:
    names = (
        "a.AVIF",
        "b.dds",
        "c.ico",
        "d.jfif",
        "e.jp2",
        "f.pcx",
        "g.qoi",
        "h.sgi",
        "i.tga",
        "j.psd",
        "k.eps",
    )
    (tmp_path / "class").mkdir()
    for name in names:
        (tmp_path / "class" / name).write_bytes(FILES["PNG, RGB"])
    opened = sp.ImageFolder(tmp_path).open()
    assert [Path(str(opened.name(n))).name for n in range(opened.num_records)] == list(names[:9])


def test_a_tga_is_no_cursor(tmp_path: Path) -> None:
    """An uncompressed one begins like a cursor without an image."""
    tga = saved(RGBA, "TGA")
    assert tga.startswith(b"\0\0\x02\0")
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "1.tga").write_bytes(tga)
    (tmp_path / "class" / "2.tga").write_bytes(tga[:-100])
    found = sp.check_files(sp.ImageFolder(tmp_path), duplicates=False)
    (finding,) = found.findings()
    assert finding.path.endswith("2.tga")
    assert "CUR" not in finding.text


def test_a_files_name_says_nothing(tmp_path: Path) -> None:
    jpegs = kinds(33, 47)
    png, jpeg, grey = FILES["PNG, RGB"], jpegs["4:2:0 progressive"], jpegs["grey"]
    check = {"a PNG": png, "a JPEG": jpeg, "a GIF": FILES["animated GIF"], "a grey JPEG": grey}
    images = {name: decoded(data) for name, data in check.items()}
    for suffix in (".jpg", ".png", ".JPEG", ".gif", ""):
        folder = tmp_path / f"named{suffix}"
        folder.mkdir()
        rows = delivered(in_order(listed(folder, list(check.values()), suffix=suffix), *TRAIN))
        check_rows(rows, images, TRAIN)


def test_jpegs_and_others_in_one_batch_keep_their_rows(tmp_path: Path) -> None:
    jpegs = list(kinds(40, 53).items())
    mixed = dict(each for pair in zip(jpegs, FILES.items(), strict=False) for each in pair)
    images = {name: decoded(data) for name, data in mixed.items()}
    source = listed(tmp_path, list(mixed.values()), times=2)
    for workers in (1, 3):
        check_rows(delivered(in_order(source, *TRAIN), num_workers=workers), images, TRAIN)
