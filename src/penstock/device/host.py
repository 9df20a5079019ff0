"""Batches in host memory: the slot itself, lent."""

from __future__ import annotations

from penstock import _native
from penstock.spec import UInt8Array


def lend_to_host(ring: _native.SlotRing, slot: int) -> UInt8Array:
    """Lend a ready slot, as (slot_bytes,) uint8.

    The slot goes back to the ring when the last view of the array is gone, whether that is a slice, an array of
    another dtype, a torch tensor or a DLPack import: the lease hangs on the array's memory owner.
    """
    return ring.lend(slot)
