"""The rows of one slot as work for threads or processes, cut into tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standpipe.engine.rows import BatchRows, Inputs, as_range
from standpipe.engine.watchdog.board import FOR_MEMORY, FUNCTIONS, IDLE
from standpipe.engine.workers import WHOLE, Assignment, BatchMade, Failure, Substitutes
from standpipe.errors import FIRST_KEY, StandpipeError, record_name
from standpipe.plan.plan import Plan


class SlotJob:
    """The work on one slot: make its rows, then call the functions of the batch; and the progress of that work.

    age      number of the job in the order in which jobs came, from 1, below 0 if it goes first; 0 before
    number   ``Cursor.consumed`` where the batch begins; with ``round_robin`` it chooses the worker
    content  the records of the rows, and where their values are written
    made     the result of the batch's functions; None without one
    todo     ranges [first, stop) of rows that no worker has begun, in the order in which they are begun
    """

    def __init__(self, assignment: Assignment, plan: Plan) -> None:
        self.age = 0
        self.number = assignment.at.consumed
        self.slot = assignment.slot
        self.rows = len(assignment.positions)
        of_samples = plan.batch.sample_fields
        self.content = BatchRows(
            assignment.at.epoch,
            plan.segment(assignment.at),
            assignment.records.index.tolist(),
            as_range(assignment.positions),
            [0] * self.rows,
            Inputs(assignment.records, assignment.boxes),
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
        """True if no worker works on these rows any more."""
        return self.unfinished == 0

    @property
    def lists(self) -> Mapping[str, list[Any]]:
        """The fields that are stored outside the slot, each as a list with a value per row."""
        return self.content.lists

    @property
    def rows_todo(self) -> int:
        """The number of rows that no worker has begun."""
        return sum(stop - first for first, stop in self.todo)

    def exchange(self, new: Substitutes, *, whole: bool) -> None:
        """Make rows again from other records. The worker that made them has finished with the job.

        whole  True if one worker makes all rows of a batch, so that the other rows are made again too
        """
        boxes = new.assignment.boxes
        inputs = Inputs(new.records, None if boxes is None else boxes.take(new.rows))
        rows = new.rows.tolist()
        for number, row in enumerate(rows):
            self.content.indices[row] = int(new.records.index[number])
            self.content.attempts[row] = int(new.attempts[number])
            self.content.inputs.instead[row] = inputs.row(number)
        complete = not new.assignment.without
        if complete or not whole:
            self.todo.extend([(0, self.rows)] if whole else [(row, row + 1) for row in rows])
        self.bad = []
        self.functions_left = self._has_functions and complete
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
        """Record that a worker ended during this row; return True if one had ended at the same record before."""
        suspect = row, row if row == WHOLE else self.content.indices[row]
        again = suspect in self._suspects
        self._suspects.add(suspect)
        return again

    def put_back(
        self, first: int, stop: int, *, alone: Collection[int] = (), without: Collection[int] = ()
    ) -> None:
        """Put rows [first, stop) back, so that workers make them before all other rows of the job.

        alone    rows of them that get a task of their own
        without  rows of them that are left out
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
        """Return the failures of rows that can't be made. Raises the run's error if no worker was left."""
        if self.died is not None:
            raise self.died
        return self.bad


@dataclass(frozen=True, slots=True)
class Piece:
    """A task of one worker: rows [first, stop) of a job. If first equals stop, the functions of the batch."""

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


class Seat:
    """A thread that does tasks.

    piece     its current task; None without one
    given_up  True if the thread hangs and was replaced by another one; it ends when its task returns
    """

    piece: Piece | None = None
    given_up = False


def is_whole(piece: Piece, step: int) -> bool:
    """Return True if a function of the whole batch is running, by the step in the heartbeat."""
    return piece.is_functions or (step != IDLE and step % FOR_MEMORY >= FUNCTIONS)
