"""The rows of one slot as work that is cut into pieces for threads or processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from standpipe.engine.rows import Inputs, Rows, counted
from standpipe.engine.watchdog.board import FOR_MEMORY, FUNCTIONS, IDLE
from standpipe.engine.workers import WHOLE, Assignment, BatchMade, Failure, Substitutes
from standpipe.errors import FIRST_KEY, StandpipeError, record_name
from standpipe.plan.plan import Plan


class SlotJob:
    """The rows of one slot, then what functions make of the batch, and how far all that is.

    age      how many jobs came before it
    number   its batch's place in the epoch, where batches are given
    content  what the rows are made of, and where they go
    made     what functions made of the batch, by field; None while it is what the rows are
    todo     ranges [first, stop) of rows that nobody has begun, in the order in which they are begun
    """

    def __init__(self, assignment: Assignment, plan: Plan) -> None:
        self.age = 0
        self.number = assignment.at.consumed
        self.slot = assignment.slot
        self.rows = len(assignment.positions)
        of_samples = plan.batch.sample_fields
        self.content = Rows(
            assignment.at.epoch,
            assignment.records.index.tolist(),
            counted(assignment.positions),
            [0] * self.rows,
            Inputs(assignment.records),
            {name: assignment.views[name] for name in of_samples},
            {name: [None] * self.rows for name in plan.batch.made_apart},
            {name: array for name, array in assignment.views.items() if name not in of_samples},
            plan.batch.known_from,
        )
        self.made: BatchMade | None = None
        self.ended_after: int | None = None
        self.todo: deque[tuple[int, int]] = deque()
        self._has_functions = bool(plan.functions) and not plan.gathers
        self.functions_left = self._has_functions and not assignment.without
        if not plan.gathers or not assignment.without:
            self.put_back(0, self.rows, without=assignment.without)
        self.unfinished = self.rows_todo + self.functions_left
        self.given_up = False
        self.bad: list[Failure] = []
        self.died: StandpipeError | None = None
        self._suspects: set[tuple[int, int]] = set()  # rows and their records at which a worker was lost

    @property
    def done(self) -> bool:
        """True if no worker works on it any more."""
        return self.unfinished == 0

    @property
    def lists(self) -> Mapping[str, list[Any]]:
        """Fields that are in no slot, value by value."""
        return self.content.lists

    @property
    def rows_todo(self) -> int:
        """Rows that nobody has begun."""
        return sum(stop - first for first, stop in self.todo)

    def exchange(self, new: Substitutes, *, whole: bool) -> None:
        """Make rows again from other records. The worker that made them has finished with the job.

        whole  True if one worker makes all rows of a batch, so that the other rows are made again too
        """
        inputs = Inputs(new.records)
        rows = new.rows.tolist()
        for number, row in enumerate(rows):
            self.content.indices[row] = int(new.records.index[number])
            self.content.attempts[row] = int(new.attempts[number])
            self.content.inputs.instead[row] = inputs.row(number)
        self.todo.extend([(0, self.rows)] if whole else [(row, row + 1) for row in rows])
        self.bad = []
        self.functions_left = self._has_functions
        self.unfinished = self.rows_todo + self.functions_left

    def begin(self, most: int) -> tuple[int, int]:
        """Return a range of at most ``most`` rows that come next; an empty range if there are none."""
        if not self.todo:
            return self.rows, self.rows
        first, stop = self.todo.popleft()
        if stop - first > most:
            self.todo.appendleft((first + most, stop))
        return first, min(stop, first + most)

    def named(self, row: int) -> tuple[str, int | None, str | None]:
        """Return a row's name for messages, its record number and its file's path, as far as they are known."""
        indices = self.content.indices
        if row == WHOLE:
            names = [
                str(self.content.inputs.name(each, index) if index >= FIRST_KEY else index)
                for each, index in enumerate(indices)
            ]
            return f"the batch of the records {', '.join(names)}", None, None
        path = self.content.inputs.name(row, indices[row])
        return record_name(indices[row], path, ","), indices[row], path

    def suspect(self, row: int) -> bool:
        """A worker was lost at this row. True when it isn't the first one."""
        suspect = row, row if row == WHOLE else self.content.indices[row]
        again = suspect in self._suspects
        self._suspects.add(suspect)
        return again

    def put_back(
        self, first: int, stop: int, *, alone: Collection[int] = (), without: Collection[int] = ()
    ) -> None:
        """Give rows [first, stop) back, which no worker began after all: they come before the others.

        alone    those of them that a worker makes without another one
        without  those that are left out
        """
        if not alone and not without:
            self.todo.appendleft((first, stop))
            return
        ranges: list[tuple[int, int]] = []
        for row in range(first, stop):
            if row in without:
                continue
            if ranges and ranges[-1][1] == row and not {row - 1, row}.intersection(alone):
                ranges[-1] = ranges[-1][0], row + 1
            else:
                ranges.append((row, row + 1))
        self.todo.extendleft(reversed(ranges))

    def failures(self) -> Sequence[Failure]:
        """Rows that can't be made. Raises what left no worker to make them."""
        if self.died is not None:
            raise self.died
        return self.bad


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows [first, stop) of a job in the hands of one worker; none of them: the functions of its batch."""

    job: SlotJob
    first: int
    stop: int

    @property
    def is_functions(self) -> bool:
        """True if all rows are made, and functions of the batch are next."""
        return self.first == self.stop

    @property
    def size(self) -> int:
        """The task's part of the job's unfinished rows; functions of a batch count as one."""
        return max(self.stop - self.first, 1)


class HasPiece(Protocol):
    """A thread's place at the work."""

    piece: Piece | None
    given_up: bool


def is_whole(piece: Piece, step: int) -> bool:
    """Return True if a function of the whole batch is running, by the step in the heartbeat."""
    return piece.is_functions or (step != IDLE and step % FOR_MEMORY >= FUNCTIONS)
