"""Count what a cache uses, and what it may still use of its limit, the file system and the machine's memory."""

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

MEMORY_RESERVE = 16  # one part in so many of the machine's or container's memory is left to others
ROWS = "rows-"  # what names of extents begin with
ENTRY_BYTES = 48  # of a row in the table
OTHERS_BYTES = 16 << 10  # of a limit: a set's small files, some of which come last
BLOCK_BYTES = 512  # what st_blocks counts


@dataclass(frozen=True, slots=True)
class Taken:
    """The bytes that files use.

    held      bytes written, and bytes given to a process that is about to write them
    promised  the latter alone
    """

    held: int = 0
    promised: int = 0

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.held + other.held, self.promised + other.promised)


@dataclass(frozen=True, slots=True)
class Room:
    """The bytes that may still be used.

    free_bytes  their number
    bound       what limits them, in words
    by_limit    True if the cache's own limit does
    """

    free_bytes: int
    bound: str
    by_limit: bool


def taken(folder: int) -> Taken:
    """Return what a set's files in one folder use. An extent's size is what was given; its blocks are what
    was written.
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
    """Return what several sets use together: ``names`` of ``above``; missing ones use nothing."""
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
    """Return how much more a session may use of a file system.

    above  descriptor of the folder with the sets of all sessions
    sets   names of the session's sets
    limit  the session's limit; None: only the file system's
    path   path for messages
    """
    bounds = _of_system(file_system(above), taken_by(above, names_in(above)).promised, path)
    if limit is not None:
        left = limit - OTHERS_BYTES - taken_by(above, sets).held
        bounds.append(Room(left, f"it has the {show_bytes(limit)} that it may have", by_limit=True))
    least = min(bounds, key=lambda bound: bound.free_bytes)
    return Room(max(least.free_bytes, 0), least.bound, least.by_limit)


def free_bytes(folder: int | str) -> int:
    """Return what a first cache could use of a folder's file system, without a limit of its own."""
    return max(min(bound.free_bytes for bound in _of_system(file_system(folder), 0, "")), 0)


def _of_system(here: FileSystem, promised: int, path: str) -> list[Room]:
    """Return what a file system and the machine allow."""
    bounds = [Room(here.free_bytes - promised, f"{path}, a {here.kind}, has no room left", by_limit=False)]
    if here.in_memory:
        free = _free_memory() - promised
        bounds.append(Room(free, "the machine or container has no memory to spare", by_limit=False))
    return bounds


def _free_memory() -> int:
    """Return the bytes of the machine or container that a cache may use: tmpfs counts as used and isn't
    reclaimed.
    """
    used, size = memory_in_use()
    return size - used - size // MEMORY_RESERVE
