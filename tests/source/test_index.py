"""Index files: when one is used, when it is made anew, and that no damage to one can lead to wrong records."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import standpipe as sp
from standpipe.contracts import OpenSource
from standpipe.errors import StandpipeError, PlanError
from programs import open_below

LONG_AGO_NS = 1_600_000_000_123_456_789
FAR_AHEAD_NS = 4_000_000_000_123_456_789


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where indexes go, of every size: those up to 8 MiB would stay in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("standpipe.source._index_writer.SMALL_BYTES", 0)
    return tmp_path / "cache/standpipe/index"


def write(path: Path, content: bytes, mtime_ns: int = LONG_AGO_NS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def tree(root: Path, *names: str) -> Path:
    """A folder of empty files, changed long ago."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for folder, _, _ in os.walk(root):
        os.utime(folder, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return root


def records(opened: OpenSource) -> list[tuple[bytes, int]]:
    found = opened.locate(np.arange(opened.num_records))
    paths, labels = found.files["image"].paths, found.plain["label"].tolist()
    return [(paths[row], label) for row, label in enumerate(labels)]


def names(opened: OpenSource) -> list[tuple[str, int]]:
    return [(Path(os.fsdecode(path)).name, label) for path, label in records(opened)]


def only_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_small_index_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    opened = sp.FileList(write(tmp_path / "list.txt", b"a 1\nb 2\n")).open()
    assert names(opened) == [("a", 1), ("b", 2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["list.txt"]
    assert (
        ", in memory"
        in sp.Pipeline(sp.FileList(tmp_path / "list.txt")).map(sp.CenterCrop(8)).batch(2).plan().explain()
    )


def test_an_index_is_made_once_and_used(cache: Path, tmp_path: Path) -> None:
    source = sp.FileList(write(tmp_path / "list.txt", b"a 1\nb 2\n"))
    first = source.open()
    file = only_file(cache)
    made = file.stat()
    again = source.open()
    assert records(again) == records(first)
    assert again.digest == first.digest
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    assert first.index_bytes == 0
    assert sp.FileList(tmp_path / "list.txt", labels=False).open().num_records == 2
    assert len(list(cache.iterdir())) == 2


def test_explain_says_where_the_index_is(cache: Path, tmp_path: Path) -> None:
    source = sp.FileList(write(tmp_path / "list.txt", b"a 1\nb 2\n"))
    plan = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(2).plan()
    file = only_file(cache)
    assert f"index: {file.stat().st_size:,} bytes, {file}" in " ".join(plan.explain().split())
    assert (
        plan.most_descriptors
        == sp.Pipeline(sp.ImageFolder(tree(tmp_path / "set", "a/1.jpg")))
        .map(sp.CenterCrop(8))
        .batch(2)
        .plan()
        .most_descriptors
        + 1
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda path: write(path, b"a 1\nb 2\nc 3\n"),
        lambda path: write(path, b"c 1\nb 2\n", LONG_AGO_NS + 1),
        lambda path: write(path.with_name("other"), b"c 1\nb 2\n").rename(path),
    ],
    ids=["another size", "another time", "another inode"],
)
def test_a_changed_list_is_indexed_again(
    cache: Path, tmp_path: Path, change: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "list.txt", b"a 1\nb 2\n")
    assert names(sp.FileList(path).open()) == [("a", 1), ("b", 2)]
    change(path)
    with caplog.at_level(logging.INFO, "standpipe"):
        opened = sp.FileList(path).open()
    lines = [line.split() for line in path.read_text().splitlines()]
    assert names(opened) == [(name, int(label)) for name, label in lines]
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["the list changed since"]
    assert names(sp.FileList(path).open()) == names(opened)


def test_a_list_that_may_change_within_a_tick_is_not_trusted(cache: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", b"a 1\nb 2\n", FAR_AHEAD_NS)
    assert names(sp.FileList(path).open()) == [("a", 1), ("b", 2)]
    before = path.stat()
    write(path, b"c 1\nb 2\n", FAR_AHEAD_NS)
    assert (path.stat().st_ino, path.stat().st_size) == (before.st_ino, before.st_size)
    assert names(sp.FileList(path).open()) == [("c", 1), ("b", 2)]


def test_a_list_that_changes_while_it_is_in_use(tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", b"a 1\nb 2\n")
    opened = sp.FileList(path).open()
    write(tmp_path / "new.txt", b"c 1\nd 2\n").rename(path)
    assert names(opened) == [("a", 1), ("b", 2)], "the old list is still there for those who have it open"
    opened = sp.FileList(path).open()
    os.truncate(path, 4)
    for ask in (lambda: opened.locate(np.array([0])), lambda: opened.name(1)):
        with pytest.raises(StandpipeError, match=r"list\.txt was changed while it was in use"):
            ask()


def test_a_folder_is_indexed_once_and_again_when_it_changed(cache: Path, tmp_path: Path) -> None:
    root = tree(tmp_path / "set", "a/1.jpg", "a/deep/2.jpg", "b/3.jpg")
    first = sp.ImageFolder(root).open()
    made = only_file(cache).stat().st_mtime_ns
    again = sp.ImageFolder(root).open()
    assert (records(again), again.digest) == (records(first), first.digest)
    assert only_file(cache).stat().st_mtime_ns == made
    (root / "a/deep/4.jpg").touch()
    assert names(sp.ImageFolder(root).open()) == [("1.jpg", 0), ("2.jpg", 0), ("4.jpg", 0), ("3.jpg", 1)]
    (root / "c").mkdir()
    with pytest.raises(PlanError, match="no image in 'c'"):
        sp.ImageFolder(root).open()


def test_a_folder_behind_a_link_that_leads_elsewhere_now(cache: Path, tmp_path: Path) -> None:
    root, far = tree(tmp_path / "set", "a/1.jpg"), tmp_path / "far"
    tree(far, "one/2.jpg", "two/3.jpg")
    (far / "current").symlink_to("one")
    (root / "b").symlink_to(far / "current")
    tree(root)
    assert names(sp.ImageFolder(root).open()) == [("1.jpg", 0), ("2.jpg", 1)]
    (far / "current").unlink()
    (far / "current").symlink_to("two")
    assert names(sp.ImageFolder(root).open()) == [("1.jpg", 0), ("3.jpg", 1)]


def test_a_folder_that_may_change_within_a_tick_is_not_trusted(cache: Path, tmp_path: Path) -> None:
    root = tree(tmp_path / "set", "a/1.jpg")
    os.utime(root / "a", ns=(FAR_AHEAD_NS, FAR_AHEAD_NS))
    sp.ImageFolder(root).open()
    (root / "a/2.jpg").touch()
    os.utime(root / "a", ns=(FAR_AHEAD_NS, FAR_AHEAD_NS))
    assert names(sp.ImageFolder(root).open()) == [("1.jpg", 0), ("2.jpg", 0)]


def test_classes_without_images_are_asked_about_every_time(cache: Path, tmp_path: Path) -> None:
    root = tree(tmp_path / "set", "a/1.jpg", "b/notes.txt")
    for _ in range(2):
        assert sp.ImageFolder(root, allow_empty=True).open().classes == ("a", "b")
        with pytest.raises(PlanError, match=r"no image in 'b'.*allow_empty=True"):
            sp.ImageFolder(root).open()


def test_the_digest_is_the_same_in_memory_and_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = [
        sp.FileList(write(tmp_path / "list.txt", b"a x\nb y\n")),
        sp.ImageFolder(tree(tmp_path / "set", "a/1.jpg", "b/2.jpg")),
    ]
    small = [source.open() for source in sources]
    monkeypatch.setattr("standpipe.source._index_writer.SMALL_BYTES", 0)
    large = [source.open() for source in sources]
    assert [opened.digest for opened in small] == [opened.digest for opened in large]
    assert [records(opened) for opened in small] == [records(opened) for opened in large]


def test_no_place_to_write(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no-such-folder")
    opened = sp.FileList(write(tmp_path / "list.txt", b"a 1\nb 2\n")).open()
    assert names(opened) == [("a", 1), ("b", 2)]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "give the source another place by index=" in caplog.text


def test_files_are_closed_with_their_source(cache: Path, tmp_path: Path) -> None:
    source = sp.FileList(write(tmp_path / "list.txt", b"a 1\nb 2\n"))
    for _ in range(3):
        opened = source.open()
        opened.name(1)
        del opened
    with pytest.raises(PlanError):
        sp.FileList(write(tmp_path / "bad.txt", b"a 1\nb\n")).open()
    assert open_below(tmp_path) == []


def test_records_that_are_not_there(tmp_path: Path) -> None:
    opened = sp.FileList(write(tmp_path / "list.txt", b"a 1\nb 2\n")).open()
    for index in (-1, 2, 2**62):
        with pytest.raises(IndexError):
            opened.locate(np.array([0, index]))
        with pytest.raises(IndexError):
            opened.name(index)


CONTENT = b"".join(b"folder-%d/%d.jpg\tclass %d\n" % (row % 3, row, row % 4) for row in range(40))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.one_of(st.just(1.0), st.floats(0, 1)),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4),
    tail=st.binary(max_size=4),
    kind=st.sampled_from(["list", "folder"]),
)
def test_a_damaged_index_never_gives_other_records(
    cache: Path, tmp_path: Path, cut: float, flips: list[tuple[float, int]], tail: bytes, kind: str
) -> None:
    source: sp.FileList | sp.ImageFolder
    if kind == "list":
        source = sp.FileList(write(tmp_path / "list.txt", CONTENT))
    else:
        source = sp.ImageFolder(tree(tmp_path / "set", "a/1.jpg", "a/deep/22.jpg", "b/333.jpg"))
    for file in cache.glob("*"):
        file.unlink()
    truth = records(source.open())
    file = only_file(cache)
    whole = file.read_bytes()
    data = bytearray(whole)
    facts_at = int.from_bytes(whole[24:32], "little")
    for place, change in flips:
        data[int(place * len(data))] ^= change
    in_facts = (data[:64], data[facts_at:]) != (whole[:64], whole[facts_at:])
    data = data[: round(cut * len(data))] + tail
    file.write_bytes(data)
    if len(data) != len(whole) or in_facts or data == whole:
        assert records(source.open()) == truth, "it isn't believed, and made anew"
        return
    try:
        opened = source.open()
        found = records(opened)
        assert opened.num_records == len(truth)
    except StandpipeError:
        return
    # A folder's index holds its paths: other letters in them are for the digests of verify_index to find.
    known = {path for path, _ in truth}
    assert kind == "folder" or {path for path, _ in found} <= known, "a path that stands nowhere"


def test_an_index_that_is_cut_while_it_is_in_use(cache: Path, tmp_path: Path) -> None:
    opened = sp.FileList(write(tmp_path / "list.txt", b"a 1\nb 2\n")).open()
    os.truncate(only_file(cache), 70)
    for ask in (lambda: opened.locate(np.array([1])), lambda: opened.column("label", 0, 2)):
        with pytest.raises(StandpipeError, match="is damaged: it ends too soon; delete it"):
            ask()


@pytest.mark.parametrize("content", [b"", b"x", b"standpipe" + bytes(200), os.urandom(5000)])
def test_foreign_files_are_no_index(
    cache: Path, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "list.txt", b"a 1\nb 2\n")
    write(Path(f"{path}.standpipe-index"), content)
    assert names(sp.FileList(path).open()) == [("a", 1), ("b", 2)]
    assert "list.txt.standpipe-index isn't used" in caplog.text


OPEN = """
import logging, sys
import standpipe as sp
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
opened = sp.FileList(sys.argv[1]).open()
print(opened.num_records, opened.digest, opened.name(opened.num_records - 1))
"""


def start(script: str, *arguments: object, cache: Path) -> subprocess.Popen[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_CACHE_HOME": str(cache),
    }
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def large_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A million lines, whose index doesn't stay in memory."""
    path = tmp_path_factory.mktemp("large") / "list.txt"
    rows = 1_000_000
    return write(path, b"".join(b"%07d.jpg %d\n" % (row, row % 1000) for row in range(rows)))


def test_of_several_processes_one_builds(large_list: Path, tmp_path: Path) -> None:
    processes = [start(OPEN, large_list, cache=tmp_path) for _ in range(4)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [error for _, error in outputs] == [""] * 4
    assert len({out.splitlines()[-1] for out, _ in outputs}) == 1
    assert "0999999.jpg" in outputs[0][0]
    assert sum("indexing" in out for out, _ in outputs) == 1
    assert len(list((tmp_path / "standpipe/index").iterdir())) == 1


def test_a_full_disk(large_list: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    mount = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"',
        tmp_path / "small",
    ]
    try:
        subprocess.run([*mount, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount in a namespace of its own")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_CACHE_HOME": str(tmp_path / "small"),
    }
    done = subprocess.run(
        [*mount, sys.executable, "-c", OPEN, large_list],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "No space left on device" in done.stdout
    assert "1000000 " in done.stdout
