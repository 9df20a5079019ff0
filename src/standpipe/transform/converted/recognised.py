"""Recognise conversions to RGB, which change no RGB image."""

from __future__ import annotations

import dis
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar

from standpipe.transform.image import ImageTransform


@dataclass(frozen=True, slots=True)
class RGB(ImageTransform):
    """A conversion to RGB. It takes RGB images only, and changes nothing: ``plan()`` refuses grey images and RGBA."""

    takes: ClassVar[tuple[int, ...]] = (3,)


def keeps_rgb(part: Any) -> bool:
    """Return True for ``lambda image: image.convert("RGB")``, as a function or in torchvision's ``Lambda``."""
    code = getattr(getattr(part, "lambd", part), "__code__", None)
    return isinstance(code, CodeType) and _instructions(code) == _instructions(_to_rgb.__code__)


def _to_rgb(image: Any) -> Any:
    return image.convert("RGB")


def _instructions(code: CodeType) -> list[tuple[str, Any]]:
    """Return a function's instructions with their operands, without the names of its variables."""
    return [
        (each.opname, None if each.opname.startswith("LOAD_FAST") else each.argval)
        for each in dis.get_instructions(code)
    ]
