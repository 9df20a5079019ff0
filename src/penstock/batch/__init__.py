"""The batch place: where each field of a batch lies in its slot."""

from penstock.batch.layout import SlotLayout

__all__ = ["SlotLayout"]
