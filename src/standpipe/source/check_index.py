"""Compare index files with their list, folder or shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from standpipe.contracts import Files
from standpipe.errors import PlanError, StandpipeError
from standpipe.source.build_index import ROWS_AT_ONCE, subject_of
from standpipe.source.files.filelist import FileList
from standpipe.source.files.folder import ImageFolder
from standpipe.source.index.file import (
    SHARD_KINDS,
    DamagedIndex,
    Facts,
    IndexFile,
    place_sections,
    read_index,
)
from standpipe.source.index.listing import Listing, instance_digests
from standpipe.source.index.store import Indexed, Progress, Subject, build_temporary, places
from standpipe.system.paths import path_text, reading

KINDS = {
    "list": "list has",
    "folder": "folder has",
    **dict.fromkeys(SHARD_KINDS, "shards have"),
    "coco": "file has",
    "yolo": "labels have",
    "voc": "folder has",
}


@dataclass(frozen=True, slots=True)
class IndexCheckReport:
    """The result of ``verify_index``.

    Attributes
    ----------
    path : pathlib.Path
        The index file.
    records : int
        Number of records in it.
    differences : tuple of str
        A text for each kind of difference from the data; empty if there is none.
    ok : bool
        True if there are no differences.

    Examples
    --------
    >>> from pathlib import Path
    >>> sp.reports.IndexCheckReport(Path("list.txt.stndpipe"), records=24, differences=()).ok
    True
    """

    path: Path
    records: int
    differences: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if there are no differences."""
        return not self.differences


def verify_index(source: Indexed, *, on_progress: Progress | None = None) -> IndexCheckReport:
    """Compare an index file with its list, folder, shards or annotations.

    It checks the file that a run would use. It reads the whole index, and the whole list, the folder or all
    headers or records of the shards. Further lists or folders are checked too if they have index files.

    Parameters
    ----------
    source : FileList, ImageFolder, TarShards, TFRecords, MDS, Coco, YoloLabels or PascalVoc
        The list, folder, shards or annotations.
    on_progress : callable, optional
        As for ``build_index``.

    Returns
    -------
    standpipe.reports.IndexCheckReport
        The differences.

    Raises
    ------
    PlanError
        If there is no index file, or the source can't be indexed.

    Examples
    --------
    >>> source = sp.FileList("list.txt")
    >>> _ = sp.build_index(source)
    >>> with open("list.txt", "a") as file:
    ...     print("photos/cat/000.jpg cat", file=file)
    >>> report = sp.verify_index(source)
    >>> report.ok, report.records, report.differences[1]
    (False, 24, 'it has 24 records, the list has 25')
    """
    subject = subject_of(source)
    report = _verified(subject, on_progress)
    if report is None:
        raise PlanError(
            f"there is no index file of {subject.name}; build one with 'standpipe index' (a run works without)"
        )
    differences = list(report.differences)
    for name, other in source.further() if isinstance(source, FileList | ImageFolder) else ():
        found = _verified(other, on_progress)
        differences += [f"{name}: {each}" for each in found.differences] if found else []
    return replace(report, differences=tuple(differences))


def _verified(subject: Subject, on_progress: Progress | None) -> IndexCheckReport | None:
    """Compare the index file of one subject with it; None if there is no file."""
    place = next(filter(os.path.lexists, places(subject)), None)
    if place is None:
        return None
    path = Path(os.fsdecode(place))
    try:
        with reading(place):
            index = read_index(place)
    except DamagedIndex as error:
        return IndexCheckReport(path, 0, (f"the file: {error}",))
    differences = [*_damage(index), *_differences(subject, index, on_progress)]
    return IndexCheckReport(path, index.facts.rows, tuple(differences))


def _damage(index: IndexFile) -> Iterator[str]:
    """Yield a text for each section whose data isn't as written."""
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    for name, section in index.facts.sections.items():
        digest = blake2b(digest_size=16)
        try:
            for block in index.blocks(name):
                digest.update(block.data)
        except StandpipeError as error:
            yield f"the section '{name}': {error}"
            continue
        if digest.hexdigest() != section.digest:
            yield f"the section '{name}' isn't as it was written: its digest differs"


def _differences(subject: Subject, index: IndexFile, on_progress: Progress | None) -> Iterator[str]:
    """Yield a text for each difference between the index and the data."""
    try:
        if (objection := subject.objection(index)) is not None:
            yield f"a run wouldn't use it: {objection}"
    except StandpipeError as error:
        yield str(error)
    fresh = build_temporary(subject, on_progress)
    old, new = index.facts, fresh.facts
    if old.kind != new.kind or old.options != new.options:
        return
    if old.rows != new.rows:
        yield f"it has {old.rows:,} records, the {KINDS[new.kind]} {new.rows:,}"
    if old.classes != new.classes:
        yield f"it has {_classes(old)}, the {KINDS[new.kind]} {_classes(new)}"
    if instance_digests(old) != instance_digests(new):
        yield f"it has {index.instances:,} instances, the {KINDS[new.kind]} {fresh.instances:,}, or other ones"
    if old.manifest != new.manifest or old.label != new.label or _places(old) != _places(new):
        yield _first_difference(Listing(subject, index), Listing(subject, fresh))


def _places(facts: Facts) -> list[str]:
    """Return the digests of the byte ranges that an index has."""
    return [facts.sections[section].digest for name in facts.encoded for section in place_sections(name)]


def _classes(facts: Facts) -> str:
    return "no class names" if facts.classes is None else f"{len(facts.classes):,} class names"


def _first_difference(old: Listing, new: Listing) -> str:
    """Describe the first record that differs."""
    rows = min(old.num_records, new.num_records)
    for start in range(0, rows, ROWS_AT_ONCE):
        indices = np.arange(start, min(start + ROWS_AT_ONCE, rows))
        try:
            here, there = (_described(listing, indices) for listing in (old, new))
        except StandpipeError as error:
            return str(error)
        for row, (mine, theirs) in enumerate(zip(here, there, strict=True)):
            if mine != theirs:
                where = KINDS[new.subject.kind].split()[0]
                return f"record {start + row} is {mine} in the index, and {theirs} in the {where}"
    return "the records that both have are the same"


def _described(listing: Listing, indices: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    found = listing.locate(indices)
    labels = found.plain.get("label")
    return [
        ", ".join(_place(name, files, row) for name, files in found.files.items())
        + ("" if labels is None else f", label {labels[row]}")
        for row in range(len(indices))
    ]


def _place(name: str, files: Files, row: int) -> str:
    named = "" if name == "image" else f"{name} "
    place = "" if files.length[row] < 0 else f" at byte {files.offset[row]}, {files.length[row]} bytes"
    return f"{named}{path_text(files.paths[row])}{place}"
