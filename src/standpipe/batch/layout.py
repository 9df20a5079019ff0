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
    """The places of a batch's fields in its slot: largest field first, each aligned to a cache line.

    fields      shape and dtype of one row, by field name
    rows        number of rows of the largest batch
    regions     fields whose shape differs from batch to batch, by name
    room        the most bytes of a row in any epoch, by field name; none for fields that stay the same
    kept        fields that have the same dtype on every device
    offsets     first byte of each field, counted from the slot's start
    slot_bytes  bytes that the fields take together, rounded up to cache lines
    """

    fields: Mapping[str, ArraySpec]
    rows: int
    regions: Mapping[str, Region] = field(default_factory=dict)
    room: Mapping[str, int] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
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
        """The size in bytes and the dtype of each field in the slot, by name."""
        fields = {
            name: (self.rows * self.room.get(name, spec.row_bytes), spec.dtype)
            for name, spec in self.fields.items()
        }
        fields |= {name: (region.nbytes, region.dtype) for name, region in self.regions.items()}
        return {name: SlotField(*memory, name in self.kept) for name, memory in fields.items()}

    @property
    def stride_bytes(self) -> int:
        """The bytes from one slot to the next: ``slot_bytes`` rounded up to whole pages."""
        return -(-self.slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def waiting_bytes(self) -> int:
        """The most bytes of samples that wait outside the slot until their batch is complete.

        Most fields of ``regions`` can be collated only when all samples of the batch exist.
        """
        return sum(region.nbytes for region in self.regions.values() if region.waits)

    def views(self, slot: UInt8Array, rows: int) -> dict[str, AnyArray]:
        """Return the fields of a slot's first ``rows`` rows as arrays over the slot, by name.

        slot  (slot_bytes,) uint8
        """
        batch: dict[str, AnyArray] = {}
        for name, spec in self.fields.items():
            begin = self.offsets[name]
            raw = slot[begin : begin + rows * spec.row_bytes]
            batch[name] = raw.view(spec.dtype).reshape(rows, *spec.shape)
        return batch

    def shaped(self, slot: UInt8Array, shapes: Mapping[str, Shape]) -> dict[str, AnyArray]:
        """Return the fields of ``regions`` as arrays over the slot, in the shapes that this batch needs."""
        return {
            name: self.regions[name].array(slot[self.offsets[name] :], shape)
            for name, shape in shapes.items()
        }
