"""Turn a filled slot into the batch that the caller gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from standpipe import _native
from standpipe.engine.mixes import drawn
from standpipe.engine.queue import Filled
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.spec import UInt8Array

BATCH_FIELDS = ("index", "valid")  # that a batch has whatever functions make of it
LOOKS_S = 0.002  # between two looks at what a device reads yet

_read_yet: list[_native.SlotRing] = []  # maybe for ever, by devices that hang: these stay mapped


@dataclass(frozen=True, slots=True)
class Delivered:
    """One batch, and the cursor once it is delivered.

    batch  None when a stream had none left
    rows   in it
    after  where the run stands then; another epoch than the batch's when it was the epoch's last
    """

    batch: dict[str, Any] | None
    rows: int
    after: Cursor


class Delivery:
    """Brings batches to the plan's device. Its caller holds the queue's lock.

    Batches of the epoch that the caller is in are on their way ahead of him; those of the next one wait for
    him to enter it, so that between epochs nothing of this loader's is on the device.
    """

    def __init__(self, plan: Plan, ring: _native.SlotRing) -> None:
        self._plan, self._layout, self._ring = plan, plan.batch.layout, ring
        self._device = plan.device.open(plan.batch.layout.in_slot, plan.samples.finish)
        self._epoch: int | None = None

    def enter(self, epoch: int) -> None:
        """The caller asks for a batch of this epoch."""
        self._epoch = epoch

    def send(self, ready: Iterable[Filled]) -> None:
        """Begin to bring batches to the device, the first ones of ``ready``, as far as there is room."""
        if self._plan.device.lends:
            return  # they are where they shall be
        for filled in ready:
            if filled.slot is None or filled.error is not None or filled.at.epoch != self._epoch:
                return
            memory = self._ring.view(filled.slot)
            if not self._device.send(filled.slot, memory, self._arrays(filled, memory)):
                return

    def take(self, filled: Filled) -> dict[str, Any]:
        """The batch. Its slot is lent until nobody holds any part of it."""
        assert filled.slot is not None
        memory = self._ring.lend(filled.slot)
        plan, epoch = self._plan, filled.at.epoch
        mixes = tuple(drawn(plan, epoch, filled.position, filled.rows)) if plan.samples.mixings else ()
        return dict(self._device.take(filled.slot, memory, self._arrays(filled, memory), mixes))

    @property
    def copying_s(self) -> float:
        """Seconds that the device has copied batches beside the host."""
        return self._device.copying_s

    def settle(self) -> bool:
        """Let go of slots whose batches were taken, as far as they aren't read any more; whether that is all."""
        return self._device.settle()

    def rest(self) -> None:
        """The caller has left the epoch, or goes on somewhere else in it."""
        self._epoch = None
        self._device.rest()

    def drop_ready(self) -> None:
        """Free all ready slots, also those whose hand-over was interrupted."""
        self.rest()
        self._ring.release_ready()

    def close(self) -> None:
        """Let go of the slots; nothing is sent any more."""
        self._epoch = None
        if not self._device.close():
            _read_yet.append(self._ring)

    def _arrays(self, filled: Filled, memory: UInt8Array) -> dict[str, Any]:
        batch = {
            **self._layout.views(memory, filled.rows),
            **self._layout.shaped(memory, filled.shapes),
            **filled.lists,
        }
        if filled.made is None:
            return batch
        kept = {*filled.made.kept, *BATCH_FIELDS}
        return {name: batch[name] for name in batch if name in kept} | dict(filled.made.objects)
