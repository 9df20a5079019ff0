"""The identity of a cache set: the values that its rows depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """The values that the rows of a cache set depend on. Jobs with equal ``parts`` share a set; other jobs don't.

    parts  values by name, such as the source's digest, transforms with their parameters, and versions, in any order
    label  a name for people, such as that of a folder; it isn't part of the digest
    """

    parts: Mapping[str, str | int]
    label: str

    @property
    def digest(self) -> str:
        """A digest of the parts: 32 hexadecimal digits."""
        import json
        from hashlib import blake2b

        text = json.dumps(dict(self.parts), sort_keys=True)  # ASCII, even for paths that aren't UTF-8
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def salt(self) -> int:
        """The first 64 bits of the digest.

        It goes into the checksum of every entry of a set's table, so that a store rejects another set's entry.
        """
        return int(self.digest[:16], 16)
