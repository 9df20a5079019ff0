"""Sort the files of a folder tree in bounded memory, for any number of files."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from standpipe.contracts import Paths
from standpipe.source.index.file import read_fully
from standpipe.source.index.writer import IndexWriter
from standpipe.spec import Int64Array, UInt8Array

SORTED_AT_ONCE = 1 << 17  # paths; twice as many are in memory at most
ROWS_AT_ONCE = 1 << 14
LABEL_BYTES = 4
SLASH = ord("/")
FRAME = struct.Struct("<II")  # header of a block in a run: number of keys, and of their bytes


class SortedNames:
    """A sorter that takes names folder by folder, and passes them on in the order (class, folder, name).

    A path is sorted as a key: the class's label, the folder, a NUL byte, the name, a NUL byte. As NUL is the
    lowest byte and occurs in no name, keys sort by (class, folder, name). A class that is too large for
    memory is written to files in sorted runs, which are merged.

    put     called with blocks in order: labels (n,) int64; paths (m,) uint8, each ended by a NUL byte; lengths
            (n,) int64, without that byte
    writer  creates the files for the runs
    """

    def __init__(
        self, put: Callable[[Int64Array, UInt8Array, Int64Array], None], writer: IndexWriter
    ) -> None:
        self._put = put
        self._writer = writer
        self._keys: list[bytes] = []
        self._runs: list[int] = []

    def add(self, label: int, folder: bytes, names: list[bytes]) -> None:
        """Add the names of images in ``folder``, a path relative to the root, which belong to class
        ``label``.
        """
        if len(self._keys) >= 2 * SORTED_AT_ONCE:
            self._spill()
        prefix = label.to_bytes(LABEL_BYTES, "big") + folder + b"\0"
        self._keys += [prefix + name + b"\0" for name in names]

    def end_class(self) -> None:
        """End a class. All names that are added later belong to other classes."""
        if self._runs:
            self._spill()
            self._merge()
        elif len(self._keys) >= SORTED_AT_ONCE:
            self._put_sorted(self._sorted(ROWS_AT_ONCE))

    def finish(self) -> None:
        """Sort and pass on the remaining names."""
        self._put_sorted(self._sorted(ROWS_AT_ONCE))

    def _sorted(self, rows: int) -> Iterator[Paths]:
        """Yield the keys in memory in sorted order, in blocks of ``rows``, and empty the memory."""
        keys, self._keys = sorted(self._keys), []
        for start in range(0, len(keys), rows):
            yield Paths.pack(keys[start : start + rows])

    def _spill(self) -> None:
        """Write the keys in memory to a file as a sorted run."""
        file, at = self._writer.scratch(), 0
        for keys in self._sorted(-(-ROWS_AT_ONCE // 4)):  # merging has a block of each run in memory
            lengths = np.diff(keys.ends, prepend=0).astype("<u4")
            frame = FRAME.pack(len(keys), len(keys.blob)) + lengths.tobytes() + keys.blob.tobytes()
            self._writer.write(file, memoryview(frame), at)
            at += len(frame)
        self._writer.write(file, memoryview(FRAME.pack(0, 0)), at)
        self._runs.append(file)

    def _merge(self) -> None:
        runs, self._runs = self._runs, []
        keys = heapq.merge(*map(_keys_of, runs))
        while block := list(islice(keys, ROWS_AT_ONCE)):
            self._put_sorted(iter([Paths.pack(block)]))
        for file in runs:
            self._writer.drop(file)

    def _put_sorted(self, blocks: Iterator[Paths]) -> None:
        """Convert keys to labels and paths, and pass them on."""
        for keys in blocks:
            lengths = np.diff(keys.ends, prepend=0)
            label_at = (keys.ends - lengths)[:, np.newaxis] + np.arange(LABEL_BYTES)
            labels = keys.blob[label_at].view(">u4")[:, 0].astype(np.int64)
            text = keys.blob.copy()
            text[keys.ends - 1] = 1  # now the only NUL bytes are those between folder and name
            is_text = np.ones(len(text), np.bool_)
            is_text[label_at] = False
            text[is_text & (text == 0)] = SLASH
            text[keys.ends - 1] = 0
            self._put(labels, text[is_text], lengths - LABEL_BYTES - 1)


def _keys_of(run: int) -> Iterator[bytes]:
    """Yield the sorted keys of a run, an open temporary file, which is read block by block."""
    at = 0
    while True:
        count, size = FRAME.unpack(read_fully(run, FRAME.size, at))
        if count == 0:
            return
        data = read_fully(run, 4 * count + size, at + FRAME.size)
        keys = Paths(
            np.frombuffer(data, np.uint8, offset=4 * count),
            np.cumsum(np.frombuffer(data, "<u4", count), dtype=np.int64),
        )
        yield from (keys[row] for row in range(count))
        at += FRAME.size + len(data)
