"""A cache where Python code makes samples: what the makers of one process find in it, and leave there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock._native import CachedRow, Stamp
from penstock.cache import OpenSet, open_set
from penstock.caching import CachePlan
from penstock.engine.caching import STAMPS_S, counted
from penstock.engine.rows import EncodedFile, Sample
from penstock.engine.stored import NotStorable, NotStored, from_bytes, to_bytes
from penstock.engine.workers import Flaws
from penstock.errors import CacheError
from penstock.spec import UInt8Array

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
    """The rows of a set, for the makers of one process.

    tell  is given what is worth a warning, each thing once
    """

    def __init__(self, plan: CachePlan, opened: OpenSet, tell: Callable[[str], object]) -> None:
        self._checks, self._each_epoch = plan.checks, plan.cache.validate == "epoch"
        self._set, self._store, self._tell = opened, opened.store, tell
        self._one_at_a_time = threading.Lock()  # for all but the store
        self._epoch = -1
        self._stamped = time.monotonic()
        opened.supply()
        self._say()

    @classmethod
    def open(cls, plan: CachePlan, tell: Callable[[str], object]) -> Kept | None:
        """The set of a plan, in a worker process; None, which is told, where there is none to be had."""
        try:
            opened = open_set(
                plan.cache, plan.identity, records=plan.records, kind=plan.kind, row_bytes=plan.row_bytes
            )
        except CacheError as error:
            tell(f"going on without a cache: {error}")
            return None
        return cls(plan, opened, tell)

    @property
    def counted(self) -> Flaws:
        """What was found and kept, since it was opened."""
        return Flaws(**counted(self._store))

    def enter(self, epoch: int) -> None:
        """Rows of this epoch are made now. Rows of one before may be made yet."""
        if epoch <= self._epoch:
            return
        with self._one_at_a_time:
            begins, self._epoch = epoch > self._epoch >= 0, max(epoch, self._epoch)
        if begins and self._each_epoch:
            self._store.forget_checks()

    def tend(self) -> None:
        """Give the store room if it wants some, write down that it is used, and tell what there is to be told.

        Whoever finds another thread at that goes on.
        """
        now = time.monotonic()
        if not self._store.wants().extent and now - self._stamped < STAMPS_S:
            return
        if not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            self._set.supply()
            if now - self._stamped >= STAMPS_S:
                self._stamped = now
                self._set.stamp()
            self._say()
        finally:
            self._one_at_a_time.release()

    def has(self, record: int) -> bool:
        """Whether there seems to be a row. Nothing is counted."""
        return self._store.find(record) is not None

    def file(self, record: int, path: bytes) -> tuple[UInt8Array | None, CachedRow | None]:
        """A file's bytes if they were kept, and else what is kept and wrong."""
        return self._store.take(record, path if self._checks else None)

    def find(self, record: int, file: EncodedFile | None) -> tuple[Found | None, CachedRow | None]:
        """A sample if it was kept, and else what is kept and wrong.

        file  that it is made of
        """
        path = file.path if file is not None and self._checks else None
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

    def close(self) -> None:
        """Let go of the set. Nobody uses it any more."""
        with self._one_at_a_time:
            self._set.close()
            self._say()

    def _say(self) -> None:
        for note in self._set.notes():
            self._tell(note)


def as_kept(sample: Sample, form: type) -> tuple[UInt8Array | None, Sample]:
    """A sample's row, and the sample as it will be found; None, and as it is, where it can't be kept."""
    try:
        row = to_bytes(sample, form)
    except NotStorable:
        return None, sample
    return row, from_bytes(row)[0]
