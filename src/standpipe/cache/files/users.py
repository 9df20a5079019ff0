"""The loaders that use a cache set, and the counters of all loaders so far.

Each loader has its own file in the set's ``users/``, which stays locked while the loader lives. So an unlocked
file belongs to a loader that has ended. The next process that locks ``users/`` adds the counters of such files
to ``totals.json``, and removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from standpipe import _native
from standpipe.cache.files.directory import (
    READ_FILE,
    Home,
    is_held,
    names_in,
    new_file,
    read_manifest,
    write_manifest,
)
from standpipe.cache.files.moment import TimeOfUse
from standpipe.errors import CacheError
from standpipe.system.faults import faultpoint
from standpipe.system.files import closing_descriptor, write_all

TOTALS = "totals.json"
# Errors of reading JSON that isn't valid or has values of unexpected types.
FOREIGN = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
FILE_BYTES = (
    2048  # of a user's file: within one page and written at once, so a full disk fails when it is made
)
NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of what loaders did with a cache set.

    hits, misses                   rows that were looked up and found; looked up and not found
    stored, skipped                rows that were stored; not stored, for lack of room or time
    stale                          rows found whose file had changed since
    errors                         rows that had wrong bytes, or couldn't be read or written
    hit_bytes, stored_bytes        bytes of the rows found; of the rows stored
    spilled_hits, spilled_stored   rows found on the disk; stored on the disk
    """

    hits: int = 0
    misses: int = 0
    stored: int = 0
    skipped: int = 0
    stale: int = 0
    errors: int = 0
    hit_bytes: int = 0
    stored_bytes: int = 0
    spilled_hits: int = 0
    spilled_stored: int = 0

    @classmethod
    def of(cls, counted: _native.CacheStats) -> Counts:
        """Return a copy of a native store's counters."""
        return cls(**{each.name: int(getattr(counted, each.name)) for each in fields(cls)})

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Counts:
        """Return the counters in a JSON object; missing ones are 0."""
        return cls(**{each.name: int(facts.get(each.name, 0)) for each in fields(cls)})

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of a cache set by one or several loaders. ``+`` joins two.

    counts  sum of the loaders' counters
    alive   number of these loaders that live
    last    time of the latest use; None: unknown
    nodes   numbers of the memory (NUMA) nodes whose CPUs stored rows
    """

    counts: Counts = Counts()
    alive: int = 0
    last: TimeOfUse | None = None
    nodes: tuple[int, ...] = ()

    @property
    def idle_s(self) -> float:
        """Seconds since the set's last use; 0 while a loader uses the set, infinite if unknown."""
        return 0.0 if self.alive else self.last.ago_s if self.last else float("inf")

    def __add__(self, other: Usage) -> Usage:
        lasts = [usage.last for usage in (self, other) if usage.last is not None]
        return Usage(
            self.counts + other.counts,
            self.alive + other.alive,
            min(lasts, key=lambda moment: moment.ago_s, default=None),
            tuple(sorted({*self.nodes, *other.nodes})),
        )


class User:
    """One loader's locked file in a set's ``users/``. The loader that makes it closes it."""

    def __init__(self, home: Home, users: int) -> None:
        """Make and lock the file in ``users``, a file descriptor of the set's ``users/``.

        Raises ``OSError`` if the disk is full, the user lacks permission, or the set is gone.
        """
        with new_file(home, home.access.own_mode) as (name, self._file):
            self.name = name
            self.stamp(Counts())
            os.rename(name, name, src_dir_fd=home.temporary, dst_dir_fd=users)

    def stamp(self, counts: Counts) -> None:
        """Write the present time and the counters to the file. Raises ``OSError``."""
        nodes = nodes_of_cpus() if counts.stored else ()
        write_all(self._file, _packed(Usage(counts, 0, TimeOfUse.now(), nodes)), 0)

    def close(self) -> None:
        """Unlock and close the file, so that this loader counts as ended. ``fold`` adds its counters later."""
        fcntl.flock(self._file, fcntl.LOCK_UN)  # closing isn't enough: a forked child may have a copy
        os.close(self._file)


def usage(folder: int, users: int) -> Usage:
    """Return the use of a set by all loaders so far: the totals, and the files in ``users/``.

    folder, users  file descriptors of the set's folder and of its ``users/``

    Raises ``OSError`` if a folder can't be read. The set may be removed during the call.
    """
    total, folded = _totals(folder)
    for name in names_in(users):
        if name not in folded:
            total += _read(users, name, alive=is_held(users, name))
    return total


def is_used(users: int) -> bool:
    """Return True if a living loader uses a set. ``users`` is the file descriptor of the set's ``users/``."""
    return any(is_held(users, name) for name in names_in(users))


def fold(home: Home, folder: int, users: int) -> None:
    """Add the counters of ended loaders to totals.json, and remove their files from ``users/``.

    folder, users  file descriptors of the set's folder and of its ``users/``

    It does nothing while another process has locked ``users/``. Raises ``OSError``.
    """
    with locked_folder(users) as free:
        if not free:
            return
        gone = [name for name in names_in(users) if not is_held(users, name)]
        total, folded = _totals(folder)
        for name in gone:
            if name not in folded:
                total += _read(users, name, alive=False)
        # The sum keeps their names until their files are gone, so that nothing is counted twice after a kill.
        write_manifest(home, folder, TOTALS, {**_facts(total), "folded": gone})
        faultpoint("cache.fold")
        for name in gone:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=users)


@contextlib.contextmanager
def locked_folder(folder: int) -> Iterator[bool]:
    """Lock a folder for a ``with`` block; yield True, or at once False if another process has the lock.

    folder  file descriptor
    """
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def nodes_of_cpus() -> tuple[int, ...]:
    """Return the numbers of the memory (NUMA) nodes of this process's CPUs; ``(0,)`` if unknown.

    The kernel places memory that this process writes first on these nodes.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    found = []
    with contextlib.suppress(OSError, ValueError):
        for node in NODES.glob("node[0-9]*"):
            cpus: set[int] = set()
            for part in (node / "cpulist").read_text().strip().split(","):
                first, _, last = part.partition("-")
                cpus.update(range(int(first), int(last or first) + 1) if part else ())
            if cpus & usable:
                found.append(int(node.name.removeprefix("node")))
    return tuple(sorted(found)) or (0,)


def _totals(folder: int) -> tuple[Usage, list[str]]:
    """Return the totals in totals.json, and the names of the files in ``users/`` that they include.

    folder  file descriptor of the set's folder

    A missing or damaged file counts as empty, since no decision depends on its counters.
    """
    try:
        facts = read_manifest(folder, TOTALS)
        return _usage(facts), [str(name) for name in facts.get("folded", [])]
    except (FileNotFoundError, CacheError, *FOREIGN):
        return Usage(), []


def _read(users: int, name: str, *, alive: bool) -> Usage:
    """Return the use that the file ``name`` in ``users/`` records.

    users  file descriptor of the set's ``users/``
    alive  True if the file's loader lives

    If the file is gone or half written, the result has only ``alive``.
    """
    here = Usage(alive=int(alive))
    try:
        with closing_descriptor(os.open(name, READ_FILE, dir_fd=users)) as file:
            return here + _unpacked(os.pread(file, FILE_BYTES, 0))
    except (OSError, *FOREIGN):
        return here


def _packed(usage: Usage) -> bytes:
    """Return the bytes of a loader's file: a CRC, then JSON padded to 2,048 bytes in all.

    The CRC detects a file that is half new and half old.
    """
    import json

    text = json.dumps(_facts(usage)).encode().ljust(FILE_BYTES - 9)
    return b"%08x\n" % zlib.crc32(text) + text


def _unpacked(data: bytes) -> Usage:
    import json

    text = data[9:]
    if data[:9] != b"%08x\n" % zlib.crc32(text):
        raise ValueError("half written")
    return _usage(json.loads(text))


def _facts(usage: Usage) -> dict[str, Any]:
    last = None if usage.last is None else asdict(usage.last)
    return {"counts": asdict(usage.counts), "last": last, "nodes": list(usage.nodes), "process": os.getpid()}


def _usage(facts: Mapping[str, Any]) -> Usage:
    last = facts["last"]
    moment = (
        None if last is None else TimeOfUse(str(last["boot"]), float(last["since_s"]), float(last["wall_s"]))
    )
    return Usage(Counts.read(facts["counts"]), 0, moment, tuple(int(node) for node in facts["nodes"]))
