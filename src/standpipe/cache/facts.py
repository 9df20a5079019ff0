"""Describe a cache set without using it."""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standpipe.cache.description import Cache
from standpipe.cache.directory import READ_FOLDER, Access, Damaged, Home, open_home, open_regular, refused
from standpipe.cache.manifest import Manifest, missing_is_damage, read_set
from standpipe.cache.removal import USERS
from standpipe.cache.room import ENTRY_BYTES, free_bytes, room, taken
from standpipe.cache.session import Limits, Session, access_of, first_limits, links_in
from standpipe.cache.spilled import Spilled, names_of_sets
from standpipe.cache.users import Counts, usage
from standpipe.errors import CacheError
from standpipe.identity.cached_set import Identity

TABLE = "table"
HEADER_BYTES = 4096
ENTRIES_AT_ONCE = 1 << 16
SPILLED = 1
ENTRY = np.dtype(
    [("check", "u4"), ("flags", "u4"), ("place", "u8"), ("length", "u4"), ("rest", f"V{ENTRY_BYTES - 20}")]
)


@dataclass(frozen=True, slots=True)
class CachedSet:
    """A set of rows in a cache, as it is.

    digest          of what its rows depend on: its name
    label           what that is, for people
    parts           all that its rows depend on
    kind            of its rows: ``"encoded"``, as files have them; ``"images"``; ``"samples"``
    records         of the data
    rows            that it has, in memory and on the disk
    rows_on_disk    how many of them are there
    bytes           that it takes in its directory, with all that belongs to it
    bytes_on_disk   likewise
    mean_row_bytes  of its rows; 0 when there are none
    users           loaders that use it now
    hit_rate        what share of the rows that all its users asked for were there; None: nobody asked
    idle_s          seconds since its last use; 0 while it is used, None: not known
    nodes           memory nodes of the CPUs of those who stored its rows
    """

    digest: str
    label: str
    parts: Mapping[str, str | int]
    kind: str
    records: int
    rows: int
    rows_on_disk: int
    bytes: int
    bytes_on_disk: int
    mean_row_bytes: float
    users: int
    hit_rate: float | None
    idle_s: float | None
    nodes: tuple[int, ...]
    counts: Counts

    def facts(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a loader would find.

    present      the set; None: it doesn't exist
    limits       its session's, or those of the session that would be created
    memory_free  bytes that it may still use in its directory
    spill_free   bytes that it may still use on the disk; 0 without one
    """

    present: CachedSet | None
    limits: Limits
    memory_free: int
    spill_free: int


def look(cache: Cache, identity: Identity) -> Forecast:
    """Return what a loader with this cache would find for an identity. It creates and uses nothing.

    Raises ``CacheError`` for a cache that can't be used, ``PlanError`` as ``Cache.check`` does.
    """
    cache.check()
    try:
        home = open_home(cache.directory_path, access_of(cache), make=False)
    except FileNotFoundError:
        return _unmade(cache)
    try:
        return _found(home, cache, identity.digest)
    except OSError as error:
        raise refused(home, error) from error
    finally:
        home.close()


def spills(cache: Cache, identity: Identity) -> bool:
    """Return True if rows may go to a disk, by the cache, its session, or the existing set.

    It creates nothing and reads no table. False also for a cache that can't be used.
    """
    if cache.spill is not None:
        return True
    with contextlib.suppress(OSError, CacheError), contextlib.ExitStack() as opened:
        home = open_home(cache.directory_path, access_of(cache), make=False)
        opened.callback(home.close)
        with contextlib.suppress(FileNotFoundError):
            session = Session(home, cache.name)
            opened.callback(session.close)
            if session.limits.spill is not None:
                return True
        folder = os.open(identity.digest, READ_FOLDER, dir_fd=home.sets)
        opened.callback(os.close, folder)
        return read_set(folder, identity.digest).spill is not None
    return False


def _unmade(cache: Cache) -> Forecast:
    """Return the forecast for a cache that doesn't exist."""
    limits = first_limits(cache)
    memory = min(free_bytes(cache.directory_path), limits.memory)
    return Forecast(None, limits, memory, _spill_free(limits, None, ()))


def _found(home: Home, cache: Cache, digest: str) -> Forecast:
    try:
        session = Session(home, cache.name)
    except FileNotFoundError:
        limits, sets = first_limits(cache), []
    except Damaged:  # the job that opens it writes its own limits
        limits, sets = first_limits(cache), links_in(home.sessions, cache.name)
    else:
        limits, sets = session.limits.of(cache), session.sets
        session.close()
    present = None
    with contextlib.suppress(FileNotFoundError, Damaged):  # a damaged one is made anew
        present = set_facts(home, digest)
    memory = room(home.sets, sets, limits.memory, home.path).free_bytes
    return Forecast(present, limits, memory, _spill_free(limits, home.access, sets))


def _spill_free(limits: Limits, access: Access | None, sets: Sequence[str]) -> int:
    """Bytes that a session might still take on its disk; 0 where there is none."""
    if limits.spill is None:
        return 0
    try:
        if access is None:
            raise FileNotFoundError
        there = open_home(limits.spill, access, make=False)
    except FileNotFoundError:
        free = free_bytes(limits.spill)
        return free if limits.spill_limit is None else min(free, limits.spill_limit)
    try:
        return room(there.spilled, names_of_sets(there, sets), limits.spill_limit, there.path).free_bytes
    finally:
        there.close()


def set_facts(home: Home, digest: str) -> CachedSet:
    """A set's facts. Raises ``OSError``, ``FileNotFoundError`` when it is gone, ``CacheError`` for a foreign one."""
    with contextlib.ExitStack() as opened:
        folder = os.open(digest, READ_FOLDER, dir_fd=home.sets)
        opened.callback(os.close, folder)
        with missing_is_damage(home, folder, digest):
            users = os.open(USERS, READ_FOLDER, dir_fd=folder)
            opened.callback(os.close, users)
            manifest = read_set(folder, digest)
            rows, on_disk, row_bytes = _counted(folder)
        here = taken(folder).held
        used = usage(folder, users)
    asked = used.counts.hits + used.counts.misses
    return CachedSet(
        digest=digest,
        label=manifest.label,
        parts=manifest.parts,
        kind=manifest.kind,
        records=manifest.records,
        rows=rows,
        rows_on_disk=on_disk,
        bytes=here,
        bytes_on_disk=_taken_on_disk(manifest, home),
        mean_row_bytes=row_bytes / max(rows, 1),
        users=used.alive,
        hit_rate=used.counts.hits / asked if asked else None,
        idle_s=None if math.isinf(used.idle_s) else used.idle_s,
        nodes=used.nodes,
        counts=used.counts,
    )


def _taken_on_disk(manifest: Manifest, home: Home) -> int:
    """Bytes that a set takes on a disk; 0 where that isn't there."""
    if manifest.spill is None:
        return 0
    try:
        spilled = Spilled(manifest.spill, home.access)
    except (OSError, CacheError):
        return 0
    try:
        return taken(spilled.folder).held
    finally:
        spilled.close()


def table_bytes(records: int) -> int:
    """Return the size of a table for so many records, holes included."""
    return HEADER_BYTES + ENTRY_BYTES * records


def _counted(folder: int) -> tuple[int, int, int]:
    """Rows, how many of them are on the disk, and bytes of all, as the table says; nothing is checked."""
    rows = on_disk = row_bytes = 0
    for _, entries in entries_of(folder):
        there = entries[entries["length"] != 0]
        rows += len(there)
        on_disk += int(np.count_nonzero(there["flags"] & SPILLED))
        row_bytes += int(there["length"].sum(dtype=np.int64))
    return rows, on_disk, row_bytes


def entries_of(folder: int) -> Iterator[tuple[int, NDArray[np.void]]]:
    """Yield a set's table in pieces, without its holes: the first record's number, and an entry for each from there."""
    file = open_regular(folder, TABLE)
    try:
        for first, stop in _written(file):
            for at in range(first, stop, ENTRIES_AT_ONCE):
                wanted = min(ENTRIES_AT_ONCE, stop - at) * ENTRY_BYTES
                data = os.pread(file, wanted, HEADER_BYTES + at * ENTRY_BYTES)
                yield at, np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY)
    finally:
        os.close(file)


def _written(file: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of entries of a table, first and end, outside of which it is a hole."""
    size = os.fstat(file).st_size
    at, done = HEADER_BYTES, 0
    while at < size:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        at = os.lseek(file, begin, os.SEEK_HOLE)
        first = max((begin - HEADER_BYTES) // ENTRY_BYTES, done)  # pages end inside of entries
        done = -(-(at - HEADER_BYTES) // ENTRY_BYTES)
        yield first, done
