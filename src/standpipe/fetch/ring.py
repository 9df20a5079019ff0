"""The trainer's memory for fetched bytes: an anonymous file, of which only the trainer lends places."""

from __future__ import annotations

import mmap
import os

PIECE_BYTES = 8 << 20  # that get memory at once
ALIGNMENT = 64
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14


class PlacesRing:
    """A file of places. Pages get memory before a place is lent: later writes then don't change the file's time.

    size        bytes of all places
    descriptor  of the file
    path        by which this process and its workers read it
    populated   bytes that have memory
    """

    def __init__(self, size: int) -> None:
        self.size = -(-size // PIECE_BYTES) * PIECE_BYTES
        self.descriptor = os.memfd_create("standpipe-fetched", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, self.size)
        self._map = mmap.mmap(self.descriptor, self.size)
        self.path = b"/proc/%d/fd/%d" % (os.getpid(), self.descriptor)
        self.populated = 0
        self._free = [(0, self.size)]  # begin and end, in order

    def take(self, size: int, most: int | None = None) -> int | None:
        """Lend the first free place of ``size`` bytes; return its first byte, or None if there is none.

        most  bytes from the ring's beginning that may be lent; None: all
        """
        size = -(-size // ALIGNMENT) * ALIGNMENT
        for number, (begin, end) in enumerate(self._free):
            if begin + size > (self.size if most is None else most):
                return None
            if end - begin >= size:
                self._free[number : number + 1] = [(begin + size, end)] if end - begin > size else []
                self._populate(begin + size)
                return begin
        return None

    def give_back(self, begin: int, size: int) -> None:
        """Free a place, which nobody writes to any more."""
        joined: list[tuple[int, int]] = []
        for each in sorted([*self._free, (begin, begin + -(-size // ALIGNMENT) * ALIGNMENT)]):
            if joined and joined[-1][1] == each[0]:
                each = joined.pop()[0], each[1]
            joined.append(each)
        self._free = joined

    def close(self) -> None:
        """Close the file. It disappears when no process has it open."""
        self._map.close()
        os.close(self.descriptor)

    def _populate(self, end: int) -> None:
        while self.populated < end:
            begin, self.populated = self.populated, self.populated + PIECE_BYTES
            try:
                self._map.madvise(POPULATE_WRITE, begin, PIECE_BYTES)
            except OSError:  # an older kernel
                self._map[begin : self.populated] = bytes(PIECE_BYTES)
