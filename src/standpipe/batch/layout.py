"""Lay the fields of a batch out in one slot."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field

from standpipe.batch.collate import Region, Shape
from standpipe.contracts import SlotField
from standpipe.spec import AnyArray, ArraySpec, UInt8Array

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Fields one after another, each starting on a cache line; the largest first, so on a page.

    fields   shape and dtype of one row, by name
    rows     rows of a batch
    regions  fields whose shape isn't the same in every batch, by name
    offsets  where each field begins, bytes from the slot's start
    """

    fields: Mapping[str, ArraySpec]
    rows: int
    regions: Mapping[str, Region] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(init=False)
    slot_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        sizes = {name: each.nbytes for name, each in self.in_slot.items()}
        offsets, end = {}, 0
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            offsets[name] = end
            end += -(-sizes[name] // ALIGNMENT) * ALIGNMENT
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "slot_bytes", max(end, ALIGNMENT))

    @property
    def in_slot(self) -> Mapping[str, SlotField]:
        """Bytes and dtype of each field in the slot."""
        fields = {
            name: SlotField(self.rows * spec.row_bytes, spec.dtype) for name, spec in self.fields.items()
        }
        return fields | {
            name: SlotField(region.nbytes, region.dtype) for name, region in self.regions.items()
        }

    @property
    def stride_bytes(self) -> int:
        """Memory of one slot: whole pages."""
        return -(-self.slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def waiting_bytes(self) -> int:
        """Memory of samples of ``regions`` until all of a batch are there, at most."""
        return sum(region.nbytes for region in self.regions.values())

    def views(self, slot: UInt8Array, rows: int) -> dict[str, AnyArray]:
        """The fields of a slot's first ``rows`` rows, as arrays over it.

        slot  (slot_bytes,) uint8
        """
        batch: dict[str, AnyArray] = {}
        for name, spec in self.fields.items():
            begin = self.offsets[name]
            raw = slot[begin : begin + rows * spec.row_bytes]
            batch[name] = raw.view(spec.dtype).reshape(rows, *spec.shape)
        return batch

    def shaped(self, slot: UInt8Array, shapes: Mapping[str, Shape]) -> dict[str, AnyArray]:
        """The fields of ``regions``, in the shapes that a batch has them in."""
        return {
            name: self.regions[name].array(slot[self.offsets[name] :], shape)
            for name, shape in shapes.items()
        }
