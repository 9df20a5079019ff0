"""What a cached set is named by: all that its rows depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """What rows depend on. Jobs whose parts are equal share a set; any other part is another set.

    parts  such as the source's digest, the transforms with their parameters, versions; their order means nothing
    label  what people see of it, such as the name of a folder; it tells nothing apart
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
