"""What all image transforms have in common."""

from __future__ import annotations

import math
from numbers import Real


class ImageTransform:
    """Reads the image and writes the image; described by its class and every parameter."""

    __slots__ = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The image."""
        return ("image",)

    @property
    def writes(self) -> tuple[str, ...]:
        """The image."""
        return ("image",)

    def describe(self) -> str:
        """The class and every parameter."""
        return repr(self)


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite real number, Python's or NumPy's."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an int beyond every float
        return False
