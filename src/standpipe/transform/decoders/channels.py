"""Give Pillow's images the channels that a pipeline wants."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from standpipe.spec import ChannelsName, Decoding

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
