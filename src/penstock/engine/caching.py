"""A loader's part in a cache: it has the set open, gives it room for new rows, and says once what goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.cache import OpenSet, open_set
from penstock.caching import CachePlan
from penstock.contracts import OpenSource
from penstock.engine.workers import Stats, has_ended
from penstock.errors import CacheError
from penstock.payoff import Costs, note_costs

if TYPE_CHECKING:
    import logging

    from penstock import _native

LEAST_MEASURED = 16  # rows, to say what one costs
STAMPS_S = 5.0  # between two notes of last use and counters
SOON_S, LATER_S = (
    0.02,
    0.5,
)  # until room is asked for again that another process kept from it, at first and at most


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


def opened(plan: CachePlan) -> OpenSet | None:
    """The set of a plan; None where there is none to be had, which is said once.

    Raises ``CacheError`` then where the cache is ``strict``.
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
        if plan.cache.strict:
            raise
        warn(f"going on without a cache: {error}")
        return None


class Keeper:
    """A thread that gives a set the room that it wants, so that whoever stores a row never waits for it.

    store   what native threads look rows up in
    checks  whether rows are compared with their files
    """

    def __init__(self, plan: CachePlan, opened: OpenSet) -> None:
        self._set = opened
        self._each_epoch = plan.cache.validate == "epoch"
        self._epoch: int | None = None
        self.store: _native.CacheStore = opened.store
        self.checks = plan.checks
        self._thread = threading.Thread(target=self._keep, name="penstock-cache", daemon=True)

    def start(self) -> None:
        """Make room for the first rows, and begin. Raises ``RuntimeError`` when the system allows no more threads."""
        self._set.supply()
        self._thread.start()

    def counted(self, stats: Stats) -> Stats:
        """With what the set has counted."""
        return replace(stats, **counted(self.store))

    def enter(self, epoch: int) -> None:
        """Rows of this epoch are made now."""
        if self._each_epoch and epoch != self._epoch:
            self.store.forget_checks()
        self._epoch = epoch

    def close(self, patience_s: float) -> bool:
        """End it, and let go of the set. A thread that is stuck in the system is left behind."""
        self.store.close(int(1000 * patience_s))
        ended = has_ended(self._thread, patience_s)
        if ended:
            self._say()
            self._set.close()
        return ended

    def _keep(self) -> None:
        stamped, patience_s = time.monotonic(), STAMPS_S
        while self.store.wait(int(1000 * patience_s)):
            self._set.supply()
            # What it wants yet it will have soon: another process is just giving room to the same session.
            wants = self.store.wants().extent
            patience_s = (
                min(2 * patience_s if patience_s < STAMPS_S else SOON_S, LATER_S) if wants else STAMPS_S
            )
            if time.monotonic() - stamped >= STAMPS_S:
                stamped = time.monotonic()
                self._set.stamp()
            self._say()

    def _say(self) -> None:
        for note in self._set.notes():
            warn(note)


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
        """So much was made until now."""
        if self._noted or made.rows < LEAST_MEASURED or made.cache_hits > 0:
            return
        self._noted = True
        costs = Costs(made.read_s / made.rows, made.decode_s / made.rows, made.bytes / made.rows, True)
        note_costs(self._source, costs)


def _logger() -> logging.Logger:
    import logging  # a tenth of what importing penstock costs beside NumPy

    return logging.getLogger("penstock")
