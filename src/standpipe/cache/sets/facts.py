"""Reports about cache sets, made without locking or changing a set."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.cache.description import Cache
from standpipe.cache.files.directory import (
    READ_FILE,
    READ_FOLDER,
    Access,
    DamagedCacheFile,
    Home,
    open_home,
    refused,
)
from standpipe.cache.files.extents import data_ranges
from standpipe.cache.files.manifest import Manifest, missing_is_damage, read_set
from standpipe.cache.files.session import Session, SessionLimits, access_of, first_limits, links_in
from standpipe.cache.files.space import ENTRY_BYTES, free_bytes, room, taken
from standpipe.cache.files.spilled import Spilled, names_of_sets
from standpipe.cache.files.users import Counts, usage
from standpipe.cache.sets.removal import USERS
from standpipe.errors import CacheError
from standpipe.identity.cached_set import Identity
from standpipe.system.files import closing_descriptor, open_regular

TABLE = "table"
HEADER_BYTES = _native.CACHE_HEADER_BYTES
ENTRIES_AT_ONCE = 1 << 16
ENTRY = np.dtype(
    [("check", "u4"), ("flags", "u4"), ("place", "u8"), ("length", "u4"), ("rest", f"V{ENTRY_BYTES - 20}")]
)


@dataclass(frozen=True, slots=True)
class CachedSet:
    """A set of rows in a cache, at the time of the call that returned it.

    Attributes
    ----------
    digest : str
        The set's name: a digest of all that its rows depend on.
    label : str
        A name for people, such as that of a folder. It isn't part of the digest.
    parts : mapping of str to str or int
        The values that the digest is computed from, such as the source and the transforms.
    kind : str
        Kind of rows: ``"encoded"`` (the bytes of files), ``"images"`` or ``"samples"``.
    records : int
        Number of records of the data set; the set has at most one row for each.
    rows : int
        Rows that the set has, in memory and on the disk.
    rows_on_disk : int
        Rows on the disk.
    bytes : int
        Bytes that the set takes in its directory, including its table and small files.
    bytes_on_disk : int
        Bytes that the set takes on the disk, including small files.
    mean_row_bytes : float
        Mean size of a row in bytes; 0 if there are none.
    users : int
        Loaders that use the set now.
    hit_rate : float or None
        Fraction of the rows looked up that were found, over all users so far; None: none was looked up.
    idle_s : float or None
        Seconds since the last use; 0 while it is used; None: unknown.
    nodes : tuple of int
        Memory (NUMA) nodes of the CPUs whose loaders stored its rows.
    counts : Counts
        Counters of all users so far, such as ``hits``, ``misses``, ``stored`` and ``errors``.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> _ = sp.fill_cache(sp.Pipeline(sp.ImageFolder("photos")).cache(cache).batch(8))
    >>> (found,) = sp.list_caches(".", name="pets")[0].sets
    >>> found.kind, found.records, found.rows, found.users
    ('encoded', 24, 24, 0)
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
    """The rows and the free bytes that a loader with a given cache would find now.

    present      description of the set; None: the set doesn't exist or is damaged
    limits       limits of the session, or of the one that the loader would create
    memory_free  bytes that the session may still use in its directory
    spill_free   bytes that the session may still use on the disk; 0 without a disk
    """

    present: CachedSet | None
    limits: SessionLimits
    memory_free: int
    spill_free: int


def look(cache: Cache, identity: Identity) -> Forecast:
    """Return the rows and free bytes that a loader with this cache would find. Creates no file.

    identity  the values that determine the rows; its digest names the set

    Raises ``CacheError`` if the cache can't be used, and ``PlanError`` as ``Cache.check`` does.
    """
    cache.check()
    try:
        home = open_home(cache.directory_path, access_of(cache), make=False)
    except FileNotFoundError:
        return _unmade(cache)
    with contextlib.closing(home):
        try:
            return _found(home, cache, identity.digest)
        except OSError as error:
            raise refused(home, error) from error


def spills(cache: Cache, identity: Identity) -> bool:
    """Return True if the cache, its session or the existing set names a disk folder for rows.

    Creates no file and reads no table. Returns False also for a cache that can't be used.
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
    return Forecast(None, limits, memory, _spill_free(limits, access_of(cache), ()))


def _found(home: Home, cache: Cache, digest: str) -> Forecast:
    try:
        session = Session(home, cache.name)
    except FileNotFoundError:
        limits, sets = first_limits(cache), []
    except DamagedCacheFile:  # the job that opens the session writes its own limits
        limits, sets = first_limits(cache), links_in(home.sessions, cache.name)
    else:
        limits, sets = session.limits.of(cache), session.sets
        session.close()
    present = None
    with contextlib.suppress(FileNotFoundError, DamagedCacheFile):  # a damaged set is made again
        present = set_facts(home, digest)
    memory = room(home.sets, sets, limits.memory, home.path).free_bytes
    return Forecast(present, limits, memory, _spill_free(limits, home.access, sets))


def _spill_free(limits: SessionLimits, access: Access, sets: Sequence[str]) -> int:
    """Return the bytes that a session may still use on its disk; 0 without one."""
    if limits.spill is None:
        return 0
    try:
        there = open_home(limits.spill, access, make=False)
    except FileNotFoundError:
        free = free_bytes(limits.spill)
        return free if limits.spill_limit is None else min(free, limits.spill_limit)
    with contextlib.closing(there):
        return room(there.spilled, names_of_sets(there, sets), limits.spill_limit, there.path).free_bytes


def set_facts(home: Home, digest: str) -> CachedSet:
    """Return the description of the set ``digest``.

    Raises ``OSError``, ``FileNotFoundError`` if the set is gone, ``CacheError`` if it is damaged or can't be
    used.
    """
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
    """Return the bytes that a set takes on a disk; 0 without a disk, or if its folder can't be opened."""
    if manifest.spill is None:
        return 0
    try:
        spilled = Spilled(manifest.spill, home.access)
    except (OSError, CacheError):
        return 0
    with contextlib.closing(spilled):
        return taken(spilled.folder).held


def table_bytes(records: int) -> int:
    """Return the length in bytes of the table file for ``records`` records, unwritten parts included."""
    return HEADER_BYTES + ENTRY_BYTES * records


def _counted(folder: int) -> tuple[int, int, int]:
    """Return three numbers from a set's table, without a check: its rows, its rows on disk, the bytes of all rows.

    folder  file descriptor of the set's folder
    """
    rows = on_disk = row_bytes = 0
    for _, entries in entries_of(folder):
        there = entries[entries["length"] != 0]
        rows += len(there)
        on_disk += int(np.count_nonzero(there["flags"] & _native.CACHE_SPILLED))
        row_bytes += int(there["length"].sum(dtype=np.int64))
    return rows, on_disk, row_bytes


def entries_of(folder: int) -> Iterator[tuple[int, NDArray[np.void]]]:
    """Yield the written parts of a set's table: the first record's number, and the entries from there on.

    folder  file descriptor of the set's folder. An array has at most 65,536 entries, one per record.
    """
    with closing_descriptor(open_regular(TABLE, READ_FILE, folder)) as file:
        for first, stop in _written(file):
            for at in range(first, stop, ENTRIES_AT_ONCE):
                wanted = min(ENTRIES_AT_ONCE, stop - at) * ENTRY_BYTES
                data = os.pread(file, wanted, HEADER_BYTES + at * ENTRY_BYTES)
                yield at, np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY)


def _written(file: int) -> Iterator[tuple[int, int]]:
    """Yield the written ranges of a sparse table file, as first entry and entry after the last.

    file  file descriptor of the table
    """
    done = 0
    for begin, end in data_ranges(file, HEADER_BYTES):
        first = max((begin - HEADER_BYTES) // ENTRY_BYTES, done)  # a page may end inside an entry
        done = -(-(end - HEADER_BYTES) // ENTRY_BYTES)
        yield first, done
