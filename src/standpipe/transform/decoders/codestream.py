"""Compute from a JPEG 2000's headers how much memory OpenJPEG takes for its tiles and code blocks."""

from __future__ import annotations

import re
import struct

TILE_BYTES = 8192  # OpenJPEG's structures per tile; it allocates them for all tiles at once
COMPONENT_BYTES = 2048  # OpenJPEG's structures per component of a tile
# Structures per code block, in images whose code blocks or precincts have only a few pixels. No encoder chooses such
# small ones by default.
UNUSUAL_BYTES_PER_PIXEL = 400
SMALLEST_USUAL = 5  # a usual code block has at least 2^5 pixels along a side


def codestream_bytes(data: memoryview, size: tuple[int, int]) -> int:
    """Return an upper bound of the bytes that OpenJPEG takes for a file's tiles, in addition to the pixels.

    data  the encoded JPEG 2000 file

    size  (width, height) in the file's outer header

    Raises ``OSError`` if the inner header, which OpenJPEG uses, has a larger size than the outer one.
    """
    streams = [found.start() for found in re.finditer(rb"\xff\x4f\xff\x51", data)]
    try:
        return max((_bytes_of(data[begin:], size) for begin in streams), default=0)
    except (struct.error, ZeroDivisionError) as error:
        raise OSError("its header is damaged") from error


def _bytes_of(stream: memoryview, size: tuple[int, int]) -> int:
    right, bottom, left, top, width, height, first_x, first_y, components = struct.unpack_from(
        ">8IH", stream, 8
    )
    if right - left > size[0] or bottom - top > size[1]:
        raise OSError(f"its picture is larger than {size[0]} × {size[1]}, the size in its header")
    tiles = -(-(right - first_x) // width) * -(-(bottom - first_y) // height)
    blocks = 0 if _has_usual_blocks(stream) else UNUSUAL_BYTES_PER_PIXEL * size[0] * size[1]
    return blocks + int(tiles * (TILE_BYTES + components * COMPONENT_BYTES))


def _has_usual_blocks(stream: memoryview) -> bool:
    """Return True if no header, of the image or a tile, sets code blocks or precincts below 32 pixels a side."""
    at, tile_at, tile_bytes = 2, 0, 0
    while at + 12 <= len(stream):
        marker, length = struct.unpack_from(">HH", stream, at)
        if marker == 0xFFD9:  # end of the codestream
            return True
        if marker == 0xFF93:  # a tile's data
            if tile_bytes == 0:  # the last tile: its data goes to the end
                return True
            if tile_at + tile_bytes <= at:
                return False
            at = tile_at + tile_bytes
            continue
        if marker == 0xFF53 or length < 2:  # a component with another coding style, or a damaged length
            return False
        if marker == 0xFF52 and not _is_usual(stream[at + 4 : at + 2 + length]):
            return False
        if marker == 0xFF90:
            tile_at, (tile_bytes,) = at, struct.unpack_from(">I", stream, at + 6)
        at += 2 + length
    return True


def _is_usual(coding: memoryview) -> bool:
    if len(coding) < 10:
        return False
    has_precincts, width, height = coding[0] & 1, coding[6] + 2, coding[7] + 2
    precincts = [side for both in coding[10:] for side in (both & 15, both >> 4)] if has_precincts else []
    return min(width, height, *precincts) >= SMALLEST_USUAL
