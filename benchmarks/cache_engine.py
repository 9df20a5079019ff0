"""Measure the CPU time of a cache row in standpipe's files and in LMDB.

Rows are images of 224 × 224 (150,528 bytes), a photo's file (110,000), and small ones (12,288 and 3,072), --mib of
each size in --folder. They are stored in a random order, like in a training epoch, and read twice in another order.
CPU time is that of all threads.

"system calls alone" appends rows to a file and reads them. "LMDB, values" stores rows as values, 16 per transaction,
without writemap and sync, and reads them from its map. "index in LMDB" stores rows in a plain file, and 48 bytes per
row in LMDB. "hand over" is the copy for a writer thread, which LMDB needs because a writer may have to wait.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import lmdb
import numpy as np
from _measure import MIB, Figure, column, in_turn, last_json, parser, report
from beside_torch import listed

from standpipe import _native

SIZES = (150_528, 110_000, 12_288, 3_072)
TRANSACTION = 16  # rows
ENTRY = struct.Struct("<IIQIIQqq")  # a row's entry in the index: 48 bytes
GROUP = 64  # entries per key, with DUPFIXED
EXTENT_BYTES = 32 * MIB
QUEUED = 64  # rows in the writer's queue


class Store(Protocol):
    """A store of rows: first all rows are put into it, then they are read."""

    def put(self, records: list[int], row: memoryview) -> None:
        """Store ``row`` for each of ``records``, which are at most ``TRANSACTION``."""

    def read(self, records: list[int], out: memoryview) -> memoryview:
        """Read the row of each of ``records`` into ``out`` or other memory; return the last one."""

    def close(self) -> None:
        """Close the store."""


class Calls:
    """A store that only makes system calls: rows in one file, their offsets in a list."""

    def __init__(self, folder: Path, rows: int, row_bytes: int) -> None:
        self._file = os.open(folder / "rows", os.O_RDWR | os.O_CREAT)
        self._places = [0] * rows
        self._end = 0

    def put(self, records: list[int], row: memoryview) -> None:
        for record in records:
            self._places[record] = self.append(row)

    def append(self, row: memoryview) -> int:
        """Append a row; return its offset."""
        place, self._end = self._end, self._end + len(row)
        os.pwrite(self._file, row, place)
        return place

    def read(self, records: list[int], out: memoryview) -> memoryview:
        for record in records:
            self.copy(self._places[record], out)
        return out

    def copy(self, place: int, out: memoryview) -> None:
        os.preadv(self._file, [out], place)

    def close(self) -> None:
        os.close(self._file)


class Values:
    """A store in LMDB, with rows as values."""

    def __init__(self, folder: Path, rows: int, row_bytes: int) -> None:
        self._lmdb = lmdb.open(
            str(folder), map_size=2 * rows * (row_bytes + 8192), sync=False, writemap=False
        )

    def put(self, records: list[int], row: memoryview) -> None:
        with self._lmdb.begin(write=True) as transaction:
            for record in records:
                transaction.put(record.to_bytes(8, "big"), row)

    def read(self, records: list[int], out: memoryview) -> memoryview:
        with self._lmdb.begin(buffers=True) as transaction:
            for record in records:
                value: Any = transaction.get(record.to_bytes(8, "big"))
                out[:] = value
        return out

    def close(self) -> None:
        self._lmdb.close()


class Index:
    """A store with rows in a plain file, and their offsets in LMDB."""

    def __init__(self, folder: Path, rows: int, row_bytes: int) -> None:
        self._rows = Calls(folder, 0, row_bytes)
        self._lmdb = lmdb.open(str(folder), map_size=max(rows, 10_000) * 1024, sync=False, max_dbs=1)
        self._entries = self._open()

    def _open(self) -> Any:
        return self._lmdb.open_db(b"rows")

    def put(self, records: list[int], row: memoryview) -> None:
        with self._lmdb.begin(write=True, db=self._entries) as transaction:
            for record in records:
                self._note(transaction, record, self._rows.append(row), len(row))

    def _note(self, transaction: Any, record: int, place: int, length: int) -> None:
        transaction.put(record.to_bytes(8, "big"), ENTRY.pack(record, 0, place, length, 0, 0, 0, 0))

    def read(self, records: list[int], out: memoryview) -> memoryview:
        with self._lmdb.begin(buffers=True, db=self._entries) as transaction:
            for record in records:
                self._rows.copy(self._place(transaction, record), out)
        return out

    def _place(self, transaction: Any, record: int) -> int:
        return int(ENTRY.unpack(transaction.get(record.to_bytes(8, "big")))[2])

    def close(self) -> None:
        self._lmdb.close()
        self._rows.close()


class Sorted(Index):
    """An ``Index`` with 64 entries of equal length under each key (DUPSORT and DUPFIXED)."""

    def _open(self) -> Any:
        return self._lmdb.open_db(b"rows", dupsort=True, dupfixed=True)

    def _note(self, transaction: Any, record: int, place: int, length: int) -> None:
        entry = record.to_bytes(4, "big") + ENTRY.pack(0, 0, place, length, 0, 0, 0, 0)[4:]
        transaction.put((record // GROUP).to_bytes(8, "big"), entry)

    def _place(self, transaction: Any, record: int) -> int:
        with transaction.cursor() as cursor:
            cursor.set_range_dup((record // GROUP).to_bytes(8, "big"), record.to_bytes(4, "big"))
            return int(ENTRY.unpack(cursor.value())[2])


class Own:
    """The store of standpipe's cache. Room for rows is added whenever it needs some."""

    def __init__(self, folder: Path, rows: int, row_bytes: int) -> None:
        self._folder, self._extents = folder, 0
        self._room = max(EXTENT_BYTES, row_bytes)
        (folder / "table").write_bytes(_native.CacheStore.table_header(rows, 0))
        os.truncate(folder / "table", len(_native.CacheStore.table_header(rows, 0)) + rows * ENTRY.size)
        directory = os.open(folder, os.O_RDONLY)
        self._store = _native.CacheStore(directory, rows, 0, True, 0)
        os.close(directory)

    def put(self, records: list[int], row: memoryview) -> None:
        if self._store.wants().extent:
            self._extend()
        array = np.frombuffer(row, np.uint8)
        for record in records:
            assert self._store.put(record, array)

    def _extend(self) -> None:
        file = os.open(self._folder / f"rows-{self._extents:06d}", os.O_RDWR | os.O_CREAT)
        assert self._store.add_extent(self._extents, file, 0, self._room, False)
        os.close(file)
        self._extents += 1

    def read(self, records: list[int], out: memoryview) -> memoryview:
        for record in records:
            row = self._store.get(record)
            assert row is not None
            out = row.data
        return out

    def close(self) -> None:
        self._store.close(1000)


STORES: dict[str, Callable[[Path, int, int], Store]] = {
    "system calls alone": Calls,
    "LMDB, values": Values,
    "index in LMDB": Index,
    "index in LMDB, DUPFIXED": Sorted,
    "standpipe": Own,
}


def main() -> None:
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument(
        "--mib", type=int, default=512, metavar="N", help="MiB of rows per size (default: 512)"
    )
    arguments.add_argument("--folder", default="/dev/shm", help="folder of the stores (default: /dev/shm)")
    arguments.add_argument("--only", choices=STORES, help=argparse.SUPPRESS)
    arguments.add_argument("--row-bytes", type=int, help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.only is not None:
        print(json.dumps(measured(args)))
        return

    def run(name: str, row_bytes: int) -> Callable[[], dict[str, Any]]:
        given = ("--only", name, "--row-bytes", row_bytes, "--mib", args.mib, "--folder", args.folder)
        return lambda: last_json([sys.executable, __file__, args.path, *given])

    rows: list[list[Any]] = []
    for row_bytes in SIZES:
        results = in_turn(args.rounds, {name: run(name, row_bytes) for name in STORES})
        rows += [[name, f"{row_bytes:,}", *figures(runs)] for name, runs in results.items()]
    header = ["", "bytes a row", *FIGURES]
    note = f"µs of CPU per row; {args.mib} MiB of rows in {args.folder}; a row is in the CPU's cache when it is stored"
    report(args, header, rows, note, packages=["lmdb"])


FIGURES = {
    "hand over": ("hand_us", ".1f"),
    "store": ("store_us", ".1f"),
    "read at first": ("first_us", ".1f"),
    "read again": ("again_us", ".1f"),
    "bytes stored ÷ of rows": ("share", ".4f"),
}


def figures(runs: list[dict[str, Any]]) -> Iterable[Figure]:
    return (Figure(column(runs, key), form) for key, form in FIGURES.values())


def measured(args: argparse.Namespace) -> dict[str, float]:
    """Measure one store in this process."""
    rows = args.mib * MIB // args.row_bytes
    row = memoryview(content(args.path, args.row_bytes))
    out = memoryview(bytearray(args.row_bytes))
    orders = np.random.default_rng(1)
    queue: deque[bytes] = deque(maxlen=QUEUED)
    with tempfile.TemporaryDirectory(prefix="standpipe-engine-", dir=args.folder) as name:
        store = STORES[args.only](Path(name), rows, args.row_bytes)
        hand = timed(orders.permutation(rows), lambda records: queue.extend(bytes(row) for _ in records))
        put = timed(orders.permutation(rows), lambda records: store.put(records, row))
        first = timed(orders.permutation(rows), lambda records: store.read(records, out))
        assert store.read([0], out) == row
        again = timed(orders.permutation(rows), lambda records: store.read(records, out))
        stored = sum(path.stat().st_blocks * 512 for path in Path(name).rglob("*") if path.is_file())
        store.close()
    return {
        "hand_us": hand,
        "store_us": put,
        "first_us": first,
        "again_us": again,
        "share": stored / (rows * args.row_bytes),
    }


def timed(order: Any, act: Callable[[list[int]], Any]) -> float:
    """Call ``act`` with ``TRANSACTION`` records at a time; return the CPU time per record in µs."""
    records = order.tolist()
    begin = time.process_time()
    for start in range(0, len(records), TRANSACTION):
        act(records[start : start + TRANSACTION])
    return 1e6 * (time.process_time() - begin) / len(records)


def content(path: str, row_bytes: int) -> bytes:
    """Return the bytes of a row, made of the photos in ``path``."""
    data = b""
    for file, _ in listed(path):
        data += Path(file).read_bytes()
        if len(data) >= row_bytes:
            return data[:row_bytes]
    return (data or b"standpipe").ljust(row_bytes, b"x")


if __name__ == "__main__":
    main()
