"""Batches in host memory: NumPy arrays over the slot itself."""

from __future__ import annotations

from penstock import _native
from penstock.batch import SlotLayout
from penstock.spec import AnyArray


def lend_to_host(ring: _native.SlotRing, slot: int, layout: SlotLayout, rows: int) -> dict[str, AnyArray]:
    """Lend a ready slot as one array per field.

    All share one lease: the slot goes back to the ring when the last view of any of them is gone, whether it is
    a slice, a torch tensor or a DLPack import.
    """
    return layout.views(ring.lend(slot), rows)
