"""A cache session: a name that the user chooses, with limits and a list of sets."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from standpipe.cache.description import Cache, group_number
from standpipe.cache.files.directory import (
    READ_FOLDER,
    Access,
    DamagedCacheFile,
    Home,
    damage_of,
    names_in,
    new_folder,
    open_folder,
    publish,
    read_manifest,
    remove,
    write_manifest,
)
from standpipe.cache.files.space import free_bytes
from standpipe.errors import CacheError
from standpipe.system.faults import faultpoint
from standpipe.system.files import is_at

MANIFEST = "session.json"
LINKS = "sets"
MOST_NAMED = 8  # sessions that the error for an unknown session names


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of a cache session.

    memory       bytes that the session may use in its directory
    spill        path of a folder on a disk, for rows that don't fit; None: no disk
    spill_limit  bytes that the session may use in ``spill``; None: all free bytes of the disk, except a 64th
    idle_after   seconds since its last use after which a set may be evicted; None: never
    """

    memory: int
    spill: str | None
    spill_limit: int | None
    idle_after: float | None

    def of(self, cache: Cache) -> SessionLimits:
        """Return these limits, with each value replaced that a job's ``Cache`` gives. Its idle_after always counts."""
        memory, spill = cache.memory_bytes, cache.spill_path
        return SessionLimits(
            self.memory if memory is None else memory,
            self.spill if spill is None else spill,
            self.spill_limit if spill is None else cache.spill_limit_bytes,
            cache.idle_after,
        )


class Session:
    """The open folder of a cache session. The code that makes this object closes it.

    name    name of the session
    folder  file descriptor of the session's folder; a process locks it while it gives a set more room
    links   file descriptor of the folder that has an empty file for each of the session's sets
    limits  limits that the session was created with
    notes   warnings about damage that opening the session repaired
    """

    def __init__(self, home: Home, name: str, *, make: SessionLimits | None = None) -> None:
        """Open the session ``name``.

        make  limits with which a missing session is created or a damaged one repaired; None: do neither

        Raises ``OSError``, ``CacheError``; ``DamagedCacheFile`` for a damaged session if ``make`` is None.
        """
        self.name, self._home = name, home
        self.notes: list[str] = []
        with contextlib.ExitStack() as opened:
            self.folder = self._open(make)
            opened.callback(os.close, self.folder)
            self.links = self._open_links(make)
            opened.callback(os.close, self.links)
            self.limits = self._read_limits(make)
            self._opened = opened.pop_all()

    def _open(self, make: SessionLimits | None) -> int:
        """Open the session's folder and return its file descriptor; with ``make``, create a missing session."""
        if make is not None:
            with contextlib.suppress(FileExistsError):
                create_session(self._home, self.name, make)
        return open_folder(self._home.sessions, self.name, self._home.access, make=False)

    def _open_links(self, make: SessionLimits | None) -> int:
        """Open the folder that lists the session's sets and return its file descriptor.

        With ``make``, a new empty folder replaces a damaged one.
        """
        try:
            return open_folder(self.folder, LINKS, self._home.access, make=False)
        except OSError as error:
            self._drop(LINKS, "sets", error, make)
        return open_folder(self.folder, LINKS, self._home.access, make=True)

    def _read_limits(self, make: SessionLimits | None) -> SessionLimits:
        """Return the limits in session.json; if that file is damaged, write ``make`` there and return ``make``."""
        try:
            return _limits(read_manifest(self.folder, MANIFEST))
        except (OSError, DamagedCacheFile) as error:
            made = self._drop(MANIFEST, "limits", error, make)
        _write_limits(self._home, self.folder, made)
        return made

    def _drop(
        self, name: str, what: str, error: OSError | DamagedCacheFile, make: SessionLimits | None
    ) -> SessionLimits:
        """Remove the session's damaged file or folder ``name`` and record a warning. Returns ``make``.

        what   the information that this loses: ``"sets"`` or ``"limits"``
        error  the error that showed the damage

        Raises ``error`` if trying again may help or the session was destroyed; ``DamagedCacheFile`` if ``make`` is
        None.
        """
        damage = damage_of(error) if isinstance(error, OSError) else str(error)
        if damage is None or not self.is_there:
            raise error
        if make is None:
            raise DamagedCacheFile(
                f"cache {self.name!r} has unknown {what}: its {damage}",
                f"The next job that uses the cache gives it {what} of its own; "
                f"{self._home.destroying(self.name)} removes it",
            )
        remove(self.folder, name)
        self.notes.append(f"cache {self.name!r} has the {what} of this job from now on: its {damage}")
        return make

    @property
    def is_there(self) -> bool:
        """True until a process destroys the session."""
        return is_at(self.folder, self.name, self._home.sessions)

    @property
    def sets(self) -> list[str]:
        """Digests of the session's sets; some of these sets may have been removed."""
        return names_in(self.links)

    def link(self, digest: str) -> None:
        """Record that the set ``digest`` belongs to the session. Raises ``OSError``."""
        faultpoint("cache.link")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(digest, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.links))

    def close(self) -> None:
        """Close the session's file descriptors."""
        self._opened.close()


def create_session(home: Home, name: str, limits: SessionLimits) -> None:
    """Create the session ``name`` with these limits. Raises ``OSError``, ``FileExistsError`` if it exists."""
    if name in names_in(home.sessions):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    with new_folder(home) as (made, folder):
        os.close(open_folder(folder, LINKS, home.access, make=True))
        _write_limits(home, folder, limits)
        faultpoint("cache.create")
        publish(home, made, home.sessions, name)


def no_session(cache: Cache, names: Sequence[str]) -> CacheError:
    """Return the error for a session that doesn't exist. ``names`` are the existing sessions, for a suggestion."""
    import difflib

    near = difflib.get_close_matches(cache.name, names, n=1)
    if near:
        there = f"did you mean {near[0]!r}?"
    else:
        there = f"there are {', '.join(names[:MOST_NAMED])}" if names else "there is no cache at all"
    return CacheError(f"there is no cache {cache.name!r} in {cache.directory_path}; {there}")


def sessions_of(home: Home) -> Iterator[Session]:
    """Yield every session that can be read. It closes each session before it yields the next one."""
    for name in names_in(home.sessions):
        try:
            session = Session(home, name)
        except (OSError, CacheError):
            continue
        with contextlib.closing(session):
            yield session


def linked_sets(home: Home) -> set[str]:
    """Return the digests of all sets of all sessions, damaged sessions too. Raises ``OSError``."""
    return {digest for name in names_in(home.sessions) for digest in links_in(home.sessions, name)}


def links_in(above: int, name: str) -> list[str]:
    """Return the digests of the sets of the session ``name``; an empty list if its folder is missing.

    above  file descriptor of the folder that contains the session's folder

    Raises ``OSError``.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), contextlib.ExitStack() as opened:
        folder = os.open(name, READ_FOLDER, dir_fd=above)
        opened.callback(os.close, folder)
        links = os.open(LINKS, READ_FOLDER, dir_fd=folder)
        opened.callback(os.close, links)
        return names_in(links)
    return []


def first_limits(cache: Cache) -> SessionLimits:
    """Return the limits of a new session: those in ``cache``; without ``memory``, half of the free bytes."""
    half = 0 if cache.memory is not None else free_bytes(cache.directory_path) // 2
    return SessionLimits(half, None, None, cache.idle_after).of(cache)


def access_of(cache: Cache) -> Access:
    """Return the permissions for the cache's users. Raises ``PlanError`` for an unknown ``shared_group``."""
    return Access(None if cache.shared_group is None else group_number(cache.shared_group))


def _write_limits(home: Home, folder: int, limits: SessionLimits) -> None:
    """Write session.json. Raises ``OSError``."""
    facts = {
        "memory": limits.memory,
        "spill": limits.spill,
        "spill_limit": limits.spill_limit,
        "idle_after_s": limits.idle_after,
        "created": time.time(),
    }
    write_manifest(home, folder, MANIFEST, facts)


def _limits(facts: dict[str, object]) -> SessionLimits:
    """Return the limits in the content of session.json. Raises ``DamagedCacheFile`` if one is missing or invalid."""
    match facts:
        case {
            "memory": int(memory),
            "spill": str() | None as spill,
            "spill_limit": int() | None as spill_limit,
            "idle_after_s": int() | float() | None as idle_after,
        } if (spill is None or "\0" not in spill) and all(map(_is_size, (memory, spill_limit, idle_after))):
            return SessionLimits(memory, spill, spill_limit, idle_after)
    raise DamagedCacheFile(f"{MANIFEST} is damaged: a limit is missing or wrong")


def _is_size(number: float | None) -> bool:
    """Return True for a valid limit: at least 0, or None."""
    return number is None or (number >= 0 and not isinstance(number, bool))
