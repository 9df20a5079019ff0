"""A cache where Python code makes samples: what the makers of one process find in it, and leave there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from standpipe._native import CachedRow, Stamp
from standpipe.engine.cache import Keeper, counted
from standpipe.engine.python.stored import NotStorable, NotStored, from_bytes, to_bytes
from standpipe.engine.rows import CantWork, EncodedFile, Sample
from standpipe.engine.workers import Flaws
from standpipe.spec import UInt8Array

NO_FILE = Stamp()


@dataclass(frozen=True, slots=True)
class Found:
    """A sample that was kept.

    form                what the dataset had given: one of ``stored.FORMS``
    damaged, truncated  whether it was made of a file that isn't whole
    """

    sample: Sample
    form: type
    damaged: bool
    truncated: bool


class Kept:
    """The rows of a set, for the makers of one process."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper, self._store = keeper, keeper.store

    @property
    def counted(self) -> Flaws:
        """The rows found and stored since the cache was opened."""
        return Flaws(**counted(self._store))

    def enter(self, epoch: int) -> None:
        """Rows of this epoch are made now. Rows of one before may be made yet."""
        self._keeper.enter(epoch)

    def has(self, record: int) -> bool:
        """Return True if the cache seems to have the row. It counts nothing."""
        return self._store.find(record) is not None

    def file(
        self, record: int, path: bytes, admit: Callable[[int], bool]
    ) -> tuple[UInt8Array | None, CachedRow | None]:
        """A file's bytes if they were kept, and else what is kept and wrong.

        admit  waits for memory for so many; where it gives False they count as not kept
        """
        there = self._store.find(record)
        if there is not None and not admit(there.length):
            return None, None
        return self._store.take(record, path if self._keeper.checks else None)

    def find(self, record: int, file: EncodedFile | None) -> tuple[Found | None, CachedRow | None]:
        """A sample if it was kept, and else what is kept and wrong.

        file  that it is made of
        """
        path = file.path if file is not None and self._keeper.checks else None
        row, kept = self._store.take(record, path)
        if row is None or kept is None:
            return None, kept
        try:
            sample, form = from_bytes(row)
        except NotStored:
            return None, kept
        return Found(sample, form, kept.damaged, kept.truncated), kept

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
        """Keep a row, if there is room. ``stale``: instead of this one, if it is there yet."""
        self._store.put(record, row, stamp, damaged=damaged, truncated=truncated, stale=stale)

    def close(self, patience_s: float) -> bool:
        """Let go of the set. Nobody uses it any more."""
        return self._keeper.close(patience_s)


def as_kept(sample: Sample, form: type) -> tuple[UInt8Array | None, Sample]:
    """A sample's row, and the sample as it will be found; None, and as it is, where it can't be kept."""
    try:
        row = to_bytes(sample, form)
    except NotStorable:
        return None, sample
    return row, from_bytes(row)[0]


def prove_kept(made: Sample, other: Sample, form: type) -> None:
    """Raise ``CantWork`` unless a sample can be kept, and came out the same when it was made twice."""
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
