"""Read packed index files, by position. The format::

    preamble   64 bytes: magic, version, a mark of the byte order, the sizes, and a checksum of all facts
    sections   one after another: columns of n rows, and texts, in sealed blocks
    facts      JSON: what was indexed, its digest, the class names, the location of each section

Some sections belong to optional groups, which the facts name with a version. A reader ignores groups and versions that
it doesn't know. The groups:

    instances  version 1: ragged columns. ``ends of instances`` has a uint64 for each record: record i has the
               instances from the end of record i − 1, or 0, to its own end. ``instances of NAME`` has a value for
               each instance
    shapes     version 1: ``shapes of instances`` has points, x and y, float32 each, and ``ends of shapes of instances``
               the end of each instance's among them, uint64
    sizes      version 1: ``sizes`` has the height and width of each record's image in pixels, uint32 each
    texts      version 1: ``text of NAME`` has the texts of a field in UTF-8, one after another, and ``ends of text of
               NAME`` the end of each record's text among them, uint64
    checksums  version 1: ``crc32c of NAME`` has the CRC-32C of each record's bytes, uint32, for each byte field
    entropy    reserved for places inside JPEGs at which decoding can start

A file in another format is ``DamagedIndex`` and never used. The checksum covers preamble and facts. A sealed block
has 508 bytes of data and their CRC-32C, which is checked whenever the block is read. A section's digest
covers its data.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from types import UnionType
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np

from standpipe import _native
from standpipe.contracts import Paths
from standpipe.errors import StandpipeError
from standpipe.spec import AnyArray, ArraySpec, Int64Array, UInt8Array
from standpipe.system.files import NotRegularError, open_regular, read_all
from standpipe.system.paths import path_text

MAGIC = b"stndpipe"
VERSION = 5
BYTE_ORDER_MARK = 0x01020304
# Magic, version, byte order, size of the file, offset of the facts, checksum.
PREAMBLE = struct.Struct("=8sIIQQ32s")
MOST_FACTS_BYTES = 1 << 30
BYTES_AT_ONCE = 1 << 20
CHECKED_WHOLE_BYTES = 8 << 20  # up to this size, opening an index checks all of it, in up to 2 ms

PLACE = np.dtype("<u8")  # location of a path: offset in the low bits, length from bit LENGTH_SHIFT on
LABEL_DTYPES = ("<i8", "<i4", "<i2", "|i1")
HEADERS = "headers"  # section of tar shards: headers before an image's data, in blocks of 512 bytes, uint16
# Section of tar shards: records whose key an earlier one of the shard has, and that one.
REPEATED = "repeated"
SHARD_KINDS = ("tar", "tfrecord", "mds")
NEEDED_SECTIONS = {
    "folder": ("text", "folders", "folder_places", "folder_names"),
    **dict.fromkeys(SHARD_KINDS, ("text", "shards")),
}
GROUPS = {
    "instances": 1,
    "shapes": 1,
    "sizes": 1,
    "checksums": 1,
    "texts": 1,
}  # optional groups of sections, with the newest version that is read
OWN = "source"  # origin of a column that its source makes
ENDS = "ends of instances"
SHAPES, SHAPE_ENDS = "shapes of instances", "ends of shapes of instances"
POINT_BYTES = 8
SIZES = "sizes"
RANGE = ("image_offset", "image_length")  # columns with the byte range of each image in its file
COLUMN_DTYPES = (*LABEL_DTYPES, "<u8", "<u4", "<u2", "|u1", "<f8", "<f4", "<f2", "|b1")


# Location of data in a file: descriptor, offset, number of bytes, and the key of its sealed blocks, or None.
SectionPlace: TypeAlias = tuple[int, int, int, int | None]


class DamagedIndex(Exception):
    """A file isn't an index, or is damaged; the text says why."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of an index file: ``size`` bytes of data in sealed blocks.

    begin   offset of the first block in the file
    key     16 hex digits that the blocks' checksums depend on; random for each section of each file
    digest  BLAKE2 digest of the data, in hex
    """

    begin: int
    size: int
    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Column:
    """The description of an additional value of every record, or of every instance.

    dtype, shape  dtype and shape of one value; the dtype as NumPy's string, little-endian
    origin        the option of ``standpipe index`` that makes the column; empty if there is none; or ``OWN``
    """

    dtype: str
    shape: tuple[int, ...]
    origin: str

    @property
    def spec(self) -> ArraySpec:
        """The shape and dtype of one value."""
        return ArraySpec(self.shape, np.dtype(self.dtype).newbyteorder("="))


@dataclass(frozen=True, slots=True)
class Facts:
    """The description in an index file.

    kind       ``"list"``, ``"folder"``, a kind of shards or a kind of annotations
    options    options of the source that change what is indexed
    seen       sizes, times in ns and inodes, by which a changed list is recognised; numbers of folders and
               files
    began_ns   time at which reading them began, by this machine's clock
    rows       number of records
    manifest   digest of paths, order, labels and class names
    classes    class names by label, or None
    empty      labels of classes without a record
    label      dtype of the labels, or None
    outside    the first line of a list whose path is absolute or has a ``..``; 0: none
    columns    additional columns by name
    sections   sections by name
    encoded    byte fields whose byte ranges are in the sections ``place_sections``
    optional   versions of the optional groups of sections, by name: those in ``GROUPS``
    instances  ragged columns by name
    texts      names of the fields of texts

    The columns in ``RANGE`` aren't fields of a batch: they are the byte range of each image in its file.
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
    encoded: tuple[str, ...] = ()
    optional: Mapping[str, int] = field(default_factory=dict)
    instances: Mapping[str, Column] = field(default_factory=dict)
    texts: tuple[str, ...] = ()

    @property
    def added(self) -> dict[str, Column]:
        """The columns that the user added, which the data can't give again."""
        return {name: column for name, column in self.columns.items() if column.origin != OWN}

    @property
    def byte_fields(self) -> tuple[str, ...]:
        """The byte fields of a record: those of ``encoded``, or else the image, which is a file or a part of one."""
        return self.encoded or ("image",)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class IndexFile:
    """An open index. Its file is closed when this object is garbage-collected.

    file  descriptor
    path  the file's path; None: the file has no name, and disappears when it is closed
    size  size of the file in bytes
    held  True if the file is in memory
    """

    file: int
    path: bytes | None
    size: int
    held: bool
    facts: Facts

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.file)

    @property
    def instances(self) -> int:
        """The number of instances of all records; 0 without ragged columns."""
        for name, column in self.facts.instances.items():
            return self.facts.sections[instance_section(name)].size // column.spec.row_bytes
        return 0

    def place(self, section: str) -> SectionPlace:
        """Return the location of a section, for native code."""
        found = self.facts.sections[section]
        return self.file, found.begin, found.size, int(found.key, 16)

    def rows(self, section: str, dtype: str, shape: tuple[int, ...], indices: Int64Array) -> AnyArray:
        """Read the rows of a column for ``indices`` (n,) in any order: (n, *shape), native byte order."""
        kind = np.dtype(dtype)
        with self.told():
            data = _native.packed_rows(self.place(section), _row_bytes(kind, shape), indices)
        return data.view(kind).reshape(len(indices), *shape).astype(kind.newbyteorder("="), copy=False)

    def part(self, section: str, dtype: str, shape: tuple[int, ...], start: int, stop: int) -> AnyArray:
        """Read the rows [start, stop) of a column: (stop − start, *shape), native byte order."""
        kind = np.dtype(dtype)
        row_bytes = _row_bytes(kind, shape)
        with self.told():
            data = _native.packed_part(self.place(section), start * row_bytes, stop * row_bytes)
        return data.view(kind).reshape(stop - start, *shape).astype(kind.newbyteorder("="), copy=False)

    def parts(self, section: str, limits: Iterable[tuple[int, int]]) -> Paths:
        """Read the bytes between limits."""
        place = self.place(section)
        with self.told():
            return Paths.pack([_native.packed_part(place, *each).tobytes() for each in limits])

    def blocks(self, section: str) -> Iterator[UInt8Array]:
        """Yield a section's data in pieces."""
        place, size = self.place(section), self.facts.sections[section].size
        for at in range(0, size, BYTES_AT_ONCE):
            with self.told():
                block = _native.packed_part(place, at, min(at + BYTES_AT_ONCE, size))
            yield block

    def check(self) -> None:
        """Read all of a small index, to find damage early. Raises ``StandpipeError`` for damage."""
        for section in self.facts.sections if self.size <= CHECKED_WHOLE_BYTES else ():
            for _ in self.blocks(section):
                pass

    def told(self) -> _Told:
        """Return a context that turns errors of reading this index into ``StandpipeError`` with its path."""
        again = "the next run builds it again"
        if self.facts.added:
            again = f"build it again with its columns {', '.join(map(repr, self.facts.added))}"
        return _Told("the index" if self.path is None else path_text(self.path), again)


class _Told:
    """The context manager that ``IndexFile.told`` returns."""

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
    """Read ``size`` bytes from offset ``at``. Raises ``EOFError`` if the file ends before."""
    data = os.pread(file, size, at)
    if len(data) < size:
        rest = bytearray(size - len(data))
        read_all(file, memoryview(rest), at + len(data))
        data += rest
    return data


def read_index(path: bytes) -> IndexFile:
    """Open an index file. Raises ``DamagedIndex`` if it isn't an undamaged index, ``OSError`` if it can't be read."""
    try:
        file = open_regular(path)
    except (NotRegularError, IsADirectoryError) as error:
        raise DamagedIndex("it isn't a regular file") from error
    try:
        size = os.fstat(file).st_size
        return IndexFile(file, path, size, held=False, facts=read_facts(file, size))
    except BaseException:
        os.close(file)
        raise


def preamble(size: int, facts_at: int, facts: bytes) -> bytes:
    """Return the preamble of a file of ``size`` bytes whose facts start at ``facts_at``."""
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    head = PREAMBLE.pack(MAGIC, VERSION, BYTE_ORDER_MARK, size, facts_at, b"")
    checksum = blake2b(head + facts, digest_size=32).digest()
    return PREAMBLE.pack(MAGIC, VERSION, BYTE_ORDER_MARK, size, facts_at, checksum)


def read_facts(file: int, size: int) -> Facts:
    """Read and check the facts of an index. Raises ``DamagedIndex``."""
    if size < PREAMBLE.size:
        raise DamagedIndex("it is shorter than an index's preamble")
    try:
        head = read_fully(file, PREAMBLE.size, 0)
        magic, version, mark, whole, facts_at, _ = PREAMBLE.unpack(head)
        if magic != MAGIC or mark != BYTE_ORDER_MARK:
            raise DamagedIndex("it isn't an index of standpipe's")
        if version != VERSION:
            raise DamagedIndex(f"it has version {version}, this standpipe reads version {VERSION}")
        if whole != size or not PREAMBLE.size <= facts_at < size or size - facts_at > MOST_FACTS_BYTES:
            raise DamagedIndex(f"it has {size:,} bytes, but should have {whole:,}")
        text = read_fully(file, size - facts_at, facts_at)
    except EOFError as error:
        raise DamagedIndex("it ends too soon") from error
    if preamble(size, facts_at, text) != head:
        raise DamagedIndex("its checksum is wrong")
    import json  # imported here: with hashlib it takes a tenth of importing standpipe

    try:
        facts = _facts(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedIndex(f"its facts are invalid: {error!r}") from error
    _check(facts, facts_at)
    return facts


def facts_text(facts: Facts) -> bytes:
    """Return the facts as JSON, the form in which the file stores them."""
    import json

    return json.dumps(asdict(facts)).encode()


def _facts(raw: dict[str, Any]) -> Facts:
    """Make ``Facts`` of parsed JSON, without unknown optional groups. Raises ``TypeError`` for a wrong type."""
    groups = raw["optional"].items()
    known = {name: version for name, version in groups if 1 <= version <= GROUPS.get(name, 0)}
    instances = raw["instances"] if "instances" in known else {}
    texts = raw["texts"] if "texts" in known else []
    facts: Facts = _typed({**raw, "optional": known, "instances": instances, "texts": texts}, Facts)
    return facts


def _typed(value: Any, kind: Any) -> Any:
    """Return parsed JSON as an instance of ``kind``. Raises ``TypeError`` if a part has another type."""
    if type(value) is kind:
        return value
    origin, of = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _typed(value, of[0])
    if origin is tuple:
        return tuple(_typed(each, of[0]) for each in value)
    if origin is not None:
        return {_typed(name, of[0]): _typed(each, of[1]) for name, each in value.items()}
    if kind not in (Facts, Section, Column):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return kind(**{name: _typed(value[name], hint) for name, hint in _hints(kind).items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _check(facts: Facts, end: int) -> None:
    """Raise ``DamagedIndex`` unless every section is inside the file and has the size of its rows."""
    for name, section in facts.sections.items():
        if not (PREAMBLE.size <= section.begin <= end and 0 <= section.size <= end):
            raise DamagedIndex(f"its section {name} isn't inside the file")
        if section.begin + _native.sealed_size(section.size) > end:
            raise DamagedIndex(f"its section {name} isn't inside the file")
        if len(section.key) != 16 or not set(section.key) <= set("0123456789abcdef"):
            raise DamagedIndex(f"its section {name} has the invalid key {section.key!r}")
    rows = {"places": PLACE.itemsize}
    if facts.label is not None:
        rows["labels"] = _item_bytes(facts.label, LABEL_DTYPES)
    for name, column in facts.columns.items():
        if name in RANGE and (column.dtype, column.shape, {*RANGE} <= {*facts.columns}) != ("<i8", (), True):
            raise DamagedIndex(f"its column {name} isn't half of a byte range")
        rows[column_section(name)] = _value_bytes(name, column)
    for name in facts.encoded:
        rows |= dict.fromkeys(place_sections(name), 8)
    if not set(NEEDED_SECTIONS.get(facts.kind, ())) <= set(facts.sections):
        raise DamagedIndex("it lacks a section")
    if facts.kind == "tar":
        rows[HEADERS] = 2
        repeated = facts.sections.get(REPEATED)
        if (0 if repeated is None else repeated.size) != 16 * facts.seen.get(REPEATED, 0):
            raise DamagedIndex("its repeated keys have another size")
    of_bytes = (*facts.encoded, *facts.texts)
    if facts.kind in SHARD_KINDS and (not facts.encoded or {*of_bytes} & {*facts.columns, "label"}):
        raise DamagedIndex(f"its records have the fields {of_bytes}")
    for name in facts.texts:
        text, ends = text_sections(name)
        rows[ends] = 8
        if text not in facts.sections:
            raise DamagedIndex(f"it lacks the section {text}")
    if "checksums" in facts.optional:
        rows |= dict.fromkeys(map(checksum_section, facts.byte_fields), 4)
    if "sizes" in facts.optional:
        rows[SIZES] = 8
    if "instances" in facts.optional:
        rows[ENDS] = 8
        _check_instances(facts)
    for name, row_bytes in rows.items():
        found = facts.sections.get(name)
        if facts.rows < 1 or found is None or found.size != facts.rows * row_bytes:
            raise DamagedIndex(f"its section {name} doesn't have the size of {facts.rows} rows")


def _check_instances(facts: Facts) -> None:
    """Raise ``DamagedIndex`` unless all ragged columns have the same number of instances."""
    numbers = set()
    for name, column in facts.instances.items():
        section, value_bytes = facts.sections.get(instance_section(name)), _value_bytes(name, column)
        if section is None or section.size % value_bytes:
            raise DamagedIndex(
                f"its section {instance_section(name)} isn't of {value_bytes} bytes an instance"
            )
        numbers.add(section.size // value_bytes)
    if "shapes" in facts.optional:
        ends = facts.sections.get(SHAPE_ENDS)
        if ends is None or SHAPES not in facts.sections or ends.size % 8:
            raise DamagedIndex("it lacks the shapes of instances")
        numbers.add(ends.size // 8)
    if len(numbers) != 1 or {*facts.instances} & {"image", "label", *facts.encoded, *facts.columns}:
        raise DamagedIndex(f"its instances have the columns {(*facts.instances,)}, of {numbers} instances")


def _value_bytes(name: str, column: Column) -> int:
    if not all(size > 0 for size in column.shape):
        raise DamagedIndex(f"its column {name} has the shape {column.shape}")
    return _item_bytes(column.dtype, COLUMN_DTYPES) * int(np.prod([1, *column.shape], dtype=object))


def _item_bytes(dtype: str, known: tuple[str, ...]) -> int:
    if dtype not in known:
        raise DamagedIndex(f"it has values of the unknown dtype {dtype!r}")
    return np.dtype(dtype).itemsize


def place_sections(name: str) -> tuple[str, str]:
    """Return the names of the sections with the offset and the length of a byte field in its file, int64 each."""
    return f"offset of {name}", f"length of {name}"


def text_sections(name: str) -> tuple[str, str]:
    """Return the names of the sections with a field's texts, and with the end of each record's, uint64."""
    return f"text of {name}", f"ends of text of {name}"


def checksum_section(name: str) -> str:
    """Return the name of the section with the CRC-32C of a byte field, uint32 each."""
    return f"crc32c of {name}"


def column_section(name: str) -> str:
    """Return the name of the section of a column."""
    return f"column {name}"


def instance_section(name: str) -> str:
    """Return the name of the section of a ragged column."""
    return f"instances of {name}"
