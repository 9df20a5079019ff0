"""Random generators that belong to one thread that makes samples."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from standpipe.transform import Rng


class OwnGenerators:
    """The random generators of one thread, which it passes to the user's functions and to albumentations.

    rng     NumPy's generator
    python  a ``random.Random``
    """

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._state: Any = self._bits.state
        self._torch: Any = None
        self.rng = np.random.Generator(self._bits)
        self.python = random.Random(0)

    def generator(self, key: int, kind: Rng = "numpy") -> Any:
        """Return NumPy's or torch's generator, seeded with ``key``; NumPy's is Philox (Salmon et al., 2011).

        kind  ``"numpy"`` or ``"torch"``
        """
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
