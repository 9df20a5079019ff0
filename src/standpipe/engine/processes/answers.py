"""Send results of worker processes that aren't stored in slots, within the forecast of their memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from standpipe import _native
from standpipe.engine.processes.messages import LARGE_BYTES, Parcel, parcel
from standpipe.engine.python.fields import estimated_bytes
from standpipe.engine.timing import Took
from standpipe.engine.watchdog.board import FOR_MEMORY, SINCE, STEP, Heartbeat
from standpipe.engine.workers import BatchMade, Failure
from standpipe.stats.counters import Counts

Answer = tuple[list[Failure], dict[str, list[Any]], BatchMade | None]


class AnswerTooLarge(Exception):
    """Raised for an answer above the memory limit; ``args[0]`` is the answer's size in bytes."""


class Answers:
    """The memory for one worker's answers, which are results of tasks outside the slots.

    Bytes of an answer above the forecast are taken from the side arena, the memory for large images.

    row_bytes  forecast of the bytes of one row's values that aren't stored in a slot
    """

    def __init__(self, side: _native.SideArena, heartbeat: Heartbeat) -> None:
        self._side, self._heartbeat = side, heartbeat
        self.row_bytes = 0
        self._held = 0  # bytes of the side arena that the current answer takes

    def parcel(
        self, answer: Answer, met: tuple[Counts, Sequence[str], Took | None], first: int, rows: int
    ) -> Parcel:
        """Wait until there is memory for an answer, and pack the answer into a message.

        answer  the failures, the values outside the slot, and the result of functions of a batch
        met     the counters and notes since the last answer, and the time of the task
        first   the first row of the task
        rows    number of rows of the task

        A row fails if its values take more than the forecast for a row plus the whole side arena. This doesn't
        depend on the other rows of the task. A batch that one worker makes as a whole fails in the same way.
        """
        failures, lists, made = answer
        most = self._side.cap_bytes + self.row_bytes * (1 if made is None else rows)
        try:
            return parcel((*answer, *met), self._admits(rows, most))
        except AnswerTooLarge as error:
            if made is not None:
                bad = Failure(first, "batch", self._reason("the batch's", error.args[0]), whole=True)
                return parcel(([bad], {}, None, *met))
        failures = failures + self._too_large(lists, first, most)
        return parcel((failures, lists, None, *met), self._admits(rows, None))

    def given(self) -> None:
        """Release the memory of the last answer, after it was sent to the trainer."""
        held, self._held = self._held, 0
        if held:
            self._side.release(held)

    def _admits(self, rows: int, most: int | None) -> Callable[[int], None]:
        """Return a function that takes a number of bytes, and waits until there is memory for them.

        The function raises ``AnswerTooLarge`` above ``most`` bytes; None: no limit. It takes only the bytes above the
        forecast of ``rows`` rows from the side arena, and at most the whole arena.
        """

        def admit(size: int) -> None:
            if most is not None and size > most:
                raise AnswerTooLarge(size)
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
        """Return the failures of rows with more than ``most`` bytes of values, and set these values to None.

        lists  the values of each field, one per row
        first  number of the first row
        """
        failures = []
        for row, values in enumerate(zip(*lists.values(), strict=True)):
            if (size := sum(map(estimated_bytes, values))) > most:
                failures.append(Failure(first + row, "batch", self._reason("its", size)))
                for each in lists.values():
                    each[row] = None
        return failures

    def _reason(self, whose: str, size: int) -> str:
        return (
            f"{whose} values outside the slots take {size:,} bytes. The excess over the forecast is more than "
            f"large_image_memory={self._side.cap_bytes}: raise it, or make the values smaller"
        )
