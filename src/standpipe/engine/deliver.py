"""Turn a filled slot into the batch that the caller gets."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import Mix
from standpipe.engine.mixes import mixing_choices
from standpipe.engine.queue import Filled
from standpipe.order import Cursor
from standpipe.plan.plan import Plan
from standpipe.spec import BATCH_FIELDS, UInt8Array

LOOKS_S = 0.002  # seconds between two checks if a device still reads a slot

# Slots that a hanging device may still read. They stay mapped until the process ends.
_read_yet: list[_native.SlotRing] = []


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch, and the run's cursor after it.

    batch  None if the stream had no samples left
    rows   number of rows in the batch
    after  the cursor after this batch; after an epoch's last batch it is in the next epoch
    """

    batch: dict[str, Any] | None
    rows: int
    after: Cursor


class Delivery:
    """The path of batches to the plan's device. Callers of its methods hold the queue's lock.

    Batches of the current epoch are sent to the device ahead of time. Those of the next epoch wait until the
    training loop enters it. So between two epochs the loader has no batch on the device.
    """

    def __init__(self, plan: Plan, ring: _native.SlotRing) -> None:
        self._plan, self._ring = plan, ring
        self._device = plan.device.open(plan.batch.layout.in_slot, plan.samples.finish)
        self._epoch: int | None = None

    def enter(self, epoch: int) -> None:
        """Set the epoch whose batches the training loop takes now; only these are sent to the device."""
        self._epoch = epoch

    def send(self, ready: Iterable[Filled]) -> None:
        """Begin to send the first batches of ``ready`` to the device, as many as it has room for."""
        if self._plan.device.lends:
            return  # batches stay in host memory
        for filled in ready:
            if filled.slot is None or filled.error is not None or filled.at.epoch != self._epoch:
                return
            memory = self._ring.view(filled.slot)
            if not self._device.send(filled.slot, memory, self._arrays(filled, memory)):
                return

    def take(self, filled: Filled) -> dict[str, Any]:
        """Return the batch of a slot. The slot is lent until the last view of the batch is gone."""
        assert filled.slot is not None
        memory = self._ring.lend(filled.slot)
        return dict(self._device.take(filled.slot, memory, self._arrays(filled, memory), self._mixes(filled)))

    def peek(self, filled: Filled) -> dict[str, Any]:
        """Return a copy of the batch of a slot, which stays ready. The device reads it until ``settle()`` is True."""
        assert filled.slot is not None
        memory = self._ring.view(filled.slot)
        own = self._arrays(filled, memory)
        for name, value in own.items():
            if self._plan.device.lends or not isinstance(
                value, np.ndarray
            ):  # other arrays are copied by the device
                own[name] = deepcopy(value)
        batch = dict(self._device.take(filled.slot, memory, own, self._mixes(filled)))
        if filled.at.epoch != self._epoch:
            self.rest()
        return batch

    @property
    def copying_s(self) -> float:
        """The seconds that the device has spent on copies, in parallel with the host."""
        return self._device.copying_s

    def settle(self) -> bool:
        """Free the slots of taken batches that the device has finished reading.

        Return True if the device reads no slot of a taken batch any more.
        """
        return self._device.settle()

    def rest(self) -> None:
        """Stop sending batches: the training loop left the epoch, or continues elsewhere in it."""
        self._epoch = None
        self._device.rest()

    def drop_ready(self) -> None:
        """Free all ready slots, including those whose delivery was interrupted."""
        self.rest()
        self._ring.release_ready()

    def close(self) -> None:
        """Close the device. If it may still read slots, keep their memory mapped until the process ends."""
        self._epoch = None
        if not self._device.close():
            _read_yet.append(self._ring)

    def _mixes(self, filled: Filled) -> tuple[Mix, ...]:
        plan = self._plan
        if not plan.samples.mixings:
            return ()
        return tuple(mixing_choices(plan, filled.at, filled.position, filled.rows))

    def _arrays(self, filled: Filled, memory: UInt8Array) -> dict[str, Any]:
        layout = self._plan.layout_at(filled.at)
        batch = {
            **layout.views(memory, filled.rows),
            **layout.shaped(memory, filled.shapes),
            **filled.lists,
        }
        if filled.made is None:
            return batch
        kept = {*filled.made.kept, *BATCH_FIELDS}
        return {name: batch[name] for name in batch if name in kept} | dict(filled.made.objects)
