"""Images that are no JPEG: Pillow decodes them, then they take the same way as JPEGs do."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from penstock.spec import UInt8Array

if TYPE_CHECKING:
    from penstock import _native

FORMATS = ("PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# Pillow keeps 4 bytes a pixel for the frame as it is and 4 for its RGB form; the array takes 3.
FRAME_BYTES_PER_PIXEL = 11


def finish_foreign(row: _native.ForeignRow) -> None:
    """Decode a row's bytes with Pillow and finish the row, or fail it with what is wrong. Never raises."""
    try:
        row.finish(_decoded(row))
    except Exception as error:
        row.fail(_reason(error, row.data))


class _Refused(Exception):
    """The image is over a cap."""


def _decoded(row: _native.ForeignRow) -> UInt8Array:
    """The first frame as (H, W, 3) uint8, exactly as Pillow's ``convert("RGB")`` gives it."""
    from PIL import Image  # 0.05 s that data sets of JPEGs never need

    with Image.open(io.BytesIO(row.data), formats=FORMATS) as image:
        width, height = image.size
        if width * height > row.max_pixels:
            raise _Refused(f"too large: {width} × {height} pixels are above max_pixels={row.max_pixels}")
        if refusal := row.reserve(width * height * FRAME_BYTES_PER_PIXEL):
            raise _Refused(refusal)
        # RGB has no place for it, and Pillow would warn that it is lost.
        image.info.pop("transparency", None)
        return np.ascontiguousarray(image.convert("RGB"))


def _reason(error: Exception, data: bytes) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, _Refused):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return f"not an image: starts with {data[:8].hex(' ')} ({data[:8]!r})"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"too large: {error} (Pillow's own cap: PIL.Image.MAX_IMAGE_PIXELS)"
    if isinstance(error, OSError) and "truncated" in str(error):
        return f"truncated: {error}"
    return f"damaged image: {type(error).__name__}: {error}"
