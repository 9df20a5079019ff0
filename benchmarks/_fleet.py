"""A simulated fleet of actors, from which simulated trainers pull batches by the code of real runs."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from standpipe.engine.remote.pulling import Pulling


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Actors and trainers, and what goes wrong. Times are in seconds.

    load           batches that the trainers take per second, per batch that undisturbed actors make
    prefetch       batches that a trainer asks for ahead
    variation      standard deviation of an actor's time for a batch, divided by its mean
    slow_batches   fraction of the batches that take ten times as long
    slow_actors    fraction of the actors that take ten times as long for each batch
    fails_after_s  mean time after which an actor fails; 0: never
    node_every_s   mean time between losses of a whole node, with ``node`` actors; 0: never
    all_every_s    mean time between losses of all actors; 0: never
    noticed_s      time until trainers know of an actor's failure
    node_noticed_s time until trainers know of a node's failure
    back_s         time until a failed actor is back
    away_s         time until a node, or all actors, are back
    answer_s       time for which an answer travels
    """

    actors: int = 64
    trainers: int = 8
    node: int = 8
    load: float = 0.7
    prefetch: int = 0
    variation: float = 0.3
    slow_batches: float = 0.0
    slow_actors: float = 0.0
    fails_after_s: float = 0.0
    node_every_s: float = 0.0
    all_every_s: float = 0.0
    noticed_s: float = 0.5
    node_noticed_s: float = 10.0
    back_s: float = 5.0
    away_s: float = 60.0
    answer_s: float = 0.01

    @property
    def step_s(self) -> float:
        """The time between two steps of trainers that never wait."""
        return self.trainers / (self.actors * self.load)


@dataclass(slots=True)
class Actor:
    """A simulated actor.

    slowness  factor of its times
    queue     trainers and batches; it makes the first of them
    life      number of its failures; events of an earlier life are void
    there     False from its failure until it is back
    """

    slowness: float
    queue: deque[tuple[Trainer, int]] = field(default_factory=deque)
    life: int = 0
    there: bool = True


@dataclass(slots=True)
class Trainer:
    """A simulated trainer, which pulls batches as a run does.

    ready    batches that have come and that no step has taken
    wanted   number of batches that were asked for
    lost     time since which a batch is lost, by batch
    wakes_s  time at which it looks for late batches; infinite: never
    """

    pulling: Pulling
    ready: set[int] = field(default_factory=set)
    wanted: int = 0
    lost: dict[int, float] = field(default_factory=dict)
    wakes_s: float = math.inf


@dataclass(slots=True)
class Counts:
    """Counters of a simulation.

    steps         steps of all trainers together
    seconds       simulated time
    waits         time for which each step waited for batches
    made          batches that actors have finished
    accepted      answers that trainers have used
    asked_again   batches that were given to another actor because theirs was lost
    failures      failures of actors, also those of a whole node
    recoveries    time from when a loss is known, and an actor is there, to the batch that was lost
    entries       most entries in a trainer's tables, in each tenth of the steps
    under_way     most tasks and answers of all trainers under way, in each tenth of the steps
    queue         most batches at an actor
    """

    steps: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    made: int = 0
    asked_again: int = 0
    accepted: int = 0
    failures: int = 0
    recoveries: list[float] = field(default_factory=list)
    entries: list[int] = field(default_factory=lambda: [0] * 10)
    under_way: list[int] = field(default_factory=lambda: [0] * 10)
    queue: int = 0

    @property
    def duplicates(self) -> float:
        """Batches that were made and not used, per batch that was used."""
        return (self.made - self.accepted) / max(self.accepted, 1)

    @property
    def idle(self) -> float:
        """Fraction of the time for which the trainers waited."""
        return sum(self.waits) / self.seconds


class Simulation:
    """A run of trainers with a fleet.

    take  called for each batch that a step takes, with the number of the trainer and that of the batch
    """

    def __init__(
        self,
        fleet: Fleet,
        steps: int,
        seed: int,
        take: Callable[[int, int], None] = lambda trainer, batch: None,
    ) -> None:
        self._fleet, self._steps, self._take = fleet, steps, take
        self._random = random.Random(seed)
        slow = round(fleet.slow_actors * fleet.actors)
        self._actors = [Actor(10.0 if number < slow else 1.0) for number in range(fleet.actors)]
        self._trainers = [
            Trainer(Pulling(window=fleet.prefetch, loaders=fleet.trainers, loader=number))
            for number in range(fleet.trainers)
        ]
        self._known = [True] * fleet.actors  # False while trainers know that an actor isn't there
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0  # of events at the same time
        self._now_s = self._due_s = self._alone_until_s = 0.0
        self._under_way = 0
        self.counts = Counts()

    def run(self) -> Counts:
        """Return the counts after all steps."""
        fleet = self._fleet
        for trainer in self._trainers:
            for number in range(fleet.actors):
                trainer.pulling.join(number)
            self._want(trainer)
        self._repeat(fleet.fails_after_s / fleet.actors, self._one_fails)
        self._repeat(fleet.node_every_s, self._node_fails)
        self._repeat(
            fleet.all_every_s, partial(self._fail, range(fleet.actors), fleet.noticed_s, fleet.away_s)
        )
        while self.counts.steps < self._steps:
            self._now_s, _, event = heapq.heappop(self._events)
            event()
        self.counts.seconds = self._now_s
        return self.counts

    def _at(self, time_s: float, event: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (time_s, self._order, event))

    def _repeat(self, mean_s: float, event: Callable[[], None]) -> None:
        """Let an event happen again and again, after times with an exponential distribution."""
        if not mean_s:
            return

        def happen() -> None:
            event()
            self._repeat(mean_s, event)

        self._at(self._now_s + self._random.expovariate(1 / mean_s), happen)

    # Trainers.

    def _want(self, trainer: Trainer) -> None:
        """Want as many batches ahead as a run does, and ask for those that are due."""
        while trainer.wanted < self.counts.steps + self._fleet.prefetch:
            trainer.pulling.want(trainer.wanted)
            trainer.wanted += 1
        self._send(trainer)

    def _send(self, trainer: Trainer) -> None:
        for number, maker in trainer.pulling.asks(self._now_s):
            self._under_way += 1
            if self._actors[maker].there:
                self._enqueue(maker, trainer, number)
        tenth = 10 * self.counts.steps // self._steps
        self.counts.entries[tenth] = max(self.counts.entries[tenth], trainer.pulling.entries)
        self.counts.under_way[tenth] = max(self.counts.under_way[tenth], self._under_way)
        due_s = trainer.pulling.due_s(self._now_s)
        if due_s is not None and due_s < trainer.wakes_s:
            trainer.wakes_s = due_s
            self._at(due_s, partial(self._wake, trainer, due_s))

    def _wake(self, trainer: Trainer, due_s: float) -> None:
        if trainer.wakes_s == due_s:
            trainer.wakes_s = math.inf
            self._send(trainer)

    def _answered(self, trainer: Trainer, maker: int, number: int) -> None:
        self._under_way -= 1
        self.counts.made += 1
        if trainer.pulling.answer(maker, number, self._now_s):
            self.counts.accepted += 1
            trainer.ready.add(number)
            if (lost_s := trainer.lost.pop(number, None)) is not None:
                self.counts.recoveries.append(self._now_s - max(lost_s, self._alone_until_s))
        self._send(trainer)
        self._step()

    def _step(self) -> None:
        """Take steps, each as soon as its time has come and all trainers have its batch."""
        counts = self.counts
        while (
            counts.steps < self._steps
            and self._now_s >= self._due_s
            and all(counts.steps in trainer.ready for trainer in self._trainers)
        ):
            for rank, trainer in enumerate(self._trainers):
                trainer.ready.remove(counts.steps)
                self._take(rank, counts.steps)
            counts.waits.append(self._now_s - self._due_s)
            counts.steps += 1
            self._due_s = self._now_s + self._fleet.step_s
            self._at(self._due_s, self._step)
            if counts.steps < self._steps:
                for trainer in self._trainers:
                    self._want(trainer)

    # Actors.

    def _enqueue(self, maker: int, trainer: Trainer, number: int) -> None:
        queue = self._actors[maker].queue
        queue.append((trainer, number))
        self.counts.queue = max(self.counts.queue, len(queue))
        if len(queue) == 1:
            self._begin(maker)

    def _begin(self, maker: int) -> None:
        actor, fleet = self._actors[maker], self._fleet
        spread = math.log(1 + fleet.variation**2)  # variance of the logarithm
        seconds = self._random.lognormvariate(-spread / 2, math.sqrt(spread)) * actor.slowness
        if self._random.random() < fleet.slow_batches:
            seconds *= 10
        self._at(self._now_s + seconds, partial(self._made, maker, actor.life))

    def _made(self, maker: int, life: int) -> None:
        actor = self._actors[maker]
        if actor.life != life:
            return
        trainer, number = actor.queue.popleft()
        self._at(self._now_s + self._fleet.answer_s, partial(self._answered, trainer, maker, number))
        if actor.queue:
            self._begin(maker)

    # Failures.

    def _one_fails(self) -> None:
        maker = self._random.randrange(self._fleet.actors)
        self._fail([maker], self._fleet.noticed_s, self._fleet.back_s)

    def _node_fails(self) -> None:
        fleet = self._fleet
        nodes = fleet.actors // fleet.node
        # Ray spreads actors over nodes.
        on_node = range(self._random.randrange(nodes), fleet.actors, nodes)
        self._fail(on_node, fleet.node_noticed_s, fleet.away_s)

    def _fail(self, makers: Iterable[int], noticed_s: float, back_s: float) -> None:
        """Let actors fail, their trainers know it after ``noticed_s``, and the actors be back after ``back_s``."""
        for maker in makers:
            actor = self._actors[maker]
            if not actor.there:
                continue
            self.counts.failures += 1
            actor.there = False
            actor.life += 1
            actor.queue.clear()
            self._at(self._now_s + noticed_s, partial(self._leave, maker))
            self._at(self._now_s + max(back_s, noticed_s), partial(self._join, maker))

    def _leave(self, maker: int) -> None:
        self._known[maker] = False
        for trainer in self._trainers:
            before = trainer.pulling.tasks
            for number in trainer.pulling.leave(maker):
                self.counts.asked_again += 1
                trainer.lost.setdefault(number, self._now_s)
            self._under_way -= before - trainer.pulling.tasks
            self._send(trainer)

    def _join(self, maker: int) -> None:
        if not any(self._known):
            self._alone_until_s = self._now_s
        self._actors[maker].there = self._known[maker] = True
        for trainer in self._trainers:
            trainer.pulling.join(maker)
            self._send(trainer)
