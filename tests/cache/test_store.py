"""The store of a set: what was put is what is found, or nothing is. Why by a private name: ``stores`` says."""

from __future__ import annotations

import errno
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from photos import WAIT_S
from programs import open_below
from standpipe import _native
from stores import Set, bytes_of, folder, row_of


def values(stamp: _native.Stamp) -> tuple[int, int, int, bool]:
    return stamp.file_bytes, stamp.mtime_ns, stamp.ctime_ns, stamp.racy


def test_a_row_comes_back_with_what_was_said_of_it(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    with made.opened(room=1 << 20) as store:
        assert store.find(7) is None
        assert store.put(7, bytes_of(7), _native.Stamp(5, -6, -7, racy=True), truncated=True)
        assert store.put(99, bytes_of(99, 1), damaged=True)
        assert row_of(store, 7) == bytes_of(7)
        assert row_of(store, 99) == bytes_of(99, 1)
        row, last = store.find(7), store.find(99)
    assert row is not None
    assert (row.length, row.checksum, row.spilled) == (1000, _native.checksum(bytes_of(7)), False)
    assert values(row.stamp) == (5, -6, -7, True)
    assert (row.damaged, row.truncated) == (False, True)
    assert last is not None
    assert values(last.stamp) == (0, 0, 0, False)
    assert (last.extent, last.offset, last.damaged, last.truncated) == (0, 1000, True, False)


def test_another_process_would_find_it_too(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    with made.opened(room=1 << 20) as first, made.opened(writes=False) as second:
        assert first.put(3, bytes_of(3))
        assert row_of(second, 3) == bytes_of(3)
        assert not second.put(4, bytes_of(4))
    with made.opened() as third:
        assert row_of(third, 3) == bytes_of(3)
        assert third.have(0, 100).nonzero()[0].tolist() == [3]
        assert third.have(3, 4).tolist() == [True]
        assert third.have(4, 4).tolist() == []


def test_what_is_counted(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    with made.opened(room=2000) as store:
        assert [store.put(n, bytes_of(n, 900)) for n in (1, 2, 3)] == [True, True, False]
        assert [row_of(store, n) is None for n in (1, 2, 3, 1)] == [False, False, True, False]
        stats = store.stats()
        assert (stats.stored, stats.stored_bytes, stats.skipped) == (2, 1800, 1)
        assert (stats.hits, stats.hit_bytes, stats.misses) == (3, 2700, 1)
        assert (stats.errors, store.last_error()) == (0, "")


def test_a_row_is_replaced_by_who_has_seen_it(tmp_path: Path) -> None:
    """Not by who read the file before another one stored what it is now."""
    first, second = _native.Stamp(mtime_ns=1), _native.Stamp(mtime_ns=2)
    made = Set.made(tmp_path / "set")
    with made.opened(room=1 << 20) as slow, made.opened(room=1 << 20, number=1) as quick:
        assert quick.put(1, bytes_of(1), first)
        assert not slow.put(1, bytes_of(1, version=9))
        seen = slow.find(1)
        for other in ({"racy": True}, {"ctime_ns": 1}, {"file_bytes": 1}):
            stamp = _native.Stamp(mtime_ns=1, **other)
            assert quick.put(1, bytes_of(1, version=3), stamp, stale=quick.find(1))
            assert not slow.put(1, bytes_of(1, version=9), second, stale=seen)
        assert row_of(slow, 1) == bytes_of(1, version=3)
        assert slow.put(1, bytes_of(1, version=4), second, stale=slow.find(1))
        assert row_of(quick, 1) == bytes_of(1, version=4)
        assert slow.put(2, bytes_of(2), stale=seen)


def test_rows_that_cant_be_are_skipped(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    with made.opened(room=1 << 20) as store:
        assert not store.put(1, b"")
        assert store.stats().skipped == 1
        for ask in (store.get, store.find, lambda n: store.put(n, b"x"), lambda n: store.have(0, n + 1)):
            with pytest.raises(IndexError):
                ask(100)


def test_room_is_asked_for_before_it_is_gone(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    with made.opened() as store:
        assert store.wants().extent
        assert not store.put(0, bytes_of(0, 100))
        assert (store.wants().row_bytes, store.wants().skipped) == (100, True)
        assert made.grant(store, 0, 1000)
        wanted = []
        for record in range(12):
            store.put(record, bytes_of(record, 100))
            wanted.append(store.wants().extent)
        assert wanted == [False] * 5 + [True] * 7
        store.refuse()
        assert not store.wants().extent
        assert not store.put(20, bytes_of(20))
        assert made.grant(store, 1, 300)
        assert store.wants().extent  # less than its largest row
        assert made.grant(store, 2, 1500)
        assert not store.wants().extent
        assert store.put(20, bytes_of(20))
        found = [record for record in range(100) if row_of(store, record) == bytes_of(record, 100)]
        assert found == list(range(10))


def test_rows_begin_where_the_free_bytes_do(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    made.extent(5).write_bytes(b"others'" * 10)
    with made.opened() as store:
        assert made.grant(store, 5, 150, begin=70)
        assert [store.put(n, bytes_of(n, 75)) for n in range(3)] == [True, True, False]
        assert made.extent(5).read_bytes() == b"others'" * 10 + bytes_of(0, 75) + bytes_of(1, 75)
        for number, begin, end in ((1 << 24, 0, 1), (0, 2, 1), (0, 0, (1 << 40) + 1)):
            with pytest.raises(ValueError, match="no extent"):
                store.add_extent(number, 0, begin, end, False)
        with pytest.raises(OSError, match="Bad file descriptor"):
            store.add_extent(1, -1, 0, 1, False)


def test_whoever_waits_is_woken_once_for_each_extent_and_by_the_end(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    with made.opened() as store, ThreadPoolExecutor(1) as keeper:
        assert store.wait(WAIT_S * 1000)  # at first, since it has none
        assert store.wait(0)
        assert store.wants().extent  # as before; nothing new woke it
        made.grant(store, 0, 1000)
        woken = keeper.submit(store.wait, WAIT_S * 1000)
        assert store.put(1, bytes_of(1, 400))
        assert not store.wants().extent
        assert store.put(2, bytes_of(2, 400))
        assert woken.result(WAIT_S)
        woken = keeper.submit(store.wait, WAIT_S * 1000)
        assert store.close(0)
        assert not woken.result(WAIT_S)
        assert not store.wait(WAIT_S * 1000)
        assert not store.put(3, bytes_of(3, 10))
        assert row_of(store, 2) == bytes_of(2, 400)


def test_threads_store_a_row_once(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set", records=400)
    start = threading.Barrier(4)

    def put_all(store: _native.CacheStore) -> int:
        start.wait(WAIT_S)
        return sum(store.put(record, bytes_of(record)) for record in range(400))

    with made.opened(room=1 << 20) as one, made.opened(room=1 << 20, number=1) as two:
        with ThreadPoolExecutor(4) as pool:
            stored = sum(pool.map(put_all, (one, one, two, two)))
        assert stored == one.stats().stored + two.stats().stored == 400
        assert made.stored_bytes() == 400_000
        assert all(row_of(two, record) == bytes_of(record) for record in range(400))


def header(**changes: bytes) -> bytes:
    """A header of which some bytes are others."""
    table = bytearray(_native.CacheStore.table_header(100, 0x5A17))
    for at, content in changes.items():
        begin = int(at.removeprefix("at"))
        table[begin : begin + len(content)] = content
    return bytes(table)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (b"", "header is cut off"),
        (header()[:4095], "header is cut off"),
        (header(at0=b"nothing!"), "no table of a cache"),
        (header(at8=b"\0"), "header is damaged"),
        (header(at12=b"\1"), "header is damaged"),
        (header(at16=b"\1"), "header is damaged"),
        (header(at4095=b"\1"), "of another set"),
        (_native.CacheStore.table_header(101, 0x5A17), "for 101 records, not 100"),
        (_native.CacheStore.table_header(100, 0x5A18), "of another set"),
    ],
)
def test_a_table_that_isnt_this_sets(tmp_path: Path, table: bytes, says: str) -> None:
    made = Set.made(tmp_path / "set")
    made.table.write_bytes(table)
    with pytest.raises(ValueError, match=says), made.opened():
        pass


FORMAT_1 = header(at12=b"\1")[:44]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (header(at8=b"\1\2\3\4"), "the other byte order"),
        (
            header(at12=b"\1", at44=_native.checksum(FORMAT_1).to_bytes(4, sys.byteorder)),
            "its format is 1, and this",
        ),
    ],
)
def test_a_table_of_another_version_is_no_damage(tmp_path: Path, table: bytes, says: str) -> None:
    made = Set.made(tmp_path / "set")
    made.table.write_bytes(table)
    with pytest.raises(RuntimeError, match=says), made.opened():
        pass


def test_a_table_that_cant_be_had(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    made.table.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError), made.opened():
        pass
    made.table.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)), made.opened():
        pass
    made.table.unlink()
    os.mkfifo(made.table)
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)), made.opened():
        pass
    with folder(tmp_path) as directory, pytest.raises(ValueError, match="no table has entries for so many"):
        _native.CacheStore(directory, 1 << 62, 0, True, 0)


def test_more_extents_than_files_that_are_kept_open(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set", records=600)
    with made.opened() as store:
        for number in range(300):
            assert made.grant(store, number, 2000)
            assert all(store.put(2 * number + n, bytes_of(2 * number + n)) for n in range(2))
        before = len(open_below(tmp_path))
        for records in (range(600), np.random.default_rng(0).permutation(600).tolist()):
            assert all(row_of(store, record) == bytes_of(record) for record in records)
        assert len(open_below(tmp_path)) == before + 256


def test_nothing_is_left_open(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    for _ in range(3):
        with made.opened(room=1 << 20) as store:
            store.put(1, bytes_of(1))
            assert row_of(store, 1)
        del store
        assert open_below(tmp_path) == []
