"""Decode with Pillow the images that native code doesn't decode: other formats, and some unusual JPEGs.

The steps after decoding are the same as for images that native code decodes.
"""

from __future__ import annotations

import functools
import io
import math
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar, cast

import numpy as np

from standpipe import _native
from standpipe.formats import FORMATS, HEAD_BYTES, ImageFormat, format_of, orientation_of, unread_format
from standpipe.spec import DecodeLimits, Decoding, UInt8Array
from standpipe.transform.decoders.channels import VALUES_OF, Undecodable, form_of, stored_kind
from standpipe.transform.decoders.codestream import codestream_bytes
from standpipe.transform.kinds import FIELD_KINDS, IMAGE

if TYPE_CHECKING:
    from PIL import Image
    from typing_extensions import Buffer

LAST_MARKER = b"\xff\xd9"  # of a JPEG
STRIP_BYTES = 256 << 10  # an array is filled in strips of this size
# Limits of what Pillow may read to find an image's size. Older versions read everything that a TIFF's entries point
# at: 4 GB from a file of 1 MB whose entries all point at the same bytes. They also took a time for a GIF's comment that
# grew with the square of its length.
MOST_HEADER_READS = 20_000
SPARE_HEADER_BYTES = 64 << 10  # Pillow may read this much beyond two times the file's size


Result = TypeVar("Result")


class Frame(NamedTuple):
    """A decoded image, as native code takes it.

    pixels     (H, W, C) uint8; class numbers are one channel
    truncated  True if its file ends too soon, so that rows are missing
    """

    pixels: UInt8Array
    truncated: bool


def decode_input(
    decoding: Decoding, data: UInt8Array, kind: int, reserve: Callable[[int, int, int], str]
) -> Frame:
    """Decode an input of a row for native code: as ``decode_foreign`` does, or the exact values of another kind.

    Class numbers are grey levels, or a palette's indices. A file of them that ends too soon is never allowed:
    missing rows would look like a class. Raises ``Undecodable`` if the image can't be decoded, or has other values.

    kind  its number in ``FIELD_KINDS``
    """
    if kind == IMAGE.number:
        return decode_foreign(data, decoding, reserve)
    whole = replace(decoding, allow_truncated=False)
    return _explained(data, lambda: _decoded(data, whole, reserve, VALUES_OF[FIELD_KINDS[kind]]))


def encoded_size(data: UInt8Array, decoding: Decoding) -> tuple[int, int]:
    """Return an encoded image's height and width in pixels, from its header. Raises ``Undecodable``."""
    limits = decoding.limits
    height, width, wrong = _native.jpeg_size(data, limits.max_pixels, limits.max_scans, decoding.upright)
    if wrong and wrong != "foreign":
        raise Undecodable(wrong)
    return foreign_need(data, decoding)[:2] if wrong else (height, width)


def foreign_need(data: UInt8Array, decoding: Decoding) -> tuple[int, int, int]:
    """Return an encoded image's height and width in pixels, and the bytes for decoding, from its header.

    Raises ``Undecodable`` if the header can't be read.
    """
    found: list[tuple[int, int, int]] = []

    def refuse(height: int, width: int, frame_bytes: int) -> str:
        found.append((height, width, frame_bytes))
        return "nothing is decoded yet"

    try:
        decode_foreign(data, decoding, refuse)
    except Undecodable:
        if not found:
            raise
    return found[0]


def stored_form(data: UInt8Array, limits: DecodeLimits) -> str:
    """Return which of ``KINDS`` an encoded image is, from its header. Raises ``Undecodable`` as ``decode_foreign``."""

    def opened() -> str:
        from PIL import Image  # imported here: it takes 0.05 s, which data sets of JPEGs never need

        plugins = _plugins()
        is_format = format_of(data[:HEAD_BYTES].tobytes())
        if is_format is not None and (early := _early_size(is_format, data)) is not None:
            _check_pixels(early, limits)
        with _Lent(data) as file, Image.open(cast(IO[bytes], file), formats=tuple(plugins)) as image:
            return stored_kind(image)

    return _explained(data, opened)


def decode_foreign(data: UInt8Array, decoding: Decoding, reserve: Callable[[int, int, int], str]) -> Frame:
    """Return the first frame of an encoded image, exactly as Pillow's ``convert`` gives it.

    data     (n,) uint8, the encoded image
    reserve  called with (height, width, bytes for decoding) before any memory is used. A text that it returns is the
             reason to refuse the image; an empty one allows it

    Raises ``Undecodable`` for an image that can't be decoded.
    """
    return _explained(data, lambda: _decoded(data, decoding, reserve, form_of(decoding)))


def _explained(data: UInt8Array, decode: Callable[[], Result]) -> Result:
    try:
        return decode()
    except Undecodable:
        raise
    except Exception as error:
        raise Undecodable(_reason(error, data[:HEAD_BYTES].tobytes())) from error


class _Lent(io.RawIOBase):
    """A readable file whose content is an array of the caller, without a copy.

    ``close()`` releases the array, even if the file is still referenced. Before ``header_is_read()``, the number of
    reads and their bytes are limited: a read beyond a limit raises ``Undecodable``.
    """

    def __init__(self, data: UInt8Array) -> None:
        self._view = data.data
        self._at = 0
        self._reads_left: float = MOST_HEADER_READS
        self._bytes_left: float = 2 * len(self._view) + SPARE_HEADER_BYTES

    def header_is_read(self) -> None:
        """End the limits on reads. Later reads are for pixels, whose memory ``reserve`` limits."""
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
            raise Undecodable(
                "too large: its header is read again and again, which no real file needs; convert it to PNG"
            )

    def close(self) -> None:
        self._view.release()
        super().close()


def _decoded(
    data: UInt8Array,
    decoding: Decoding,
    reserve: Callable[[int, int, int], str],
    form: Callable[[Image.Image], Image.Image],
) -> Frame:
    """Return an image's pixels, and True if its file ends too soon and ``decoding`` allows this.

    form  turns the decoded image into one of the wanted mode, or raises to refuse it
    """

    def admit(size: tuple[int, int], frame_bytes: int) -> None:
        width, height = size
        _check_pixels(size, decoding.limits)
        # Some of Pillow's decoders read the whole file first.
        if refusal := reserve(height, width, frame_bytes + data.nbytes):
            raise Undecodable(refusal)

    image, truncated = _frame(data, decoding, admit, form)
    return Frame(_array(image), truncated)


def _check_pixels(size: tuple[int, int], limits: DecodeLimits) -> None:
    width, height = size
    if width * height > limits.max_pixels:
        raise Undecodable(f"too large: {width} × {height} pixels are above max_pixels={limits.max_pixels}")


def _frame(
    data: UInt8Array,
    decoding: Decoding,
    admit: Callable[[tuple[int, int], int], None],
    form: Callable[[Image.Image], Image.Image],
) -> tuple[Image.Image, bool]:
    """Return the first frame of an image, in the mode that ``form`` gives, and True as ``_decoded`` does.

    admit  called with ((width, height), bytes for decoding) before the frame is decoded; it raises to refuse it
    """
    from PIL import Image  # imported here: it takes 0.05 s, which data sets of JPEGs never need

    plugins = _plugins()
    is_format = format_of(data[:HEAD_BYTES].tobytes())
    early = None if is_format is None else _early_size(is_format, data)
    turn: Image.Transpose | None = None
    if is_format is not None and early is not None:
        if decoding.upright and is_format.name == "WebP":
            described = Image.Image()
            described.info.update(_webp_metadata(data.data))
            turn = _turn(described)
        admit(*_turned(early, turn, early[0] * early[1] * is_format.bytes_per_pixel))
    with _Lent(data) as file, Image.open(cast(IO[bytes], file), formats=tuple(plugins)) as image:
        file.header_is_read()
        if early is None:
            is_format = plugins["JPEG" if image.format == "MPO" else str(image.format)]
            frame_bytes = image.width * image.height * is_format.bytes_per_pixel + _tile_bytes(image, data)
            turn = _turn(image) if decoding.upright and is_format.name != "TIFF" else None
            admit(*_turned(image.size, turn, frame_bytes))
        elif image.size != early:
            raise OSError(
                f"it has {image.width} × {image.height} pixels, but its header says {early[0]} × {early[1]}"
            )
        if image.format in ("JPEG", "MPO"):
            _check_scans(data, image.size, decoding.limits)
            if decoding.channels == "luma":
                image.draft("L", image.size)
        # Decoders written in Python read byte by byte.
        if any(decoder in Image.DECODERS for decoder, *_ in image.tile):
            image.fp = io.BufferedReader(file)
        truncated = decoding.allow_truncated and _is_cut(image)
        # RGB has no transparency, and Pillow would warn that it is lost.
        if decoding.channels not in ("RGBA", "as_stored"):
            image.info.pop("transparency", None)
        image.load()
        made = form(image)
        return made if turn is None else made.transpose(turn), truncated


@functools.cache
def _plugins() -> dict[str, ImageFormat]:
    """Return the formats of ``FORMATS`` that the installed Pillow has, keyed by Pillow's names for them."""
    from PIL import Image

    Image.init()
    return {each.plugin: each for each in FORMATS if each.plugin in Image.OPEN}


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return what Pillow's ``exif_transpose`` does to an image; None if it leaves it as it is."""
    from PIL import Image

    orientation = orientation_of(image)
    turns = (
        Image.Transpose.FLIP_LEFT_RIGHT,
        Image.Transpose.ROTATE_180,
        Image.Transpose.FLIP_TOP_BOTTOM,
        Image.Transpose.TRANSPOSE,
        Image.Transpose.ROTATE_270,
        Image.Transpose.TRANSVERSE,
        Image.Transpose.ROTATE_90,
    )
    return turns[orientation - 2] if orientation > 1 else None


def _turned(
    size: tuple[int, int], turn: Image.Transpose | None, frame_bytes: int
) -> tuple[tuple[int, int], int]:
    """Return (width, height) after a turn, and the bytes for decoding with it: a turned copy is beside the image."""
    from PIL.Image import Transpose

    if turn is None:
        return size, frame_bytes
    keeps_size = turn < Transpose.ROTATE_90 or turn == Transpose.ROTATE_180
    return size if keeps_size else size[::-1], frame_bytes + 4 * size[0] * size[1]


def _early_size(is_format: ImageFormat, data: UInt8Array) -> tuple[int, int] | None:
    """Return (width, height) from the header of a WebP or ICO, whose frames Pillow allocates on opening the file.

    Returns None for other formats. Raises ``OSError`` for a damaged header.
    """
    match is_format.name:
        case "WebP":
            return _webp_size(data[:HEAD_BYTES].tobytes())
        case "ICO":
            return _ico_size(data.data)
    return None


def _webp_size(head: bytes) -> tuple[int, int]:
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


def _webp_metadata(data: memoryview) -> dict[str, bytes]:
    """Return the EXIF and XMP data of a WebP, by their names in the ``info`` of Pillow's images."""
    flags = data[20] if bytes(data[12:16]) == b"VP8X" and len(data) > 20 else 0
    wanted = {b"EXIF": "exif"} if flags & 8 else {}
    if flags & 4:
        wanted[b"XMP "] = "xmp"
    found: dict[str, bytes] = {}
    at = 12
    for _ in range(MOST_HEADER_READS):
        if at + 8 > len(data) or len(found) == len(wanted):
            break
        name, size = struct.unpack_from("<4sI", data, at)
        if name in wanted:
            found.setdefault(wanted[name], bytes(data[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    return found


def _ico_size(data: memoryview) -> tuple[int, int]:
    """Return (width, height) of the icon in an ICO file that Pillow decodes.

    Pillow takes the largest icon, and the one with fewest bits per pixel among icons of equal size. The file's list
    of icons has sizes up to 256 × 256 only, so the result comes from the icon's own header.
    """

    def rank(entry: tuple[int, ...]) -> tuple[int, int]:
        width, height, colours, _, _, bits, _, _ = entry
        depth = bits or (colours != 0 and math.ceil(math.log2(colours))) or 256
        return -(width or 256) * (height or 256), depth

    try:
        (count,) = struct.unpack_from("<H", data, 4)
        offset = min((struct.unpack_from("<4B2H2I", data, 6 + 16 * n) for n in range(count)), key=rank)[-1]
        if bytes(data[offset : offset + 8]) == b"\x89PNG\r\n\x1a\n":
            width, height = struct.unpack_from(">II", data, offset + 16)
            return width, height
        (header_bytes,) = struct.unpack_from("<I", data, offset)
        width, height = struct.unpack_from("<HH" if header_bytes == 12 else "<Ii", data, offset + 4)
    except (struct.error, ValueError) as error:
        raise OSError("its header is damaged") from error
    return width, abs(height) // 2  # the height includes a mask below the picture


def _tile_bytes(image: Image.Image, data: UInt8Array) -> int:
    """Return the bytes that Pillow takes for the tiles of a JPEG 2000 or TIFF in addition to the frame; else 0.

    image  the image, opened by Pillow from the bytes ``data``

    Raises ``OSError`` if the tiles don't fit the image.
    """
    if image.format == "JPEG2000":
        return codestream_bytes(data.data, image.size)
    tags = getattr(image, "tag_v2", {})
    width, height = tags.get(322, 0), tags.get(323, 0)  # a TIFF's tile may be larger than the image
    return 8 * width * height if isinstance(width, int) and isinstance(height, int) else 0


def _check_scans(data: UInt8Array, size: tuple[int, int], limits: DecodeLimits) -> None:
    """Raise ``Undecodable`` for a JPEG with too many scans, with the limits of native code.

    It counts each place in ``data`` that looks like the start of a scan, so the count may be too high.
    """
    scans = sum(1 for _ in re.finditer(rb"\xff\xda", data.data))
    if scans > limits.max_scans:
        raise Undecodable(f"unsupported JPEG: more scans than max_scans={limits.max_scans}")
    blocks = (size[0] // 8 + 1) * (size[1] // 8 + 1)
    if scans > _native.ANY_SCANS and scans * blocks > _native.MOST_BLOCKS:
        raise Undecodable(f"unsupported JPEG: {scans} scans of so large a picture")


def _array(image: Image.Image) -> UInt8Array:
    """Return an image's pixels, (H, W, C) uint8; elements of several bytes have a channel for each.

    It copies large images in strips of rows, because Pillow makes two copies of each part that it returns.
    """
    width, height = image.size
    channels = _bytes_of(image.crop((0, 0, 1, 1))).size
    rows = max(STRIP_BYTES // (channels * width), 1)
    if rows >= height:
        return _bytes_of(image).reshape(height, width, channels)
    array = np.empty((height, width, channels), np.uint8)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        array[top:bottom] = _bytes_of(image.crop((0, top, width, bottom))).reshape(-1, width, channels)
    return array


def _bytes_of(image: Image.Image) -> UInt8Array:
    return np.ascontiguousarray(image).reshape(-1).view(np.uint8)


def _is_cut(image: Image.Image) -> bool:
    """Load the image's pixels; return True if the file ends too soon. The rows that the file has are kept.

    Pillow's own switch for this, ``ImageFile.LOAD_TRUNCATED_IMAGES``, would change the whole process. As that does, a
    JPEG gets the last marker that it lacks, so that the decoder gives the rows that it has begun and grey for others.
    """
    markers = [LAST_MARKER]

    def read_on(size: int) -> bytes:
        return read(size) or (markers.pop() if markers else b"")

    if image.format in ("JPEG", "MPO"):
        read, image.load_read = image.load_read, read_on  # type: ignore[attr-defined]
    try:
        image.load()
    except OSError as error:
        if not str(error).startswith("image file is truncated"):
            raise
        image.tile = []  # type: ignore[attr-defined]  # nothing is left to load
        return True
    return not markers


def _reason(error: Exception, data: bytes) -> str:
    from PIL import Image, UnidentifiedImageError, __version__ as pillow, features

    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"too large: {error} (Pillow's own limit: PIL.Image.MAX_IMAGE_PIXELS)"
    kind = format_of(data)
    if kind is not None and kind.codec and not features.check(kind.codec):
        return (
            f"unsupported {kind.name}: the installed Pillow {pillow} has no decoder for it; install one that has, "
            "or convert the file to PNG or JPEG"
        )
    if kind is None and isinstance(error, UnidentifiedImageError):
        if name := unread_format(data):
            return f"standpipe doesn't read {name} files; convert it to PNG or JPEG"
        return f"not an image: starts with {data[:8].hex(' ')} ({data[:8]!r})"
    what = "damaged image" if kind is None else f"truncated or damaged {kind.name}"
    if isinstance(error, OSError):
        text = str(error).partition(" <")[0]  # without the file object, which says nothing
        return f"{what}: {text}"
    return f"{what}: {type(error).__name__}: {error}"
