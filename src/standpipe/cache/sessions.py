"""Sessions for people: created ahead, listed, destroyed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from standpipe.cache.description import Cache, check_given
from standpipe.cache.directory import GONE, Home, names_in, open_home, refused, remove
from standpipe.cache.facts import CachedSet, set_facts
from standpipe.cache.manifest import remedied
from standpipe.cache.removal import CacheFreeReport, clear, remove_set
from standpipe.cache.session import (
    Limits,
    Session,
    access_of,
    create_session,
    first_limits,
    linked_sets,
    links_in,
    no_session,
)
from standpipe.cache.spilled import clear_spilled
from standpipe.errors import CacheError
from standpipe.system.faults import faultpoint


@dataclass(frozen=True, slots=True)
class CacheSession:
    """A cache by its name, as it is.

    name          of the session
    memory_limit  bytes that it may take in its directory; None: not known, as ``problems`` says
    spill         a folder on a disk for rows that don't fit; None: it has none
    spill_limit   bytes that it may take there; None: what there is
    idle_after_s  seconds after its last use from which on a set gives way to another one; None: never
    sets          that it has; a set may belong to several sessions
    problems      what is wrong with those that can't be read, a sentence each
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
        """Bytes that its sets use in its directory."""
        return sum(each.bytes for each in self.sets)

    @property
    def bytes_on_disk(self) -> int:
        """Bytes that its sets use on the disk."""
        return sum(each.bytes_on_disk for each in self.sets)

    def facts(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return asdict(self)


def create_cache(cache: Cache) -> CacheSession:
    """Create a session ahead of its first use, for its limits: later jobs need only name it.

    Raises ``CacheError`` when there is one of that name, ``PlanError`` as ``Cache.check`` does.
    """
    check_given(cache)
    cache.check()
    if cache.is_off:
        raise CacheError(f"Cache({cache.name!r}, memory=0) is off, so there is nothing to create")
    with _home_of(cache, make=True) as home:
        assert home is not None
        clear(home)
        try:
            create_session(home, cache.name, first_limits(cache))
        except FileExistsError as error:
            raise CacheError(
                f"there is a cache {cache.name!r} in {home.path} already; destroy it first, or use it"
            ) from error
        return _session_facts(home, Session(home, cache.name))


def list_caches(
    directory: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    shared_group: str | int | None = None,
) -> list[CacheSession]:
    """All sessions that this user, or a group of users, has in a directory, by name. It counts what their tables say.

    directory     as of ``Cache``
    name          of the only one that is asked for; ``CacheError`` when there is none of that name
    shared_group  as of ``Cache``
    """
    cache = Cache(name or "all", directory=directory, shared_group=shared_group)
    with _home_of(cache, make=False) as home:
        names = [] if home is None else names_in(home.sessions)
        if name is not None and name not in names:
            raise no_session(cache, names)
        if home is None:
            return []
        clear(home)
        return [_listed(home, each) for each in names if name in (None, each)]


def destroy_cache(cache: Cache) -> CacheFreeReport:
    """Destroy a session and the sets that no other one has. Jobs that use them go on reading, and store nothing more.

    Raises ``CacheError`` when there is none of that name.
    """
    check_given(cache)
    with _home_of(cache, make=False) as home:
        if home is None or cache.name not in names_in(home.sessions):
            raise no_session(cache, [] if home is None else names_in(home.sessions))
        freed = _destroy(home, cache.name)
        clear(home)
        return freed


def stop_caches(
    directory: str | os.PathLike[str] | None = None, *, shared_group: str | int | None = None
) -> CacheFreeReport:
    """Destroy all sessions that this user, or a group of users, has in a directory.

    directory     as of ``Cache``
    shared_group  as of ``Cache``
    """
    freed = CacheFreeReport()
    with _home_of(Cache("all", directory=directory, shared_group=shared_group), make=False) as home:
        if home is None:
            return freed
        for name in names_in(home.sessions):
            freed += _destroy(home, name)
        for digest in names_in(home.sets):  # of no session, as a killed process leaves them
            freed += remove_set(home, digest, used_too=True) or CacheFreeReport()
        clear(home)
    return freed


@contextlib.contextmanager
def _home_of(cache: Cache, *, make: bool) -> Iterator[Home | None]:
    """Standpipe's folder; None where there is none. What the system refuses inside is a ``CacheError``."""
    try:
        home = open_home(cache.directory_path, access_of(cache), make=make)
    except FileNotFoundError as error:
        if not os.path.isdir(cache.directory_path):  # noqa: PTH112 (text, as everywhere here)
            raise CacheError(f"there is no folder {cache.directory_path}") from error
        yield None
        return
    try:
        yield home
    except OSError as error:
        raise refused(home, error) from error
    finally:
        home.close()


def _listed(home: Home, name: str) -> CacheSession:
    try:
        return _session_facts(home, Session(home, name))
    except (OSError, CacheError) as error:
        return CacheSession(name, None, None, None, None, (), (str(error),))


def _session_facts(home: Home, session: Session) -> CacheSession:
    """Describe a session, and close it."""
    sets, problems = [], []
    try:
        for digest in session.sets:
            try:
                sets.append(set_facts(home, digest))
            except FileNotFoundError:  # gone meanwhile
                continue
            except (OSError, CacheError) as error:
                problems.append(remedied(error, home, session.name))
        limits = session.limits
    finally:
        session.close()
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
    """Destroy a session. It loses its name first; another process clears sets that then belong to no session."""
    limits = _limits(home, name)
    gone = GONE + os.urandom(8).hex()
    try:
        os.rename(name, gone, src_dir_fd=home.sessions, dst_dir_fd=home.aside)
    except FileNotFoundError:
        return CacheFreeReport()
    faultpoint("cache.destroy")
    kept = linked_sets(home)
    freed = CacheFreeReport()
    for digest in links_in(home.aside, gone):
        if digest not in kept:
            freed += remove_set(home, digest, used_too=True) or CacheFreeReport()
    remove(home.aside, gone)
    if limits is not None and limits.spill is not None:
        with contextlib.suppress(OSError, CacheError):
            there = open_home(limits.spill, home.access, make=False)
            try:
                clear_spilled(there)
            finally:
                there.close()
    return freed


def _limits(home: Home, name: str) -> Limits | None:
    """A session's; None for one that can't be read."""
    try:
        session = Session(home, name)
    except (OSError, CacheError):
        return None
    session.close()
    return session.limits
