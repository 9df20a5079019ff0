"""The store that several jobs share: rows of a data set, kept in memory and on disk for whoever reads it next."""

from penstock.cache.cached import Cached
from penstock.cache.description import Cache
from penstock.cache.facts import CachedSet, Forecast, look, spills
from penstock.cache.filesystem import file_system
from penstock.cache.identity import Identity
from penstock.cache.opened import OpenSet
from penstock.cache.removal import FreedCache
from penstock.cache.sessions import CacheSession, create_cache, destroy_cache, list_caches, stop_caches
from penstock.cache.sets import open_set, queue_bytes
from penstock.cache.verifying import CheckedCache, CheckedSet, verify_cache

__all__ = [
    "Cache",
    "CacheSession",
    "Cached",
    "CachedSet",
    "CheckedCache",
    "CheckedSet",
    "Forecast",
    "FreedCache",
    "Identity",
    "OpenSet",
    "create_cache",
    "destroy_cache",
    "file_system",
    "list_caches",
    "look",
    "open_set",
    "queue_bytes",
    "spills",
    "stop_caches",
    "verify_cache",
]
