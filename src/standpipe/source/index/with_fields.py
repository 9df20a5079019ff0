"""A listing of images, and for each further image of a record a listing of its own."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from standpipe.contracts import Encoded, Records
from standpipe.errors import PlanError
from standpipe.hints import ARGUMENTS, OTHERS, unknown_argument
from standpipe.source.index.listing import Listing
from standpipe.spec import ArraySpec, Int64Array, RaggedSpec
from standpipe.system.paths import AnyPath, path_text

OWN_FIELDS = ("image", "label", "index", "valid", "source")
ALIKE = 0.8  # names that are closer to an argument's name are taken for a misspelt one

Further: TypeAlias = tuple[tuple[str, AnyPath], ...]


def is_field_name(name: object) -> bool:
    """Return True for a name that a further field of a record can have."""
    return isinstance(name, str) and name.isidentifier() and name not in OWN_FIELDS


def set_arguments(source: object, given: Mapping[str, AnyPath], **own: object) -> None:
    """Set the attributes of a frozen source from a call's arguments, and ``others`` to its further fields, sorted.

    given  paths of further fields by name
    own    the other arguments, the path of the images first

    Raises ``TypeError`` for an argument that is misspelt or known from other libraries, and ``PlanError`` for a name
    that a field can't have, and for a value that isn't a path.
    """
    call, arguments = type(source).__name__, [*own][1:]
    hints = OTHERS | ARGUMENTS.get(call, {})
    for name, path in given.items():
        is_path = isinstance(path, str | bytes | os.PathLike)
        if difflib.get_close_matches(name, arguments, 1, ALIKE) or (name in hints and not is_path):
            raise unknown_argument(f"{call}()", [name], arguments, hints)
        if not is_path or not is_field_name(name):
            raise PlanError(
                f"{call}({name}={path!r:.80}): it takes {'=, '.join(arguments)}=, and paths of further fields, whose "
                f"names are identifiers other than {', '.join(OWN_FIELDS)}"
            )
    for name, value in {**own, "others": tuple(sorted(given.items()))}.items():
        object.__setattr__(source, name, value)


def shown_fields(further: Further) -> str:
    """Return further fields as the end of a call's arguments, for ``describe()``."""
    return "".join(f", {name}='{path_text(path)}'" for name, path in further)


@dataclass(frozen=True, slots=True, eq=False)
class ListingWithFields(Listing):
    """An ``OpenSource`` of records of several images.

    others  the listings of the further images, by the name of their field: record n is entry n of each
    """

    others: Mapping[str, Listing]

    @classmethod
    def beside(cls, images: Listing, others: Mapping[str, Listing]) -> Listing:
        """Return a listing of all images. Raises ``PlanError`` if a column of the index has a field's name."""
        for name in images.index.facts.columns:
            if name in others:
                raise PlanError(
                    f"the index of {images.subject.name} has a column {name!r}: give the further field another name"
                )
        return cls(images.subject, images.index, others) if others else images

    @property
    def fields(self) -> Mapping[str, ArraySpec | Encoded | RaggedSpec]:
        """The fields of the images' listing, and the further ones, encoded."""
        own: Mapping[str, ArraySpec | Encoded | RaggedSpec] = Listing.fields.fget(self)  # type: ignore[attr-defined]
        return {"image": own["image"], **dict.fromkeys(self.others, Encoded()), **own}

    @property
    def digest(self) -> str:
        """A digest of all listings, and of the names of the fields."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        own = Listing.digest.fget(self)  # type: ignore[attr-defined]
        others = "".join(f", {name}s {listing.digest}" for name, listing in self.others.items())
        return blake2b(f"{own}{others}".encode(), digest_size=16).hexdigest()

    @property
    def index_bytes(self) -> int:
        """Memory of all indexes in bytes."""
        own: int = Listing.index_bytes.fget(self)  # type: ignore[attr-defined]
        return own + sum(listing.index_bytes for listing in self.others.values())

    @property
    def index_note(self) -> str:
        """The places and sizes of all indexes, for ``explain()``."""
        own = Listing.index_note.fget(self)  # type: ignore[attr-defined]
        return "; ".join([own, *(f"of {name}: {each.index_note}" for name, each in self.others.items())])

    def skipped(self) -> Iterator[str]:
        """Yield the printable paths that all listings skipped."""
        yield from Listing.skipped(self)
        for listing in self.others.values():
            yield from listing.skipped()

    def here(self) -> str:
        """Return the folders of relative paths, on which the digest doesn't depend."""
        return "; ".join([Listing.here(self), *(listing.here() for listing in self.others.values())])

    def locate(self, indices: Int64Array) -> Records:
        """Return the records of the images' listing, with the files of their further images."""
        records = Listing.locate(self, indices)
        files = {name: listing.locate(indices).files["image"] for name, listing in self.others.items()}
        return replace(records, files={**records.files, **files})
