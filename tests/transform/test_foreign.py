"""Other formats than JPEG: Pillow's ``convert("RGB")`` of the first frame, then the same crop and resize."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from jpegs import kinds, photo, saved
from reference import check_rows, decoded, delivered, in_order, listed

TRAIN = (sp.RandomResizedCrop((24, 31)), sp.RandomHorizontalFlip())
EVAL = (sp.Resize(28), sp.CenterCrop(26))

RGB = photo(40, 53)
RGBA = photo(40, 53, channels=4)
GREY = photo(40, 53, channels=1)[..., 0]
DEEP = (photo(40, 53, channels=1, seed=1)[..., 0].astype(np.uint16) << 8) + GREY


def written(image: Image.Image, file_format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, file_format, **options)
    return out.getvalue()


def _pngs() -> Iterator[tuple[str, bytes]]:
    palette = Image.fromarray(RGB).quantize(40)
    yield "RGB", saved(RGB, "PNG")
    yield "RGBA", saved(RGBA, "PNG")
    yield "palette", written(palette, "PNG")
    yield "palette with one transparent colour", written(palette, "PNG", transparency=3)
    yield "palette with alpha", written(palette, "PNG", transparency=bytes(range(0, 240, 6)))
    yield "palette of 2 bits", written(Image.fromarray(RGB).quantize(4), "PNG", bits=2)
    yield "grey", written(Image.fromarray(GREY), "PNG")
    yield "grey with a transparent value", written(Image.fromarray(GREY), "PNG", transparency=100)
    yield "grey and alpha", written(Image.fromarray(np.stack([GREY, GREY[::-1]], axis=-1)), "PNG")
    yield "16 bits", written(Image.fromarray(DEEP), "PNG")
    yield "1 bit", written(Image.fromarray(GREY).convert("1"), "PNG")
    exif = Image.Exif()
    exif[0x0112] = 3
    yield "EXIF rotated", written(Image.fromarray(RGB), "PNG", exif=exif)
    yield "one pixel", saved(RGB[:1, :1], "PNG")


def _others() -> Iterator[tuple[str, bytes]]:
    frames = [Image.fromarray(photo(40, 53, seed=seed)) for seed in range(3)]
    several = {"save_all": True, "append_images": frames[1:]}
    yield "animated PNG", written(frames[0], "PNG", **several)
    yield "WebP", saved(RGB, "WEBP")
    yield "WebP, lossless with alpha", saved(RGBA, "WEBP", lossless=True)
    yield "animated WebP", written(frames[0], "WEBP", **several)
    yield "BMP", saved(RGB, "BMP")
    yield "BMP, palette", written(Image.fromarray(RGB).quantize(17), "BMP")
    yield "BMP, 1 bit", written(Image.fromarray(GREY).convert("1"), "BMP")
    yield "GIF", written(Image.fromarray(RGB), "GIF")
    yield "animated GIF", written(frames[0], "GIF", **several)
    yield "transparent GIF", written(Image.fromarray(RGB).quantize(20), "GIF", transparency=5)
    yield "TIFF", saved(RGB, "TIFF")
    yield "TIFF of several pages", written(frames[0], "TIFF", **several)
    yield "TIFF, CMYK", saved(RGB, "TIFF", mode="CMYK")
    yield "TIFF, packed", saved(RGB, "TIFF", compression="tiff_lzw")
    yield "TIFF, floats", written(Image.fromarray(GREY.astype(np.float32)), "TIFF")
    yield "TIFF, JPEG inside", saved(RGB, "TIFF", compression="jpeg")
    yield "PPM", saved(RGB, "PPM")
    yield "PGM", written(Image.fromarray(GREY), "PPM")
    yield "PGM, 16 bits", written(Image.fromarray(DEEP), "PPM")
    yield "PBM", written(Image.fromarray(GREY).convert("1"), "PPM")


# Pillow says so at each conversion, the tests' own among them; the pixels are what convert("RGB") gives.
pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency:UserWarning")

FILES = {**{f"PNG, {name}": data for name, data in _pngs()}, **dict(_others())}


@pytest.mark.parametrize("transforms", [TRAIN, EVAL], ids=["train", "eval"])
def test_every_format_is_as_pillow_has_it(
    transforms: tuple[sp.RandomResizedCrop, sp.RandomHorizontalFlip] | tuple[sp.Resize, sp.CenterCrop],
    tmp_path: Path,
) -> None:
    images = {name: decoded(data) for name, data in FILES.items()}
    source = listed(tmp_path, list(FILES.values()), times=3, suffix=".img")
    check_rows(delivered(in_order(source, *transforms)), images, transforms)


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
        check_rows(delivered(in_order(source, *TRAIN), workers=workers), images, TRAIN)
