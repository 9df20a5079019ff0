from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import standpipe as sp
from standpipe.cli import main

LONG_AGO_NS = 1_600_000_000_123_456_789


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a list and a folder of two records each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("list.txt").write_text("a.jpg 1\nbb.jpg 2\n")
    for name in ("cat/a.jpg", "dog/bb.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        (tmp_path / "photos" / name).touch()
    for path in ("list.txt", "photos/cat", "photos/dog", "photos"):
        os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return tmp_path


@pytest.mark.parametrize("path", ["list.txt", "photos"])
def test_an_index_is_written_and_checked(here: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(here / f"{path}.standpipe-index")
    assert lines[1].startswith("  2 records, 0.0 MB; ")
    assert main(["index", path, "--verify"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "  right: 2 records"
    assert main(["explain", path]) == 0
    assert f"{path}.standpipe-index" in capsys.readouterr().out


def test_columns(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("width.npy", np.array([3, 4], np.uint8))
    arguments = ["--column", "height=width.npy", "--column", "width=width.npy", "--json"]
    assert main(["index", "list.txt", *arguments]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["records"], facts["columns"], facts["dropped"]) == (2, ["height", "width"], [])
    opened = sp.FileList("list.txt").open()
    assert opened.column("width", 0, 2).tolist() == [3, 4]
    Path("list.txt").write_text("a.jpg 1\n")
    assert main(["explain", "list.txt"]) == 1
    assert "--column height=width.npy --column width=width.npy" in capsys.readouterr().err
    assert main(["index", "list.txt"]) == 0
    assert "without height, width, which the older index had" in capsys.readouterr().out


def test_options_of_a_list(here: Path) -> None:
    assert main(["index", "list.txt", "--no-labels", "--root", "/far", "--output", "sub/own.index"]) == 0
    opened = sp.FileList("list.txt", root="/far", labels=False, index="sub/own.index").open()
    assert [opened.name(row) for row in range(2)] == ["/far/a.jpg 1", "/far/bb.jpg 2"]
    assert Path("sub/own.index").exists()


def test_an_index_that_is_wrong(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "list.txt"]) == 0
    Path("list.txt").write_text("a.jpg 1\nbb.jpg 3\n")
    capsys.readouterr()
    assert main(["index", "list.txt", "--verify"]) == 1
    out = capsys.readouterr().out
    assert "  differs: a run wouldn't use it: the list changed since\n" in out
    assert "label 3 in the list" in out
    assert main(["index", "list.txt", "--verify", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], len(facts["differences"])) == (False, 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gone"], "can't read "),
        (["photos/cat"], "no class folders"),
        (["list.txt", "--verify"], "there is no index file of list.txt"),
        (["list.txt", "--verify", "--column", "w=a.npy"], "leave out --column"),
        (["photos", "--root", "x"], "--root and --no-labels work with lists"),
        (["list.txt", "--column", "width"], "write NAME=FILE"),
        (["list.txt", "--column", "w=gone.npy"], "gone.npy: No such file"),
        (["list.txt", "--column", "w=a.npy", "--column", "w=b.npy"], "given twice"),
        (["list.txt", "--output", "/proc/x/index"], "can't write the index of list.txt to /proc/x/index"),
    ],
)
def test_what_is_wrong_is_said(
    here: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err
