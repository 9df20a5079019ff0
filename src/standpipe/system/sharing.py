"""What the loaders on this machine share: processors, memory, and whose turn it is to try something.

Each loader holds locks on its own part of one file, and others see which there are. Nothing is written: the locks say
all, and the kernel drops those of a process that ends, however it ends. The file is the null device, which is there
anyway and open to everybody, so that nothing is left of a process that is killed.

::

    region of a loader   byte 0                 it is there
                         from 1 on              a byte for each processor, by its number, that it could use
                                                more of: it is hungry, its training loop waits for it
                         from 2^24 (1 + p) on   as many bytes as it may take MiB of memory yet, for each pool p
                                                that this comes from
    above all regions    byte 0                 its turn

A pool is the machine's memory, 0, or a container's, by ``machine.memory_pools``.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import struct
import threading
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path

FILE = Path("/dev/null")
LOADERS = 256
REGION, POOL = 1 << 42, 1 << 24
TURN = LOADERS * REGION
MIB = 1 << 20
CPUS, MOST_CPUS = 1, POOL - 1
FLOCK = struct.Struct("@hhqqi0q")  # type, whence, start, length, process; the kernel's struct flock


class Claim:
    """One loader's part. It lets go when it is closed, or nobody has it any more.

    cpus   numbers of the processors that it runs on: who runs on none of these takes none of its part
    pools  where its memory comes from

    Where such a file can't be locked, or there are too many loaders, every loader is alone.
    """

    def __init__(self, cpus: Collection[int] = (0,), pools: Collection[int] = (0,)) -> None:
        self._cpus, self._pools = [*_ranges(cpus)], pools
        self._pid = os.getpid()
        self._promised = 0  # MiB
        self._is_hungry = self._has_turn = False
        self._number: int | None = None
        self._file: int | None = None
        self._lock = threading.Lock()  # of the file, which one thread closes and others use
        with contextlib.suppress(OSError):
            self._file = os.open(FILE, os.O_RDWR | os.O_CLOEXEC)
            self._number = next((number for number in range(LOADERS) if self._set(number * REGION, 1)), None)
        _claims.add(self)

    def promise(self, memory: int) -> None:
        """It may take so many bytes of memory, beyond what it has."""
        mib = min(max(-(-memory // MIB), 0), POOL)
        number = self._number
        if number is None or mib == self._promised or os.getpid() != self._pid:
            return
        for pool in self._pools:
            begin = number * REGION + (1 + pool) * POOL
            if mib > self._promised:
                self._set(begin, mib)
            else:
                self._set(begin + mib, self._promised - mib, fcntl.F_UNLCK)
        self._promised = mib

    def hungry(self, is_so: bool) -> None:
        """Whether its training loop waits for it, so that it can use its share of the processors."""
        if (number := self._number) is not None and is_so != self._is_hungry:
            for first, count in self._cpus:
                begin = number * REGION + CPUS + first
                self._set(begin, count, fcntl.F_WRLCK if is_so else fcntl.F_UNLCK)
            self._is_hungry = is_so

    def turn(self, wanted: bool) -> bool:
        """Take the turn, or give it back. Whether it is this loader's; always if it is alone."""
        if self._number is None:
            return True
        if wanted != self._has_turn:
            done = self._set(TURN, 1, fcntl.F_WRLCK if wanted else fcntl.F_UNLCK)
            self._has_turn = wanted and done
        return self._has_turn

    def rest(self) -> None:
        """Nothing is to be made for now: others may have its part, and the turn."""
        self.hungry(False)
        self.turn(False)

    def hungry_others(self) -> int:
        """Other loaders on some of its processors whose training loops wait for them."""
        hungry = [number for number in self._others() if self._held(number * REGION + CPUS, MOST_CPUS)]
        return sum(
            any(self._held(number * REGION + CPUS + first, count) for first, count in self._cpus)
            for number in hungry
        )

    def promised_others(self, pool: int = 0) -> int:
        """Bytes of a pool's memory that others may take yet."""
        begin = (1 + pool) * POOL
        return MIB * sum(self._held(number * REGION + begin, POOL) for number in self._others())

    def close(self) -> None:
        """Let go."""
        if self._number is not None and os.getpid() == self._pid:
            self._set(0, 0, fcntl.F_UNLCK)  # all: children that were forked may have the file open yet
        with self._lock:
            file, self._file, self._number = self._file, None, None
            if file is not None:
                os.close(file)

    __del__ = close

    def forked(self) -> None:
        """In a forked child: the parent's locks shall not be there longer than the parent."""
        self._lock = threading.Lock()  # somebody may have held it
        self.close()

    def _others(self) -> list[int]:
        if self._number is None:
            return []
        return [number for number in range(LOADERS) if self._held(number * REGION, 1)]

    def _set(self, begin: int, length: int, kind: int = fcntl.F_WRLCK) -> bool:
        """Lock, or unlock; False where somebody else has a lock on any of it."""
        with self._lock:
            if self._file is None:
                return False
            try:
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, FLOCK.pack(kind, os.SEEK_SET, begin, length, 0))
            except OSError:
                return False
            return True

    def _held(self, begin: int, length: int) -> int:
        """How many of these bytes somebody else has locked, who has locked them in one piece; 0 for none."""
        with self._lock:
            if self._file is None:
                return 0
            try:
                asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, begin, length, 0)
                kind, _, _, held, _ = FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked))
            except OSError:
                return 0
            return 0 if kind == fcntl.F_UNLCK else held


def _ranges(numbers: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers as first ones and how many follow one another."""
    ordered = sorted(number for number in numbers if number < MOST_CPUS)
    for _, together in itertools.groupby(enumerate(ordered), key=lambda each: each[1] - each[0]):
        (_, first), *others = together
        yield first, 1 + len(others)


_claims: weakref.WeakSet[Claim] = weakref.WeakSet()


def _forked() -> None:
    for claim in list(_claims):
        claim.forked()


os.register_at_fork(after_in_child=_forked)


def promised(pool: int = 0) -> int:
    """Bytes of a pool's memory that other loaders may take yet, as far as is known."""
    claim = Claim()
    try:
        return claim.promised_others(pool)
    finally:
        claim.close()
