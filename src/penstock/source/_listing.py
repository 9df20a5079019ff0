"""Image files with labels, as ``ImageFolder`` and ``FileList`` open them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.contracts import Encoded, Files, Paths, Records
from penstock.source._paths import shown
from penstock.spec import Int64Array, Spec

IMAGE_SUFFIXES = (
    b".jpg",
    b".jpeg",
    b".png",
    b".ppm",
    b".bmp",
    b".pgm",
    b".tif",
    b".tiff",
    b".webp",
    b".gif",
)
ROWS_AT_ONCE = 1 << 14
SLASH = ord("/")


def is_image_name(name: bytes) -> bool:
    """Whether the name ends as an image's does, in any case."""
    return name.lower().endswith(IMAGE_SUFFIXES)


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """n image files, opened: an ``OpenSource`` with the fields ``image`` and, with labels, ``label``.

    base     the folder that relative paths start from: absolute, ends with a slash
    paths    n paths, none empty
    labels   (n,) any integer dtype, or None when the list has none
    classes  class names by label, or None when labels are plain numbers or absent
    digest   see ``listing_digest``
    """

    base: bytes
    paths: Paths
    labels: NDArray[np.integer] | None
    classes: tuple[str, ...] | None
    digest: str

    @property
    def num_records(self) -> int:
        """How many files are listed."""
        return len(self.paths)

    @property
    def fields(self) -> Mapping[str, Spec | Encoded]:
        """``image``, encoded, and ``label``, () int64."""
        if self.labels is None:
            return {"image": Encoded()}
        return {"image": Encoded(), "label": Spec((), np.dtype(np.int64))}

    @property
    def columns(self) -> tuple[str, ...]:
        """``label``, if the list has labels."""
        return () if self.labels is None else ("label",)

    def column(self, name: str, start: int, stop: int) -> Int64Array:
        """Labels of the records [start, stop), (stop − start,) int64."""
        if name != "label" or self.labels is None:
            raise KeyError(name)
        if not 0 <= start <= stop <= self.num_records:
            raise IndexError(f"records [{start}, {stop}) of {self.num_records}")
        return self.labels[start:stop].astype(np.int64)

    @property
    def index_bytes(self) -> int:
        """Bytes of the paths and labels."""
        return self.paths.nbytes + (0 if self.labels is None else self.labels.nbytes)

    def locate(self, indices: Int64Array) -> Records:
        """Whole files: absolute paths, offset 0, length -1; ``label`` (n,) int64."""
        files = Files(
            _below(self.base, self.paths.take(indices)),
            offset=np.zeros(len(indices), np.int64),
            length=np.full(len(indices), -1, np.int64),
        )
        if self.labels is None:
            return Records(indices, files={"image": files})
        return Records(
            indices, files={"image": files}, plain={"label": self.labels[indices].astype(np.int64)}
        )

    def name(self, index: int) -> str:
        """The record's path, printable."""
        path = self.paths[index]
        return shown(path if path.startswith(b"/") else self.base + path)


def listing_digest(paths: Paths, labels: NDArray[np.integer] | None, classes: tuple[str, ...] | None) -> str:
    """Hash paths as listed, labels and class names. Not the folder they start from: a data set may move."""
    from hashlib import blake2b  # loads OpenSSL, which importing penstock needn't

    digest = blake2b(digest_size=16)
    digest.update(f"listing 1, {len(paths)} records, labels {labels is not None}, {classes!r}".encode())
    for rows in row_blocks(len(paths)):
        digest.update(paths.ends[rows].astype("<i8").data)
        if labels is not None:
            digest.update(labels[rows].astype("<i8").data)
    digest.update(paths.blob.data)
    return digest.hexdigest()


def smallest_integers(values: NDArray[np.integer]) -> NDArray[np.integer]:
    """The same values in the smallest signed dtype that holds them; ``values`` is not empty."""
    lowest, highest = int(values.min()), int(values.max())
    for dtype in (np.int8, np.int16, np.int32):
        if np.iinfo(dtype).min <= lowest and highest <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values


def row_blocks(num_rows: int) -> Iterator[slice]:
    """Cut [0, num_rows) into blocks, so that work on all rows needs memory for few."""
    for start in range(0, num_rows, ROWS_AT_ONCE):
        yield slice(start, min(start + ROWS_AT_ONCE, num_rows))


def _below(base: bytes, paths: Paths) -> Paths:
    """Put ``base`` in front of every path that isn't absolute."""
    lengths = np.diff(paths.ends, prepend=0)
    relative = paths.blob[paths.ends - lengths] != SLASH
    ends = paths.ends + np.cumsum(relative * len(base))
    base_at = (ends - lengths - len(base))[relative, np.newaxis] + np.arange(len(base))
    blob = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    is_path = np.ones(len(blob), np.bool_)
    is_path[base_at] = False
    blob[is_path] = paths.blob
    blob[base_at] = np.frombuffer(base, np.uint8)
    return Paths(blob, ends)
