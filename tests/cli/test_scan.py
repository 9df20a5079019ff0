"""``standpipe scan``: the report for people, the lines for programs, and what the exit code says."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import standpipe as sp
from painted import painted
from photos import encoded, picture
from standpipe.cli import main

GOOD = encoded(picture(0), quality=90)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two good photos, and their list."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            content = encoded(picture(2 * number + len(name) % 2))
            (tmp_path / "photos" / name / f"{name}{number}.jpg").write_bytes(content + name.encode())
    Path("list.txt").write_text("photos/cat/cat0.jpg\nphotos/dog/dog1.jpg\n")
    return tmp_path


def scan(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """The exit code and what is printed; nothing goes to stderr."""
    code = main(["scan", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return code, out.splitlines()


@pytest.mark.parametrize("path", ["photos", "photos/", "list.txt"])
def test_good_files(here: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = scan(capsys, path)
    assert code == 0
    assert lines[0].startswith(f"{4 if path.startswith('photos') else 2} files, 0.0 MB; ")
    assert lines[0].endswith(" files/s")
    assert lines[1:] == ["bad: 0", "delivered, but odd: 0"]


def test_special_files_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        os.mkfifo(here / f"photos/cat/pipe{number}.jpg")
    code, lines = scan(capsys, "photos")
    assert code == 0
    assert lines[3] == "skipped files, which aren't records: 4"
    assert [line[:12] for line in lines[4:]] == ["    cat/pipe", "    cat/pipe", "    cat/pipe", "    …"]
    code, lines = scan(capsys, "photos", "--json")
    *special, sums = (json.loads(line) for line in lines)
    assert sorted(each["path"] for each in special) == [
        str(here / f"photos/cat/pipe{n}.jpg") for n in range(4)
    ]
    assert {(each["level"], each["kind"]) for each in special} == {("skipped", "special")}
    assert (code, sums["records"], sums["skipped"]) == (0, 4, 4)


def make_odd(folder: Path) -> None:
    """Of most kinds one, of empty ones five."""
    for number in range(5):
        (folder / "cat" / f"empty{number}.jpg").touch()
    (folder / "dog/cut.jpg").write_bytes(GOOD[:-200])
    (folder / "dog" / f"{'long' * 40}.jpg").write_bytes(b"<html>" * 9)
    (folder / "dog/again.jpg").write_bytes((folder / "cat/cat0.jpg").read_bytes())
    (folder / "dog/really.png").write_bytes(GOOD)
    (folder / "eel").mkdir()
    (folder / "cat/[red]\n.jpg").write_bytes(b"")


def test_the_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_odd(here / "photos")
    code, lines = scan(capsys, "photos", "--output", "bad.jsonl", "--also", "label-conflict")
    assert code == 1
    assert [line for line in lines if len(line) > 80] == []
    assert "bad: 8" in lines
    at = lines.index("  empty          6")
    assert lines[at + 1 : at + 5] == [
        r"    cat/[red]\n.jpg: empty file",
        "    cat/empty0.jpg: empty file",
        "    cat/empty1.jpg: empty file",
        "    …",
    ]
    assert any(line.startswith("    dog/cut.jpg: truncated: JPEG ends after ") for line in lines)
    (long,) = [line for line in lines if "longlong" in line]
    assert long.startswith("    …")
    assert long.endswith("…")
    assert lines[lines.index("delivered, but odd: 3") + 1 :] == [
        "  label-conflict 2",
        "    cat/cat0.jpg: labelled cat; the same bytes as later records with other labe…",
        "    dog/again.jpg: labelled dog; the same bytes as record 1, cat/cat0.jpg",
        "  suffix         1",
        "    dog/really.png: is a JPEG, which its name doesn't say",
        "odd labels: 1",
        "  no-file        1: eel",
        "bad.jsonl: 10 records, for Pipeline.exclude()",
    ]
    left = sp.Pipeline(sp.ImageFolder("photos", allow_empty=True)).exclude("bad.jsonl").map(sp.CenterCrop(8))
    with left.batch(1).loader(memory="64MiB") as loader:
        assert len(list(loader)) == 4


@pytest.mark.parametrize("letter", ["猫", "🐈", "e\u0301"])
def test_wide_letters_take_two_columns(here: Path, letter: str, capsys: pytest.CaptureFixture[str]) -> None:
    for count in (10, 20, 60):
        (here / "photos/cat" / f"{letter * count}.jpg").write_bytes(b"")
        os.mkfifo(here / "photos/cat" / f"{letter * count}2.jpg")
    (here / "photos" / (letter * 60)).mkdir()
    lines = [line for line in scan(capsys, "photos")[1] if letter in line]
    assert len(lines) == 7
    assert 70 < max(map(cell_len, lines)) <= 80


def test_lines_for_programs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_odd(here / "photos")
    code, lines = scan(capsys, "photos", "--json", "--output", "bad.jsonl")
    *findings, facts = map(json.loads, lines)
    assert code == 1
    assert (facts["path"], facts["ok"], facts["bad"], facts["records"]) == ("photos", False, 8, 14)
    assert facts["counts"] == {
        "empty": 6,
        "truncated": 1,
        "not-an-image": 1,
        "label-conflict": 2,
        "suffix": 1,
    }
    assert facts["labels"] == [{"kind": "no-file", "label": 2, "name": "eel", "files": 0}]
    assert (facts["output"], facts["listed"]) == ("bad.jsonl", 8)
    assert len(findings) == 11
    assert all(line.isascii() for line in lines)
    assert {"index", "path", "level", "kind", "text"} <= set(findings[0])
    listed = [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]
    assert listed[1:] == [finding for finding in findings if finding["level"] == "bad"]


def test_what_is_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "photos/dog/cut.jpg").write_bytes(GOOD[:-200])
    (here / "photos/dog/again.jpg").write_bytes((here / "photos/dog/dog0.jpg").read_bytes())

    def counts(*arguments: str) -> dict[str, int]:
        found: dict[str, int] = json.loads(scan(capsys, "photos", "--json", *arguments)[1][-1])["counts"]
        return found

    assert counts("--no-duplicates") == {"truncated": 1}
    assert counts("--workers", "1") == {"truncated": 1, "copy": 1}
    assert counts("--allow-truncated") == {"cut": 1, "copy": 1}
    assert counts("--max-pixels", "2000") == {"oversized": 6}
    assert counts("--large-image-memory", "1MiB") == {"truncated": 1, "copy": 1}
    assert scan(capsys, "photos", "--allow-truncated")[0] == 0


def test_files_are_looked_at_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in here.glob("photos/*/*"):
        os.utime(path, (1_600_000_000.1, 1_600_000_000.1))
    (here / "photos/dog/empty.jpg").touch()
    os.utime(here / "photos/dog/empty.jpg", (1_600_000_000.1, 1_600_000_000.1))
    scan(capsys, "photos")
    code, lines = scan(capsys, "photos")
    assert code == 1
    assert lines[0].startswith("5 files, 0.0 MB, 5 of them known; ")
    assert "known" not in scan(capsys, "photos", "--fresh")[1][0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gone"], "can't read "),
        (["photos/cat"], "no class folders"),
        (["photos", "--root", "x"], "--root and --no-labels work with lists"),
        (["photos", "--max-pixels", "0"], "max_pixels must be an integer from 1"),
        (["photos", "--workers", "0"], "num_workers=0"),
        (["photos", "--large-image-memory", "x"], "large_image_memory"),
        (["photos", "--output", "no/such/folder"], "can't write no/such/folder: there is no folder"),
        (["photos", "--output", "photos"], "can't write photos: it is a folder"),
    ],
)
def test_what_is_wrong_is_said(
    here: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scan", *arguments]) == 2  # 1 would say that there are bad files
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("standpipe: ")
    assert says in err


def test_a_list_that_cannot_be_written_is_said_before_anything_is_read(here: Path) -> None:
    assert main(["scan", "photos", "--output", "no/such/folder"]) == 2
    assert not list(here.glob("cache/standpipe/checks/*"))
    assert main(["scan", "photos", "--output", "list.jsonl"]) == 0
    assert list(here.glob("cache/standpipe/checks/*"))


def test_wrong_usage_is_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["photos", "--also", "empty"], ["photos", "--workers", "many"]):
        assert main(["scan", *arguments]) == 2
    assert "standpipe scan --help shows" in capsys.readouterr().err


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "standpipe", "scan", *arguments]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm", **more}


def at_a_terminal(*arguments: str, **more: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command with a terminal as its stderr; where that can be read."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=theirs, env=environment(**more)
    )
    os.close(theirs)
    return process, ours


def read_until(terminal: int, text: bytes) -> bytes:
    """What comes until there is the text, or the terminal's end."""
    seen = b""
    while text not in seen:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # nobody else has it open any more
            break
    return seen


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_progress_and_an_end_from_outside(here: Path, stop: signal.Signals) -> None:
    """At a terminal there is a bar; a scan that was stopped says that the same command goes on, which it does."""
    for number in range(60):
        path = here / "photos/cat" / f"more{number}.jpg"
        path.write_bytes(encoded(picture(number)))
    for path in here.glob("photos/*/*"):
        os.utime(path, (1_600_000_000.1, 1_600_000_000.1))
    process, terminal = at_a_terminal("photos", STANDPIPE_FAULTS="read.open=delay:600s@10")
    seen = read_until(terminal, b"/64")
    assert b"scanning, files" in seen
    process.send_signal(stop)
    rest = read_until(terminal, b"never")
    code = process.wait()
    process.communicate()
    os.close(terminal)
    assert code == (130 if stop == signal.SIGINT else -9)
    assert (b"kept: the same command goes on" in rest) == (stop == signal.SIGINT)
    done = subprocess.run(
        command("photos", "--json"), capture_output=True, env=environment(), timeout=60, check=True, text=True
    )
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert facts["records"] == 64
    assert 0 < facts["looked"] <= 64  # whatever was told is known; nothing may have been yet
    assert done.stderr == ""


def test_annotations_are_named_by_their_file_or_folder(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = painted(here / "coco", 4, most=1)
    file = Path(os.fsdecode(source.annotations))
    content = json.loads(file.read_text())
    content["annotations"][0]["bbox"][2] = 0
    file.write_text(json.dumps(content))
    for arguments in (["coco/instances.json", "--root", "coco/images"], ["coco/images/instances.json"]):
        code, lines = scan(capsys, *arguments)
        assert code == 0
        assert lines[0].startswith("4 files")
        assert lines[-2] == "faults of annotations: 1"
        assert lines[-1].startswith("    empty box: annotation 1: the box from and to (")
        code, lines = scan(capsys, *arguments, "--json")
        fault = json.loads(lines[-2])
        assert fault.pop("text").startswith("empty box: annotation 1: ")
        assert fault == {"level": "note", "kind": "annotation"}
        file = file.replace(here / "coco/images/instances.json")
    (here / "yolo/labels").mkdir(parents=True)
    (here / "coco/images").rename(here / "yolo/images")
    (here / "yolo/labels/0001.txt").write_text("7 0.5 0.5 0.2 0.2\n")
    (here / "yolo/data.yaml").write_text("train: images\nnames: [cat]\n")
    (here / "yolo/images/instances.json").unlink()
    code, lines = scan(capsys, "yolo/data.yaml")
    assert (code, lines[-1]) == (0, "    class out of range: labels/0001.txt:1")
    (here / "yolo/labels").rename(here / "yolo/Annotations")
    (here / "yolo/images").rename(here / "yolo/JPEGImages")
    (here / "yolo/Annotations/0001.txt").unlink()
    for number, end in enumerate(("annotation", "annotatio", "annotation", "annotation")):
        (here / f"yolo/Annotations/000{number}.xml").write_text(f"<annotation></{end}>")
    code, lines = scan(capsys, "yolo")
    assert (code, lines[0][:7]) == (0, "3 files")
    assert lines[-1].startswith("    file that isn't VOC's XML: ")
