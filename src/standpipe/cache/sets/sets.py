"""Find or make a set of cached rows, and open it for one loader."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from standpipe import _native
from standpipe.cache.description import Cache
from standpipe.cache.files.directory import (
    LOOKUP_TRIES,
    NEW_FILE,
    READ_FOLDER,
    WRITE_FILE,
    DamagedCacheFile,
    Home,
    Unusable,
    new_folder,
    open_folder,
    open_home,
    publish,
    refused,
    share_with_group,
)
from standpipe.cache.files.manifest import Kind, Manifest, damaged, missing_is_damage, read_set, remedied
from standpipe.cache.files.session import Session, access_of, first_limits
from standpipe.cache.files.users import User
from standpipe.cache.sets.facts import TABLE, table_bytes
from standpipe.cache.sets.opened import OpenSet, Parts
from standpipe.cache.sets.removal import USERS, clear, drop_damaged
from standpipe.errors import CacheError
from standpipe.identity.cached_set import Identity
from standpipe.system.faults import faultpoint
from standpipe.system.files import closing_descriptor, is_at, open_regular, write_all

QUEUE_BYTES = 16 << 20  # size of the queue of rows that are being written to a disk
QUEUE_ROWS = 4  # rows that the queue has room for at least


def queue_bytes(row_bytes: int | None) -> int:
    """Return the size in bytes of the queue of rows that are being written to a disk.

    row_bytes  size of each row; None: rows differ in size
    """
    return max(QUEUE_BYTES, QUEUE_ROWS * (row_bytes or 0))


def open_set(
    cache: Cache,
    identity: Identity,
    *,
    records: int,
    kind: Kind,
    row_bytes: int | None,
    writes: bool = True,
) -> OpenSet:
    """Open the set of an identity for one loader; make the set if it doesn't exist.

    cache      settings, of which ``memory`` must not be 0
    identity   values that determine the rows; their digest names the set
    records    number of records of the data
    kind       kind of rows: ``"encoded"`` (the bytes of files), ``"images"`` or ``"samples"``
    row_bytes  size of each row; None: rows differ in size
    writes     True if rows are to be stored

    Raises ``CacheError``, which says what to do, if the set can't be used, and ``PlanError`` as
    ``Cache.check`` does.
    """
    cache.check()
    assert not cache.is_off
    home = open_home(cache.directory_path, access_of(cache), make=True)
    wanted = Manifest.of(identity, records, kind, row_bytes, None)
    try:
        clear(home)
        notes: list[str] = []
        dropped = False
        for _ in range(LOOKUP_TRIES):
            try:
                return _opened(home, cache, wanted, writes, notes)
            except _Gone:
                continue
            except Unusable as error:
                if dropped or not isinstance(error, DamagedCacheFile):  # the new set is damaged too
                    raise CacheError(remedied(error, home, cache.name)) from error
                dropped = True
                notes.append(f"cache {cache.name!r}: {error.what}. The set was removed, and is filled again")
    except OSError as error:
        home.close()
        raise refused(home, error) from error
    except BaseException:
        home.close()
        raise
    home.close()
    raise CacheError(f"the cache in {home.path} can't be used: other processes destroy it again and again")


class _Gone(Exception):
    """The error that another process has removed the set or session; opening it again makes a new one."""


def _opened(home: Home, cache: Cache, wanted: Manifest, writes: bool, notes: list[str]) -> OpenSet:
    """Try once to open the set that ``wanted`` describes, or make it.

    writes  True if rows are to be stored
    notes   list to which warnings about a repaired session are added

    Raises ``_Gone``, ``OSError``, ``CacheError``; ``DamagedCacheFile`` after it has removed a damaged set.
    """
    with contextlib.ExitStack() as opened:
        try:
            session = Session(home, cache.name, make=first_limits(cache))
            opened.callback(session.close)
            notes += session.notes
            folder, user = _found_or_made(home, wanted, opened)
            if user is not None:
                session.link(wanted.digest)
        except FileNotFoundError as error:
            raise _Gone from error
        if not (session.is_there and is_at(folder, wanted.digest, home.sets)):
            raise _Gone
        limits = session.limits.of(cache)
        with _damage_is_dropped(home, folder, wanted.digest):
            _check(wanted, read_set(folder, wanted.digest))
            writes = writes and user is not None and _may_write(folder)
            store = open_store(folder, wanted, writes, queue_bytes(wanted.row_bytes))
        parts = Parts(home, session, folder, user, opened.pop_all())
    return OpenSet(cache.name, limits, wanted, parts, store, writes=writes, notes=notes)


@contextlib.contextmanager
def _damage_is_dropped(home: Home, folder: int, digest: str) -> Iterator[None]:
    """Remove the set if the ``with`` block finds it damaged, and raise ``DamagedCacheFile``.

    folder  file descriptor of the set's folder

    Raises ``_Gone`` if another job has removed the set.
    """
    try:
        with missing_is_damage(home, folder, digest):
            yield
    except DamagedCacheFile as error:
        if not drop_damaged(home, digest, folder):
            raise _Gone from error
        raise
    except FileNotFoundError as error:
        raise _Gone from error


def _found_or_made(home: Home, wanted: Manifest, opened: contextlib.ExitStack) -> tuple[int, User | None]:
    """Find or make a set; return the file descriptor of its folder, and this loader's file in it.

    The file is None if this user may only read the set. ``opened`` gets the calls that close both.

    Raises ``FileNotFoundError`` if the set is being removed.
    """
    if not _is_there(home, wanted.digest):
        with contextlib.suppress(FileExistsError):
            return _made(home, wanted, opened)
    folder = open_folder(home.sets, wanted.digest, home.access, make=False)
    opened.callback(os.close, folder)
    with _damage_is_dropped(home, folder, wanted.digest):
        users = open_folder(folder, USERS, home.access, make=False)
    with closing_descriptor(users):
        try:
            user = User(home, users)
        except PermissionError:  # this user may only read this group's cache
            return folder, None
    opened.callback(user.close)
    return folder, user


def _made(home: Home, wanted: Manifest, opened: contextlib.ExitStack) -> tuple[int, User]:
    """Make a set; return the file descriptor of its folder, and this loader's file in it.

    The file is in the set before other processes can see the set, so none of them takes it for unused.
    """
    with new_folder(home) as (made, folder):
        with closing_descriptor(os.open(TABLE, NEW_FILE, 0o600, dir_fd=folder)) as table:
            share_with_group(table, home.access, home.access.file_mode)
            write_all(table, bytes(_native.CacheStore.table_header(wanted.records, wanted.salt)), 0)
            os.ftruncate(table, table_bytes(wanted.records))
        wanted.write(home, folder)
        with closing_descriptor(open_folder(folder, USERS, home.access, make=True)) as users:
            user = User(home, users)
        with contextlib.ExitStack() as mine:
            mine.callback(user.close)
            faultpoint("cache.create")
            publish(home, made, home.sets, wanted.digest)
            faultpoint("cache.create")
            mine.pop_all()
        opened.callback(user.close)
        own = os.dup(folder)
    opened.callback(os.close, own)
    return own, user


def _is_there(home: Home, digest: str) -> bool:
    try:
        os.close(os.open(digest, READ_FOLDER, dir_fd=home.sets))
    except FileNotFoundError:
        return False
    return True


def _check(wanted: Manifest, found: Manifest) -> None:
    """Raise ``Unusable`` if the set's records, kind or row size differ from those that this job needs.

    This can't happen unless the identity lacks a value that the rows depend on.
    """
    for name in ("records", "kind", "row_bytes"):
        if getattr(found, name) != getattr(wanted, name):
            raise Unusable(
                f"the cached set {wanted.digest} has {name}={getattr(found, name)!r}, and this job needs "
                f"{name}={getattr(wanted, name)!r}"
            )


def _may_write(folder: int) -> bool:
    """Return True if this user may add rows to a set; a group's permissions may forbid it.

    folder  file descriptor of the set's folder
    """
    try:
        os.close(open_regular(TABLE, WRITE_FILE, folder))
    except PermissionError:
        return False
    return True


def open_store(folder: int, manifest: Manifest, writes: bool, queue: int) -> _native.CacheStore:
    """Open the native store, which finds, reads and stores the rows of a set.

    folder  file descriptor of the set's folder
    writes  True if rows are to be stored
    queue   bytes for rows that are being written to a disk

    Raises ``OSError``, ``DamagedCacheFile`` for a damaged table, ``Unusable`` for the table of another version.
    """
    try:
        store = _native.CacheStore(folder, manifest.records, manifest.salt, writes, queue)
    except OSError as error:
        raise OSError(error.errno, error.strerror, TABLE) from error
    except ValueError as error:
        raise damaged(manifest.digest, str(error)) from error
    except RuntimeError as error:
        raise Unusable(f"the cached set {manifest.digest} can't be used: {error}") from error
    if os.stat(TABLE, dir_fd=folder).st_size < table_bytes(manifest.records):
        store.close(0)
        raise damaged(manifest.digest, f"{TABLE} is cut off")
    return store
