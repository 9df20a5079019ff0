"""A source whose images are parts of larger files, for tests of the reader."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from photos import age
from standpipe.contracts import Encoded, Files, Paths, Records
from standpipe.spec import Int64Array

BETWEEN = b"\0" * 700  # between two images, as an archive's headers are


@dataclass(frozen=True)
class Parts:
    """Images that are bytes of larger files, and what those files were when they were written."""

    paths: tuple[Path, ...]
    places: tuple[tuple[int, int, int], ...] = field(repr=False)  # number of the file, offset, length
    known: tuple[tuple[int, int], ...] = ()  # size and modification time of each file; () if unknown

    columns = ()
    classes = None
    index_bytes = 0

    def open(self) -> Parts:
        return self

    def describe(self) -> str:
        return f"Parts of {len(self.paths)} files"

    @property
    def num_records(self) -> int:
        return len(self.places)

    @property
    def fields(self) -> Mapping[str, Any]:
        return {"image": Encoded()}

    def column(self, name: str, start: int, stop: int) -> Any:
        raise KeyError(name)

    @property
    def digest(self) -> str:
        return hashlib.blake2b(repr(self.places).encode(), digest_size=16).hexdigest()

    def locate(self, indices: Int64Array) -> Records:
        number, offset, length = np.array(self.places, np.int64)[indices].reshape(-1, 3).T.copy()
        paths = Paths.pack([bytes(self.paths[each]) for each in number])
        known = np.array(self.known, np.int64)[number].T.copy() if self.known else (None, None)
        return Records(indices, files={"image": Files(paths, offset, length, *known)})

    def name(self, index: int) -> str:
        return f"{self.paths[self.places[index][0]]}: {index:03d}.jpg"


def write_parts(folder: Path, contents: Sequence[bytes], *, files: int = 1, known: bool = True) -> Parts:
    """Write images one after another into ``files`` files that were modified long ago."""
    per_file = -(-len(contents) // files)
    paths, places = [], []
    for number in range(files):
        data = b""
        for content in contents[number * per_file : (number + 1) * per_file]:
            data += BETWEEN
            places.append((number, len(data), len(content)))
            data += content
        path = folder / f"{number}.parts"
        path.write_bytes(data)
        paths.append(path)
    age(*paths)
    stats = [path.stat() for path in paths]
    return Parts(
        tuple(paths),
        tuple(places),
        tuple((each.st_size, each.st_mtime_ns) for each in stats) if known else (),
    )
