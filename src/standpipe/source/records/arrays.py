"""The source of arrays in memory or in .npy files, and of texts, one row per record."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from standpipe import _native
from standpipe.contracts import OpenSource, Paths, Records, Rows
from standpipe.contracts.source import check_part
from standpipe.errors import PlanError
from standpipe.source.records.fixed_file import stamp_of
from standpipe.source.records.npy import NpyFile, check_dtype, opened_npy
from standpipe.spec import RESERVED, AnyArray, ArraySpec, Int64Array, Listed, UInt8Array
from standpipe.system.paths import AnyPath, absolute, path_text

HASHED_BYTES = 256 << 20  # of a larger array only this much is hashed for the digest
HASHED_AT_ONCE = 1 << 20  # bytes
TEXT_KINDS = "UTO"  # NumPy's kinds of dtypes that may be texts: of fixed width, of any length, objects


class Arrays:
    """Arrays with one row per record, from memory or ``.npy`` files, and texts.

    All fields have the same number of rows, at least one. Values are bool, integers, floats up to 64 bit, or
    complex numbers. Image transforms take a field ``image`` of
    (records, H, W) or (records, H, W, C) uint8, with 1 to 4 channels.

    - Files are read by position, a batch at a time, so memory doesn't depend on their size. A file that was
      changed or cut since the plan is an error. A memory map that you made yourself, with ``mmap_mode=``, is an
      array in memory here: if its file is cut while it is in use, the system ends the process.
    - Texts are lists of str, or NumPy arrays of str. The source keeps their UTF-8 in two arrays, and a batch has
      a list of str.
    - Nothing is unpickled.
    - Fields with one number per record may have any strides and byte order. Others must be in C order and in
      the machine's byte order, since rows of arrays in memory are used in place: a hidden copy would double
      their memory. The error says how to convert.
    - The digest covers names, shapes and dtypes. For an array in memory it covers the content: all of it up
      to 256 MiB, and 256 evenly spaced blocks of 1 MiB of a larger one. For a file it covers size and
      modification time, not the path. For texts it covers all of them.

    Parameters
    ----------
    mapping : mapping of str to array or path, optional
        Fields whose names aren't keywords: ``Arrays({"image/left": array})``.
    **fields : array, path or list of str
        Fields by name: a NumPy array, (records, …), the path of a ``.npy`` file with one, or a text for each record.

    Raises
    ------
    PlanError
        By ``plan()``, if there is no field, if fields differ in length, or if one isn't an array of numbers
        or texts, or can't be used in place.

    Examples
    --------
    >>> source = sp.Arrays(x=np.zeros((100, 16), np.float32), label=np.arange(100))
    >>> with sp.Pipeline(source).batch(10).loader() as loader:
    ...     print(loader.peek()["x"].shape)
    (10, 16)
    """

    __slots__ = ("_fields",)

    def __init__(
        self,
        mapping: Mapping[str, AnyArray | AnyPath | Sequence[str]] | None = None,
        /,
        **fields: AnyArray | AnyPath | Sequence[str],
    ) -> None:
        if mapping is not None and not isinstance(mapping, Mapping):
            raise PlanError(
                f"Arrays({type(mapping).__name__}): an array needs a name. Write Arrays(image=array)"
            )
        self._fields = {**(mapping or {}), **fields}

    def open(self) -> OpenSource:
        """Read the files' headers, check shapes and dtypes, and hash arrays in memory and texts.

        Raises ``PlanError``, with the field's name, for a field that isn't an array or ``.npy`` file of
        numbers, or texts, has no rows, isn't in C order, or has another number of rows than the first field.
        """
        if not self._fields:
            raise PlanError("Arrays has no fields; give it arrays by name, such as Arrays(image=…, label=…)")
        opened = {name: _open_field(name, value) for name, value in sorted(self._fields.items())}
        (first_name, first), *others = ((name, opened[name]) for name in self._fields)
        for name, other in others:
            if len(other.array) != len(first.array):
                raise PlanError(
                    f"Arrays: {first_name!r} has {len(first.array)} rows and {name!r} has {len(other.array)}; "
                    "all fields must have the same number"
                )
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        digest = blake2b(f"arrays 1, {len(opened)} fields".encode(), digest_size=16)
        for name, field in opened.items():
            digest.update(f"{name!r} {field.form} {field.content};".encode())
        arrays = {name: opened[name].array for name in self._fields}
        return OpenArrays(
            {name: array for name, array in arrays.items() if not isinstance(array, Paths)},
            digest.hexdigest(),
            {name: field.file for name, field in opened.items() if field.file},
            {name: array for name, array in arrays.items() if isinstance(array, Paths)},
        )

    def describe(self) -> str:
        """Return one line for ``explain()``."""
        return f"Arrays({', '.join(f'{name}={_described(value)}' for name, value in self._fields.items())})"


@dataclass(frozen=True, slots=True, eq=False)
class OpenArrays:
    """An ``OpenSource`` of checked arrays.

    arrays  read-only arrays by name, (records, …) each, in memory or in a file
    files   the path, inode, size and times of the file of each array, by name; not for arrays in memory and for
            files that are writable through the array
    texts   texts by name
    """

    arrays: Mapping[str, AnyArray | NpyFile]
    digest: str
    files: Mapping[str, str]
    texts: Mapping[str, Paths]

    @property
    def num_records(self) -> int:
        """The number of rows of each array."""
        return len(next(iter((*self.arrays.values(), *self.texts.values()))))

    @property
    def fields(self) -> Mapping[str, ArraySpec | Listed]:
        """The shape and dtype of one row of each array, in the machine's byte order, and the texts."""
        arrays = {
            name: ArraySpec(array.shape[1:], array.dtype.newbyteorder("="))
            for name, array in self.arrays.items()
        }
        return arrays | {
            name: Listed("str", len(texts.blob) // len(texts)) for name, texts in self.texts.items()
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the fields with one number per record."""
        return tuple(name for name, array in self.arrays.items() if array.ndim == 1)

    def column(self, name: str, start: int, stop: int) -> AnyArray:
        """Return a column for the records [start, stop), (stop − start,), in the machine's byte order."""
        check_part(self, name, start, stop)
        part = self.arrays[name][start:stop]
        return part.astype(part.dtype.newbyteorder("="), copy=False)

    @property
    def classes(self) -> None:
        """Class names, which arrays don't have: None."""
        return None

    @property
    def index_bytes(self) -> int:
        """Memory of the texts' UTF-8, in bytes. The caller owns the arrays."""
        return sum(texts.nbytes for texts in self.texts.values())

    @property
    def record_bytes(self) -> int:
        """Bytes that reading a record from the files takes."""
        return sum(array.row_bytes for array in self.arrays.values() if isinstance(array, NpyFile))

    def here(self) -> str:
        """Return a description of the files, and checksums of arrays in memory that the digest covers in part."""
        return "; ".join(
            self.files.get(name) or ("" if isinstance(array, NpyFile) else _checksums(array))
            for name, array in sorted(self.arrays.items())
        )

    def locate(self, indices: Int64Array) -> Records:
        """Copy fields with one number per record to ``plain``; refer to other arrays in ``rows``, or read them."""
        rows = {name: _rows(array, indices) for name, array in self.arrays.items() if array.ndim > 1}
        plain = {
            name: array[indices].astype(array.dtype.newbyteorder("="), copy=False)
            for name, array in self.arrays.items()
            if array.ndim == 1
        }
        texts = {name: texts.take(indices) for name, texts in self.texts.items()}
        return Records(indices, rows=rows, plain=plain, texts=texts)

    def name(self, index: int) -> None:
        """Return None: a row has no name except its number."""
        return


def _rows(array: AnyArray | NpyFile, indices: Int64Array) -> Rows:
    if isinstance(array, NpyFile):
        return Rows(array[indices], np.arange(len(indices)))
    return Rows(array, indices)


def _described(value: object) -> str:
    match value:
        case np.ndarray():
            return f"{value.dtype}{list(value.shape)}"
        case str() | bytes() | os.PathLike():
            return f"'{path_text(value)}'"
        case list() | tuple():
            return f"texts[{len(value)}]"
        case _:
            return type(value).__name__


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    """One field of an ``Arrays`` source, whose shape and type were checked.

    array    the rows; of texts, their UTF-8
    content  what the source's digest takes from the array: a text that names its content
    file     path of its ``.npy`` file; empty for an array in memory, or if writing to the array changes the file
    """

    array: AnyArray | NpyFile | Paths
    content: str
    file: str = ""

    @property
    def form(self) -> str:
        """The dtype and shape of the array, for the source's digest."""
        return "texts" if isinstance(self.array, Paths) else f"{self.array.dtype.str} {self.array.shape}"


def _open_field(name: str, value: AnyArray | AnyPath | Sequence[str]) -> _Field:
    if not isinstance(name, str) or name in ("", RESERVED):
        raise PlanError(f"Arrays: {name!r} can't be a field's name; use another one")
    match value:
        case np.ndarray() if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
            # Importing numpy.ma takes half as long as planning. A program with a masked array has imported it.
            raise PlanError(f"Arrays: {name!r} is a masked array; fill it, for example with array.filled(0)")
        case np.ndarray() if value.ndim == 1 and value.dtype.kind in TEXT_KINDS:
            return _texts(name, value.tolist())
        case list() | tuple():
            return _texts(name, value)
        case np.ndarray():
            array = np.asarray(value).view()
            flags = array.flags
            _check(f"Arrays: {name!r}", array, in_place=flags.c_contiguous and flags.aligned)
            array.flags.writeable = False
            return _Field(array, _content_hash(array), _mapped_file(value))
        case str() | bytes() | os.PathLike():
            path = absolute(value, field=f"Arrays: {name!r}")
            where = f"Arrays: {name!r}, {path_text(path)},"
            npy = opened_npy(where, path)
            _check(where, npy, in_place=True)
            size, mtime_ns, *_ = npy.file.stamp
            return _Field(npy, f"{size} bytes, {mtime_ns} ns", _file_here(path, *npy.file.stamp))
        case _:
            raise PlanError(
                f"Arrays: {name!r} is a {type(value).__name__}; give a NumPy array, for example from np.asarray, "
                "the path of a .npy file, or a list of str"
            )


def _texts(name: str, values: Sequence[object]) -> _Field:
    """Return a field of texts. Raises ``PlanError`` if there are none, or if one isn't a str that has UTF-8."""
    if not values:
        raise PlanError(f"Arrays: {name!r} has no rows")
    encoded: list[bytes] = []
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise PlanError(
                f"Arrays: {name!r} has a value of type {type(value).__name__} in row {row}; give a str for each "
                "record, or numbers as a NumPy array, for example from np.asarray"
            )
        try:
            encoded.append(value.encode())
        except UnicodeEncodeError as error:
            raise PlanError(
                f"Arrays: {name!r} has a surrogate in row {row}, which is no character: remove it, for example with "
                "text.encode(errors='replace').decode()"
            ) from error
    from hashlib import blake2b

    texts = Paths.pack(encoded)
    digest = blake2b(texts.blob.data, digest_size=16)
    digest.update(texts.ends.data)
    return _Field(texts, digest.hexdigest())


def _check(where: str, array: AnyArray | NpyFile, *, in_place: bool) -> None:
    """Raise ``PlanError`` for an array that isn't rows of numbers, or can't be used in place."""
    check_dtype(where, array.dtype)
    if array.ndim == 0:
        raise PlanError(f"{where} is a single value; it needs one row per record")
    if 0 in array.shape:
        raise PlanError(f"{where} has shape {array.shape}: it has no rows, or its rows are empty")
    if array.ndim == 1:
        return
    if not in_place:
        raise PlanError(f"{where} isn't in C order, or not aligned; give np.ascontiguousarray(array)")
    if not array.dtype.isnative:
        raise PlanError(
            f"{where} isn't in this machine's byte order; give array.astype(array.dtype.newbyteorder('='))"
        )


def _file_here(path: bytes, size: int, mtime_ns: int, ctime_ns: int, inode: int) -> str:
    return f"{path_text(path)}, inode {inode}, {size} bytes, {mtime_ns} and {ctime_ns} ns"


def _mapped_file(array: AnyArray) -> str:
    """Return the file of a read-only memory map; empty for other arrays, or if the file has no name any more."""
    if not isinstance(array, np.memmap) or array.mode != "r" or array.filename is None:
        return ""
    try:
        return _file_here(os.fsencode(array.filename), *stamp_of(Path(array.filename).stat()))
    except OSError:
        return ""


def _checksums(array: AnyArray) -> str:
    """Return a checksum of an array that ``_content_hash`` covers only in part. It reads the whole array."""
    from hashlib import blake2b

    if array.nbytes <= HASHED_BYTES:
        return ""
    digest = blake2b(digest_size=16)
    for block in _blocks(array, range(0, array.size, HASHED_AT_ONCE // array.itemsize)):
        digest.update(_native.checksum(block).to_bytes(4, "little"))
    return digest.hexdigest()


def _content_hash(array: AnyArray) -> str:
    """Hash all values up to 256 MiB; of a larger array 256 blocks of 1 MiB, from the first to the last."""
    at_once = HASHED_AT_ONCE // array.itemsize
    if array.nbytes <= HASHED_BYTES:
        starts: Sequence[int] = range(0, array.size, at_once)
    else:
        num_blocks = HASHED_BYTES // HASHED_AT_ONCE
        starts = [block * (array.size - at_once) // (num_blocks - 1) for block in range(num_blocks)]
    from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

    digest = blake2b(digest_size=16)
    for block in _blocks(array, starts):
        digest.update(block.data)
    return digest.hexdigest()


def _blocks(array: AnyArray, starts: Sequence[int]) -> Iterator[UInt8Array]:
    """Yield the bytes of up to 1 MiB of values from each number of ``starts``."""
    values, at_once = array.reshape(-1), HASHED_AT_ONCE // array.itemsize
    for start in starts:
        yield np.ascontiguousarray(values[start : start + at_once]).view(np.uint8)
