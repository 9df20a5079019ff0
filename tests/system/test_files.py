"""Files are there as a whole or not at all."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

import standpipe as sp
from standpipe.system.files import NotRegularError, drafted, open_regular, whole_file

SOURCE = Path(sp.__file__).parent


def test_it_takes_the_place_of_the_file_before(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    with whole_file(tmp_path / "link") as file:
        file.write("after")
        file.flush()
        assert (tmp_path / "real").read_text() == "before"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"
    assert len(list(tmp_path.iterdir())) == 2


def test_what_fails_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("before")

    def fail(error: BaseException) -> None:
        with drafted(path) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(sp.StandpipeError, match=r"can't write .*x: No space left on device"):
        fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("x", "before")]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk of Linux's")  # noqa: PTH110
def test_a_device_is_written_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("/dev/full")
    with pytest.raises(sp.StandpipeError, match="No space left"), whole_file(tmp_path / "x") as file:
        file.write("text")
    assert os.path.exists("/dev/full")  # noqa: PTH110


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """A pipe that nobody writes into doesn't stop the caller."""
    os.mkfifo(tmp_path / "pipe")
    for path, error in ((tmp_path / "pipe", NotRegularError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error):
            open_regular(path)
    with pytest.raises(OSError, match="pipe, socket or device"):
        sp.load_tuning(tmp_path / "pipe")


def test_what_others_could_have_written_is_opened_by_one_function() -> None:
    """``open_regular`` opens indexes, lists, shards, caches and states. Images are read by native code."""
    reads = re.compile(
        r"\.read_(text|bytes)\(|\bopen\(.*\"rb?\"(?!.*opener=open_regular)|os\.open\([^)]*O_RDONLY"
    )
    known = (
        "O_DIRECTORY",
        "os.path.dirname",
        ">>>",
        "/sys",
        "devnull",
        "BOOT",
        "MAPS",
        "node /",
        "disk /",
    )  # folders, examples, the system
    found = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for part in ("source", "cache", "order", "plan", "jobs/packing")
        for path in (SOURCE / part).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if reads.search(line) and not any(each in line for each in known)
    }
    assert found == set()


def test_a_link_in_place_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("theirs")
    (tmp_path / f"x.{os.getpid()}.part").symlink_to(tmp_path / "other")
    with whole_file(tmp_path / "x") as file:
        file.write("ours")
    assert (tmp_path / "other").read_text() == "theirs"
    assert (tmp_path / "x").read_text() == "ours"
    assert not (tmp_path / "x").is_symlink()
