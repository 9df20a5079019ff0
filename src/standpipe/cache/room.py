"""Count the bytes that a cache uses, and those that it may still use.

Its own limit, the file system and the machine's memory limit it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from standpipe.cache.directory import READ_FOLDER, names_in
from standpipe.cache.filesystem import FileSystem, file_system
from standpipe.system.machine import memory_in_use
from standpipe.units import show_bytes

MEMORY_RESERVE = 16  # 1/16 of the machine's or container's memory is left to others
ROWS = "rows-"  # prefix of extents' names
ENTRY_BYTES = 48  # of a row in the table
OTHERS_BYTES = 16 << 10  # of a limit, for a set's small files, some of which are written last
BLOCK_BYTES = 512  # unit of st_blocks


@dataclass(frozen=True, slots=True)
class Taken:
    """The bytes that files use.

    held      bytes written, and bytes reserved by a process that is about to write them
    promised  the reserved bytes alone
    """

    held: int = 0
    promised: int = 0

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.held + other.held, self.promised + other.promised)


@dataclass(frozen=True, slots=True)
class Room:
    """The bytes that may still be used.

    free_bytes  their number
    bound       the reason for the limit, in words
    by_limit    True if the cache's own limit is the lowest
    """

    free_bytes: int
    bound: str
    by_limit: bool


def taken(folder: int) -> Taken:
    """Return the bytes that a set's files in one folder use.

    An extent's size includes reserved bytes; its blocks are those that were written.
    """
    sum_ = Taken()
    for name in names_in(folder):
        with contextlib.suppress(FileNotFoundError):
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(facts.st_mode):
                continue
            written = facts.st_blocks * BLOCK_BYTES
            promised = max(facts.st_size - written, 0) if name.startswith(ROWS) else 0
            sum_ += Taken(written + promised, promised)
    return sum_


def taken_by(above: int, names: Iterable[str]) -> Taken:
    """Return the bytes that several sets use together: ``names`` in ``above``. Missing sets use nothing."""
    sum_ = Taken()
    for name in names:
        with contextlib.suppress(OSError):
            folder = os.open(name, READ_FOLDER, dir_fd=above)
            try:
                sum_ += taken(folder)
            finally:
                os.close(folder)
    return sum_


def room(above: int, sets: Iterable[str], limit: int | None, path: str) -> Room:
    """Return the bytes that a session may still use on a file system.

    above  descriptor of the folder with the sets of all sessions
    sets   names of the session's sets
    limit  the session's limit; None: only the file system's
    path   path for messages
    """
    bounds = _of_system(file_system(above), taken_by(above, names_in(above)).promised, path)
    if limit is not None:
        left = limit - OTHERS_BYTES - taken_by(above, sets).held
        bounds.append(Room(left, f"its limit of {show_bytes(limit)} is reached", by_limit=True))
    least = min(bounds, key=lambda bound: bound.free_bytes)
    return Room(max(least.free_bytes, 0), least.bound, least.by_limit)


def free_bytes(folder: int | str) -> int:
    """Return the bytes that a first cache could use on a folder's file system, without its own limit."""
    return max(min(bound.free_bytes for bound in _of_system(file_system(folder), 0, "")), 0)


def _of_system(here: FileSystem, promised: int, path: str) -> list[Room]:
    """Return the limits of a file system and the machine."""
    bounds = [Room(here.free_bytes - promised, f"{path}, a {here.kind}, has no room left", by_limit=False)]
    if here.in_memory:
        free = _free_memory() - promised
        bounds.append(Room(free, "the machine or container has no memory to spare", by_limit=False))
    return bounds


def _free_memory() -> int:
    """Return the bytes of the machine or container that a cache may use.

    Memory of a tmpfs counts as used, and isn't reclaimable.
    """
    used, size = memory_in_use()
    return size - used - size // MEMORY_RESERVE
