"""The batch place: where each field of a batch lies in its slot."""

from penstock.batch.collate import (
    Collate,
    Collation,
    Contents,
    Pad,
    Ragged,
    Shape,
    TooMuch,
    checked_collate,
    placed,
)
from penstock.batch.layout import SlotLayout

__all__ = [
    "Collate",
    "Collation",
    "Contents",
    "Pad",
    "Ragged",
    "Shape",
    "SlotLayout",
    "TooMuch",
    "checked_collate",
    "placed",
]
