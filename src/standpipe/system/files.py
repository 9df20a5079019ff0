"""Write files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from standpipe.errors import StandpipeError


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a UTF-8 text file for writing, which appears as ``drafted`` says."""
    with drafted(path) as draft, draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
        yield file


@contextmanager
def drafted(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file that appears at ``path`` complete, when the ``with`` block ends without an error.

    Yields the path to write to; a pipe or device is written directly. Raises ``StandpipeError`` if it can't
    be written; an earlier file at ``path`` then stays as it was.
    """
    target = Path(os.path.realpath(path))
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    if target.exists() and not target.is_file() and not target.is_dir():
        draft = target
    try:
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


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise ``StandpipeError`` if a file can't be written there, before the work whose result it will hold."""
    target = Path(path)
    if target.is_dir():
        raise StandpipeError(f"can't write {target}: it is a folder")
    if not target.parent.is_dir():
        raise StandpipeError(f"can't write {target}: there is no folder {target.parent}")


def is_at(descriptor: int, name: str | bytes, folder: int | None = None) -> bool:
    """Return True if ``name`` is the file or folder that is open as ``descriptor``. Links aren't followed.

    folder  descriptor of the folder of ``name``; None: ``name`` is a path
    """
    mine = os.fstat(descriptor)
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(mine, there)
