"""The source of images in MosaicML Streaming's shards, MDS, which are read in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from standpipe import _native
from standpipe.contracts import OpenSource
from standpipe.errors import PlanError
from standpipe.source.index.file import Facts, read_fully
from standpipe.source.index.writer import IndexWriter
from standpipe.source.shards.listing import ShardListing
from standpipe.source.shards.mds_index import IMAGES, TEXT, MdsColumn, MdsShard, read_mds_index
from standpipe.source.shards.named import Named, NamedReader, NamedSubject, check_fields, named_text
from standpipe.source.shards.subject import LEFT_OUT, ShardPart
from standpipe.spec import AnyArray, Int64Array, UInt8Array
from standpipe.system.paths import AnyPath, absolute, path_text

RECORDS_AT_ONCE = 1 << 16
SUCH = "image='x', label='y'"
WORD_BYTES = 4  # of the number of samples, of offsets and of sizes


@dataclass(frozen=True, slots=True, init=False)
class MDS:
    """Images in a folder of MosaicML Streaming's shards, which are read where they are.

    ``MDS("mds/train")`` reads ``index.json`` and the shards that it lists, as ``MDSWriter`` wrote them without
    compression. Each column is a field of the same name: ``jpeg`` and ``png`` are encoded images; integers, floats and
    arrays of one shape of up to 4,096 bytes are numbers; a batch has ``str`` as a list of str. ``label`` is one
    integer. ``bytes`` are a field if they are named, as ``image="x"``: an image if they begin like one in the first
    record, else bytes that ``map(…, field=…)`` passes to a function. Other columns, such as ``pil`` and ``pkl``, are
    left out, and ``explain()`` names them.

    The places of all samples are read once, into an index, with all numbers and texts, by which it grows: name the
    fields to leave out others. Later runs use the index while ``index.json`` says the same, and the sizes and
    modification times of all shards are the same. Records have numbers in the order of ``index.json``, so shuffles,
    splits, ranks and resuming work as for a folder of files. The digest covers the places, numbers and texts of all
    records, but not the folder's path.

    Parameters
    ----------
    folder : path
        The folder with ``index.json``: of one split, such as ``"mds/train"``.
    index : path, optional
        Path of the index file. Default: beside the folder if it exists there, else in the user's cache folder, or in
        memory for a few small shards.
    named : tuple of (str, str), optional
        Fields as pairs, in the form in which the attribute ``named`` has them.
    **fields : str
        The column of each field, such as ``image="x", label="y"``. Default: all columns, under their own names, but no
        ``bytes``, and no ``str`` whose name isn't an identifier, or is ``image`` or ``label``.

    Raises
    ------
    PlanError
        By ``plan()``: for a folder without ``index.json``, for compressed shards, with the command that unpacks them,
        for a shard that isn't as ``index.json`` says, with record and byte, and for a column that can't be read.

    Examples
    --------
    >>> sp.MDS("mds/train", image="x", label="y").describe()
    "MDS('mds/train', image='x', label='y')"
    """

    folder: AnyPath
    index: AnyPath | None
    named: Named

    def __init__(
        self, folder: AnyPath, index: AnyPath | None = None, *, named: Named = (), **fields: str
    ) -> None:
        object.__setattr__(self, "folder", folder)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "named", (*named, *fields.items()))

    def open(self) -> OpenSource:
        """Find the shards' index, or read the places of all samples and build one.

        Raises ``PlanError`` if a shard can't be read, or isn't as ``index.json`` says.
        """
        return ShardListing.open(self.subject())

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return f"MDS('{path_text(self.folder)}'{named_text(self.named, self.index)})"

    def subject(self) -> MdsSubject:
        """Read ``index.json``; return the shards, as the subject of an index."""
        folder = absolute(self.folder, field="MDS's folder")
        index = None if self.index is None else absolute(self.index, field="MDS's index")
        columns, listed = read_mds_index(folder)
        kinds = {column.name: column.encoding for column in columns if column.is_read}
        named = self.named or tuple((column.name, column.name) for column in columns if column.is_shown)
        of_texts = [name for name, encoding in kinds.items() if encoding == TEXT]
        texts = tuple(field for field, name in named if name in of_texts)
        check_fields("MDS", named, SUCH, texts)
        for field, name in named:
            if name not in kinds:
                found = ", ".join(f"{each.name!r} ({each.encoding})" for each in columns)
                raise PlanError(
                    f"MDS: {field}={name!r} must be a column of jpeg, png, bytes, str or numbers; "
                    f"{path_text(folder)} has {found}"
                )
        name = path_text(self.folder)
        paths = tuple(each.path for each in listed)
        return MdsSubject(paths, name, index, named, texts, columns, listed, folder)


@dataclass(frozen=True, slots=True)
class MdsSubject(NamedSubject):
    """A ``Subject`` of MDS shards, in the order of ``index.json``.

    columns  all columns of a record, in their order there
    listed   the shards as ``index.json`` has them
    folder   absolute path of the folder
    """

    columns: tuple[MdsColumn, ...]
    listed: tuple[MdsShard, ...]
    folder: bytes

    kind = "mds"

    @property
    def path(self) -> bytes:
        """The folder's path: an index is beside the folder."""
        return self.folder

    def options(self) -> dict[str, bool]:
        """Return the column of each field, and a digest of what ``index.json`` says."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        says = repr((self.columns, [(shard.samples, shard.size) for shard in self.listed]))
        options = {f"{field}={column}": True for field, column in self.named}
        return options | {f"listed {blake2b(says.encode(), digest_size=16).hexdigest()}": True}

    def reader(self, writer: IndexWriter) -> _Reader:
        """Return a reader of the places of all samples."""
        return _Reader(writer, self)


class _Reader(NamedReader):
    """Reads the places of samples, and their numbers."""

    def __init__(self, writer: IndexWriter, subject: MdsSubject) -> None:
        self._subject = subject
        images = {column.name for column in subject.columns if column.encoding in IMAGES}
        super().__init__(writer, subject, {field for field, name in subject.named if name in images})
        sizes = [column.size for column in subject.columns]
        self._variable = np.array([size is None for size in sizes])
        self._sizes = np.array([size or 0 for size in sizes])

    def read(self, number: int, file: int, size: int) -> Iterator[ShardPart]:
        """Yield the records of a shard."""
        shard, offsets = self._subject.listed[number], self._offsets(number, file, size)
        for start in range(0, shard.samples, RECORDS_AT_ONCE):
            begins, ends = offsets[start:-1][:RECORDS_AT_ONCE], offsets[start + 1 :][:RECORDS_AT_ONCE]
            yield self._taken(number, start, (file, 0, size, None), begins, ends)

    def _offsets(self, number: int, file: int, size: int) -> Int64Array:
        """Return where each sample begins, and where the last one ends, (samples + 1,)."""
        shard = self._subject.listed[number]
        head_bytes = (shard.samples + 2) * WORD_BYTES
        words = np.frombuffer(read_fully(file, min(head_bytes, size) // WORD_BYTES * WORD_BYTES, 0), "<u4")
        if size != shard.size or len(words) * WORD_BYTES < head_bytes or words[0] != shard.samples:
            raise PlanError(
                f"{path_text(shard.path)} has {size:,} bytes and begins with {words[:1]}, but index.json says "
                f"{shard.size:,} bytes with {shard.samples:,} samples; copy the shard or index.json again"
            )
        offsets = words[1:].astype(np.int64)
        least = head_bytes + self._variable.sum() * WORD_BYTES + self._sizes.sum()
        wrong = np.diff(offsets) < least - head_bytes
        if offsets[0] < head_bytes or offsets[-1] != size or wrong.any():
            at = int(wrong.argmax()) if wrong.any() else 0 if offsets[0] < head_bytes else shard.samples
            self._refuse(number, at, (at + 1) * WORD_BYTES, "its place isn't behind the sample before")
        return offsets

    def _taken(self, number: int, start: int, place: Any, begins: Int64Array, ends: Int64Array) -> ShardPart:
        """Return samples of a shard; ``place``: the file; ``start``: number of the first."""
        num_variable = int(self._variable.sum())
        sizes = np.broadcast_to(self._sizes, (len(begins), len(self._sizes))).astype(np.int64)
        if num_variable:
            heads = _rows(place, num_variable * WORD_BYTES, begins)
            sizes[:, self._variable] = heads.view("<u4").reshape(-1, num_variable)
        stops = begins[:, None] + num_variable * WORD_BYTES + sizes.cumsum(1)
        if (wrong := stops[:, -1] != ends).any():
            at = int(wrong.argmax())
            self._refuse(number, start + at, int(begins[at]), "its columns don't end where the next begins")
        ranges, numbers = {}, dict[str, AnyArray]()
        for field, name in self._subject.named:
            at = next(n for n, column in enumerate(self._subject.columns) if column.name == name)
            column, offsets = self._subject.columns[at], stops[:, at] - sizes[:, at]
            if column.dtype is None:
                ranges[field] = offsets, sizes[:, at]
            else:
                values = _rows(place, self._sizes[at], offsets).view(column.dtype)
                numbers[field] = values.reshape(len(begins), *column.shape)
        return self.part(place[0], ranges, numbers, np.zeros(len(begins), np.uint32))

    def _refuse(self, number: int, sample: int, at: int, why: str) -> None:
        shard = path_text(self._subject.shards[number])
        raise PlanError(
            f"{shard}, record {sample:,} at byte {at:,}: {why}, so the shard is damaged; copy it again"
        )

    def finish(self, facts: Facts) -> Facts:
        """Add the columns that aren't read."""
        left_out = {
            f"{LEFT_OUT}{path_text(each.name)} ({path_text(each.encoding)})": self.rows
            for each in self._subject.columns
            if each.name not in dict(self._subject.named).values()
        }
        facts = super().finish(facts)
        return replace(facts, seen={**facts.seen, **left_out})


def _rows(place: Any, row_bytes: int, begins: Int64Array) -> UInt8Array:
    """Read ``row_bytes`` from each place of a file."""
    try:
        return _native.packed_rows(place, int(row_bytes), np.ascontiguousarray(begins), 1)
    except ValueError as error:  # it was shortened after it was opened
        raise PlanError(
            f"a shard changed while it was read: {error}; start again when it is complete"
        ) from None
