"""Classify a file's fault by the text of its error."""

from __future__ import annotations

import re
from enum import Enum


class Fault(Enum):
    """A reason why a file can't be delivered."""

    UNREADABLE = "unreadable"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    NOT_AN_IMAGE = "not-an-image"
    UNSUPPORTED = "unsupported"
    OVERSIZED = "oversized"


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
)
# Pillow's errors for formats other than JPEG, after a beginning such as "truncated or damaged PNG: ".
_BY_PILLOW = (
    (re.compile(r"truncated|Reached EOF|not enough (image )?data", re.IGNORECASE), Fault.TRUNCATED),
    (re.compile(r"not (available|supported)|unsupported|unknown (pixel|raw) mode"), Fault.UNSUPPORTED),
)


def fault_of(place: str, text: str) -> Fault:
    """Return the kind of fault for the ``reason`` of a ``SampleError`` that was raised in ``place``."""
    for beginning, fault in _BEGINNINGS:
        if text.startswith(beginning):
            return fault
    if place == "read":
        return Fault.UNREADABLE
    said = text.partition(": ")[2]
    return next((fault for words, fault in _BY_PILLOW if words.search(said)), Fault.DAMAGED)
