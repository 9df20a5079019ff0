"""A loader's part in a cache: it has the set open, gives it room for new rows, and says once what goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standpipe.cache import OpenSet, open_set
from standpipe.contracts import OpenSource
from standpipe.engine.watchdog.guarded import Ends, guarded
from standpipe.engine.workers import has_ended
from standpipe.errors import CacheError
from standpipe.plan.cache import CachePlan
from standpipe.plan.cache_benefit import Costs, note_costs
from standpipe.stats.counters import Stats

if TYPE_CHECKING:
    import logging

    from standpipe import _native

LEAST_MEASURED = 16  # rows, to say what one costs
STAMPS_S = 5.0  # between two notes of last use and counters
SOON_S, LATER_S = (
    0.02,
    0.5,
)  # until room is asked for again that another process kept from it, at first and at most
FIRST_S = 2.0  # that a start waits for room, which comes in milliseconds, so that the first rows are kept too

Tell = Callable[[str], object]  # is given what is worth a warning, each thing once

# Of the store, and what ``Stats`` calls them.
COUNTS = {
    "hits": "cache_hits",
    "misses": "cache_misses",
    "stored": "cache_stored",
    "skipped": "cache_skipped",
    "stale": "cache_stale",
    "errors": "cache_errors",
    "hit_bytes": "cache_bytes",
}


def counted(store: _native.CacheStore) -> dict[str, Any]:
    """Counters by their names in ``Stats``."""
    found = store.stats()
    return {name: getattr(found, theirs) for theirs, name in COUNTS.items()}


def warn(text: str) -> None:
    """Say that something about a cache isn't as it should be."""
    _logger().warning("%s", text)


def opened(plan: CachePlan, tell: Tell = warn, *, strict: bool) -> OpenSet | None:
    """Open the cache set of a plan. Return None where that isn't possible, and log why.

    strict  raise a ``CacheError`` instead
    """
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
        tell(f"going on without a cache: {error}")
        return None


class Keeper:
    """A cache set that a process has open, and the thread that maintains it: making rows never waits for
    storage.

    The thread reserves room that the set wants, records its use, logs what goes wrong, and closes it at the
    end. While storage blocks the thread, new rows aren't kept, and everything else continues.

    store   index of the rows, for any thread
    checks  True if rows are compared with their files
    """

    def __init__(self, plan: CachePlan, found: OpenSet, tell: Tell = warn) -> None:
        self._plan, self._set, self._tell = plan, found, tell
        self._epoch = -1
        self._entering = threading.Lock()
        self.store: _native.CacheStore = found.store
        self.checks = plan.checks
        self._supplied = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, ends: Ends) -> None:
        """Begin, in the process that makes rows, and wait a moment for room for the first of them.

        ends  is given the error of the thread if it ends by itself
        """
        self._thread = guarded("standpipe-cache", self._keep, ends)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.store.refuse()
            self._tell(
                f"cache {self._plan.cache.name!r} keeps no new rows: {error}; those that are there are used"
            )
            return
        self._supplied.wait(FIRST_S)

    def enter(self, epoch: int) -> None:
        """Rows of this epoch are made now. Rows of one before may be made yet."""
        if epoch <= self._epoch:
            return
        with self._entering:
            begins, self._epoch = epoch > self._epoch >= 0, max(epoch, self._epoch)
        if not begins:
            return
        self.store.ask_again()  # there may be room that there wasn't: others have gone, or idle for long enough
        if self._plan.cache.validate == "epoch":
            self.store.forget_checks()

    def close(self, patience_s: float) -> bool:
        """End it, which closes the set. A thread that is stuck in the system is left behind, and closes it then."""
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
                # It will have that soon: another process is just giving room to the same session.
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


class Costing:
    """Writes down, once, what rows cost as long as none was found in a cache: plans to come choose by that."""

    def __init__(self, source: OpenSource) -> None:
        self._source = source
        self._epoch: int | None = None
        self._noted = False

    def enter(self, epoch: int, counted: Callable[[], Stats]) -> None:
        """Rows of this epoch are made now."""
        if epoch != self._epoch and self._epoch is not None:
            self.note(counted())
        self._epoch = epoch

    def note(self, made: Stats) -> None:
        """Note the counters so far."""
        if self._noted or made.rows < LEAST_MEASURED or made.cache_hits > 0:
            return
        self._noted = True
        read, rows = made.read, made.rows
        costs = Costs(read.busy_s / rows, made.transform.busy_s / rows, read.bytes / rows, True)
        note_costs(self._source, costs)


def _logger() -> logging.Logger:
    import logging  # a tenth of what importing standpipe costs beside NumPy

    return logging.getLogger("standpipe")
