"""The contract of a source: which records exist, and where the bytes and numbers of each are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from standpipe.spec import AnyArray, ArraySpec, Int64Array, Listed, RaggedSpec, UInt8Array


@dataclass(frozen=True, slots=True)
class Paths:
    """n byte strings in two arrays, without a Python object for each: file paths, or texts in UTF-8.

    Attributes
    ----------
    blob : ndarray
        (total_bytes,) uint8: the bytes one after another; of paths, as the file system has them.
    ends : ndarray
        (n,) int64: string i is ``blob[ends[i - 1]:ends[i]]``, from 0 for i = 0.

    Examples
    --------
    >>> from standpipe.contracts import Paths
    >>> paths = Paths.pack([b"/a/b.jpg", b"/c.jpg"])
    >>> paths.ends, bytes(paths.blob[8:14])
    (array([ 8, 14]), b'/c.jpg')
    """

    blob: UInt8Array
    ends: Int64Array

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> bytes:
        start = 0 if row == 0 else int(self.ends[row - 1])
        return self.blob[start : int(self.ends[row])].tobytes()

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.blob.nbytes + self.ends.nbytes

    def take(self, rows: Int64Array) -> Paths:
        """Return the strings number ``rows``, (n,) int64, in that order, in new arrays."""
        places, ends = places_in_ranges(np.where(rows > 0, self.ends[rows - 1], 0), self.ends[rows])
        return Paths(self.blob[places], ends)

    def texts(self) -> list[str]:
        """Return each string as a text. Bytes that aren't UTF-8 become surrogates, as in ``os.fsdecode``."""
        data, ends = self.blob.tobytes(), self.ends.tolist()
        return [
            data[begin:end].decode("utf-8", "surrogateescape")
            for begin, end in zip([0, *ends], ends, strict=False)
        ]

    @classmethod
    def pack(cls, strings: list[bytes]) -> Paths:
        """Return ``Paths`` with a list's byte strings."""
        ends = np.cumsum([len(string) for string in strings], dtype=np.int64)
        return cls(np.frombuffer(b"".join(strings), np.uint8), ends)

    @classmethod
    def merged(cls, parts: Sequence[Paths], order: Int64Array) -> Paths:
        """Return strings of several parts; ``order`` as for ``RaggedRows.merged``."""
        shifts = np.cumsum([0, *(len(part.blob) for part in parts[:-1])])
        ends = np.concatenate([part.ends + shift for part, shift in zip(parts, shifts, strict=True)])
        return cls(np.concatenate([part.blob for part in parts]), ends).take(order)


def places_in_ranges(begins: Int64Array, stops: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return all numbers in the ranges [begins[i], stops[i]), one range after another, and the end of each there."""
    lengths = stops - begins
    ends = np.cumsum(lengths)
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0), ends


@dataclass(frozen=True, slots=True)
class Files:
    """A byte field: the places of n encoded records. One file may hold many records.

    Attributes
    ----------
    paths : Paths
        n absolute paths.
    offset : ndarray
        (n,) int64: the first byte inside the file.
    length : ndarray
        (n,) int64: the number of bytes; -1 reads to the end of the file. A file of which parts are read stays
        open for the next ones.
    file_bytes, mtime_ns : ndarray or None
        (n,) int64 each: the size in bytes and the modification time in nanoseconds of the whole file, when
        the source noted the offsets; -1 if unknown. A record of a file that has changed since then is a
        ``ReadError``. None: unknown for all files.
    crc32c : ndarray or None
        (n,) int64: the CRC-32C of each record's bytes when the source noted it; -1 if unknown. A record whose bytes
        have another one is a ``ReadError``. None: unknown for all records.
    fetched : Files, optional
        Of paths that are URLs: where the engine has put the bytes. Sources leave it out.

    Examples
    --------
    >>> files = sp.ImageFolder("photos").open().locate(np.array([0])).files["image"]
    >>> files.offset, files.length
    (array([0]), array([-1]))
    """

    paths: Paths
    offset: Int64Array
    length: Int64Array
    file_bytes: Int64Array | None = None
    mtime_ns: Int64Array | None = None
    crc32c: Int64Array | None = None
    fetched: Files | None = None

    def take(self, rows: Int64Array) -> Files:
        """Return the entries number ``rows``, (n,) int64, in that order."""
        size, time, crc32c = (
            None if each is None else each[rows] for each in (self.file_bytes, self.mtime_ns, self.crc32c)
        )
        fetched = None if self.fetched is None else self.fetched.take(rows)
        return Files(self.paths.take(rows), self.offset[rows], self.length[rows], size, time, crc32c, fetched)


@dataclass(frozen=True, slots=True)
class Rows:
    """A field in memory: rows of one array or of several, which the engine copies or transforms.

    Attributes
    ----------
    array : ndarray
        (rows, …), any numeric dtype of the machine's byte order, C order: the whole data set, or only these n
        records, if the source read them for this call.
    rows : ndarray
        (n,) int64: the row of ``array`` for each record; -1 for a record in one of ``others``.
    others : tuple of (ndarray, ndarray)
        Further arrays with rows of the same shape and dtype. Each record is in exactly one array.

    Examples
    --------
    >>> from standpipe.contracts import Rows
    >>> field = Rows(np.arange(6.0).reshape(3, 2), np.array([2, 0]))
    >>> field.array[field.rows]
    array([[4., 5.],
           [0., 1.]])
    """

    array: AnyArray
    rows: Int64Array
    others: tuple[Rows, ...] = ()

    def take(self, rows: Int64Array) -> Rows:
        """Return the entries number ``rows`` of this object, (n,) int64, in that order. Arrays aren't copied."""
        return Rows(self.array, self.rows[rows], tuple(other.take(rows) for other in self.others))

    @property
    def parts(self) -> tuple[Rows, ...]:
        """This object and ``others``: one ``Rows`` per array."""
        return (self, *self.others)


@dataclass(frozen=True, slots=True)
class RaggedRows:
    """A field with any number of values per record, such as boxes: the values of n records, one after another.

    Attributes
    ----------
    values : ndarray
        (total, …): the values of all instances, any numeric dtype of the machine's byte order.
    ends : ndarray
        (n,) int64: record i has the values ``values[ends[i - 1]:ends[i]]``, from 0 for i = 0. They are the same
        for all ragged fields: one instance is one value of each.

    Examples
    --------
    >>> from standpipe.contracts import RaggedRows
    >>> field = RaggedRows(np.array([5, 6, 7]), np.array([2, 2, 3]))
    >>> field.take(np.array([2, 0]))
    RaggedRows(values=array([7, 5, 6]), ends=array([1, 3]))
    """

    values: AnyArray
    ends: Int64Array

    def take(self, rows: Int64Array) -> RaggedRows:
        """Return the values of the records number ``rows`` of this object, (n,) int64, in that order."""
        places, ends = places_in_ranges(np.where(rows > 0, self.ends[rows - 1], 0), self.ends[rows])
        return RaggedRows(self.values[places], ends)

    def where(self, kept: NDArray[np.bool_]) -> RaggedRows:
        """Return the records with their values where ``kept``, (n,), is True, and without values elsewhere."""
        counts = np.diff(self.ends, prepend=0)
        return RaggedRows(self.values[np.repeat(kept, counts)], np.cumsum(counts * kept))

    @classmethod
    def merged(cls, parts: Sequence[RaggedRows], order: Int64Array) -> RaggedRows:
        """Return records of several parts.

        order  (n,) int64: the place of each record among the records of all parts, one part after another
        """
        shifts = np.cumsum([0, *(len(part.values) for part in parts[:-1])])
        ends = np.concatenate([part.ends + shift for part, shift in zip(parts, shifts, strict=True)])
        return cls(np.concatenate([part.values for part in parts]), ends).take(order)


@dataclass(frozen=True, slots=True)
class Records:
    """n records in columns. Each field is in exactly one of ``files``, ``rows``, ``plain``, ``ragged`` and ``texts``.

    Attributes
    ----------
    index : ndarray
        (n,) int64: the records' numbers in their source.
    files : mapping of str to Files
        Byte fields, which the engine reads. It decodes the field ``image``.
    rows : mapping of str to Rows
        Fields in memory. Transforms take ``image``, (H, W) or (H, W, C) uint8.
    plain : mapping of str to ndarray
        Small values, (n, …) each, such as labels.
    ragged : mapping of str to RaggedRows
        Values of instances, such as boxes. All have the same ``ends``.
    sizes : ndarray, optional
        (n, 2) int64: height and width in pixels of the images that the instances are in. A file of another size is
        a bad sample. Sources with ``boxes`` or ``keypoints`` have it.
    texts : mapping of str to Paths
        Texts in UTF-8, such as captions. A batch has a list of str of each.
    shapes : RaggedRows, optional
        The shapes of the instances of ``ragged``, one after another, of which masks are drawn: points (total, 2)
        float32, x and y in pixels, and the end of each instance's. A shape has rings, each ended by a point of NaN.
        It is filled where they wind around a place.

    Examples
    --------
    >>> records = sp.Arrays(x=np.arange(10)).open().locate(np.array([3, 4]))
    >>> records.index, sorted({*records.rows, *records.plain})
    (array([3, 4]), ['x'])
    """

    index: Int64Array
    files: Mapping[str, Files] = field(default_factory=dict)
    rows: Mapping[str, Rows] = field(default_factory=dict)
    plain: Mapping[str, AnyArray] = field(default_factory=dict)
    ragged: Mapping[str, RaggedRows] = field(default_factory=dict)
    sizes: Int64Array | None = None
    texts: Mapping[str, Paths] = field(default_factory=dict)
    shapes: RaggedRows | None = None

    def take(self, rows: Int64Array) -> Records:
        """Return the records number ``rows`` of this object, (n,) int64, in that order."""
        return Records(
            self.index[rows],
            {name: files.take(rows) for name, files in self.files.items()},
            {name: column.take(rows) for name, column in self.rows.items()},
            {name: values[rows] for name, values in self.plain.items()},
            {name: values.take(rows) for name, values in self.ragged.items()},
            None if self.sizes is None else self.sizes[rows],
            {name: texts.take(rows) for name, texts in self.texts.items()},
            None if self.shapes is None else self.shapes.take(self._instances(rows)),
        )

    def _instances(self, rows: Int64Array) -> Int64Array:
        """Return the numbers of the instances of the records ``rows``."""
        ends = next(iter(self.ragged.values())).ends
        return places_in_ranges(np.where(rows > 0, ends[rows - 1], 0), ends[rows])[0]


@dataclass(frozen=True, slots=True)
class Encoded:
    """The kind of a byte field before it is decoded. Its shape is known when its header is read.

    Attributes
    ----------
    kind : str
        ``"image"``; ``"file"`` for other bytes, such as a text, which a function gets as they are.

    Examples
    --------
    >>> sp.ImageFolder("photos").open().fields["image"]
    Encoded(kind='image')
    """

    kind: str = "image"

    def __str__(self) -> str:
        return f"encoded {self.kind}"


FieldSpec = ArraySpec | Encoded | RaggedSpec | Listed


class OpenSource(Protocol):
    """A source whose metadata has been read: it knows its records.

    The engine calls it from its own threads, in the process that trains. It doesn't check the class. The
    protocols ``KeepsIndex``, ``HasInstances``, ``HasMasks``, ``SkipsFiles``, ``RepeatsKeys``, ``KnownHere``,
    ``ReadsRecords``, ``PythonSource`` and ``StreamSource`` are optional: a source satisfies one
    of them by having its attributes.

    Examples
    --------
    >>> source = sp.ImageFolder("photos").open()
    >>> source.num_records, source.name(0).endswith("000.jpg"), source.classes
    (24, True, ('cat', 'dog'))
    >>> source.locate(np.array([0, 1])).plain["label"]
    array([0, 0])
    """

    @property
    def num_records(self) -> int:
        """The number of records, at least one."""

    @property
    def fields(self) -> Mapping[str, FieldSpec]:
        """The fields of a record by name.

        They are ``ArraySpec`` for numbers, ``Encoded`` for byte fields, ``RaggedSpec`` for values of instances, and
        ``Listed("str", …)`` for texts, with their mean number of bytes.

        The batch place adds ``index`` itself.
        """

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of values that need no decoding: one number per record, such as ``label``.

        Selections, filters, balancing and budgets use them.
        """

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Return one of ``columns`` for the records [start, stop), (stop − start,) of any numeric dtype.

        The engine asks for pieces, so a column need not fit into memory. Thread-safe. Raises ``KeyError`` for
        another name, ``IndexError`` for records that don't exist.
        """

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label, or None when labels are plain numbers or absent.

        A number that no class has, between others, has the name ``""``.
        """

    @property
    def digest(self) -> str:
        """Hex digest of the manifest, 32 digits or more: equal when records, their order and labels are the same.

        A data set may move: leave its folder out.
        """

    @property
    def index_bytes(self) -> int:
        """Bytes of this process's memory that the index takes. A plan's forecast counts them."""

    def locate(self, indices: Int64Array) -> Records:
        """Return where the records ``indices``, (n,) int64, are stored: one batch or a few thousand records.

        Thread-safe; indices may repeat, come in any order, and be none. Encoded bytes are named here and read
        later, by other threads. Numbers that need no decoding may be read here, by position.
        Raises ``StandpipeError`` where that fails.
        """

    def name(self, index: int) -> str | None:
        """Return a printable name of one record for messages, such as its path, or None."""


@runtime_checkable
class KeepsIndex(Protocol):
    """An ``OpenSource`` whose records are listed in a packed index file."""

    @property
    def index_note(self) -> str:
        """One line for ``explain()``: where the index is, and its size."""


@runtime_checkable
class HasInstances(Protocol):
    """An ``OpenSource`` with ragged fields, whose ``Records`` have ``sizes``."""

    @property
    def most_instances(self) -> int:
        """The largest number of instances of a record."""

    @property
    def num_instances(self) -> int:
        """The number of instances of all records."""

    @property
    def flip_pairs(self) -> tuple[tuple[int, int], ...] | None:
        """Numbers of left and right keypoints, which swap where an image is mirrored; None if they aren't known."""

    @property
    def skeleton(self) -> tuple[tuple[int, int], ...]:
        """Numbers of keypoints between which ``show`` draws lines; empty if they aren't known."""


@runtime_checkable
class HasMasks(Protocol):
    """An ``OpenSource`` whose ``Records`` may have ``shapes`` of instances."""

    @property
    def has_masks(self) -> bool:
        """True if they have shapes."""


@runtime_checkable
class SkipsFiles(Protocol):
    """An ``OpenSource`` that left out files which look like records."""

    def skipped(self) -> Iterator[str]:
        """Yield the printable path of each file that was left out."""


@runtime_checkable
class RepeatsKeys(Protocol):
    """An ``OpenSource`` of named records, in which names may come again, as in tar shards."""

    def repeated(self) -> Iterator[tuple[int, int]]:
        """Yield each record whose name an earlier record of its file has, and that record."""


@runtime_checkable
class KnownHere(Protocol):
    """An ``OpenSource`` whose digest ignores the location of its files. ``here()`` returns the location."""

    def here(self) -> str:
        """Return a text with the location of the files, and anything else that the digest leaves out.

        This may read whole arrays in memory.
        """


@runtime_checkable
class ReadsRecords(Protocol):
    """An ``OpenSource`` whose ``locate()`` reads records into memory, which it holds until their batch is
    made.

    Examples
    --------
    >>> from standpipe.contracts import ReadsRecords
    >>> np.arange(80, dtype=np.uint8).tofile("records.bin")
    >>> layout = np.dtype([("label", np.uint8), ("x", np.uint8, 7)])
    >>> source = sp.FixedRecords("records.bin", fields=layout).open()
    >>> isinstance(source, ReadsRecords), source.num_records
    (True, 10)
    """

    @property
    def record_bytes(self) -> int:
        """Bytes of memory that a record takes when ``locate()`` has read it.

        The forecast counts them for each row.
        """


@runtime_checkable
class Source(Protocol):
    """A description of where records come from. Its constructor stores arguments and touches no file.

    An attribute ``upright = True`` says that photos are turned as EXIF says, unless ``decode(orientation=…)`` says
    otherwise.

    Examples
    --------
    >>> from standpipe.contracts import Source
    >>> isinstance(sp.ImageFolder("photos"), Source)
    True
    >>> sp.ImageFolder("photos").open().num_records
    24
    """

    def open(self) -> OpenSource:
        """Read the metadata, once: list a folder, open an index, read an array's header.

        Raises ``PlanError`` when there is nothing to read. The message says what to do about it.
        """

    def describe(self) -> str:
        """Return one line about this source for ``explain()``."""


@runtime_checkable
class PythonSource(Protocol):
    """An ``OpenSource`` whose samples Python code makes, one at a time, in a worker."""

    @property
    def dataset(self) -> Any:
        """An object whose ``dataset[index]`` is a sample."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields of a sample that is a tuple, in the tuple's order."""

    @property
    def shares_lists(self) -> bool:
        """True if long lists inside the dataset are packed into memory that worker processes share."""

    @property
    def declared(self) -> Mapping[str, ArraySpec] | None:
        """Shape and dtype of samples, by field; None: the loader measures them on one sample."""


@runtime_checkable
class StreamSource(Protocol):
    """A ``PythonSource`` whose samples come one after another."""

    @property
    def length(self) -> int | None:
        """The number of samples per epoch and rank; None if it is unknown before the stream's end."""

    def of_rank(self, rank: int, world_size: int) -> Any:
        """Return an object whose ``sample(epoch, place)`` returns sample number ``place`` of a rank's part,
        from 0.

        Raises ``PlanError`` if the stream can't be divided among ranks.
        """


def check_part(source: OpenSource, name: str, start: int, stop: int) -> None:
    """Raise ``KeyError`` if a source has no such column, ``IndexError`` if it lacks some records of [start, stop)."""
    if name not in source.columns:
        raise KeyError(name)
    if not 0 <= start <= stop <= source.num_records:
        raise IndexError(f"records [{start}, {stop}) of {source.num_records}")
