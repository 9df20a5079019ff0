"""The image formats that standpipe reads, and names for those that it doesn't.

A format is in the list if Pillow decodes it without a further program or file, in an amount of memory that the
image's header gives beforehand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

HEAD_BYTES = 64  # bytes of a file that are enough to recognise its format


@dataclass(frozen=True, slots=True)
class ImageFormat:
    """An image format that standpipe reads.

    name             its usual name
    plugin           Pillow's name for it
    magic            a regular expression for the first bytes of its files; empty if they have no mark
    suffixes         endings of file names that an image folder treats as images; none where such files are
    mostly
                     something else, or only parts of images
    bytes_per_pixel  the most that Pillow needs to decode it and convert it to RGB
    codec            Pillow's name for the library that decodes it, which an installed Pillow may lack; or
    empty
    """

    name: str
    plugin: str
    magic: bytes
    suffixes: tuple[str, ...] = ()
    bytes_per_pixel: int = 9
    codec: str = ""


# Pillow keeps up to 5 bytes a pixel for the frame as it is, and 4 for its RGB form or, later, 3 for the array. A
# progressive JPEG's coefficients take up to 8 more; so does decoding WebP. libavif has planes of 16 bits, twice for an
# image of several tiles, and RGBA. OpenJPEG has 32 bits a component, and a copy.
# Pillow tries them in this order. TGA files have no mark at their beginning, so TGA is the last.
FORMATS = (
    ImageFormat("JPEG", "JPEG", rb"\xff\xd8\xff", (".jpg", ".jpeg", ".jfif", ".jpe"), 17),
    ImageFormat("PNG", "PNG", rb"\x89PNG\r\n\x1a\n", (".png", ".apng")),
    ImageFormat("WebP", "WEBP", rb"RIFF.{4}WEBP", (".webp",), 17, "webp"),
    ImageFormat("BMP", "BMP", rb"BM.{4}\0{4}", (".bmp",)),
    ImageFormat("GIF", "GIF", rb"GIF8[79]a", (".gif",)),
    ImageFormat("TIFF", "TIFF", rb"II[*+]\0|MM\0[*+]", (".tif", ".tiff")),
    ImageFormat("PPM", "PPM", rb"P[1-6fF]\s", (".ppm", ".pgm", ".pbm", ".pnm")),
    ImageFormat("AVIF", "AVIF", rb".{4}ftyp(?:avif|avis)", (".avif",), 33, "avif"),
    ImageFormat(
        "JPEG 2000",
        "JPEG2000",
        rb"\0{3}\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
        (".jp2", ".j2k", ".jpx", ".jpf", ".j2c", ".jpc"),
        49,
        "jpg_2000",
    ),
    ImageFormat("ICO", "ICO", rb"\0\0\x01\0", (".ico",), 17),
    ImageFormat("CUR", "CUR", rb"\0\0\x02\0(?!\0\0)", bytes_per_pixel=17),
    ImageFormat("DDS", "DDS", rb"DDS ", (".dds",), 17),
    ImageFormat("PCX", "PCX", rb"\n[\0\x02\x03\x05]\x01", (".pcx",)),
    ImageFormat("SGI", "SGI", rb"\x01\xda[\0\x01]", (".sgi",), 17),
    ImageFormat("Sun raster", "SUN", rb"\x59\xa6\x6a\x95"),
    ImageFormat("QOI", "QOI", rb"qoif", (".qoi",), 17),
    ImageFormat("PSD", "PSD", rb"8BPS\0\x01"),
    ImageFormat("DIB", "DIB", rb"[\x0c\x28\x34\x38\x40\x6c\x7c]\0{3}", (".dib",)),
    ImageFormat("TGA", "TGA", b"", (".tga",)),
)

SUFFIXES = tuple(suffix for each in FORMATS for suffix in each.suffixes)
_ENDINGS = tuple(suffix.encode() for suffix in SUFFIXES)

# Formats that aren't read, with a regular expression for the first bytes of their files.
_UNREAD = {
    "EPS": rb"%!PS|\xc5\xd0\xd3\xc6",
    "PDF": rb"%PDF-",
    "SVG": rb"\s*(?:<\?xml[^>]*>\s*)?<(?:svg|!DOCTYPE svg)",
    "HEIC": rb".{4}ftyp(?:hei[cxms]|hev[cmx]|mif1|msf1)",
    "JPEG XL": rb"\xff\x0a|\0{3}\x0cJXL \r\n\x87\n",
    "OpenEXR": rb"\x76\x2f\x31\x01",
    "Radiance HDR": rb"#\?R",
    "ICNS": rb"icns",
    "XPM": rb"/\* XPM \*/",
    "FITS": rb"SIMPLE  =",
    "WMF": rb"\xd7\xcd\xc6\x9a\0\0",
    "EMF": rb"\x01\0\0\0.{36} EMF",
    "FlashPix": rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "BLP": rb"BLP[12]",
    "MPEG": rb"\0\0\x01\xb3",
    "HDF5": rb"\x89HDF\r\n\x1a\n",
    "GRIB": rb"GRIB",
    "BUFR": rb"BUFR|ZCZC",
}


def is_image_name(name: bytes) -> bool:
    """Return True if the name has the suffix of a supported image format, in upper or lower case."""
    return name.lower().endswith(_ENDINGS)


def format_of(head: bytes) -> ImageFormat | None:
    """Return the format whose files begin like ``head``, the first bytes of a file; None for others."""
    return next((each for each in FORMATS if each.magic and re.match(each.magic, head, re.DOTALL)), None)


def unread_format(head: bytes) -> str | None:
    """Return the name of a known but unsupported format, by a file's first bytes; None for others."""
    return next((name for name, magic in _UNREAD.items() if re.match(magic, head, re.DOTALL)), None)


def orientation_of(image: Image.Image) -> int:
    """Return the orientation that an opened image's EXIF or XMP data name, from 1 to 8; 1 if they name none."""
    from PIL import Image  # imported here: it takes 0.05 s

    try:
        # Not the method of PNGs, which decodes the image to find metadata behind it.
        found = Image.Image.getexif(image).get(0x0112)
    except Exception:  # EXIF data may be anything, and Pillow may raise anything over it
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1
