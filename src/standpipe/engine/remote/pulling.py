"""Decide which maker makes which batch, and which late batch a second maker makes too.

This is a plain value without threads, clock or transport: the caller gives the time. ``benchmarks/ray_fleet.py``
simulates a large fleet with it.

Batches are numbered in the order in which the training loop needs them. The first batch that no maker has goes to the
maker that is expected to finish it first. Makers work on their batches one after another. A batch that takes much
longer than others did is late. If it is needed soon, an idle maker makes it a second time, and the first answer is
used. The share of such duplicates is limited.

Several loaders may use the same makers. Then each has only its part of the batches in hand: otherwise, every loader's
first batches would wait behind batches that others need much later.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits of ``Pulling``.

    hands       batches that a maker has at once: it makes the first, and the next waits there
    late        a batch is late after this multiple of the median time
    least_s     no batch is late before this many seconds
    soon        a batch is needed soon if this fraction of the batches that are asked for ahead come after it
    share       duplicates per batch, at most, beside ``burst``
    burst       duplicates that may come at once, at first and after a while without any
    remembered  number of newest times from which the median is computed
    """

    hands: int = 2
    late: float = 3.0
    least_s: float = 1.0
    soon: float = 0.75
    share: float = 0.025
    burst: float = 4.0
    remembered: int = 65


RULES = Rules()


@dataclass(slots=True)
class _Maker:
    """A maker that works.

    order    makers with smaller numbers are asked first if nothing else differs
    numbers  its batches in the order in which they were given
    since_s  the time since which it makes the first of them, or since which it is idle
    took_s   the time that its last batch took
    """

    order: int
    numbers: list[int] = field(default_factory=list)
    since_s: float = 0.0
    took_s: float = 0.0

    def expected_s(self, usual_s: float, now_s: float) -> float:
        """Return the time that one more batch is expected to take, with those before it.

        A maker that was slow is tried again after it was idle for as long.

        usual_s  the median time of all makers
        """
        idle_s = 0.0 if self.numbers else now_s - self.since_s
        return (len(self.numbers) + 1) * max(self.took_s - idle_s, usual_s)


class Pulling:
    """The batches that are wanted and not answered, and the makers that have them.

    window      a loader wants no number that is larger by this than the smallest that it wants; 0: unknown
    loaders     number of loaders that use these makers
    loader      number of this one among them; each begins with other makers
    duplicates  number of batches that were given to a second maker
    answers     number of batches that were answered
    tasks       number of batches that makers have, with those that aren't wanted any more
    """

    def __init__(self, rules: Rules = RULES, window: int = 0, loaders: int = 1, loader: int = 0) -> None:
        self.rules = rules
        self._window, self._loaders, self._loader = window, loaders, loader
        self._newest = 0
        self.duplicates = self.answers = 0
        self._makers: dict[int, _Maker] = {}
        self._wanted: dict[int, set[int]] = {}  # the makers of each batch
        self._unasked: list[int] = []  # ascending
        self._times: deque[float] = deque(maxlen=rules.remembered)
        self._usual_s = rules.least_s  # their median
        self.tasks = 0
        self._credit = rules.burst

    @property
    def makers(self) -> list[int]:
        """The makers that work."""
        return list(self._makers)

    @property
    def wanted(self) -> list[int]:
        """The batches that aren't answered, the first one first."""
        return sorted(self._wanted)

    @property
    def entries(self) -> int:
        """The number of entries in all tables, which doesn't grow with the number of answers."""
        makers = sum(map(len, self._wanted.values()))
        return (
            len(self._makers)
            + self.tasks
            + len(self._wanted)
            + makers
            + len(self._unasked)
            + len(self._times)
        )

    def join(self, maker: int) -> None:
        """Add a maker."""
        self._makers.setdefault(maker, _Maker((maker - self._loader) % self._loaders))

    def leave(self, maker: int) -> list[int]:
        """Remove a maker, and return the batches that no other maker has. They are asked for again."""
        gone = self._makers.pop(maker, _Maker(0))
        self.tasks -= len(gone.numbers)
        lost = []
        for number in gone.numbers:
            if (makers := self._wanted.get(number)) is not None:
                makers.discard(maker)
                if not makers:
                    bisect.insort(self._unasked, number)
                    lost.append(number)
        return lost

    def want(self, number: int) -> None:
        """Add a batch. Batches with smaller numbers are needed before it."""
        self._wanted[number] = set()
        self._newest = max(self._newest, number)
        bisect.insort(self._unasked, number)

    def drop(self, number: int) -> None:
        """Remove a batch that isn't wanted any more. Its makers still count as busy until they answer."""
        if self._wanted.pop(number, None) == set():
            self._unasked.remove(number)

    def asks(self, now_s: float) -> Iterator[tuple[int, int]]:
        """Yield batches and the maker that shall make each, and record that the maker has it."""
        while (
            self._unasked
            and self.tasks < self._most
            and (maker := self._free(self.rules.hands, now_s)) is not None
        ):
            yield self._give(self._unasked.pop(0), maker, now_s)
        if self._credit < 1:
            return
        for late in self._late(now_s):
            maker = self._free(1, now_s)
            if maker is None or self._credit < 1:
                return
            self._credit -= 1
            self.duplicates += 1
            yield self._give(late, maker, now_s)

    def answer(self, maker: int, number: int, now_s: float) -> bool:
        """Record a maker's answer. Return True if it is the first answer to a batch that is still wanted."""
        if (known := self._makers.get(maker)) is not None and number in known.numbers:
            if known.numbers[0] == number:
                known.took_s = now_s - known.since_s
                self._times.append(known.took_s)
                self._usual_s = sorted(self._times)[len(self._times) // 2]
            known.numbers.remove(number)
            self.tasks -= 1
            known.since_s = now_s
        makers = self._wanted.pop(number, None)
        if makers is None:
            return False
        if not makers:  # the maker was taken for lost
            self._unasked.remove(number)
        self.answers += 1
        self._credit = min(self._credit + self.rules.share, self.rules.burst)
        return True

    def due_s(self, now_s: float) -> float | None:
        """Return the next time after ``now_s`` at which ``asks`` may yield a late batch; None if there is none."""
        if self._credit < 1 or all(made.numbers for made in self._makers.values()):
            return None
        late_s = self.late_s
        times = (made.since_s + late_s for made in self._makers.values() if made.numbers)
        return min((due for due in times if due > now_s), default=None)

    @property
    def late_s(self) -> float:
        """The seconds after which a batch is late."""
        return max(self.rules.late * self._usual_s, self.rules.least_s)

    def since_s(self, maker: int) -> float | None:
        """Return the time since which a maker makes its first batch; None if it has none."""
        known = self._makers.get(maker)
        return known.since_s if known is not None and known.numbers else None

    @property
    def _most(self) -> float:
        """The most batches that makers may have of this loader."""
        return max(self.rules.hands * len(self._makers) / self._loaders, 1)

    def _late(self, now_s: float) -> Iterator[int]:
        """Yield the wanted batches that one maker has, that are late and needed soon, in order.

        With a maker's first batch, those behind it are late too.
        """
        late_s = self.late_s
        makers = [made for made in self._makers.values() if made.since_s + late_s <= now_s]
        late = sorted({number for made in makers for number in made.numbers if number in self._wanted})
        if len(late) < len(self._wanted):  # else no others are made, as at the end of an epoch
            soon = self._newest - self._window * self.rules.soon
            late = late[: bisect.bisect(late, soon)]
        for number in late:
            if len(self._wanted[number]) == 1:
                yield number

    def _free(self, hands: int, now_s: float) -> int | None:
        """Return the maker that would finish one more batch first, of those with less than ``hands``; None without."""
        free = [
            (made.expected_s(self._usual_s, now_s), made.order, maker)
            for maker, made in self._makers.items()
            if len(made.numbers) < hands
        ]
        return min(free)[2] if free else None

    def _give(self, number: int, maker: int, now_s: float) -> tuple[int, int]:
        made = self._makers[maker]
        if not made.numbers:
            made.since_s = now_s
        made.numbers.append(number)
        self.tasks += 1
        self._wanted[number].add(maker)
        return number, maker
