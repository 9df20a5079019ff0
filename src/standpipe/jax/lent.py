"""Limit how many batches' memory JAX uses at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

import numpy as np


class Lent:
    """Batches whose memory JAX reads or shares, until it releases them.

    JAX may run dozens of steps behind the training loop, and keeps the arrays that these steps read. JAX has
    released an array when Python deletes it, which a weak reference shows.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[ref[Any], ...]] = []

    def take(self, arrays: Mapping[str, Any], *, most: int) -> Mapping[str, Any]:
        """Return views of the arrays to pass to JAX; return copies if JAX already uses ``most`` batches."""
        self._batches = [owners for owners in self._batches if any(owner() is not None for owner in owners)]
        if len(self._batches) >= most:
            return {name: array.copy() for name, array in arrays.items()}
        # A view refers to the object that owns its memory. The memoryview is such an owner for this array alone.
        own = {name: np.asarray(memoryview(array)) for name, array in arrays.items()}
        self._batches.append(tuple(ref(array.base) for array in own.values()))
        return own
