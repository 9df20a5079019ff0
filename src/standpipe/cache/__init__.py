"""The cache that several jobs share: rows of a data set, kept in memory and on disk."""

from standpipe.cache.cached import Cached
from standpipe.cache.description import Cache
from standpipe.cache.sessions import (
    CacheSession,
    create_cache,
    destroy_all_caches,
    destroy_cache,
    list_caches,
)
from standpipe.cache.sets.facts import CachedSet, Forecast, look, spills
from standpipe.cache.sets.opened import OpenSet
from standpipe.cache.sets.removal import CacheFreeReport
from standpipe.cache.sets.sets import open_set, queue_bytes
from standpipe.cache.verifying import CacheCheckReport, CacheSetCheckReport, verify_cache

__all__ = [
    "Cache",
    "CacheCheckReport",
    "CacheFreeReport",
    "CacheSession",
    "CacheSetCheckReport",
    "Cached",
    "CachedSet",
    "Forecast",
    "OpenSet",
    "create_cache",
    "destroy_all_caches",
    "destroy_cache",
    "list_caches",
    "look",
    "open_set",
    "queue_bytes",
    "spills",
    "verify_cache",
]
