"""The script's checkpoints are withheld: a model of a few steps mustn't replace a trained one.

A path is withheld when ``torch.save`` writes to it, when a withheld file is copied, moved or linked to it, and when the
script would truncate, replace or remove a file that is older than the run. From then on a scratch file stands for it:
Python's functions that take paths are patched, and use that one. The scratch folder alone says which file stands for
which, so forked workers and other ranks agree::

    held/FOLDER/NAME   is there if the path is withheld; FOLDER is the device and inode of the path's folder
    files/FOLDER/NAME  the scratch file; missing if the script has removed or moved it
"""

# ruff: noqa: PTH100, PTH103, PTH107, PTH108, PTH112, PTH113, PTH115, PTH118, PTH120, PTH123, PTH208 (pathlib calls these)

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .record import Record

CLOCK_REALTIME_COARSE = 5  # linux/time.h: the clock that dates files
TAKE_PATH = ("access", "chmod", "listxattr", "lstat", "open", "readlink", "stat", "utime")
ARGUMENTS = ("obj", "path", "file", "src", "dst", "f")  # that may be given by name, in their order
DESCRIPTORS = ("dir_fd", "src_dir_fd", "dst_dir_fd")
ABILITIES = (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks)


class Withheld:
    """The files that the script believes to have written, replaced or removed."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._held, self._files = (os.path.join(record.folder, name) for name in ("held", "files"))
        self._begin_ns = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
        self._stat, self._lstat = os.stat, os.lstat

    def install(self) -> None:
        """Patch Python's functions that take paths."""
        functions: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(TAKE_PATH, self._used),
            **dict.fromkeys(("listdir", "scandir"), self._listed),
            **dict.fromkeys(("remove", "unlink"), self._removed),
            **dict.fromkeys(("rename", "replace"), self._moved),
            "link": self._linked,
            "symlink": self._symlinked,
            "mkdir": self._folder_made,
        }
        for name, around in functions.items():
            self._patch(os, name, around)
        self._patch(shutil, "copyfile", self._copied)
        self._patch(builtins, "open", self._opened)
        io.open = builtins.open

    def install_torch(self, module: Any) -> None:
        """Patch ``torch.serialization``, which opens files without Python."""
        self._patch(module, "save", self._saved)
        self._patch(module, "load", self._used)

    def _patch(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def call(*values: Any, **named: Any) -> Any:
            values += tuple(named.pop(each) for each in ARGUMENTS if each in named)
            if any(named.get(each) is not None for each in DESCRIPTORS):
                return inner(*values, **named)
            try:
                return around(inner, *values, **named)
            except OSError as error:
                if str(error.filename).startswith(self._files):
                    error.filename = values[0]
                raise

        setattr(owner, name, staticmethod(call))  # as functions in C, it is no method of a class that has it
        for able in ABILITIES:
            if inner in able:
                able.add(getattr(owner, name))

    def _used(self, inner: Callable[..., Any], path: Any, *values: Any, **named: Any) -> Any:
        return inner(self._at(path), *values, **named)

    def _opened(
        self, inner: Callable[..., Any], path: Any, mode: str = "r", *values: Any, **named: Any
    ) -> Any:
        if "w" in mode and self._is_older(path, self._stat):
            self._withhold(path)
        return inner(self._at(path), mode, *values, **named)

    def _listed(self, inner: Callable[..., Any], path: Any = ".") -> Any:
        folder = self._folder(path) if _is_path(path) else None
        if folder is None or not os.path.isdir(os.path.join(self._held, folder)):
            return inner(path)
        held = set(os.listdir(os.path.join(self._held, folder)))
        entries = [entry for entry in inner(path) if getattr(entry, "name", entry) not in held]
        entries += inner(os.path.join(self._files, folder))
        return entries if inner.__name__ == "listdir" else _Entries(entries)

    def _saved(self, inner: Callable[..., Any], obj: Any, f: Any, *values: Any, **named: Any) -> None:
        if not _is_path(f):
            self._redirect(f)
        else:
            with contextlib.suppress(OSError):  # torch says what is wrong with the path
                f = self._withhold(f)
        inner(obj, f, *values, **named)

    def _copied(self, inner: Callable[..., Any], source: Any, to: Any, **named: Any) -> Any:
        if self._is_scratch(source) and os.path.isfile(source):
            self._withhold(to)
        return inner(source, to, **named)

    def _moved(self, inner: Callable[..., Any], source: Any, to: Any, **named: Any) -> None:
        if not any(self._is_scratch(path) or self._is_older(path) for path in (source, to)):
            inner(source, to, **named)
            return
        os.lstat(source)  # raises if it is missing
        scratch = self._withhold(to)
        if self._is_scratch(source):
            inner(self._at(source), scratch)
        else:
            shutil.copyfile(source, scratch)
            os.remove(source)

    def _removed(self, inner: Callable[..., Any], path: Any, **named: Any) -> None:
        if self._is_older(path):
            self._withhold(path)
        else:
            inner(self._at(path), **named)

    def _linked(self, inner: Callable[..., Any], source: Any, to: Any, **named: Any) -> None:
        if os.path.lexists(to) or not (self._is_scratch(source) or self._is_scratch(to)):
            inner(self._at(source), self._at(to), **named)
        else:
            shutil.copyfile(source, to)

    def _symlinked(self, inner: Callable[..., Any], source: Any, to: Any, *values: Any, **named: Any) -> None:
        target = os.path.join(os.path.dirname(to), source)
        if self._is_scratch(target) or self._is_scratch(to):
            source = os.path.abspath(self._at(target))
            to = self._at(to) if os.path.lexists(to) else self._withhold(to)
        inner(source, to, *values, **named)

    def _folder_made(self, inner: Callable[..., Any], path: Any, *values: Any, **named: Any) -> None:
        inner(path, *values, **named)
        if (folder := self._folder(path)) is not None:  # its inode may be that of a folder that was removed
            for tree in (self._held, self._files):
                shutil.rmtree(os.path.join(tree, folder), ignore_errors=True)

    def _redirect(self, file: Any) -> None:
        """Let an open file be a scratch file from now on. Files in memory, and those without a name, stay."""
        try:
            number = file.fileno()
            path = os.readlink(f"/proc/self/fd/{number}")
            if self._is_scratch(path) or not stat.S_ISREG(self._lstat(path).st_mode):
                return
        except (AttributeError, OSError):
            return
        file.flush()
        is_older = self._is_older(path)
        with open(path, "rb") as written:
            if not is_older:
                os.unlink(path)
            with open(self._withhold(path), "wb") as scratch:
                shutil.copyfileobj(written, scratch)
                scratch.seek(os.lseek(number, 0, os.SEEK_CUR))
                os.dup2(scratch.fileno(), number, inheritable=False)

    def _withhold(self, path: Any) -> str:
        """Return the scratch file that stands for a path from now on; an ``OSError`` if no file can be there."""
        if (scratch := str(os.fspath(self._at(path)))).startswith(self._files):
            return scratch
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        head, name = os.path.split(path)
        folder = _number(self._stat(os.path.join(head, ".")))
        for tree in (self._held, self._files):
            os.makedirs(os.path.join(tree, folder), exist_ok=True)
        with open(os.path.join(self._held, folder, name), "a"):
            self._record.write("withheld", what=os.fspath(path))
        return os.path.join(self._files, folder, name)

    def _at(self, path: Any) -> Any:
        """Return the scratch file that stands for a path, or the path. Calls nothing that is patched."""
        if not _is_path(path):
            return path
        head, name = os.path.split(path)
        folder = self._folder(os.path.join(head, "."))
        if folder is None or not name.strip("."):
            return path
        try:
            self._lstat(os.path.join(self._held, folder, name))
        except OSError:
            return path
        return os.path.join(self._files, folder, name)

    def _is_scratch(self, path: Any) -> bool:
        """Return True if a path is withheld, or is a scratch file itself, as in a folder's list."""
        return _is_path(path) and os.fspath(self._at(path)).startswith(self._files)

    def _is_older(self, path: Any, look: Callable[..., os.stat_result] | None = None) -> bool:
        """Return True if a file or link existed before the script began."""
        if not _is_path(path) or self._is_scratch(path):
            return False
        try:
            found = (look or self._lstat)(path)
        except OSError:
            return False
        is_file = stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)
        return is_file and found.st_ctime_ns < self._begin_ns

    def _folder(self, path: Any) -> str | None:
        """Return the name of a folder in the scratch folder, if it is there."""
        try:
            return _number(self._stat(path))
        except OSError:
            return None


class _Entries:
    """The result of ``os.scandir``."""

    def __init__(self, entries: Iterable[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: all entries are known."""


def _number(folder: os.stat_result) -> str:
    return f"{folder.st_dev:x}-{folder.st_ino:x}"


def _is_path(value: Any) -> bool:
    """Return True if it names a file by text."""
    return isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str)
