"""The subject of an ``ImageFolder``'s index: a folder of class folders, or of images."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np

from standpipe import _native
from standpipe.contracts import Paths
from standpipe.errors import PlanError
from standpipe.source.files.sorted_names import SortedNames
from standpipe.source.files.walk import HERE, Folder, class_folders, images_below
from standpipe.source.index.file import Facts, IndexFile
from standpipe.source.index.listing import SKIPPED
from standpipe.source.index.store import AROUND, OwnPaths, Progress, is_settled
from standpipe.source.index.writer import IndexWriter, RecordDigest, places_of, smallest_dtype
from standpipe.spec import Int64Array, UInt8Array
from standpipe.system.paths import path_text

FOLDERS_AT_ONCE = 1 << 12
BELOW_HERE = HERE + b"/"


@dataclass(frozen=True, slots=True)
class FolderSubject(OwnPaths):
    """A ``Subject`` of a folder of class folders, or of images without classes.

    base   its absolute path, with a slash at the end
    index  the path of its index, if the user gave one
    flat   True if it may have only images
    """

    base: bytes
    name: str
    index: bytes | None
    flat: bool

    kind = "folder"
    costly = False
    stays = True

    @property
    def path(self) -> bytes:
        """The absolute path of the folder."""
        return self.base

    @property
    def key(self) -> str:
        """The name of its index in the cache folder: a digest of the path."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        return blake2b(b"folder " + self.base, digest_size=16).hexdigest()

    def objection(self, index: IndexFile) -> str | None:
        """Return why the index doesn't fit the folder; None if all modification times and inodes are the
        same.
        """
        facts = index.facts
        if facts.kind != self.kind:
            return "it is the index of a list"
        if facts.classes is None and not self.flat:
            return "it has no class folders"
        for start in range(0, max(1, facts.seen.get("folders", 0)), FOLDERS_AT_ONCE):
            for folder in _folders(index, start):
                what = "the folder" if folder.path == b"." else path_text(folder.path)
                try:
                    now = os.stat(self.base + folder.path)  # noqa: PTH116 (pathlib has no bytes)
                except OSError as error:
                    return f"{what} can't be examined any more: {error.strerror}"
                if (now.st_mtime_ns, now.st_ino) != (folder.mtime_ns, folder.inode):
                    return f"{what} changed since"
                if not is_settled(folder.mtime_ns, facts.began_ns):
                    return f"{what} may have changed again without a new modification time"
        return None

    def build(self, writer: IndexWriter, on_progress: Progress | None) -> Facts:
        """Walk the folder and write its index."""
        began_ns = time.time_ns()
        table = _FolderTable(writer)
        class_names = class_folders(self.base, table.add, flat=self.flat)
        records = _Records(writer, smallest_dtype(0, len(class_names) - 1) if class_names else None)
        names = SortedNames(records.put, writer)
        empty = []
        seen = num_special = 0

        def skip(folder: bytes, special: list[bytes]) -> None:
            nonlocal num_special
            num_special += len(special)
            paths = ((folder + b"/" + name).removeprefix(BELOW_HERE) for name in special)
            writer.add(SKIPPED, b"".join(path + b"\0" for path in paths))

        for label, class_name in enumerate(class_names or [HERE]):
            before = seen
            for path, images in images_below(self.base, class_name, table.add, skip):
                names.add(label, path, images)
                seen += len(images)
                if on_progress is not None:
                    on_progress("files", seen, None)
            names.end_class()
            if seen == before:
                empty.append(label)
        names.finish()
        if seen == 0:
            raise PlanError(
                f"no class folder in {path_text(self.base)} has an image{but(num_special)}; check the path and "
                "the files' suffixes, and convert HEIC and other formats to JPEG or PNG"
            )
        classes = tuple(map(path_text, class_names)) or None
        return Facts(
            kind=self.kind,
            options={},
            seen={"folders": table.finish(), SKIPPED: num_special},
            began_ns=began_ns,
            rows=seen,
            manifest=records.manifest.hexdigest(labels=classes is not None, classes=classes),
            classes=classes,
            empty=tuple(empty),
            label=records.label,
            outside=0,
        )


def but(special: int) -> str:
    """Return ", but …" with the number of pipes, sockets and devices that were skipped; empty if none were."""
    if special == 0:
        return ""
    return f", but {'1 pipe, socket or device' if special == 1 else f'{special:,} pipes, sockets or devices'}"


class _Records:
    """A writer of sorted records into an index.

    label  dtype of the labels; None: the root has no class folders, and images are in ``HERE``
    """

    def __init__(self, writer: IndexWriter, label: str | None) -> None:
        self.manifest = RecordDigest()
        self.label = label
        self._writer = writer
        self._text_bytes = 0

    def put(self, labels: Int64Array, text: UInt8Array, lengths: Int64Array) -> None:
        """Write a block of sorted records: labels, paths that each end with a NUL byte, and the paths'
        lengths.
        """
        if self.label is None:
            begins = np.cumsum(lengths + 1) - (lengths + 1)
            text = np.delete(text, np.add.outer(begins, range(len(BELOW_HERE))))
            lengths = lengths - len(BELOW_HERE)
        ends = np.cumsum(lengths + 1)
        self._writer.add("text", text)  # the largest section, which is written at once as it is the first
        self._writer.add("places", places_of(self._text_bytes, ends - 1, lengths))
        self._text_bytes += len(text)
        self.manifest.add_paths(np.delete(text, ends - 1), lengths)
        if self.label is not None:
            self._writer.add("labels", labels.astype(self.label))
            self.manifest.add_labels(labels)


class _FolderTable:
    """A writer of the table of walked folders into an index: name, modification time and inode of each."""

    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer
        self._names_bytes = 0
        self._waiting: list[Folder] = []
        self._count = 0

    def add(self, folder: Folder) -> None:
        self._waiting.append(folder)
        if len(self._waiting) == FOLDERS_AT_ONCE:
            self._flush()

    def finish(self) -> int:
        """Write the last rows; return the number of folders."""
        self._flush()
        return self._count

    def _flush(self) -> None:
        if not self._waiting:
            return
        names, times, inodes = zip(*self._waiting, strict=True)
        text = b"\0".join(names) + b"\0"
        lengths = np.array([len(name) for name in names])
        self._writer.add("folder_names", text)
        self._writer.add("folder_places", places_of(self._names_bytes, np.cumsum(lengths + 1) - 1, lengths))
        self._writer.add("folders", np.column_stack([np.array(times, "<u8"), np.array(inodes, "<u8")]))
        self._names_bytes += len(text)
        self._count += len(names)
        self._waiting.clear()


def _folders(index: IndexFile, start: int) -> list[Folder]:
    """Read up to 4,096 rows of an index's table of folders, from row ``start``.

    Raises ``StandpipeError`` if the table is damaged.
    """
    sections, count = index.facts.sections, index.facts.seen.get("folders", 0)
    with index.told():
        if count < 1 or sections["folder_places"].size != 8 * count or sections["folders"].size != 16 * count:
            raise ValueError("its table of folders has another size")
    stop = min(start + FOLDERS_AT_ONCE, count)
    places, names = index.place("folder_places"), index.place("folder_names")
    with index.told():
        blob, ends = _native.packed_paths(places, names, AROUND, b"", True, np.arange(start, stop))
    paths, values = Paths(blob, ends), index.part("folders", "<u8", (2,), start, stop).tolist()
    return [Folder(paths[row], *values[row]) for row in range(stop - start)]
