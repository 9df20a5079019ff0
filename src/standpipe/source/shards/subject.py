"""The subject of an index of shards, which are files of many records: what shards of all kinds have in common."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.source.files.list_subject import LabelWriter
from standpipe.source.index.file import OWN, Column, Facts, IndexFile, column_section, place_sections
from standpipe.source.index.store import OwnPaths, Progress, is_settled
from standpipe.source.index.writer import IndexWriter, RecordDigest, places_of
from standpipe.spec import AnyArray, Int64Array, Store, UInt8Array
from standpipe.system.paths import open_for_reading, path_text, reading
from standpipe.system.urls import common_folder

CHEAP_SHARDS, CHEAP_BYTES = 64, 256 << 20  # that are indexed again each time
RECORDS_AT_ONCE = 1 << 14
INDEX_COPY = "index a copy with standpipe index 'FOLDER/*.tar' --output FILE, and pass the source index=FILE"
LEFT_OUT = "left out: "  # in an index's counts, before the name of values that aren't read


@dataclass(frozen=True, slots=True)
class ShardPart:
    """Records of a shard that follow one another.

    ranges   offset and length in the shard, (n,) each, of each byte field, an image first
    numbers  values of each other field, (n, …)
    names    bytes in which records differ, for the digest: one record's after another's
    lengths  (n,) number of these bytes of each record
    texts    texts of each further field
    """

    ranges: Mapping[str, tuple[Int64Array, Int64Array]]
    numbers: Mapping[str, AnyArray]
    names: UInt8Array
    lengths: NDArray[np.integer]
    texts: Mapping[str, Paths] = field(default_factory=dict)


class ShardReader:
    """Reads the records of shards for their index; a subclass for each kind of shards.

    It may write further sections of the index.
    """

    def __init__(self, writer: IndexWriter) -> None:
        self.writer = writer
        self.rows = 0  # of all parts that were written

    def read(self, number: int, file: int, size: int) -> Iterator[ShardPart]:
        """Yield the records of a shard, an open file of ``size`` bytes. Raises ``PlanError`` for a damaged one."""
        raise NotImplementedError

    def check(self, image_bytes: int) -> None:
        """Raise ``PlanError`` for shards without records, or without any byte of an image."""
        raise NotImplementedError

    def finish(self, facts: Facts) -> Facts:
        """Add facts of this kind of shards, such as counts of what isn't read."""
        return facts


@dataclass(frozen=True, slots=True)
class ShardSubject(OwnPaths):
    """A ``Subject`` of shards.

    shards  absolute paths, in the order of their records
    index   the path of its index, if the user gave one
    store   where the shards are, if they are URLs; else None
    base    the folder of all shards, with a slash at the end
    """

    shards: tuple[bytes, ...]
    name: str
    index: bytes | None
    store: Store | None = field(default=None, kw_only=True)
    base: bytes = field(init=False)

    kind = "shards"
    stays = True
    unread = "values left out, by name"  # the title of counts in ``explain()``

    def __post_init__(self) -> None:
        folders = {os.path.dirname(shard) for shard in self.shards}  # noqa: PTH120 (pathlib has no bytes)
        object.__setattr__(self, "base", common_folder(folders))

    def options(self) -> dict[str, bool]:
        """Return texts on which the index depends, apart from the shards."""
        raise NotImplementedError

    def reader(self, writer: IndexWriter) -> ShardReader:
        """Return a reader of the shards for an index. Raises ``PlanError`` if no shard can be read."""
        raise NotImplementedError

    def not_images(self, facts: Facts) -> set[str]:
        """Return the names of byte fields that aren't images."""
        raise NotImplementedError

    @property
    def path(self) -> bytes:
        """The first shard's path, and the number of the others: an index is beside the shards."""
        first = self.shards[0]
        return first if len(self.shards) == 1 else b"%s+%d" % (first, len(self.shards) - 1)

    @property
    def key(self) -> str:
        """The name of its index in the cache folder: a digest of the shards' paths and the options."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        digest = blake2b(f"{self.kind} {self.options()!r}".encode(), digest_size=16)
        for shard in self.shards:
            digest.update(shard + b"\0")
        return digest.hexdigest()

    @property
    def costly(self) -> bool:
        """True for many or large shards, which may take long to index where storage is slow."""
        if len(self.shards) > CHEAP_SHARDS:
            return True
        try:
            return sum(os.stat(shard).st_size for shard in self.shards) > CHEAP_BYTES  # noqa: PTH116
        except OSError:  # opening the shard says more
            return False

    def names(self) -> list[bytes]:
        """Return the shards' paths without ``base``."""
        return [shard[len(self.base) :] for shard in self.shards]

    def objection(self, index: IndexFile) -> str | None:
        """Return why the index doesn't fit; None if all shards have the same names, sizes and modification times.

        Of URLs only the names are compared: nothing is asked of a store here.
        """
        facts = index.facts
        if facts.kind != self.kind or facts.options != self.options():
            return "it was built with other options"
        count = len(self.shards)
        text = b"".join(name + b"\0" for name in self.names())
        sections = facts.sections
        if sections["shards"].size != 16 * count or sections["text"].size != len(text):
            return "it is the index of other shards"
        if b"".join(block.tobytes() for block in index.blocks("text")) != text:
            return "it is the index of other shards"
        if self.store is not None:
            return None
        known = index.part("shards", "<u8", (2,), 0, count).tolist()
        for shard, before in zip(self.shards, known, strict=True):
            try:
                now = os.stat(shard)  # noqa: PTH116
            except OSError as error:
                return f"{path_text(shard)} can't be examined any more: {error.strerror}"
            if [now.st_size, now.st_mtime_ns] != before:
                return f"{path_text(shard)} changed since"
            if not is_settled(now.st_mtime_ns, facts.began_ns):
                return f"{path_text(shard)} may have changed again without a new modification time"
        return None

    def build(self, writer: IndexWriter, on_progress: Progress | None) -> Facts:
        """Read all shards, and write their index. Raises ``PlanError`` for URLs."""
        if self.store is not None:
            raise PlanError(f"{self.name} can't be indexed where it is; {INDEX_COPY}")
        began_ns = time.time_ns()
        reader, records, at = self.reader(writer), _RecordWriter(writer), 0
        for number, name in enumerate(self.names()):
            self._take(number, reader, records, places_of(at, np.array([len(name)]), np.array([len(name)])))
            at += len(name) + 1
            if on_progress is not None:
                on_progress("shards", number + 1, len(self.shards))
        reader.check(records.image_bytes)
        writer.add("text", b"".join(name + b"\0" for name in self.names()))
        label = records.finish_labels()
        facts = Facts(
            kind=self.kind,
            options=self.options(),
            seen={},
            began_ns=began_ns,
            rows=reader.rows,
            manifest=records.manifest.hexdigest(labels=label is not None, classes=None),
            classes=None,
            empty=(),
            label=label,
            outside=0,
            columns=records.columns,
            encoded=records.encoded,
            optional={"texts": 1} if records.texts else {},
            texts=records.texts,
        )
        return reader.finish(facts)

    def _take(
        self, number: int, reader: ShardReader, records: _RecordWriter, place: NDArray[np.uint64]
    ) -> None:
        shard = self.shards[number]
        changed = PlanError(f"{path_text(shard)} changed while it was read; start again when it is complete")
        with open_for_reading(shard) as file, reading(shard):
            before = os.fstat(file.fileno())
            if before.st_size == 0:
                raise PlanError(f"{path_text(shard)} is empty; copy it again, or leave it out")
            try:
                for part in reader.read(number, file.fileno(), before.st_size):
                    records.write(part, place)
                    reader.rows += len(part.lengths)
            except EOFError:
                raise changed from None
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise changed
        records.writer.add("shards", np.array([before.st_size, before.st_mtime_ns], "<u8"))


class _RecordWriter:
    """A writer of records into an index."""

    def __init__(self, writer: IndexWriter) -> None:
        self.writer, self.manifest = writer, RecordDigest()
        self.encoded: tuple[str, ...] = ()
        self.texts: tuple[str, ...] = ()
        self.columns: dict[str, Column] = {}
        self.image_bytes = 0
        self._labels: LabelWriter | None = None

    def write(self, part: ShardPart, place: NDArray[np.uint64]) -> None:
        """Write the next records; ``place``: that of their shard's name."""
        self.encoded, self.texts = tuple(part.ranges), tuple(part.texts)
        self.writer.add("places", np.repeat(place, len(part.lengths)))
        for name, ranges in part.ranges.items():
            for section, places in zip(place_sections(name), ranges, strict=True):
                self.writer.add(section, places.astype("<i8"))
        self.image_bytes += int(part.ranges[self.encoded[0]][1].sum())
        self.manifest.add_paths(part.names, part.lengths)
        for name, values in part.numbers.items():
            if name == "label":
                self._labels = self._labels or LabelWriter(self.writer)
                self._labels.add(values.astype(np.int64, copy=False))
                continue
            stored = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
            self.columns[name] = Column(stored.dtype.str, stored.shape[1:], OWN)
            self.writer.add(column_section(name), stored)
        for name, texts in part.texts.items():
            self.writer.add_texts(name, texts)

    def finish_labels(self) -> str | None:
        """Write the labels; return their dtype, or None without labels."""
        if self._labels is None:
            return None
        self._labels.finish(self.manifest, [])
        return self._labels.dtype
