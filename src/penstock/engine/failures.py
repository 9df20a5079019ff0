"""From what native threads report of a row to an error that names the sample."""

from __future__ import annotations

from penstock import _native
from penstock.contracts import OpenSource, Records
from penstock.errors import DecodeError, ReadError, SampleError


def first_error(job: _native.Job, records: Records, source: OpenSource) -> SampleError | None:
    """The error of the job's first bad row in order, or None. Which thread found it first doesn't matter."""
    failures = job.failures()
    if not failures:
        return None
    row, kind, reason = min(failures)
    index = int(records.index[row])
    files = records.files.get("image")
    return (ReadError if kind == "read" else DecodeError)(
        reason,
        place="read" if kind == "read" else "transform",
        index=index,
        path=source.name(index),
        offset=int(files.offset[row]) if files is not None else 0,
    )
