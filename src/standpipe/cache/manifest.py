"""The description of a set in ``set.json``."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from standpipe.cache.directory import (
    Damaged,
    Home,
    Unusable,
    damage_of,
    read_manifest,
    write_manifest,
)
from standpipe.cache.spilled import SET, Place
from standpipe.identity.cached_set import Identity
from standpipe.system.files import is_at

FORMAT = 1
MOST_RECORDS = 1 << 40

Kind = Literal["encoded", "images", "samples"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a set.

    digest     digest of its identity, and its name
    label      a name for people
    parts      parts of its identity
    records    number of records that it may have rows of
    kind       kind of rows: ``"encoded"`` (the bytes of files), ``"images"`` or ``"samples"``
    row_bytes  size of each row; None: rows differ in size
    spill      place of its rows on a disk; None: it has none there
    """

    digest: str
    label: str
    parts: Mapping[str, str | int]
    records: int
    kind: Kind
    row_bytes: int | None
    spill: Place | None

    @classmethod
    def of(
        cls, identity: Identity, records: int, kind: Kind, row_bytes: int | None, spill: Place | None
    ) -> Manifest:
        """Return the description of a new set."""
        return cls(identity.digest, identity.label, identity.parts, records, kind, row_bytes, spill)

    @property
    def salt(self) -> int:
        """A number that every entry of the set's table includes."""
        return Identity(self.parts, self.label).salt

    def at(self, spill: Place) -> Manifest:
        """Return the description of the same set with a folder on a disk."""
        return replace(self, spill=spill)

    def write(self, home: Home, folder: int) -> None:
        """Write the description into a set's folder. Raises ``OSError``."""
        facts: dict[str, Any] = {
            "format": FORMAT,
            "byte_order": sys.byteorder,
            "digest": self.digest,
            "label": self.label,
            "parts": dict(self.parts),
            "records": self.records,
            "kind": self.kind,
            "row_bytes": self.row_bytes,
            "spill": None if self.spill is None else self.spill.facts,
            "created": time.time(),
        }
        write_manifest(home, folder, SET, facts)


def damaged(digest: str, what: str) -> Damaged:
    """Return the error for a damaged set. ``what`` is the damage, such as ``"table is missing"``."""
    return Damaged(f"the cached set {digest} is unusable: its {what}")


def remedied(error: Exception, home: Home, name: str) -> str:
    """Return the text of an error of one of a session's sets, with the command that removes it."""
    match error:
        case Damaged():
            return (
                f"{error}. The next job that uses this set removes it and fills it again; {home.destroying(name)} "
                "removes the whole cache now"
            )
        case Unusable():
            return f"{error}; {home.destroying(name)} removes the whole cache"
        case _:
            return str(error)


@contextlib.contextmanager
def missing_is_damage(home: Home, folder: int, digest: str) -> Iterator[None]:
    """Raise ``Damaged`` for a file of a set that is missing, or isn't a file, while the set has its name.

    A removed set loses its name first, so its missing files aren't damage.
    """
    try:
        yield
    except OSError as error:
        damage = damage_of(error)
        if damage is None or not is_at(folder, digest, home.sets):
            raise
        raise damaged(digest, damage) from error


def read_set(folder: int, digest: str) -> Manifest:
    """Return the manifest of a set that is open.

    Raises ``OSError``, ``Damaged`` for an invalid one, ``Unusable`` for one of another version or machine.
    """
    try:
        facts = read_manifest(folder, SET)
    except Damaged as error:
        raise damaged(digest, str(error)) from error
    match facts:
        case {"format": int(made)} if made != FORMAT:
            raise Unusable(
                f"the cached set {digest} has format {made}, and this standpipe has format {FORMAT}: "
                "another version made it"
            )
        case {"byte_order": "little" | "big" as order} if order != sys.byteorder:
            raise Unusable(
                f"the cached set {digest} was made on a machine with {order}-endian numbers, and this "
                f"one's are {sys.byteorder}-endian"
            )
        case {
            "format": int(),
            "byte_order": str(),
            "digest": str() as own,
            "label": str(label),
            "parts": dict(parts),
            "records": int(records),
            "kind": "encoded" | "images" | "samples" as kind,
            "row_bytes": int() | None as row_bytes,
        } if own == digest and 0 < records <= MOST_RECORDS:
            return Manifest(digest, label, parts, records, kind, row_bytes, Place.of(facts.get("spill")))
    raise damaged(digest, f"{SET} is damaged: a value is missing or wrong")
