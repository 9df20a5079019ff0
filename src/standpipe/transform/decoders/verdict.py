"""Classify a bad image file by the text of the error that it caused."""

from __future__ import annotations

import re
from enum import Enum


class Fault(Enum):
    """A kind of fault, because of which a loader can't deliver an image file."""

    UNREADABLE = "unreadable"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    NOT_AN_IMAGE = "not-an-image"
    UNSUPPORTED = "unsupported"
    OVERSIZED = "oversized"
    OTHER_SIZE = "other-size"


# Beginnings of the errors of native code and of ``foreign``; the first match counts.
_BEGINNINGS = (
    ("empty file", Fault.EMPTY),
    ("not an image", Fault.NOT_AN_IMAGE),
    ("too large", Fault.OVERSIZED),
    ("unsupported JPEG: more scans", Fault.OVERSIZED),
    ("unsupported", Fault.UNSUPPORTED),
    ("standpipe doesn't read", Fault.UNSUPPORTED),
    ("truncated: ", Fault.TRUNCATED),
    ("damaged", Fault.DAMAGED),
    ("it has ", Fault.OTHER_SIZE),
)
# Pillow's errors for formats other than JPEG, after a beginning such as "truncated or damaged PNG: ".
_BY_PILLOW = (
    (re.compile(r"truncated|Reached EOF|not enough (image )?data", re.IGNORECASE), Fault.TRUNCATED),
    (re.compile(r"not (available|supported)|unsupported|unknown (pixel|raw) mode"), Fault.UNSUPPORTED),
)


def fault_of(place: str, text: str) -> Fault:
    """Return the kind of fault that an error's text describes.

    place  ``"read"`` if reading the file failed, else ``"decode"``
    text   the ``reason`` of the ``SampleError``
    """
    for beginning, fault in _BEGINNINGS:
        if text.startswith(beginning):
            return fault
    if place == "read":
        return Fault.UNREADABLE
    said = text.partition(": ")[2]
    return next((fault for words, fault in _BY_PILLOW if words.search(said)), Fault.DAMAGED)
