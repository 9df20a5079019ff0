"""The global generators of a worker process, by their documented interfaces: ``random``'s, NumPy's and torch's."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Marks = dict[str, Any]  # states by a generator's name
_numpy: Any = np.random  # whose stubs lack some of its public functions


@dataclass(frozen=True, slots=True)
class GlobalGenerator:
    """One generator of the process, which any code may use.

    is_there  whether code can have drawn from it
    seed      sets it to a function of a 64-bit key
    state     reads it
    """

    name: str
    is_there: Callable[[], bool]
    seed: Callable[[int], object]
    state: Callable[[], Any]
    is_same: Callable[[Any, Any], bool]


def those_there() -> list[GlobalGenerator]:
    """Return the generators that code can have drawn from; there are more once it has imported torch."""
    return [each for each in GENERATORS if each.is_there()]


def marks() -> Marks:
    """Read the state of every generator that is there."""
    return {each.name: each.state() for each in those_there()}


def moved(before: Marks, after: Marks) -> list[GlobalGenerator]:
    """Return the generators that were drawn from in between, of those that were there."""
    both = (each for each in GENERATORS if each.name in before)
    return [each for each in both if not each.is_same(before[each.name], after[each.name])]


def seed_all(key: int) -> None:
    """Set every generator that is there to a function of ``key``."""
    for each in those_there():
        each.seed(key)


def _torch() -> Any:
    return sys.modules.get("torch")


def _has_cuda() -> bool:
    """Return True if this process uses CUDA already; the question doesn't initialise it."""
    return "torch.cuda" in sys.modules and bool(_torch().cuda.is_initialized())


def _seed_numpy(key: int) -> None:
    bits = _numpy.get_bit_generator()
    if isinstance(bits, np.random.MT19937):
        _numpy.seed([key & 0xFFFFFFFF, key >> 32])
    else:  # of code that has chosen another one, which seed() refuses
        _numpy.set_bit_generator(type(bits)(key))


def _is_same_numpy(one: Any, other: Any) -> bool:
    return list(_flat(one)) == list(_flat(other))


def _flat(state: dict[str, Any]) -> Iterator[Any]:
    """Yield the values of a state of NumPy's, whose dicts differ from one bit generator to another."""
    for value in state.values():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield value.tobytes() if isinstance(value, np.ndarray) else value


GENERATORS = (  # the one that is read soonest first
    GlobalGenerator(
        "torch",
        lambda: hasattr(_torch(), "default_generator"),  # not while it is being imported
        lambda key: _torch().default_generator.manual_seed(key >> 1),
        lambda: _torch().random.get_rng_state(),
        lambda one, other: bool(_torch().equal(one, other)),
    ),
    GlobalGenerator("random", lambda: True, random.seed, random.getstate, lambda one, other: one == other),
    GlobalGenerator(
        "numpy.random", lambda: True, _seed_numpy, lambda: _numpy.get_state(legacy=False), _is_same_numpy
    ),
    GlobalGenerator(
        "torch.cuda",
        _has_cuda,
        lambda key: _torch().cuda.manual_seed_all(key >> 1),
        lambda: _torch().cuda.get_rng_state_all(),
        lambda one, other: all(map(_torch().equal, one, other)),
    ),
)
