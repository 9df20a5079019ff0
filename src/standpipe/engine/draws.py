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

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Set
from typing import Any, TypeVar

from standpipe.engine.generators import Generators, Marks, moved, put_back, seed
from standpipe.engine.own_generators import OwnGenerators

WAKE_S = 1.0  # that waking others may take: who hangs inside a seeded call has the lock, and has it for ever
AGAIN = 2  # times that samples are made as they are once more, before calls are seeded to find out who draws
CALLS_WITHOUT_DRAW = 16  # after which a generator isn't seeded any more: seeded calls run one at a time

Made = TypeVar("Made")


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
        self._generators = Generators()
        self._lock = threading.RLock()  # held by a seeded call, but while it waits for another loader's
        self._calm = threading.Condition(self._lock)
        self._depth = 0  # seeded calls under way: each waits for the next one's loader
        self._lent: list[OwnGenerators] = []  # of their callers, who let others have the lock meanwhile
        self._idle: dict[str, int] = {}  # generators drawn from, and calls since they were
        # Replaced, never changed: it is looked at without the lock. Its own lock is never held for long.
        self._callers: tuple[OwnGenerators, ...] = ()
        self._coming_and_going = threading.Lock()
        self._proven: set[str] = set()  # of those in _idle, those that a seeded call has drawn from
        self._suspects: dict[str, int] = {}  # that moved, and how many samples are made again for it
        self._saved: tuple[Marks, dict[str, Any]] | None = None  # before unseeded calls
        self._disturbed: set[str] = set()  # meanwhile
        self._left: Marks = ()  # and as it left them
        self._after: Marks | None = None  # where they stood after the last call, if that was seeded
        self._waiting = 0  # seeded calls that wait for others' end
        self._foreign: set[str] = set()  # generators that others draw from while callers are there
        self._fresh = True  # whether callers have come since nobody was there

    def add(self, caller: OwnGenerators) -> None:
        """One more thread that makes calls."""
        with self._coming_and_going:
            if not self._callers:
                self._fresh, self._foreign = True, set()
            self._callers = (*self._callers, caller)

    def remove(self, caller: OwnGenerators) -> None:
        """One less; nobody waits for its calls any more. Any thread may say so, whatever others hang in."""
        with self._coming_and_going:
            self._callers = tuple(other for other in self._callers if other is not caller)
        self.look()

    def look(self) -> None:
        """Whoever waits for a turn looks again, whatever others hang in."""
        if self._waiting and self._lock.acquire(timeout=WAKE_S):
            try:
                self._calm.notify_all()
            finally:
                self._lock.release()

    def share(self) -> None:
        """From now on others use them too."""
        self._shared = True

    @contextlib.contextmanager
    def lent(self, group: object) -> Iterator[None]:
        """What this thread is calling waits for calls of the loader ``group``, which come in between meanwhile.

        They leave the generators as they found them. Calls of others don't come in between: they might wait for
        something that is held here.
        """
        mine = [caller for caller in self._callers if caller.thread == threading.get_ident()]
        if not mine:
            yield
            return
        holds = sum(caller.seeded for caller in mine)
        with self._lock:
            for caller in mine:
                caller.waits_for = group
            if holds:
                self._lent.append(mine[-1])
            depth = len(self._lent)
            self._after = None
            self._calm.notify_all()
        for _ in range(holds):
            self._lock.release()
        try:
            yield
        finally:
            for _ in range(holds):
                self._lock.acquire()
            with self._lock:
                for caller in mine:
                    caller.waits_for = None
                while len(self._lent) > depth:
                    self._calm.wait()
                if holds:
                    self._lent.pop()
                self._calm.notify_all()

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
                        if not self._idle and (made := self._unseeded(caller, make, suspected)):
                            return made[0]
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

    def seeded(
        self, caller: OwnGenerators, function: Callable[[Any, int], Any], argument: Any, key: int
    ) -> Any:
        """``function(argument, key)``, with every generator that is known to be drawn from seeded by ``key``.

        Raises ``Drew`` when it draws from another one too, and when none is drawn from any more.
        """
        with self._lock:
            self._waiting += 1
            try:
                while self._idle and not self._is_turn_of(caller):
                    self._calm.wait(self._patience_s())
            finally:
                self._waiting -= 1
            if not self._idle:
                raise Drew(set())  # others make unseeded calls again, for which nobody could wait
            caller.seeded += 1
            self._depth += 1
            try:
                return self._seeded(caller, function, argument, key)
            finally:
                self._depth -= 1
                caller.seeded -= 1
                if self._waiting:
                    self._calm.notify_all()

    def marks(self) -> Marks:
        """Where the generators stand now, whoever draws from them."""
        return self._generators.marks()

    def watch_torch(self) -> None:
        """Look at torch's generator too from now on; it has been imported."""
        self._generators.watch_torch()

    def _is_turn_of(self, caller: OwnGenerators) -> bool:
        """Whether nothing is being called but what waits for the caller. The lock is held."""
        called = self._lent[-1:] or [other for other in self._callers if other.unseeded]
        now = time.monotonic()
        return all(self._waits_for(other, caller) for other in called if other.until_s > now)

    def _patience_s(self) -> float | None:
        """Seconds until one of those that hang is not waited for any more; None: there are none."""
        now = time.monotonic()
        ends = [other.until_s - now for other in self._callers if now < other.until_s < math.inf]
        return min(ends, default=None)

    def _waits_for(self, other: OwnGenerators, caller: OwnGenerators) -> bool:
        """Whether a call waits for one of the caller's: by its loader, or by way of others' calls."""
        chain = [other]
        for each in chain:
            if each.thread == caller.thread or each.waits_for is caller.group:
                return True
            chain += [one for one in self._callers if one.group is each.waits_for and one not in chain]
        return False

    def _begin(self, caller: OwnGenerators) -> Marks:
        before = self._generators.marks()
        saved = self._saved is not None and self._saved[0] == before
        # What another such call has drawn is not what shall be put back.
        if self._shared and not saved and not any(o.unseeded for o in self._callers if o is not caller):
            if self._saved is not None and not self._fresh:
                self._foreign |= moved(self._saved[0], before)
            self._fresh = False
            self._saved = before, self._generators.states()
        self._after = None
        return before

    def _unseeded(
        self, caller: OwnGenerators, make: Callable[[bool], Made], suspected: set[str]
    ) -> tuple[Made] | None:
        """``make(False)``; None when its calls may have drawn, or could without being seen."""
        disturbed: set[str] = set()
        before = self._begin(caller)
        for _ in range(1 + AGAIN if self._shared else 1):
            made = make(False)
            after = self._generators.marks()
            names = moved(before, after)
            disturbed |= names
            if caller.missed_torch():
                break
            if not names:
                return (made,)
            before = after
        if disturbed:
            with self._lock:
                self._disturbed |= disturbed
                self._left = after
            self._suspect(disturbed, suspected)
        return None

    def _suspect(self, names: Set[str], suspected: set[str]) -> None:
        """Seed these until samples are made again, and it shows whether calls draw from them."""
        with self._lock:
            self._idle |= dict.fromkeys(names, 0)
            for name in names - suspected:
                self._suspects[name] = self._suspects.get(name, 0) + 1
            suspected |= names

    def _acquit(self, suspected: set[str]) -> None:
        """The samples are made again. What no call has drawn from then, somebody else did."""
        with self._lock:
            for name in suspected:
                self._suspects[name] -= 1
                if self._suspects[name] == 0:
                    self._disturbed.discard(name)
                    if name not in self._proven and self._depth == 0:
                        self._idle.pop(name, None)

    def _seeded(
        self, caller: OwnGenerators, function: Callable[[Any, int], Any], argument: Any, key: int
    ) -> Any:
        names = tuple(self._idle)
        start = self._generators.marks()
        if self._after is not None:
            self._foreign |= moved(self._after, start)
        now = self._generators.states() if self._shared else {}
        earlier = self._earlier(start)
        for name in names:
            seed(name, key)
        self._after = None
        before = self._generators.marks()
        try:
            return function(argument, key)
        finally:
            after = self._generators.marks()
            drawn = moved(before, after)
            caller.drew = bool(drawn)
            for name in now.keys() & names:
                put_back(name, earlier.get(name, now[name]) if name in drawn else now[name])
            self._count(names, drawn)
            if new := drawn - {*names}:
                self._disturbed, self._left, self._saved = new, after, (start, now)
                error = sys.exception()
                if error is None or isinstance(error, Exception):  # not while an interrupt is under way
                    raise Drew(new)
            self._after = self._generators.marks()

    def _earlier(self, start: Marks) -> dict[str, Any]:
        """States to go back to if it proves that calls draw from these generators: unseeded ones have, then.

        What somebody else has drawn since, or may have drawn meanwhile, is never undone: the trainer would get the
        same numbers twice.
        """
        if not self._shared or not self._disturbed or self._saved is None:
            return {}
        undone = self._disturbed - self._foreign - moved(self._left, start)
        return {name: state for name, state in self._saved[1].items() if name in undone}

    def _count(self, names: tuple[str, ...], drawn: set[str]) -> None:
        """Keep in mind which of the seeded generators calls draw from."""
        for name in names:
            if name in drawn:
                self._idle[name] = 0
                self._proven.add(name)
                self._disturbed.discard(name)
            else:
                self._idle[name] += 1
            # While another seeded call is under way, all have to be seeded.
            if self._idle[name] > CALLS_WITHOUT_DRAW and not self._suspects.get(name) and self._depth == 1:
                self._idle.pop(name)
                self._proven.discard(name)


_of_process: dict[int, GlobalGenerators] = {}


def shared_generators() -> GlobalGenerators:
    """What all loaders of this process share, so that seeded calls of one don't come between those of another."""
    # By process, as a forked child begins anew.
    generators = _of_process.setdefault(os.getpid(), GlobalGenerators(shared=True))
    generators.share()
    return generators


def generators_of_worker() -> GlobalGenerators:
    """Likewise, in a worker process: nobody else uses them, until a loader is started in there."""
    return _of_process.setdefault(os.getpid(), GlobalGenerators(shared=False))


@contextlib.contextmanager
def waiting_for(group: object) -> Iterator[None]:
    """This thread waits for calls of the loader ``group``; perhaps inside a call that another loader makes."""
    generators = _of_process.get(os.getpid())
    if generators is None:
        yield
    else:
        with generators.lent(group):
            yield
