"""Compare all records of a source with the checksums that its index has."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np

from standpipe.contracts import Source
from standpipe.errors import PlanError, ReadError
from standpipe.jobs.packing.layout import Progress, threads_of
from standpipe.plan.options import checked_source
from standpipe.source.index.checksums import read_sums


@dataclass(frozen=True, slots=True)
class RecordCheckReport:
    """The result of ``verify_records``.

    Attributes
    ----------
    records : int
        Number of records.
    compared : int
        Number of images, masks and other byte fields of records that have a checksum.
    errors : tuple of ReadError
        An error for each record that can't be read, or whose bytes have another checksum.

    Examples
    --------
    >>> _ = sp.build_index(sp.FileList("list.txt"), checksums=True)
    >>> report = sp.verify_records(sp.FileList("list.txt"))
    >>> report.ok, report.records, report.compared
    (True, 24, 24)
    """

    records: int
    compared: int
    errors: tuple[ReadError, ...]

    @property
    def ok(self) -> bool:
        """True if every record has its checksum."""
        return not self.errors


def verify_records(
    source: Source, *, num_workers: int | None = None, on_progress: Progress | None = None
) -> RecordCheckReport:
    """Read all records of a source, and compare their bytes with the checksums of its index.

    ``build_index(source, checksums=True)`` or ``standpipe index --checksums`` writes the checksums. Shards of
    ``pack_shards`` have them too; ``verify_shards`` also compares their labels, headers and ends.

    Parameters
    ----------
    source : Source
        A source whose index has checksums.
    num_workers : int, optional
        Number of threads. Default: one per CPU that this process may use.
    on_progress : callable, optional
        Called with the name of the counted things, the number done, and the total.

    Returns
    -------
    standpipe.reports.RecordCheckReport

    Raises
    ------
    PlanError
        If the source has no checksums.

    Examples
    --------
    >>> _ = sp.build_index(sp.FileList("list.txt"), checksums=True)
    >>> with open("photos/cat/000.jpg", "r+b") as photo:
    ...     _ = photo.seek(500), photo.write(b"damage")
    >>> [error.index for error in sp.verify_records(sp.FileList("list.txt")).errors]
    [0]
    """
    described = checked_source(source, "verify_records")
    threads, opened = threads_of(num_workers), described.open()
    first = opened.locate(np.zeros(1, np.int64)).files.values()
    if all(files.crc32c is None for files in first):
        raise PlanError(
            f"{described.describe()} has no checksums; write them with standpipe index --checksums or "
            "build_index(…, checksums=True), or, for sources without an index, write tar shards with standpipe pack"
        )
    compared, errors = 0, list[ReadError]()
    with closing(read_sums(opened, threads, on_progress)) as blocks:
        for each in blocks:
            compared += 0 if each.files.crc32c is None else int((each.files.crc32c >= 0).sum())
            errors += each.errors
    return RecordCheckReport(opened.num_records, compared, tuple(errors))
