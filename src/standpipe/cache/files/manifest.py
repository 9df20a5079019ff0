"""The description of a cache set, which its file ``set.json`` stores."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from standpipe.cache.files.directory import (
    DamagedCacheFile,
    Home,
    Unusable,
    damage_of,
    read_manifest,
    write_manifest,
)
from standpipe.cache.files.spilled import SET, SpillFolder
from standpipe.identity.cached_set import Identity
from standpipe.system.files import is_at

FORMAT = 1
MOST_RECORDS = 1 << 40

Kind = Literal["encoded", "images", "samples"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a cache set.

    digest     digest of ``parts``; also the name of the set's folder
    label      a name for people, such as that of the data's folder
    parts      values that determine the rows, such as the source and the transforms
    records    number of records of the data; the set has at most one row for each
    kind       kind of rows: ``"encoded"`` (the bytes of files), ``"images"`` or ``"samples"``
    row_bytes  size of each row; None: rows differ in size
    spill      folder of the set's rows on a disk; None: the set has no such folder
    """

    digest: str
    label: str
    parts: Mapping[str, str | int]
    records: int
    kind: Kind
    row_bytes: int | None
    spill: SpillFolder | None

    @classmethod
    def of(
        cls, identity: Identity, records: int, kind: Kind, row_bytes: int | None, spill: SpillFolder | None
    ) -> Manifest:
        """Return the description of a new set for an identity."""
        return cls(identity.digest, identity.label, identity.parts, records, kind, row_bytes, spill)

    @property
    def salt(self) -> int:
        """A number computed from ``parts`` that goes into the checksum of every entry of the set's table."""
        return Identity(self.parts, self.label).salt

    def at(self, spill: SpillFolder) -> Manifest:
        """Return a copy of the description in which ``spill`` is the set's folder on a disk."""
        return replace(self, spill=spill)

    def write(self, home: Home, folder: int) -> None:
        """Write the description to ``set.json`` in a set's folder, given by file descriptor. Raises ``OSError``."""
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


def damaged(digest: str, what: str) -> DamagedCacheFile:
    """Return the error for the damaged set ``digest``. ``what`` is the damage, such as ``"table is missing"``."""
    return DamagedCacheFile(f"the cached set {digest} is unusable: its {what}")


def remedied(error: Exception, home: Home, name: str) -> str:
    """Return the text of an error about a set of the session ``name``, with the command that removes the cache."""
    match error:
        case DamagedCacheFile():
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
    """Raise ``DamagedCacheFile`` if the ``with`` block finds a file of a set missing or not regular.

    folder  file descriptor of the set's folder

    It lets the ``OSError`` pass if another process has removed the set: ``digest`` no longer names ``folder``.
    """
    try:
        yield
    except OSError as error:
        damage = damage_of(error)
        if damage is None or not is_at(folder, digest, home.sets):
            raise
        raise damaged(digest, damage) from error


def read_set(folder: int, digest: str) -> Manifest:
    """Read ``set.json`` of a set.

    folder  file descriptor of the set's folder
    digest  digest that the file must contain

    Raises ``OSError``, ``DamagedCacheFile`` for an invalid file, ``Unusable`` if another version or machine wrote it.
    """
    try:
        facts = read_manifest(folder, SET)
    except DamagedCacheFile as error:
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
            return Manifest(
                digest, label, parts, records, kind, row_bytes, SpillFolder.of(facts.get("spill"))
            )
    raise damaged(digest, f"{SET} is damaged: a value is missing or wrong")
