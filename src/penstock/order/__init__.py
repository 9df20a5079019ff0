"""The order place: which record comes when, and which rank takes it at which step."""

from penstock.order.sequential import Sequential
from penstock.order.shuffle import Shuffled
from penstock.order.steps import Cursor, Step, Steps

__all__ = ["Cursor", "Sequential", "Shuffled", "Step", "Steps"]
