"""Sessions: made ahead, listed, destroyed; and those of a group of users."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import standpipe as sp
from caches import RECORDS, ROW, base, fill, identity, opened, right
from forked import output
from standpipe.reports import CacheFreeReport

GROUP = 4242
AS_MEMBER = """
import ctypes, grp, hashlib, json, shutil  # now: another user may not get at this interpreter's own files
import numpy.random
from caches import *
from standpipe.cache.sets.facts import look

GROUP, directory = {group}, {directory!r}
team = sp.Cache("team", "2MiB", directory=directory, shared_group=GROUP)

def as_user(number, groups, work):
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0
        return
    code = 1
    try:
        os.setgroups(groups)
        os.setgid(number)
        os.setuid(number)
        os.umask(0o077)
        work()
        sys.stdout.flush()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user gets at, as /dev/shm is."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def test_what_a_job_does_not_say_its_session_says(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    made = sp.create_cache(sp.Cache("eval", "150kB", directory=tmp_path, spill=tmp_path / "disk"))
    assert (made.name, made.memory_limit, made.bytes, made.sets) == ("eval", 150_000, 0, ())
    with opened(sp.Cache("eval", directory=tmp_path)) as found:
        fill(found)
    (session,) = sp.list_caches(tmp_path)
    assert session.bytes <= 150_000
    assert session.bytes_on_disk > RECORDS * ROW / 2


def test_a_session_is_created_once(tmp_path: Path) -> None:
    sp.create_cache(sp.Cache("eval", "1MiB", directory=tmp_path))
    with pytest.raises(sp.CacheError, match="there is a cache 'eval'"):
        sp.create_cache(sp.Cache("eval", "2MiB", directory=tmp_path))
    with pytest.raises(sp.CacheError, match="is off"):
        sp.create_cache(sp.Cache("other", 0, directory=tmp_path))


def test_listing_creates_nothing(tmp_path: Path) -> None:
    assert sp.list_caches(tmp_path) == []
    assert sp.destroy_all_caches(tmp_path) == CacheFreeReport()
    assert list(tmp_path.iterdir()) == []


def test_destroying_one_keeps_what_others_have(tmp_path: Path) -> None:
    one, other = (sp.Cache(name, "2MiB", directory=tmp_path) for name in ("one", "other"))
    for cache in (one, other):
        with opened(cache) as found:
            fill(found)
    with opened(one, identity(crop=2)) as found:
        fill(found)
    assert sp.destroy_cache(one).sets == 1
    (session,) = sp.list_caches(tmp_path)
    assert (session.name, [each.rows for each in session.sets]) == ("other", [RECORDS])
    assert sp.destroy_cache(other).sets == 1
    with pytest.raises(sp.CacheError, match="there is no cache 'other'"):
        sp.destroy_cache(other)


def test_a_damaged_session_keeps_its_sets_until_it_is_destroyed(tmp_path: Path) -> None:
    one, other = (sp.Cache(name, "2MiB", directory=tmp_path) for name in ("one", "other"))
    for crop, cache in enumerate((one, other)):
        with opened(cache, identity(crop=crop)) as found:
            fill(found)
    manifest = base(tmp_path) / "sessions" / "one" / "session.json"
    good = manifest.read_text()
    manifest.write_text("{")
    damaged, whole = sp.list_caches(tmp_path)
    assert (len(damaged.problems), len(whole.sets)) == (1, 1)
    sp.destroy_cache(other)
    manifest.write_text(good)
    with opened(one, identity(crop=0)) as found:
        assert right(found) == RECORDS
    manifest.write_text("{")
    assert sp.destroy_cache(one).sets == 1


@pytest.mark.parametrize("name", ["../../kept", "../sets", "x" * 49, ".", ""])
def test_what_a_set_says_of_its_disk_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    """In a group's cache others write ``set.json`` too, and what it names on the disk is removed with the set."""
    cache = sp.Cache("eval", "200kB", directory=tmp_path, spill=tmp_path)
    with opened(cache) as found:
        fill(found)
    (manifest,) = tmp_path.rglob("set.json")
    facts = json.loads(manifest.read_text())
    facts["spill"]["name"] = name
    manifest.write_text(json.dumps(facts))
    kept = base(tmp_path).parent / "kept"
    kept.mkdir()
    sp.destroy_cache(cache)
    assert kept.exists()
    assert {path.name for path in base(tmp_path).iterdir()} == {"sessions", "sets", "spilled", "temporary"}


def test_a_name_leads_nowhere_else(tmp_path: Path) -> None:
    for call in (sp.destroy_cache, sp.verify_cache, sp.create_cache):
        with pytest.raises(sp.PlanError, match="at most 64 letters"):
            call(sp.Cache("../../elsewhere", directory=tmp_path))


def test_verify_tells_progress(tmp_path: Path) -> None:
    cache = sp.Cache("eval", "2MiB", directory=tmp_path)
    for crop in (1, 2):
        with opened(cache, identity(crop=crop)) as found:
            fill(found)
    told: list[tuple[str, int, int | None]] = []
    checked = sp.verify_cache(cache, on_progress=lambda *facts: told.append(facts))
    assert (checked.ok, checked.rows, checked.wrong) == (True, 2 * RECORDS, 0)
    assert told == [("rows", RECORDS, None), ("rows", 2 * RECORDS, None)]


def test_the_folder_is_this_users_alone(tmp_path: Path) -> None:
    with opened(sp.Cache("eval", "2MiB", directory=tmp_path)) as found:
        fill(found)
    for path in base(tmp_path).parent.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
        assert path.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
def test_a_group_keeps_one_cache_together(open_folder: Path) -> None:
    """Members read and add; nobody writes another one's rows; others get nowhere."""
    text = output(
        AS_MEMBER.format(group=GROUP, directory=str(open_folder))
        + """
def first():
    with opened(team) as found:
        fill(found, range(32))

def member():
    with opened(team) as found:
        before = right(found)
        print("member", before, found.writes, fill(found), found.notes(), flush=True)

def outsider():
    try:
        opened(team)
    except sp.PlanError as error:
        print(error, flush=True)

as_user(4001, [GROUP], first)
as_user(4002, [GROUP], member)
as_user(4003, [], outsider)
(session,) = sp.list_caches(directory, shared_group=GROUP)
(here,) = session.sets
print(here.rows, here.counts.stored, here.users, sp.verify_cache(team).ok)
"""
    )
    assert text.splitlines() == [
        f"member 32 True {RECORDS} []",
        f"Cache(shared_group={GROUP}): this user isn't in that group",
        f"{RECORDS} {RECORDS} 0 True",
    ]
    folder = open_folder / f"standpipe-group-{GROUP}"
    rows = sorted(folder.rglob("rows-*"))
    assert {path.stat().st_uid for path in rows} == {4001, 4002}
    assert {path.stat().st_mode & 0o777 for path in rows} == {0o640}
    assert {path.stat().st_mode & 0o7777 for path in [folder, *folder.rglob("*")] if path.is_dir()} == {
        0o2770
    }
    assert {path.stat().st_gid for path in [folder, *folder.rglob("*")]} == {GROUP}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
def test_a_member_who_may_not_write_reads(open_folder: Path) -> None:
    text = output(
        AS_MEMBER.format(group=GROUP, directory=str(open_folder))
        + """
def reader():
    with opened(team) as found:
        replaced = found.store.put(0, row(0), stale=found.store.find(0))
        print(right(found), found.writes, replaced, found.notes(), flush=True)

with opened(team) as found:
    fill(found)
for folder, _, files in os.walk(directory):
    for name in [folder, *(folder + "/" + file for file in files)]:
        if name != directory:
            os.chmod(name, os.stat(name).st_mode & 0o7757)
as_user(4001, [GROUP], reader)
"""
    )
    assert text == f"{RECORDS} False False []\n"
