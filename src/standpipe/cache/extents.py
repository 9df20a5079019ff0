"""The files that contain rows: extents.

A process appends to extents that it has locked, and takes over those of dead processes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from dataclasses import dataclass

from standpipe.cache.directory import NEW_FILE, Access, names_in, settle
from standpipe.cache.room import BLOCK_BYTES, ROWS
from standpipe.system.faults import faultpoint

PAGE = 4096
EXTENT_BYTES = 32 << 20
MOST_EXTENTS = 1024  # of a cache, about; larger caches have larger extents
SHARE = 16  # an extent of a small cache takes at most 1/16 of it
LEAST_ROWS = 8  # of an extent, so that the partly filled last page is a small part of it
MOST_NUMBER = (1 << 24) - 1
FULL = (errno.ENOSPC, errno.EDQUOT)
OPEN_EXTENT = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Extent:
    """A file of rows that this process may write to. End it by ``leave``, ``retire`` or ``abandon``.

    number      its number in its folder
    file        descriptor; its lock says that the file has an owner
    begin, end  range of free bytes
    """

    number: int
    file: int
    begin: int
    end: int

    def retire(self) -> None:
        """Free the bytes that weren't written, and leave the file to the store, which has its own descriptor.

        The file stays locked while the store has that descriptor, and so may write there.
        """
        with contextlib.suppress(OSError):
            os.ftruncate(self.file, data_end(self.file))  # cuts no row
        os.close(self.file)

    def abandon(self) -> None:
        """Leave the file to the store, which may hang while it writes: waiting for it would hang too.

        Another process frees unused bytes once the store is gone.
        """
        os.close(self.file)

    def leave(self) -> None:
        """Free unused bytes, and leave the file to the next process. The store must be closed."""
        fcntl.flock(self.file, fcntl.LOCK_UN)  # a forked child may have a copy of the descriptor
        self.retire()


def extent_bytes(limit: int, row_bytes: int) -> int:
    """Return the size of extents in a cache of ``limit`` bytes."""
    usual = min(max(EXTENT_BYTES, limit // MOST_EXTENTS), limit // SHARE)
    return -(-max(usual, LEAST_ROWS * row_bytes) // PAGE) * PAGE


def adopt(folder: int, size: int, row_bytes: int, room: int) -> Extent | None:
    """Take over an extent without an owner that is below ``size`` and has room for a row; else return None.

    room  bytes that may be added to the extent's present size
    """
    for name in names_in(folder):
        if (number := number_of(name)) is None:
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
    """Make a new extent. Raises ``OSError``; returns None if other processes took every name that was tried."""
    first = 1 + max((number_of(name) or 0 for name in names_in(folder) if name.startswith(ROWS)), default=-1)
    for number in range(first, min(first + 64, MOST_NUMBER)):
        try:
            file = os.open(f"{ROWS}{number:06d}", NEW_FILE, 0o600, dir_fd=folder)
        except FileExistsError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            settle(file, access, access.own_mode)
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
    """Free the bytes that killed processes had reserved: cut extents without an owner where their data ends."""
    for name in names_in(folder):
        if number_of(name) is None:
            continue
        with contextlib.suppress(OSError):  # the file has an owner, is another user's, or is gone
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if facts.st_size <= facts.st_blocks * BLOCK_BYTES:
                continue
            file = os.open(name, OPEN_EXTENT, dir_fd=folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(file, data_end(file))
            finally:
                os.close(file)


def data_end(file: int) -> int:
    """Return roughly where the last written byte ends: file systems count in pages. Raises ``OSError``."""
    size = os.fstat(file).st_size
    end = at = 0
    while at < size:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole follows
                return end
            raise
        end = at = os.lseek(file, at, os.SEEK_HOLE)
    return end


def number_of(name: str) -> int | None:
    """Return the number of an extent by its file name; None for another file."""
    digits = name.removeprefix(ROWS)
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None
