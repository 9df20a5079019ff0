"""Text that fits into a part of a sheet."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from PIL import ImageFont

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"


def fitted(text: str, font: Font, room_px: float) -> str:
    """Return ``text`` in one line, or its beginning and its end around an ellipsis: a name's end says most."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)

    def keeping(letters: int) -> str:
        head = letters // 3
        return f"{text[:head]}…{text[len(text) - (letters - head) :]}"

    if font.getlength(text) <= room_px:
        return text
    most = min(len(text), 400)
    fitting = bisect.bisect(range(1, most), room_px, key=lambda letters: font.getlength(keeping(letters)))
    return keeping(max(1, fitting))
