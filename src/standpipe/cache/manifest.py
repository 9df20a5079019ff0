"""What a set says of itself: ``set.json``."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from standpipe.cache.directory import Home, read_manifest, write_manifest
from standpipe.cache.identity import Identity
from standpipe.cache.spilled import SET, Place
from standpipe.errors import CacheError

FORMAT = 1
MOST_RECORDS = 1 << 40

Kind = Literal["encoded", "images", "samples"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A set's own facts.

    digest     of its identity, which is its name too
    label      for people
    parts      of its identity
    records    that it may have rows of
    kind       of its rows: ``"encoded"``, as files have them; ``"images"``; ``"samples"``
    row_bytes  of each row; None: they differ
    spill      where its rows on a disk are; None: it has none
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
        """Of a new set."""
        return cls(identity.digest, identity.label, identity.parts, records, kind, row_bytes, spill)

    @property
    def salt(self) -> int:
        """What every entry of its table is made with."""
        return Identity(self.parts, self.label).salt

    def at(self, spill: Place) -> Manifest:
        """The same set, with a folder on a disk."""
        return replace(self, spill=spill)

    def write(self, home: Home, folder: int) -> None:
        """Write it into a set's folder. Raises ``OSError``."""
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


def read_set(folder: int, digest: str) -> Manifest:
    """The manifest of a set that is open. Raises ``OSError``, and ``CacheError`` for one that can't be used here."""
    facts = read_manifest(folder, SET)
    if facts.get("format") != FORMAT:
        raise CacheError(
            f"the cached set {digest} is of format {facts.get('format')}, and this standpipe has format {FORMAT}: "
            "another version made it; standpipe cache destroy removes it"
        )
    if facts.get("byte_order") != sys.byteorder:
        raise CacheError(
            f"the cached set {digest} was made on a machine with {facts.get('byte_order')}-endian numbers, and this "
            f"one's are {sys.byteorder}-endian; standpipe cache destroy removes it"
        )
    match facts:
        case {
            "digest": str() as own,
            "label": str(label),
            "parts": dict(parts),
            "records": int(records),
            "kind": "encoded" | "images" | "samples" as kind,
            "row_bytes": int() | None as row_bytes,
        } if own == digest and 0 < records <= MOST_RECORDS:
            return Manifest(digest, label, parts, records, kind, row_bytes, Place.of(facts.get("spill")))
    raise CacheError(f"set.json of the cached set {digest} is damaged; standpipe cache destroy removes it")
