"""A cache's place in a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from standpipe.cache.description import Cache


@dataclass(frozen=True, slots=True)
class Cached:
    """A pipeline's cache, and its place among the transforms.

    after   number of transforms before the cache
    chosen  True if the place is settled; False: the plan chooses
    why     the plan's reason for its choice
    """

    cache: Cache
    after: int
    chosen: bool = True
    why: str = ""
