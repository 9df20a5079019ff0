"""Count the memory of results that worker processes send beside the slots, such as lists of strings."""

from __future__ import annotations

import threading

from standpipe import _native
from standpipe.engine.workers import Use
from standpipe.plan.plan import Plan


class Apart:
    """Counts the bytes of results that are in the trainer's memory outside the slots.

    Large arrays count while they are mapped. Other values count while the slot of their batch is in use.

    mapped  counter of the bytes of large arrays
    """

    def __init__(self, ring: _native.SlotRing) -> None:
        self.mapped = _native.ByteCount()
        self._ring = ring
        self._lock = threading.Lock()  # guards the two below
        self._rest: dict[int, int] = {}
        self._peak = 0

    def begin(self, slot: int) -> None:
        """Set the count of ``slot`` to 0, as the slot is filled again."""
        with self._lock:
            self._rest[slot] = 0

    def add(self, slot: int, size: int) -> None:
        """Count ``size`` bytes of results for the batch in ``slot``; ``mapped`` counts large arrays."""
        with self._lock:
            self._rest[slot] = self._rest.get(slot, 0) + size
            self._peak = max(self._peak, self._now())

    def use(self) -> Use:
        """Return the bytes of all results outside the slots: now, and at their peak."""
        with self._lock:
            now = self._now()
            self._peak = max(self._peak, now)
            return Use(now, self._peak)

    def in_heap(self) -> int:
        """Return the part of these bytes that is in the trainer's heap."""
        with self._lock:
            return self._in_heap()

    def _now(self) -> int:
        return self.mapped.now + self._in_heap()

    def _in_heap(self) -> int:
        return sum(size for slot, size in self._rest.items() if size and self._ring.is_taken(slot))


def bytes_per_row(plan: Plan) -> int:
    """Return the plan's forecast of the bytes that a row takes outside the slots."""
    return plan.memory.forecast.waiting // (plan.memory.slots * plan.batch.layout.rows)
