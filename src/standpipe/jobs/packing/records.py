"""The records of a source that is packed: the places of their images, and their columns and instances."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from standpipe import _native
from standpipe.contracts import Files, OpenSource, RaggedRows
from standpipe.order import Sequential, Shuffled
from standpipe.spec import AnyArray, ArraySpec


class PackedImage(NamedTuple):
    """The place of a record's image, as ``contracts.Files`` has it.

    size       its bytes
    is_part    True if the file has more than the image
    file_bytes, mtime_ns, crc32c    -1 if they aren't known
    """

    path: bytes
    offset: int
    size: int
    is_part: bool
    file_bytes: int
    mtime_ns: int
    crc32c: int


class OrderedColumn:
    """A column of numbers in the packed order, as an array of which slices are read from the source."""

    def __init__(self, source: OpenSource, order: Sequential | Shuffled, name: str, spec: ArraySpec) -> None:
        self._source, self._order, self._name = source, order, name
        self.shape, self.dtype = (source.num_records, *spec.shape), spec.dtype
        self.ndim, self.nbytes = len(self.shape), math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> AnyArray:
        records = self._order.indices(0, part.start, min(part.stop, len(self)))
        return self._source.locate(records).plain[self._name]


def images_of(files: Files) -> Iterator[PackedImage]:
    """Yield the places of images. The size of a file that can't be examined is -1."""
    lengths, whole = files.length, files.length < 0
    marks, _ = _native.file_marks(files.paths.blob, files.paths.ends) if whole.any() else (lengths, None)
    unknown = np.full(len(lengths), -1)
    known = [unknown if each is None else each for each in (files.file_bytes, files.mtime_ns, files.crc32c)]
    sizes, file_bytes = (np.where(whole, marks, each) for each in (lengths, known[0]))
    columns = [files.offset, sizes, ~whole, file_bytes, *known[1:]]
    for row, values in enumerate(zip(*(each.tolist() for each in columns), strict=True)):
        yield PackedImage(files.paths[row], *values)


def lists_of(ragged: RaggedRows) -> list[Any]:
    """Return the values of each record's instances."""
    return [each.tolist() for each in np.split(ragged.values, ragged.ends[:-1])]
