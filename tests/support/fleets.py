"""A fleet whose makers are in this process, so that tests of the engine need no cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import standpipe as sp
from standpipe.engine.remote.maker import BatchMaker
from standpipe.plan.remote_images import sent


class Makers:
    """A fleet of makers in this process. It implements ``contracts.Fleet`` and ``contracts.OpenFleet``.

    plans   a plan for each maker
    gate    called in a maker's thread before each task, with the maker's number and the task; it may wait or raise
    """

    def __init__(
        self,
        plans: Sequence[sp.Plan],
        fallback: Any = "wait",
        gate: Callable[[int, Any], None] = lambda maker, task: None,
        changed: Callable[[int, dict[str, Any]], dict[str, Any]] = lambda maker, facts: facts,
    ) -> None:
        self.plans, self.fallback, self._gate, self._changed = plans, fallback, gate, changed
        self.makers = self.workers = len(plans)
        self.asked: list[tuple[int, int]] = []
        self.restarts: list[int] = []
        self.pokes = 0
        self.deaf: set[int] = set()
        self.dead: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._ended: list[Any] = []  # makers in whose place others were started

    shared = False

    def describe(self) -> Sequence[str]:
        return [f"{self.makers} makers in this process"]

    def open(self, receiver: Any) -> Makers:
        self.receiver = receiver
        self._made = [BatchMaker(sent(plan)) for plan in self.plans]
        for maker in range(self.makers):
            if maker not in self.dead:
                self.join(maker)
        return self

    def join(self, maker: int) -> None:
        self.dead.discard(maker)
        facts = self._changed(maker, self._made[maker].facts())
        self.receiver.joined(maker, f"maker {maker}", facts)

    def kill(self, maker: int) -> None:
        """Lose a maker: it answers nothing more."""
        self.dead.add(maker)
        self.receiver.lost(maker, "killed")

    def ask(self, maker: int, number: int, task: Any) -> None:
        self.asked.append((maker, number))
        if maker not in self.dead:
            thread = threading.Thread(target=self._make, args=(maker, number, task))
            self._threads.append(thread)
            thread.start()

    def _make(self, maker: int, number: int, task: Any) -> None:
        try:
            self._gate(maker, task)
            answer = self._made[maker].make(task)
        except Exception as error:
            self.receiver.failed(maker, number, error)
            return
        if maker not in self.dead:
            self.receiver.answered(maker, number, answer)

    def poke(self, maker: int) -> None:
        self.pokes += 1
        if maker not in self.deaf:
            self.receiver.alive(maker)

    def restart(self, maker: int) -> None:
        self.restarts.append(maker)
        self.deaf.discard(maker)
        self.receiver.lost(maker, "it was started again")
        self._ended.append(self._made[maker])
        self._made[maker] = BatchMaker(sent(self.plans[maker]))
        self.receiver.joined(maker, f"maker {maker}", self._made[maker].facts())

    def close(self) -> None:
        for maker in (*self._made, *self._ended):
            maker.close()


def of_batch(batch: dict[str, Any]) -> str:
    """Return the digest of a batch of arrays."""
    return blake2b(repr([(name, batch[name].tobytes()) for name in sorted(batch)]).encode()).hexdigest()
