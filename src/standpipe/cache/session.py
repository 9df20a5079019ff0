"""A session: a name that users choose, with limits and a list of sets."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from standpipe.cache.description import Cache, group_number
from standpipe.cache.directory import (
    READ_FOLDER,
    Access,
    Damaged,
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
from standpipe.cache.room import free_bytes
from standpipe.errors import CacheError
from standpipe.system.faults import faultpoint
from standpipe.system.files import is_at

MANIFEST = "session.json"
LINKS = "sets"
MOST_NAMED = 8  # sessions in the error for an unknown one


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a session.

    memory       bytes in its own directory
    spill        a folder on a disk, for rows that don't fit; None: none
    spill_limit  bytes there; None: the disk's free bytes
    idle_after   seconds after its last use from which a set may be evicted; None: never
    """

    memory: int
    spill: str | None
    spill_limit: int | None
    idle_after: float | None

    def of(self, cache: Cache) -> Limits:
        """Return the limits with those that a job's own description overrides."""
        memory, spill = cache.memory_bytes, cache.spill_path
        return Limits(
            self.memory if memory is None else memory,
            self.spill if spill is None else spill,
            self.spill_limit if spill is None else cache.spill_limit_bytes,
            cache.idle_after,
        )


class Session:
    """A session's folder, open. The caller that opened it closes it.

    name    its name
    folder  descriptor; the process that has locked it gives out room
    links   descriptor of the folder with a file for each set
    limits  the limits that it was created with
    notes   warnings about damage that was repaired
    """

    def __init__(self, home: Home, name: str, *, make: Limits | None = None) -> None:
        """Open the session; with ``make``, create it with these limits, or repair a damaged one.

        Raises ``OSError``, ``CacheError``; ``Damaged`` without ``make``.
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

    def _open(self, make: Limits | None) -> int:
        """Return the descriptor of its folder."""
        if make is not None:
            with contextlib.suppress(FileExistsError):
                create_session(self._home, self.name, make)
        return open_folder(self._home.sessions, self.name, self._home.access, make=False)

    def _open_links(self, make: Limits | None) -> int:
        """Return the descriptor of its folder of sets, or of a new one that replaces a damaged one."""
        try:
            return open_folder(self.folder, LINKS, self._home.access, make=False)
        except OSError as error:
            self._drop(LINKS, "sets", error, make)
        return open_folder(self.folder, LINKS, self._home.access, make=True)

    def _read_limits(self, make: Limits | None) -> Limits:
        """Return the limits in session.json; if it is damaged, write ``make`` there."""
        try:
            return _limits(read_manifest(self.folder, MANIFEST))
        except (OSError, Damaged) as error:
            made = self._drop(MANIFEST, "limits", error, make)
        _write_limits(self._home, self.folder, made)
        return made

    def _drop(self, name: str, what: str, error: OSError | Damaged, make: Limits | None) -> Limits:
        """Remove its damaged file or folder ``name``, and note that. Returns ``make``.

        what  the information that is lost with it

        Raises ``error`` if it may pass or the session is being destroyed, ``Damaged`` without ``make``.
        """
        damage = damage_of(error) if isinstance(error, OSError) else str(error)
        if damage is None or not self.is_there:
            raise error
        if make is None:
            raise Damaged(
                f"cache {self.name!r} has unknown {what}: its {damage}",
                f"The next job that uses the cache gives it {what} of its own; "
                f"{self._home.destroying(self.name)} removes it",
            )
        remove(self.folder, name)
        self.notes.append(f"cache {self.name!r} has the {what} of this job from now on: its {damage}")
        return make

    @property
    def is_there(self) -> bool:
        """False once the session was destroyed."""
        return is_at(self.folder, self.name, self._home.sessions)

    @property
    def sets(self) -> list[str]:
        """Digests of its sets; some may be gone."""
        return names_in(self.links)

    def link(self, digest: str) -> None:
        """Record that a set belongs to it. Raises ``OSError``."""
        faultpoint("cache.link")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(digest, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.links))

    def close(self) -> None:
        """Close its descriptors."""
        self._opened.close()


def create_session(home: Home, name: str, limits: Limits) -> None:
    """Create a session. Raises ``FileExistsError`` if it exists, ``OSError``."""
    if name in names_in(home.sessions):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    with new_folder(home) as (made, folder):
        os.close(open_folder(folder, LINKS, home.access, make=True))
        _write_limits(home, folder, limits)
        faultpoint("cache.create")
        publish(home, made, home.sessions, name)


def no_session(cache: Cache, names: Sequence[str]) -> CacheError:
    """Return the error for a session that doesn't exist. ``names``: the existing ones."""
    import difflib

    near = difflib.get_close_matches(cache.name, names, n=1)
    if near:
        there = f"did you mean {near[0]!r}?"
    else:
        there = f"there are {', '.join(names[:MOST_NAMED])}" if names else "there is no cache at all"
    return CacheError(f"there is no cache {cache.name!r} in {cache.directory_path}; {there}")


def sessions_of(home: Home) -> Iterator[Session]:
    """Yield every session that can be read. Each is closed before the next one is yielded."""
    for name in names_in(home.sessions):
        try:
            session = Session(home, name)
        except (OSError, CacheError):
            continue
        try:
            yield session
        finally:
            session.close()


def linked_sets(home: Home) -> set[str]:
    """Return the digests of all sets of all sessions, damaged sessions too. Raises ``OSError`` if unknown."""
    return {digest for name in names_in(home.sessions) for digest in links_in(home.sessions, name)}


def links_in(above: int, name: str) -> list[str]:
    """Return the digests of a session's sets; none if its folder is missing. Raises ``OSError``."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), contextlib.ExitStack() as opened:
        folder = os.open(name, READ_FOLDER, dir_fd=above)
        opened.callback(os.close, folder)
        links = os.open(LINKS, READ_FOLDER, dir_fd=folder)
        opened.callback(os.close, links)
        return names_in(links)
    return []


def first_limits(cache: Cache) -> Limits:
    """Return the limits of a session that a job creates: its own, or half of the free bytes."""
    half = 0 if cache.memory is not None else free_bytes(cache.directory_path) // 2
    return Limits(half, None, None, cache.idle_after).of(cache)


def access_of(cache: Cache) -> Access:
    """Return the users who may use the cache. Raises ``PlanError`` for an unknown group."""
    return Access(None if cache.shared_group is None else group_number(cache.shared_group))


def _write_limits(home: Home, folder: int, limits: Limits) -> None:
    """Write session.json. Raises ``OSError``."""
    facts = {
        "memory": limits.memory,
        "spill": limits.spill,
        "spill_limit": limits.spill_limit,
        "idle_after_s": limits.idle_after,
        "created": time.time(),
    }
    write_manifest(home, folder, MANIFEST, facts)


def _limits(facts: dict[str, object]) -> Limits:
    """Return the limits from session.json. Raises ``Damaged``."""
    match facts:
        case {
            "memory": int(memory),
            "spill": str() | None as spill,
            "spill_limit": int() | None as spill_limit,
            "idle_after_s": int() | float() | None as idle_after,
        } if (spill is None or "\0" not in spill) and all(map(_is_size, (memory, spill_limit, idle_after))):
            return Limits(memory, spill, spill_limit, idle_after)
    raise Damaged(f"{MANIFEST} is damaged: a limit is missing or wrong")


def _is_size(number: float | None) -> bool:
    """Return True for a valid limit: at least 0, or None."""
    return number is None or (number >= 0 and not isinstance(number, bool))
