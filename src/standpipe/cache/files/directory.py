"""Standpipe's own folder in ``/dev/shm`` or on a disk, and the functions that open, write and remove files there.

::

    DIR/standpipe-UID/v1/sessions/NAME/   a session: session.json, and in sets/ an empty file for each of its sets
                        sets/DIGEST/     a set: set.json, table, rows-000000 …, users/, totals.json
                        spilled/DIGEST.TAG/  rows of a set whose own folder is elsewhere; home.json names that folder
                        temporary/       files and folders that are being made (new-…) or removed (gone-…)

Everything is opened relative to the descriptor of its folder, and no symbolic link below DIR is followed. So
a file that another user plants in ``/dev/shm`` is refused and never used. A file or folder is renamed to its
name when it is complete, and loses its name before it is removed. A killed process leaves files in the folder
temporary/, which the next process clears.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from standpipe.cache.description import SHARED_MEMORY
from standpipe.errors import CacheError
from standpipe.system.files import closing_descriptor, is_at, open_regular, write_all

VERSION = "v1"
FOLDERS = ("sessions", "sets", "spilled", "temporary")
TAKEN = (errno.EEXIST, errno.ENOTEMPTY)  # errors of a rename to a name that exists
NEW, GONE = "new-", "gone-"
MOST_MANIFEST_BYTES = 1 << 20
LOOKUP_TRIES = 32  # how often work is repeated that other processes may undo between two of its steps

READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
WRITE_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Unusable(CacheError):
    """The error for a cache set that this process can't use. The set must be removed first.

    Callers that know the cache's name append the command that removes the cache to the text.
    """


class DamagedCacheFile(Unusable):
    """The error for a missing or invalid file of a set or session, if trying again can't help.

    what    the damage, as a sentence without its full stop
    remedy  what the user can do, as a sentence without its full stop; empty: nothing
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what

    def __str__(self) -> str:
        return ". ".join(filter(None, self.args))


@dataclass(frozen=True, slots=True)
class Access:
    """The permissions of standpipe's folder: for this user alone, or for a group of users.

    group  the group's number; None: this user alone
    """

    group: int | None = None

    @property
    def name(self) -> str:
        """The name of standpipe's folder: ``standpipe-UID``, or ``standpipe-group-GID`` for a group."""
        return f"standpipe-{os.geteuid()}" if self.group is None else f"standpipe-group-{self.group}"

    @property
    def folder_mode(self) -> int:
        """The permission bits of every folder: 0o700, or 0o2770 for a group."""
        return 0o700 if self.group is None else 0o2770

    @property
    def file_mode(self) -> int:
        """The permission bits of files that all users of the folder write: 0o600, or 0o660 for a group."""
        return 0o600 if self.group is None else 0o660

    @property
    def own_mode(self) -> int:
        """The permission bits of files that one user writes and all read: 0o600, or 0o640 for a group."""
        return 0o600 if self.group is None else 0o640

    def objection(self, facts: os.stat_result) -> str | None:
        """Return the reason why a folder with this ``os.stat`` result isn't safe to use; None if it is safe."""
        if not stat.S_ISDIR(facts.st_mode):
            return "it isn't a folder"
        if self.group is not None:
            if facts.st_gid != self.group or facts.st_mode & 0o002:
                return f"users outside group {self.group} can access it"
            return None
        if facts.st_uid != os.geteuid():
            return f"it belongs to user {facts.st_uid}"
        return "other users can access it" if facts.st_mode & 0o077 else None


@dataclass(frozen=True, slots=True)
class Home:
    """Standpipe's open folder in ``/dev/shm`` or on a disk. The caller of ``open_home`` closes it.

    path      path of the folder, for messages and for notes that say where a set is
    access    users who may use the folder
    sessions, sets, spilled, temporary  file descriptors of the folders of these names in it
    """

    path: str
    access: Access
    sessions: int
    sets: int
    spilled: int
    temporary: int

    def close(self) -> None:
        """Close the four file descriptors."""
        for descriptor in (self.sessions, self.sets, self.spilled, self.temporary):
            os.close(descriptor)

    def destroying(self, name: str) -> str:
        """Return the shell command that destroys the session ``name``, for messages."""
        import shlex  # imported here, like others below, because a start without a cache doesn't need it

        words = ["standpipe", "cache", "destroy", name]
        if (directory := os.path.dirname(self.path)) != SHARED_MEMORY:  # noqa: PTH120
            words += ["--directory", directory]
        if self.access.group is not None:
            words += ["--shared-group", str(self.access.group)]
        return shlex.join(words)

    @property
    def mark(self) -> dict[str, int]:
        """Device and inode of sets/. They differ from those of the same path in another container."""
        facts = os.fstat(self.sets)
        return {"device": facts.st_dev, "inode": facts.st_ino}


def open_home(directory: str, access: Access, *, make: bool) -> Home:
    """Open standpipe's folder in ``directory``; if ``make`` is True, create a missing one.

    Raises ``FileNotFoundError`` if the folder is missing and ``make`` is False, ``CacheError`` for other failures.
    """
    path = os.path.join(directory, access.name)  # noqa: PTH118 (text, as everywhere here)
    opened: dict[str, int] = {}
    try:
        with contextlib.ExitStack() as stack:
            above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, above)
            base = open_folder(above, access.name, access, make=make)
            stack.callback(os.close, base)
            version = open_folder(base, VERSION, access, make=make)
            stack.callback(os.close, version)
            for name in FOLDERS:
                opened[name] = open_folder(version, name, access, make=make)
    except BaseException as error:
        for descriptor in opened.values():
            os.close(descriptor)
        if isinstance(error, FileNotFoundError) and not make:
            raise
        if isinstance(error, OSError):
            raise CacheError(f"the cache folder {path}: {_why(error)}") from error
        raise
    return Home(path, access, **opened)


def open_folder(above: int, name: str, access: Access, *, make: bool) -> int:
    """Open the folder ``name`` and return its file descriptor; if ``make`` is True, create a missing one.

    above  file descriptor of the parent folder

    Raises ``OSError``; ``PermissionError`` if other users could change the folder.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
    folder = os.open(name, READ_FOLDER, dir_fd=above)
    try:
        facts = os.fstat(folder)
        if facts.st_uid == os.geteuid() and make:
            share_with_group(folder, access, access.folder_mode)
            facts = os.fstat(folder)
        if (objection := access.objection(facts)) is not None:
            raise PermissionError(
                errno.EACCES,
                f"{objection}, so it isn't used. Remove it, or choose another folder with directory= or spill=",
                name,
            )
    except BaseException:
        os.close(folder)
        raise
    return folder


def share_with_group(descriptor: int, access: Access, mode: int) -> None:
    """Set the group and permission bits of a file or folder of a group's cache, whatever the umask is.

    It changes nothing for a cache of this user alone.
    """
    facts = os.fstat(descriptor)
    if access.group is not None and facts.st_gid != access.group:
        os.fchown(descriptor, -1, access.group)
    if access.group is not None and stat.S_IMODE(facts.st_mode) != mode:
        os.fchmod(descriptor, mode)


@contextlib.contextmanager
def new_folder(home: Home) -> Iterator[tuple[str, int]]:
    """Make a folder; yield its name in temporary/ and its file descriptor.

    The caller moves the complete folder out of temporary/. An exception in the ``with`` block removes the folder.
    """
    name, folder = _claim_new(home, lambda name: _make_folder(name, home.temporary))
    try:
        share_with_group(folder, home.access, home.access.folder_mode)
        yield name, folder
    except BaseException:
        remove(home.temporary, name)
        raise
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)
        os.close(folder)


@contextlib.contextmanager
def new_file(home: Home, mode: int) -> Iterator[tuple[str, int]]:
    """Make a file; yield its name in temporary/ and its locked file descriptor.

    The caller moves the file out of temporary/ and closes it. An exception in the ``with`` block removes the file.
    """
    name, file = _claim_new(home, lambda name: os.open(name, NEW_FILE, 0o600, dir_fd=home.temporary))
    try:
        share_with_group(file, home.access, mode)
        yield name, file
    except BaseException:
        os.close(file)
        remove(home.temporary, name)
        raise


def _claim_new(home: Home, make: Callable[[str], int]) -> tuple[str, int]:
    """Make a file or folder in temporary/ and lock it; return its name and file descriptor.

    The lock shows other processes that the maker lives, so they don't remove the file. ``make`` creates and opens
    the name that it is given, and returns the file descriptor.
    """
    for _ in range(LOOKUP_TRIES):
        name = NEW + os.urandom(8).hex()
        try:
            made = make(name)
        except FileNotFoundError:
            continue
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(made, name, home.temporary):
                return name, made
        os.close(made)
    raise CacheError(f"{home.path}: other processes remove each new file there at once")


def _make_folder(name: str, temporary: int) -> int:
    os.mkdir(name, 0o700, dir_fd=temporary)
    return os.open(name, READ_FOLDER, dir_fd=temporary)


def publish(home: Home, made: str, above: int, name: str) -> None:
    """Move the complete file or folder ``made`` from temporary/ to ``name``. Raises ``OSError``.

    above  file descriptor of the folder that receives it

    Raises ``FileExistsError`` if ``name`` exists there.
    """
    try:
        os.rename(made, name, src_dir_fd=home.temporary, dst_dir_fd=above)
    except OSError as error:
        if error.errno in TAKEN:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
        raise


def write_manifest(home: Home, folder: int, name: str, facts: Mapping[str, Any]) -> None:
    """Write ``facts`` to the JSON file ``name``; an earlier file is replaced in one step. Raises ``OSError``.

    folder  file descriptor of the folder that contains the JSON file
    """
    import json

    with new_file(home, home.access.file_mode) as (made, file):
        write_all(file, json.dumps(dict(facts), indent=1).encode() + b"\n", 0)
        os.fsync(file)  # without it, a power cut could leave an empty file of that name
        os.rename(made, name, src_dir_fd=home.temporary, dst_dir_fd=folder)
    os.close(file)


def read_manifest(folder: int, name: str) -> dict[str, Any]:
    """Return the object in the JSON file ``name`` of a folder, given by file descriptor.

    Raises ``OSError``, ``DamagedCacheFile`` if the file contains no JSON object, ``CacheError`` on deep recursion.
    """
    import json

    with closing_descriptor(open_regular(name, READ_FILE, folder)) as file:
        data = os.read(file, MOST_MANIFEST_BYTES)
    try:
        facts = json.loads(data)
    except ValueError as error:
        raise DamagedCacheFile(f"{name} is damaged: it isn't JSON") from error
    except RecursionError as error:  # may pass: it also comes when the caller's stack is nearly full
        raise CacheError(f"{name} can't be read: {error}") from error
    if not isinstance(facts, dict):
        raise DamagedCacheFile(f"{name} is damaged: it isn't a JSON object")
    return facts


def damage_of(error: OSError) -> str | None:
    """Return the damage that an error proves, in words; None if trying again may help.

    error  error of opening a cache file or folder that should exist
    """
    match error.errno:
        case errno.ENOENT:
            return f"{error.filename} is missing"
        case errno.ENOTDIR:
            return f"{error.filename} is not a folder"
        case errno.EISDIR | errno.ELOOP | errno.ENXIO | errno.EINVAL:  # from a folder, link, socket or pipe
            return f"{error.filename} is not a regular file"
        case _:
            return None


def names_in(folder: int) -> list[str]:
    """Return the sorted names in a folder, given by file descriptor; an empty list if the folder is gone."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def remove(folder: int, name: str) -> None:
    """Remove the file ``name``, or the folder ``name`` with its contents, if it exists. Raises ``OSError``.

    folder  file descriptor of the folder that contains it
    """
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):  # POSIX's error for a folder is the latter
        import shutil

        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(name, dir_fd=folder)


def is_held(folder: int, name: str) -> bool:
    """Return True if a living process has locked ``name``, or if an error hides this. A missing file: False.

    folder  file descriptor of the folder that contains the file or folder ``name``
    """
    try:
        there = os.open(name, READ_FILE, dir_fd=folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    with closing_descriptor(there):
        try:
            fcntl.flock(there, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def clear_aside(home: Home) -> None:
    """Remove the files in temporary/ that killed processes left. Files of living processes stay.

    Files that can't be removed stay too.
    """
    for name in names_in(home.temporary):
        with contextlib.suppress(OSError):
            if name.startswith(GONE):
                remove(home.temporary, name)
                continue
            with closing_descriptor(os.open(name, READ_FILE, dir_fd=home.temporary)) as left:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until it is gone: see _claim_new
                remove(home.temporary, name)


def refused(home: Home, error: OSError) -> CacheError:
    """Return the ``CacheError`` for a system error inside standpipe's folder."""
    return CacheError(f"the cache in {home.path} can't be used: {_why(error)}")


def _why(error: OSError) -> str:
    """Return the text for a system error, with what the user can do about frequent ones."""
    match error.errno:
        case errno.ELOOP | errno.ENOTDIR:
            return (
                f"a link or file is in the place of its folder {error.filename}. Another user may have planted it: "
                "remove it"
            )
        case errno.ENOSPC | errno.EDQUOT:
            return (
                f"{error.strerror}. Free some space there, or choose another folder with directory= or spill="
            )
        case _:
            return error.strerror or str(error)
