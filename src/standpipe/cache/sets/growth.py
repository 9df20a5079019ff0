"""Provide the next extent of a cache set if the session, the file system and the machine have room."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from standpipe.cache.files.directory import Home
from standpipe.cache.files.extents import DISK_FULL, PAGE, Extent, adopt_extent, extent_bytes, make
from standpipe.cache.files.session import Session
from standpipe.cache.files.space import ENTRY_BYTES, CacheSpace, room
from standpipe.cache.files.spilled import clear_spilled, names_of_sets
from standpipe.cache.sets.removal import clear, evict
from standpipe.system.filesystem import file_system
from standpipe.units import show_bytes


@dataclass(frozen=True, slots=True)
class Tier:
    """A storage level for a set's rows: the cache's directory (memory by default), or the disk folder ``spill``.

    home     standpipe's folder on that file system
    folder   file descriptor of the set's own folder there
    limit    bytes that the session may use there; None: all that the file system has
    spilled  True for the disk folder, False for the cache's directory
    """

    home: Home
    folder: int
    limit: int | None
    spilled: bool

    @property
    def above(self) -> int:
        """File descriptor of the folder that contains the folders of all sessions' sets on this level."""
        return self.home.spilled if self.spilled else self.home.sets

    def sets(self, session: Session) -> Iterable[str]:
        """Return the names of a session's sets on this level: the folder names in ``above``."""
        return names_of_sets(self.home, session.sets) if self.spilled else session.sets


@dataclass(frozen=True, slots=True)
class Full:
    """The answer that there is no room for an extent; ``reason`` is the cause, in words."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for an extent, and the conditions for evicting other sets for it.

    home        standpipe's folder with the sets that may be evicted
    session     session that asks for the extent
    row_bytes   size of a row: the smallest useful extent
    idle_after  seconds since its last use after which another set may be evicted; None: no set may
    """

    home: Home
    session: Session
    row_bytes: int
    idle_after: float | None


def grow(tier: Tier, wish: Wish) -> Extent | Full:
    """Return a locked extent with free bytes on one storage level, or the reason why there is no room.

    It first clears what dead processes left, and then evicts idle sets until the extent fits. The caller holds
    the session's lock. Raises ``OSError`` if the operating system refuses.
    """
    if tier.limit is not None and tier.limit < wish.row_bytes:
        return Full(f"a limit of {show_bytes(tier.limit)} can't hold a row of {show_bytes(wish.row_bytes)}")
    limit = file_system(tier.above).total_bytes if tier.limit is None else tier.limit
    size = extent_bytes(limit, wish.row_bytes)
    cleared = False
    while True:
        there = room(tier.above, tier.sets(wish.session), tier.limit, tier.home.path)
        extent = _extent(tier, size, wish.row_bytes, there)
        if extent is not None:
            return extent
        if not cleared:
            clear(wish.home)
            clear_spilled(tier.home)
            cleared = True
        elif not _evicted(wish, there):
            return Full(there.bound)


def _extent(tier: Tier, size: int, row_bytes: int, there: CacheSpace) -> Extent | None:
    # The rows' entries in the table take a part of the free bytes.
    left = there.free_bytes * row_bytes // (row_bytes + ENTRY_BYTES) // PAGE * PAGE
    try:
        extent = adopt_extent(tier.folder, size, row_bytes, left)
        if extent is None and min(size, left) >= row_bytes:
            extent = make(tier.folder, min(size, left), tier.home.access)
    except OSError as error:
        if error.errno in DISK_FULL:  # another program has taken the free bytes
            return None
        raise
    return extent


def _evicted(wish: Wish, there: CacheSpace) -> bool:
    """Evict the set that has been idle longest; return True if a set was evicted.

    there  the present limits: if the session's own limit is the lowest, only the session's sets may be evicted
    """
    among = set(wish.session.sets) if there.by_limit else set(os.listdir(wish.home.sets))  # noqa: PTH208
    return evict(wish.home, among, wish.idle_after)
