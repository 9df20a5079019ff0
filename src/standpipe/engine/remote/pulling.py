"""Decide which maker makes which batch, and which late batch a second maker makes too.

This is a plain value without threads, clock or transport: the caller gives the time. ``benchmarks/ray_fleet.py``
simulates a large fleet with it.

Batches are numbered in the order in which the training loop needs them. The first batch that no maker has goes to the
maker with the fewest batches. Makers work on their batches one after another. A batch that takes much longer than
others did is late: an idle maker makes it a second time, and the first answer is used. The share of such duplicates is
limited.
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
    share       duplicates per batch, at most
    burst       duplicates that may come at once after a while without any
    remembered  number of newest times from which the median is computed
    """

    hands: int = 2
    late: float = 3.0
    least_s: float = 1.0
    share: float = 0.03
    burst: float = 4.0
    remembered: int = 65


RULES = Rules()


@dataclass(slots=True)
class _Maker:
    """A maker that works.

    numbers  its batches in the order in which they were given
    since_s  the time since which it makes the first of them
    """

    numbers: list[int] = field(default_factory=list)
    since_s: float = 0.0


class Pulling:
    """The batches that are wanted and not answered, and the makers that have them.

    duplicates  number of batches that were given to a second maker
    answers     number of batches that were answered
    """

    def __init__(self, rules: Rules = RULES) -> None:
        self.rules = rules
        self.duplicates = self.answers = 0
        self._makers: dict[int, _Maker] = {}
        self._wanted: dict[int, set[int]] = {}  # the makers of each batch
        self._unasked: list[int] = []  # ascending
        self._times: deque[float] = deque(maxlen=rules.remembered)
        self._credit = 1.0

    @property
    def makers(self) -> list[int]:
        """The makers that work."""
        return list(self._makers)

    @property
    def wanted(self) -> list[int]:
        """The batches that aren't answered, the first one first."""
        return sorted(self._wanted)

    def makers_of(self, number: int) -> frozenset[int]:
        """Return the makers that have a batch."""
        return frozenset(self._wanted.get(number, ()))

    def join(self, maker: int) -> None:
        """Add a maker."""
        self._makers.setdefault(maker, _Maker())

    def leave(self, maker: int) -> list[int]:
        """Remove a maker, and return the batches that no other maker has. They are asked for again."""
        gone = self._makers.pop(maker, _Maker())
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
        bisect.insort(self._unasked, number)

    def drop(self, number: int) -> None:
        """Remove a batch that isn't wanted any more. Its makers still count as busy until they answer."""
        if self._wanted.pop(number, None) == set():
            self._unasked.remove(number)

    def asks(self, now_s: float) -> Iterator[tuple[int, int]]:
        """Yield batches and the maker that shall make each, and record that the maker has it."""
        while self._unasked and (maker := self._free(self.rules.hands)) is not None:
            yield self._give(self._unasked.pop(0), maker, now_s)
        while self._credit >= 1 and (maker := self._free(1)) is not None:
            late = next((each for each in self._late(now_s) if maker not in self._wanted[each]), None)
            if late is None:
                return
            self._credit -= 1
            self.duplicates += 1
            yield self._give(late, maker, now_s)

    def answer(self, maker: int, number: int, now_s: float) -> bool:
        """Record a maker's answer. Return True if it is the first answer to a batch that is still wanted."""
        if (known := self._makers.get(maker)) is not None and number in known.numbers:
            if known.numbers[0] == number:
                self._times.append(now_s - known.since_s)
            known.numbers.remove(number)
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
        if self._credit < 1 or self._free(1) is None:
            return None
        times = [made.since_s + self.late_s for made in self._makers.values() if self._has_alone(made)]
        return min((due for due in times if due > now_s), default=None)

    @property
    def late_s(self) -> float:
        """The seconds after which a batch is late."""
        if not self._times:
            return self.rules.least_s * self.rules.late
        median = sorted(self._times)[len(self._times) // 2]
        return max(self.rules.late * median, self.rules.least_s)

    def since_s(self, maker: int) -> float | None:
        """Return the time since which a maker makes its first batch; None if it has none."""
        known = self._makers.get(maker)
        return known.since_s if known is not None and known.numbers else None

    def _has_alone(self, made: _Maker) -> bool:
        """Return True if a maker has a wanted batch that no other maker has."""
        return any(len(self._wanted.get(each, ())) == 1 for each in made.numbers)

    def _late(self, now_s: float) -> Iterator[int]:
        """Yield the wanted batches that one maker has and that are late, in order.

        With a maker's first batch, those behind it are late too.
        """
        late = {maker for maker, made in self._makers.items() if made.since_s + self.late_s <= now_s}
        for number in sorted(self._wanted):
            makers = self._wanted[number]
            if len(makers) == 1 and makers <= late:
                yield number

    def _free(self, hands: int) -> int | None:
        """Return the maker with the fewest batches, if it has less than ``hands``; else None."""
        free = [(len(made.numbers), maker) for maker, made in self._makers.items()]
        least = min(free, default=(hands, 0))
        return least[1] if least[0] < hands else None

    def _give(self, number: int, maker: int, now_s: float) -> tuple[int, int]:
        made = self._makers[maker]
        if not made.numbers:
            made.since_s = now_s
        made.numbers.append(number)
        self._wanted[number].add(maker)
        return number, maker
