"""A user's description of a cache, which only stores."""

from __future__ import annotations

import os
import re
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from standpipe.cache.filesystem import check_local, file_system
from standpipe.errors import PlanError
from standpipe.system.machine import memory_in_use
from standpipe.units import is_seconds, parse_bytes, show_bytes

SHARED_MEMORY = "/dev/shm"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Validate = Literal["loader", "epoch", "never"]
Scope = Literal["ranks", "node"]


@dataclass(frozen=True, slots=True)
class Cache:
    """Where rows are kept for later epochs and other jobs, for ``Pipeline.cache(…)``. Constructing it touches nothing.

    name          of a session, which groups what is kept for people: letters, digits, ``.``, ``_`` and ``-``, 64 at
                  most. It tells no rows apart: jobs that make the same rows from the same data share them
    memory        what the session may keep in ``directory``, in bytes or as text such as ``"8GiB"``; 0 switches the
                  cache off. Default: what the session was created with, and for a new one half of what the machine, the
                  container and that file system have free
    spill         a folder on a disk for the rows that don't fit; default: the session's, which may be none
    spill_limit   what the session may keep there, in bytes or as text; default: as much as the disk has, but for a 64th
    directory     a folder in memory or on a disk of this machine; default: ``/dev/shm``, which is memory. A shared file
                  system is refused
    validate      when a row is checked against the size and time of its file: ``"loader"``: once after a loader's
                  start, so that a change made before is never missed, and one made during the run is found at the next
                  start; ``"epoch"``: once in each epoch; ``"never"``: a changed file's old row goes on being used until
                  the cache is destroyed
    idle_after    seconds after its last use from which on a whole set gives way to another one that needs its room;
                  None: never. One in use never does, and no single row ever does
    shared_group  a group of users, by name or number, who keep one cache together; default: nobody else can read it
    scope         what several ranks on a machine fill it with: ``"ranks"``: the records that they read; ``"node"``: all
    strict        whether a cache that can't be had is a ``CacheError``; else training goes on without, after a warning

    Of several jobs that give one session different limits each keeps to its own, counting all that the
    session has.
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

    @property
    def is_off(self) -> bool:
        """True if it keeps nothing: ``memory=0``."""
        return self.memory_bytes == 0

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` as a number. Raises ``PlanError`` for what is none."""
        if self.memory is None:
            return None
        if self.memory == 0 and not isinstance(self.memory, bool):
            return 0
        return parse_bytes(f"Cache({self.name!r}) memory", self.memory)

    @property
    def spill_limit_bytes(self) -> int | None:
        """``spill_limit`` as a number. Raises ``PlanError`` for what is none."""
        if self.spill_limit is None:
            return None
        return parse_bytes(f"Cache({self.name!r}) spill_limit", self.spill_limit)

    @property
    def directory_path(self) -> str:
        """The folder that contains standpipe's own."""
        return absolute("directory", SHARED_MEMORY if self.directory is None else self.directory)

    @property
    def spill_path(self) -> str | None:
        """The folder on a disk that contains standpipe's own."""
        return None if self.spill is None else absolute("spill", self.spill)

    def check(self) -> None:
        """Raise ``PlanError`` for what can't be: of the values, of this machine, and of its folders as they are."""
        check_name(self.name)
        self._check_choices()
        if self.is_off:
            return
        if self.spill_limit is not None and self.spill is None:
            raise PlanError(f"Cache(spill_limit={self.spill_limit!r}) goes with spill=, a folder on a disk")
        self._check_room("directory", self.directory_path, "memory", self.memory_bytes)
        if self.spill_path is not None:
            self._check_room("spill", self.spill_path, "spill_limit", self.spill_limit_bytes)

    def _check_choices(self) -> None:
        """Raise for values of a kind that there isn't."""
        if self.validate not in ("loader", "epoch", "never"):
            raise PlanError(f"Cache(validate={self.validate!r}): 'loader', 'epoch' or 'never'")
        if self.scope not in ("ranks", "node"):
            raise PlanError(f"Cache(scope={self.scope!r}): 'ranks' or 'node'")
        if self.idle_after is not None and not is_seconds(self.idle_after):
            raise PlanError(f"Cache(idle_after={self.idle_after!r}): seconds, or None for never")
        if not isinstance(self.strict, bool):
            raise PlanError(f"Cache(strict={self.strict!r}): True or False")
        if self.shared_group is not None:
            group_number(self.shared_group)

    def _check_room(self, what: str, folder: str, limit: str, asked: int | None) -> None:
        """Raise where ``folder`` can't have a cache, or its file system or the machine could never hold ``asked``."""
        try:
            found = file_system(folder)
        except OSError as error:
            raise PlanError(
                f"Cache({what}={folder!r}): {error.strerror}; it takes a folder that is there already"
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
                f"Cache({self.name!r}) {limit}={show_bytes(asked)!r} is more than there is at all: {', '.join(holds)}"
            )


def check_given(cache: object) -> None:
    """Raise ``PlanError`` for what is no ``Cache``, or has no name that a session could have."""
    if not isinstance(cache, Cache):
        raise PlanError(f"{cache!r:.60} is no Cache: give sp.Cache(name)")
    check_name(cache.name)


def check_name(name: object) -> None:
    """Raise ``PlanError`` for what can't name a session."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PlanError(
            f"Cache({name!r}): a name of at most 64 letters, digits, '.', '_' and '-', a letter or digit first"
        )


def absolute(what: str, path: object) -> str:
    """A path with ``~`` and the working directory filled in. Raises ``PlanError`` for what is none.

    what  whose it is, such as ``"directory"``
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise PlanError(f"Cache({what}={path!r}): the path of a folder")
    return os.path.abspath(os.path.expanduser(os.fsdecode(path)))  # noqa: PTH100, PTH111 (links stay)


def group_number(group: object) -> int:
    """The number of a group of users, and that this user may give it files, or ``PlanError``."""
    import grp

    try:
        if isinstance(group, str):
            number = grp.getgrnam(group).gr_gid
        elif isinstance(group, int) and not isinstance(group, bool) and group >= 0:
            number = group
        else:
            raise PlanError(f"Cache(shared_group={group!r}): the name or number of a group of users")
    except KeyError:
        raise PlanError(f"Cache(shared_group={group!r}): this machine has no such group") from None
    if os.geteuid() != 0 and number not in (os.getegid(), *os.getgroups()):
        raise PlanError(f"Cache(shared_group={group!r}): this user isn't in that group")
    return number
