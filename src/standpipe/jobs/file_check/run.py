"""The work of ``check_files``: check a source's files in small pieces, and store the results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from standpipe.contracts import Encoded, OpenSource, PythonSource, Source
from standpipe.errors import PlanError
from standpipe.jobs.file_check.checking import (
    DIGEST_BYTES,
    FileCheckers,
    FileCheckSpec,
    Piece,
    RecordFile,
    file_marks,
)
from standpipe.jobs.file_check.files import Progress
from standpipe.jobs.file_check.findings import FileCheckReport, counts_by_kind, skipped_files
from standpipe.jobs.file_check.labels import LabelCounts
from standpipe.jobs.file_check.store import UNKNOWN, VERSION, ResultStore
from standpipe.plan.options import check_limits, check_reads, checked_source
from standpipe.source import ImageFolder
from standpipe.spec import Int64Array
from standpipe.system import machine
from standpipe.transform import decoder_version
from standpipe.transform.kinds import kind_of_encoded
from standpipe.units import is_count

AT_ONCE = 4096  # records whose paths are in memory
FILES_OF_PIECE = 8  # files that a thread takes at once: handing them over takes about 50 µs
COMMIT_S = 0.5
PATIENCE_S = 1.0


def run(
    source: Source, spec: FileCheckSpec, workers: object, *, fresh: bool, on_progress: Progress | None
) -> FileCheckReport:
    """Do the work of ``check_files``, which documents the arguments."""
    begin = time.monotonic()
    check_reads(spec.reads)
    check_limits(spec.decoding.limits)
    threads = _threads(workers)
    opened, fields = _opened(source)
    store = ResultStore.open(_key(opened, spec), fresh=fresh)
    work = _Work(opened, fields, store, spec.digests, LabelCounts(opened.classes))
    checkers = FileCheckers(spec, threads)
    try:
        _look(checkers, work, on_progress)
    finally:
        checkers.close(PATIENCE_S)
        store.commit()
    store.finish(len(fields))
    return FileCheckReport(
        records=opened.num_records,
        looked=work.looked,
        seconds=time.monotonic() - begin,
        size=store.one("SELECT COALESCE(SUM(size), 0) FROM files"),
        counts=counts_by_kind(store, opened),
        labels=work.labels.findings(),
        skipped=sum(1 for _ in skipped_files(opened)),
        fields=fields,
        _source=opened,
        _store=store,
    )


def _threads(workers: object) -> int:
    if workers == "auto":
        return machine.cpu_count()
    if not is_count(workers, 1, 1 << 16):
        raise PlanError(f"num_workers={workers!r}: num_workers must be a positive integer or 'auto'")
    assert isinstance(workers, int)
    return workers


def _opened(source: object) -> tuple[OpenSource, tuple[str, ...]]:
    """Open the source; return it and the names of its fields with images, ``image`` first."""
    if isinstance(source, ImageFolder):  # an empty class is a finding, not an error
        source = replace(source, allow_empty=True)
    described = checked_source(source, "check_files")
    opened = described.open()
    fields = [name for name, spec in opened.fields.items() if spec == Encoded()]
    if isinstance(opened, PythonSource) or not fields:
        raise PlanError(
            f"check_files({described.describe()}): it has no image files. Use ImageFolder, FileList, TarShards, "
            "TFRecords, MDS, Arrow, HuggingFace, Coco, YoloLabels, PascalVoc or Concat of them"
        )
    return opened, tuple(sorted(fields, key=lambda name: name != "image"))


def _key(source: OpenSource, spec: FileCheckSpec) -> str:
    """Return a digest of what the results depend on besides the files' contents, to name the store of results.

    These are the source, its location, limits, the memory limit, and the versions of the decoders.
    """
    from hashlib import blake2b  # loads OpenSSL, which importing standpipe needn't

    from PIL import __version__ as pillow

    facts = (
        VERSION,
        source.digest,
        source.name(0),
        spec.decoding.limits,
        spec.decoding.allow_truncated,
        spec.side_bytes,
        decoder_version(),
        pillow,
    )
    return blake2b(repr(facts).encode(), digest_size=DIGEST_BYTES).hexdigest()


@dataclass(slots=True)
class _Work:
    """The work and progress of one check.

    fields   names of the fields with images
    digests  True if results need a digest of the file's bytes
    labels   counts of the labels so far
    known    number of files whose stored result from an earlier check is still valid
    looked   number of files that were read in this check
    """

    source: OpenSource
    fields: tuple[str, ...]
    store: ResultStore
    digests: bool
    labels: LabelCounts
    known: int = 0
    looked: int = 0

    def pieces(self) -> Iterator[Piece]:
        """Yield lists of at most 8 files that have no valid result yet."""
        for start in range(0, self.source.num_records, AT_ONCE):
            stop = min(start + AT_ONCE, self.source.num_records)
            files = self._unknown(np.arange(start, stop))
            self.known += (stop - start) * len(self.fields) - len(files)
            for first in range(0, len(files), FILES_OF_PIECE):
                yield files[first : first + FILES_OF_PIECE]

    def _unknown(self, indices: Int64Array) -> list[RecordFile]:
        """Return the files without a valid stored result among the records ``indices``, (n,) consecutive numbers."""
        records = self.source.locate(indices)
        labels = records.plain.get("label")
        if labels is not None:
            self.labels.add(labels)
        count = len(self.fields)
        start = int(indices[0]) * count
        sizes, times = self.store.known(start, start + len(indices) * count, digests=self.digests)
        annotated = None if records.sizes is None else records.sizes.tolist()
        unknown = []
        for place, name in enumerate(self.fields):
            files, known = records.files[name], times[place::count]
            rows = np.arange(len(indices))
            if (known != UNKNOWN).any():
                now_sizes, now_times = file_marks(files.paths)
                rows = rows[(sizes[place::count] != now_sizes) | (known != now_times)]
            unknown += [
                RecordFile(
                    start + row * count + place,
                    None if labels is None else int(labels[row]),
                    files.paths[row],
                    int(files.offset[row]),
                    int(files.length[row]),
                    -1 if files.crc32c is None else int(files.crc32c[row]),
                    kind=kind_of_encoded(name).number,
                    size_px=() if place or annotated is None else tuple(annotated[row]),
                )
                for row in rows.tolist()
            ]
        return unknown

    def keep(self, on_progress: Progress | None) -> None:
        """Commit the results so far to the store, then report the progress."""
        self.store.commit()
        if on_progress is not None:
            on_progress("files", self.known + self.looked, self.source.num_records * len(self.fields))


def _look(checkers: FileCheckers, work: _Work, on_progress: Progress | None) -> None:
    """Check the files of ``work``, and commit the results about every half second."""
    kept = time.monotonic()
    for verdicts in checkers.run(work.pieces()):
        work.store.add(verdicts)
        work.looked += len(verdicts)
        if (now := time.monotonic()) - kept >= COMMIT_S:
            kept = now
            work.keep(on_progress)
    work.keep(on_progress)
