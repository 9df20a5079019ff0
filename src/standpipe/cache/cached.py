"""A cache's place in a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from standpipe.cache.description import Cache


@dataclass(frozen=True, slots=True)
class Cached:
    """That rows are kept, and at which place.

    after   transforms in front of it
    chosen  whether that is settled; else the plan chooses
    why     what the plan says of its choice
    """

    cache: Cache
    after: int
    chosen: bool = True
    why: str = ""
