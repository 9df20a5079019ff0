"""Image files with labels, as ``ImageFolder`` and ``FileList`` open them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.contracts import Encoded, Files, Paths, Records
from standpipe.formats import FORMATS
from standpipe.source._index_file import RANGE, IndexFile, column_section
from standpipe.source._index_store import Subject, open_index
from standpipe.source._paths import shown
from standpipe.spec import AnyArray, ArraySpec, Int64Array

IMAGE_SUFFIXES = tuple(suffix.encode() for each in FORMATS for suffix in each.suffixes)
SKIPPED = (
    "skipped"  # in an index: how many files were left out, and their paths, each with a NUL byte behind it
)


def is_image_name(name: bytes) -> bool:
    """Return True if the name ends as an image's does, in upper or lower case."""
    return name.lower().endswith(IMAGE_SUFFIXES)


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """n image files, opened: an ``OpenSource`` over a packed index, with the fields ``image`` and, with labels,
    ``label``, and those that were added to the index.
    """

    subject: Subject
    index: IndexFile

    @classmethod
    def open(cls, subject: Subject) -> Listing:
        """Find or build the index of a list or folder."""
        return cls(subject, open_index(subject))

    @property
    def num_records(self) -> int:
        """Number of listed files."""
        return self.index.facts.rows

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label, or None when labels are plain numbers or absent."""
        return self.index.facts.classes

    @property
    def digest(self) -> str:
        """Digest of paths as listed, labels, class names and added columns. Not of the folder they start from."""
        facts = self.index.facts
        if not facts.columns:
            return facts.manifest
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        digest = blake2b(facts.manifest.encode(), digest_size=16)
        for name, column in sorted(facts.columns.items()):
            content = facts.sections[column_section(name)].digest
            digest.update(f"{name!r} {column.dtype} {column.shape} {content};".encode())
        return digest.hexdigest()

    @property
    def fields(self) -> Mapping[str, ArraySpec | Encoded]:
        """``image``, encoded; ``label``, () int64, if there are labels; and the added columns."""
        label = {} if self.index.facts.label is None else {"label": ArraySpec((), np.dtype(np.int64))}
        columns = self.index.facts.columns
        added = {name: column.spec for name, column in columns.items() if name not in RANGE}
        return {"image": Encoded(), **label, **added}

    @property
    def columns(self) -> tuple[str, ...]:
        """``label``, if there are labels, and the added columns of one number a record."""
        label = () if self.index.facts.label is None else ("label",)
        return label + tuple(name for name, column in self.index.facts.columns.items() if not column.shape)

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Return one of ``columns`` for the records [start, stop), (stop − start,)."""
        if name not in self.columns:
            raise KeyError(name)
        if not 0 <= start <= stop <= self.num_records:
            raise IndexError(f"records [{start}, {stop}) of {self.num_records}")
        facts = self.index.facts
        if name == "label":
            assert facts.label is not None
            return self._checked(self.index.part("labels", facts.label, (), start, stop))
        column = facts.columns[name]
        return self.index.part(column_section(name), column.dtype, column.shape, start, stop)

    @property
    def index_bytes(self) -> int:
        """Bytes of an index that stays in memory; of another one, of the class names alone."""
        return self.index.size if self.index.held else sum(map(len, self.classes or ()))

    @property
    def index_note(self) -> str:
        """The index's place and bytes, for ``explain()``."""
        size = f"{self.index.size:,} bytes"
        place = "in an unnamed file" if self.index.path is None else shown(self.index.path)
        skipped = self.index.facts.seen.get(SKIPPED, 0)
        return (
            f"index: {size}, {'in memory' if self.index.held else place}"
            f"{f'; skipped pipes, sockets and devices with image names: {skipped:,}' if skipped else ''}"
        )

    def skipped(self) -> Iterator[str]:
        """Paths of pipes, sockets and devices that have image names and are no records, printable."""
        rest = b""
        for block in self.index.blocks(SKIPPED) if SKIPPED in self.index.facts.sections else ():
            *whole, rest = (rest + block.tobytes()).split(b"\0")
            yield from (shown(self.subject.base + path) for path in whole)

    def here(self) -> str:
        """Return where relative paths begin; the digest doesn't depend on it."""
        return os.fsdecode(self.subject.base)

    @property
    def descriptors(self) -> int:
        """Files that it holds open: the index, and a list that paths are read from."""
        return 1 + self.subject.files

    def locate(self, indices: Int64Array) -> Records:
        """Absolute paths, with the byte ranges that the index has; ``label`` (n,) int64, and added columns (n, …)."""
        facts, index = self.index.facts, self.index
        files = Files(self.paths(indices), *self._ranges(indices))
        plain: dict[str, AnyArray] = {}
        if facts.label is not None:
            plain["label"] = self._checked(index.rows("labels", facts.label, (), indices))
        for name, column in facts.columns.items():
            if name not in RANGE:
                plain[name] = index.rows(column_section(name), column.dtype, column.shape, indices)
        return Records(indices, files={"image": files}, plain=plain)

    def _ranges(self, indices: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Offset and length of each image in its file, (n,) int64; 0 and -1 for whole files."""
        if RANGE[0] not in self.index.facts.columns:
            return np.zeros(len(indices), np.int64), np.full(len(indices), -1, np.int64)
        offset, length = (
            self.index.rows(column_section(name), "<i8", (), indices).astype(np.int64, copy=False)
            for name in RANGE
        )
        if (offset < 0).any() or (length < -1).any():
            with self.index.told():
                raise ValueError("a byte range is negative")
        return offset, length

    def paths(self, indices: Int64Array) -> Paths:
        """Absolute paths of records ``indices`` (n,) int64."""
        self.subject.check_unchanged()
        places = self.index.place("places")
        text, around = self.subject.text(self.index), self.subject.around
        with self.index.told():
            blob, ends = _native.packed_paths(
                places, text, around, self.subject.base, self.subject.stays, indices
            )
        return Paths(blob, ends)

    def name(self, index: int) -> str:
        """The record's path, printable."""
        return shown(self.paths(np.array([index], np.int64))[0])

    def _checked(self, labels: AnyArray) -> Int64Array:
        """Labels as (n,) int64; those of classes must name one."""
        classes = self.classes
        wide: Int64Array = labels.astype(np.int64)
        if classes is not None and len(wide) and not 0 <= wide.min() <= wide.max() < len(classes):
            with self.index.told():
                raise ValueError("a label is that of no class")
        return wide


def some(names: Iterable[str]) -> str:
    """A few of many names."""
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more
