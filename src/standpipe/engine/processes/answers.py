"""Hand results of worker processes over outside the slots, within the memory that the forecast allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from standpipe import _native
from standpipe.engine.processes.messages import LARGE_BYTES, Parcel, parcel
from standpipe.engine.python.fields import bytes_of
from standpipe.engine.timing import Took
from standpipe.engine.watchdog.board import FOR_MEMORY, SINCE, STEP, Desk
from standpipe.engine.workers import BatchMade, Failure, Flaws

Answer = tuple[list[Failure], dict[str, list[Any]], BatchMade | None]


class TooMuch(Exception):
    """An answer needs more bytes than may ever be used; ``args`` has how many."""


class Answers:
    """Give the answers of one worker the memory that they need; what the forecast lacks comes from the side
    arena.

    row_bytes  forecast for the values of one row that aren't stored in a slot
    """

    def __init__(self, side: _native.SideArena, desk: Desk) -> None:
        self._side, self._desk = side, desk
        self.row_bytes = 0
        self._held = 0  # bytes of the side arena, for the answer that is being given

    def parcel(self, answer: Answer, met: tuple[Flaws | None, Took | None], first: int, rows: int) -> Parcel:
        """The answer to a piece of ``rows`` rows from ``first`` on, once there is memory for it.

        A row whose own values are more than was forecast for one, and all of the side arena, can't be made:
        so it is whatever other rows are with it. Nor can such a batch, where one worker makes all of it.
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
        """The last one is the trainer's now."""
        held, self._held = self._held, 0
        if held:
            self._side.release(held)

    def _admits(self, rows: int, most: int | None) -> Callable[[int], None]:
        """Wait for memory for a number of bytes; raise ``TooMuch`` above ``most``. Only a larger one waits to
        be alone.
        """

        def admit(size: int) -> None:
            if most is not None and size > most:
                raise TooMuch(size)
            excess = min(size - rows * self.row_bytes, self._side.cap_bytes)
            if excess >= LARGE_BYTES:
                self._acquire(excess)

        return admit

    def _acquire(self, size: int) -> None:
        desk = self._desk
        desk[STEP] += FOR_MEMORY
        self._side.acquire(size)
        self._held = size
        desk[SINCE] = time.monotonic_ns()
        desk[STEP] -= FOR_MEMORY

    def _too_large(self, lists: dict[str, list[Any]], first: int, most: int) -> list[Failure]:
        """Rows whose own values are too large; these are dropped."""
        failures = []
        for row, values in enumerate(zip(*lists.values(), strict=True)):
            if (size := sum(map(bytes_of, values))) > most:
                failures.append(Failure(first + row, "batch", self._reason("its", size)))
                for each in lists.values():
                    each[row] = None
        return failures

    def _reason(self, whose: str, size: int) -> str:
        return (
            f"{whose} values outside the slots take {size:,} bytes, far more than was forecast, and the rest is "
            f"above large_image_memory={self._side.cap_bytes}: raise it, or make them smaller"
        )
