"""Pack long lists into an anonymous file, without a Python object per item, and read them by position.

A list of a million strings is a million objects, and every reader writes to their reference counts. So forked
processes copy it page by page, although they only read it. Any number of processes can read the packed file.
"""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, overload

import numpy as np

from standpipe import _native
from standpipe.errors import PlanError

LEAST_ITEMS = 1000  # a shorter list isn't worth a file
ITEMS_AT_ONCE = 1 << 16
BYTES_AT_ONCE = 1 << 20
_FORMATS = {int: "q", float: "d"}
_ENCODED: dict[type, Callable[[Any], bytes]] = {
    str: lambda text: text.encode("utf-8", "surrogatepass"),
    bytes: bytes,
}


class SharedFile:
    """An anonymous file (a memfd) to which lists are appended. It exists as long as one of its lists."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("standpipe-lists") if descriptor is None else descriptor
        self._end = 0
        self._memory: memoryview | None = None
        weakref.finalize(self, os.close, self.descriptor).atexit = False

    def append(self, data: bytes | memoryview, aligned: int = 1) -> int:
        """Append ``data`` at a multiple of ``aligned`` bytes; return the offset of its first byte."""
        begin = -(-self._end // aligned) * aligned
        view = memoryview(data)
        while view:
            view = view[os.pwrite(self.descriptor, view, begin + len(data) - len(view)) :]
        self._end = begin + len(data)
        return begin

    @property
    def size_bytes(self) -> int:
        """The size of the file, in bytes."""
        return self._end

    def read(self, begin: int, size: int) -> bytes:
        """Read exactly ``size`` bytes from offset ``begin``."""
        data = os.pread(self.descriptor, size, begin)
        if len(data) != size:
            raise OSError(f"the packed list is cut: it has {len(data)} of {size} bytes at offset {begin}")
        return data

    @property
    def memory(self) -> memoryview:
        """The whole file, mapped into memory that processes share. Use it only after the last append."""
        if self._memory is None:
            self._memory = memoryview(mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ))
        return self._memory

    def pieces(self, begin: int, size: int) -> Iterator[bytes]:
        """Yield the bytes of a range, up to 1 MiB at a time."""
        for at in range(begin, begin + size, BYTES_AT_ONCE):
            yield self.read(at, min(BYTES_AT_ONCE, begin + size - at))


@dataclass(frozen=True, slots=True)
class ListLocation:
    """The location in a file of a list with items of one type.

    kind   ``str``, ``bytes``, ``int``, ``float`` or, with ``parts``, ``tuple``
    data   offset of the items: 8 bytes per number, or strings one after another
    ends   offset of an array of (items,) int64: the end of each string
    parts  a column for each element of tuples
    """

    kind: type
    length: int
    data: int = 0
    ends: int = 0
    parts: tuple[ListLocation, ...] = ()

    def reader(self, memory: memoryview) -> Callable[[int], Any]:
        """Return a function that takes a number, 0 ≤ number < length, and returns the item.

        memory  ``SharedFile.memory``
        """
        if self.kind is tuple:
            parts = [part.reader(memory) for part in self.parts]
            return lambda number: tuple([part(number) for part in parts])
        if self.kind in _FORMATS:
            numbers: Any = memory[self.data : self.data + 8 * self.length]
            read: Callable[[int], Any] = numbers.cast(_FORMATS[self.kind]).__getitem__
            return read
        every = np.frombuffer(memory, np.uint8)
        data, ends = every[self.data :], every[self.ends : self.ends + 8 * self.length]
        return _native.Texts(data, ends, self.kind is str).item

    def content(self, file: SharedFile) -> Iterator[bytes]:
        """Yield the bytes of the items, in pieces: the same for equal items, wherever they are stored."""
        yield f"{self.kind.__name__} {self.length} ".encode()
        for part in self.parts:
            yield from part.content(file)
        if self.kind in _ENCODED:
            (total,) = struct.unpack("q", file.read(self.ends + 8 * (self.length - 1), 8))
            yield from file.pieces(self.ends, 8 * self.length)
            yield from file.pieces(self.data, total)
        elif self.kind in _FORMATS:
            yield from file.pieces(self.data, 8 * self.length)


class SharedList(Sequence[Any]):
    """A read-only list in memory that worker processes share.

    ``share_list`` makes one. With ``MapSource(share_lists=True)``, long lists inside a dataset become one
    when worker processes get the dataset. It satisfies ``collections.abc.Sequence``. Reading an item takes
    less than 1 µs. A slice is an ordinary list.

    Examples
    --------
    >>> paths = sp.share_list(["a.jpg", "b.jpg", "c.jpg"])
    >>> isinstance(paths, sp.SharedList), paths[-1], paths[:2]
    (True, 'c.jpg', ['a.jpg', 'b.jpg'])
    """

    __slots__ = ("_read", "column", "file")

    def __init__(self, file: SharedFile, column: ListLocation) -> None:
        self.file, self.column = file, column
        self._read: Callable[[int], Any] | None = None  # set when the first item is read

    def __len__(self) -> int:
        return self.column.length

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        read = self._read
        if read is None:
            read = self._read = self.column.reader(self.file.memory)
        if type(index) is int and index >= 0:
            return read(index)
        if isinstance(index, slice):
            return [read(number) for number in range(*index.indices(len(self)))]
        number = index.__index__()
        if number < -len(self):
            raise IndexError("list index out of range")
        return read(number if number >= 0 else len(self) + number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return NotImplemented if not isinstance(other, Sequence) else False
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # unhashable, like a list

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"SharedList([{shown}{', …' if len(self) > 3 else ''}], {len(self)} items)"

    @property
    def content_digest(self) -> str:
        """The hex digest of its items."""
        from hashlib import blake2b  # imported here: it loads OpenSSL, which takes time

        digest = blake2b(digest_size=16)
        for piece in self.column.content(self.file):
            digest.update(piece)
        return digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return share_list, (list(self),)


def share_list(items: Sequence[Any]) -> SharedList:
    """Pack a list into memory that worker processes share, instead of copying it.

    A number takes 8 bytes; a string takes 8 bytes and its UTF-8 bytes.

    Parameters
    ----------
    items : sequence
        Strings, byte strings, integers of 64 bits, floats, or tuples of these. All items have the same type;
        tuples have the same length, and the same types in the same places.

    Returns
    -------
    SharedList
        The same items, read-only.

    Raises
    ------
    PlanError
        If ``items`` is empty, or its items have other or different types.

    Examples
    --------
    >>> paths = sp.share_list(["a.jpg", "b.jpg"])
    >>> len(paths), paths[1]
    (2, 'b.jpg')
    """
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        raise PlanError(f"share_list takes a list, got {type(items).__name__}")
    file = SharedFile()
    column = packed_column(file, items)
    if column is None:
        kinds = sorted({type(item).__name__ for item in islice(items, 1000)})
        raise PlanError(
            "share_list takes strings, byte strings, integers of 64 bits, floats, or tuples of these, all items of "
            f"the same types; the types are {', '.join(kinds) or 'unknown, as the list is empty'}"
        )
    return SharedList(file, column)


def packed_column(file: SharedFile, items: Sequence[Any]) -> ListLocation | None:
    """Append a list to a file, and return its location; None if its items differ in type, or can't be packed."""
    kind = type(items[0]) if items else None
    if kind is None or any(type(item) is not kind for item in items):
        return None
    if kind is tuple:
        width = len(items[0])
        if width == 0 or any(len(item) != width for item in items):
            return None
        parts = [_scalar_column(file, _Place(items, place)) for place in range(width)]
        if any(part is None for part in parts):
            return None
        return ListLocation(tuple, len(items), parts=tuple(part for part in parts if part is not None))
    return _scalar_column(file, items)


@dataclass(frozen=True, slots=True)
class _Place:
    """A view of one element of each tuple in a list, as a sequence."""

    items: Sequence[Any]
    place: int

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return (item[self.place] for item in self.items)


def _scalar_column(file: SharedFile, items: Sequence[Any] | _Place) -> ListLocation | None:
    kind = type(next(iter(items)))
    if kind not in _FORMATS and kind not in _ENCODED:
        return None
    waiting = iter(items)
    begin, ends, total = None, array("q"), 0
    while chunk := list(islice(waiting, ITEMS_AT_ONCE)):
        if any(type(item) is not kind for item in chunk):
            return None
        if kind in _FORMATS:
            try:
                data = array(_FORMATS[kind], chunk).tobytes()
            except OverflowError:
                return None
        else:
            texts = [_ENCODED[kind](item) for item in chunk]
            for text in texts:
                total += len(text)
                ends.append(total)
            data = b"".join(texts)
        at = file.append(data)
        begin = at if begin is None else begin
    return ListLocation(kind, len(items), begin or 0, file.append(ends.tobytes()))
