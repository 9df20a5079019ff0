"""Count the memory of results of worker processes that isn't in slots."""

from __future__ import annotations

import threading

from standpipe import _native
from standpipe.engine.workers import Use
from standpipe.plan.plan import Plan


class Apart:
    """Counts it in the trainer: large arrays as long as they are mapped, and the rest of what came for a slot as long
    as that is somebody's.

    mapped  what the former count in
    """

    def __init__(self, ring: _native.SlotRing) -> None:
        self.mapped = _native.ByteCount()
        self._ring = ring
        self._lock = threading.Lock()  # of what follows
        self._rest: dict[int, int] = {}
        self._peak = 0

    def begin(self, slot: int) -> None:
        """The slot is filled anew."""
        with self._lock:
            self._rest[slot] = 0

    def add(self, slot: int, size: int) -> None:
        """Count bytes that came for a slot's batch, besides mapped ones."""
        with self._lock:
            self._rest[slot] = self._rest.get(slot, 0) + size
            self._peak = max(self._peak, self._now())

    def use(self) -> Use:
        """The bytes now, and at most so far."""
        with self._lock:
            now = self._now()
            self._peak = max(self._peak, now)
            return Use(now, self._peak)

    def in_heap(self) -> int:
        """The bytes of these that are in the trainer's heap."""
        with self._lock:
            return self._in_heap()

    def _now(self) -> int:
        return self.mapped.now + self._in_heap()

    def _in_heap(self) -> int:
        return sum(size for slot, size in self._rest.items() if size and self._ring.is_taken(slot))


def bytes_per_row(plan: Plan) -> int:
    """Return about how many bytes a batch's rows take outside the slots, by the plan."""
    return plan.memory.forecast.waiting // (plan.memory.slots * plan.batch.layout.rows)
