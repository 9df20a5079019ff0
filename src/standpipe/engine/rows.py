"""Describe the rows to make: their records, the source's values for them, and where results are written."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from standpipe.contracts import Files, RaggedRows, Records
from standpipe.engine.workers import CantWorkError, Failure
from standpipe.errors import PlanError, key_name
from standpipe.spec import BOXES_PX, KEY, SIZE, AnyArray, ArraySpec, Int64Array
from standpipe.system.paths import path_text

if TYPE_CHECKING:
    from standpipe.plan.plan import Plan

Sample = dict[str, Any]

END = "end"  # the place of a ``Failure`` that marks the end of a stream

Place = str  # "source", "read", "decode", "transform" or "batch"


class RowFailed(Exception):
    """Raised for a sample that can't be made.

    place   the place that found it, as in ``Failure``
    reason  the text of the error
    cause   the exception of the user's code; None without one
    path    the file or name that the dataset gave for the image's bytes; None without one
    offset  first byte in the file
    field   the field of those bytes
    """

    def __init__(self, place: Place, reason: str, cause: BaseException | None = None) -> None:
        super().__init__(place, reason)
        self.place, self.reason, self.cause = place, reason, cause
        self.path: str | None = None
        self.offset = 0
        self.field = "image"

    def failure(self, row: int) -> Failure:
        """Return this error as the failure of a row."""
        return Failure(
            row, self.place, self.reason, self.cause, path=self.path, offset=self.offset, field=self.field
        )


class CantWork(RowFailed):
    """Raised for a plan that can't work with any sample, so that replacing this sample wouldn't help."""

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(place, reason, CantWorkError(reason))

    def failure(self, row: int) -> Failure:
        """Return the failure of the whole batch."""
        return replace(super().failure(row), whole=True)


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """The location of a sample's encoded bytes: one row of ``contracts.Files``.

    path        path of the file
    offset      first byte in the file
    length      number of bytes
    file_bytes  size of the whole file when it was indexed
    mtime_ns    its modification time then
    crc32c      CRC-32C of the sample's bytes then
    named       its path and offset for messages, if ``path`` has fetched bytes; None: these

    -1 means what it means in ``contracts.Files``.
    """

    path: bytes
    offset: int
    length: int
    file_bytes: int = -1
    mtime_ns: int = -1
    crc32c: int = -1
    named: tuple[bytes, int] | None = field(default=None, kw_only=True)

    @property
    def name(self) -> tuple[str, int]:
        """The path and the offset for messages, printable."""
        path, offset = self.named or (self.path, self.offset)
        return path_text(path), offset


def as_range(positions: Int64Array) -> Sequence[int]:
    """Return consecutive positions as a range, which is faster to send than a list; other positions as a list.

    Positions aren't consecutive if padding starts again at 0.
    """
    span = range(int(positions[0]), int(positions[0]) + len(positions))
    return span if span[-1] == positions[-1] else positions.tolist()


def located(plan: Plan, indices: Int64Array) -> Records:
    """Return where the plan's source has some records.

    Raises ``PlanError`` if a field lacks a record's value: nothing would be written over the slot's older values.
    """
    records = plan.source.locate(indices)
    fields = plan.source.fields if plan.samples.python is None else {}
    for name, spec in fields.items():
        values, rows = records.plain.get(name), records.rows.get(name)
        if values is not None:
            fits = (
                isinstance(spec, ArraySpec)
                and values.shape == (len(indices), *spec.shape)
                and np.can_cast(values.dtype, spec.dtype, "safe")
            )
        elif rows is not None:
            fits = not rows.others or bool(np.all(sum(part.rows >= 0 for part in rows.parts) == 1))
        else:
            fits = name in records.files or (name in records.ragged and records.sizes is not None)
            fits |= name in records.texts and len(records.texts[name]) == len(indices)
        if not fits:
            raise PlanError(
                f"locate() of the source doesn't give {name!r}, {spec}, for each of {len(indices)} records. "
                "standpipe.contracts.check_source(source) says which promise it breaks"
            )
    return records


class Inputs:
    """The values that the source has for the records of a batch, row by row, such as labels and file names.

    boxes    the boxes that decide crops of the images, as in ``Traced``; None without any
    empty    True if the source has no values
    instead  values of rows whose record was replaced, by row number
    """

    def __init__(self, records: Records, boxes: RaggedRows | None = None) -> None:
        self.empty = not (records.files or records.rows or records.plain or records.texts)
        self.instead: dict[int, dict[str, Any]] = {}
        if self.empty:
            return
        self._files = {
            name: ((files.fetched or files).paths, _places(files.fetched or files))
            for name, files in records.files.items()
        }
        # Paths and offsets for messages.
        self._named = {
            name: (files.paths, files.offset.tolist())
            for name, files in records.files.items()
            if files.fetched is not None
        }
        self._rows = [
            (name, part.array, part.rows.tolist())
            for name, rows in records.rows.items()
            for part in rows.parts
        ]
        self._plain = {
            name: values.tolist() if values.ndim == 1 and values.dtype == np.int64 else values
            for name, values in records.plain.items()
        }
        self._plain |= {name: texts.texts() for name, texts in records.texts.items()}
        if records.sizes is not None:
            self._plain[SIZE] = [(height, width) for height, width in records.sizes.tolist()]
        if boxes is not None:
            self._plain[BOXES_PX] = np.split(boxes.values, boxes.ends[:-1])

    def part(self, first: int, stop: int) -> Inputs:
        """Return the values of rows [first, stop) as a copy that can be sent to another process."""
        if self.empty:
            return NO_INPUTS
        part = Inputs(Records(np.zeros(0, np.int64)))
        part.empty = False
        rows = slice(first, stop)
        chosen = np.arange(first, stop)
        part._plain = {name: values[rows] for name, values in self._plain.items()}
        part._files = {
            name: (paths.take(chosen), places[rows]) for name, (paths, places) in self._files.items()
        }
        part._named = {
            name: (paths.take(chosen), offsets[rows]) for name, (paths, offsets) in self._named.items()
        }
        part._rows = [(name, *_own_rows(array, numbers[rows])) for name, array, numbers in self._rows]
        part.instead = {row - first: self.instead[row] for row in self.instead if first <= row < stop}
        return part

    def row(self, row: int) -> dict[str, Any]:
        """Return the values of one row, by field."""
        if self.empty:
            return {}
        if row in self.instead:
            return dict(self.instead[row])
        inputs: dict[str, Any] = {name: values[row] for name, values in self._plain.items()}
        for name, (paths, places) in self._files.items():
            named = self._named.get(name)
            at = None if named is None else (named[0][row], named[1][row])
            inputs[name] = EncodedFile(paths[row], *places[row], named=at)
        for name, array, rows in self._rows:
            if rows[row] >= 0:  # -1: the row is in another array
                inputs[name] = array[rows[row]]
        return inputs

    def name(self, row: int, index: int) -> str | None:
        """Return the path of a row's file, or its dataset key as text; None if the row has neither.

        index  the record's number, which is the key if no other key is known
        """
        inputs = self.row(row)
        files = [inputs.get("image"), *inputs.values()]
        if (file := next((each for each in files if isinstance(each, EncodedFile)), None)) is not None:
            return file.name[0]
        (key,) = inputs.get(KEY, (index,))
        return None if isinstance(key, int) and key == index else key_name(key)


NO_INPUTS = Inputs(Records(np.zeros(0, np.int64)))


def _places(files: Files) -> list[tuple[int, ...]]:
    """Return offset, length, size of the file, modification time and CRC-32C, for each row."""
    columns = [
        [-1] * len(files.paths) if column is None else column.tolist()
        for column in (files.offset, files.length, files.file_bytes, files.mtime_ns, files.crc32c)
    ]
    return list(zip(*columns, strict=True))


def _own_rows(array: AnyArray, numbers: list[int]) -> tuple[AnyArray, list[int]]:
    """Copy the rows of ``array`` whose numbers are 0 or more.

    Return the copy, and for each number its row in the copy, or -1 for a negative number.
    """
    inside = [number for number in numbers if number >= 0]
    places = iter(range(len(inside)))
    return array[inside], [next(places) if number >= 0 else -1 for number in numbers]


@dataclass(slots=True)
class RowKey:
    """The identity of a sample: its record, and what determines its random numbers.

    index     the record's number
    epoch     the epoch
    position  the sample's position in the epoch
    attempt   0; 1 and more for a sample that replaces a bad one
    asked     a tuple with the key for ``dataset[key]``; None: the key is the record's number
    """

    index: int
    epoch: int
    position: int
    attempt: int = 0
    asked: tuple[Any] | None = None


@dataclass(slots=True)
class PartOfRows:
    """Some rows of a batch, in the form that is sent to a worker process.

    segment     number of the plan's segment
    indices     (rows) record numbers
    positions   (rows) positions in the epoch's global order
    attempts    (rows) 0; 1 and more for a record that replaces a bad one
    inputs      the source's values for each row
    """

    epoch: int
    segment: int
    indices: list[int]
    positions: Sequence[int]
    attempts: list[int]
    inputs: Inputs

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle numbers as bytes, which takes a third of the time that lists take."""
        count = len(self.indices)
        attempts = self.attempts if any(self.attempts) else count
        inputs = None if self.inputs.empty else self.inputs
        return _unpickled, (
            self.epoch,
            self.segment,
            struct.pack(f"{count}q", *self.indices),
            self.positions,
            attempts,
            inputs,
        )


def _unpickled(
    epoch: int,
    segment: int,
    indices: bytes,
    positions: Sequence[int],
    attempts: list[int] | int,
    inputs: Inputs | None,
) -> PartOfRows:
    """Return the rows that ``PartOfRows.__reduce__`` has described; ``attempts``: a number of zeros, or all."""
    return PartOfRows(
        epoch,
        segment,
        memoryview(indices).cast("q").tolist(),
        positions,
        [0] * attempts if isinstance(attempts, int) else attempts,
        NO_INPUTS if inputs is None else inputs,
    )


@dataclass(slots=True)
class BatchRows(PartOfRows):
    """The rows of a batch that a worker makes: their records, and where their values are written.

    views       (rows, …) by field, for fields that are stored in the slot
    lists       (rows) values by field, for fields that are stored outside the slot
    given       (rows, …) by field, for the fields of every batch: ``index``, ``valid``
    known_from  the sample from which the layout is known: ``"in record 7"``
    """

    views: Mapping[str, AnyArray]
    lists: Mapping[str, list[Any]]
    given: Mapping[str, AnyArray]
    known_from: str

    def key(self, row: int) -> RowKey:
        """Return the record and the key of the random numbers of a row."""
        return RowKey(self.indices[row], self.epoch, self.positions[row], self.attempts[row])

    @property
    def batch_key(self) -> RowKey:
        """The key of the batch's random numbers: the first row's with attempt 0, even if its record was replaced."""
        return replace(self.key(0), attempt=0)

    def cut(self, rows: int) -> BatchRows:
        """Return the first ``rows`` rows."""
        return replace(
            self,
            indices=self.indices[:rows],
            positions=self.positions[:rows],
            attempts=self.attempts[:rows],
            views={name: array[:rows] for name, array in self.views.items()},
            lists={name: values[:rows] for name, values in self.lists.items()},
            given={name: array[:rows] for name, array in self.given.items()},
        )
