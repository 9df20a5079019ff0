"""Convert paths between the forms of users, the file system and messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from standpipe.errors import PlanError
from standpipe.system.files import NotRegularError, open_regular

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
ADDRESS = re.compile(rb"pipe:|[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # pathlib makes one slash of two


def path_text(path: AnyPath) -> str:
    r"""Make ``path`` printable: bytes that aren't UTF-8 and control characters become escapes like ``\xff``."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def is_address(path: AnyPath) -> bool:
    """Return True for an address such as ``s3://bucket/train``, unless there is a file of that name."""
    raw = os.fsencode(path)
    return ADDRESS.match(raw) is not None and not os.path.lexists(raw)


def absolute(path: object, *, field: str) -> bytes:
    """Make a path absolute: expand ``~`` and prepend the working directory. Links and ``..`` are kept.

    field  the name of the argument, for errors

    Raises ``PlanError`` for a value that isn't a path, an empty path or one with a NUL byte, and for an address such
    as ``s3://bucket/train``, unless there is a file of that name.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise PlanError(f"{field} must be a path: str, bytes or pathlib.Path, got {path!r}")
    raw = os.fsencode(path)
    if not raw or b"\0" in raw:
        raise PlanError(f"'{path_text(raw)}' isn't a path: it {'contains a NUL byte' if raw else 'is empty'}")
    if is_address(raw):
        raise PlanError(
            f"{field}: {path_text(raw)} is an address, and only TarShards reads those, as a str such as "
            "'s3://bucket/train-{000..146}.tar'. Mount it (mountpoint-s3, gcsfuse, …) or copy it, and give the path; "
            "or fetch images in a dataset of yours, MapSource(dataset, encoded='image')"
        )
    with reading(raw):
        return os.path.join(os.fsencode(Path.cwd()), os.path.expanduser(raw))  # noqa: PTH111, PTH118 (bytes)


@contextmanager
def reading(path: AnyPath) -> Iterator[None]:
    """Turn the operating system's errors into a ``PlanError`` that names ``path`` and says what to do."""
    try:
        yield
    except OSError as error:
        match error:
            case FileNotFoundError():
                advice = "check the path, and that its disk is mounted"
            case PermissionError():
                advice = "make it readable for this user"
            case NotADirectoryError():
                advice = "a folder is needed here: unpack an archive, and use FileList for a list of files"
            case IsADirectoryError():
                advice = (
                    "a file is needed here; for a folder of images use ImageFolder, of shards 'FOLDER/*.tar'"
                )
            case _:
                advice = "the system can't read it"
        raise PlanError(f"can't read {path_text(path)}: {error.strerror}; {advice}") from error


def open_for_reading(path: bytes) -> BinaryIO:
    """Open a regular file for reading, unbuffered.

    Raises ``PlanError`` for anything else. It doesn't wait for a FIFO without a writer.
    """
    with reading(path):
        try:
            return os.fdopen(open_regular(path), "rb", buffering=0)
        except NotRegularError as error:
            raise PlanError(f"can't read {path_text(path)}: {error.strerror}") from error
