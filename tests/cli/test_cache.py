"""``standpipe cache``: what it prints, what it does, and what it leaves when it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

import standpipe as sp
from caches import RECORDS, fill, identity, opened, right
from photos import write_photos
from standpipe.cli import main
from standpipe.identity.cached_set import Identity

LONG_AGO_NS = 1_600_000_000_123_456_789
SPOIL = b"not what was stored"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a session of two sets, one of them in part on a disk, and one without any."""
    (tmp_path / "disk").mkdir()
    monkeypatch.chdir(tmp_path)
    cache = sp.Cache("eval", "500kB", directory=tmp_path, spill=tmp_path / "disk", spill_limit="2MB")
    for crop in (1, 2):
        with opened(cache, identity(crop=crop)) as found:
            there, again = fill(found), threading.Event()
            while there < RECORDS:  # until the last are on the disk
                again.wait(0.001)
                there = int(found.store.have(0, RECORDS).sum())
            right(found)
    sp.create_cache(sp.Cache("train", "1GiB", directory=tmp_path))
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What ``standpipe cache`` prints."""
    assert main(["cache", *words]) == code
    return capsys.readouterr().out


def test_list_fits_a_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "list", "--directory", str(here)).splitlines()
    assert max(map(len, lines)) <= 80 + len(str(here))
    assert lines[0].startswith("eval: ")
    assert lines[0].endswith(f"of 1.9MiB in {here}/disk")
    assert lines[1].split() == ["rows", "in", "rows", "on", "mean", "NUMA", "hit", "users", "last"]
    assert lines[2].split() == ["set", "memory", "disk", "row", "node", "bytes", "rate", "now", "use"]
    first, label, second = lines[3].split(), lines[4], lines[5].split()
    assert int(first[1]) + int(first[2]) == int(second[1]) + int(second[2]) == RECORDS
    assert int(first[2]) + int(second[2]) > 0
    assert first[3] == "9.7KiB"
    assert first[6:8] == ["100%", "0"]
    assert label == "    photos"
    assert all(len(line) <= 80 for line in lines[1:])
    assert lines[7] == "train: 0B of 1.0GiB in memory"


def at_a_terminal(*words: str) -> list[str]:
    """The lines that ``standpipe cache`` prints at one of 80 columns, without their styles."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen(
        [sys.executable, "-m", "standpipe", "cache", *words],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
    ) as command:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the terminal any more
            while data := os.read(ours, 4096):
                shown += data
        os.close(ours)
        command.wait()
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


def test_all_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Long names, long lists of transforms, many rows and a disk far down: no line is broken by the terminal."""
    disk = tmp_path / "a-folder-on-the-disk-of-this-machine" / "for-what-does-not-fit"
    disk.mkdir(parents=True)
    name = "imagenet-validation-at-224-of-the-second-team"
    cache = sp.Cache(name, "500kB", directory=tmp_path, spill=disk)
    label = (
        "ImageFolder('/data/imagenet/val') → Resize(256, interpolation='bicubic') → CenterCrop(224) → twice"
    )
    source = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    with opened(
        cache, Identity({"source": source, "transforms": label, "numpy": "", "crop": 224}, label)
    ) as found:
        fill(found)
    where = ["--directory", str(tmp_path)]
    for words in (["list"], ["info", name], ["verify", name], ["info", "imagenet-validation"]):
        lines = at_a_terminal(*words, *where)
        assert all(len(line) <= 80 or " " not in line.strip() for line in lines), words
        assert any(name in line for line in lines) or words[0] == "verify"
    lines = at_a_terminal("list", *where)
    assert any(
        line.startswith("    ImageFolder('/data") and line.endswith("→ twice") and "…" in line
        for line in lines
    )
    told = "\n".join(at_a_terminal("info", name, *where))
    assert "source      9f86d081\n" in told
    assert "CenterCrop(224) → twice" in " ".join(told.split())
    assert "numpy" not in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["lst"], "no command 'lst'; did you mean 'list'?"),
        (["xyz"], "no command 'xyz'; there are create, list, info, fill, verify, destroy, stop"),
        (["info", "evil"], "there is no cache 'evil' in {here}; did you mean 'eval'?"),
        (["destroy", "other"], "there is no cache 'other' in {here}; there are eval, train"),
        (["verify", "trian"], "there is no cache 'trian' in {here}; did you mean 'train'?"),
        (["list", "--directory", "{here}/nowhere"], "there is no folder {here}/nowhere"),
        (["create", "new", "--memory", "100TiB"], "memory='100.0TiB' is too large: "),
        (
            ["create", "new", "--spill", "{here}", "--spill-limit", "1000TiB"],
            "spill_limit='1000.0TiB' is too large: ",
        ),
    ],
)
def test_what_was_mistyped_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    words = [word.format(here=here) for word in words]
    where = [] if "--directory" in words or len(words) == 1 else ["--directory", str(here)]
    assert main(["cache", *words, *where]) in (1, 2)
    assert says.format(here=here) in capsys.readouterr().err


def test_list_says_who_uses_it_now(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = sp.Cache("eval", directory=here)
    with opened(cache, identity(crop=1)), opened(cache, identity(crop=1)):
        text = said(capsys, "list", "--directory", str(here))
    assert [line.split()[-2:] for line in text.splitlines() if line.endswith("now")] == [["2", "now"]]


def test_list_for_programs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    eval_, train = json.loads(said(capsys, "list", "--directory", str(here), "--json"))
    assert (eval_["name"], eval_["memory_limit"], eval_["spill_limit"]) == ("eval", 500_000, 2_000_000)
    assert (train["name"], train["sets"]) == ("train", [])
    assert {each["parts"]["crop"] for each in eval_["sets"]} == {1, 2}
    for each in eval_["sets"]:
        assert (each["rows"], each["users"], each["hit_rate"], each["nodes"]) == (RECORDS, 0, 1.0, [0])
        assert each["mean_row_bytes"] == 10_000
        assert each["counts"]["stored"] == RECORDS


def test_info_tells_all(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "info", "eval", "--directory", str(here))
    assert "idle sets may be evicted after 10 min" in text
    assert identity(crop=2).digest in text
    assert f"{RECORDS} of {RECORDS} records" in text
    assert f"{RECORDS} hits, 0 misses, hit rate 100%" in text
    assert "crop     2" in text
    facts = json.loads(said(capsys, "info", "eval", "--directory", str(here), "--json"))
    assert facts["name"] == "eval"


@pytest.mark.parametrize("command", ["info", "verify", "destroy"])
def test_a_name_that_there_is_not(here: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(["cache", command, "other", "--directory", str(here)]) == 1
    assert "there is no cache 'other'" in capsys.readouterr().err


def test_verify_counts_what_is_wrong(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "verify", "eval", "--directory", str(here))
    assert text.splitlines()[-1] == f"{2 * RECORDS} rows, 0 wrong"
    for where in (here / "disk", *here.glob("standpipe-*")):
        file = next(where.rglob("rows-000000"))
        with file.open("r+b") as rows:
            rows.seek(5000)
            rows.write(SPOIL)
    with next(here.rglob("table")).open("r+b") as table:
        table.seek(4096 + 48 * 10)
        table.write(SPOIL)
    text = said(capsys, "verify", "eval", "--directory", str(here), code=1)
    assert text.splitlines()[-1] == f"{2 * RECORDS} rows, 3 wrong"
    facts = json.loads(said(capsys, "verify", "eval", "--directory", str(here), "--json", code=1))
    assert (facts["ok"], facts["rows"], facts["wrong"]) == (False, 2 * RECORDS, 3)


@pytest.mark.parametrize("name", ["set.json", "table"])
@pytest.mark.parametrize("content", [b"\xff\xfe\0", None], ids=["damaged", "missing"])
def test_verify_says_what_is_damaged_and_what_to_do(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None
) -> None:
    file = next(path for path in here.rglob(name) if path.parent.name == identity(crop=1).digest)
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    lines = said(capsys, "verify", "eval", "--directory", str(here), code=1).splitlines()
    text = " ".join(" ".join(lines).split())
    assert f"{identity(crop=1).digest[:8]} unusable the cached set {identity(crop=1).digest}" in text
    assert f"its {name}" in text
    assert f"standpipe cache destroy eval --directory {here} removes the whole cache now" in text
    assert "codec" not in text
    assert lines[-1] == f"{RECORDS} rows, 0 wrong, 1 set unusable"


def test_create_sets_limits_ahead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    monkeypatch.chdir(tmp_path)
    where = ["--directory", str(tmp_path)]
    words = ["--memory", "1MiB", "--spill", "disk", "--spill-limit", "2MiB", "--idle-after", "never"]
    text = said(capsys, "create", "eval", *words, *where)
    assert text == f"eval: 0B of 1.0MiB in memory, 0B of 2.0MiB in {tmp_path}/disk\n"
    assert main(["cache", "create", "eval", *where]) == 1
    assert "there is a cache 'eval'" in capsys.readouterr().err
    with opened(sp.Cache("eval", directory=tmp_path)) as found:
        assert fill(found) == RECORDS
    (session,) = sp.list_caches(tmp_path)
    assert (session.memory_limit, session.idle_after_s) == (1 << 20, None)
    for wrong in (["--memory", "much"], ["--memory", "0"], ["--spill", "nowhere"]):
        assert main(["cache", "create", "other", *wrong, *where]) == 1
        assert "standpipe: " in capsys.readouterr().err


def test_destroy_says_what_it_freed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "destroy", "eval", "--directory", str(here))
    assert text.startswith("freed ")
    assert text.endswith("KiB on disk, 2 sets\n")
    assert [session.name for session in sp.list_caches(here)] == ["train"]


def test_stop_destroys_all_and_says_what_is_still_read(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(sp.Cache("eval", directory=here), identity(crop=1)) as found:
        right(found)
        text = said(capsys, "stop", "--directory", str(here))
        assert "2 sets\n  jobs still read " in text
        assert right(found) > 0
    assert said(capsys, "list", "--directory", str(here)) == f"no caches in {here}\n"
    facts = json.loads(said(capsys, "stop", "--directory", str(here), "--json"))
    assert facts == {"memory": 0, "spilled": 0, "held": 0, "sets": 0}


def test_a_damaged_session_is_listed_with_what_is_wrong(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    next(here.rglob("sessions/train/session.json")).write_text("{}")
    text = said(capsys, "list", "--directory", str(here))
    assert (
        "train: what it has isn't known\n  cache 'train' has unknown limits: its session.json is damaged"
        in text
    )
    assert main(["cache", "verify", "train", "--directory", str(here)]) == 1
    text = " ".join(capsys.readouterr().err.split())
    (command,) = re.findall("standpipe (cache destroy .+) removes", text)
    assert "evicted" not in said(capsys, "info", "train", "--directory", str(here))
    assert main(shlex.split(command)) == 0
    assert [session.name for session in sp.list_caches(here)] == ["eval"]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a few images, one of them no image."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "index"))
    folder = tmp_path / "photos"
    (folder / "class").mkdir(parents=True)
    write_photos(folder / "class", 12)
    (folder / "class" / "005.jpg").write_bytes(b"no image")
    for path in (folder / "class").iterdir():
        os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))  # what has just changed may change again unseen
    (tmp_path / "cache").mkdir()
    return folder


@pytest.mark.parametrize("task", ["eval", "train"])
def test_warm_keeps_what_a_job_asks_for(photos: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--directory", str(photos.parent / "cache")]
    words = ["fill", str(photos), "--task", task, "--cache", "run", "--memory", "64MiB", *where]
    kept = 11 if task == "eval" else 12  # of a file that is no image there are bytes, and no pixels
    first, *more = said(capsys, *words).splitlines()
    assert [line.split(";")[1] for line in more] == [" standpipe scan names those"] * (12 - kept)
    assert first.startswith(f"{kept} of 12 records are kept, 0 of them from before; ")
    again = json.loads(said(capsys, *words, "--json"))
    assert (again["records"], again["kept"], again["before"]) == (12, kept, kept)

    every = sp.Pipeline(sp.ImageFolder(photos)).select([*range(5), *range(6, 12)])
    cache = sp.Cache("run", directory=photos.parent / "cache")
    if task == "eval":
        job = every.map(sp.Resize(256), sp.CenterCrop(224)).cache(cache).map(sp.Normalize())
    else:
        job = every.cache(cache).shuffle(seed=1).map(sp.RandomResizedCrop(32))
    with job.batch(11).loader(memory="256MiB", num_workers=1) as loader:
        next(iter(loader))
        assert (loader.stats().cache_hits >= 11, loader.stats().cache_misses) == (True, 0)


def test_training_images_can_not_be_kept(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "fill", str(photos), "--cache", "run", "--place", "images"]) == 1
    assert "can't store training crops" in capsys.readouterr().err
