"""The cache: killed, stopped, full, destroyed, planted or foreign. No wrong byte, no leak, and the others go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import standpipe as sp
from caches import RECORDS, ROW, base, fill, identity, opened, right
from forked import run
from programs import BEGIN, LIMIT_S

KILLED = -signal.SIGKILL
# Every pass of a point in the life of a set that one process makes, fills and closes.
WRITER_POINTS = [
    *(f"cache.create=kill@{number}" for number in (1, 2, 3)),  # its session, the set before and with its name
    "cache.link=kill@1",
    *(f"cache.extent=kill@{number}" for number in (1, 2, 5)),
    *(f"cache.entry=kill@{number}" for number in (1, 30)),
    "cache.fold=kill@1",
]
ADMIN_POINTS = [
    ("create", "other", "cache.create=kill@1"),
    ("destroy", "eval", "cache.destroy=kill@1"),
    ("destroy", "eval", "cache.remove=kill@1"),
    ("destroy", "eval", "cache.remove=kill@2"),
    ("stop", "", "cache.destroy=kill@2"),
    ("stop", "", "cache.remove=kill@1"),
]
IN_8_MIB = "-t tmpfs -o size=8m none"
LIFE = """
from caches import *
with opened(sp.Cache("eval", "500kB", directory={directory!r}, spill={directory!r})) as found:
    fill(found)
"""
ADMIN = """
from standpipe.cli import main
main(["cache", *{words!r}, "--directory", {directory!r}])
"""


def files(directory: Path) -> list[Path]:
    """All that lies anywhere below."""
    return sorted(path for path in directory.rglob("*") if path.is_file())


def can_mount() -> bool:
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-m", "true"], check=False).returncode == 0


@contextmanager
def running(program: str, *, faults: str = "") -> Iterator[subprocess.Popen[str]]:
    """A program of its own that says a line when it is there, and ends with the test."""
    text = BEGIN.format(path=[path for path in sys.path if path]) + program
    with subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"STANDPIPE_FAULTS": faults},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("point", WRITER_POINTS)
def test_writer_killed_at_every_point(point: str, tmp_path: Path) -> None:
    """No wrong byte is read, what was stored counts, and nothing is left after the next commands."""
    done = run(LIFE.format(directory=str(tmp_path)), environment={"STANDPIPE_FAULTS": point})
    assert done.returncode == KILLED, done.stderr
    cache = sp.Cache("eval", "500kB", directory=tmp_path, spill=tmp_path)
    with opened(cache) as found:
        right(found)  # each one that is there is what was stored
        fill(found)
        assert found.notes() == []
    with opened(cache) as found:  # what was on its way to the disk is there
        assert right(found) == RECORDS
    (session,) = sp.list_caches(tmp_path)
    (here,) = session.sets
    assert (session.problems, here.users, here.rows) == ((), 0, RECORDS)
    assert here.counts.stored <= RECORDS  # nobody is counted twice
    assert here.bytes <= 500_000
    assert sp.verify_cache(cache).ok
    assert list((base(tmp_path) / "temporary").iterdir()) == []
    sp.destroy_all_caches(tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize(("command", "name", "point"), ADMIN_POINTS)
def test_admin_killed_during_create_or_destroy(command: str, name: str, point: str, tmp_path: Path) -> None:
    """Sessions are there or not, none by halves; what the others have stays; readers don't notice."""
    cache, kept = (sp.Cache(name, "2MiB", directory=tmp_path) for name in ("eval", "kept"))
    with opened(kept, identity(of="kept")) as found:
        fill(found)
    with opened(cache, identity(crop=1)) as other:
        fill(other)
    with opened(cache) as reader:
        fill(reader)
        assert right(reader) == RECORDS
        program = ADMIN.format(words=[command, *([name] if name else [])], directory=str(tmp_path))
        done = run(program, environment={"STANDPIPE_FAULTS": point})
        assert done.returncode == KILLED, done.stderr
        assert right(reader) == RECORDS
        assert reader.notes() == []
    left = {session.name: len(session.sets) for session in sp.list_caches(tmp_path)}
    assert set(left) <= {"eval", "kept"}
    assert left.get("eval", 2) == 2
    if command != "stop":
        with opened(kept, identity(of="kept")) as found:
            assert right(found) == RECORDS
    with opened(cache) as found:
        assert fill(found) == RECORDS
        assert right(found) == RECORDS
    assert list((base(tmp_path) / "temporary").iterdir()) == []
    sp.destroy_all_caches(tmp_path)
    assert files(tmp_path) == []


def test_process_stopped_while_it_has_the_write_side(tmp_path: Path) -> None:
    """Others read on, store nothing, and wait for nothing; when it is killed they store again."""
    cache = sp.Cache("eval", "64MiB", directory=tmp_path)
    with opened(cache) as found:
        fill(found, range(8))
    stopped = f"""
from caches import *
found = opened(sp.Cache("eval", "64MiB", directory={str(tmp_path)!r}), identity(crop=2))
print("there", flush=True)
fill(found)
"""
    with running(stopped, faults="cache.extent=stop") as process:
        assert said(process) == "there"
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        with opened(cache) as found:
            assert fill(found) == right(found) == 8
            assert found.notes() == []
            process.kill()
            process.wait(LIMIT_S)
            assert fill(found) == right(found) == RECORDS


def test_session_destroyed_while_4_jobs_read(tmp_path: Path) -> None:
    """All go on to their end, with right bytes where they read any, and without an error or a warning."""
    cache = sp.Cache("eval", "64MiB", directory=tmp_path)
    with opened(cache) as found:
        fill(found)
    job = f"""
from caches import *
with opened(sp.Cache("eval", "64MiB", directory={str(tmp_path)!r})) as found:
    print(right(found), flush=True)
    sys.stdin.readline()
    for _ in range(20):
        number = right(found)
        found.supply()
        found.stamp()
    fill(found)
    print(number, found.notes(), found.store.stats().errors, flush=True)
"""
    with running(job) as one, running(job) as two, running(job) as three, running(job) as four:
        jobs = (one, two, three, four)
        assert [said(each) for each in jobs] == [str(RECORDS)] * 4
        assert sp.destroy_cache(cache).held > RECORDS * ROW
        with opened(cache) as anew:
            fill(anew, range(10))
            for each in jobs:
                assert each.stdin is not None
                each.stdin.write("go on\n")
                each.stdin.flush()
            assert [said(each) for each in jobs] == [f"{RECORDS} [] 0"] * 4
            assert [each.wait(LIMIT_S) for each in jobs] == [0] * 4
            assert right(anew) == 10
    (session,) = sp.list_caches(tmp_path)
    assert [each.rows for each in session.sets] == [10]


def mounted(directory: Path, options: str, program: str) -> str:
    """What a program prints that finds something mounted at a folder, as nobody else does."""
    directory.mkdir()
    text = BEGIN.format(path=[path for path in sys.path if path]) + program
    command = f'mount {options} {directory} && exec "$0" -W error -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", command, sys.executable, text],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace")
@pytest.mark.parametrize(("memory", "least"), [("8MiB", 700), (None, 300)])
def test_tmpfs_of_8_mib(memory: str | None, least: int, tmp_path: Path) -> None:
    """It is filled to what it has, or to half of it where nothing is said; then one warning, and no SIGBUS."""
    program = f"""
from caches import *
cache = sp.Cache("eval", {memory!r}, directory={str(tmp_path / "shm")!r})
with opened(cache, records=1024) as found:
    for record in range(1024):
        found.supply()
        found.store.put(record, row(record))
    stored = [record for record in range(1024) if found.store.find(record) is not None]
    assert all(found.store.get(record).tobytes() == row(record) for record in stored)
    (note,) = found.notes()
print(len(stored) > {least}, len(stored) < 840, note)
"""
    enough, bounded, note = mounted(tmp_path / "shm", IN_8_MIB, program).split(" ", 2)
    assert (enough, bounded) == ("True", "True")
    assert "has no room left" in note if memory else "its limit of" in note


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace")
def test_tmpfs_that_others_have_filled(tmp_path: Path) -> None:
    """A set can't be made there, which says what to do; one that is there is read, and says that it is full."""
    shm = tmp_path / "shm"
    program = f"""
from caches import *
with opened(sp.Cache("eval", "4MiB", directory={str(shm)!r})) as found:
    rows = fill(found, range(10))
    with open({str(shm / "others")!r}, "wb", 0) as others:
        try:
            while others.write(bytes(4096)):
                pass
        except OSError:
            pass
    print(right(found))
    fill(found)
    print(right(found) < RECORDS, len(found.notes()))
try:
    opened(sp.Cache("eval", "4MiB", directory={str(shm)!r}), identity(crop=2))
except sp.CacheError as error:
    print(error)
"""
    ten, full, error = mounted(shm, IN_8_MIB, program).splitlines()
    assert (ten, full) == ("10", "True 1")
    assert "No space left on device. Free some space there, or choose another folder with directory=" in error


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace")
def test_read_only_folder(tmp_path: Path) -> None:
    """A cache that can't be made there says so, and so does one that is there already."""
    program = f"""
from caches import *
cache = sp.Cache("eval", "1MiB", directory={str(tmp_path / "disk")!r})
for _ in range(2):
    try:
        opened(cache)
    except sp.CacheError as error:
        print("Read-only file system" in str(error))
    os.system("mount -o remount,rw {tmp_path / "disk"}")
    opened(cache).close()
    os.system("mount -o remount,ro {tmp_path / "disk"}")
"""
    assert mounted(tmp_path / "disk", "-t tmpfs -o ro none", program) == "True\nTrue\n"


def test_folder_of_somebody_else(tmp_path: Path) -> None:
    """One that isn't this user's alone isn't used, whatever is in it."""
    cache = sp.Cache("eval", "1MiB", directory=tmp_path)
    opened(cache).close()
    folder = base(tmp_path).parent
    for mode in (0o755, 0o777, 0o770):
        folder.chmod(mode)
        with pytest.raises(
            sp.CacheError, match=r"other users can access it, so it isn't used. Remove it, or choose"
        ):
            opened(cache)
        with pytest.raises(sp.CacheError, match=r"other users can access it"):
            sp.list_caches(tmp_path)
    folder.chmod(0o700)
    opened(cache).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_folder_that_another_user_has_planted(tmp_path: Path) -> None:
    """Nor is one of the right name and mode that belongs to another user."""
    cache = sp.Cache("eval", "1MiB", directory=tmp_path)
    opened(cache).close()
    for folder in (base(tmp_path).parent, base(tmp_path), base(tmp_path) / "sets"):
        os.chown(folder, 4001, -1)
        with pytest.raises(sp.CacheError, match=r"it belongs to user 4001, so it isn't used"):
            opened(cache)
        os.chown(folder, 0, -1)


@pytest.mark.parametrize("what", ["standpipe", "v1", "sets", "set", "table", "rows", "session.json", "file"])
def test_symlink_or_file_planted(what: str, tmp_path: Path) -> None:
    """What leads elsewhere isn't followed: an error says so, or it is removed; and nothing changes there."""
    cache = sp.Cache("eval", "1MiB", directory=tmp_path)
    with opened(cache) as found:
        fill(found, range(8))
    folder = base(tmp_path)
    digest = identity().digest
    planted = {
        "standpipe": folder.parent,
        "v1": folder,
        "sets": folder / "sets",
        "set": folder / "sets" / digest,
        "table": folder / "sets" / digest / "table",
        "rows": folder / "sets" / digest / "rows-000000",
        "session.json": folder / "sessions" / "eval" / "session.json",
        "file": folder.parent,
    }[what]
    elsewhere = tmp_path / "elsewhere"
    planted.rename(elsewhere)
    if what == "file":
        planted.write_text("not a folder")
    else:
        planted.symlink_to(elsewhere)
    before = sorted((path, path.stat().st_mtime_ns) for path in [elsewhere, *elsewhere.rglob("*")])
    if what == "rows":
        with opened(cache) as found:
            assert right(found) == 0
            assert found.store.stats().errors > 0
    elif what in ("table", "session.json"):
        with opened(cache) as found:
            assert f"its {what} is not a regular file" in found.notes()[0]
            assert right(found) == (0 if what == "table" else 8)
    else:
        with pytest.raises(
            sp.CacheError, match=f"a link or file is in the place of its folder {planted.name}"
        ):
            opened(cache)
    assert sorted((path, path.stat().st_mtime_ns) for path in [elsewhere, *elsewhere.rglob("*")]) == before


@pytest.mark.parametrize(
    ("facts", "says"),
    [({"format": 0}, "has format 0, and this standpipe has format 1"), ({"byte_order": "big"}, "big-endian")],
)
def test_old_format_version_or_other_endianness(facts: dict[str, object], says: str, tmp_path: Path) -> None:
    """Refused with what to do; other sets of the session go on; and it can be destroyed."""
    cache = sp.Cache("eval", "2MiB", directory=tmp_path)
    opened(cache).close()
    manifest = base(tmp_path) / "sets" / identity().digest / "set.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | facts))
    with pytest.raises(
        sp.CacheError, match=f"{says}.*standpipe cache destroy eval --directory {tmp_path} removes"
    ):
        opened(cache)
    with opened(cache, identity(crop=2)) as found:
        assert fill(found) == RECORDS
    (session,) = sp.list_caches(tmp_path)
    assert (len(session.sets), len(session.problems)) == (1, 1)
    assert not sp.verify_cache(cache).ok
    sp.destroy_cache(cache)
    opened(cache).close()


def test_disk_pulled(tmp_path: Path) -> None:
    """What was spilled is missed, with one warning; what is in memory is there, and more is stored."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    cache = sp.Cache("eval", "300kB", directory=memory, spill=disk)
    with opened(cache) as found:
        fill(found)
    with opened(cache) as found:
        assert right(found) == RECORDS
        disk.rename(tmp_path / "away")
        assert right(found) == RECORDS  # what is open stays open
        found.stamp()
        assert found.notes() == []
    disk.mkdir()
    with opened(cache) as found:
        assert 0 < right(found) < RECORDS
        (note,) = found.notes()
        assert "can't use its folder on the disk" in note
        found.stamp()
        assert found.notes() == []


def test_cache_of_0_1_or_too_many_bytes(tmp_path: Path) -> None:
    """0 is off, 1 keeps nothing and says so once, a limit that is too large is refused with the numbers."""
    assert sp.Cache("eval", 0).is_off
    with opened(sp.Cache("eval", 1, directory=tmp_path)) as found:
        assert fill(found) == 0
        (note,) = found.notes()
        assert "a limit of 1B can't hold a row of 9.7KiB" in note
    with pytest.raises(sp.PlanError, match=r"'1024.0TiB' is too large: /dev/shm, a tmpfs, has"):
        opened(sp.Cache("eval", 1 << 50))


@pytest.mark.parametrize("years", [-30, 30])
def test_clock_jumps(years: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is idle, and for how long, is told by a clock that nobody sets."""
    cache = sp.Cache("eval", "900kB", directory=tmp_path, idle_after=3600)
    with opened(cache) as found:
        kept = fill(found)
    jumped = time.time() + years * 365 * 86400
    monkeypatch.setattr(time, "time", lambda: jumped)
    with opened(cache, identity(crop=2)) as found:
        fill(found)
    with opened(cache) as found:
        assert right(found) == kept
    (session,) = sp.list_caches(tmp_path)
    assert all(each.idle_s is not None and each.idle_s < 600 for each in session.sets)
