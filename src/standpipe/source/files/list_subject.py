"""The subject of a ``FileList``'s index: a text file of paths."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError, StandpipeError
from standpipe.formats import SUFFIXES
from standpipe.source.index.file import Facts, IndexFile, SectionPlace, read_fully
from standpipe.source.index.store import Progress, is_settled
from standpipe.source.index.writer import IndexWriter, RecordDigest, smallest_dtype
from standpipe.spec import Int64Array
from standpipe.system.paths import open_for_reading, path_text, reading

BYTES_AT_ONCE = 1 << 20
LABELS_AT_ONCE = 1 << 17
BOM = b"\xef\xbb\xbf"

KIND_SHOWN = {"absent": "no label", "number": "an integer label", "name": "a class name"}
FAULT_SHOWN = {
    "nul": "contains a NUL byte; save the list as plain text, in UTF-8 if it is UTF-16",
    "carriage_return": "contains a CR, which ended a line on old Macs; convert the line ends to LF, for example with "
    "tr '\\r' '\\n'",
    "too_long": f"is longer than {_native.LONGEST_LINE_BYTES:,} bytes; is it a list of paths?",
    "empty_label": "has no label after its tab",
    "empty_path": "has no path before its label",
    "too_large": "has a label outside int64",
}


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class ListSubject:
    """A ``Subject`` of an open list. Its file is closed when this object is garbage-collected.

    file    descriptor
    stays   True if paths may not lead out of ``base``
    index   the path of its index, if the user gave one
    begin   offset of the first line, after a byte order mark
    info    the file's status when it was opened
    labels  True if lines may have labels
    """

    file: int
    path: bytes
    base: bytes
    name: str
    labels: bool
    stays: bool
    index: bytes | None
    begin: int
    info: os.stat_result

    kind = "list"
    costly = False

    @classmethod
    def open(
        cls, path: bytes, base: bytes, *, name: str, labels: bool, stays: bool, index: bytes | None
    ) -> ListSubject:
        """Open a list. Raises ``PlanError`` if it can't be read."""
        with open_for_reading(path) as opened, reading(path):
            begin = len(BOM) if opened.read(len(BOM)) == BOM else 0
            info = os.fstat(opened.fileno())
            return cls(os.dup(opened.fileno()), path, base, name, labels, stays, index, begin, info)

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.file)

    @property
    def key(self) -> str:
        """The name of its index in the cache folder: a digest of the path and of ``labels``."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        return blake2b(f"list {self.labels} ".encode() + self.path, digest_size=16).hexdigest()

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``standpipe index`` for the same index."""
        return [] if self.labels else ["--no-labels"]

    @property
    def around(self) -> tuple[bytes, bytes, bytes]:
        """Three sets of bytes, for checks: those that may be before a path, after it, and never in it."""
        return b"\n", b"\n\r \t", b"\n\0"

    def text(self, index: IndexFile) -> SectionPlace:
        """Return the location of the paths: the list itself."""
        return self.file, self.begin, self.info.st_size - self.begin, None

    def seen(self) -> dict[str, int]:
        """Return the size, modification time and inode of the list."""
        return {"size": self.info.st_size, "mtime_ns": self.info.st_mtime_ns, "inode": self.info.st_ino}

    def objection(self, index: IndexFile) -> str | None:
        """Return None if the list has the same size, modification time and inode as in the index; else why not."""
        facts = index.facts
        if facts.kind != self.kind or facts.options != {"labels": self.labels}:
            return "it was built with other options"
        if facts.seen != self.seen():
            return "the list changed since"
        if not is_settled(self.info.st_mtime_ns, facts.began_ns):
            return "the list may have changed again without a new modification time"
        if self.stays and facts.outside:
            return "it has paths that lead out of root="
        return None

    def check_unchanged(self) -> None:
        """Raise ``StandpipeError`` if the list was written to since it was opened."""
        now = os.fstat(self.file)
        if (now.st_size, now.st_mtime_ns) != (self.info.st_size, self.info.st_mtime_ns):
            raise StandpipeError(
                f"{self.name} was changed while paths were read from it; restart the run. To replace a list in use, "
                "write another file and rename it"
            )

    def build(self, writer: IndexWriter, on_progress: Progress | None) -> Facts:
        """Read the list and write its index. Labels are written last, since class names must be sorted first."""
        began_ns = time.time_ns()
        lines = _native.ListLines(self.labels, SUFFIXES)
        manifest, labels = RecordDigest(), LabelWriter(writer)
        rows = 0
        for done in self._taken(lines):
            places = lines.places
            rows += len(places)
            writer.add("places", places)
            manifest.add_paths(lines.paths, places >> np.uint64(_native.LENGTH_SHIFT))
            labels.add(lines.labels)
            if on_progress is not None:
                on_progress("bytes", done, self.info.st_size)
        if self.stays and lines.line_that_leads_out:
            raise PlanError(
                f"{self.name}:{lines.line_that_leads_out}: the path is absolute or has a '..', but with root= all "
                "paths must be relative to that folder and stay in it; change the path, or leave out root="
            )
        if rows == 0:
            raise PlanError(f"{self.name} lists no files; write one path per line")
        now = os.fstat(self.file)
        if (now.st_size, now.st_mtime_ns) != (self.info.st_size, self.info.st_mtime_ns):
            raise PlanError(f"{self.name} changed while it was read; start again when it is complete")
        classes = labels.finish(manifest, lines.names) if lines.has_labels else None
        return Facts(
            kind=self.kind,
            options={"labels": self.labels},
            seen=self.seen(),
            began_ns=began_ns,
            rows=rows,
            manifest=manifest.hexdigest(labels=lines.has_labels, classes=classes),
            classes=classes,
            empty=(),
            label=labels.dtype if lines.has_labels else None,
            outside=lines.line_that_leads_out,
        )

    def _taken(self, lines: _native.ListLines) -> Iterator[int]:
        """Pass the list to ``lines`` in chunks; yield the offset after each chunk."""
        at, size = self.begin, self.info.st_size
        while at < size:
            with reading(self.path):
                try:
                    chunk = read_fully(self.file, min(BYTES_AT_ONCE, size - at), at)
                except EOFError:
                    return  # the list was shortened while it was read; ``build`` raises an error
            last = at + len(chunk) == size
            at += lines.take(np.frombuffer(chunk, np.uint8), at - self.begin, last)
            if lines.fault is not None:
                raise PlanError(f"{self.name}:{_shown_fault(*lines.fault)}")
            yield at


class LabelWriter:
    """A writer of labels into an index: first to a temporary file, then in the smallest dtype that holds them."""

    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer
        self._file: int | None = None
        self._rows = 0
        self._lowest, self._highest = 0, 0
        self.dtype = "|i1"

    def add(self, labels: Int64Array) -> None:
        """Write the labels of the next records."""
        if len(labels) == 0:
            return
        if self._file is None:
            self._file = self._writer.scratch()
        self._writer.write(self._file, labels.view(np.uint8).data, 8 * self._rows)
        self._rows += len(labels)
        self._lowest = min(self._lowest, int(labels.min()))
        self._highest = max(self._highest, int(labels.max()))

    def finish(self, manifest: RecordDigest, names: list[bytes]) -> tuple[str, ...] | None:
        """Write the section; return the class names, sorted and printable. ``names``: in the order of the labels."""
        assert self._file is not None
        self.dtype = smallest_dtype(self._lowest, self._highest)
        order = sorted(range(len(names)), key=names.__getitem__)
        sorted_place = np.empty(len(names), np.int64)
        sorted_place[order] = np.arange(len(names))
        for start in range(0, self._rows, LABELS_AT_ONCE):
            count = min(LABELS_AT_ONCE, self._rows - start)
            labels = np.frombuffer(read_fully(self._file, 8 * count, 8 * start), np.int64)
            if names:
                labels = sorted_place[labels]
            manifest.add_labels(labels)
            self._writer.add("labels", labels.astype(self.dtype))
        return tuple(path_text(names[place]) for place in order) or None


def _shown_fault(what: str, line: int, kind: str, first_kind: str, first_line: int, label: bytes) -> str:
    match what:
        case "other_kind":
            advice = "all labels must be integers, or none"
            if "absent" in (kind, first_kind):
                advice = (
                    "give each line a label, after a tab, or pass labels=False if all lines are only paths"
                )
            first = f"line {first_line} has {KIND_SHOWN[first_kind]}"
            reason = f"has {KIND_SHOWN[kind]}, but {first}; {advice}"
        case "image_name":
            reason = (
                f"has the label '{path_text(label)}', which looks like a file; put a tab between path and label, or "
                "pass labels=False if all lines are only paths"
            )
        case _:
            reason = FAULT_SHOWN[what]
    return f"{line}: the line {reason}"
