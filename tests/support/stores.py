"""Sets of a cache made by hand, for tests of what the native store does with any of them.

``_native.CacheStore`` is private: it is a folder's rows and nothing else, where ``pipeline.cache()`` has a policy too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from standpipe import _native

HEADER_BYTES, ENTRY_BYTES = 4096, 48


def bytes_of(record: int, length: int = 1000, version: int = 0) -> bytes:
    """A row that no other record has, nor another version of it."""
    unit = b"%d/%d " % (record, version)
    return (unit * (length // len(unit) + 1))[:length]


@dataclass(frozen=True)
class Set:
    """A set's folder, and one for its spilled extents."""

    path: Path
    records: int = 100
    salt: int = 0x5A17

    @classmethod
    def made(cls, path: Path, records: int = 100, salt: int = 0x5A17) -> Set:
        """One without rows."""
        made = cls(path, records, salt)
        made.spill.mkdir(parents=True)
        made.table.write_bytes(_native.CacheStore.table_header(records, salt))
        return made

    @property
    def table(self) -> Path:
        return self.path / "table"

    @property
    def spill(self) -> Path:
        return self.path / "spill"

    def extent(self, number: int, *, spilled: bool = False) -> Path:
        return (self.spill if spilled else self.path) / f"rows-{number:06}"

    def extents(self) -> list[Path]:
        return sorted([*self.path.glob("rows-*"), *self.spill.glob("rows-*")])

    def stored_bytes(self) -> int:
        """Return the number of bytes of all rows, found or not."""
        return sum(path.stat().st_size for path in self.extents())

    def entry_at(self, record: int) -> slice:
        """Return the slice of the table's bytes that is a record's entry."""
        begin = HEADER_BYTES + record * ENTRY_BYTES
        return slice(begin, begin + ENTRY_BYTES)

    @contextmanager
    def opened(
        self,
        *,
        room: int = 0,
        number: int = 0,
        writes: bool = True,
        queue: int = 1 << 20,
        spills: bool = True,
        patience: int = 10_000,
    ) -> Iterator[_native.CacheStore]:
        """A store of it that is closed in the end.

        room    of an extent in memory that it has from the beginning; 0 for none
        spills  whether it knows the folder of spilled extents
        patience  with their disk, in ms
        """
        with folder(self.path) as directory, folder(self.spill) as spill:
            store = _native.CacheStore(directory, self.records, self.salt, writes, queue)
            if spills:
                store.set_spill(spill, patience)
        with closing(_Closed(store)):
            if room:
                self.grant(store, number, room)
            yield store

    def grant(
        self, store: _native.CacheStore, number: int, room: int, *, begin: int = 0, spilled: bool = False
    ) -> bool:
        """Give it bytes of an extent, which is made if it isn't there."""
        file = os.open(self.extent(number, spilled=spilled), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            return store.add_extent(number, file, begin, begin + room, spilled)
        finally:
            os.close(file)


@dataclass(frozen=True)
class _Closed:
    store: _native.CacheStore

    def close(self) -> None:
        assert self.store.close(10_000)


@contextmanager
def folder(path: Path) -> Iterator[int]:
    """A descriptor of it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def row_of(store: _native.CacheStore, record: int) -> bytes | None:
    """Return the row that a reader gets, or None."""
    row = store.get(record)
    return None if row is None else row.tobytes()


def flip(path: Path, bit: int) -> None:
    """Invert one bit of a file."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
