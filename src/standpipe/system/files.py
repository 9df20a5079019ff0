"""Write files that appear complete or not at all, and tell their image type."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from standpipe.errors import PlanError, StandpipeError


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
    """Raise ``StandpipeError`` if ``path`` is a folder or its parent folder doesn't exist.

    Call it before long work whose result will be written to ``path``.
    """
    target = Path(path)
    if target.is_dir():
        raise StandpipeError(f"can't write {target}: it is a folder")
    if not target.parent.is_dir():
        raise StandpipeError(f"can't write {target}: there is no folder {target.parent}")


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
