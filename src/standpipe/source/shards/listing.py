"""The opened source of records in shards: byte ranges of files, in a packed index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from standpipe import _native
from standpipe.contracts import Encoded, Records
from standpipe.contracts.source import FieldSpec
from standpipe.errors import PlanError
from standpipe.source.annotations.listing import AnnotationListing
from standpipe.source.index.file import PLACE, IndexFile
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import Subject, Unfit, cached_path, fitting, open_index
from standpipe.source.shards.subject import INDEX_COPY, LEFT_OUT, ShardSubject
from standpipe.spec import Int64Array, Store
from standpipe.system.paths import path_text

FILE = Encoded("file")  # the kind of bytes that aren't an image
PATH_BYTES = 41  # that a tuple of byte strings takes for one, without its text
MOST_LEFT_OUT = 5  # names in ``explain()``


@dataclass(frozen=True, slots=True, eq=False)
class ShardListing(AnnotationListing):
    """An ``OpenSource`` of the records of shards, in a packed index.

    name_at   (shards,) int64: offset of each shard's name in the index's text
    versions  (shards, 2) int64: size in bytes and modification time in nanoseconds of each shard
    """

    name_at: Int64Array
    versions: Int64Array

    @classmethod
    def open(cls, subject: Subject) -> Self:
        """Find or build the index of shards."""
        return cls.of(subject, shard_index(subject))

    @classmethod
    def of(cls, subject: Subject, index: IndexFile) -> Self:
        """Return the records of an index that fits its shards."""
        assert isinstance(subject, ShardSubject)
        ends = np.cumsum([0, *(len(name) + 1 for name in subject.names())])
        versions = index.part("shards", "<u8", (2,), 0, len(subject.shards)).astype(np.int64)
        return cls(subject, index, ends[:-1], versions)

    @property
    def shards(self) -> ShardSubject:
        """The subject, with its type."""
        assert isinstance(self.subject, ShardSubject)
        return self.subject

    @property
    def store(self) -> Store | None:
        """The store of the shards, if they are URLs."""
        return self.shards.store

    def locate(self, indices: Int64Array) -> Records:
        """Return the records' shards and byte ranges there, what the shards were when indexed, and numbers.

        Of URLs, what they were isn't part of it.
        """
        records = Listing.locate(self, indices)
        if self.store is not None:
            return records
        places = self.index.rows("places", PLACE.str, (), indices).astype(np.uint64, copy=False)
        name_at = (places & np.uint64((1 << _native.LENGTH_SHIFT) - 1)).astype(np.int64)
        sizes, times = self.versions[np.searchsorted(self.name_at, name_at)].T.copy()
        files = {
            name: replace(files, file_bytes=sizes, mtime_ns=times) for name, files in records.files.items()
        }
        return replace(records, files=files)

    @property
    def fields(self) -> Mapping[str, FieldSpec]:
        """The fields; bytes that aren't images are of the kind ``"file"``."""
        own: Mapping[str, FieldSpec] = Listing.fields.fget(self)  # type: ignore[attr-defined]
        return {**own, **dict.fromkeys(self.shards.not_images(self.index.facts), FILE)}

    @property
    def index_bytes(self) -> int:
        """Memory in bytes: of an index in memory, and the paths of the shards."""
        paths = sum(len(shard) + PATH_BYTES for shard in self.shards.shards)
        return paths + (self.index.size if self.index.held else 0)

    @property
    def index_note(self) -> str:
        """The index's location and size, and what isn't read, for ``explain()``."""
        note: str = AnnotationListing.index_note.fget(self)  # type: ignore[attr-defined]
        seen = self.index.facts.seen.items()
        left_out = {name.removeprefix(LEFT_OUT): n for name, n in seen if name.startswith(LEFT_OUT) and n}
        if not left_out:
            return note
        most = sorted(left_out, key=lambda name: (-left_out[name], name))
        named = ", ".join(f"{left_out[name]:,} {name}" for name in most[:MOST_LEFT_OUT])
        return f"{note}; {self.shards.unread}: {named}{', …' if len(most) > MOST_LEFT_OUT else ''}"

    def here(self) -> str:
        """Return the shards' folder and a digest of their names, on which the digest doesn't depend."""
        return f"{os.fsdecode(self.subject.base)} {self.index.facts.sections['text'].digest}"

    def name(self, index: int) -> str:
        """Return the record's shard and the first byte of its image there, printable."""
        at = np.array([index], np.int64)
        offset, _ = self._ranges(self.index.facts.encoded[0], at)
        return f"{path_text(self.paths(at)[0])} at byte {int(offset[0]):,}"


def shard_index(subject: Subject) -> IndexFile:
    """Find or build the index of shards. Raises ``PlanError`` for URLs without an index on this machine."""
    assert isinstance(subject, ShardSubject)
    if subject.store is None:
        return open_index(subject)
    path = subject.index or cached_path(subject)
    try:
        return fitting(path, subject)
    except Unfit as why:
        unfit = f", and {path_text(path)} doesn't fit: {why}" if str(why) else ""
        raise PlanError(f"{subject.name} needs an index on this machine{unfit}; {INDEX_COPY}") from None
