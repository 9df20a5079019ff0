"""The rows of one slot, as native threads make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import Records
from standpipe.engine.python.value_checks import Checks
from standpipe.engine.workers import Failure
from standpipe.spec import AnyArray, Int64Array
from standpipe.transform import MASK, other_size


class NativeJob:
    """The rows of one slot that native threads make.

    native   the native job; None if there is nothing to make
    mask     the native job of the same rows' masks; None without masks
    records  the records from which the rows are made
    rows     (n,) int64: the row number in the slot of each record
    values   views of the slot's fields that no kernel makes; their values are checked
    """

    lists: Mapping[str, list[Any]] = {}
    made = None
    ended_after = None

    def __init__(
        self,
        jobs: tuple[_native.Job | None, _native.Job | None],
        records: Records,
        rows: Int64Array,
        checks: Checks,
        values: Mapping[str, AnyArray],
    ) -> None:
        (self.native, self.mask), self.records, self.rows = jobs, records, rows
        self._checks, self._values = checks, values

    @property
    def done(self) -> bool:
        """True if every row is made or has failed."""
        return all(native.done for native in self.natives)

    @property
    def natives(self) -> list[_native.Job]:
        """The native jobs: masks first, as most are decoded by threads that would else wait for the images."""
        return [native for native in (self.mask, self.native) if native is not None]

    def forget(self) -> None:
        """Drop the arrays from which rows were made, once the job is done and its failures are known."""
        self.native = self.mask = None
        self.records, self.rows = Records(np.zeros(0, np.int64)), np.zeros(0, np.int64)

    def has(self, row: _native.AtWork) -> bool:
        """Return True if this job contains the row that a thread is making."""
        return any(native.has(row) for native in self.natives)

    def failures(self) -> Sequence[Failure]:
        """Return the failures of rows that can't be made."""
        failures = [] if self.native is None else self.native.failures()
        bad = [Failure(row, place, reason) for row, place, reason in failures]
        if self.mask is not None:
            bad += self._mask_failures(self.mask, {failure.row for failure in bad})
        if self._checks.finite is None:
            return bad
        made = np.setdiff1d(self.rows, [failure.row for failure in bad])
        return [*bad, *self._checks.failures(self._values, made)]

    def _mask_failures(self, mask: _native.Job, failed: set[int]) -> Iterator[Failure]:
        """Yield the failures of masks, and of those that don't have their image's size, except of rows that failed."""
        assert self.native is not None
        for row, place, reason in mask.failures():
            if row not in failed:
                failed.add(row)
                yield Failure(row, place, reason, field=MASK)
        for row, size, image_size in zip(self.rows.tolist(), mask.sizes, self.native.sizes, strict=True):
            if size != image_size and row not in failed:
                yield Failure(row, "decode", other_size(size, image_size), field=MASK)
