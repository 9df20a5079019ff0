"""Sets: found or made, shared, bounded, and what is left of them."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import standpipe as sp
from caches import RECORDS, ROW, base, fill, identity, opened, right, row
from forked import run
from programs import open_below
from standpipe.cache.files.directory import Access, open_home
from standpipe.cache.files.moment import TimeOfUse
from standpipe.cache.sets.facts import CachedSet, look
from standpipe.cache.sets.removal import CacheFreeReport, drop_damaged

PROGRAM = "import sys; sys.path[:0] = {path!r}\nfrom caches import *\n"


@pytest.fixture
def cache(tmp_path: Path) -> sp.Cache:
    """One with room for everything."""
    return sp.Cache("eval", "64MiB", directory=tmp_path)


def listed(cache: sp.Cache) -> list[CachedSet]:
    """What a directory's only session has."""
    (session,) = sp.list_caches(cache.directory)
    assert session.problems == ()
    return list(session.sets)


def extents(folder: Path) -> list[Path]:
    """The files of rows below a folder."""
    return sorted(folder.rglob("rows-*"))


# Shared


def test_rows_are_there_for_who_comes_next(cache: sp.Cache) -> None:
    with opened(cache) as first:
        assert fill(first) == RECORDS
        assert first.notes() == []
    with opened(cache) as second:
        assert right(second) == RECORDS


def test_rows_are_there_for_who_is_there_already(cache: sp.Cache) -> None:
    with opened(cache) as one, opened(cache) as other:
        for record in range(RECORDS):
            fill((one, other)[record % 2], range(record, record + 1))
        assert right(one) == right(other) == RECORDS
        assert [each.users for each in listed(cache)] == [2]


def test_sessions_share_what_is_the_same(cache: sp.Cache) -> None:
    with opened(cache) as one:
        fill(one)
    other = sp.Cache("train", "64MiB", directory=cache.directory)
    with opened(other) as found:
        assert right(found) == RECORDS
    one_set, other_set = (session.sets[0] for session in sp.list_caches(cache.directory))
    assert one_set == other_set or one_set.digest == other_set.digest
    sp.destroy_cache(cache)
    with opened(other) as found:
        assert right(found) == RECORDS


def test_another_identity_is_another_set(cache: sp.Cache) -> None:
    with opened(cache) as one:
        fill(one)
    with opened(cache, identity(crop=200)) as other:
        assert right(other) == 0


def test_rows_differ_in_length_where_nothing_else_is_said(cache: sp.Cache) -> None:
    with opened(cache, kind="encoded", row_bytes=None) as found:
        for record in range(RECORDS):
            found.supply()
            assert found.store.put(record, row(record, 100 + record))
        assert [len(found.store.get(record)) for record in (0, 63)] == [100, 163]


@pytest.mark.parametrize("wrong", [{"records": 65}, {"kind": "encoded"}, {"row_bytes": 1}])
def test_a_set_of_other_rows_is_no_set_of_these(cache: sp.Cache, wrong: dict[str, Any]) -> None:
    opened(cache).close()
    with pytest.raises(sp.CacheError, match=next(iter(wrong))):
        opened(cache, **wrong)


def test_nothing_stays_open(cache: sp.Cache, tmp_path: Path) -> None:
    cache = sp.Cache("eval", "300kB", directory=tmp_path, spill=tmp_path)
    with opened(cache) as found:
        fill(found)
    del found  # the store is kept by whoever reads
    look(cache, identity())
    sp.verify_cache(cache)
    sp.list_caches(cache.directory)
    sp.destroy_cache(cache)
    assert open_below(tmp_path) == []


# Bounded


@pytest.mark.parametrize("limit", [100_000, 200_000, 350_000])
def test_a_limit_is_kept_and_said_once(tmp_path: Path, limit: int) -> None:
    cache = sp.Cache("eval", limit, directory=tmp_path)
    with opened(cache) as found:
        stored = fill(found)
        assert 0 < stored < RECORDS
        (note,) = found.notes()
        assert "keeps no more rows: its limit of" in note
        assert "give it spill=" in note
        fill(found)
        assert found.notes() == []
        assert right(found) == stored
    (here,) = listed(cache)
    assert here.bytes <= limit
    assert here.rows == stored
    assert stored * ROW > limit * 0.8 - 20_000


def test_several_jobs_keep_one_limit(tmp_path: Path) -> None:
    cache = sp.Cache("eval", "400kB", directory=tmp_path)
    with opened(cache) as one, opened(cache) as two, opened(cache, identity(crop=1)) as three:
        for record in range(RECORDS):
            for found in (one, two, three):
                fill(found, range(record, record + 1))
        for found in (one, two, three):  # nobody writes where another one does
            assert right(found) == found.store.have(0, RECORDS).sum()
    assert sum(each.bytes for each in listed(cache)) <= 400_000


def test_a_job_keeps_to_its_own_limit(cache: sp.Cache) -> None:
    opened(cache).close()
    small = sp.Cache("eval", "200kB", directory=cache.directory)
    with opened(small) as found:
        assert fill(found) < RECORDS
    unsaid = sp.Cache("eval", directory=cache.directory)
    with opened(unsaid) as found:
        assert fill(found) == RECORDS


@pytest.mark.parametrize("memory", [1, ROW - 1])
def test_a_cache_smaller_than_a_row_keeps_none_and_says_so_once(tmp_path: Path, memory: int) -> None:
    with opened(sp.Cache("eval", memory, directory=tmp_path)) as found:
        assert fill(found) == 0
        (note,) = found.notes()
        assert "can't hold a row of 9.7KiB" in note
        assert found.store.stats().skipped == RECORDS


def test_rows_that_do_not_fit_go_to_the_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    cache = sp.Cache("eval", "200kB", directory=tmp_path, spill=disk)
    with opened(cache) as found:
        fill(found)
        assert found.notes() == []
    (here,) = listed(cache)
    assert here.rows == RECORDS
    assert here.rows_on_disk > RECORDS / 2
    assert here.bytes <= 200_000
    assert here.bytes_on_disk >= here.rows_on_disk * ROW
    with opened(sp.Cache("eval", directory=tmp_path)) as found:
        assert right(found) == RECORDS
    sp.destroy_cache(cache)
    assert extents(tmp_path) == []


def test_the_disk_has_a_limit_of_its_own(tmp_path: Path) -> None:
    cache = sp.Cache("eval", "100kB", directory=tmp_path, spill=tmp_path, spill_limit="200kB")
    with opened(cache) as found:
        assert fill(found) < RECORDS
        (note,) = found.notes()
        assert "its limit of 97.6KiB is reached" in note
        assert "its limit of 195.3KiB is reached" in note
    (here,) = listed(cache)
    assert here.bytes_on_disk <= 200_000


def test_an_idle_set_gives_way(tmp_path: Path) -> None:
    cache = sp.Cache("eval", "900kB", directory=tmp_path, idle_after=0)
    for crop in (1, 2):
        with opened(cache, identity(crop=crop), records=32) as found:
            fill(found, range(32))
    with opened(cache, identity(crop=3), records=32) as found:
        assert fill(found, range(32)) == 32
    assert {each.parts["crop"] for each in listed(cache)} == {2, 3}  # the one that was idle the longest went


@pytest.mark.parametrize("idle_after", [3600, None])
def test_a_set_that_is_not_idle_for_long_stays(tmp_path: Path, idle_after: float | None) -> None:
    cache = sp.Cache("eval", "400kB", directory=tmp_path, idle_after=idle_after)
    with opened(cache) as found:
        kept = fill(found)
    with opened(cache, identity(crop=2)) as found:
        assert fill(found) < RECORDS / 2
    with opened(cache) as found:
        assert right(found) == kept


def test_a_set_in_use_never_gives_way(tmp_path: Path) -> None:
    cache = sp.Cache("eval", "400kB", directory=tmp_path, idle_after=0)
    with opened(cache) as used:
        kept = fill(used)
        with opened(cache, identity(crop=2)) as found:
            assert fill(found) < RECORDS / 2
        assert right(used) == kept
    with opened(cache) as found:
        assert right(found) == kept


def test_what_another_session_wants_to_keep_stays(tmp_path: Path) -> None:
    careful = sp.Cache("careful", "400kB", directory=tmp_path, idle_after=None)
    hasty = sp.Cache("hasty", "400kB", directory=tmp_path, idle_after=0)
    for cache in (careful, hasty):
        with opened(cache) as found:
            kept = fill(found)
    with opened(hasty, identity(crop=2)) as found:
        fill(found)
    with opened(careful) as found:
        assert right(found) == kept


# Left behind


def test_counts_of_all_who_ever_used_it(cache: sp.Cache) -> None:
    for _ in range(3):
        with opened(cache) as found:
            right(found)
            fill(found)
    (here,) = listed(cache)
    assert (here.users, here.counts.stored) == (0, RECORDS)
    assert (here.counts.hits, here.counts.misses) == (2 * RECORDS, RECORDS)
    assert here.hit_rate == pytest.approx(2 / 3)
    assert here.nodes
    assert here.idle_s is not None


def test_a_user_is_seen_while_it_lives(cache: sp.Cache) -> None:
    found = opened(cache)
    fill(found)
    found.stamp()
    (here,) = listed(cache)
    assert (here.users, here.idle_s, here.counts.stored) == (1, 0.0, RECORDS)
    found.close()
    assert listed(cache)[0].users == 0


def test_what_a_killed_writer_left_is_used_on(tmp_path: Path) -> None:
    cache = sp.Cache("eval", "64MiB", directory=tmp_path)
    done = run(
        f"""
        from caches import *
        found = opened(sp.Cache("eval", "64MiB", directory={str(tmp_path)!r}))
        fill(found, range(20))
        found.stamp()
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = extents(tmp_path)
    assert left.stat().st_size == (64 << 20) // 16  # what it was given
    with opened(cache) as found:
        assert right(found) == 20
        assert left.stat().st_size < 300_000  # what it wrote
        assert fill(found) == right(found) == RECORDS  # nothing of the old is written over
        assert [path.name for path in extents(tmp_path)] == [left.name]
    (here,) = listed(cache)
    assert (here.users, here.counts.stored, here.rows) == (0, RECORDS, RECORDS)


def test_a_set_outlives_its_session_no_longer_than_its_users(cache: sp.Cache, tmp_path: Path) -> None:
    with opened(cache) as found:
        fill(found)
        assert right(found) == RECORDS
        freed = sp.destroy_cache(cache)
        assert freed.sets == 1
        assert freed.memory == freed.held >= RECORDS * ROW
        assert extents(tmp_path) == []
        assert right(found) == RECORDS  # what it has open stays open
        found.supply()
        found.stamp()
        assert found.notes() == []
    assert list((base(tmp_path) / "sets").iterdir()) == []
    assert sp.list_caches(cache.directory) == []


def test_a_set_that_is_made_anew_is_another_one(cache: sp.Cache) -> None:
    with opened(cache) as old:
        fill(old, range(32))
        assert right(old) == 32
        sp.destroy_cache(cache)
        with opened(cache) as new:
            assert right(new) == 0
            fill(new, range(32, 64))
            assert right(old) == right(new) == 32
            fill(old, range(32, 64))
            assert right(new) == 32
            assert old.notes() == new.notes() == []
    assert [each.rows for each in listed(cache)] == [32]


def test_nothing_is_left_of_a_stopped_cache(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    for name in ("one", "two"):
        with opened(sp.Cache(name, "200kB", directory=tmp_path, spill=disk), identity(of=name)) as found:
            fill(found)
    freed = sp.destroy_all_caches(tmp_path)
    assert (freed.sets, freed.held) == (2, 0)
    assert freed.memory + freed.spilled >= 2 * RECORDS * ROW
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert sp.destroy_all_caches(tmp_path) == CacheFreeReport()


def test_rows_on_a_disk_whose_set_is_gone_are_cleared(tmp_path: Path) -> None:
    """As after a restart of the machine, which empties /dev/shm and no disk."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    cache = sp.Cache("eval", "200kB", directory=memory, spill=disk)
    with opened(cache) as found:
        fill(found)
    assert extents(disk)
    memory.rename(tmp_path / "before")
    memory.mkdir()
    with opened(cache):
        assert extents(disk)  # a folder of that name, and another one: as another container's
    for note in disk.rglob("home.json"):
        facts = json.loads(note.read_text())
        note.write_text(json.dumps(facts | {"boot": "the one before"}))
    with opened(cache, identity(crop=1)):
        assert extents(disk) == []


# Foreign and damaged


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"format": 0}, "has format 0, and this standpipe has format 1"),
        ({"byte_order": "big"}, "made on a machine with big-endian numbers"),
    ],
)
def test_what_another_version_or_machine_made_is_refused(
    cache: sp.Cache, tmp_path: Path, facts: dict[str, Any], says: str
) -> None:
    opened(cache).close()
    (manifest,) = tmp_path.rglob("set.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | facts))
    with pytest.raises(
        sp.CacheError, match=f"{says}.*standpipe cache destroy eval --directory {tmp_path} removes"
    ):
        opened(cache)
    (session,) = sp.list_caches(cache.directory)
    assert len(session.problems) == 1
    sp.destroy_cache(cache)
    opened(cache).close()


CONTENTS = {
    "zeros": b"\0" * 100,
    "empty": b"",
    "not text": b"\xff\xfe{}",
    "no object": b"[1, 2]",
    "no facts": b"{}",
}
DAMAGE = [*CONTENTS, "missing", "folder", "link", "pipe"]


def damage(directory: Path, name: str, how: str) -> None:
    """Put something else in the place of the only file or folder of that name, or nothing."""
    (file,) = directory.rglob(name)
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink()
    match how:
        case "missing":
            pass
        case "folder":
            (file / "more").mkdir(parents=True)
        case "link":
            file.symlink_to(directory)
        case "pipe":
            os.mkfifo(file)
        case _:
            file.write_bytes(CONTENTS[how])


@pytest.mark.parametrize("how", [*DAMAGE, "cut off"])
@pytest.mark.parametrize("name", ["set.json", "table"])
def test_a_damaged_set_is_filled_again(cache: sp.Cache, tmp_path: Path, name: str, how: str) -> None:
    with opened(cache) as found:
        assert fill(found) == RECORDS
    if how == "cut off":
        (file,) = tmp_path.rglob(name)
        os.truncate(file, file.stat().st_size * 3 // 4)
    else:
        damage(tmp_path, name, how)
    (checked,) = sp.verify_cache(cache).sets
    assert f"is unusable: its {name}" in checked.problem
    assert "The next job that uses this set removes it and fills it again" in checked.problem
    assert f"standpipe cache destroy eval --directory {tmp_path} removes" in checked.problem
    if name == "set.json":  # listing looks at no table
        assert sp.list_caches(tmp_path)[0].problems == (checked.problem,)
    forecast = look(cache, identity())
    with opened(cache) as found:
        (note,) = found.notes()
        assert note.startswith(f"cache 'eval': the cached set {identity().digest} is unusable: its {name}")
        assert note.endswith("The set was removed, and is filled again")
        assert right(found) == 0
        assert fill(found) == right(found) == RECORDS
    with opened(cache) as found:
        assert found.notes() == []
        assert right(found) == RECORDS
    assert forecast.limits.memory == 64 << 20
    del found  # the store is kept by whoever reads
    assert open_below(tmp_path) == []


@pytest.mark.parametrize("how", ["missing", "empty", "link", "pipe"])
def test_a_set_without_its_folder_of_users_is_filled_again(cache: sp.Cache, tmp_path: Path, how: str) -> None:
    opened(cache).close()
    damage(tmp_path, "users", how)
    with opened(cache) as found:
        assert "its users is " in found.notes()[0]
        assert fill(found) == RECORDS


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_session_gets_the_limits_of_the_job_that_opens_it(
    cache: sp.Cache, tmp_path: Path, how: str
) -> None:
    with opened(cache) as found:
        fill(found)
    damage(tmp_path, "session.json", how)
    (listed,) = sp.list_caches(tmp_path)
    assert listed.memory_limit is None
    assert "session.json is" in listed.problems[0]
    assert f"standpipe cache destroy eval --directory {tmp_path} removes" in listed.problems[0]
    small = sp.Cache("eval", "3MiB", directory=tmp_path)
    assert look(small, identity()).limits.memory == 3 << 20
    with opened(small) as found:
        (note,) = found.notes()
        assert note.startswith("cache 'eval' has the limits of this job from now on: its session.json is ")
        assert right(found) == RECORDS  # its sets are as they were
    (session,) = sp.list_caches(tmp_path)
    assert (session.memory_limit, session.problems, len(session.sets)) == (3 << 20, (), 1)
    with opened(small) as found:
        assert found.notes() == []


@pytest.mark.parametrize("how", ["missing", "empty", "link", "pipe"])
def test_a_session_without_its_folder_of_sets_gets_a_new_one(
    cache: sp.Cache, tmp_path: Path, how: str
) -> None:
    opened(cache).close()
    damage(tmp_path, "sessions/eval/sets", how)
    with pytest.raises(sp.CacheError, match=r"'eval' .* its sets is .* destroy eval --directory"):
        sp.verify_cache(cache)
    assert look(cache, identity()).limits.memory == 64 << 20
    with opened(cache) as found:
        assert "its sets is " in found.notes()[0]
        assert fill(found) == RECORDS
    assert sp.verify_cache(cache).rows == RECORDS
    damage(tmp_path, "sessions/eval/sets", how)
    sp.destroy_cache(cache)
    assert sp.list_caches(tmp_path) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": -1},
        {"memory": True},
        {"spill_limit": -1},
        {"idle_after_s": -1.0},
        {"idle_after_s": math.nan},
    ],
    ids=str,
)
def test_a_limit_that_cant_be_is_damage(cache: sp.Cache, tmp_path: Path, wrong: dict[str, float]) -> None:
    sp.create_cache(cache)
    (manifest,) = tmp_path.rglob("session.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | wrong))
    (listed,) = sp.list_caches(tmp_path)
    assert "session.json is damaged" in listed.problems[0]


@pytest.mark.parametrize("name", ["set.json", "table"])
def test_who_has_a_damaged_set_open_reads_on(cache: sp.Cache, tmp_path: Path, name: str) -> None:
    with opened(cache) as early:
        fill(early)
        assert right(early) == RECORDS
        (file,) = tmp_path.rglob(name)
        whole = file.read_bytes()
        file.write_bytes(b"\0" * 4096 + whole[4096:] if name == "table" else b"")
        with opened(cache) as late:
            assert len(late.notes()) == 1
            assert right(early) == RECORDS
            assert right(late) == 0
            assert fill(late) == right(late) == right(early) == RECORDS
    with opened(cache) as found:
        assert right(found) == RECORDS


def test_jobs_that_find_the_same_damage_remove_one_set(cache: sp.Cache, tmp_path: Path) -> None:
    """A job that comes late must not remove what another one has made anew."""
    opened(cache).close()
    damage(tmp_path, "table", "zeros")
    home = open_home(str(tmp_path), Access(), make=False)
    damaged = os.open(identity().digest, os.O_RDONLY, dir_fd=home.sets)
    try:
        with opened(cache) as found:
            fill(found)
            assert not drop_damaged(home, identity().digest, damaged)
            assert right(found) == RECORDS
            assert found.is_there
    finally:
        os.close(damaged)
        home.close()


def test_nothing_is_removed_for_want_of_files(cache: sp.Cache, tmp_path: Path) -> None:
    """At each number of files that may be opened, from none on, the set is there afterwards."""
    with opened(cache) as found:
        fill(found)
    done = run(
        f"""
        import contextlib, resource
        from caches import *
        cache = sp.Cache("eval", "64MiB", directory={str(tmp_path)!r})
        opened(cache).close()  # all modules are there
        hard, refused = resource.getrlimit(resource.RLIMIT_NOFILE)[1], 0
        first = os.dup(0)
        os.close(first)
        for more in range(40):
            resource.setrlimit(resource.RLIMIT_NOFILE, (first + more, hard))
            try:
                found = opened(cache)
            except (sp.CacheError, sp.PlanError) as error:
                assert "Too many open files" in str(error), error
                refused += 1
                continue
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            assert all("Too many open files" in note for note in found.notes())
            found.close()
        assert 5 < refused < 40, refused
        """
    )
    assert done.returncode == 0, done.stderr
    with opened(cache) as found:
        assert right(found) == RECORDS


def test_a_set_is_closed_where_no_more_files_can_be_opened(cache: sp.Cache, tmp_path: Path) -> None:
    done = run(
        f"""
        import resource
        from caches import *
        from programs import open_below
        found = opened(sp.Cache("eval", "64MiB", directory={str(tmp_path)!r}))
        fill(found)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        found.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        del found
        assert open_below({str(tmp_path)!r}) == []
        """
    )
    assert done.returncode == 0, done.stderr
    (found,) = listed(cache)
    assert (found.users, found.counts.stored) == (0, RECORDS)


# Time


def test_time_is_that_of_the_boot_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = TimeOfUse.now()
    assert 0 <= now.ago_s < 60
    assert TimeOfUse(now.boot, now.since_s - 100, now.wall_s + 1e9).ago_s == pytest.approx(100, abs=60)
    assert TimeOfUse("another run", now.since_s + 1e9, now.wall_s).ago_s >= now.since_s


# Ahead


def test_looking_creates_nothing(cache: sp.Cache, tmp_path: Path) -> None:
    found = look(cache, identity())
    assert found.present is None
    assert found.limits.memory == found.memory_free == 64 << 20
    assert list(tmp_path.iterdir()) == []


def test_looking_tells_what_is_there_and_what_may_come(tmp_path: Path) -> None:
    cache = sp.Cache("eval", "64MiB", directory=tmp_path, spill=tmp_path, spill_limit="128MiB")
    with opened(cache) as found:
        fill(found)
        there = look(cache, identity())
    assert there.present is not None
    assert (there.present.rows, there.present.users) == (RECORDS, 1)
    assert (128 << 20) - (32 << 10) <= there.spill_free <= 128 << 20
    after = look(cache, identity())
    assert after.present is not None
    assert after.memory_free == (64 << 20) - after.present.bytes - (16 << 10)


def test_half_of_what_is_free_is_the_limit_where_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 64th of the file system is left to others. Other programs change the real numbers at any moment."""
    blocks, free = 64 << 8, 9 << 8
    facts = os.statvfs_result((4096, 4096, blocks, free, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda folder: facts)
    assert look(sp.Cache("eval", directory=tmp_path), identity()).limits.memory == 4 << 20
