"""Let a set grow: give it the next extent if the session, the file system and the machine have room."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from standpipe.cache.directory import Home
from standpipe.cache.extents import FULL, PAGE, Extent, adopt, extent_bytes, make
from standpipe.cache.filesystem import file_system
from standpipe.cache.removal import clear, evict
from standpipe.cache.room import ENTRY_BYTES, Room, room
from standpipe.cache.session import Session
from standpipe.cache.spilled import clear_spilled, names_of_sets
from standpipe.units import show_bytes


@dataclass(frozen=True, slots=True)
class Tier:
    """Memory, or the disk.

    home     whose file system it is
    folder   descriptor of the set's own there
    limit    bytes that the session may have there; None: what there is
    spilled  whether it is the disk
    """

    home: Home
    folder: int
    limit: int | None
    spilled: bool

    @property
    def above(self) -> int:
        """Descriptor of the folder that contains the sets of all sessions."""
        return self.home.spilled if self.spilled else self.home.sets

    def sets(self, session: Session) -> Iterable[str]:
        """Names in ``above`` of a session's sets."""
        return names_of_sets(self.home, session.sets) if self.spilled else session.sets


@dataclass(frozen=True, slots=True)
class Full:
    """The reason why there is no extent, in words."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wish:
    """An extent for a session's set, and what may be removed for it.

    home        where the sets lie that may go
    row_bytes   least room
    idle_after  seconds after its last use from which on another set may go; None: none may
    """

    home: Home
    session: Session
    row_bytes: int
    idle_after: float | None


def grow(tier: Tier, wish: Wish) -> Extent | Full:
    """The next extent of a tier. Who calls it holds the session's lock. Raises ``OSError`` when the system refuses."""
    if tier.limit is not None and tier.limit < wish.row_bytes:
        return Full(f"{show_bytes(tier.limit)} hold no row of {show_bytes(wish.row_bytes)}")
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


def _extent(tier: Tier, size: int, row_bytes: int, there: Room) -> Extent | None:
    # What the rows' entries in the table will take isn't for the rows.
    left = there.free_bytes * row_bytes // (row_bytes + ENTRY_BYTES) // PAGE * PAGE
    try:
        extent = adopt(tier.folder, size, row_bytes, left)
        if extent is None and min(size, left) >= row_bytes:
            extent = make(tier.folder, min(size, left), tier.home.access)
    except OSError as error:
        if error.errno in FULL:  # another program was faster
            return None
        raise
    return extent


def _evicted(wish: Wish, there: Room) -> bool:
    """Evict another set to make room; return True if one was. It is the session's if the session is at its
    limit.
    """
    among = set(wish.session.sets) if there.by_limit else set(os.listdir(wish.home.sets))  # noqa: PTH208
    return evict(wish.home, among, wish.idle_after)
