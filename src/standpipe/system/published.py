"""Exchange short messages between running processes of one user, in small files.

They are in a folder that only this user can open: in ``$XDG_RUNTIME_DIR``, else in /dev/shm, else nowhere.
The process that writes a file holds a lock on it (flock), which the kernel releases however the process ends.
A reader removes files that no process holds. A file is one line: eight hexadecimal digits, the CRC-32 of the
message, and the message. It is written by one call, and a reader that sees half of it reads again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path

from standpipe.system.files import open_regular

SHARED_MEMORY = Path("/dev/shm")
MOST_BYTES = 1 << 20  # most bytes that are read of a file
# How often to make a file, which a reader may remove before it is locked, and to read one that is being written.
FILE_TRIES = 5


class Published:
    """A small file by which this process publishes a message to other processes of the same user.

    kind  first part of the file's name, by which readers choose files

    If no folder can hold the file, ``write`` does nothing.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._path: Path | None = None
        self._file: int | None = None
        self._closed = False
        self._lock = threading.Lock()  # one thread closes it while others write
        _of_process.add(self)

    @property
    def name(self) -> str | None:
        """The file's name; None if there is no file."""
        return None if self._path is None else self._path.name

    def write(self, message: bytes) -> None:
        """Replace the file's message by ``message``, which must have no line breaks. Errors are ignored."""
        with self._lock, contextlib.suppress(OSError):
            if not self._closed and self._is_there():
                assert self._file is not None
                os.pwrite(self._file, line_of(message), 0)

    def close(self) -> None:
        """Remove the file, and release its lock. Later writes do nothing."""
        with self._lock:
            self._closed = True
            if self._path is not None:
                with contextlib.suppress(OSError):
                    self._path.unlink()
                    self._path.parent.rmdir()  # which fails while another file is in it
            self._path = None
            if self._file is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)  # forked children may still have it open
            self._drop()

    def forget(self) -> None:
        """Close the parent's file in a forked child, so that its lock ends with the parent."""
        self._lock = threading.Lock()  # another thread may have held it
        self._closed, self._path = True, None
        self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def _is_there(self) -> bool:
        """Make the file if it is missing, since a login manager may remove it; return False if none can be made.

        The caller holds ``_lock``.
        """
        if self._file is not None and os.fstat(self._file).st_nlink:
            return True
        self._drop()
        for folder in (folder for folder in folders() for _ in range(FILE_TRIES)):
            with contextlib.suppress(OSError):
                folder.mkdir(mode=0o700, exist_ok=True)
                if not _is_private(folder):
                    continue
                self._path = folder / f"{self._kind}-{os.getpid()}-{os.urandom(4).hex()}"
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                if _locks(self._file) and os.fstat(self._file).st_nlink:
                    return True
            self._path = None
            self._drop()
        return False


def published_messages(kind: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the message of every file of a kind whose process lives."""
    for folder in filter(_is_private, folders()):
        for path in sorted(folder.glob(f"{kind}-*")):
            with contextlib.suppress(OSError, ValueError):
                yield path.name, _read(path)


def folders() -> tuple[Path, Path]:
    """Return the two folders that may contain this user's published files, the preferred one first."""
    user = os.geteuid()
    session = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    return Path(session) / "standpipe", SHARED_MEMORY / f"standpipe-loaders-{user}"


def is_possible() -> bool:
    """Return True if one of ``folders()`` can contain published files of this user."""
    return any(
        _is_private(folder) or (not folder.exists() and os.access(folder.parent, os.W_OK | os.X_OK))
        for folder in folders()
    )


def line_of(message: bytes) -> bytes:
    """Return the content of a published file: the message's CRC-32 in hexadecimal, the message, a line break."""
    return b"%08x%s\n" % (zlib.crc32(message), message)


def message_in(file: bytes) -> bytes | None:
    """Return the message in the content of a published file; None if it is missing or incomplete."""
    line, end, _ = file.partition(b"\n")
    message = line[8:]
    return message if end and line + end == line_of(message) else None


def _read(path: Path) -> bytes:
    """Return the message of a published file. If its process has ended, remove the file.

    Raises ``ValueError`` if the file has no message or was removed.
    """
    file = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if _locks(file):
            path.unlink()
        else:
            for _ in range(FILE_TRIES):
                if (message := message_in(os.pread(file, MOST_BYTES, 0))) is not None:
                    return message
    finally:
        os.close(file)
    raise ValueError(f"{path} holds no message")


def _is_private(folder: Path) -> bool:
    """Return True if a folder exists, and only this user can open it."""
    try:
        facts = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def _locks(file: int) -> bool:
    """Lock an open file without waiting; return False if another process has locked the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_of_process: weakref.WeakSet[Published] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_of_process):
        each.forget()


os.register_at_fork(after_in_child=_forked)
