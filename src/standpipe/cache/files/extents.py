"""Extents: the files of a cache set that contain rows.

A process locks an extent before it appends rows. It takes over extents whose process has died.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass

from standpipe import _native
from standpipe.cache.files.directory import NEW_FILE, Access, names_in, share_with_group
from standpipe.cache.files.space import BLOCK_BYTES, ROWS
from standpipe.system.faults import faultpoint
from standpipe.system.files import closing_descriptor

PAGE = 4096
EXTENT_BYTES = 32 << 20
MOST_EXTENTS = 1024  # approximate number of a cache's extents; larger caches have larger extents
EXTENTS_PER_CACHE = 16  # an extent of a small cache takes at most 1/16 of it
LEAST_ROWS = 8  # fewest rows of an extent, so that its partly filled last page is a small part of it
MOST_NUMBER = _native.MOST_EXTENTS - 1
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
OPEN_EXTENT = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Extent:
    """A file of rows that this process has locked for writing. End its use by ``leave``, ``retire`` or ``abandon``.

    number      number in the file's name
    file        file descriptor; its lock shows other processes that the file has an owner
    begin, end  the free range of the file, in bytes: from begin up to end
    """

    number: int
    file: int
    begin: int
    end: int

    def retire(self) -> None:
        """Cut off the bytes that weren't written, and close this file descriptor. The store has another one.

        The store may still write: the file stays locked until the store closes its file descriptor.
        """
        with contextlib.suppress(OSError):
            os.ftruncate(self.file, data_end(self.file))  # cuts no row
        os.close(self.file)

    def abandon(self) -> None:
        """Close this file descriptor without cutting the file: the store may hang in a write, and so would the cut.

        After the store's end, another process cuts off the unused bytes.
        """
        os.close(self.file)

    def leave(self) -> None:
        """Cut off unused bytes, unlock the file for the next process, and close it. The store must be closed."""
        fcntl.flock(self.file, fcntl.LOCK_UN)  # a forked child may have a copy of the descriptor
        self.retire()


def extent_bytes(limit: int, row_bytes: int) -> int:
    """Return the size in bytes of each extent in a cache of ``limit`` bytes: a multiple of the page size.

    row_bytes  size of a row; an extent has room for at least 8 of them
    """
    usual = min(max(EXTENT_BYTES, limit // MOST_EXTENTS), limit // EXTENTS_PER_CACHE)
    return -(-max(usual, LEAST_ROWS * row_bytes) // PAGE) * PAGE


def adopt_extent(folder: int, size: int, row_bytes: int, room: int) -> Extent | None:
    """Lock an extent that no process has locked and that has room for a row; None if there is none.

    folder     file descriptor of the folder with the extents
    size       bytes to which the extent may grow
    row_bytes  size of a row
    room       bytes that may be added to the extent's present size
    """
    for name in names_in(folder):
        if (number := extent_number(name)) is None:
            continue
        with contextlib.suppress(OSError):  # the file is another user's, or gone
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if facts.st_blocks * BLOCK_BYTES + row_bytes > size:
                continue
            file = os.open(name, OPEN_EXTENT, dir_fd=folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                begin = -(-data_end(file) // PAGE) * PAGE
                end = min(max(size, facts.st_size), facts.st_size + room)
                if end - begin >= row_bytes:
                    os.ftruncate(file, end)
                    return Extent(number, file, begin, end)
            except OSError:
                os.close(file)
                raise
            os.close(file)
    return None


def make(folder: int, size: int, access: Access) -> Extent | None:
    """Make and lock a new extent of ``size`` bytes. Raises ``OSError``.

    Returns None if other processes have taken each of the 64 names tried.

    folder  file descriptor of the folder that gets the extent
    """
    first = 1 + max(
        (extent_number(name) or 0 for name in names_in(folder) if name.startswith(ROWS)), default=-1
    )
    for number in range(first, min(first + 64, MOST_NUMBER)):
        try:
            file = os.open(f"{ROWS}{number:06d}", NEW_FILE, 0o600, dir_fd=folder)
        except FileExistsError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            share_with_group(file, access, access.own_mode)
            faultpoint("cache.extent")
            os.ftruncate(file, size)
        except BlockingIOError:  # another process has already taken it over
            os.close(file)
            continue
        except BaseException:
            os.close(file)
            raise
        return Extent(number, file, 0, size)
    return None


def trim(folder: int) -> None:
    """Cut extents that no process has locked where their data ends. This frees bytes that dead processes reserved.

    folder  file descriptor of the folder with the extents
    """
    for name in names_in(folder):
        if extent_number(name) is None:
            continue
        with contextlib.suppress(OSError):  # the file has an owner, is another user's, or is gone
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if facts.st_size <= facts.st_blocks * BLOCK_BYTES:
                continue
            with closing_descriptor(os.open(name, OPEN_EXTENT, dir_fd=folder)) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(file, data_end(file))


def data_end(file: int) -> int:
    """Return the end of a file's written data in bytes, rounded up by the file system. Raises ``OSError``.

    file  file descriptor
    """
    return max((end for _, end in data_ranges(file, 0)), default=0)


def data_ranges(file: int, at: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each range of written data in a sparse file, from byte ``at`` on. Raises ``OSError``.

    file  file descriptor
    """
    size = os.fstat(file).st_size
    while at < size:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole follows
                return
            raise
        at = os.lseek(file, begin, os.SEEK_HOLE)
        yield begin, at


def extent_number(name: str) -> int | None:
    """Return the number in an extent's file name; None if the file isn't an extent."""
    digits = name.removeprefix(ROWS)
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None
