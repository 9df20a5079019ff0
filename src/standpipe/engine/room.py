"""Decide if a run's memory has room for one more batch, and make the error for held batches that take all of
it.
"""

from __future__ import annotations

from standpipe import _native
from standpipe.engine.meter import TAKEN
from standpipe.engine.workers import Workers
from standpipe.errors import BudgetError, StalledError, StandpipeError
from standpipe.plan.plan import Plan
from standpipe.units import show_bytes


class Room:
    """Slots, and what worker processes handed over beside them, within the plan's part of the budget.

    varies  whether batches take memory beside their slots; else there is room for as many as there are slots
    """

    def __init__(self, plan: Plan, ring: _native.SlotRing, workers: Workers) -> None:
        self._memory, self._slot_bytes = plan.memory, plan.batch.layout.stride_bytes
        self._ring, self._workers = ring, workers
        self.varies = plan.hands_over

    def reclaim(self) -> None:
        """Take slots back that nobody holds any more."""
        self._ring.reclaim()

    def no_slot(self) -> bool:
        """Return True if every slot is held, until the caller drops a batch or a thread that hangs returns."""
        self._ring.reclaim()
        taken = sum(map(self._ring.count, ("lent", "quarantined", "held")))
        return taken == self._memory.most_slots or (taken >= self._memory.slots and not self.has_room())

    def has_room(self) -> bool:
        """Return True if the memory has room for one more batch, besides the existing ones and their values
        outside slots.
        """
        if not self.varies:
            return True
        slot, taken = self._slot_bytes, sum(map(self._ring.count, TAKEN))
        one = slot + self._memory.forecast.waiting // self._memory.slots
        return taken * slot + self._workers.waiting_bytes + one <= self._memory.batches_bytes

    def all_lent(self) -> StandpipeError:
        """Return the error for a loop that holds every slot."""
        lent, stuck = self._ring.count("lent"), self._ring.count("quarantined")
        if stuck > 0:
            return StalledError(
                f"of the {self._memory.most_slots} slots that fit the memory, {stuck} wait for threads that hang, and "
                f"the caller holds {lent}: raise memory=, or use executor='process', where what hangs can be ended"
            )
        slot = self._slot_bytes
        budget = self._memory.budget_bytes
        waiting = self._workers.waiting_bytes
        apart = f", with {show_bytes(waiting)} in no slot," if waiting else ""
        held = self._ring.count("held")
        forked = f", and {held} by processes that were forked since" if held else ""
        return BudgetError(
            f"all {lent + held} batches of {show_bytes(slot)}{apart} that fit memory={show_bytes(budget)!r} are held "
            f"by the caller{forked}; drop some, raise memory=, or set batch_release_timeout_s= when another "
            "thread will drop them",
            asked_bytes=(lent + 1) * slot,
            budget_bytes=budget,
        )
