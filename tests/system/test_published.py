"""Processes of one user read what the others tell, whole, as long as those live."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from standpipe.system import published as module
from standpipe.system.published import Published, line_of, message_in, published_messages

KIND = "word"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "standpipe"


@pytest.fixture
def file() -> Iterator[Published]:
    file = Published(KIND)
    yield file
    file.close()


def told() -> list[bytes]:
    return [message for _, message in published_messages(KIND)]


def test_the_newest_message_of_each_file_is_read(file: Published, folder: Path) -> None:
    assert told() == []
    other = Published("other")
    other.write(b"of another kind")
    for message in (b"one", b"a longer one", b"two"):
        file.write(message)
        assert told() == [message]
    file.close()
    other.close()
    assert not folder.exists()


def test_no_part_of_a_message_is_read() -> None:
    first, second = line_of(b"the first one" * 9), line_of(b"another, longer one" * 9)
    for half in range(1, len(second)):
        assert message_in(second[:half]) is None
        assert message_in(second[:half] + first[half:]) is None
    assert message_in(second) == b"another, longer one" * 9


def test_half_of_a_message_is_left_out(file: Published, folder: Path) -> None:
    file.write(b"whole")
    (path,) = folder.iterdir()
    for content in (b"", b"\0" * 99, b"\n", line_of(b"whole")[:-2]):
        path.write_bytes(content)
        assert told() == []


PROGRAM = """
import sys
from standpipe.system.published import Published
file = Published("word")
file.write(b"there")
print("there", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_nothing_that_is_read(folder: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        assert told() == [b"there"]
        process.kill()
        process.wait()
    assert len(list(folder.iterdir())) == 1
    assert told() == []
    assert list(folder.iterdir()) == []


def test_a_file_that_was_removed_is_written_again(file: Published, folder: Path) -> None:
    file.write(b"one")
    (path,) = folder.iterdir()
    path.unlink()
    folder.rmdir()
    file.write(b"two")
    assert told() == [b"two"]


def test_a_forked_child_has_no_file(file: Published) -> None:
    file.write(b"the parent's")
    child = os.fork()
    if child == 0:
        file.write(b"the child's")
        file.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert told() == [b"the parent's"]


def test_a_folder_that_others_can_open_is_not_used(
    file: Published, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    file.write(b"one")
    assert told() == []
    assert not module.is_possible()
    assert file.name is None
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path)
    assert module.is_possible()
    file.write(b"two")
    assert told() == [b"two"]
    assert list(folder.iterdir()) == []
