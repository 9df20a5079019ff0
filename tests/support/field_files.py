"""A source of several files per record, and painted images, whose pixels say where they were."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from photos import encoded
from standpipe.contracts import Encoded, Files, Paths, Records
from standpipe.spec import UInt8Array

INSIDE = 7  # in the third channel of painted images


@dataclass(frozen=True)
class Lists:
    """A source of fields of files: ``fields`` has the paths of each."""

    fields_of: dict[str, list[Path]]

    def open(self) -> "OpenLists":
        return OpenLists(self.fields_of)

    def describe(self) -> str:
        return "Lists"


@dataclass(frozen=True)
class OpenLists:
    fields_of: dict[str, list[Path]]
    classes = None
    index_bytes = 0
    columns = ()
    digest = "lists"

    @property
    def num_records(self) -> int:
        return len(next(iter(self.fields_of.values())))

    @property
    def fields(self) -> dict[str, Encoded]:
        return dict.fromkeys(self.fields_of, Encoded())

    def locate(self, indices: Any) -> Records:
        files = {}
        for name, paths in self.fields_of.items():
            some = Paths.pack([bytes(paths[index]) for index in indices.tolist()])
            files[name] = Files(some, np.zeros(len(indices), np.int64), np.full(len(indices), -1, np.int64))
        return Records(indices, files=files)

    def name(self, index: int) -> str:
        return str(next(iter(self.fields_of.values()))[index])


def painted(height: int, width: int) -> UInt8Array:
    """An image with its places in two channels."""
    y, x = np.mgrid[:height, :width].astype(np.uint8)
    return np.stack([x, y, np.full_like(y, INSIDE)], -1)


def written(folder: Path, pictures: dict[str, list[UInt8Array]]) -> Any:
    """Write pictures as PNGs, and return a source of them."""
    paths: dict[str, list[Path]] = {name: [] for name in pictures}
    for name, each in pictures.items():
        for number, picture_ in enumerate(each):
            paths[name].append(folder / f"{name}{number}.png")
            paths[name][-1].write_bytes(encoded(picture_, "PNG"))
    return Lists(paths)
