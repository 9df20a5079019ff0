"""The fields of a record of tar shards, by the extensions of its members."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from standpipe.errors import PlanError
from standpipe.formats import SUFFIXES
from standpipe.source.index.with_fields import ADDED, is_field_name

IMAGES = tuple(suffix[1:] for suffix in SUFFIXES)
# Extensions of integers, as WebDataset reads them.
NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
PICKLES = ("pth", "pt", "pkl", "pickle")

Fields = Mapping[str, tuple[str, ...]]  # extensions by field


def is_image(extensions: Iterable[str]) -> bool:
    """Return True if all members with these extensions are images."""
    return all(extension.rpartition(".")[2] in IMAGES for extension in extensions)


def image_fields(found: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the fields of a record's images, given the extensions of its members; none if it has no images.

    A member with an image's suffix alone is ``image``, and others are left out. Else ``left.jpg`` and ``right.png`` are
    ``left`` and ``right``, if there are several and all have usable names: a single one, or numbers, would be parts of
    names with dots.
    """
    if found & {*IMAGES}:
        return {"image": IMAGES}
    stems = sorted({each.rpartition(".")[0] for each in found if is_image([each])})
    fields = {re.sub(r"\W", "_", stem): tuple(f"{stem}.{each}" for each in IMAGES) for stem in stems}
    usable = len(fields) == len(stems) > 1 and all(name == "image" or is_field_name(name) for name in fields)
    return dict(sorted(fields.items(), key=lambda item: item[0] != "image")) if usable else {}


def checked_fields(fields: object) -> Fields | None:
    """Return the extensions of each field, an image first. Raises ``PlanError`` for fields that records can't have."""
    if fields is None:
        return None
    such = "such as fields={'image': 'jpg;png', 'label': 'cls'}"
    checked: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}
    for name, text in fields.items() if isinstance(fields, Mapping) else ():
        if not isinstance(name, str) or not name.isidentifier() or name in ADDED:
            raise PlanError(f"TarShards: a field can't be named {name!r}; use an identifier, {such}")
        if not isinstance(text, str) or not all(part.strip(". ") for part in text.split(";")):
            raise PlanError(f"TarShards: the field {name!r} needs extensions as text, {such}, got {text!r}")
        extensions = tuple(part.strip().lstrip(".").lower() for part in text.split(";"))
        for extension in extensions:
            _check_kind(name, extension)
            if taken.setdefault(extension, name) != name:
                raise PlanError(
                    f"TarShards: {extension!r} can't be both {taken[extension]!r} and {name!r}, {such}"
                )
        checked[name] = extensions
    images = sorted(name for name, extensions in checked.items() if is_image(extensions))
    if not images:
        raise PlanError(f"TarShards(fields={fields!r}) must say what the image is, {such}")
    first = "image" if "image" in images else images[0]
    return dict(sorted(checked.items(), key=lambda item: item[0] != first))


def checked_members(extension: object, fields: Fields | None) -> str | None:
    """Return the extension of JSON members. Raises ``PlanError`` for another value, and for one that a field has."""
    if extension is None:
        return None
    found = extension.lstrip(".").lower() if isinstance(extension, str) else ""
    if not found or any(found in each for each in (fields or {"image": IMAGES, "label": ("cls",)}).values()):
        raise PlanError(
            f"TarShards: instances={extension!r} must be the extension of the members with boxes, such as 'json', and "
            "none that a field has"
        )
    return found


def _check_kind(name: str, extension: str) -> None:
    """Raise ``PlanError`` if members with an extension can't be a field of this name."""
    last = extension.rpartition(".")[2]
    if last in PICKLES:
        raise PlanError(
            f"TarShards: {extension!r} members may hold Python code, which standpipe never loads; leave the field "
            f"{name!r} out"
        )
    kinds, kind = {"image": (IMAGES, "an image"), "label": (NUMBERS, "an integer")}.get(name, ((last,), ""))
    if last not in kinds:
        known = ", ".join(kinds[:7])
        raise PlanError(
            f"TarShards: the field {name!r} is {kind}, but {extension!r} isn't one of {known}. A field of another "
            f"name may be any member, whose bytes a function gets: fields={{…, 'text': {extension!r}}} and "
            "map(…, field='text')"
        )
