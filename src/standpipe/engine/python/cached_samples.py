"""Read and write a cache of files or samples, for the sample makers of one process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from standpipe._native import CachedRow, Stamp
from standpipe.engine.cache import CacheMaintainer
from standpipe.engine.python.stored import NotStorable, NotStored, from_bytes, to_bytes
from standpipe.engine.rows import CantWork, EncodedFile, Sample
from standpipe.spec import UInt8Array

NO_FILE = Stamp()


class SampleCache(CacheMaintainer):
    """The open cache of one process, as its sample makers use it."""

    def has(self, record: int) -> bool:
        """Return True if the cache seems to have the row of a record. This doesn't count as a hit or miss."""
        return self.store.find(record) is not None

    def file(
        self, record: int, path: bytes, admit: Callable[[int], bool]
    ) -> tuple[UInt8Array | None, CachedRow | None]:
        """Return a file's bytes from the cache, or None, and the cached row, which is stale if there are no bytes.

        path   path of the file
        admit  waits for memory for a number of bytes; if it returns False, the file counts as not cached
        """
        there = self.store.find(record)
        if there is not None and not admit(there.length):
            return None, None
        return self.store.take(record, path if self.checks else None)

    def find(
        self, record: int, file: EncodedFile | None
    ) -> tuple[tuple[Sample, type] | None, CachedRow | None]:
        """Return a record's sample from the cache, or None, and the cached row, which is stale if there is no sample.

        With the sample comes the type of the dataset's sample before it became a dict: one of ``stored.FORMS``.

        file  the file from which the sample is made; None without one
        """
        path = file.path if file is not None and self.checks else None
        row, kept = self.store.take(record, path)
        if row is None or kept is None:
            return None, kept
        try:
            return from_bytes(row), kept
        except NotStored:
            return None, kept

    def keep(
        self,
        record: int,
        row: UInt8Array,
        stamp: Stamp = NO_FILE,
        *,
        stale: CachedRow | None,
        damaged: bool = False,
        truncated: bool = False,
    ) -> None:
        """Store a row, if the cache has room.

        stamp      state of the file from which the row was made
        stale      the cached row that the new row replaces; None without one
        damaged    True if the file is damaged
        truncated  True if the file ends too soon
        """
        self.store.put(record, row, stamp, damaged=damaged, truncated=truncated, stale=stale)


def as_kept(sample: Sample, form: type) -> tuple[UInt8Array | None, Sample]:
    """Return a sample as bytes for the cache, and the sample as it is when read back from these bytes.

    If a cache can't store the sample, return None and the sample unchanged.
    """
    try:
        row = to_bytes(sample, form)
    except NotStorable:
        return None, sample
    return row, from_bytes(row)[0]


def prove_kept(made: Sample, other: Sample, form: type) -> None:
    """Raise ``CantWork`` if a cache can't store the sample ``made``, or if ``other``, made again, differs from it."""
    try:
        row, again = to_bytes(made, form), to_bytes(other, form)
    except NotStorable as error:
        raise CantWork(
            "transform",
            f"cache(…): {error}, which no cache keeps; it keeps arrays and tensors of numbers, numbers, texts, "
            "bytes, images, and lists, tuples and dicts of these. Put .cache(…) before what makes it, or make "
            "something else of it",
        ) from error
    if not np.array_equal(row, again):
        raise CantWork(
            "transform",
            "cache(…): what comes before it makes something else of a record each time, and the cache would keep "
            "one for ever; put .cache(…) before what changes, or use a parameter rng after it",
        )
