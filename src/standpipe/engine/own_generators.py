"""Generators of one worker thread, from which nobody else draws: NumPy's, ``random``'s and torch's."""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from standpipe.engine.draws import GlobalGenerators


class OwnGenerators:
    """Generators of one worker thread: NumPy's for ``rng``, ``random``'s for libraries that take one, torch's.

    Used as a context manager by the thread while it makes samples.

    group  stands for the loader that the samples are for
    """

    def __init__(self, shared: GlobalGenerators, group: object) -> None:
        self.group = group
        self.waits_for: object = None  # the group of the loader that a call of this one waits for
        self.unseeded = False  # whether it is inside a call whose draws nobody has prepared for
        self.until_s = math.inf  # how long others wait for its calls, as time.monotonic() counts
        self.seeded = 0  # how often it is inside one with generators seeded
        self.thread = 0  # the one that makes samples with it
        self.drew = False  # whether the last seeded call drew from a global generator
        self._shared = shared
        self._bits = np.random.Philox(key=0)
        self._state: Any = self._bits.state
        self.watches_torch = False  # whether torch's functions ask for numbers here
        self._torch: Any = None
        self._entered = 0
        self.rng = np.random.Generator(self._bits)
        self.python = random.Random(0)

    def __enter__(self) -> OwnGenerators:
        self._entered += 1
        if self._entered == 1:
            self.thread = threading.get_ident()
            self._shared.add(self)
            if "torch" in sys.modules:
                self.catch_torch()
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            if self._torch is not None:
                self._torch.__exit__(*exception)
            self._shared.remove(self)

    def leave(self, after_s: float | None = 0.0) -> None:
        """Nobody waits for its calls any more, or in so many seconds; None: that is never so. Its thread hangs."""
        if after_s == 0:
            self._shared.remove(self)
        elif after_s is not None:
            self.until_s = time.monotonic() + after_s
            self._shared.look()

    def catch_torch(self) -> None:
        """Give torch's functions this thread's generator until the context manager is left."""
        if self._torch is None:
            self._torch = _torch_mode()
            self.watches_torch = True
            self._shared.watch_torch()
        self._torch.__enter__()

    def missed_torch(self) -> bool:
        """Whether torch was imported by a call just now, which may have drawn from it. From now on it is watched."""
        if self._torch is not None or "torch" not in sys.modules:
            return False
        self.catch_torch()
        return True

    def generator(self, key: int) -> np.random.Generator:
        """NumPy's generator, set to ``key``: Philox (Salmon et al., 2011) from its first number on."""
        state = self._state
        state["state"]["key"][:] = key, 0
        self._bits.state = state
        return self.rng

    def set(self, key: int) -> None:
        """Set torch's generator, as soon as it is drawn from."""
        self.drew = False
        if self._torch is not None:
            self._torch.key = key

    def has_drawn(self) -> bool:
        """Whether the last call drew, as far as it was seeded: by torch's functions it always is."""
        return self.drew or (self._torch is not None and self._torch.key is None)

    @property
    def sees_torch(self) -> bool:
        """Whether it would have seen torch's functions draw. Not where they were imported just now."""
        return self._torch is not None or "torch" not in sys.modules


def _torch_mode() -> Any:
    """A mode that gives torch's random functions a generator of its own, set to ``key`` at its first use."""
    import torch
    from torch.overrides import TorchFunctionMode

    takes_generator = {
        *(
            torch.rand,
            torch.randn,
            torch.randint,
            torch.randperm,
            torch.normal,
            torch.bernoulli,
            torch.multinomial,
        ),
        *(torch.poisson, torch.Tensor.bernoulli, torch.Tensor.multinomial),
        *(torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.bernoulli_),
        *(torch.Tensor.exponential_, torch.Tensor.geometric_, torch.Tensor.log_normal_, torch.Tensor.cauchy_),
    }

    class Draws(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.key: int | None = None
            self._generator = torch.Generator()

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if func in takes_generator and kwargs.get("generator") is None:
                if self.key is not None:
                    self._generator.manual_seed(self.key >> 1)
                    self.key = None
                kwargs = {**kwargs, "generator": self._generator}
            return func(*args, **kwargs)

    return Draws()
