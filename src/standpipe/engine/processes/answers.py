"""Send results of worker processes that don't fit into slots, within the memory of the forecast."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from standpipe import _native
from standpipe.engine.processes.messages import LARGE_BYTES, Parcel, parcel
from standpipe.engine.python.fields import bytes_of
from standpipe.engine.timing import Took
from standpipe.engine.watchdog.board import FOR_MEMORY, SINCE, STEP, Heartbeat
from standpipe.engine.workers import BatchMade, Failure, Flaws

Answer = tuple[list[Failure], dict[str, list[Any]], BatchMade | None]


class TooMuch(Exception):
    """The error for an answer above the memory limit; ``args`` has its size in bytes."""


class Answers:
    """The memory for the answers of one worker. Bytes above the forecast are taken from the side arena.

    row_bytes  forecast for the values of one row that aren't stored in a slot, in bytes
    """

    def __init__(self, side: _native.SideArena, heartbeat: Heartbeat) -> None:
        self._side, self._heartbeat = side, heartbeat
        self.row_bytes = 0
        self._held = 0  # bytes of the side arena that the current answer takes

    def parcel(self, answer: Answer, met: tuple[Flaws | None, Took | None], first: int, rows: int) -> Parcel:
        """Wait for memory for the answer to a task of ``rows`` rows from ``first`` on, and pack it.

        A row fails if its values take more than the forecast for a row plus the whole side arena. This doesn't
        depend on the other rows of the task. A batch that one worker makes as a whole fails in the same way.
        """
        failures, lists, made = answer
        most = self._side.cap_bytes + self.row_bytes * (1 if made is None else rows)
        try:
            return parcel((*answer, *met), self._admits(rows, most))
        except TooMuch as error:
            if made is not None:
                bad = Failure(first, "batch", self._reason("the batch's", error.args[0]), whole=True)
                return parcel(([bad], {}, None, *met))
        failures = failures + self._too_large(lists, first, most)
        return parcel((failures, lists, None, *met), self._admits(rows, None))

    def given(self) -> None:
        """Release the memory of the last answer, which the trainer has now."""
        held, self._held = self._held, 0
        if held:
            self._side.release(held)

    def _admits(self, rows: int, most: int | None) -> Callable[[int], None]:
        """Return a function that waits for memory for a number of bytes, and raises ``TooMuch`` above ``most``.

        Only the bytes above the forecast of ``rows`` rows are taken from the side arena, and at most all of it.
        """

        def admit(size: int) -> None:
            if most is not None and size > most:
                raise TooMuch(size)
            excess = min(size - rows * self.row_bytes, self._side.cap_bytes)
            if excess >= LARGE_BYTES:
                self._acquire(excess)

        return admit

    def _acquire(self, size: int) -> None:
        heartbeat = self._heartbeat
        heartbeat[STEP] += FOR_MEMORY
        self._side.acquire(size)
        self._held = size
        heartbeat[SINCE] = time.monotonic_ns()
        heartbeat[STEP] -= FOR_MEMORY

    def _too_large(self, lists: dict[str, list[Any]], first: int, most: int) -> list[Failure]:
        """Return the failures of rows with more than ``most`` bytes of values, and drop these values."""
        failures = []
        for row, values in enumerate(zip(*lists.values(), strict=True)):
            if (size := sum(map(bytes_of, values))) > most:
                failures.append(Failure(first + row, "batch", self._reason("its", size)))
                for each in lists.values():
                    each[row] = None
        return failures

    def _reason(self, whose: str, size: int) -> str:
        return (
            f"{whose} values outside the slots take {size:,} bytes. The excess over the forecast is more than "
            f"large_image_memory={self._side.cap_bytes}: raise it, or make the values smaller"
        )
