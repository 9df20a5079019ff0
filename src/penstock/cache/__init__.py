"""The store that several jobs share: rows of a data set, kept in memory and on disk for whoever reads it next."""

from penstock.cache.description import Cache
from penstock.cache.identity import Identity

__all__ = ["Cache", "Identity"]
