"""The architecture on one page: what each of the six places promises to the others.

::

    source  →  order  →  read  →  transform  →  batch  →  device

A place never imports another place; it is given the facts it needs, in the types below. Everything here is
about many rows at once: nothing in these contracts is called once per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from standpipe.spec import AnyArray, Int64Array, Layout, Spec, UInt8Array


@dataclass(frozen=True, slots=True)
class Paths:
    """n file paths in two arrays, so that a million of them are no Python objects.

    blob  (total_bytes,) uint8: the paths' bytes one after another, as the file system has them
    ends  (n,) int64: path i is ``blob[ends[i - 1]:ends[i]]`` (from 0 for i = 0)
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
        """The paths of ``rows`` (n,) int64, in that order, as arrays of their own."""
        stops = self.ends[rows]
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        lengths = stops - starts
        ends = np.cumsum(lengths)
        bytes_from = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        return Paths(self.blob[bytes_from], ends)

    @classmethod
    def pack(cls, paths: list[bytes]) -> Paths:
        """Pack a list of byte strings."""
        ends = np.cumsum([len(path) for path in paths], dtype=np.int64)
        return cls(np.frombuffer(b"".join(paths), np.uint8), ends)


@dataclass(frozen=True, slots=True)
class Files:
    """A byte field: where the encoded bytes of n records are.

    paths   n paths, absolute or relative to the process's working directory
    offset  (n,) int64: first byte inside the file
    length  (n,) int64: number of bytes; -1: to the end of the file
    """

    paths: Paths
    offset: Int64Array
    length: Int64Array

    def take(self, rows: Int64Array) -> Files:
        """Those of ``rows`` (n,) int64, in that order."""
        return Files(self.paths.take(rows), self.offset[rows], self.length[rows])


@dataclass(frozen=True, slots=True)
class Rows:
    """A field that lies in memory: rows of one array or of a few, to be copied or transformed by the engine.

    array   (records, …), any numeric dtype, C order
    rows    (n,) int64: which rows of ``array`` the n records are; −1 for those that lie in one of ``others``
    others  further arrays with rows of the same shape and dtype; each record is in exactly one array
    """

    array: AnyArray
    rows: Int64Array
    others: tuple[Rows, ...] = ()

    def take(self, rows: Int64Array) -> Rows:
        """Those of ``rows`` (n,) int64, in that order."""
        return Rows(self.array, self.rows[rows], tuple(other.take(rows) for other in self.others))

    @property
    def parts(self) -> tuple[Rows, ...]:
        """The arrays, one by one."""
        return (self, *self.others)


@dataclass(frozen=True, slots=True)
class Records:
    """n records in columns. A record may have several fields of each kind.

    index  (n,) int64: the records' numbers in their source
    files  byte fields by name, read by the read place
    rows   fields in memory by name
    plain  small values by name, (n, …) each, already gathered (label, id, …)
    """

    index: Int64Array
    files: Mapping[str, Files] = field(default_factory=dict)
    rows: Mapping[str, Rows] = field(default_factory=dict)
    plain: Mapping[str, AnyArray] = field(default_factory=dict)

    def take(self, rows: Int64Array) -> Records:
        """Those of ``rows`` (n,) int64, in that order."""
        return Records(
            self.index[rows],
            {name: files.take(rows) for name, files in self.files.items()},
            {name: column.take(rows) for name, column in self.rows.items()},
            {name: values[rows] for name, values in self.plain.items()},
        )


@dataclass(frozen=True, slots=True)
class Encoded:
    """What a byte field is before it is decoded. Its shape is known only when its header is read.

    kind  ``"image"``
    """

    kind: str = "image"

    def __str__(self) -> str:
        return f"encoded {self.kind}"


class OpenSource(Protocol):
    """A source whose metadata has been read: what exists. No sample bytes are read through it."""

    @property
    def num_records(self) -> int:
        """How many records there are."""

    @property
    def fields(self) -> Mapping[str, Spec | Encoded]:
        """Every field a record has, by name. ``index`` is added by the batch place and is none of them."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what is known of every record without reading a sample: one number each, such as ``label``."""

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """One of ``columns`` for the records [start, stop), (stop − start,) of any numeric dtype.

        Asked in pieces, so that nobody needs it whole. Thread-safe. ``KeyError`` for another name,
        ``IndexError`` for records that don't exist.
        """

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by label, or None when labels are plain numbers or absent."""

    @property
    def digest(self) -> str:
        """Hex digest of the manifest: equal exactly when records, their order and labels are the same."""

    @property
    def index_bytes(self) -> int:
        """Memory the index takes in this process."""

    def locate(self, indices: Int64Array) -> Records:
        """Say where the records ``indices`` (n,) int64 are. Thread-safe; indices may repeat."""

    def name(self, index: int) -> str | None:
        """A printable name of one record for messages (its path), or None."""


@runtime_checkable
class KeepsIndex(Protocol):
    """An ``OpenSource`` whose records stand in a packed index, which lies in a file."""

    @property
    def index_note(self) -> str:
        """Where the index is, and its size: one line for ``explain()``."""

    @property
    def descriptors(self) -> int:
        """Files it holds open."""


@runtime_checkable
class SkipsFiles(Protocol):
    """An ``OpenSource`` that found files which look like records and can't be any."""

    def skipped(self) -> Iterator[str]:
        """Their paths, printable."""


@runtime_checkable
class KnownHere(Protocol):
    """An ``OpenSource`` whose digest, the same on every machine, doesn't tell it from all others on this one."""

    def here(self) -> str:
        """What does that: where its files are, and what the digest left out. Arrays in memory may be read for it."""


@runtime_checkable
class Source(Protocol):
    """A description of where records come from. Constructing it touches nothing."""

    def open(self) -> OpenSource:
        """Read the metadata, once: list a folder, open an index, read an array's header.

        Raises ``PlanError`` when there is nothing to read, with what to do about it.
        """

    def describe(self) -> str:
        """One line for ``explain()``."""


@runtime_checkable
class PythonSource(Protocol):
    """What an ``OpenSource`` is beside that when Python code gives its samples: in a worker, one at a time."""

    @property
    def dataset(self) -> Any:
        """An object whose ``dataset[index]`` is a sample."""

    @property
    def names(self) -> tuple[str, ...]:
        """Fields of a sample that is a tuple, in its order."""

    @property
    def packs(self) -> bool:
        """Whether long lists inside the dataset are packed on the way to other processes."""

    @property
    def declared(self) -> Mapping[str, Spec] | None:
        """What samples look like, by field, or None: that is measured on one."""


@runtime_checkable
class StreamSource(Protocol):
    """What a ``PythonSource`` is beside that when its samples come one after another."""

    @property
    def length(self) -> int | None:
        """Samples of an epoch and a rank; None: not known before its end."""

    def of_rank(self, rank: int, world: int) -> Any:
        """An object whose ``sample(epoch, place)`` gives a rank's samples. Raises ``PlanError``."""


@runtime_checkable
class Order(Protocol):
    """Which record comes when: a pure function of (epoch, position)."""

    @property
    def num_positions(self) -> int:
        """Positions in one epoch's global order."""

    def indices(self, epoch: int, start: int, stop: int) -> Int64Array:
        """Record numbers of positions [start, stop) of an epoch, (stop − start,) int64. O(stop − start)."""

    def describe(self) -> str:
        """One line for ``explain()``."""


@runtime_checkable
class Transform(Protocol):
    """A description of what happens to a sample. It names the fields it reads and writes."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the fields it reads."""

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the fields it writes."""

    def describe(self) -> str:
        """One line for ``explain()`` and the recipe's digest: the class and every parameter."""


class Kernel(Protocol):
    """Adjacent transforms made one: encoded bytes or (H, W, 3) uint8 rows in, rows of the slot out."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the fields it reads from the records."""

    @property
    def outputs(self) -> Mapping[str, Spec]:
        """The fields of the slot it fills, with what one row of each looks like."""

    def describe(self) -> str:
        """One line for ``explain()``."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The last step of an image: each byte of (H, W, 3) becomes a number, and axes take their order.

    field   name of the field
    table   (3, 256) of 16 or 32 bits: what the bytes of each channel become
    output  what an image is then
    layout  the order of its axes
    """

    field: str
    table: AnyArray
    output: Spec
    layout: Layout


@dataclass(frozen=True, slots=True)
class Mix:
    """What was drawn to mix a batch: each row with the one before it, the first with the last.

    image, label  names of fields
    classes       how many there are
    share         of a row's own label in its new one; without a box, of its own image too
    box           top, left, bottom, right: pixels that come from the other image; None: all are weighted means
    planar        whether images are (channels, H, W)
    """

    image: str
    label: str
    classes: int
    share: float
    box: tuple[int, int, int, int] | None
    planar: bool


@dataclass(frozen=True, slots=True)
class SlotField:
    """What a field takes in a slot.

    nbytes  at most
    dtype   of its numbers
    """

    nbytes: int
    dtype: np.dtype[np.generic]


@runtime_checkable
class Device(Protocol):
    """A description of where the training step sees a batch. Planning with it starts nothing."""

    @property
    def lends(self) -> bool:
        """Whether slots themselves go to the caller: then there may be more of them while he holds some."""

    @property
    def mixes(self) -> bool:
        """Whether batches are mixed there."""

    def writes(self, finish: Finish) -> Finish | None:
        """How kernels finish images in slots, where the pipeline says ``finish``; None: they leave the bytes."""

    def cpus(self) -> frozenset[int] | None:
        """CPUs that are near it, where others are farther; None where all are alike, or nobody knows."""

    def check(self) -> None:
        """Raise ``PlanError`` where there is no such device."""

    def describe(self, fields: Mapping[str, SlotField], finish: Finish | None) -> Sequence[str]:
        """Lines for ``explain()``."""

    def open(self, fields: Mapping[str, SlotField], finish: Finish | None) -> OpenDevice:
        """What brings batches there."""


class OpenDevice(Protocol):
    """Brings batches from slots to where the training step sees them. Called by one thread at a time."""

    @property
    def copying_s(self) -> float:
        """Seconds that copies took beside the host: of batches that were taken, as far as that is known."""

    def send(self, slot: int, memory: UInt8Array, batch: Mapping[str, Any]) -> bool:
        """Begin to bring the batch of a slot that is ready, before anybody asks for it.

        memory  the slot's
        batch   arrays, most of them in that memory

        Whether it is on its way; if not, for want of room, that changes with the next ``take``.
        """

    def take(
        self, slot: int, memory: UInt8Array, batch: Mapping[str, Any], mixes: Sequence[Mix]
    ) -> Mapping[str, Any]:
        """The batch as the training step sees it. The slot is free once nobody holds any part of ``batch``.

        mixes  what is done to it there, in this order: only where the device ``mixes``
        """

    def settle(self) -> bool:
        """Let go of slots whose batches were taken, as far as they aren't read any more; whether that is all.

        It waits for nothing.
        """

    def rest(self) -> None:
        """Forget what is on its way, and give back memory that batches which were taken don't need."""

    def close(self) -> bool:
        """Let go of the slots; False where it may read them yet, and they have to stay."""
