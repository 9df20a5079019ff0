"""Packed index files: what one holds, and how it is read, by position.

::

    preamble   64 bytes: magic, version, a mark of the byte order, the sizes, and a checksum of all facts
    sections   one after another: columns of n rows, and texts, in sealed blocks
    facts      JSON: what was indexed, its digest, the class names, where each section is

A file that doesn't keep to this is ``Damaged`` and never believed. The checksum covers preamble and facts. A sealed
block has 508 bytes of data and their CRC-32C, which is checked whenever the block is read. A section's digest is of
its data.
"""

from __future__ import annotations

import os
import stat
import struct
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np

from standpipe import _native
from standpipe.errors import StandpipeError
from standpipe.source._paths import shown
from standpipe.spec import AnyArray, ArraySpec, Int64Array, UInt8Array

MAGIC = b"stndpipe"
VERSION = 4
BYTE_ORDER_MARK = 0x01020304
PREAMBLE = struct.Struct("=8sIIQQ32s")  # file's bytes, first byte of the facts, checksum
MOST_FACTS_BYTES = 1 << 30
BYTES_AT_ONCE = 1 << 20
CHECKED_WHOLE_BYTES = 8 << 20  # an index up to this size is checked when it is opened, in 2 ms

PLACE = np.dtype("<u8")  # of a path: offset in the low 48 bits, length in the high 16
LENGTH_SHIFT = 48
LABEL_DTYPES = ("<i8", "<i4", "<i2", "|i1")
RANGE = ("image_offset", "image_length")  # columns of the bytes that each image has in its file
COLUMN_DTYPES = (*LABEL_DTYPES, "<u8", "<u4", "<u2", "|u1", "<f8", "<f4", "<f2", "|b1")


# Of bytes in a file: descriptor, first byte, how many bytes of data, and the key of its sealed blocks or None
SectionPlace: TypeAlias = tuple[int, int, int, int | None]


class Damaged(Exception):
    """A file is no index, or not whole; the text says why."""


@dataclass(frozen=True, slots=True)
class Section:
    """``size`` bytes of data in sealed blocks.

    begin   the file's byte at which the first block starts
    key     16 hex digits that the blocks' checksums depend on: others in each section of each file
    digest  BLAKE2 digest of the data, in hex
    """

    begin: int
    size: int
    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Column:
    """A further value of every record.

    dtype, shape  of one record's value; the dtype as NumPy writes it, little-endian
    origin        the option of ``standpipe index`` that made it; empty when none does
    """

    dtype: str
    shape: tuple[int, ...]
    origin: str

    @property
    def spec(self) -> ArraySpec:
        """Shape and dtype of a batch's field of it."""
        return ArraySpec(self.shape, np.dtype(self.dtype).newbyteorder("="))


@dataclass(frozen=True, slots=True)
class Facts:
    """The description in an index file.

    kind      ``"list"`` or ``"folder"``
    options   options of the source that change what is indexed
    seen      what identifies the indexed files: sizes, times in ns, inodes
    began_ns  when that was read, by this machine's clock
    rows      number of records
    manifest  digest of paths, order, labels and class names
    classes   class names by label, or None
    empty     labels of classes without a record
    label     dtype of the labels, or None
    outside   the first line of a list whose path is absolute or has a ``..``; 0: none
    columns   further columns by name
    sections  sections by name

    The columns ``RANGE`` are no fields of a batch: they contain the byte range of each image in its file.
    """

    kind: str
    options: Mapping[str, bool]
    seen: Mapping[str, int]
    began_ns: int
    rows: int
    manifest: str
    classes: tuple[str, ...] | None
    empty: tuple[int, ...]
    label: str | None
    outside: int
    columns: Mapping[str, Column] = field(default_factory=dict)
    sections: Mapping[str, Section] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class IndexFile:
    """An open index. The file is closed when this object is gone.

    file  descriptor
    path  where it is; None: it has no name, and goes when it is closed
    size  bytes
    held  whether its bytes are memory
    """

    file: int
    path: bytes | None
    size: int
    held: bool
    facts: Facts

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.file)

    def place(self, section: str) -> SectionPlace:
        """Return the place of a section, for native code."""
        found = self.facts.sections[section]
        return self.file, found.begin, found.size, int(found.key, 16)

    def rows(self, section: str, dtype: str, shape: tuple[int, ...], indices: Int64Array) -> AnyArray:
        """Rows of a column for records ``indices`` (n,) in any order: (n, *shape), native byte order."""
        kind = np.dtype(dtype)
        with self.told():
            data = _native.packed_rows(self.place(section), _row_bytes(kind, shape), indices)
        return data.view(kind).reshape(len(indices), *shape).astype(kind.newbyteorder("="), copy=False)

    def part(self, section: str, dtype: str, shape: tuple[int, ...], start: int, stop: int) -> AnyArray:
        """Rows [start, stop) of a column: (stop − start, *shape), native byte order."""
        kind = np.dtype(dtype)
        row_bytes = _row_bytes(kind, shape)
        with self.told():
            data = _native.packed_part(self.place(section), start * row_bytes, stop * row_bytes)
        return data.view(kind).reshape(stop - start, *shape).astype(kind.newbyteorder("="), copy=False)

    def blocks(self, section: str) -> Iterator[UInt8Array]:
        """A section's data in pieces."""
        place, size = self.place(section), self.facts.sections[section].size
        for at in range(0, size, BYTES_AT_ONCE):
            with self.told():
                block = _native.packed_part(place, at, min(at + BYTES_AT_ONCE, size))
            yield block

    def check(self) -> None:
        """Read an index that isn't large, so that damage shows at once. Raises ``StandpipeError``."""
        for section in self.facts.sections if self.size <= CHECKED_WHOLE_BYTES else ():
            for _ in self.blocks(section):
                pass

    def told(self) -> _Told:
        """Turns what reading it meets into a ``StandpipeError`` that names it."""
        again = "the next start makes it anew"
        if self.facts.columns:
            again = f"make it again with its columns {', '.join(map(repr, self.facts.columns))}"
        return _Told("the index" if self.path is None else shown(self.path), again)


class _Told:
    """A context for reading one file; see ``IndexFile.told``."""

    __slots__ = ("_again", "_name")

    def __init__(self, name: str, again: str) -> None:
        self._name, self._again = name, again

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, OSError):
            raise StandpipeError(f"can't read {self._name}: {error.strerror}") from error
        if isinstance(error, ValueError):
            raise StandpipeError(f"{self._name} is damaged: {error}; delete it, and {self._again}")


def _row_bytes(kind: np.dtype[Any], shape: tuple[int, ...]) -> int:
    return kind.itemsize * int(np.prod(shape, dtype=np.int64))


def read_fully(file: int, size: int, at: int) -> bytes:
    """``size`` bytes from byte ``at`` on. Raises ``EOFError`` where the file ends before."""
    data = os.pread(file, size, at)
    while len(data) < size:
        more = os.pread(file, size - len(data), at + len(data))
        if not more:
            raise EOFError("it ends too soon")
        data += more
    return data


def read_index(path: bytes) -> IndexFile:
    """Open an index file. Raises ``Damaged``, or ``OSError`` when it can't be read."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            raise Damaged("it is no regular file")
        return IndexFile(file, path, info.st_size, held=False, facts=read_facts(file, info.st_size))
    except BaseException:
        os.close(file)
        raise


def preamble(size: int, facts_at: int, facts: bytes) -> bytes:
    """The first bytes of a file of ``size`` bytes whose facts start at ``facts_at``."""
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    head = PREAMBLE.pack(MAGIC, VERSION, BYTE_ORDER_MARK, size, facts_at, b"")
    checksum = blake2b(head + facts, digest_size=32).digest()
    return PREAMBLE.pack(MAGIC, VERSION, BYTE_ORDER_MARK, size, facts_at, checksum)


def read_facts(file: int, size: int) -> Facts:
    """Read and check what an index says of itself. Raises ``Damaged``."""
    if size < PREAMBLE.size:
        raise Damaged("it is shorter than an index's first bytes")
    try:
        head = read_fully(file, PREAMBLE.size, 0)
        magic, version, mark, whole, facts_at, _ = PREAMBLE.unpack(head)
        if magic != MAGIC or mark != BYTE_ORDER_MARK:
            raise Damaged("it is no index of standpipe's")
        if version != VERSION:
            raise Damaged(f"it has version {version}, this standpipe reads {VERSION}")
        if whole != size or not PREAMBLE.size <= facts_at < size or size - facts_at > MOST_FACTS_BYTES:
            raise Damaged(f"it has {size:,} bytes, and should have {whole:,}")
        text = read_fully(file, size - facts_at, facts_at)
    except EOFError as error:
        raise Damaged("it ends too soon") from error
    if preamble(size, facts_at, text) != head:
        raise Damaged("its checksum is wrong")
    import json  # with hashlib a tenth of what importing standpipe costs

    try:
        facts = _facts(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"its facts make no sense: {error!r}") from error
    _check(facts, facts_at)
    return facts


def facts_text(facts: Facts) -> bytes:
    """The facts as they stand in the file."""
    import json

    return json.dumps(asdict(facts)).encode()


def _facts(raw: dict[str, Any]) -> Facts:
    """Read the description from JSON. Raises ``TypeError`` for a value of a wrong type."""
    return Facts(
        kind=_of(str, raw["kind"]),
        options={_of(str, name): _of(bool, value) for name, value in raw["options"].items()},
        seen={_of(str, name): _of(int, value) for name, value in raw["seen"].items()},
        began_ns=_of(int, raw["began_ns"]),
        rows=_of(int, raw["rows"]),
        manifest=_of(str, raw["manifest"]),
        classes=None if raw["classes"] is None else tuple(_of(str, name) for name in raw["classes"]),
        empty=tuple(_of(int, label) for label in raw["empty"]),
        label=None if raw["label"] is None else _of(str, raw["label"]),
        outside=_of(int, raw["outside"]),
        columns={
            _of(str, name): Column(
                _of(str, value["dtype"]),
                tuple(_of(int, size) for size in value["shape"]),
                _of(str, value["origin"]),
            )
            for name, value in raw["columns"].items()
        },
        sections={
            _of(str, name): Section(
                _of(int, value["begin"]),
                _of(int, value["size"]),
                _of(str, value["key"]),
                _of(str, value["digest"]),
            )
            for name, value in raw["sections"].items()
        },
    )


def _of(kind: type[Any], value: object) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _check(facts: Facts, end: int) -> None:
    """Check that every section is inside the file and has the size that its rows need. Raises ``Damaged``."""
    for name, section in facts.sections.items():
        if not (PREAMBLE.size <= section.begin <= end and 0 <= section.size <= end):
            raise Damaged(f"its section {name} lies outside")
        if section.begin + _native.sealed_size(section.size) > end:
            raise Damaged(f"its section {name} lies outside")
        if len(section.key) != 16 or not set(section.key) <= set("0123456789abcdef"):
            raise Damaged(f"its section {name} has the key {section.key!r}")
    rows = {"places": PLACE.itemsize}
    if facts.label is not None:
        rows["labels"] = _item_bytes(facts.label, LABEL_DTYPES)
    for name, column in facts.columns.items():
        if not all(size > 0 for size in column.shape):
            raise Damaged(f"its column {name} has the shape {column.shape}")
        if name in RANGE and (column.dtype, column.shape, {*RANGE} <= {*facts.columns}) != ("<i8", (), True):
            raise Damaged(f"its column {name} is no half of a byte range")
        items = int(np.prod([1, *column.shape], dtype=object))
        rows[column_section(name)] = _item_bytes(column.dtype, COLUMN_DTYPES) * items
    if facts.kind == "folder" and not {"text", "folders", "folder_places", "folder_names"} <= set(
        facts.sections
    ):
        raise Damaged("it lacks a section")
    for name, row_bytes in rows.items():
        found = facts.sections.get(name)
        if facts.rows < 1 or found is None or found.size != facts.rows * row_bytes:
            raise Damaged(f"its section {name} has another size than {facts.rows} rows")


def _item_bytes(dtype: str, known: tuple[str, ...]) -> int:
    if dtype not in known:
        raise Damaged(f"it has values of the dtype {dtype!r}")
    return np.dtype(dtype).itemsize


def column_section(name: str) -> str:
    """The section that holds the column ``name``."""
    return f"column {name}"
