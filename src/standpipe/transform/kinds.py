"""The kinds of fields that are pictures. A new kind is a new entry of ``FIELD_KINDS``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from standpipe.contracts import Encoded
from standpipe.errors import PlanError
from standpipe.spec import KINDS, AnyArray, ArraySpec, Listed, Pictures, UInt8Array

Known = Mapping[
    str, ArraySpec | Encoded | Listed | None
]  # None: the loader measures the field's shape when it starts


@dataclass(frozen=True, slots=True)
class FieldKind:
    """A kind of pictures: the meaning of their pixels, and so the changes that transforms may make.

    name     of the kind; encoded fields of this name, or of one that ends in it, such as ``road_mask``, are of the kind
    plural   the parameter of ``decode`` that names further fields of the kind
    form     its arrays, in words
    number   of the kind in native code. 0: filters and colours may change values. Others: pixels are only moved, the
             nearest one is taken, and no value changes
    dtypes   of arrays (H, W); decoded files have the last one. Native code moves their bytes. None: images of bytes
    outside  value of places outside the picture: the name of a transform's parameter, or a number
    """

    name: str
    plural: str
    form: str
    number: int = 0
    dtypes: tuple[str, ...] | None = None
    outside: str | int = 0

    @property
    def is_image(self) -> bool:
        """True if filters and colours may change values."""
        return self.number == 0

    def bytes_of(self, spec: ArraySpec) -> int | None:
        """Return the number of bytes of a pixel in an array; None if such an array isn't of the kind."""
        if self.dtypes is None:
            channels = {2: 1, 3: spec.shape[-1]}.get(len(spec.shape)) if spec.shape else None
            return channels if channels in KINDS and spec.dtype == np.uint8 else None
        is_one = len(spec.shape) == 2 and spec.dtype.isnative and spec.dtype.name in self.dtypes
        return spec.dtype.itemsize if is_one else None

    def outside_of(self, transform: object) -> int | None:
        """Return the value of places outside the picture; None if the transform has no parameter for it."""
        return self.outside if isinstance(self.outside, int) else getattr(transform, self.outside, None)


IMAGE = FieldKind("image", "images", "an image (H, W) or (H, W, C) uint8 with 1 to 4 channels")
MASK = FieldKind(
    "mask", "masks", "class numbers (H, W) uint8", number=1, dtypes=("uint8",), outside="mask_fill"
)
DEPTH = FieldKind("depth", "depths", "depths (H, W) uint8 or uint16", number=2, dtypes=("uint8", "uint16"))
FIELD_KINDS = (IMAGE, MASK, DEPTH)  # by number
OF_ARRAYS = {each.name: each for each in (IMAGE, MASK)}  # by the names of their fields
NO_KINDS: Mapping[str, FieldKind] = {}
MOVED = tuple(each.name for each in FIELD_KINDS)  # what a transform moves that moves all of them


def kinds_of(
    fields: Known,
    pictures: Pictures,
    *,
    whole: bool = True,
    unmoved: Collection[str] = (),
    before: Mapping[str, FieldKind] = NO_KINDS,
) -> dict[str, FieldKind]:
    """Return the kind of each field that is a picture. The first one is the reference: its size counts.

    That is ``image``, or else the first image.

    fields   the fields, as far as they are known
    whole    False: there may be further fields, such as ``image`` and those that ``pictures`` names
    unmoved  names of fields that aren't pictures for transforms
    before   the kinds of fields that are pictures, and decoded
    """
    kinds = {each.plural: each for each in FIELD_KINDS}
    named = {field: kinds[plural] for field, plural in pictures.named}
    given: Known = fields if whole else {**dict.fromkeys((*before, *fields, *named)), **fields}
    found: dict[str, FieldKind] = {}
    for field, spec in given.items():
        is_encoded = isinstance(spec, Encoded) and spec.kind == "image"
        kind = named.get(field) or before.get(field)
        kind = kind or (kind_of_encoded(field) if is_encoded else OF_ARRAYS.get(field))
        if kind is not None and field not in unmoved:
            found[field] = kind
    if not whole and IMAGE not in found.values():
        found["image"] = IMAGE
    images = sorted(
        (field for field, kind in found.items() if kind.is_image), key=lambda name: name != "image"
    )
    return {**{field: found[field] for field in images[:1]}, **found}


def check_named(pictures: Pictures, fields: Collection[str]) -> None:
    """Raise ``PlanError`` if ``decode`` names a field that records don't have."""
    for field, name in pictures.fields.items():
        if field not in fields:
            raise PlanError(
                f"decode({name}=…): there is no field {field!r}. The fields are {', '.join(fields)}"
            )


def as_bytes(array: AnyArray) -> UInt8Array:
    """Return pixels as native code takes them: elements of several bytes become channels of bytes."""
    shape = array.shape if array.itemsize == 1 else (*array.shape, array.itemsize)
    return np.ascontiguousarray(array).view(np.uint8).reshape(shape)


def kind_of_encoded(field: str) -> FieldKind:
    """Return the kind of an encoded field by its name, such as ``road_mask``."""
    return next((each for each in FIELD_KINDS[1:] if f"_{field}".endswith(f"_{each.name}")), IMAGE)
