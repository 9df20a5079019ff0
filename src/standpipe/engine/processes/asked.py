"""A task that was sent to a worker process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from standpipe.engine.python.slot_job import Piece
from standpipe.engine.rows import PartOfRows


@dataclass(frozen=True, slots=True)
class Asked:
    """A task that was sent to a worker.

    number  the task's number, which the worker writes into its heartbeat during the task
    piece   the rows of the task, and their job
    """

    number: int
    piece: Piece

    def message(self, *, gathers: bool) -> tuple[Any, ...]:
        """Return the message that sends the task to a worker.

        For functions of a batch it includes all rows, as these may have to be made again.

        gathers  True if a function takes the samples of a batch
        """
        piece, job, content = self.piece, self.piece.job, self.piece.job.content
        first, stop = (0, job.rows) if piece.is_functions else (piece.first, piece.stop)
        kind = "functions" if piece.is_functions else "samples" if gathers else "rows"
        rows = slice(first, stop)
        part = PartOfRows(
            content.epoch,
            content.segment,
            content.indices[rows],
            content.positions[rows],
            content.attempts[rows],
            content.inputs.part(first, stop),
        )
        lists = content.lists if piece.is_functions else {}
        return kind, self.number, job.slot, job.rows, first, part, lists
