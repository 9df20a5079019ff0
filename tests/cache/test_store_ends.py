"""Processes that store rows and are killed, stopped, forked or run out of room: others read and store on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.test_environment import can_unshare, run_in
from forked import output
from standpipe import _native
from stores import Set, bytes_of, row_of
from storing import Others, Work

SECOND = _native.Stamp(mtime_ns=2)
POINTS = ["cache.row", "cache.entry", "cache.entry.after"]


@pytest.fixture(scope="module")
def others() -> Iterator[Others]:
    with Others.started() as started:
        yield started


@pytest.mark.parametrize("spilled", [False, True], ids=["memory", "spill"])
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_while_it_stores_a_row(
    point: str, spilled: bool, others: Others, tmp_path: Path
) -> None:
    """Rows before it are there, this one as it was or as it is, and the next process stores it and the rest."""
    made = Set.made(tmp_path / "set")
    assert others.do(made, Work(range(20))) == [0]
    faults = f"{point}=kill@#15"
    work = Work(range(10, 30), version=1, number=2000, spilled=spilled, faults=faults, replaces=True)
    assert others.do(made, work) == [-signal.SIGKILL]
    with made.opened(room=1 << 20) as store:
        found = [row_of(store, record) for record in range(30)]
        assert found[:10] == [bytes_of(record) for record in range(10)]
        assert found[10:15] == [bytes_of(record, version=1) for record in range(10, 15)]
        assert found[15] == bytes_of(15, version=int(point == "cache.entry.after"))
        assert found[16:20] == [bytes_of(record) for record in range(16, 20)]
        assert found[20:] == [None] * 10
        assert store.stats().errors == 0
        for record in range(15, 30):
            assert store.put(record, bytes_of(record, version=2), SECOND, stale=store.find(record))
            assert row_of(store, record) == bytes_of(record, version=2)


@pytest.mark.parametrize("point", POINTS)
def test_nobody_waits_for_a_process_that_is_stopped(point: str, others: Others, tmp_path: Path) -> None:
    """Its row isn't stored by others as long as it lives; all else is."""
    made = Set.made(tmp_path / "set")
    (stopped,) = others.do(made, Work([1, 2, 3], faults=f"{point}=stop@#2"))
    assert stopped > 1000
    stored = point == "cache.entry.after"
    with made.opened(room=1 << 20) as store:
        assert [store.put(record, bytes_of(record)) for record in range(1, 5)] == [False, False, True, True]
        assert store.stats().skipped == 1
        found = [row_of(store, record) is not None for record in range(1, 5)]
        assert found == [True, stored, True, True]
        others.end(stopped)
        assert store.put(2, bytes_of(2)) is not stored
        assert row_of(store, 2) == bytes_of(2)
        assert store.stats().errors == 0


def test_processes_store_each_row_once(others: Others, tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set", records=500)
    assert others.do(made, Work(range(500), processes=4)) == [0] * 4
    assert made.stored_bytes() == 500_000
    with made.opened() as store:
        assert all(row_of(store, record) == bytes_of(record) for record in range(500))


def test_a_forked_copy_of_a_store_stores_nothing(tmp_path: Path) -> None:
    """It shares the claims of the process it comes from: they stay that one's."""
    made = Set.made(tmp_path / "set")
    program = f"""
from pathlib import Path
from stores import Set, bytes_of, row_of
made = Set(Path({str(made.path)!r}))
with made.opened(room=1 << 20) as store:
    assert store.put(1, bytes_of(1))
    made.grant(store, 1, 1 << 20, spilled=True)
    child = os.fork()
    if child == 0:
        assert row_of(store, 1) == bytes_of(1)
        assert not store.put(2, bytes_of(2))
        assert not store.wants().extent
        assert store.close(10_000)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.put(2, bytes_of(2))
    assert row_of(store, 2) == bytes_of(2)
"""
    assert output(program) == ""


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """ulimit -f: an extent takes what it may, then another one, and that is that."""
    made = Set.made(tmp_path / "set")
    program = f"""
import resource
from pathlib import Path
from stores import Set, bytes_of, row_of
made = Set(Path({str(made.path)!r}))
with made.opened(room=1 << 20) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    assert [store.put(record, bytes_of(record, 1500)) for record in range(8)] == [True] * 6 + [False] * 2
    print(store.last_error(), store.stats().errors, store.stats().skipped, store.wants().extent)
    assert made.grant(store, 1, 1 << 20)
    assert [store.put(record, bytes_of(record, 1500)) for record in range(6, 20)] == [True] * 6 + [False] * 8
    print(store.wants().memory, store.wants().spill)
    assert made.grant(store, 2, 1 << 20)
    assert [store.put(record, bytes_of(record, 15000)) for record in range(12, 14)] == [False] * 2
    print(store.wants().memory, store.wants().spill, made.grant(store, 3, 1 << 20))
    print([row_of(store, record) == bytes_of(record, 1500) for record in range(20)].index(False))
"""
    assert output(program) == (
        "memory can't be written: File too large 1 2 True\nTrue True\nFalse True False\n12\n"
    )


FILLED = """
from pathlib import Path
from stores import Set, bytes_of, row_of
made = Set.made(Path("/mnt/set"), records=2000)
with made.opened() as store:
    number = 0
    for record in range(2000):
        if store.wants().extent and not made.grant(store, number, 1 << 20):
            store.refuse()
        number += 1
        store.put(record, bytes_of(record, 10_000))
    stored = store.stats().stored
    print(stored > 780, store.stats().skipped == 2000 - stored, store.last_error(), store.wants().extent)
    print([row_of(store, record) == bytes_of(record, 10_000) for record in range(2000)].count(True) == stored)
with made.opened() as store:
    print([row_of(store, record) == bytes_of(record, 10_000) for record in range(2000)].count(True) == stored)
    print(store.stats().errors)
"""


@pytest.mark.skipif(not can_unshare("-m"), reason="needs a mount namespace")
def test_a_tmpfs_that_is_full() -> None:
    """8 MiB: what fits is stored and read again, and the rest is skipped. Nothing is a signal."""
    text = run_in(["-m"], "mount -t tmpfs -o size=8m none /mnt", FILLED)
    assert text == "True True memory can't be written: No space left on device False\nTrue\nTrue\n0\n"


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ("cache.row=enospc", "No space left on device"),
        ("cache.row=short", "No space left on device"),
        ("cache.row=eio", "Input/output error"),
        ("cache.entry=eio", "Input/output error"),
    ],
)
def test_memory_that_fails_is_given_up_and_the_spill_used(faults: str, says: str, tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    program = f"""
from pathlib import Path
from stores import Set, bytes_of, row_of
made = Set(Path({str(made.path)!r}))
with made.opened() as store:
    for record in range(4):
        made.grant(store, record, 1 << 20)
        assert not store.put(record, bytes_of(record))
    assert not store.wants().memory
    assert made.grant(store, 9, 1 << 20, spilled=True)
    assert store.put(50, bytes_of(50))
    assert store.close(10_000)
    assert row_of(store, 50) == bytes_of(50)
    assert store.find(50).spilled
    stats = store.stats()
    print(stats.errors, stats.skipped, stats.stored, stats.spilled_stored, stats.spilled_hits)
    print(store.last_error())
"""
    failures = 2 if "No space" in says else 1
    text = output(program, environment={"STANDPIPE_FAULTS": f"{faults}@#0;{faults}@#1;{faults}@#2"})
    assert text == f"{failures} 4 1 1 1\nmemory can't be written: {says}\n"


def test_reads_that_fail(tmp_path: Path) -> None:
    """A damaged row is a miss; an extent that can't be read isn't read again, and its rows may be stored."""
    made = Set.made(tmp_path / "set")
    with made.opened(room=10_000) as store:
        assert all(store.put(record, bytes_of(record)) for record in range(10))
        made.grant(store, 1, 10_000)
        assert all(store.put(record, bytes_of(record)) for record in range(10, 20))
    program = f"""
from pathlib import Path
from stores import Set, bytes_of, row_of
with Set(Path({str(made.path)!r})).opened(room=10_000, number=2) as store:
    print([record for record in range(20) if row_of(store, record) == bytes_of(record)])
    stats = store.stats()
    print(stats.hits, stats.misses, stats.errors, store.last_error())
    print([record for record in range(20) if store.put(record, bytes_of(record))])
"""
    # Each row is two passes: its entry, and its bytes.
    text = output(program, environment={"STANDPIPE_FAULTS": "cache.read=corrupt@4;cache.read=eio@12"})
    assert text == (
        f"{[0, *range(2, 5), *range(10, 20)]}\n14 6 2 an extent can't be read: Input/output error\n"
        f"{[*range(10)]}\n"
    )


def test_a_spill_that_is_stuck_is_left_behind(tmp_path: Path) -> None:
    """The end waits no longer than it is told to, and others may store what was dropped."""
    made = Set.made(tmp_path / "set")
    program = f"""
from pathlib import Path
from stores import Set, bytes_of, row_of
made = Set(Path({str(made.path)!r}))
with made.opened(room=1 << 20, number=5) as other:
    with made.opened(queue=3500) as store:
        assert made.grant(store, 0, 1 << 20, spilled=True)
        print([store.put(record, bytes_of(record)) for record in range(5)], store.stats().skipped)
        print([other.put(record, bytes_of(record)) for record in range(5)])
        print(store.close(50), store.stats().skipped)
        print([other.put(record, bytes_of(record)) for record in range(3)])
        sys.stdout.flush()
        os._exit(0)  # and not in a minute
"""
    # The rows' claims are held until they are written or dropped; the first one's bytes may be on their way.
    assert output(program, environment={"STANDPIPE_FAULTS": "cache.row=delay:60s@#0"}).splitlines() == [
        "[True, True, True, False, False] 2",
        "[False, False, False, True, True]",
        "False 4",
        "[False, True, True]",
    ]


def test_a_row_that_finds_no_place_in_the_queue_takes_none_on_the_disk(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set")
    with made.opened(queue=1500) as store:
        assert made.grant(store, 0, 2500, spilled=True)
        assert not store.put(1, bytes_of(1, 2000))
        assert store.put(2, bytes_of(2, 1400))
        assert store.close(10_000)
        row = store.find(2)
        assert row is not None
        assert row.offset == 0


def test_a_disk_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    """Its rows are missed then and may be stored in memory; nothing more is read from it or written to it."""
    made = Set.made(tmp_path / "set")
    with made.opened() as store:
        assert made.grant(store, 0, 1 << 20, spilled=True)
        assert all(store.put(record, bytes_of(record)) for record in range(10))
    program = f"""
from pathlib import Path
from stores import Set, bytes_of, row_of
made = Set(Path({str(made.path)!r}))
with made.opened(room=1 << 20, number=5, patience=2000) as store:
    assert made.grant(store, 6, 1 << 20, spilled=True)
    print([record for record in range(10) if row_of(store, record) == bytes_of(record)])
    print(store.stats().errors, store.last_error())
    print(store.wants().memory, store.wants().spill, made.grant(store, 7, 1 << 20, spilled=True))
    assert all(store.put(record, bytes_of(record)) for record in range(10))
    assert all(row_of(store, record) == bytes_of(record) for record in range(10))
    print(store.stats().errors, store.close(10_000))
    sys.stdout.flush()
    os._exit(0)  # and not in an hour
"""
    text = output(program, environment={"STANDPIPE_FAULTS": "cache.disk=delay:3600s@#1"})
    assert text == "[0]\n1 its disk hangs, and is left alone\nTrue False False\n1 False\n"


def test_a_spill_that_fails_is_given_up(tmp_path: Path) -> None:
    """What memory takes is stored on, and what was spilled before is read."""
    made = Set.made(tmp_path / "set")
    program = f"""
from pathlib import Path
from stores import Set, bytes_of, row_of
made = Set(Path({str(made.path)!r}))
with made.opened() as store:
    made.grant(store, 0, 1 << 20, spilled=True)
    assert all(store.put(record, bytes_of(record)) for record in range(3))
    while not store.stats().errors:
        assert store.wait(30_000)
    assert (store.wants().memory, store.wants().spill) == (True, False)
    assert not made.grant(store, 1, 1 << 20, spilled=True)
    made.grant(store, 2, 1 << 20)
    assert store.put(3, bytes_of(3))
    print([record for record in range(4) if row_of(store, record) == bytes_of(record)])
    print(store.stats().skipped, store.last_error())
"""
    text = output(program, environment={"STANDPIPE_FAULTS": "cache.row=eio@#2"})
    assert text == "[0, 1, 3]\n1 the spill can't be written: Input/output error\n"


def test_no_more_files_can_be_opened(tmp_path: Path) -> None:
    """Then there are misses, and when some can be opened again there are none."""
    made = Set.made(tmp_path / "set")
    program = f"""
import resource
from pathlib import Path
from stores import Set, bytes_of, row_of
made = Set(Path({str(made.path)!r}))
with made.opened(room=1 << 20) as store:
    assert store.put(1, bytes_of(1))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, most[1]))
    print(row_of(store, 1), store.last_error(), store.find(1) is not None)
    resource.setrlimit(resource.RLIMIT_NOFILE, most)
    print(row_of(store, 1) == bytes_of(1), store.stats().errors)
"""
    assert output(program) == "None an extent can't be read: Too many open files True\nTrue 1\n"


def test_the_spill_writes_what_the_queue_holds_when_it_is_closed(tmp_path: Path) -> None:
    made = Set.made(tmp_path / "set", records=300)
    with made.opened(room=5000, queue=10_000) as store:
        assert made.grant(store, 0, 1 << 20, spilled=True)
        stored = [record for record in range(300) if store.put(record, bytes_of(record, 10 + record * 7))]
        assert store.close(10_000)
        stats = store.stats()
    assert stats.stored == len(stored) == 300 - stats.skipped
    assert stats.stored_bytes == sum(10 + record * 7 for record in stored)
    assert 0 < stats.spilled_stored < stats.stored
    with made.opened() as store:
        assert [record for record in range(300) if row_of(store, record)] == stored
        assert all(row_of(store, record) == bytes_of(record, 10 + record * 7) for record in stored)
        assert store.stats().spilled_hits == stats.spilled_stored * 2
    assert made.extent(0).stat().st_size <= 5000
