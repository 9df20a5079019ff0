"""The batch place: where each field of a batch is in its slot."""

from standpipe.batch.collate import (
    Collate,
    Collation,
    Contents,
    Pad,
    Ragged,
    Shape,
    SlotOverflow,
    budget_notes,
    checked_collate,
    padding_multiple,
    stored_layout,
)
from standpipe.batch.layout import SlotLayout

__all__ = [
    "Collate",
    "Collation",
    "Contents",
    "Pad",
    "Ragged",
    "Shape",
    "SlotLayout",
    "SlotOverflow",
    "budget_notes",
    "checked_collate",
    "padding_multiple",
    "stored_layout",
]
