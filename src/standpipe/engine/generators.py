"""The global generators of ``random``, NumPy and torch: where they stand, and how they are set and put back."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

STATE_WORDS = 624  # of the Mersenne Twister in all three
NAMES = ("random", "numpy", "torch")

_python: Any = random._inst  # the module's functions are its methods

Marks = tuple[int, ...]  # three of each generator, of which one changes with every draw


class Generators:
    """Those of this process. torch's is one of them from ``watch_torch()`` on."""

    def __init__(self) -> None:
        self._words = _random_words()
        self._torch_words: Any = None
        bits = np.random.mtrand._rand._bit_generator  # what np.random.seed seeds
        self._numpy_words = (ctypes.c_uint32 * (STATE_WORDS + 1)).from_address(bits.ctypes.state_address)
        self._bits = bits  # owns that memory
        self._numpy_pair = _numpy_pair()

    def watch_torch(self) -> None:
        """Look at torch's generator too from now on; it has been imported."""
        if self._torch_words is None:
            self._torch_words = _torch_words()

    def marks(self) -> Marks:
        """Where the generators stand, and whether they keep the second number of a pair of normal ones."""
        words, numpy_words, torch_words = self._words, self._numpy_words, self._torch_words
        return (
            words[0] if words is not None else hash(random.getstate()),
            words[1] if words is not None else 0,
            _python.gauss_next is not None,
            numpy_words[STATE_WORDS],
            numpy_words[0],
            self._numpy_pair[0] if self._numpy_pair is not None else 0,
            torch_words[0] if torch_words is not None else 0,
            torch_words[2] if torch_words is not None else 0,
            0,
        )

    def states(self) -> dict[str, Any]:
        """To be put back, by name."""
        names = NAMES if self._torch_words is not None else NAMES[:2]
        return {name: _GET[name]() for name in names}


def moved(before: Marks, after: Marks) -> set[str]:
    """Which generators have been drawn from in between."""
    return {name for i, name in enumerate(NAMES) if before[3 * i : 3 * i + 3] != after[3 * i : 3 * i + 3]}


def seed(name: str, key: int) -> None:
    """Set a generator to what is a function of ``key``."""
    _SEED[name](key)


def put_back(name: str, state: Any) -> None:
    """Set a generator to a state that it had."""
    _SET[name](state)


def _random_words() -> Any:
    """The position of ``random``'s generator and the word after it, where they lie in memory; None if not found.

    CPython keeps position and state side by side inside the object, and gives no quick way to look at them:
    ``getstate()`` takes 8 µs.
    """
    instance = _python
    *state, position = random.getstate()[1]
    words = (ctypes.c_uint32 * (instance.__sizeof__() // 4)).from_address(id(instance))
    memory = bytes(words)
    at = memory.find(np.asarray(state, np.uint32).tobytes())
    if at < 4 or at % 4 or words[at // 4 - 1] != position:
        return None
    return (ctypes.c_uint32 * 2).from_address(id(instance) + at - 4)


def _numpy_pair() -> Any:
    """The word that says whether NumPy's generator keeps a normal number for the next call; None if not found."""
    like: Any = np.random.RandomState(0)
    kept = 1.2345678901234567e-77
    like.set_state(("MT19937", np.zeros(STATE_WORDS, np.uint32), 0, 1, kept))
    memory = bytes((ctypes.c_uint8 * type(like).__basicsize__).from_address(id(like)))
    at = memory.find(np.float64(kept).tobytes()) - 8
    if at < 0 or memory[at : at + 4] != np.uint32(1).tobytes():
        return None
    return (ctypes.c_uint32 * 1).from_address(id(np.random.mtrand._rand) + at)


def _torch_words() -> Any:
    """Likewise for torch's: the words before its state, of which the first and the third change."""
    generator = _torch_generator()
    state = generator.get_state().numpy().tobytes()
    words = np.frombuffer(state, np.uint64, STATE_WORDS, offset=24).astype(np.uint32).tobytes()
    memory = bytes((ctypes.c_uint8 * (len(words) + 128)).from_address(generator._cdata))
    at = memory.find(words)
    if at < 12 or at % 4:
        raise RuntimeError("this torch keeps the state of its generator in another way than 2.4 to 2.13 do")
    return (ctypes.c_uint32 * 3).from_address(generator._cdata + at - 12)


def _seed_numpy(key: int) -> None:
    np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002 (the generator that people's code draws from)


def _torch_generator() -> Any:
    return sys.modules["torch"].default_generator


_SEED: Mapping[str, Callable[[int], object]] = {
    "random": random.seed,
    "numpy": _seed_numpy,
    "torch": lambda key: _torch_generator().manual_seed(key >> 1),
}
_GET: Mapping[str, Callable[[], Any]] = {
    "random": random.getstate,
    "numpy": np.random.get_state,
    "torch": lambda: _torch_generator().get_state(),
}
_SET: Mapping[str, Callable[[Any], object]] = {
    "random": random.setstate,
    "numpy": np.random.set_state,
    "torch": lambda state: _torch_generator().set_state(state),
}
