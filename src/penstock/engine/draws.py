"""Random numbers of Python code, as pure functions of (seed, epoch, position, op), whoever draws them.

Three ways, from best to worst for threads:

1. A parameter named ``rng``: a NumPy generator of the worker's own, set to the op's key before each call.
2. torch's functions: while Python code runs in a worker, a ``TorchFunctionMode``, which is the thread's own,
   gives them a generator of the worker's.
3. The global generators of ``random``, NumPy and torch. They belong to the process, so a call that draws from
   them has to run alone, with them seeded before and put back after. Most functions draw nothing: so functions
   are called as they are, and after some samples the generators' positions are compared. Once they moved, these
   samples are made again, each call seeded and alone. That tells whether the calls draw, or the trainer did in its
   own thread: if they do, the generators that they draw from are seeded for every call from then on.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
from collections.abc import Callable, Set
from typing import Any, TypeVar

import numpy as np

STATE_WORDS = 624  # of the Mersenne Twister in all three
NAMES = ("random", "numpy", "torch")
CALLS_WITHOUT_DRAW = 16  # after which a generator isn't seeded any more: seeded calls run one at a time

_python: Any = random._inst  # the module's functions are its methods

Made = TypeVar("Made")
Marks = tuple[int, ...]  # three of each generator, of which one changes with every draw


class Drew(Exception):
    """The sample has to be made again: calls may have drawn from ``names``, which weren't seeded for them."""

    def __init__(self, names: Set[str]) -> None:
        super().__init__(names)
        self.names = names


class GlobalGenerators:
    """The global generators of this process, and which of them the pipeline's functions draw from.

    shared  whether anybody else uses them: then seeded calls run one at a time, and states are put back
    """

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self._lock = threading.RLock()
        self._calm = threading.Condition(self._lock)
        self._idle: dict[str, int] = {}  # generators drawn from, and calls since they were
        self._callers: tuple[
            OwnGenerators, ...
        ] = ()  # replaced, never changed: it is looked at without the lock
        self._words = _random_words()
        self._torch_words: Any = None
        bits = np.random.mtrand._rand._bit_generator  # what np.random.seed seeds
        self._numpy_words = (ctypes.c_uint32 * (STATE_WORDS + 1)).from_address(bits.ctypes.state_address)
        self._bits = bits  # owns that memory
        self._numpy_pair = _numpy_pair()
        self._proven: set[str] = set()  # of those in _idle, those that a seeded call has drawn from
        self._suspects: dict[
            str, int
        ] = {}  # generators that moved, and how many samples are made again for it
        self._saved: tuple[Marks, dict[str, Any]] | None = None  # before unseeded calls
        self._disturbed: set[str] = set()  # meanwhile
        self._left: Marks = ()  # and as it left them
        self._after: Marks | None = None  # where they stood after the last call, if that was seeded
        self._waiting = 0  # seeded calls that wait for others' end
        self._foreign: set[str] = set()  # generators that others draw from while callers are there
        self._fresh = True  # whether callers have come since nobody was there

    def add(self, caller: OwnGenerators) -> None:
        """One more thread that makes calls."""
        with self._lock:
            if not self._callers:
                self._fresh, self._foreign = True, set()
            self._callers = (*self._callers, caller)

    def remove(self, caller: OwnGenerators) -> None:
        """One less."""
        with self._lock:
            self._callers = tuple(other for other in self._callers if other is not caller)

    def has_this_thread(self) -> bool:
        """Whether the thread that asks is one that makes calls."""
        return any(caller.thread == threading.get_ident() for caller in self._callers)

    def run(self, caller: OwnGenerators, make: Callable[[bool], Made]) -> Made:
        """``make(False)``, whose calls are made as they are; or ``make(True)`` if they are known to draw, or did.

        ``make`` does all its work again then. With True, it makes every call by ``seeded``.
        """
        suspected: set[str] = set()
        try:
            while True:
                if not self._idle:
                    caller.unseeded = True  # before the second look: whoever seeds looks the other way round
                    try:
                        if not self._idle:
                            before = self._begin(caller)
                            made = make(False)
                            moved = self._moved(before, suspected)
                            if not caller.missed_torch() and not moved:
                                return made
                    finally:
                        caller.unseeded = False
                        if self._waiting:
                            with self._lock:
                                self._calm.notify_all()
                else:
                    try:
                        return make(True)
                    except Drew as drew:
                        self._suspect(drew.names, suspected)
        finally:
            if suspected:
                self._acquit(suspected)

    def seeded(self, function: Callable[[Any, int], Any], argument: Any, key: int) -> Any:
        """``function(argument, key)``, with every generator that is known to be drawn from seeded by ``key``.

        Raises ``Drew`` when it draws from another one too, and when none is drawn from any more.
        """
        with self._lock:
            self._waiting += 1
            try:
                while self._idle and any(other.unseeded for other in self._callers):
                    self._calm.wait()
            finally:
                self._waiting -= 1
            if not self._idle:
                raise Drew(set())  # others make unseeded calls again, for which nobody could wait
            return self._seeded(function, argument, key)

    def watch_torch(self) -> None:
        """Look at torch's generator too from now on; it has been imported."""
        if self._torch_words is None:
            self._torch_words = _torch_words()

    def _begin(self, caller: OwnGenerators) -> Marks:
        before = self._marks()
        saved = self._saved is not None and self._saved[0] == before
        # What another such call has drawn is not what shall be put back.
        if self._shared and not saved and not any(o.unseeded for o in self._callers if o is not caller):
            if self._saved is not None and not self._fresh:
                self._foreign |= _moved(self._saved[0], before)
            self._fresh = False
            self._saved = before, {name: _GET[name]() for name in self._names()}
        self._after = None
        return before

    def _moved(self, before: Marks, suspected: set[str]) -> bool:
        """Whether generators have moved since. Unseeded calls may have drawn from them."""
        after = self._marks()
        if moved := _moved(before, after):
            with self._lock:
                self._disturbed |= moved
                self._left = after
            self._suspect(moved, suspected)
        return bool(moved)

    def _suspect(self, moved: Set[str], suspected: set[str]) -> None:
        """Seed these until samples are made again, and it shows whether calls draw from them."""
        with self._lock:
            self._idle |= dict.fromkeys(moved, 0)
            for name in moved - suspected:
                self._suspects[name] = self._suspects.get(name, 0) + 1
            suspected |= moved

    def _acquit(self, suspected: set[str]) -> None:
        """The samples are made again. What no call has drawn from then, somebody else did."""
        with self._lock:
            for name in suspected:
                self._suspects[name] -= 1
                if self._suspects[name] == 0:
                    self._disturbed.discard(name)
                    if name not in self._proven:
                        self._idle.pop(name, None)

    def _seeded(self, function: Callable[[Any, int], Any], argument: Any, key: int) -> Any:
        names = tuple(self._idle)
        start = self._marks()
        if self._after is not None:
            self._foreign |= _moved(self._after, start)
        now = {name: _GET[name]() for name in self._names()} if self._shared else {}
        earlier = self._earlier(start)
        for name in names:
            _SEED[name](key)
        before = self._marks()
        try:
            return function(argument, key)
        finally:
            after = self._marks()
            moved = _moved(before, after)
            for name in now.keys() & names:
                _SET[name](earlier.get(name, now[name]) if name in moved else now[name])
            self._count(names, moved)
            if new := moved - {*names}:
                self._disturbed, self._left, self._saved = new, after, (start, now)
                error = sys.exception()
                if error is None or isinstance(error, Exception):  # not while an interrupt is under way
                    raise Drew(new)
            self._after = self._marks()

    def _earlier(self, start: Marks) -> dict[str, Any]:
        """States to go back to if it proves that calls draw from these generators: unseeded ones have, then.

        What somebody else has drawn since, or may have drawn meanwhile, is never undone: the trainer would get the
        same numbers twice.
        """
        if not self._shared or not self._disturbed or self._saved is None:
            return {}
        undone = self._disturbed - self._foreign - _moved(self._left, start)
        return {name: state for name, state in self._saved[1].items() if name in undone}

    def _count(self, names: tuple[str, ...], moved: set[str]) -> None:
        """Keep in mind which of the seeded generators calls draw from."""
        for name in names:
            if name in moved:
                self._idle[name] = 0
                self._proven.add(name)
                self._disturbed.discard(name)
            else:
                self._idle[name] += 1
            if self._idle[name] > CALLS_WITHOUT_DRAW and not self._suspects.get(name):
                self._idle.pop(name)
                self._proven.discard(name)

    def _names(self) -> tuple[str, ...]:
        return NAMES if self._torch_words is not None else NAMES[:2]

    def _marks(self) -> Marks:
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


_of_process: dict[int, GlobalGenerators] = {}


def shared_generators() -> GlobalGenerators:
    """What all loaders of this process share, so that seeded calls of one don't come between those of another.

    A loader that is started inside another one's dataset or function gets one of its own: that call waits for it.
    """
    shared = _of_process.setdefault(os.getpid(), GlobalGenerators(shared=True))  # a forked child begins anew
    return GlobalGenerators(shared=True) if shared.has_this_thread() else shared


class OwnGenerators:
    """Generators of one worker thread: NumPy's for ``rng``, ``random``'s for libraries that take one, torch's.

    Used as a context manager by the thread while it makes samples.
    """

    def __init__(self, shared: GlobalGenerators) -> None:
        self.unseeded = False  # whether it is inside a call whose draws nobody has prepared for
        self.thread = 0  # the one that makes samples with it
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
        if self._torch is not None:
            self._torch.key = key


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


def _moved(before: Marks, after: Marks) -> set[str]:
    return {name for i, name in enumerate(NAMES) if before[3 * i : 3 * i + 3] != after[3 * i : 3 * i + 3]}


def _seed_numpy(key: int) -> None:
    np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002 (the generator that people's code draws from)


def _torch_generator() -> Any:
    return sys.modules["torch"].default_generator


_SEED: dict[str, Callable[[int], object]] = {
    "random": random.seed,
    "numpy": _seed_numpy,
    "torch": lambda key: _torch_generator().manual_seed(key >> 1),
}
_GET: dict[str, Callable[[], Any]] = {
    "random": random.getstate,
    "numpy": np.random.get_state,
    "torch": lambda: _torch_generator().get_state(),
}
_SET: dict[str, Callable[[Any], object]] = {
    "random": random.setstate,
    "numpy": np.random.set_state,
    "torch": lambda state: _torch_generator().set_state(state),
}


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
