"""Count the bytes that a cache uses, and the bytes that it may still use.

The cache's own limit, its file system and the machine's memory set a limit; the lowest counts.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from standpipe import _native
from standpipe.cache.files.directory import READ_FOLDER, names_in
from standpipe.system.files import closing_descriptor
from standpipe.system.filesystem import FileSystem, file_system
from standpipe.system.machine import memory_in_use
from standpipe.units import show_bytes

MEMORY_RESERVE = 16  # 1/16 of the machine's or container's memory is left to others
ROWS = "rows-"  # prefix of extents' names
ENTRY_BYTES = _native.CACHE_ENTRY_BYTES  # size of a row's entry in the table
OTHERS_BYTES = 16 << 10  # kept free below a limit for a set's small files, some of which are written last
BLOCK_BYTES = 512  # unit of st_blocks


@dataclass(frozen=True, slots=True)
class Taken:
    """The bytes that files of cache sets use.

    held      bytes written, plus bytes reserved for rows that aren't written yet
    promised  the reserved bytes only
    """

    held: int = 0
    promised: int = 0

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.held + other.held, self.promised + other.promised)


@dataclass(frozen=True, slots=True)
class CacheSpace:
    """The bytes that a session may still use on a file system.

    free_bytes  number of bytes; ``room`` never returns a negative one
    bound       the limit that allows no more, as part of a message
    by_limit    True if this limit is the cache's own, and not the file system's or the machine's
    """

    free_bytes: int
    bound: str
    by_limit: bool


def taken(folder: int) -> Taken:
    """Return the bytes that a set's files in one folder use, given by file descriptor.

    An extent's size includes reserved bytes; its count of blocks includes only written ones.
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
    """Return the bytes that several sets use together. Missing sets use nothing.

    above  file descriptor of the folder with the sets' folders
    names  names of the sets' folders
    """
    sum_ = Taken()
    for name in names:
        with (
            contextlib.suppress(OSError),
            closing_descriptor(os.open(name, READ_FOLDER, dir_fd=above)) as folder,
        ):
            sum_ += taken(folder)
    return sum_


def room(above: int, sets: Iterable[str], limit: int | None, path: str) -> CacheSpace:
    """Return the bytes that a session may still use on a file system.

    above  file descriptor of the folder that contains the folders of all sessions' sets
    sets   folder names of the session's own sets
    limit  bytes that the session may use; None: only the file system and the machine limit it
    path   path of ``above``, for messages
    """
    bounds = _of_system(file_system(above), taken_by(above, names_in(above)).promised, path)
    if limit is not None:
        left = limit - OTHERS_BYTES - taken_by(above, sets).held
        bounds.append(CacheSpace(left, f"its limit of {show_bytes(limit)} is reached", by_limit=True))
    least = min(bounds, key=lambda bound: bound.free_bytes)
    return CacheSpace(max(least.free_bytes, 0), least.bound, least.by_limit)


def free_bytes(folder: int | str) -> int:
    """Return the bytes that a cache without a limit could use on the file system of ``folder``.

    folder  path, or file descriptor
    """
    return max(min(bound.free_bytes for bound in _of_system(file_system(folder), 0, "")), 0)


def _of_system(here: FileSystem, promised: int, path: str) -> list[CacheSpace]:
    """Return the free bytes by the file system, and by the machine's memory if the files take memory.

    promised  bytes that processes have reserved there; they are subtracted
    """
    bounds = [
        CacheSpace(here.free_bytes - promised, f"{path}, a {here.kind}, has no room left", by_limit=False)
    ]
    if here.in_memory:
        free = _free_memory() - promised
        bounds.append(CacheSpace(free, "the machine or container has no memory to spare", by_limit=False))
    return bounds


def _free_memory() -> int:
    """Return the bytes of the machine or container that a cache may use.

    Memory of a tmpfs counts as used, and isn't reclaimable.
    """
    used, size = memory_in_use()
    return size - used - size // MEMORY_RESERVE
