"""Remove whole cache sets: sets that the user destroys, idle sets that are evicted, sets without a session."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection
from dataclasses import dataclass

from standpipe.cache.files.directory import (
    GONE,
    NEW,
    READ_FOLDER,
    Home,
    clear_aside,
    names_in,
    read_manifest,
    remove,
)
from standpipe.cache.files.extents import trim
from standpipe.cache.files.session import linked_sets, sessions_of
from standpipe.cache.files.space import taken
from standpipe.cache.files.spilled import SET, Spilled, SpillFolder, remove_spilled
from standpipe.cache.files.users import is_used, locked_folder, usage
from standpipe.errors import CacheError
from standpipe.system.faults import faultpoint
from standpipe.system.files import closing_descriptor, is_at

USERS = "users"


@dataclass(frozen=True, slots=True)
class CacheFreeReport:
    """The number of sets and bytes that ``destroy_cache`` or ``destroy_all_caches`` removed.

    Attributes
    ----------
    memory : int
        Bytes removed from the cache's directory, by default ``/dev/shm``.
    spilled : int
        Bytes removed from a disk.
    held : int
        The part of ``memory`` and ``spilled`` that running jobs still read, in bytes. It is freed when these
        jobs end.
    sets : int
        Number of sets removed.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> _ = sp.fill_cache(sp.Pipeline(sp.ImageFolder("photos")).cache(cache).batch(8))
    >>> freed = sp.destroy_cache(cache)
    >>> freed.sets, freed.memory > 0, freed.spilled, freed.held
    (1, True, 0, 0)
    """

    memory: int = 0
    spilled: int = 0
    held: int = 0
    sets: int = 0

    def __add__(self, other: CacheFreeReport) -> CacheFreeReport:
        return CacheFreeReport(
            self.memory + other.memory,
            self.spilled + other.spilled,
            self.held + other.held,
            self.sets + other.sets,
        )


def remove_set(home: Home, digest: str, *, used_too: bool) -> CacheFreeReport | None:
    """Remove the set ``digest`` and return the bytes freed; None if the set doesn't exist.

    used_too  True: also remove a set that a living loader uses; False: keep that set and return None

    Raises ``OSError``.
    """
    try:
        folder = os.open(digest, READ_FOLDER, dir_fd=home.sets)
    except FileNotFoundError:
        return None
    with closing_descriptor(folder):
        name = _moved(home, digest, GONE) if used_too else _taken_away(home, digest, folder)
        if name is None:
            return None
        faultpoint("cache.remove")
        freed = _freed(home, folder)
        if (place := _place(folder)) is not None:  # before the set, whose manifest says where it is
            remove_spilled(place, home.access)
        remove(home.temporary, name)
    return freed


def drop_damaged(home: Home, digest: str, folder: int) -> bool:
    """Remove the damaged set ``digest``; return False if another process removes it. Raises ``OSError``.

    folder  file descriptor of the set's folder; a newer set of the same digest is another folder, and stays

    Jobs that have the set open continue to read it.
    """
    with locked_folder(folder) as free:
        return (
            free and is_at(folder, digest, home.sets) and remove_set(home, digest, used_too=True) is not None
        )


def clear(home: Home) -> None:
    """Remove the files in temporary/ that killed processes left, sets without a session, and links to lost sets.

    It also frees bytes that killed processes reserved in extents.
    """
    clear_aside(home)
    try:
        linked = linked_sets(home)
    except (
        OSError
    ):  # too many open files, or a foreign session: the sets' sessions are unknown, so all sets stay
        return
    for digest in names_in(home.sets):
        with contextlib.suppress(OSError):
            if digest not in linked:
                remove_set(home, digest, used_too=False)
            else:
                with closing_descriptor(os.open(digest, READ_FOLDER, dir_fd=home.sets)) as folder:
                    trim(folder)
    for session in sessions_of(home):
        for digest in set(session.sets) - set(names_in(home.sets)):
            with contextlib.suppress(OSError):
                os.unlink(digest, dir_fd=session.links)  # a job that makes the set again links it again


def evict(home: Home, among: Collection[str], idle_after: float | None) -> bool:
    """Remove the set that has been idle longest, and return True; False if no set may be evicted.

    among       digests of the sets to choose from
    idle_after  seconds without use that the asking session requires; None: it allows no eviction. All other
                sessions that a set belongs to must allow it too, by their own ``idle_after``

    Raises ``OSError``.
    """
    patience: dict[str, list[float | None]] = {}
    for session in sessions_of(home):
        for digest in session.sets:
            patience.setdefault(digest, [idle_after]).append(session.limits.idle_after)
    idle = {digest: idle_s(home, digest) for digest in among}
    for digest, seconds in sorted(idle.items(), key=lambda item: -item[1]):
        asked = patience.get(digest, [idle_after])
        may_go = seconds > 0 and all(least is not None and seconds >= least for least in asked)
        if may_go and remove_set(home, digest, used_too=False) is not None:
            return True
    return False


def idle_s(home: Home, digest: str) -> float:
    """Return the seconds since a set's last use; 0 if a loader uses it or it can't be read, infinite if unknown."""
    with (
        contextlib.suppress(OSError),
        closing_descriptor(os.open(digest, READ_FOLDER, dir_fd=home.sets)) as folder,
        _users(folder) as users,
    ):
        return usage(folder, users).idle_s
    return 0.0


def _users(folder: int) -> contextlib.AbstractContextManager[int]:
    return closing_descriptor(os.open(USERS, READ_FOLDER, dir_fd=folder))


def _is_used(folder: int) -> bool:
    """Return True if a living loader uses the set whose folder this file descriptor is.

    A set without a folder for users is half removed or damaged, and counts as unused.
    """
    try:
        with _users(folder) as users:
            return is_used(users)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _taken_away(home: Home, digest: str, folder: int) -> str | None:
    """Move an idle set to temporary/, where no job finds it, and return its name there.

    It returns None if a loader uses the set, or another process removes it. A job that opens a set first puts a
    file into ``users/``, and then checks that the set still has its name. So either that job sees that the name
    is gone, or this function sees that job's file.
    """
    if _is_used(folder):
        return None
    try:
        fcntl.flock(
            folder, fcntl.LOCK_EX | fcntl.LOCK_NB
        )  # so that no other process clears it before the decision
    except BlockingIOError:
        return None
    name = _moved(home, digest, NEW)
    if name is not None and _is_used(folder):
        with contextlib.suppress(
            OSError
        ):  # if the set was made again since, this one goes, and its user reads on
            os.rename(name, digest, src_dir_fd=home.temporary, dst_dir_fd=home.sets)
            return None
    return name


def _moved(home: Home, digest: str, kind: str) -> str | None:
    """Move a set to temporary/, and return its name there; None if another process has moved it.

    kind  prefix of the new name: ``"new-"`` for a set that may come back, ``"gone-"`` for one that won't
    """
    name = kind + os.urandom(8).hex()
    try:
        os.rename(digest, name, src_dir_fd=home.sets, dst_dir_fd=home.temporary)
    except FileNotFoundError:
        return None
    return name


def _freed(home: Home, folder: int) -> CacheFreeReport:
    memory = taken(folder)
    written, spilled = memory.held - memory.promised, 0
    if (place := _place(folder)) is not None:
        with (
            contextlib.suppress(OSError, CacheError),
            contextlib.closing(Spilled(place, home.access)) as there,
        ):
            disk = taken(there.folder)
            spilled = disk.held - disk.promised
    return CacheFreeReport(written, spilled, written + spilled if _is_used(folder) else 0, 1)


def _place(folder: int) -> SpillFolder | None:
    try:
        return SpillFolder.of(read_manifest(folder, SET).get("spill"))
    except (OSError, CacheError):
        return None
