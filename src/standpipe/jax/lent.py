"""Track batches whose memory JAX uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

import numpy as np


class Lent:
    """Batches whose memory JAX reads or shares, until it releases them.

    JAX runs up to dozens of steps behind the loop that feeds it, and keeps what these steps read. Only the
    end of an array shows that JAX has released it.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[ref[Any], ...]] = []

    def take(self, arrays: Mapping[str, Any], *, most: int) -> Mapping[str, Any]:
        """Return the same arrays, to pass to JAX; return copies while ``most`` batches are in use."""
        self._batches = [owners for owners in self._batches if any(owner() is not None for owner in owners)]
        if len(self._batches) >= most:
            return {name: array.copy() for name, array in arrays.items()}
        # Views of an array refer to what owns its memory: here to an owner of this array alone.
        own = {name: np.asarray(memoryview(array)) for name, array in arrays.items()}
        self._batches.append(tuple(ref(array.base) for array in own.values()))
        return own
