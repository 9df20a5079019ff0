"""The columns of an Arrow table that a source can have: encoded images, numbers, and texts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from standpipe.contracts import Files, Paths
from standpipe.source.tables.memory import Bits, Buffers, ByteStrings, Values
from standpipe.spec import AnyArray, ArraySpec, Int64Array, Listed, UInt8Array
from standpipe.system.paths import path_text

BYTES, PATH = "bytes", "path"
BINARY, STRING = ("binary", "large_binary"), ("string", "large_string")
SAMPLED_ROWS = 1000  # for the mean size of a text


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of numbers. ``ends``: (chunks,) int64, the end of each chunk's rows in the table."""

    ends: Int64Array
    values: Values | Bits

    @property
    def spec(self) -> ArraySpec:
        """The dtype of a row. Integers become int64, as labels are."""
        dtype = self.values.dtype
        return ArraySpec((), np.dtype(np.int64) if dtype.kind in "iu" and dtype != np.uint64 else dtype)

    def take(self, rows: Int64Array) -> AnyArray:
        """Return the values of rows of the table."""
        return self.values.take(*_places(self.ends, rows)).astype(self.spec.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class Bytes:
    """A column of byte strings.

    ends      as for ``Numbers``
    texts     the bytes
    versions  (files, 2) int64: size in bytes and modification time in nanoseconds of each of ``memory.files``
    """

    ends: Int64Array
    memory: Buffers
    texts: ByteStrings
    versions: Int64Array

    @classmethod
    def of(cls, arrays: list[Any], memory: Buffers, texts: ByteStrings, *more: Any) -> Self:
        """Return a column with the arrays' rows. ``more``: further attributes."""
        which = texts.data.which
        return cls(_ends(arrays), memory, texts, memory.versions(which[which < len(memory.files)]), *more)

    @property
    def in_place(self) -> bool:
        """True if all bytes are in mapped files."""
        return bool(np.all(self.texts.data.which < len(self.memory.files)))

    @property
    def files(self) -> list[tuple[bytes, int, int]]:
        """The path, size and modification time of each file that has bytes of the column."""
        used = [each for each in np.unique(self.texts.data.which).tolist() if each < len(self.memory.files)]
        return [(self.memory.files[each].path, *self.versions[each].tolist()) for each in used]


@dataclass(frozen=True, slots=True)
class Strings(Bytes):
    """A column of texts."""

    @property
    def spec(self) -> Listed:
        """The kind of field, with the mean size of some texts in bytes."""
        rows = np.linspace(0, self.ends[-1] - 1, SAMPLED_ROWS).astype(np.int64)
        _, _, lengths = self.texts.ranges(*_places(self.ends, rows))
        return Listed("str", int(lengths.mean()))

    def take(self, rows: Int64Array) -> Paths:
        """Return the texts of rows of the table in UTF-8. A null is an empty text."""
        return Paths(*self.texts.read(*self.texts.ranges(*_places(self.ends, rows))))

    def stands_for(self, rows: Int64Array) -> list[AnyArray]:
        """Return what a digest has of texts: places in a file and lengths, or the texts that aren't in a file."""
        which, at, lengths = self.texts.ranges(*_places(self.ends, rows))
        held = which >= len(self.memory.files)
        texts, _ = self.texts.read(which, at, np.where(held, lengths, 0))
        return [np.where(held, 0, at), lengths, texts]


@dataclass(frozen=True, slots=True)
class Images(Bytes):
    """A column of encoded images: bytes, or the paths of files.

    whole  which rows aren't null, though their bytes may be
    paths  of the files to read where there are no bytes; else names
    """

    whole: Bits
    paths: ByteStrings | None

    @property
    def has_paths(self) -> bool:
        """True if some rows may be files of their own."""
        return self.paths is not None and bool(self.texts.valid.known.any())

    def locate(self, rows: Int64Array) -> Files:
        """Return the places of images. A null image is an empty part of the file that others are in."""
        chunks, within = _places(self.ends, rows)
        which, at, lengths = self._bytes(chunks, within)
        used, number = np.unique(which, return_inverse=True)
        paths = [self.memory.files[each].path for each in used.tolist()]
        begins = at + self.memory.offsets[which]
        versions = self.versions[which]
        alone, (texts, ends) = self._files(chunks, within, lengths)
        number[alone] = len(paths) + np.arange(len(alone))
        names = Paths(texts, ends)
        paths += [os.path.abspath(names[each]) for each in range(len(names))]  # noqa: PTH100 (bytes)
        lengths = np.maximum(lengths, 0)
        begins[alone], lengths[alone], versions[alone] = 0, -1, -1
        return Files(Paths.pack(paths).take(number), begins, lengths, *versions.T.copy())

    def stands_for(self, rows: Int64Array) -> list[AnyArray]:
        """Return what a digest has of images: places in a file and lengths, or the paths of files."""
        chunks, within = _places(self.ends, rows)
        _, at, lengths = self._bytes(chunks, within)
        _, (texts, ends) = self._files(chunks, within, lengths)
        return [np.where(lengths < 0, 0, at), lengths, texts, ends]

    def name(self, row: int) -> str:
        """Return the file that an image is in, and its own path or name there."""
        chunks, within = _places(self.ends, np.array([row]))
        which, _, lengths = self._bytes(chunks, within)
        text = b"" if self.paths is None else self.paths.read(*self.paths.ranges(chunks, within))[0].tobytes()
        if lengths[0] < 0 and text:
            return path_text(text)
        name = path_text(text) if text else f"row {row:,}"
        return f"{path_text(self.memory.files[which[0]].path)}: {name}{', a null' if lengths[0] < 0 else ''}"

    def _bytes(self, chunks: Int64Array, within: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the file of each image by number, its first byte there, and its length, or -1 for none."""
        which, at, lengths = self.texts.ranges(chunks, within)
        return which, at, np.where(self.whole.take(chunks, within), lengths, -1)

    def _files(
        self, chunks: Int64Array, within: Int64Array, lengths: Int64Array
    ) -> tuple[Int64Array, tuple[UInt8Array, Int64Array]]:
        """Return which images are files of their own, and their paths' bytes and ends."""
        if self.paths is None:
            return np.empty(0, np.int64), (np.empty(0, np.uint8), np.empty(0, np.int64))
        alone = np.flatnonzero((lengths < 0) & self.whole.take(chunks, within))
        which, at, sizes = self.paths.ranges(chunks[alone], within[alone])
        named = sizes > 0
        texts = self.paths.read(which[named], at[named], sizes[named])
        return alone[named], texts


def number_column(column: Any, memory: Buffers) -> Numbers | None:
    """Return a column of numbers; None for other columns, and for nulls."""
    import pyarrow as pa

    kind, arrays = _looked_up(column.type), [each for each in column.chunks if len(each)]
    is_bool = pa.types.is_boolean(kind)
    if column.null_count or not (is_bool or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    if kind != column.type:
        arrays = [each.dictionary_decode() for each in arrays]
    return Numbers(_ends(arrays), memory.bits(arrays, 1) if is_bool else memory.numbers(arrays))


def image_column(column: Any, memory: Buffers) -> Images | None:
    """Return a column of encoded images; None for columns of another type."""
    arrays = [each for each in column.chunks if len(each)]
    parts, kinds = {BYTES: arrays}, {BYTES: column.type}
    if str(column.type).startswith("struct"):
        kinds = {each.name: each.type for each in column.type}
        parts = {name: [each.field(name) for each in arrays] for name in kinds}
    texts = {
        name: memory.texts(parts[name])
        for name, known in ((BYTES, BINARY), (PATH, STRING))
        if name in kinds and str(_looked_up(kinds[name])) in known
    }
    if BYTES not in texts:
        return None
    return Images.of(arrays, memory, texts[BYTES], memory.bits(arrays), texts.get(PATH))


def text_column(column: Any, memory: Buffers) -> Strings | None:
    """Return a column of texts, which may have nulls; None for columns of another type."""
    if str(_looked_up(column.type)) not in STRING:
        return None
    arrays = [each for each in column.chunks if len(each)]
    return Strings.of(arrays, memory, memory.texts(arrays))


def _looked_up(kind: Any) -> Any:
    """Return the type of values that may be in a dictionary."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _ends(arrays: list[Any]) -> Int64Array:
    return np.cumsum([len(each) for each in arrays], dtype=np.int64)


def _places(ends: Int64Array, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the chunk of each row, and its number there."""
    chunks = np.searchsorted(ends, rows, side="right")
    return chunks, rows - np.where(chunks > 0, ends[chunks - 1], 0)
