"""The rows of one slot, as makers outside the trainer make them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from standpipe.contracts import Records, Rows
from standpipe.engine.native.jobs import NativeJob
from standpipe.engine.remote.messages import Answer, Task
from standpipe.engine.workers import Assignment, BatchMade, Failure, Job, Substitutes
from standpipe.errors import StalledError, StandpipeError, WorkerDiedError, batch_name

TASKS_PER_JOB = 1 << 12  # numbers of one job's tasks


def refusal(error: Exception) -> StandpipeError:
    """Return ``error``, or a ``WorkerDiedError`` with its text if it isn't one of standpipe's."""
    if isinstance(error, StandpipeError):
        return error
    made = WorkerDiedError(f"a maker of batches couldn't work: {type(error).__name__}: {error}")
    made.__cause__ = error
    return made


class RemoteJob:
    """A batch that a maker makes, and that is then copied into its slot.

    The batch is wanted whole: rows that replace bad ones are made together with all others, by any maker.

    age     number of the job in the order in which jobs came
    number  number of the task that is under way; smaller for older jobs
    copied  the answer while it is copied into the slot; else None
    local   the same batch as a job of the trainer's own workers; None unless no maker was left
    again   rows that local workers make when the others are done; None without any
    deaths  makers that ended while they made this batch
    errors  errors of makers that couldn't work on it
    """

    ended_after = None  # only streams end

    def __init__(self, assignment: Assignment, age: int) -> None:
        self.assignment, self.age = assignment, age
        self.number = age * TASKS_PER_JOB
        self.copied: NativeJob | None = None
        self.local: Job | None = None
        self.again: Substitutes | None = None
        self.deaths = self.errors = 0
        self.over = False  # True if no more answer is awaited
        self.died: StandpipeError | None = None
        self.answer = Answer()
        self._indices = assignment.records.index
        self._attempts = np.zeros(len(assignment.positions), np.int64)

    @property
    def task(self) -> Task:
        """The task for a maker."""
        views, at = self.assignment.views, self.assignment.at
        rows = len(self._indices)
        return Task(
            at.epoch,
            at.consumed,
            np.asarray(self._indices, np.int64),
            np.asarray(self.assignment.positions, np.int64),
            self._attempts,
            np.array(views["valid"]) if "valid" in views else np.ones(rows, np.bool_),
        )

    @property
    def what(self) -> str:
        """The batch, in messages."""
        return batch_name(self.assignment.at.epoch, self.assignment.at.consumed)

    def exchange(self, new: Substitutes) -> None:
        """Note other records for some rows, with which the job is made again."""
        self._indices, self._attempts = self._indices.copy(), self._attempts.copy()
        self._indices[new.rows] = new.records.index
        self._attempts[new.rows] = new.attempts
        self.assignment = new.assignment
        self.number += 1
        self.over, self.copied, self.answer = False, None, Answer()

    def fail(self, error: Exception) -> None:
        """Let the job fail with ``error``, which is no sample's fault."""
        self.died, self.over = refusal(error), True

    def records(self) -> Records:
        """Return the answer's arrays as records whose rows are copied into the slot."""
        rows = np.arange(len(self._indices))
        return Records(
            self._indices, rows={name: Rows(array, rows) for name, array in self.answer.arrays.items()}
        )

    # As ``engine.workers.Job`` documents them.

    @property
    def done(self) -> bool:
        """True if nothing writes into the slot any more."""
        if self.local is not None:
            return self.local.done and (self.again is None or bool(self.local.failures()))
        return self.over if self.copied is None else self.copied.done

    def failures(self) -> Sequence[Failure]:
        """Return the rows that can't be made. Raises the error if no maker could make the batch."""
        if self.local is not None:
            return self.local.failures()
        if self.died is not None:
            raise self.died
        self.settle()
        return self.answer.failures

    def settle(self) -> None:
        """Drop the answer's arrays as soon as they are copied."""
        if (copied := self.copied) is None or not copied.done:
            return
        failures = (*self.answer.failures, *copied.failures())
        copied.forget()
        self.copied, self.over = None, True
        self.answer = replace(self.answer, arrays={}, failures=failures)

    @property
    def lists(self) -> Mapping[str, list[Any]]:
        """The fields that are stored outside the slot."""
        return self.answer.lists if self.local is None else self.local.lists

    @property
    def made(self) -> BatchMade | None:
        """The result of the batch's functions."""
        return self.answer.made if self.local is None else self.local.made


def named(failure: Failure, maker: str) -> Failure:
    """Return a maker's failure, with the maker's name where a worker hung or died."""
    error = failure.cause
    if not isinstance(error, StalledError | WorkerDiedError):
        return failure
    told = copy.copy(error)
    told.args = (f"{error}; it was in {maker}",)
    if isinstance(told, StalledError):
        told.worker = f"{told.worker} of {maker}"
    return replace(failure, reason=str(told), cause=told)


def died(job: RemoteJob, makers: Sequence[str]) -> Failure:
    """Return the failure of a whole batch during which makers ended again and again."""
    error = WorkerDiedError(
        f"{job.deaths} makers ended while they made {job.what}, the last one was {makers[-1]}. The cause may be a "
        "sample of this batch, or too little memory for a maker"
    )
    return Failure(0, "died", str(error), error, whole=True)
