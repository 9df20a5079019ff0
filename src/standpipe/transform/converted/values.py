"""Convert parameters of torchvision's and timm's transforms into those of standpipe's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from standpipe.spec import KINDS
from standpipe.transform.pixels.geometry import INTERPOLATIONS


class Unlike(Exception):
    """The error that a part has no native form; its text says why."""


def size_of(size: Any) -> Any:
    """Return a size: an integer, or (height, width). Raises ``Unlike``."""
    if size is None:
        raise Unlike("size=None has no native form")
    if isinstance(size, int):
        return size
    return size[0] if len(size) == 1 else tuple(size)


def filter_name(part: Any, known: Collection[str] = INTERPOLATIONS) -> Any:
    """Return the name of a part's interpolation, if it is one of ``known``. Raises ``Unlike``."""
    value = getattr(part.interpolation, "value", part.interpolation)
    if value not in known:
        raise Unlike(f"interpolation={value!r} has no native form")
    return value


def fill_of(fill: Any) -> Any:
    """Return the fill of images: a number, a tuple or None. Raises ``Unlike``."""
    if isinstance(fill, Mapping):
        packages = ("PIL", "torchvision", "torch")  # of the classes of images; without "others", they have 0
        named = {
            kind.__module__.partition(".")[0]: value
            for kind, value in fill.items()
            if getattr(kind, "__name__", "") in ("Image", "Tensor")
        }
        found = [named.get(each, fill.get("others")) for each in packages]
        if any(each != found[0] for each in found):
            raise Unlike("fill has several values for images")
        fill = found[0]
    if fill is None or isinstance(fill, int):
        return fill
    if isinstance(fill, tuple | list) and len(fill) in KINDS:
        return tuple(int(each) for each in fill)
    raise Unlike(f"fill={fill!r} has no native form")


def mask_fill_of(fill: Any) -> dict[str, Any]:
    """Return the argument for the fill of masks, if a dict of fills has one for them."""
    if not isinstance(fill, Mapping):
        return {}
    masks = [value for kind, value in fill.items() if getattr(kind, "__name__", "") == "Mask"]
    found = masks[0] if masks else fill.get("others")
    if found is None or isinstance(found, int):
        return {"mask_fill": found or 0}
    if masks:
        raise Unlike(f"fill={found!r} of masks has no native form")
    return {}  # a colour, which torchvision refuses for masks


def by_channel(values: Any) -> Any:
    """Return a mean or deviation of each channel. Raises ``Unlike``."""
    if len(values) not in KINDS:
        raise Unlike(f"native images have at most {max(KINDS)} channels")
    return tuple(float(each) for each in values)


def range_of(value: Any) -> Any:
    """Return the range of a factor, 0.0 for none."""
    return 0.0 if value is None else tuple(value)


def sides_of(padding: Any) -> Any:
    """Return the padding of each side, as a tuple if it is a list."""
    return tuple(padding) if isinstance(padding, list) else padding
