"""The findings of a file check."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from standpipe.contracts import OpenSource, RepeatsKeys, SkipsFiles
from standpipe.errors import PlanError
from standpipe.jobs.file_check.labels import LabelFinding
from standpipe.system.files import whole_file
from standpipe.system.paths import path_text
from standpipe.transform import Fault, decoder_version

if TYPE_CHECKING:
    from standpipe.jobs.file_check.store import ResultStore

BAD = tuple(fault.value for fault in Fault)
COPY, CONFLICT = "copy", "label-conflict"
FLAWED, CUT, SMOOTHED = "flawed", "cut", "smoothed"
SUFFIX, REPEATED = "suffix", "repeated-key"
KINDS = (*BAD, FLAWED, CUT, SMOOTHED, COPY, CONFLICT, REPEATED, SUFFIX)
_FLAWS = {"damaged": FLAWED, "truncated": CUT, "smoothed": SMOOTHED}
_FLAW_TEXTS = {
    FLAWED: "damaged, and decoded anyway, as Pillow does",
    CUT: "ends too soon, and decoded as far as it goes",
    SMOOTHED: f"lacks scans, so libjpeg-turbo {decoder_version()} may smooth it differently than Pillow 13",
}


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A finding about one file.

    Attributes
    ----------
    index : int
        The record's number in its source.
    path : str or None
        Its file, as errors print it.
    level : str
        ``"bad"``: a loader refuses the file; ``"warning"`` or ``"note"``: a loader delivers it.
    kind : str
        Bad: ``"unreadable"``, ``"empty"``, ``"truncated"``, ``"damaged"``, ``"not-an-image"``,
        ``"unsupported"``, ``"oversized"``; ``"other-size"``, than annotations say. Warnings: ``"flawed"``, decoded
        despite damage, as Pillow does; ``"cut"``, truncated, where that is allowed; ``"smoothed"``, a progressive JPEG
        that lacks scans and may have other pixels than Pillow's, as the libjpeg-turbo in use is older than 3.0.1;
        ``"copy"``, the same bytes as an earlier record; ``"label-conflict"``, the same bytes as a record with another
        label; ``"repeated-key"``, a member of a tar shard with the key of an earlier one there.
        Note: ``"suffix"``, a name with the suffix of another format.
    text : str
        The finding in full; for a bad file the ``reason`` of a ``SampleError``.
    like : int or None
        The first record with the same bytes, for ``"copy"`` and ``"label-conflict"``; with the same key, for
        ``"repeated-key"``.
    field : str, default "image"
        The record's field with the file.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("photos/cat/empty.jpg").write_bytes(b"")
    >>> (finding,) = sp.check_files(sp.ImageFolder("photos"), num_workers=1).findings()
    >>> finding.level, finding.kind, Path(finding.path).name
    ('bad', 'empty', 'empty.jpg')
    """

    index: int
    path: str | None
    level: Literal["bad", "warning", "note"]
    kind: str
    text: str
    like: int | None = None
    field: str = "image"

    def facts(self) -> dict[str, object]:
        """Return the finding as plain values, without defaults; ``exclude()`` reads them as a line of JSON."""
        usual = {"like": None, "field": "image"}
        return {
            name: value for name, value in asdict(self).items() if name not in usual or value != usual[name]
        }


@dataclass(frozen=True, slots=True, eq=False)
class FileCheckReport:
    """The result of ``check_files``.

    Attributes
    ----------
    records : int
        Records in the source.
    fields : tuple of str
        Fields with images; each record has a file for each of them.
    looked : int
        Files that were read this time; the results of the others were known.
    seconds : float
        Time that the check took, in seconds.
    size : int
        Bytes of all files that could be read.
    counts : mapping of str to int
        Files of each kind of finding, most severe first, without kinds that didn't occur.
    labels : tuple of LabelFinding
        Findings about labels.
    skipped : int
        Pipes, sockets and devices with image names, and members of tar shards without an image of the same key,
        which aren't records; and faults of annotations. ``skipped_files()`` names them.
    bad : int
        Files that a loader would refuse.
    ok : bool
        True if a loader would refuse no file.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("photos/cat/empty.jpg").write_bytes(b"")
    >>> source = sp.ImageFolder("photos")
    >>> report = sp.check_files(source, num_workers=1)
    >>> report.ok, report.bad, dict(report.counts)
    (False, 1, {'empty': 1})
    >>> report.write("bad.jsonl")
    1
    >>> pipeline = sp.Pipeline(source).exclude("bad.jsonl")
    """

    records: int
    looked: int
    seconds: float
    size: int
    counts: Mapping[str, int]
    labels: tuple[LabelFinding, ...]
    skipped: int
    fields: tuple[str, ...]
    _source: OpenSource = field(repr=False)
    _store: ResultStore = field(repr=False)

    @property
    def bad(self) -> int:
        """The number of files that a loader would refuse."""
        return sum(self.counts.get(kind, 0) for kind in BAD)

    @property
    def ok(self) -> bool:
        """True if a loader would refuse no file."""
        return self.bad == 0

    def findings(self, *kinds: str) -> Iterator[FileFinding]:
        """Yield the findings of single files: bad ones, then warnings, then notes.

        Each group is sorted by the record's number.

        Parameters
        ----------
        *kinds : str
            Yield only findings of these kinds. Default: all.

        Yields
        ------
        standpipe.reports.FileFinding
            A finding about one file.

        Raises
        ------
        PlanError
            For an unknown kind.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise PlanError(f"findings({kind!r}): unknown kind. The kinds are {', '.join(KINDS)}")
        wanted = kinds or KINDS
        for queried in (self._bad, self._flawed, self._copies, self._repeated, self._misnamed):
            yield from (finding for finding in queried() if finding.kind in wanted)

    def skipped_files(self) -> Iterator[str]:
        """Yield the path of each file that was skipped: a pipe, a socket, a device, a member without an image.

        For sources of annotations, yield a text for each fault: its kind, place and value.
        """
        return skipped_files(self._source)

    def write(self, path: str | os.PathLike[str], *, kinds: Collection[str] = BAD) -> int:
        """Write a list of records for ``Pipeline.exclude``, one JSON object per line.

        The file appears complete or not at all.

        Parameters
        ----------
        path : path
            The file to write.
        kinds : collection of str, default all bad kinds
            Kinds of findings whose records are written.

        Returns
        -------
        int
            Number of findings that were written.

        Raises
        ------
        StandpipeError
            If the file can't be written.
        """
        import json  # a tenth of what importing standpipe costs

        written = 0
        with whole_file(path) as file:
            print(json.dumps({"source": self._source.digest, "records": self.records}), file=file)
            for finding in self.findings(*kinds) if kinds else ():
                print(json.dumps(finding.facts()), file=file)
                written += 1
        return written

    def facts(self) -> dict[str, object]:
        """Return the report as plain values, for JSON, without the findings of single files.

        Sizes are in bytes, times in seconds.
        """
        return {
            "ok": self.ok,
            "records": self.records,
            "looked": self.looked,
            "seconds": round(self.seconds, 3),
            "size": self.size,
            "bad": self.bad,
            "counts": dict(self.counts),
            "labels": [label.facts() for label in self.labels],
            "skipped": self.skipped,
        }

    def _rows(self, column: str) -> Iterator[tuple[Any, ...]]:
        """Yield number, value of a column and text of the files that have such a value."""
        return self._store.rows(
            f"SELECT record, {column}, text FROM files WHERE {column} IS NOT NULL ORDER BY record"
        )

    def _bad(self) -> Iterator[FileFinding]:
        for number, kind, text in self._rows("fault"):
            yield self._finding(number, "bad", kind, text)

    def _flawed(self) -> Iterator[FileFinding]:
        for number, flaw, _ in self._rows("flaw"):
            yield self._finding(number, "warning", _FLAWS[flaw], _FLAW_TEXTS[_FLAWS[flaw]])

    def _copies(self) -> Iterator[FileFinding]:
        for number, first, label, conflict in self._store.rows(
            "SELECT record, first, label, conflict FROM copies ORDER BY record"
        ):
            like, field = self._record(first)
            same = f"the same bytes as record {like}, {self._path(like, field)}"
            if not conflict:
                yield self._finding(number, "warning", COPY, same, like)
                continue
            label_text = label if self._source.classes is None else self._source.classes[label]
            if number == first:
                same = "the same bytes as later records with other labels"
            yield self._finding(number, "warning", CONFLICT, f"labelled {label_text}; {same}", like)

    def _repeated(self) -> Iterator[FileFinding]:
        for record, first in repeated_keys(self._source):
            text = f"the same key as record {first}, {self._source.name(first)}"
            yield self._finding(record * len(self.fields), "warning", REPEATED, text, first)

    def _misnamed(self) -> Iterator[FileFinding]:
        for number, kind, _ in self._rows("misnamed"):
            yield self._finding(number, "note", SUFFIX, f"is a {kind}, which its name doesn't say")

    def _finding(self, number: int, level: Any, kind: str, text: str, like: int | None = None) -> FileFinding:
        """Return a finding about a file, by its ``RecordFile.number``, with the text of a loader's error."""
        record, field = self._record(number)
        text = text if field == "image" else f"{field}: {text}"
        return FileFinding(record, self._path(record, field), level, kind, text, like, field)

    def _record(self, number: int) -> tuple[int, str]:
        """Return a file's record and field."""
        record, place = divmod(number, len(self.fields))
        return record, self.fields[place]

    def _path(self, record: int, field: str) -> str | None:
        """Return a file's path; for a part of a file, the record's name."""
        if field == "image":
            return self._source.name(record)
        files = self._source.locate(np.array([record])).files[field]
        return path_text(files.paths[0]) if files.length[0] < 0 else self._source.name(record)


def skipped_files(source: OpenSource) -> Iterator[str]:
    """Yield the paths of files that a source skipped."""
    return source.skipped() if isinstance(source, SkipsFiles) else iter(())


def repeated_keys(source: OpenSource) -> Iterator[tuple[int, int]]:
    """Yield the records whose name an earlier record of the same file has, and that record."""
    return source.repeated() if isinstance(source, RepeatsKeys) else iter(())


def counts_by_kind(store: ResultStore, source: OpenSource) -> dict[str, int]:
    """Return the number of files per kind of finding, in the order of ``KINDS``, without kinds that don't occur."""
    found: dict[str, int] = dict(
        store.rows("SELECT fault, COUNT(*) FROM files WHERE fault IS NOT NULL GROUP BY fault")
    )
    for flaw, count in store.rows("SELECT flaw, COUNT(*) FROM files WHERE flaw IS NOT NULL GROUP BY flaw"):
        found[_FLAWS[flaw]] = count
    for conflict, count in store.rows("SELECT conflict, COUNT(*) FROM copies GROUP BY conflict"):
        found[CONFLICT if conflict else COPY] = count
    found[REPEATED] = sum(1 for _ in repeated_keys(source))
    found[SUFFIX] = store.one("SELECT COUNT(*) FROM files WHERE misnamed IS NOT NULL")
    return {kind: found[kind] for kind in KINDS if found.get(kind, 0)}
