"""The user's description of a cache."""

from __future__ import annotations

import os
import re
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from standpipe.errors import PlanError
from standpipe.system.filesystem import check_local, file_system
from standpipe.system.machine import memory_in_use
from standpipe.units import is_seconds, parse_bytes, show_bytes

SHARED_MEMORY = "/dev/shm"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Validate = Literal["loader", "epoch", "never"]
Scope = Literal["ranks", "node"]


@dataclass(frozen=True, slots=True)
class Cache:
    """The settings of a cache, which keeps rows for later epochs and for other jobs on the same machine.

    Give it to ``Pipeline.cache(…)``. Constructing it touches no file.

    If several jobs give different limits for one session, each job keeps to its own limit, and counts all
    rows of the session.

    Parameters
    ----------
    name : str
        Name of the session, under which its sets are listed, limited and destroyed. It has at most 64
        characters: letters, digits, ``.``, ``_`` and ``-``, a letter or digit first. It doesn't separate
        rows: jobs that make the same rows from the same data share them, whatever the session's name.
    memory : int or str, optional
        Bytes that the session may keep in ``directory``, as a number or text such as ``"8GiB"``; 0 switches
        the cache off. Default: the limit that the session was created with; for a new session half of what
        the machine, the container and that file system have free.
    spill : path, optional
        A folder on a disk, for rows that don't fit. Default: the session's folder, which may be none.
    spill_limit : int or str, optional
        Bytes that the session may keep in ``spill``. Default: all that the disk has, except a 64th.
    directory : path, default "/dev/shm"
        A folder in memory or on a disk of this machine. A shared file system is refused.
    validate : str, default "loader"
        When a row is compared with the size and modification time of its file. ``"loader"``: once after each
        loader's start. A change before the start is always found, and a change during the run is found at the
        next start. ``"epoch"``: once in each epoch. ``"never"``: the old row of a changed file is used until
        the cache is destroyed.
    idle_after : float or None, default 600.0
        Seconds after its last use from which a whole set may be evicted, if another set needs its room; None:
        never. A set in use is never evicted, and neither are single rows.
    shared_group : str or int, optional
        Name or number of a group of users who keep one cache together. Default: only this user can read it.
    scope : str, default "ranks"
        Records that several ranks on one machine keep. ``"ranks"``: the records that these ranks read;
        ``"node"``: all records.
    strict : bool, default False
        True: raise ``CacheError`` if the cache can't be used. False: log a warning, and train without a
        cache.
    version : str or int, optional
        A name for the version of your functions and dataset before ``.cache()``. It is part of the rows' name,
        beside the source files of the functions. Functions that have no source file, as in a notebook, need it:
        change it whenever their results change.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid values, for limits above what the machine or the file system has, and for
        folders that can't hold a cache.

    Examples
    --------
    >>> cache = sp.Cache("pets", memory="64MiB", directory=".")
    >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).cache(cache).batch(8)
    >>> with pipeline.loader(num_workers=1) as loader:
    ...     epochs = [sum(len(batch["label"]) for batch in loader) for _ in range(2)]
    ...     print(epochs, loader.stats().cache_stored)
    [24, 24] 24
    """

    name: str
    memory: int | str | None = None
    _: KW_ONLY
    spill: str | os.PathLike[str] | None = None
    spill_limit: int | str | None = None
    directory: str | os.PathLike[str] | None = None
    validate: Validate = "loader"
    idle_after: float | None = 600.0
    shared_group: str | int | None = None
    scope: Scope = "ranks"
    strict: bool = False
    version: str | int | None = None

    @property
    def is_off(self) -> bool:
        """True if the cache keeps nothing: ``memory=0``."""
        return self.memory_bytes == 0

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` as a number of bytes; None if not given. Raises ``PlanError`` if it is invalid."""
        if self.memory is None:
            return None
        if self.memory == 0 and not isinstance(self.memory, bool):
            return 0
        return parse_bytes(f"Cache({self.name!r}) memory", self.memory)

    @property
    def spill_limit_bytes(self) -> int | None:
        """``spill_limit`` as a number of bytes; None if not given. Raises ``PlanError`` if it is invalid."""
        if self.spill_limit is None:
            return None
        return parse_bytes(f"Cache({self.name!r}) spill_limit", self.spill_limit)

    @property
    def directory_path(self) -> str:
        """The absolute path of ``directory``, in which standpipe makes its own folder; by default /dev/shm."""
        return absolute_folder("directory", SHARED_MEMORY if self.directory is None else self.directory)

    @property
    def spill_path(self) -> str | None:
        """The absolute path of ``spill``, in which standpipe makes its own folder; None without one."""
        return None if self.spill is None else absolute_folder("spill", self.spill)

    def check(self) -> None:
        """Raise ``PlanError`` if a value is invalid, or the machine or a folder can't hold the cache."""
        check_name(self.name)
        self._check_choices()
        if self.is_off:
            return
        if self.spill_limit is not None and self.spill is None:
            raise PlanError(f"Cache(spill_limit={self.spill_limit!r}) needs spill=, a folder on a disk")
        self._check_room("directory", self.directory_path, "memory", self.memory_bytes)
        if self.spill_path is not None:
            self._check_room("spill", self.spill_path, "spill_limit", self.spill_limit_bytes)

    def _check_choices(self) -> None:
        """Raise ``PlanError`` if validate, scope, idle_after, strict or shared_group has an invalid value."""
        if self.validate not in ("loader", "epoch", "never"):
            raise PlanError(
                f"Cache(validate={self.validate!r}): validate must be 'loader', 'epoch' or 'never'"
            )
        if self.scope not in ("ranks", "node"):
            raise PlanError(f"Cache(scope={self.scope!r}): scope must be 'ranks' or 'node'")
        if self.idle_after is not None and not is_seconds(self.idle_after):
            raise PlanError(
                f"Cache(idle_after={self.idle_after!r}): idle_after must be a number of seconds, or None for never"
            )
        if not isinstance(self.strict, bool):
            raise PlanError(f"Cache(strict={self.strict!r}): strict must be True or False")
        if isinstance(self.version, bool) or not isinstance(self.version, str | int | None):
            raise PlanError(f"Cache(version={self.version!r}): version must be a str or an int")
        if self.shared_group is not None:
            group_number(self.shared_group)

    def _check_room(self, what: str, folder: str, limit: str, asked: int | None) -> None:
        """Raise ``PlanError`` if ``folder`` is missing or shared by machines, or smaller than ``asked`` bytes.

        what   parameter of ``Cache`` that named the folder: ``"directory"`` or ``"spill"``
        limit  parameter of ``Cache`` that named the size: ``"memory"`` or ``"spill_limit"``
        asked  value of that parameter in bytes; None: the user gave none
        """
        try:
            found = file_system(folder)
        except OSError as error:
            raise PlanError(
                f"Cache({what}={folder!r}): {error.strerror}. Use a folder that exists"
            ) from error
        check_local(what, folder, found)
        holds = (
            [f"{folder}, a {found.kind}, has {show_bytes(found.total_bytes)}"] if found.total_bytes else []
        )
        sizes = [found.total_bytes] if found.total_bytes else []
        if found.in_memory:
            _, machine = memory_in_use()
            holds.append(f"the machine or container has {show_bytes(machine)} of memory")
            sizes.append(machine)
        if asked is not None and sizes and asked > min(sizes):
            raise PlanError(
                f"Cache({self.name!r}) {limit}={show_bytes(asked)!r} is too large: {', '.join(holds)}. "
                f"Use a smaller {limit}="
            )


def check_given(cache: object) -> None:
    """Raise ``PlanError`` if a value isn't a ``Cache``, or its name is invalid."""
    if not isinstance(cache, Cache):
        raise PlanError(f"{cache!r:.60} isn't a Cache: use sp.Cache(name)")
    check_name(cache.name)


def check_name(name: object) -> None:
    """Raise ``PlanError`` if a value isn't a valid session name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PlanError(
            f"Cache({name!r}): a name has at most 64 letters, digits, '.', '_' and '-', and begins with a letter or "
            "digit"
        )


def absolute_folder(what: str, path: object) -> str:
    """Return a path with ``~`` expanded, made absolute. Raises ``PlanError`` for a value that isn't a path.

    what  parameter of ``Cache`` that contains the path: ``"directory"`` or ``"spill"``
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise PlanError(f"Cache({what}={path!r}): {what} must be the path of a folder")
    return os.path.abspath(os.path.expanduser(os.fsdecode(path)))  # noqa: PTH100, PTH111 (links stay)


def group_number(group: object) -> int:
    """Return the number of a group of users, given by name or number.

    Raises ``PlanError`` if there is no group of that name, or this user isn't a member of the group.
    """
    import grp

    try:
        if isinstance(group, str):
            number = grp.getgrnam(group).gr_gid
        elif isinstance(group, int) and not isinstance(group, bool) and group >= 0:
            number = group
        else:
            raise PlanError(
                f"Cache(shared_group={group!r}): shared_group must be the name or number of a group of users"
            )
    except KeyError:
        raise PlanError(f"Cache(shared_group={group!r}): this machine has no such group") from None
    if os.geteuid() != 0 and number not in (os.getegid(), *os.getgroups()):
        raise PlanError(f"Cache(shared_group={group!r}): this user isn't in that group")
    return number
