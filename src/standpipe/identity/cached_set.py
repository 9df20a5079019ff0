"""The identity of a cache set: all that its rows depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """All that rows depend on. Jobs with equal parts share a set; any other part makes another set.

    parts  such as the source's digest, the transforms with their parameters, versions; their order doesn't
    matter
    label  a name for people, such as that of a folder; it doesn't count
    """

    parts: Mapping[str, str | int]
    label: str

    @property
    def digest(self) -> str:
        """32 hex digits."""
        import json
        from hashlib import blake2b

        text = json.dumps(dict(self.parts), sort_keys=True)  # ASCII, whatever bytes a path in it has
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def salt(self) -> int:
        """64 bits of it, which every entry of the set's table is made with: another set's entry is no entry."""
        return int(self.digest[:16], 16)
