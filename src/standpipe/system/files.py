"""Open regular files, write files that appear complete or not at all, and tell their image type."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from standpipe.errors import PlanError, StandpipeError


class NotRegularError(OSError):
    """A file is a pipe, socket or device."""


def open_regular(
    path: str | bytes | os.PathLike[str], flags: int = os.O_RDONLY, folder: int | None = None
) -> int:
    """Open a regular file; return its file descriptor. It doesn't wait for a FIFO without a writer.

    It is an ``opener`` for ``open()`` too.

    folder  file descriptor of the folder from which a relative ``path`` starts; None: the working directory

    Raises ``OSError``: ``IsADirectoryError`` for a folder, ``NotRegularError`` for a pipe, socket or device.
    """
    file = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise NotRegularError(errno.EINVAL, "it is a pipe, socket or device; save it as a regular file", path)


def read_regular(
    path: str | os.PathLike[str], most: int, flags: int = os.O_RDONLY, folder: int | None = None
) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes. Raises ``OSError``, also for a larger file."""
    with open(open_regular(path, flags, folder), "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", path)
        return file.read()


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Yield a file descriptor, and close it at the end of the ``with`` block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(file: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data`` at byte ``offset`` of a file, given by file descriptor. Raises ``OSError``."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def read_all(file: int, out: memoryview, offset: int) -> None:
    """Fill ``out`` from byte ``offset`` of a file on. Raises ``OSError``; ``EOFError`` if the file ends before."""
    while out:
        if (got := os.preadv(file, [out], offset)) == 0:
            raise EOFError("it ends too soon")
        out, offset = out[got:], offset + got


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a UTF-8 text file for writing. It appears at ``path`` only when the ``with`` block ends without error.

    Raises ``StandpipeError`` if the file can't be written.
    """
    with drafted(path) as draft, draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
        yield file


@contextmanager
def drafted(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to; rename that file to ``path`` when the ``with`` block ends without error.

    For a pipe or device it yields ``path`` itself. Raises ``StandpipeError`` if the file can't be written; then an
    earlier file at ``path`` stays as it was.
    """
    target = Path(os.path.realpath(path))
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    if target.exists() and not target.is_file() and not target.is_dir():
        draft = target
    try:
        if draft != target:
            draft.unlink(missing_ok=True)  # a link that somebody has put there would be followed
        yield draft
        if draft != target:
            draft.replace(target)
    except BaseException as error:
        if draft != target:
            with contextlib.suppress(OSError):
                draft.unlink()
        if isinstance(error, OSError):
            raise StandpipeError(f"can't write {os.fspath(path)}: {error.strerror or error}") from error
        raise


def check_output_path(path: str | os.PathLike[str]) -> None:
    """Raise ``StandpipeError`` if ``path`` is a folder, or its parent folder doesn't exist or can't be written.

    Call it before long work whose result will be written to ``path``.
    """
    target = Path(path)
    if target.is_dir():
        raise StandpipeError(f"can't write {target}: it is a folder")
    if not target.parent.is_dir():
        raise StandpipeError(f"can't write {target}: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise StandpipeError(f"can't write {target}: {os.strerror(errno.EACCES)}")


def is_at(descriptor: int, name: str | bytes, folder: int | None = None) -> bool:
    """Return True if ``name`` still names the file or folder that is open as ``descriptor``, a file descriptor.

    folder  file descriptor of the folder that contains ``name``; None: ``name`` is a path. Links aren't followed
    """
    mine = os.fstat(descriptor)
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(mine, there)


def image_type(path: str | os.PathLike[str]) -> str:
    """Return Pillow's name of the file type that a path's ending says.

    Raises ``PlanError`` if Pillow can't write this type.
    """
    from PIL import Image

    ending = Path(path).suffix.lower()
    found = Image.registered_extensions().get(ending)
    if found is None or found not in Image.SAVE:
        raise PlanError(
            f"can't tell what kind of image {os.fspath(path)!r} should be; end it in .png or .jpg"
        )
    return found
