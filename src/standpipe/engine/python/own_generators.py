"""Random generators that belong to one thread that makes samples."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from standpipe.transform import Rng


class OwnGenerators:
    """NumPy's and torch's for a parameter ``rng``; NumPy's and ``random``'s for libraries that take them."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._state: Any = self._bits.state
        self._torch: Any = None
        self.rng = np.random.Generator(self._bits)
        self.python = random.Random(0)

    def generator(self, key: int, kind: Rng = "numpy") -> Any:
        """Return the generator of a kind, set to ``key``; NumPy's is Philox (Salmon et al., 2011)."""
        if kind == "torch":
            return self._torch_generator().manual_seed(key >> 1)
        state = self._state
        state["state"]["key"][:] = key, 0
        self._bits.state = state
        return self.rng

    def _torch_generator(self) -> Any:
        if self._torch is None:
            import torch

            self._torch = torch.Generator("cpu")
        return self._torch
