"""Write packed index files: streams of bytes become sections of sealed blocks, with digests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standpipe import _native
from standpipe.contracts import Paths
from standpipe.source.index.file import (
    BYTES_AT_ONCE,
    PLACE,
    PREAMBLE,
    Facts,
    Section,
    facts_text,
    preamble,
    read_fully,
    text_sections,
)
from standpipe.spec import AnyArray, Int64Array, UInt8Array
from standpipe.system.claims import NoRoom
from standpipe.system.files import write_all

if TYPE_CHECKING:
    from hashlib import blake2b

SMALL_BYTES = 8 << 20  # an index up to this size stays in memory


class TooLarge(Exception):
    """An index is too large to stay in memory."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Turn the system's errors into ``NoRoom``."""
    try:
        yield
    except OSError as error:
        raise NoRoom(error.strerror or str(error)) from error


@dataclass(frozen=True, slots=True)
class IndexStorage:
    """The storage of an index while it is written.

    folder  folder for unnamed files; None: memory, up to ``SMALL_BYTES``
    """

    folder: bytes | None

    def file(self) -> int:
        """Create a file without a name; return its descriptor."""
        with writing():
            if self.folder is None and hasattr(os, "memfd_create"):
                return os.memfd_create("standpipe index", os.MFD_CLOEXEC)
            import tempfile  # imported here: it loads OpenSSL too

            with tempfile.TemporaryFile(buffering=0, dir=self.folder) as file:
                return os.dup(file.fileno())


@dataclass(slots=True)
class _Stream:
    """Bytes that become a section.

    file    file for its blocks; None: the index's own file
    key     key of the blocks' checksums, in hex
    digest  digest of the data so far
    done    bytes of data in the written blocks
    rest    data after these blocks, less than a block
    """

    file: int | None
    key: str
    digest: blake2b
    done: int = 0
    rest: UInt8Array = field(default_factory=lambda: np.empty(0, np.uint8))


@dataclass(slots=True)
class IndexWriter:
    """A writer of an index into an empty file.

    Several sections can be written at the same time. The first one is written to the file itself, the others
    to unnamed files until ``finish`` appends them to the file.
    """

    file: int
    room: IndexStorage
    _streams: dict[str, _Stream] = field(default_factory=dict)
    _sections: dict[str, Section] = field(default_factory=dict)
    _end: int = PREAMBLE.size
    _written: int = 0
    _scratch: list[int] = field(default_factory=list)

    def add(self, section: str, data: AnyArray | bytes) -> None:
        """Append data to a section."""
        more = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1).view(np.uint8)
        stream = self._streams.get(section)
        if stream is None:
            from hashlib import blake2b

            file = self.scratch() if self._streams else None
            stream = self._streams[section] = _Stream(file, os.urandom(8).hex(), blake2b(digest_size=16))
        stream.digest.update(more.data)
        waiting = np.concatenate([stream.rest, more])
        whole = len(waiting) - len(waiting) % _native.BLOCK_DATA_BYTES
        self._seal(stream, waiting[:whole])
        stream.rest = waiting[whole:].copy()

    def add_texts(self, name: str, texts: Paths) -> None:
        """Append the texts of the next records to those of a field."""
        section, ends = text_sections(name)
        before = self.bytes_of(section)
        self.add(section, texts.blob)
        self.add(ends, (texts.ends + before).astype("<u8"))

    def bytes_of(self, section: str) -> int:
        """Return the number of bytes that a section has so far."""
        stream = self._streams.get(section)
        return 0 if stream is None else stream.done + len(stream.rest)

    def _seal(self, stream: _Stream, data: UInt8Array) -> None:
        """Write the next blocks of a section. Only its last block may be short."""
        blocks = _native.sealed(data, int(stream.key, 16), stream.done // _native.BLOCK_DATA_BYTES)
        file, begin = (self.file, self._end) if stream.file is None else (stream.file, 0)
        self.write(file, blocks.data, begin + _native.sealed_size(stream.done))
        stream.done += len(data)

    def scratch(self) -> int:
        """Create an unnamed temporary file, and return its descriptor; ``close`` closes it."""
        file = self.room.file()
        self._scratch.append(file)
        return file

    def drop(self, file: int) -> None:
        """Close a file of ``scratch`` now."""
        self._scratch.remove(file)
        os.close(file)

    def write(self, file: int, data: memoryview, at: int) -> None:
        """Write all of ``data`` to offset ``at`` of ``file``."""
        self._written += len(data)
        if self.room.folder is None and self._written > SMALL_BYTES:
            raise TooLarge
        with writing():
            write_all(file, data, at)

    def finish(self, facts: Facts) -> Facts:
        """Write the sections so far, and the facts after them. More sections and another ``finish`` may follow."""
        for name, stream in self._streams.items():
            self._seal(stream, stream.rest)
            begin, size = self._end, _native.sealed_size(stream.done)
            for at in range(0, size if stream.file is not None else 0, BYTES_AT_ONCE):
                assert stream.file is not None
                blocks = read_fully(stream.file, min(BYTES_AT_ONCE, size - at), at)
                self.write(self.file, memoryview(blocks), begin + at)
            self._sections[name] = Section(begin, stream.done, stream.key, stream.digest.hexdigest())
            self._end += size
        self._streams.clear()
        facts = replace(facts, sections=dict(self._sections))
        text = facts_text(facts)
        size = self._end + len(text)
        self.write(self.file, memoryview(text), self._end)
        with writing():
            os.ftruncate(self.file, size)
        self.write(self.file, memoryview(preamble(size, self._end, text)), 0)
        return facts

    def close(self) -> None:
        """Close the temporary files."""
        while self._scratch:
            os.close(self._scratch.pop())


class RecordDigest:
    """A digest of records, computed in pieces: paths as listed, labels and class names.

    It doesn't depend on the folder of the paths, so that a data set can be moved.
    """

    def __init__(self) -> None:
        from hashlib import blake2b

        self._paths, self._lengths, self._labels, self._whole = (blake2b(digest_size=16) for _ in range(4))
        self._rows = 0

    def add_paths(self, paths: UInt8Array, lengths: NDArray[np.integer]) -> None:
        """Add the next records' paths, one after another, and their lengths."""
        self._rows += len(lengths)
        self._paths.update(paths.data)
        self._lengths.update(lengths.astype("<u2").data)

    def add_labels(self, labels: NDArray[np.integer]) -> None:
        """Add the next records' labels."""
        self._labels.update(labels.astype("<i8").data)

    def hexdigest(self, *, labels: bool, classes: tuple[str, ...] | None) -> str:
        """Return the digest of all added records. ``labels``: True if the records have labels."""
        parts = "".join(part.hexdigest() for part in (self._paths, self._lengths, self._labels))
        self._whole.update(f"listing 2, {self._rows} records, labels {labels}, {classes!r}, {parts}".encode())
        return self._whole.hexdigest()


def places_of(begin: int, ends: Int64Array, lengths: Int64Array) -> NDArray[np.uint64]:
    """Return each path's location as a word: offset in the low 48 bits, length in the high 16.

    begin    offset of the text of these paths
    ends     (n,) int64: end of each path in this text
    lengths  (n,) int64: length of each path in bytes
    """
    starts = (begin + ends - lengths).astype(PLACE)
    return starts | lengths.astype(PLACE) << np.uint64(_native.LENGTH_SHIFT)


def smallest_dtype(lowest: int, highest: int) -> str:
    """Return the smallest signed dtype that holds both numbers, by its name in an index."""
    for dtype in ("|i1", "<i2", "<i4"):
        if np.iinfo(dtype).min <= lowest and highest <= np.iinfo(dtype).max:
            return dtype
    return "<i8"
