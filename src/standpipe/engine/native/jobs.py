"""The rows of one slot, as native threads make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import Records
from standpipe.engine.python.value_checks import Checks
from standpipe.engine.workers import Failure
from standpipe.spec import AnyArray, Int64Array


class NativeJob:
    """The rows of one slot that native threads make.

    native   the native job; None if there is nothing to make
    reads    the names of the fields that are the inputs of its program
    records  the records from which the rows are made
    rows     (n,) int64: the row number in the slot of each record
    values   views of the slot's fields that no kernel makes; their values are checked
    lists    the texts of all rows of the slot, by field
    """

    made = None
    ended_after = None

    def __init__(
        self,
        native: _native.Job | None,
        reads: Sequence[str],
        records: Records,
        rows: Int64Array,
        checks: Checks,
        values: Mapping[str, AnyArray],
        lists: Mapping[str, list[Any]],
    ) -> None:
        self.native, self.records, self.rows, self.lists = native, records, rows, lists
        self._reads, self._checks, self._values = reads, checks, values

    @property
    def done(self) -> bool:
        """True if every row is made or has failed."""
        return self.native is None or self.native.done

    def forget(self) -> None:
        """Drop the arrays from which rows were made, once the job is done and its failures are known."""
        self.native = None
        self.records, self.rows = Records(np.zeros(0, np.int64)), np.zeros(0, np.int64)

    def has(self, row: _native.AtWork) -> bool:
        """Return True if this job contains the row that a thread is making."""
        return self.native is not None and self.native.has(row)

    def failures(self) -> Sequence[Failure]:
        """Return the failures of rows that can't be made."""
        failures = [] if self.native is None else self.native.failures()
        bad = [
            Failure(row, place, reason, field=self._reads[number] if self._reads else "image")
            for row, number, place, reason in failures
        ]
        if self._checks.finite is None:
            return bad
        made = np.setdiff1d(self.rows, [failure.row for failure in bad])
        return [*bad, *self._checks.failures(self._values, made)]
