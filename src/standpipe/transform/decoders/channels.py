"""Give Pillow's images the channels that a pipeline wants, or the exact values of a kind of fields."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from standpipe.spec import ChannelsName, Decoding
from standpipe.transform.kinds import DEPTH, MASK, FieldKind

if TYPE_CHECKING:
    from PIL import Image


class Undecodable(Exception):
    """The error that an image can't be decoded; its text says why."""


def form_of(decoding: Decoding) -> Callable[[Image.Image], Image.Image]:
    """Return the function that gives a Pillow image the channels that ``decoding`` wants.

    It raises ``Undecodable`` for a mode of more than 8 bits per value, which ``convert`` would clip to 0 to 255.
    """
    return functools.partial(_converted, channels=decoding.channels)


def _converted(image: Image.Image, *, channels: ChannelsName) -> Image.Image:
    mode = image.mode
    if mode in ("I", "F") or mode.startswith("I;16"):
        kind = {"I": "32-bit integers", "F": "floats"}.get(mode, "16-bit grey levels")
        to = "RGB" if channels == "as_stored" else channels
        raise Undecodable(
            f"unsupported: the image has mode {mode} ({kind}), and Pillow's conversion to {to} clips its values to 0 "
            "to 255; convert it to 8 bits, or load and scale it in a dataset of your own (sp.MapSource)"
        )
    wanted: str = stored_kind(image) if channels == "as_stored" else "L" if channels == "luma" else channels
    return image if mode == wanted else image.convert(wanted)


def stored_kind(image: Image.Image) -> str:
    """Return the mode of ``KINDS`` that has a Pillow image's values: grey levels or RGB, with alpha if it has any."""
    grey = image.mode in ("1", "L", "LA", "La")
    alpha = image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info
    return ("LA" if grey else "RGBA") if alpha else "L" if grey else "RGB"


def _as_numbers(image: Image.Image) -> Image.Image:
    """Return ``image``. Raises ``Undecodable`` if its values aren't class numbers of one byte, exactly as they were."""
    if image.format in ("JPEG", "MPO"):
        raise Undecodable("a mask can't be a JPEG, whose values aren't exact; save it as PNG")
    if image.mode == "1":
        raise Undecodable(
            "a mask of one bit per pixel may mean 0 and 1, or 0 and 255; save it with 8 bits per pixel"
        )
    if image.mode not in ("L", "P"):
        raise Undecodable(
            f"a mask must have one channel of 8 bits, grey or with a palette, but its mode is {image.mode}; save its "
            "class numbers as an 8-bit PNG"
        )
    return image


def _as_depths(image: Image.Image) -> Image.Image:
    """Return an image of mode I;16. Raises ``Undecodable`` if its values aren't integers from 0 to 65535."""
    from PIL import Image

    values = np.asarray(image)
    fits = image.mode == "L" or (image.mode[0] == "I" and values.min() >= 0 and values.max() <= 65535)
    if image.format in ("JPEG", "MPO") or not fits:
        raise Undecodable(
            f"depths are one channel of integers from 0 to 65535, but it is a {image.format} of mode {image.mode}, or "
            "has other values; save it as a grey PNG of 8 or 16 bits"
        )
    return Image.fromarray(values.astype(np.uint16))


# The functions that return a Pillow image if it has values of a kind, and raise ``Undecodable`` if not.
VALUES_OF: Mapping[FieldKind, Callable[[Image.Image], Image.Image]] = {MASK: _as_numbers, DEPTH: _as_depths}
