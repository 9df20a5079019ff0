"""The global generators of a worker process, by their documented interfaces: ``random``'s, NumPy's and torch's."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Marks = dict[str, Any]  # states by a generator's name


@dataclass(frozen=True, slots=True)
class GlobalGenerator:
    """A global random generator of this process, which any code may use.

    is_there  returns True if code can use the generator, as its module is imported
    seed      sets the generator by a 64-bit key
    begin     sets the generator by a 64-bit key to the state in which samples are made that don't use it; with NumPy
              this takes a fifth of the time of ``seed``
    moves     True if ``mark`` changes the state
    state     returns a value that identifies the state, without changing it
    mark      returns such a value too, but may change the state. With NumPy it takes a fiftieth of the time
              of ``state``. Two states with one mark are as rare as a collision of 64 random bits
    """

    name: str
    is_there: Callable[[], bool]
    seed: Callable[[int], object]
    begin: Callable[[int], object]
    moves: bool
    state: Callable[[], Any]
    mark: Callable[[], Any]


def those_there() -> list[GlobalGenerator]:
    """Return the generators that code can use in this process; torch's only after torch was imported."""
    return [each for each in GENERATORS if each.is_there()]


def marks() -> Marks:
    """Return the state of every generator that code can use."""
    return {each.name: each.state() for each in those_there()}


def read_marks() -> Marks:
    """Return the mark of every generator that code can use. Call ``go_back`` afterwards, as this changes states."""
    return {each.name: each.mark() for each in those_there()}


def changed(before: Marks, after: Marks) -> list[GlobalGenerator]:
    """Return the generators in ``before`` whose mark, or state, differs in ``after``."""
    return [each for each in GENERATORS if each.name in before and before[each.name] != after[each.name]]


def seed_all(key: int) -> None:
    """Set every generator that code can use by the 64-bit ``key``."""
    for each in those_there():
        each.seed(key)


def begin_all(key: int) -> None:
    """Set every generator that code can use to the state in which samples are made that use none."""
    for each in those_there():
        each.begin(key)


def go_back(key: int) -> None:
    """Undo what ``read_marks`` has changed since ``begin_all(key)``."""
    for each in those_there():
        if each.moves:
            each.begin(key)


def _torch() -> Any:
    return sys.modules.get("torch")


def _torch_state() -> bytes:
    state: bytes = _torch().random.get_rng_state().numpy().tobytes()
    return state


def _cuda_states() -> list[bytes]:
    return [state.numpy().tobytes() for state in _torch().cuda.get_rng_state_all()]


def _has_cuda() -> bool:
    """Return True if this process uses CUDA already; this check doesn't initialise CUDA."""
    return "torch.cuda" in sys.modules and bool(_torch().cuda.is_initialized())


def _numpy() -> Any:  # as the stubs lack some of its public functions
    """Return NumPy's module, which is imported at its first use."""
    return np.random


def _seed_numpy(key: int) -> None:
    bits = _numpy().get_bit_generator()
    if isinstance(bits, np.random.MT19937):
        _numpy().seed([key & 0xFFFFFFFF, key >> 32])
    else:  # of code that has chosen another one, which seed() refuses
        _numpy().set_bit_generator(type(bits)(key))


def _begin_numpy(key: int) -> None:
    if isinstance(_numpy().get_bit_generator(), np.random.MT19937):
        _numpy().seed(key & 0xFFFFFFFF)
    else:
        _seed_numpy(key)


def _numpy_mark() -> tuple[int, int]:
    """Return two raw random numbers of NumPy's global generator: 32 bits each by default, 64 with most others."""
    bits = _numpy().get_bit_generator()
    return bits.random_raw(), bits.random_raw()


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
        lambda key: _torch().default_generator.manual_seed(key >> 1),
        False,
        _torch_state,
        _torch_state,
    ),
    GlobalGenerator(
        "random",
        lambda: True,
        random.seed,
        random.seed,
        True,
        random.getstate,
        lambda: random.getrandbits(64),
    ),
    GlobalGenerator(
        "numpy.random",
        lambda: True,
        _seed_numpy,
        _begin_numpy,
        True,
        lambda: list(_flat(_numpy().get_state(legacy=False))),
        _numpy_mark,
    ),
    GlobalGenerator(
        "torch.cuda",
        _has_cuda,
        lambda key: _torch().cuda.manual_seed_all(key >> 1),
        lambda key: _torch().cuda.manual_seed_all(key >> 1),
        False,
        _cuda_states,
        _cuda_states,
    ),
)
