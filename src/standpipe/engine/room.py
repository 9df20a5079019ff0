"""Decide if a run's memory has room for one more batch, and make the error for a loop that holds all slots."""

from __future__ import annotations

from standpipe import _native
from standpipe.engine.meter import TAKEN
from standpipe.engine.workers import Workers
from standpipe.errors import BudgetError, StalledError, StandpipeError
from standpipe.plan.plan import Plan
from standpipe.units import show_bytes


class SlotBudget:
    """The memory of batches: slots, and values that worker processes sent outside the slots.

    varies  True if batches take memory outside their slots; otherwise every slot has room
    """

    def __init__(self, plan: Plan, ring: _native.SlotRing, workers: Workers) -> None:
        self._memory, self._slot_bytes = plan.memory, plan.batch.layout.stride_bytes
        self._ring, self._workers = ring, workers
        self.varies = plan.hands_over

    def no_slot(self) -> bool:
        """Return True if no slot can be filled until the caller drops a batch or a hanging thread finishes its row."""
        self._ring.reclaim()
        taken = sum(map(self._ring.count, ("lent", "quarantined", "held")))
        return taken == self._memory.most_slots or (taken >= self._memory.slots and not self.has_room())

    def has_room(self) -> bool:
        """Return True if one more batch fits the memory, in addition to all slots in use and their other values."""
        if not self.varies:
            return True
        slot, taken = self._slot_bytes, sum(map(self._ring.count, TAKEN))
        one = slot + self._memory.forecast.waiting // self._memory.slots
        return taken * slot + self._workers.memory().waiting.now + one <= self._memory.batches_bytes

    def all_lent(self) -> StandpipeError:
        """Return the error for a loop that waits for a batch while all slots are held."""
        lent, stuck = self._ring.count("lent"), self._ring.count("quarantined")
        if stuck > 0:
            return StalledError(
                f"of the {self._memory.most_slots} slots that fit the memory, {stuck} wait for threads that hang, and "
                f"the caller holds {lent}. Raise memory=, or use executor='process', which can end code that hangs"
            )
        slot = self._slot_bytes
        budget = self._memory.budget_bytes
        waiting = self._workers.memory().waiting.now
        apart = f", with {show_bytes(waiting)} outside the slots," if waiting else ""
        held = self._ring.count("held")
        forked = f" and by its forked child processes ({held})" if held else ""
        return BudgetError(
            f"all {lent + held} batches of {show_bytes(slot)}{apart} that fit memory={show_bytes(budget)!r} are held "
            f"by the caller{forked}; drop some, raise memory=, or set batch_release_timeout_s= if another "
            "thread will drop them",
            asked_bytes=(lent + 1) * slot,
            budget_bytes=budget,
        )
