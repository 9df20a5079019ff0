"""One small picture of every format and mode that Pillow reads, encoded."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

from jpegs import photo, saved
from photos import deep_png

RGB = photo(40, 53)
RGBA = photo(40, 53, channels=4)
GREY = photo(40, 53, channels=1)[..., 0]


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
    yield "48 bits", deep_png(RGB * np.uint16(257))
    yield "64 bits, with alpha", deep_png(RGBA * np.uint16(257))
    yield "grey and alpha of 16 bits", deep_png(RGBA[..., :2] * np.uint16(257))
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
    yield "TIFF, YCbCr", saved(RGB, "TIFF", mode="YCbCr")
    yield "TIFF, LAB", saved(RGB, "TIFF", mode="LAB")
    yield "TIFF, grey and alpha", saved(RGB, "TIFF", mode="LA")
    yield "TIFF, packed", saved(RGB, "TIFF", compression="tiff_lzw")
    yield "TIFF, JPEG inside", saved(RGB, "TIFF", compression="jpeg")
    yield "PPM", saved(RGB, "PPM")
    yield "PGM", written(Image.fromarray(GREY), "PPM")
    yield "PBM", written(Image.fromarray(GREY).convert("1"), "PPM")
    yield "AVIF", saved(RGB, "AVIF")
    yield "AVIF with alpha", saved(RGBA, "AVIF")
    yield "JPEG 2000", saved(RGB, "JPEG2000")
    yield "JPEG 2000 in tiles", saved(RGB, "JPEG2000", tile_size=(16, 16))
    yield "JPEG 2000 without a container", written(Image.fromarray(RGB), "JPEG2000", no_jp2=True)
    yield "PPM, text", b"P3 53 40 255\n" + " ".join(map(str, RGB.flat)).encode()
    yield "PPM, 100 levels", b"P6 53 40 100\n" + (RGB % 101).tobytes()
    yield "TGA", saved(RGB, "TGA")
    yield "TGA, packed", saved(RGBA, "TGA", compression="tga_rle")
    yield "ICO", saved(RGBA, "ICO", sizes=[(16, 16), (40, 30)])
    yield "ICO of bitmaps", saved(RGBA, "ICO", bitmap_format="bmp", sizes=[(16, 16), (40, 30)])
    yield "DDS", saved(RGBA, "DDS")
    yield "DDS, DXT5", saved(RGBA, "DDS", pixel_format="DXT5")
    yield "PCX", saved(RGB, "PCX")
    yield "SGI", saved(RGB, "SGI")
    yield "SGI, packed", saved(RGBA, "SGI", rle=True)
    yield "QOI", saved(RGB, "QOI")
    yield "DIB", saved(RGB, "DIB")


FILES = {**{f"PNG, {name}": data for name, data in _pngs()}, **dict(_others())}
