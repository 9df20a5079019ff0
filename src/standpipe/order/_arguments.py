"""Check arguments of orders: integers within limits, positions and epochs."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import numpy as np

from standpipe.errors import PlanError
from standpipe.spec import Int64Array

MAX_POSITIONS = 1 << 62
MAX_ROWS = (1 << 31) - 1  # of a batch, and of ranks: their product stays far from 64 bits
WORDS = 1 << 64  # seeds and epochs are 64-bit words


def whole_number(field: str, value: object, *, low: int, high: int) -> int:
    """Return ``value`` as an int, or raise a ``PlanError`` unless it is an integer in [low, high]."""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
        if low <= number <= high:
            return number
    raise PlanError(f"{field} must be an integer from {low} to {high}, got {value!r}")


def record_numbers(asked_by: str, rows: object) -> Int64Array:
    """Return a list or array of record numbers as an array, (n,) int64. Raises ``PlanError`` for other values.

    asked_by  the beginning of an error's text, such as ``"select() takes"``
    """
    array = np.asarray(rows)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise PlanError(
            f"{asked_by} a list of record numbers, got {array.dtype} of shape {array.shape}"
            + (". For a mask, write np.flatnonzero(mask)" if array.dtype == np.bool_ else "")
        )
    if len(array) and (array.min() < 0 or array.max() >= MAX_POSITIONS):
        raise PlanError(f"{asked_by} record numbers from 0 on, got {array.min()} to {array.max()}")
    return np.array(array, np.int64)


def check_positions(num_positions: int, epoch: int, start: int, stop: int) -> None:
    """Raise ``IndexError`` unless positions [start, stop) of ``epoch`` exist."""
    if not 0 <= start <= stop <= num_positions:
        raise IndexError(f"positions [{start}, {stop}) asked of an order of {num_positions}")
    if not 0 <= epoch < WORDS:
        raise IndexError(f"epoch {epoch} isn't in [0, 2^64)")
