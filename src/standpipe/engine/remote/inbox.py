"""Reports of a fleet, from its threads to the filling thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from standpipe import _native
from standpipe.engine.remote.messages import Answer


@dataclass(frozen=True, slots=True)
class Met:
    """A maker is ready, or can't start; ``contracts.Receiver`` documents the fields of these reports.

    facts  the facts about a maker that is ready, or the error because of which it can't start
    """

    maker: int
    name: str
    facts: Mapping[str, Any] | Exception


@dataclass(frozen=True, slots=True)
class Lost:
    """A maker has ended."""

    maker: int
    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A maker has answered, or couldn't work on a task.

    answer  the answer, or the error
    """

    maker: int
    number: int
    answer: Answer | Exception


@dataclass(frozen=True, slots=True)
class Alive:
    """A maker gave a sign of life."""

    maker: int


Report = Met | Lost | Answered | Alive


class Inbox:
    """The reports that nobody has taken yet. It implements ``contracts.Receiver``, and rings the bell for each."""

    def __init__(self, bell: _native.Bell) -> None:
        self._bell = bell
        self._reports: deque[Report] = deque()

    def joined(self, maker: int, name: str, facts: Mapping[str, Any]) -> None:
        """Report that a maker is ready."""
        self._put(Met(maker, name, facts))

    def refused(self, maker: int, name: str, error: Exception) -> None:
        """Report that a maker can't start."""
        self._put(Met(maker, name, error))

    def lost(self, maker: int, reason: str) -> None:
        """Report that a maker has ended."""
        self._put(Lost(maker, reason))

    def answered(self, maker: int, number: int, answer: Answer) -> None:
        """Report an answer."""
        self._put(Answered(maker, number, answer))

    def failed(self, maker: int, number: int, error: Exception) -> None:
        """Report that a maker couldn't work on a task."""
        self._put(Answered(maker, number, error))

    def alive(self, maker: int) -> None:
        """Report a sign of life."""
        self._put(Alive(maker))

    def first(self) -> Met | None:
        """Return the first report of a maker that is ready or can't start, which stays; None without one."""
        return next((each for each in tuple(self._reports) if isinstance(each, Met)), None)

    def take(self) -> Iterator[Report]:
        """Remove and yield each report, the oldest first."""
        while self._reports:
            yield self._reports.popleft()

    def _put(self, report: Report) -> None:
        self._reports.append(report)
        self._bell.ring()
