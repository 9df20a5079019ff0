"""Parse and show bytes, counts and seconds."""

from __future__ import annotations

import math
import re
from typing import TypeGuard

from standpipe.errors import PlanError

MOST_COUNT = 1 << 63  # above all valid counts, positions and numbers of epochs, which fit an int64
MOST_BYTES = 1 << 60  # the largest size that a user can give: sums of several still fit an int64


def parse_bytes(name: str, value: int | str) -> int:
    """Convert a number of bytes, or text such as ``"2GiB"``, to an int from 1 to 2^60.

    name  the argument's name, for the error

    Raises ``PlanError`` for other values.
    """
    units = {
        "": 1,
        "b": 1,
        "kb": 10**3,
        "mb": 10**6,
        "gb": 10**9,
        "tb": 10**12,
        "kib": 1 << 10,
        "mib": 1 << 20,
        "gib": 1 << 30,
        "tib": 1 << 40,
    }
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    unit = units.get(match[2].lower()) if match else None
    number: float = 0  # bytes
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif match is not None and unit is not None:
        number = float(match[1]) * unit
    if number <= 0:
        raise PlanError(
            f"{name}={value!r} isn't a size. Give a number of bytes above 0, or text such as '2GiB' or "
            "'500MB'"
        )
    if number > MOST_BYTES:
        raise PlanError(
            f"{name}={value!r} is above 2^60 bytes, more than any machine has. Write how much this run "
            "may use"
        )
    return int(number)


def show_bytes(number: float, *, up: bool = False) -> str:
    """Return a number of bytes for people, such as ``"294.0MiB"``; ``up`` rounds up, so that it suffices."""
    number = int(number)
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            tenths = -(-number * 10 // size) if up else number * 10 // size
            return f"{tenths // 10}.{tenths % 10}{unit}"
    return f"{number}B"


def show_seconds(number: float) -> str:
    """Return a duration for people, such as ``"1.2 ms"``, ``"3.5 min"``."""
    for unit, of in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if number >= 2 * of:
            return f"{_three_digits(number / of)} {unit}"
    for unit, of in (("s", 1.0), ("ms", 1e-3)):
        if number >= of or number == 0:
            return f"{_three_digits(number / of)} {unit}"
    return f"{_three_digits(1e6 * number)} µs"


def _three_digits(number: float) -> str:
    return f"{number:.3g}" if number < 100 else f"{number:,.0f}"


def several(number: int, what: str) -> str:
    """Return a number with its noun, such as ``"1 worker"`` or ``"2 workers"``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def show_clock(seconds: float) -> str:
    """Return elapsed seconds as text, such as ``"1:02:03"``, ``"2:03"``, ``"3 s"``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


def is_count(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return True for an integer in [least, most]."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_seconds(value: object) -> bool:
    """Return True for a finite number of seconds, at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def without_middle(text: str, most: int) -> str:
    """Return text of at most ``most`` characters: longer text without its middle."""
    half = most // 2
    return text if len(text) <= most else f"{text[: half - 1]} … {text[2 - half :]}"


def as_html(text: str) -> str:
    """Return text as HTML that keeps its lines, for notebooks."""
    from html import escape  # only notebooks need it

    return f"<pre>{escape(text)}</pre>"
