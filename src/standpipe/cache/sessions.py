"""The public functions that create, list and destroy cache sessions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from standpipe.cache.description import Cache, check_given
from standpipe.cache.files.directory import GONE, Home, names_in, open_home, refused, remove
from standpipe.cache.files.manifest import remedied
from standpipe.cache.files.session import (
    Session,
    SessionLimits,
    access_of,
    create_session,
    first_limits,
    linked_sets,
    links_in,
    no_session,
)
from standpipe.cache.files.spilled import clear_spilled
from standpipe.cache.sets.facts import CachedSet, set_facts
from standpipe.cache.sets.removal import CacheFreeReport, clear, remove_set
from standpipe.errors import CacheError
from standpipe.system.faults import faultpoint


@dataclass(frozen=True, slots=True)
class CacheSession:
    """A cache session, at the time of the call that returned it.

    Attributes
    ----------
    name : str
        Name of the session.
    memory_limit : int or None
        Bytes that the session may use in its directory; None: unknown, see ``problems``.
    spill : str or None
        A folder on a disk, for rows that don't fit; None: the session has no such folder.
    spill_limit : int or None
        Bytes that the session may use in ``spill``; None: all that the disk has free, except a 64th.
    idle_after_s : float or None
        Seconds after its last use from which a set may be evicted; None: never.
    sets : tuple of CachedSet
        The session's sets. A set may belong to several sessions.
    problems : tuple of str
        One sentence for each problem, such as a set that can't be read.
    bytes : int
        Bytes that the session's sets use in its directory.
    bytes_on_disk : int
        Bytes that the session's sets use on the disk.

    Examples
    --------
    >>> session = sp.create_cache(sp.Cache("pets", memory="64MiB", directory="."))
    >>> session.name, session.memory_limit, session.sets
    ('pets', 67108864, ())
    """

    name: str
    memory_limit: int | None
    spill: str | None
    spill_limit: int | None
    idle_after_s: float | None
    sets: tuple[CachedSet, ...]
    problems: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes that the session's sets use in its directory."""
        return sum(each.bytes for each in self.sets)

    @property
    def bytes_on_disk(self) -> int:
        """Bytes that the session's sets use on the disk."""
        return sum(each.bytes_on_disk for each in self.sets)

    def facts(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return asdict(self)


def create_cache(cache: Cache) -> CacheSession:
    """Create a cache session with its limits before the first job uses it.

    Later jobs then give only its name: ``Cache(name)``.

    Parameters
    ----------
    cache : Cache
        Name, limits and folders of the session.

    Returns
    -------
    standpipe.reports.CacheSession
        The new session.

    Raises
    ------
    CacheError
        If a session of that name exists, or a folder can't be used.
    PlanError
        If a value of ``cache`` is invalid, or the machine or a folder can't hold it.

    Examples
    --------
    >>> sp.create_cache(sp.Cache("pets", memory="64MiB", directory=".")).memory_limit
    67108864
    """
    check_given(cache)
    cache.check()
    if cache.is_off:
        raise CacheError(f"Cache({cache.name!r}, memory=0) is off, so there is nothing to create")
    with home_of(cache, make=True) as home:
        assert home is not None
        clear(home)
        try:
            create_session(home, cache.name, first_limits(cache))
        except FileExistsError as error:
            raise CacheError(
                f"there is a cache {cache.name!r} in {home.path} already. Destroy it first, or use it"
            ) from error
        return _session_facts(home, Session(home, cache.name))


def list_caches(
    directory: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    shared_group: str | int | None = None,
) -> list[CacheSession]:
    """Return all cache sessions of this user, or of a group of users, in a directory, sorted by name.

    The numbers of rows are those of the sets' tables. Use ``verify_cache`` to check the rows themselves.

    Parameters
    ----------
    directory : path, default "/dev/shm"
        Directory of the caches, as for ``Cache``.
    name : str, optional
        Return only this session.
    shared_group : str or int, optional
        Name or number of the group, as for ``Cache``. Default: this user's own caches.

    Returns
    -------
    list of standpipe.reports.CacheSession
        The sessions, with their sets and problems.

    Raises
    ------
    CacheError
        If there is no session ``name``, or the directory can't be used.

    Examples
    --------
    >>> _ = sp.create_cache(sp.Cache("pets", memory="64MiB", directory="."))
    >>> [session.name for session in sp.list_caches(".")]
    ['pets']
    """
    cache = Cache(name or "all", directory=directory, shared_group=shared_group)
    with home_of(cache, make=False) as home:
        names = [] if home is None else names_in(home.sessions)
        if name is not None and name not in names:
            raise no_session(cache, names)
        if home is None:
            return []
        clear(home)
        return [_listed(home, each) for each in names if name in (None, each)]


def destroy_cache(cache: Cache) -> CacheFreeReport:
    """Destroy a cache session, and its sets that no other session has.

    Jobs that use these sets continue to read them, and store nothing more.

    Parameters
    ----------
    cache : Cache
        The session, by its name, ``directory`` and ``shared_group``.

    Returns
    -------
    standpipe.reports.CacheFreeReport
        The bytes that were freed.

    Raises
    ------
    CacheError
        If there is no session of that name.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> _ = sp.create_cache(cache)
    >>> sp.destroy_cache(cache).sets
    0
    >>> sp.list_caches(".")
    []
    """
    check_given(cache)
    with home_of(cache, make=False) as home:
        if home is None or cache.name not in names_in(home.sessions):
            raise no_session(cache, [] if home is None else names_in(home.sessions))
        freed = _destroy(home, cache.name)
        clear(home)
        return freed


def destroy_all_caches(
    directory: str | os.PathLike[str] | None = None, *, shared_group: str | int | None = None
) -> CacheFreeReport:
    """Destroy all cache sessions of this user, or of a group of users, in a directory.

    Jobs that use their sets continue to read them, and store nothing more.

    Parameters
    ----------
    directory : path, default "/dev/shm"
        Directory of the caches, as for ``Cache``.
    shared_group : str or int, optional
        Name or number of the group, as for ``Cache``. Default: this user's own caches.

    Returns
    -------
    standpipe.reports.CacheFreeReport
        The bytes that were freed.

    Raises
    ------
    CacheError
        If the directory doesn't exist or can't be used.

    Examples
    --------
    >>> _ = sp.create_cache(sp.Cache("pets", memory="64MiB", directory="."))
    >>> sp.destroy_all_caches(".").sets, sp.list_caches(".")
    (0, [])
    """
    freed = CacheFreeReport()
    with home_of(Cache("all", directory=directory, shared_group=shared_group), make=False) as home:
        if home is None:
            return freed
        for name in names_in(home.sessions):
            freed += _destroy(home, name)
        for digest in names_in(home.sets):  # left without a session by a killed process
            freed += remove_set(home, digest, used_too=True) or CacheFreeReport()
        clear(home)
    return freed


@contextlib.contextmanager
def home_of(cache: Cache, *, make: bool) -> Iterator[Home | None]:
    """Open standpipe's folder in the cache's directory for a ``with`` block; yield None if it doesn't exist.

    make  True: create a missing folder

    An ``OSError`` inside the block becomes a ``CacheError``. A missing directory is a ``CacheError`` too.
    """
    try:
        home = open_home(cache.directory_path, access_of(cache), make=make)
    except FileNotFoundError as error:
        if not os.path.isdir(cache.directory_path):  # noqa: PTH112 (text, as everywhere here)
            raise CacheError(f"there is no folder {cache.directory_path}") from error
        yield None
        return
    with contextlib.closing(home):
        try:
            yield home
        except OSError as error:
            raise refused(home, error) from error


def _listed(home: Home, name: str) -> CacheSession:
    try:
        return _session_facts(home, Session(home, name))
    except (OSError, CacheError) as error:
        return CacheSession(name, None, None, None, None, (), (str(error),))


def _session_facts(home: Home, session: Session) -> CacheSession:
    """Return the description of a session, and close it."""
    sets, problems, limits = [], [], session.limits
    with contextlib.closing(session):
        for digest in session.sets:
            try:
                sets.append(set_facts(home, digest))
            except FileNotFoundError:  # another process has removed it
                continue
            except (OSError, CacheError) as error:
                problems.append(remedied(error, home, session.name))
    return CacheSession(
        session.name,
        limits.memory,
        limits.spill,
        limits.spill_limit,
        limits.idle_after,
        tuple(sets),
        tuple(problems),
    )


def _destroy(home: Home, name: str) -> CacheFreeReport:
    """Destroy a session, and its sets that no other session has; return the bytes freed.

    The session loses its name first. If this process is killed then, another process removes the sets.
    """
    limits = _limits(home, name)
    gone = GONE + os.urandom(8).hex()
    try:
        os.rename(name, gone, src_dir_fd=home.sessions, dst_dir_fd=home.temporary)
    except FileNotFoundError:
        return CacheFreeReport()
    faultpoint("cache.destroy")
    kept = linked_sets(home)
    freed = CacheFreeReport()
    for digest in links_in(home.temporary, gone):
        if digest not in kept:
            freed += remove_set(home, digest, used_too=True) or CacheFreeReport()
    remove(home.temporary, gone)
    if limits is not None and limits.spill is not None:
        with (
            contextlib.suppress(OSError, CacheError),
            contextlib.closing(open_home(limits.spill, home.access, make=False)) as there,
        ):
            clear_spilled(there)
    return freed


def _limits(home: Home, name: str) -> SessionLimits | None:
    """Return the limits of the session ``name``; None if the session can't be read."""
    try:
        session = Session(home, name)
    except (OSError, CacheError):
        return None
    session.close()
    return session.limits
