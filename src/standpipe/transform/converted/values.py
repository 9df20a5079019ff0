"""Convert parameters of torchvision's and timm's transforms into those of standpipe's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from standpipe.spec import KINDS
from standpipe.transform.image import ImageTransform
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


def filter_of(interpolation: Any) -> Any:
    """Return the name of a filter. Raises ``Unlike``."""
    value = getattr(interpolation, "value", interpolation)
    if value not in INTERPOLATIONS:
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


def arguments(part: Any, native: type[ImageTransform], **changed: Any) -> dict[str, Any]:
    """Return the parameters of a native class that a part has as attributes of the same names. Raises ``Unlike``.

    changed  values of parameters that the part has in another form
    """
    names = {each.name for each in fields(native)}  # type: ignore[arg-type]  # a dataclass, as each transform is
    given = {name: getattr(part, name) for name in names - changed.keys() if hasattr(part, name)}
    found = {name: _CONVERT[name](value) if name in _CONVERT else value for name, value in given.items()}
    if "mask_fill" in names:
        found |= mask_fill_of(given.get("fill"))
    return changed | {name: value for name, value in found.items() if value is not None}


_CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "size": size_of,
    "interpolation": filter_of,
    "fill": fill_of,
    "policy": lambda policy: policy.value,
}
