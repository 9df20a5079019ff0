"""A loader's use of a cache: open the cache set, reserve room for new rows, and log each problem once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from standpipe.engine.watchdog.guarded import Ends, guarded
from standpipe.engine.workers import has_ended
from standpipe.errors import CacheError
from standpipe.stats.counters import Counts
from standpipe.system.logs import logger

if TYPE_CHECKING:
    from standpipe import _native

if TYPE_CHECKING:
    from standpipe.cache.sets.opened import OpenSet
    from standpipe.plan.cache import CachePlan

STAMPS_S = 5.0  # seconds between two records of last use and counters
# Seconds until the next request for room while another process reserves some: the first pause and the longest.
SOON_S, LATER_S = 0.02, 0.5
# Seconds that a start waits for room, so that the first rows are stored too. Room usually comes in milliseconds.
FIRST_S = 2.0

Tell = Callable[[str], object]  # called with the text of each warning, once per problem

STORE_COUNTERS = ("hits", "misses", "stored", "skipped", "stale", "errors")  # by the store


def store_counters(store: _native.CacheStore) -> Counts:
    """Return the counters of a cache store, by their names in ``Stats``."""
    found = store.stats()
    return {f"cache_{name}": getattr(found, name) for name in STORE_COUNTERS} | {
        "cache_bytes": found.hit_bytes
    }


def log_cache_warning(text: str) -> None:
    """Log a warning about a cache."""
    logger().warning("%s", text)


def opened(plan: CachePlan, tell: Tell = log_cache_warning, *, strict: bool) -> OpenSet | None:
    """Open the cache set of a plan. If that isn't possible, report why and return None.

    tell    called with the text of the report
    strict  True: raise a ``CacheError`` instead
    """
    from standpipe.cache.sets.sets import open_set  # processes without a cache start sooner

    try:
        return open_set(
            plan.cache,
            plan.identity,
            records=plan.records,
            kind=plan.kind,
            row_bytes=plan.row_bytes,
        )
    except CacheError as error:
        if strict:
            raise
        tell(f"the loader goes on without a cache: {error}")
        return None


class CacheMaintainer:
    """An open cache set of one process, with a thread that maintains it.

    The thread reserves room for new rows, records the set's use, reports problems, and closes the set at the
    end. So workers never wait for storage. While the storage blocks the thread, new rows aren't stored, and
    workers continue.

    store   native index of the cached rows, which any thread may use
    checks  True if cached rows are compared with their files' present size and time
    """

    def __init__(self, plan: CachePlan, found: OpenSet, tell: Tell = log_cache_warning) -> None:
        self._plan, self._set, self._tell = plan, found, tell
        self._epoch = -1
        self._entering = threading.Lock()
        self.store: _native.CacheStore = found.store
        self.checks = plan.checks
        self._supplied = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, ends: Ends) -> None:
        """Start the thread, and wait up to ``FIRST_S`` for room for the first rows.

        Call it in the process that makes rows.

        ends  called with the thread's error if the thread ends by itself
        """
        self._thread = guarded("standpipe-cache", self._keep, ends)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.store.refuse()
            self._tell(
                f"cache {self._plan.cache.name!r} stores no new rows: {error}. Rows that it has already are used"
            )
            return
        self._supplied.wait(FIRST_S)

    def enter(self, epoch: int) -> None:
        """Record that workers now make rows of this epoch. Rows of the previous epoch may still follow.

        When the epoch rises, the store asks for room again, and with ``validate="epoch"`` checks files again.
        """
        if epoch <= self._epoch:
            return
        with self._entering:
            begins, self._epoch = epoch > self._epoch >= 0, max(epoch, self._epoch)
        if not begins:
            return
        self.store.ask_again()  # there may be new room: other users have ended, or were idle for long enough
        if self._plan.cache.validate == "epoch":
            self.store.forget_checks()

    def close(self, patience_s: float) -> bool:
        """End the thread, which closes the set; return True if it has ended in ``patience_s``.

        A thread that is stuck in a system call closes the set when the call returns.
        """
        ends = time.monotonic() + patience_s
        self.store.close(int(1000 * patience_s))
        if self._thread is not None and not has_ended(self._thread, ends - time.monotonic()):
            return False
        self._end()
        return True

    def _keep(self) -> None:
        stamped, patience_s = time.monotonic(), STAMPS_S
        self._set.look_for_spill()
        while self.store.wait(int(1000 * patience_s)):
            self._set.supply()
            if self.store.wants().extent:
                # Another process is reserving room of the same session at this moment, so ask again soon.
                patience_s = min(2 * patience_s if patience_s < STAMPS_S else SOON_S, LATER_S)
            else:
                patience_s = STAMPS_S
                self._supplied.set()
            if time.monotonic() - stamped >= STAMPS_S:
                stamped = time.monotonic()
                self._set.stamp()
                self._set.look_for_spill()
            self._say()
        self._end()

    def _end(self) -> None:
        self._supplied.set()
        self._say()
        self._set.close()
        self._say()

    def _say(self) -> None:
        for note in self._set.notes():
            self._tell(note)
