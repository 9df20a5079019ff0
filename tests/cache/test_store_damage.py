"""The store of a set whose files are damaged, foreign or gone: what is found is what was stored, or nothing is."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from standpipe import _native
from stores import ENTRY_BYTES, Set, bytes_of, flip, folder, row_of

ROW_BYTES = 40


def written(folder: Path, records: int = 3, length: int = ROW_BYTES) -> Set:
    """Rows of the first records in one extent, one behind the other."""
    made = Set.made(folder)
    with made.opened(room=1 << 20) as store:
        assert all(store.put(record, bytes_of(record, length)) for record in range(records))
    return made


def test_no_bit_of_a_row_can_be_flipped_unseen(tmp_path: Path) -> None:
    made = written(tmp_path / "set")
    for bit in range(8 * ROW_BYTES):
        flip(made.extent(0), bit)
        with made.opened(writes=False) as store:
            assert row_of(store, 0) is None
            assert store.stats().errors == 1
            assert row_of(store, 1) == bytes_of(1, ROW_BYTES)
        flip(made.extent(0), bit)
    with made.opened() as store:
        assert row_of(store, 0) == bytes_of(0, ROW_BYTES)


def test_no_bit_of_an_entry_can_be_flipped_unseen(tmp_path: Path) -> None:
    made = written(tmp_path / "set")
    begin = 8 * made.entry_at(1).start
    with made.opened(writes=False) as store:
        for bit in range(begin, begin + 8 * ENTRY_BYTES):
            flip(made.table, bit)
            assert store.find(1) is None
            assert store.have(0, 4).tolist() == [True, False, True, False]
            flip(made.table, bit)
        assert store.stats().errors == 8 * ENTRY_BYTES
        assert store.last_error() == "an entry of the table is damaged or can't be read"
        assert row_of(store, 1) == bytes_of(1, ROW_BYTES)


def test_an_entry_counts_only_where_it_was_written(tmp_path: Path) -> None:
    made, other = written(tmp_path / "set"), Set.made(tmp_path / "other", salt=0x5A18)
    table = bytearray(made.table.read_bytes())
    table[made.entry_at(2)] = table[made.entry_at(1)]
    made.table.write_bytes(table)
    made.extent(0).rename(other.extent(0))
    other.table.write_bytes(_native.CacheStore.table_header(100, 0x5A18) + made.table.read_bytes()[4096:])
    with made.opened() as store:
        assert store.find(1) is not None
        assert store.find(2) is None
    with other.opened() as store:
        assert not store.have(0, 100).any()


def test_an_entry_of_which_half_is_an_older_one(tmp_path: Path) -> None:
    made = written(tmp_path / "set")
    old, stamp = made.table.read_bytes(), _native.Stamp(mtime_ns=1)
    with made.opened(room=1 << 20, number=1) as store:
        assert store.put(1, bytes_of(1, ROW_BYTES, version=1), stamp, stale=store.find(1))
    new = made.table.read_bytes()
    entry = made.entry_at(1)
    for at in range(entry.start + 1, entry.stop):
        made.table.write_bytes(new[:at] + old[at : entry.stop] + new[entry.stop :])
        with made.opened() as store:
            assert row_of(store, 1) in (None, bytes_of(1, ROW_BYTES, version=1))


@pytest.mark.parametrize(
    "fields",
    [
        {"flags": 16},
        {"length": 0},
        {"length": (1 << 30) + 1},
        {"place": (1 << 40) - 1},
    ],
    ids=str,
)
def test_an_entry_of_a_row_that_cant_be(tmp_path: Path, fields: dict[str, int]) -> None:
    made = written(tmp_path / "set")
    values = {"flags": 0, "place": 0, "length": ROW_BYTES, "checksum": 0} | fields
    entry = struct.pack("=IQIIqqq", *values.values(), 0, 0, 0)
    check = _native.checksum(b"\0\0\0\0" + entry + struct.pack("=Q", key_of(made.salt, 1)))
    table = bytearray(made.table.read_bytes())
    table[made.entry_at(1)] = struct.pack("=I", check) + entry
    made.table.write_bytes(table)
    with made.opened() as store:
        assert store.find(1) is None
        assert store.put(1, bytes_of(1)) is False  # no room: what there is isn't taken for stored
        assert store.stats().skipped == 1


def key_of(salt: int, record: int) -> int:
    """``mix`` of ``native/system/keys.h``."""
    mask = (1 << 64) - 1

    def scramble(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    return scramble(scramble(salt + 0x9E3779B97F4A7C15 & mask) ^ (record * 0xD1342543DE82EF95 + 1 & mask))


def test_an_entry_that_is_whole_but_leads_nowhere(tmp_path: Path) -> None:
    """Also shows that the entries of the test above are refused for what they say."""
    made = written(tmp_path / "set")
    entry = struct.pack("=IQIIqqq", 0, 5 << 40 | 7, ROW_BYTES, 0, 0, 0, 0)
    check = _native.checksum(b"\0\0\0\0" + entry + struct.pack("=Q", key_of(made.salt, 1)))
    table = bytearray(made.table.read_bytes())
    table[made.entry_at(1)] = struct.pack("=I", check) + entry
    made.table.write_bytes(table)
    with made.opened() as store:
        row = store.find(1)
        assert row is not None
        assert (row.extent, row.offset) == (5, 7)
        assert row_of(store, 1) is None
        assert store.last_error() == "an extent can't be read: No such file or directory"
        assert store.find(1) is None  # it isn't tried again


def test_a_damaged_row_is_stored_again(tmp_path: Path) -> None:
    made = written(tmp_path / "set")
    flip(made.extent(0), 0)
    with made.opened(room=1 << 20, number=1) as store:
        assert row_of(store, 0) is None
        assert store.find(0) is None
        assert store.stats().errors == 1
        assert store.put(0, bytes_of(0, ROW_BYTES))
        assert row_of(store, 0) == bytes_of(0, ROW_BYTES)
    with made.opened() as store:
        assert row_of(store, 0) == bytes_of(0, ROW_BYTES)


def test_a_truncated_extent_loses_the_rows_beyond(tmp_path: Path) -> None:
    made = written(tmp_path / "set")
    os.truncate(made.extent(0), 2 * ROW_BYTES - 1)
    with made.opened() as store:
        assert [row_of(store, record) is not None for record in range(3)] == [True, False, False]
    os.truncate(made.extent(0), 3 * ROW_BYTES)  # zeros now
    with made.opened() as store:
        assert [row_of(store, record) is not None for record in range(3)] == [True, False, False]


def test_an_extent_that_is_removed_is_read_by_who_has_it_open(tmp_path: Path) -> None:
    made = written(tmp_path / "set")
    with made.opened(room=1 << 20, number=1) as early:
        assert row_of(early, 0) == bytes_of(0, ROW_BYTES)
        made.extent(0).unlink()
        assert row_of(early, 1) == bytes_of(1, ROW_BYTES)
        with made.opened() as late:
            assert row_of(late, 1) is None
            assert late.find(2) is None
            assert late.stats().errors == 1
            made.grant(late, 0, 1 << 20)
            assert late.put(1, bytes_of(1, ROW_BYTES))
            assert row_of(late, 1) == bytes_of(1, ROW_BYTES)


def test_spilled_rows_without_their_folder(tmp_path: Path) -> None:
    """They are misses until it is known."""
    made = Set.made(tmp_path / "set")
    with made.opened() as store:
        made.grant(store, 0, 1 << 20, spilled=True)
        assert all(store.put(record, bytes_of(record)) for record in range(3))
    with made.opened(spills=False) as store:
        assert row_of(store, 0) is None
        assert [store.find(record) for record in range(3)] == [None] * 3
        assert store.stats().errors == 1
        with folder(made.spill) as spill:
            store.set_spill(spill)
        assert [row_of(store, record) for record in (1, 2)] == [bytes_of(1), bytes_of(2)]
        with pytest.raises(OSError, match="Bad file descriptor"):
            store.set_spill(-1)


@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "empty"])
def test_an_extent_that_is_no_extent(tmp_path: Path, kind: str) -> None:
    made = written(tmp_path / "set")
    made.extent(0).rename(tmp_path / "elsewhere")
    match kind:
        case "folder":
            made.extent(0).mkdir()
        case "link":
            made.extent(0).symlink_to(tmp_path / "elsewhere")
        case "pipe":
            os.mkfifo(made.extent(0))
        case _:
            made.extent(0).touch()
    with made.opened() as store:
        assert [row_of(store, record) for record in range(3)] == [None] * 3
        assert store.stats().errors == (3 if kind == "empty" else 1)


def test_a_table_that_is_cut_off_or_random(tmp_path: Path) -> None:
    made = written(tmp_path / "set", records=100)
    os.truncate(made.table, made.entry_at(1).start + 7)
    with made.opened() as store:
        assert store.have(0, 100).nonzero()[0].tolist() == [0]
        assert [record for record in range(100) if row_of(store, record)] == [0]
    with made.table.open("r+b") as file:
        file.seek(made.entry_at(1).start)
        file.write(random.Random(0).randbytes(99 * ENTRY_BYTES))
    with made.opened(room=1 << 20, number=1) as store:
        assert [record for record in range(100) if row_of(store, record)] == [0]
        assert store.put(50, bytes_of(50))
        assert row_of(store, 50) == bytes_of(50)
