"""Build files in the user's cache folder, so that one process builds each file and others wait for it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator

from standpipe.system.faults import faultpoint
from standpipe.system.files import closing_descriptor, is_at
from standpipe.system.logs import logger
from standpipe.system.paths import path_text

BUILDING = b".building"
NOT_BELIEVED = (
    "others can write to its folder, so its files aren't trusted; run chmod go-w on the folder, or remove it"
)


class NoRoom(Exception):
    """A file can't be written in its folder. The text is the operating system's error."""


def cache_folder() -> bytes:
    """Return standpipe's folder in the user's cache folder."""
    cache = os.environb.get(b"XDG_CACHE_HOME", b"")
    if not cache.startswith(b"/"):  # the XDG standard ignores relative paths
        cache = os.path.expanduser(b"~/.cache")  # noqa: PTH111 (pathlib has no bytes)
    return cache + b"/standpipe"


def is_believed(path: bytes) -> bool:
    """Return True if a file at ``path`` is trusted.

    A file in the cache folder is, if only this user and root can write to its folder. Files elsewhere are
    trusted, since the caller chose the place. Raises ``OSError`` if the folder doesn't exist.
    """
    if not path.startswith(cache_folder() + b"/"):
        return True
    folder = os.stat(os.path.dirname(path))  # noqa: PTH116, PTH120 (pathlib has no bytes)
    return folder.st_uid in (0, os.geteuid()) and not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@contextlib.contextmanager
def claimed(path: bytes, *, keep: bool = False) -> Iterator[int]:
    """Lock the building of the file ``path``; yield the descriptor of the temporary file to build it in.

    The temporary file is its own lock, which the kernel releases when its holder dies. It has what a killed
    builder wrote. Raises ``NoRoom`` if it can't be written.

    keep  True: the temporary file stays when the builder gives up
    """
    building = path + BUILDING
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        if not is_believed(path):
            raise NoRoom(NOT_BELIEVED)
        while True:
            file = os.open(building, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                _lock(file, path)
                if is_at(file, building):
                    break
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # the last holder has finished and renamed it
    except OSError as error:
        raise NoRoom(error.strerror or str(error)) from error
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            if not keep and is_at(file, building):  # nothing was built
                os.unlink(building)  # noqa: PTH108
        fcntl.flock(file, fcntl.LOCK_UN)  # closing doesn't unlock while a copy of the descriptor is open
        os.close(file)


def publish_claimed(file: int, path: bytes) -> None:
    """Rename a complete temporary file of ``claimed`` to ``path``. Raises ``NoRoom`` if that fails."""
    try:
        os.fsync(file)
        faultpoint("index.publish.before")
        os.rename(path + BUILDING, path)  # noqa: PTH104
        faultpoint("index.publish.after")
        folder = os.path.dirname(path) or b"."  # noqa: PTH120
        with closing_descriptor(os.open(folder, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            os.fsync(descriptor)
    except OSError as error:
        raise NoRoom(error.strerror) from error


def _lock(file: int, path: bytes) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger().info("waiting for another process that builds %s", path_text(path))
        fcntl.flock(file, fcntl.LOCK_EX)
