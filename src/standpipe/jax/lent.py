"""Which batches' memory JAX has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

import numpy as np


class Lent:
    """Batches whose memory JAX reads or shares, until it lets go of them.

    JAX runs behind the loop that feeds it, by dozens of steps, and keeps what these read. When it lets go of an array
    is told by nothing but the array's end.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[ref[Any], ...]] = []

    def take(self, arrays: Mapping[str, Any], *, most: int) -> Mapping[str, Any]:
        """The same arrays, to be given away; copies while ``most`` batches are lent."""
        self._batches = [owners for owners in self._batches if any(owner() is not None for owner in owners)]
        if len(self._batches) >= most:
            return {name: array.copy() for name, array in arrays.items()}
        # Views of an array refer to what owns its memory: here to an owner of this array alone.
        own = {name: np.asarray(memoryview(array)) for name, array in arrays.items()}
        self._batches.append(tuple(ref(array.base) for array in own.values()))
        return own
