"""The source of binary files with records of one size, which are read by position."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from standpipe.contracts import Encoded, OpenSource, Records, Rows
from standpipe.contracts.source import check_part
from standpipe.errors import PlanError
from standpipe.source.records.fixed_file import FixedFile, opened_file
from standpipe.source.records.npy import check_dtype
from standpipe.spec import RESERVED, AnyArray, ArraySpec, Int64Array, UInt8Array
from standpipe.system.paths import AnyPath, absolute, path_text

ImageAxes = Literal["HWC", "CHW", "HW"]

AT_ONCE_BYTES = 1 << 20  # bytes that one read of a column's piece covers
SMALL_RECORD_BYTES = 4096  # of larger records, a column's read covers only the field's bytes
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class FixedRecords:
    """Records of one size, one after another in binary files, such as CIFAR's.

    Records are read by position, a batch at a time, so memory doesn't depend on their number. Image
    transforms take a field ``image`` of (H, W) or (H, W, C) uint8, with 1 to 4 channels.
    A field with one integer per record becomes int64,
    which losses take as labels. The digest covers fields, file sizes and up to 1 MiB of each file, not the
    paths.

    ``FixedRecords.cifar10(*paths)`` and ``FixedRecords.cifar100(*paths)`` read the binary files of these data
    sets.

    Parameters
    ----------
    paths : path or sequence of paths
        A file, or several files whose records follow one another.
    fields : dtype-like
        Layout of a record, as ``numpy.dtype`` takes it: ``[("label", "u1"), ("image", "u1", (32, 32, 3))]``.
    header_bytes : int, default 0
        Bytes before the first record of each file.
    image_axes : str, default "HWC"
        How the field ``image`` is stored: ``"HWC"``; ``"CHW"``, which becomes (H, W, C); ``"HW"`` for grey
        images, which become (H, W, 1).
    classes : sequence of str, optional
        Class names by label, for a field ``label``.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid fields, or if a file is missing or compressed, or its size without the
        header isn't a multiple of a record's.

    Examples
    --------
    >>> records = np.zeros(10, [("label", "u1"), ("image", "u1", (4, 4, 3))])
    >>> records.tofile("records.bin")
    >>> source = sp.FixedRecords("records.bin", fields=records.dtype)
    >>> with sp.Pipeline(source).batch(5).loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (5, 4, 4, 3)
    """

    __slots__ = ("_axes", "_classes", "_fields", "_header_bytes", "_paths")

    def __init__(
        self,
        paths: AnyPath | Sequence[AnyPath],
        *,
        fields: Any,
        header_bytes: int = 0,
        image_axes: ImageAxes = "HWC",
        classes: Sequence[str] | None = None,
    ) -> None:
        self._paths = (paths,) if isinstance(paths, str | bytes | os.PathLike) else tuple(paths)
        self._fields, self._header_bytes = fields, header_bytes
        self._axes, self._classes = image_axes, classes

    @classmethod
    def cifar10(cls, *paths: AnyPath) -> Self:
        """Return the source of CIFAR-10's binary files, such as ``data_batch_1.bin``."""
        fields = [("label", "u1"), ("image", "u1", (3, 32, 32))]
        return cls(paths, fields=fields, image_axes="CHW", classes=CIFAR10)

    @classmethod
    def cifar100(cls, *paths: AnyPath) -> Self:
        """Return the source of CIFAR-100's binary files, such as ``train.bin``, with both labels."""
        fields = [("coarse_label", "u1"), ("label", "u1"), ("image", "u1", (3, 32, 32))]
        return cls(paths, fields=fields, image_axes="CHW")

    def open(self) -> OpenSource:
        """Check the files' sizes, and read a part of each file for the digest.

        Raises ``PlanError`` for invalid fields, and if a file is missing or compressed, or its size doesn't
        fit.
        """
        record = _checked_record(self._fields)
        if type(self._header_bytes) is not int or self._header_bytes < 0:
            raise PlanError(
                f"FixedRecords: header_bytes must be an integer of at least 0, got {self._header_bytes!r}"
            )
        if not self._paths:
            raise PlanError("FixedRecords has no files; give it a path, or a list of paths")
        paths = [absolute(path, field="FixedRecords") for path in self._paths]
        files = tuple(opened_file(path, self._header_bytes, record) for path in paths)
        classes = None if self._classes is None else tuple(map(str, self._classes))
        if classes is not None and "label" not in (record.names or ()):
            raise PlanError(
                "FixedRecords: classes= needs a field 'label', whose values it names; add one to fields= or leave "
                "out classes="
            )
        return OpenFixed((Part(files, record),), self._axes, classes)

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        first = f"'{path_text(self._paths[0])}'" if self._paths else "no files"
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        return f"FixedRecords({first}{more})"


def _checked_record(fields: object) -> np.dtype[Any]:
    """Return the dtype of a record. Raises ``PlanError`` if it isn't made of named numbers."""
    example = 'such as [("label", "u1"), ("image", "u1", (32, 32, 3))]'
    try:
        record: np.dtype[Any] = np.dtype(fields)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"FixedRecords: fields={fields!r} isn't a list of fields, {example}: {error}"
        ) from error
    if not record.names:
        raise PlanError(
            f"FixedRecords: fields={fields!r} has no names; name the fields of a record, {example}"
        )
    for name in record.names:
        where = f"FixedRecords: the field {name!r}"
        if name == RESERVED:
            raise PlanError(
                f"{where} has the name of a field that standpipe adds to every batch; use another name"
            )
        base = record[name].base
        if base.kind == "b":
            raise PlanError(f"{where} is bool, but a byte of a file may be neither 0 nor 1; read it as 'u1'")
        check_dtype(where, base)
        if 0 in record[name].shape:
            raise PlanError(f"{where} has the shape {record[name].shape}, which has no values")
    return record


@dataclass(frozen=True, slots=True)
class Part:
    """Files of one structured dtype, whose fields are stored together.

    record  dtype of a record
    """

    files: tuple[FixedFile, ...]
    record: np.dtype[Any]

    @property
    def records(self) -> int:
        """The number of records of all files."""
        return sum(file.records for file in self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its fields."""
        return self.record.names or ()

    def place(self, index: int) -> tuple[FixedFile, int]:
        """Return the file of a record, and the record's number in this file."""
        for file in self.files:
            if index < file.records:
                break
            index -= file.records
        return file, index

    def read(self, indices: Int64Array) -> NDArray[np.void]:
        """Read whole records; return (n,) of the dtype ``record``."""
        return self._bytes(indices, 0, self.record.itemsize).view(self.record)[:, 0]

    def read_field(self, name: str, indices: Int64Array) -> AnyArray:
        """Read one field of records, (n, …), as stored. Of large records, read only this field's bytes."""
        if self.record.itemsize <= SMALL_RECORD_BYTES:
            return self.read(indices)[name]
        assert self.record.fields is not None
        kind, at = self.record.fields[name][:2]
        return self._bytes(indices, at, kind.itemsize).view(kind.base).reshape(len(indices), *kind.shape)

    def _bytes(self, indices: Int64Array, at: int, size: int) -> UInt8Array:
        step = self.record.itemsize
        if len(self.files) == 1:
            return self.files[0].read(indices, at=at, size=size, step=step)
        memory = np.empty((len(indices), size), np.uint8)
        ends = np.cumsum([file.records for file in self.files])
        file_of = np.searchsorted(ends, indices, side="right")
        for number in np.unique(file_of).tolist():
            file, rows = self.files[number], np.flatnonzero(file_of == number)
            numbers = indices[rows] - (ends[number] - file.records)
            memory[rows] = file.read(numbers, at=at, size=size, step=step)
        return memory


@dataclass(frozen=True, eq=False)
class OpenFixed:
    """An ``OpenSource`` of records of one size in files.

    parts       groups of files, one per structured dtype; all have the same number of records
    image_axes  axes of the field ``image`` as stored
    """

    parts: tuple[Part, ...]
    image_axes: ImageAxes
    classes: tuple[str, ...] | None

    def __post_init__(self) -> None:
        known = {name: part.record[name].shape for part in self.parts for name in part.names}
        axes = {"HWC": None, "CHW": 3, "HW": 2}.get(self.image_axes, 0)
        if axes == 0 or (axes is not None and len(known.get("image", ())) != axes):
            shape = f"shape {known['image']}" if "image" in known else "no field of that name"
            raise PlanError(
                f'image_axes={self.image_axes!r} doesn\'t fit the field image, which has {shape}: use "HWC", '
                '"CHW" for a field of three axes or "HW" for a field of two'
            )

    @property
    def num_records(self) -> int:
        """The number of records of each part."""
        return self.parts[0].records

    @cached_property
    def fields(self) -> Mapping[str, ArraySpec | Encoded]:
        """The shape and dtype of each field in a batch."""
        kinds = {name: part.record[name] for part in self.parts for name in part.names}
        examples = {name: self._given(name, np.zeros(1, kind)) for name, kind in kinds.items()}
        return {name: ArraySpec(example.shape[1:], example.dtype) for name, example in examples.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the fields with one number per record."""
        return tuple(name for part in self.parts for name in part.names if not part.record[name].shape)

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Read a column for the records [start, stop) from the files, in pieces."""
        check_part(self, name, start, stop)
        part = next(part for part in self.parts if name in part.names)
        pieces = [self._given(name, np.empty(0, part.record[name]))]
        count = AT_ONCE_BYTES // min(part.record.itemsize, SMALL_RECORD_BYTES)
        for begin in range(start, stop, count):
            indices = np.arange(begin, min(begin + count, stop))
            pieces.append(self._given(name, part.read_field(name, indices)))
        return np.concatenate(pieces)

    @cached_property
    def digest(self) -> str:
        """A digest of the fields, the files' sizes and parts of their contents, and the class names."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        parts = [
            (part.record.descr, [(file.begin, file.sample) for file in part.files]) for part in self.parts
        ]
        stands_for = f"fixed 1, {parts!r}, {self.image_axes}, {self.classes!r}"
        return blake2b(stands_for.encode(), digest_size=16).hexdigest()

    @property
    def index_bytes(self) -> int:
        """Memory of an index, in bytes: 0, since there is none."""
        return 0

    @property
    def record_bytes(self) -> int:
        """Bytes that reading a record takes: twice the record as stored, and once as in a batch."""
        given = sum(spec.row_bytes for spec in self.fields.values() if isinstance(spec, ArraySpec))
        return 2 * sum(part.record.itemsize for part in self.parts) + given

    def here(self) -> str:
        """Return a description of the files on this machine."""
        files = [file for part in self.parts for file in part.files]
        return "; ".join(f"{path_text(file.path)}, {file.stamp}" for file in files)

    def locate(self, indices: Int64Array) -> Records:
        """Read the records, neighbours together."""
        rows: dict[str, Rows] = {}
        plain: dict[str, AnyArray] = {}
        for part in self.parts:
            records = part.read(indices)
            for name in part.names:
                values = self._given(name, records[name])
                if values.ndim == 1:
                    plain[name] = values
                else:
                    rows[name] = Rows(values, np.arange(len(indices)))
        return Records(indices, rows=rows, plain=plain)

    def name(self, index: int) -> str:
        """Return the file of a record, and its offset in this file."""
        part = self.parts[0]
        file, number = part.place(index)
        return f"{path_text(file.path)} at byte {file.begin + number * part.record.itemsize}"

    def _given(self, name: str, values: AnyArray) -> AnyArray:
        """Convert values of a field (n, …) to a batch's form: C order, native byte order, images (H, W, C)."""
        if name == "image" and self.image_axes == "CHW":
            planes = np.moveaxis(values, 1, 0)
            values = np.empty((*planes.shape[1:], len(planes)), values.dtype)
            for channel, plane in enumerate(planes):  # takes a third of the time of a single copy
                values[..., channel] = plane
        elif name == "image" and self.image_axes == "HW":
            values = values[..., None]
        dtype = values.dtype.newbyteorder("=")
        if values.ndim == 1 and np.can_cast(dtype, np.int64):
            dtype = np.dtype(np.int64)
        return np.require(values, dtype, ["C", "A"])
