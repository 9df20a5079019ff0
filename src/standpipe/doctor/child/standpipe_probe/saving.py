"""Files that ``torch.save`` writes become scratch files: a model of a few steps mustn't replace a trained one.

What the script does with such a file afterwards, such as copying it to ``model_best.pth.tar``, is done with the scratch
file. Files that were there stay as they are.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Callable
from typing import Any

from .record import Record

READS = ((os.path, ("exists", "isfile", "getsize")),)
COPIES = ((shutil, ("copyfile", "copy", "copy2")),)
MOVES = ((shutil, ("move",)), (os, ("rename", "replace")))
REMOVES = ((os, ("remove", "unlink")),)


class Scratch:
    """Where files lie that the script believes to have written, by their absolute paths."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.files: dict[str, str] = {}
        self._numbers = itertools.count()

    def install(self) -> None:
        """Patch what scripts do with a file that they have saved. As long as none is saved, nothing differs."""
        for modules, around in (
            (READS, self._read),
            (COPIES, self._copied),
            (MOVES, self._moved),
            (REMOVES, self._removed),
        ):
            for module, names in modules:
                for name in names:
                    setattr(module, name, self._patched(getattr(module, name), around))

    def saved(self, path: str | os.PathLike[str]) -> str:
        """Return the file that is written in place of ``path``."""
        self.record.write("withheld", what=os.fspath(path))
        name = absolute(path)
        if name not in self.files:
            scratch = f"saved-{os.getpid()}-{next(self._numbers)}"
            self.files[name] = os.path.join(self.record.folder, scratch)  # noqa: PTH118
        return self.files[name]

    def at(self, path: Any) -> Any:
        """Return the file that stands for ``path``: the scratch file, or itself."""
        return self.files.get(absolute(path), path) if self.files and is_path(path) else path

    def _patched(self, inner: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def call(*values: Any, **named: Any) -> Any:
            if not self.files or "dir_fd" in named:
                return inner(*values, **named)
            values += tuple(named.pop(name) for name in ("path", "src", "dst") if name in named)
            if not is_path(values[0]) or absolute(values[0]) not in self.files:
                return inner(*values, **named)
            return around(inner, *values, **named)

        return call

    def _read(self, inner: Callable[..., Any], path: Any, *values: Any, **named: Any) -> Any:
        return inner(self.at(path), *values, **named)

    def _copied(self, inner: Callable[..., Any], source: Any, to: Any, *values: Any, **named: Any) -> Any:
        to = self._inside(source, to)
        inner(self.at(source), self.saved(to), *values, **named)
        return to

    def _moved(self, inner: Callable[..., Any], source: Any, to: Any, *values: Any, **named: Any) -> Any:
        to = self._inside(source, to)
        self.record.write("withheld", what=os.fspath(to))
        moved = self.files.pop(absolute(source))
        if (replaced := self.files.get(absolute(to))) is not None:
            os.unlink(replaced)  # noqa: PTH108 (this is patched, and does as ever with files of its own)
        self.files[absolute(to)] = moved
        return to

    def _removed(self, inner: Callable[..., Any], path: Any, *values: Any, **named: Any) -> None:
        inner(self.files.pop(absolute(path)))

    def _inside(self, source: str | os.PathLike[str], to: str | os.PathLike[str]) -> str:
        """Where a copy ends up: in a folder under its own name."""
        return os.path.join(to, os.path.basename(source)) if os.path.isdir(to) else os.fspath(to)  # noqa: PTH112, PTH118, PTH119


def is_path(value: Any) -> bool:
    """Whether it names a file."""
    return isinstance(value, str | os.PathLike)


def absolute(path: str | os.PathLike[str]) -> str:
    """The name under which a file is known here."""
    return os.path.abspath(os.fspath(path))  # noqa: PTH100
