"""The value that says after which transform a pipeline's cache stores rows."""

from __future__ import annotations

from dataclasses import dataclass

from standpipe.cache.description import Cache


@dataclass(frozen=True, slots=True)
class Cached:
    """A pipeline's cache, and the transform after which the cache stores rows.

    after   number of transforms that run before the cache, from 0
    chosen  True if ``after`` is final; False: ``plan()`` chooses another value
    why     the reason why ``plan()`` chose ``after``; empty if the user chose it
    """

    cache: Cache
    after: int
    chosen: bool = True
    why: str = ""
