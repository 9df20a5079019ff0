"""The batch place: where each field of a batch is in its slot."""

from standpipe.batch.collate import (
    Collate,
    Collation,
    Contents,
    Pad,
    Ragged,
    Shape,
    TooMuch,
    budget_notes,
    checked_collate,
    padding_multiple,
    placed,
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
    "TooMuch",
    "budget_notes",
    "checked_collate",
    "padding_multiple",
    "placed",
]
