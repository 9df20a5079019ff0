"""Images that are no JPEG: Pillow decodes them, then they take the same way as JPEGs do."""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import numpy as np

from standpipe.spec import Decoding, UInt8Array

if TYPE_CHECKING:
    from PIL import Image
    from typing_extensions import Buffer

    from standpipe import _native

FORMATS = ("PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# How their files begin.
MAGICS = {
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "WebP": rb"RIFF.{4}WEBP",
    "BMP": rb"BM.{4}\0{4}",
    "GIF": rb"GIF8[79]a",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "PPM": rb"P[1-6]\s",
}
# Pillow keeps up to 5 bytes a pixel for the frame as it is, and 4 for its RGB form or, later, 3 for the array. Decoding
# WebP takes 8 more. Measured, with what comes beside them.
FRAME_BYTES_PER_PIXEL = 9
WEBP_BYTES_PER_PIXEL = 17
STRIP_BYTES = 256 << 10  # of an array that is filled strip by strip
HEAD_BYTES = 64  # tell the format
# Of what Pillow reads to know an image's size. Older ones took all that a TIFF's entries pointed at, 4 GB of a file of
# 1 MB where they pointed at the same bytes, and put a GIF's comment together in a time that grew with its square.
MOST_HEADER_READS = 20_000
SPARE_HEADER_BYTES = 64 << 10  # beyond two times the file


class Undecodable(Exception):
    """The text says why."""


class Frame(NamedTuple):
    """An image.

    rgb        (H, W, 3) uint8
    truncated  whether its file ends too soon, so that rows are missing
    """

    rgb: UInt8Array
    truncated: bool


def finish_foreign(row: _native.ForeignRow, decoding: Decoding) -> None:
    """Decode a row's bytes with Pillow and finish the row, or fail it with what is wrong. Never raises."""
    try:
        _finish(row, decoding)
    finally:
        row.release()  # now that all that was decoded is gone


def _finish(row: _native.ForeignRow, decoding: Decoding) -> None:
    try:
        row.finish(*decode_foreign(row.data, decoding, row.reserve))
    except Exception as error:
        row.fail(str(error))


def decode_foreign(data: UInt8Array, decoding: Decoding, reserve: Callable[[int, int, int], str]) -> Frame:
    """The first frame, exactly as Pillow's ``convert("RGB")`` gives it.

    data     (n,) uint8, the encoded image
    reserve  is told (height, width, bytes that decoding takes) before any is taken; its text refuses

    Raises ``Undecodable`` for every image that can't be had.
    """
    head = data[:HEAD_BYTES].tobytes()
    try:
        return _decoded(data, decoding, reserve)
    except Exception as error:
        raise Undecodable(_reason(error, head)) from error


class _Lent(io.RawIOBase):
    """A file over memory that is somebody else's. ``close()`` gives it back, whoever still holds the file.

    Raises ``_Refused`` for a header that is read over and over, until ``header_is_read()``.
    """

    def __init__(self, data: UInt8Array) -> None:
        self._view = data.data
        self._at = 0
        self._reads_left: float = MOST_HEADER_READS
        self._bytes_left: float = 2 * len(self._view) + SPARE_HEADER_BYTES

    def header_is_read(self) -> None:
        """What is read from now on are pixels, which are capped."""
        self._reads_left = self._bytes_left = math.inf

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        if base + offset < 0:
            raise OSError(f"seek to {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        target = memoryview(buffer)
        part = self._view[self._at : self._at + len(target)]
        self._count(len(part))
        target[: len(part)] = part
        self._at += len(part)
        return len(part)

    def readall(self) -> bytes:
        rest = self._view[self._at :].tobytes()
        self._count(len(rest))
        self._at += len(rest)
        return rest

    def _count(self, size: int) -> None:
        self._reads_left -= 1
        self._bytes_left -= size
        if self._reads_left < 0 or self._bytes_left < 0:
            raise _Refused(
                "too large: what stands before its pixels is read again and again, as in no real file"
            )

    def close(self) -> None:
        self._view.release()
        super().close()


class _Refused(Exception):
    """The image is over a cap."""


def _decoded(data: UInt8Array, decoding: Decoding, reserve: Callable[[int, int, int], str]) -> Frame:
    max_pixels = decoding.limits.max_pixels

    def admit(size: tuple[int, int], bytes_per_pixel: int) -> None:
        width, height = size
        if width * height > max_pixels:
            raise _Refused(f"too large: {width} × {height} pixels are above max_pixels={max_pixels}")
        # Some of its decoders read the whole file first.
        if refusal := reserve(height, width, width * height * bytes_per_pixel + data.nbytes):
            raise _Refused(refusal)

    webp = _webp_size(data[:HEAD_BYTES].tobytes())
    if webp is not None:  # Pillow allocates two frames of its own when it opens it
        admit(webp, WEBP_BYTES_PER_PIXEL)
    image, truncated = _rgb(
        data, decoding, admit if webp is None else lambda size, _: _check_size(size, webp)
    )
    return Frame(_array(image), truncated)


def _check_size(size: tuple[int, int], header: tuple[int, int]) -> None:
    if size != header:
        raise OSError(f"it has {size[0]} × {size[1]} pixels, and {header[0]} × {header[1]} by its header")


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """(width, height) of a WebP by its first bytes; None for other files. Raises ``OSError`` for a damaged header."""
    if re.match(MAGICS["WebP"], head, re.DOTALL) is None:
        return None
    kind = head[12:16]
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and head[20:21] == b"\x2f":
        (bits,) = struct.unpack_from("<I", head, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    raise OSError("its header is damaged")


def _rgb(
    data: UInt8Array, decoding: Decoding, admit: Callable[[tuple[int, int], int], None]
) -> tuple[Image.Image, bool]:
    """The first frame, in mode RGB, and whether its file ends too soon. ``admit`` refuses a size by raising."""
    from PIL import Image  # 0.05 s that data sets of JPEGs never need

    with _Lent(data) as file, Image.open(cast(IO[bytes], file), formats=FORMATS) as image:
        file.header_is_read()
        admit(image.size, FRAME_BYTES_PER_PIXEL)
        truncated = decoding.allow_truncated and _is_cut(image)
        # RGB has no place for it, and Pillow would warn that it is lost.
        image.info.pop("transparency", None)
        image.load()
        return image if image.mode == "RGB" else image.convert("RGB"), truncated


def _array(image: Image.Image) -> UInt8Array:
    """Its pixels. In strips: Pillow makes two copies of all that it gives at once."""
    width, height = image.size
    rows = max(STRIP_BYTES // (3 * width), 1)
    if rows >= height:
        return np.ascontiguousarray(image)
    array = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        array[top:bottom] = np.asarray(image.crop((0, top, width, bottom)))
    return array


def _is_cut(image: Image.Image) -> bool:
    """Load the image; whether its file ends too soon. Then the rows that were there are kept.

    Pillow has a switch for this, ``ImageFile.LOAD_TRUNCATED_IMAGES``, for the whole process and all its threads.
    """
    try:
        image.load()
    except OSError as error:
        if not str(error).startswith("image file is truncated"):
            raise
        image.tile = []  # type: ignore[attr-defined]  # of image files: nothing is left to load
        return True
    return False


def format_of(data: UInt8Array) -> str | None:
    """The name of the format that an encoded image, (n,) uint8, begins as; None for others."""
    return _format_of(data[:HEAD_BYTES].tobytes())


def _format_of(head: bytes) -> str | None:
    return next((name for name, magic in MAGICS.items() if re.match(magic, head, re.DOTALL)), None)


def _reason(error: Exception, data: bytes) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, _Refused):
        return str(error)
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"too large: {error} (Pillow's own cap: PIL.Image.MAX_IMAGE_PIXELS)"
    kind = _format_of(data)
    if kind is None and isinstance(error, UnidentifiedImageError):
        return f"not an image: starts with {data[:8].hex(' ')} ({data[:8]!r})"
    what = "damaged image" if kind is None else f"truncated or damaged {kind}"
    if isinstance(error, OSError):
        text = str(error).partition(" <")[0]  # without the file object, which says nothing
        return f"{what}: {text}"
    return f"{what}: {type(error).__name__}: {error}"
