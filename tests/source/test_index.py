"""Index files: when one is used, when it is made anew, and that no damage to one can lead to wrong records."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import standpipe as sp
from indexes import change_section, index_of_facts
from programs import open_below
from standpipe.contracts import OpenSource
from standpipe.errors import PlanError, StandpipeError

LONG_AGO_NS = 1_600_000_000_123_456_789
FAR_AHEAD_NS = 4_000_000_000_123_456_789


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where indexes go, of every size: those up to 8 MiB would stay in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("standpipe.source.index.writer.SMALL_BYTES", 0)
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
        with pytest.raises(StandpipeError, match=r"list\.txt was changed while paths were read from it"):
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


def test_classes_without_images_are_asked_about_every_time(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tree(tmp_path / "set", "a/1.jpg", "b/notes.txt")
    sp.build_index(sp.ImageFolder(root))
    for _ in range(2):
        assert sp.ImageFolder(root, allow_empty=True).open().classes == ("a", "b")
        with pytest.raises(PlanError, match=r"no image in 'b'.*allow_empty=True"):
            sp.ImageFolder(root).open()
    assert not caplog.messages, "the index is right, and building it anew helps nobody"


def test_the_digest_is_the_same_in_memory_and_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = [
        sp.FileList(write(tmp_path / "list.txt", b"a x\nb y\n")),
        sp.ImageFolder(tree(tmp_path / "set", "a/1.jpg", "b/2.jpg")),
    ]
    small = [source.open() for source in sources]
    monkeypatch.setattr("standpipe.source.index.writer.SMALL_BYTES", 0)
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
    assert "pass the source another path as index=" in caplog.text


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


CONTENT = b"".join(b"folder-%d/%d.jpg\tclass %d\n" % (row % 3, row, row % 4) for row in range(400))
COLUMNS = {"length": np.arange(400) % 7, "box": np.arange(1600, dtype=np.float32).reshape(400, 4)}


@pytest.fixture(params=["list", "folder"])
def indexed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> sp.FileList | sp.ImageFolder:
    """A list or folder with an index beside it, which has two columns."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source: sp.FileList | sp.ImageFolder
    if request.param == "list":
        source = sp.FileList(write(tmp_path / "list.txt", CONTENT), index=tmp_path / "own.index")
    else:
        paths = [f"{'ab'[row % 2]}/{row:05}-{'x' * 60}.jpg" for row in range(400)]
        source = sp.ImageFolder(tree(tmp_path / "set", *paths), index=tmp_path / "own.index")
    sp.build_index(source, columns=COLUMNS)
    return source


def everything(opened: OpenSource) -> dict[str, object]:
    """All that an index says of its records: in any order, and in slices."""
    found = opened.locate(np.random.default_rng(1).permutation(opened.num_records))
    paths = found.files["image"].paths
    slices = {f"{name}, a slice": opened.column(name, 3, 390).tolist() for name in opened.columns}
    plain = {name: values.tolist() for name, values in found.plain.items()}
    return {"classes": opened.classes, "paths": [paths[row] for row in range(len(paths))], **plain, **slices}


@pytest.fixture(params=["when it is opened", "as it is read"])
def checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the index is checked, as if it were small or large."""
    most = 0 if request.param == "as it is read" else 1 << 40
    monkeypatch.setattr("standpipe.source.index.file.CHECKED_WHOLE_BYTES", most)


def check_damaged(source: sp.FileList | sp.ImageFolder, whole: bytes, damaged: bytes) -> None:
    """An index with ``damaged`` content says what the whole one does, or it is an error that names the index."""
    index = Path(os.fsdecode(source.subject().index or b""))
    index.write_bytes(whole)
    truth = everything(source.open())
    index.write_bytes(damaged)
    facts_at = int.from_bytes(whole[24:32], "little")
    has_facts = (len(damaged), damaged[:64], damaged[facts_at:]) == (len(whole), whole[:64], whole[facts_at:])
    refused, found = None, {}
    try:
        found = everything(source.open())
    except StandpipeError as error:
        refused = str(error)
    if damaged[:8] not in (whole[:8], b""):
        assert refused is not None
        assert "is a file that isn't an index of standpipe" in refused
        assert index.read_bytes() == damaged
    elif refused is not None:
        assert has_facts
        assert re.search(
            r"own\.index is damaged: .*; delete it, and build it again with its columns", refused
        )
    else:
        if not has_facts:  # nothing is known of its columns
            truth = {name: truth[name] for name in truth if not name.startswith(tuple(COLUMNS))}
        assert found == truth
        assert damaged == whole or index.read_bytes() != damaged, "damage wasn't seen"


def test_a_file_that_is_no_index_is_never_written_over(tmp_path: Path) -> None:
    own = write(tmp_path / "list.txt", CONTENT)
    for place in (own, write(tmp_path / "notes.txt", b"mine")):
        before = place.read_bytes()
        for build in (sp.build_index, lambda source: source.open()):
            with pytest.raises(PlanError, match="is a file that isn't an index of standpipe; use another"):
                build(sp.FileList(own, index=place))
        assert place.read_bytes() == before


def test_an_index_that_cannot_be_read_is_built_anew_with_a_warning(
    indexed: sp.FileList | sp.ImageFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "own.index"
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING, "standpipe"):
        assert indexed.open().num_records == 400
    assert "own.index can't be read: it has" in caplog.text
    assert "built again without the columns that were added to it" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "standpipe"):
        indexed.open()
    assert caplog.text == ""


@pytest.mark.usefixtures("checked")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.one_of(st.just(1.0), st.floats(0, 1)),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4),
    tail=st.binary(max_size=4),
)
def test_a_damaged_index_never_gives_other_records(
    indexed: sp.FileList | sp.ImageFolder,
    tmp_path: Path,
    cut: float,
    flips: list[tuple[float, int]],
    tail: bytes,
) -> None:
    (tmp_path / "own.index").unlink()  # of the example before
    sp.build_index(indexed, columns=COLUMNS)
    whole = (tmp_path / "own.index").read_bytes()
    data = bytearray(whole)
    for place, change in flips:
        data[int(place * len(data))] ^= change
    check_damaged(indexed, whole, bytes(data[: round(cut * len(data))] + tail))


@pytest.mark.usefixtures("checked")
def test_one_flipped_bit_is_seen(indexed: sp.FileList | sp.ImageFolder, tmp_path: Path) -> None:
    whole = (tmp_path / "own.index").read_bytes()
    for bit in np.random.default_rng(0).integers(0, 8 * len(whole), 300).tolist():
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        check_damaged(indexed, whole, bytes(data))


@pytest.mark.usefixtures("checked")
def test_a_block_in_another_place_is_damage(indexed: sp.FileList | sp.ImageFolder, tmp_path: Path) -> None:
    """Blocks that are whole are exchanged, stand twice, are those of an older index, or are gone to zeros."""
    older = (tmp_path / "own.index").read_bytes()
    (tmp_path / "own.index").unlink()
    sp.build_index(indexed, columns={name: values[::-1] for name, values in COLUMNS.items()})
    whole = (tmp_path / "own.index").read_bytes()
    assert len(older) == len(whole)
    facts_at = int.from_bytes(whole[24:32], "little")
    starts = range(64, facts_at - 1024, 512)
    for at in starts:
        here, behind = whole[at : at + 512], whole[at + 512 : at + 1024]
        for blocks in (behind + here, here + here, older[at : at + 1024], bytes(1024)):
            check_damaged(indexed, whole, whole[:at] + blocks + whole[at + 1024 :])


def test_places_that_lie_outside_are_found(tmp_path: Path) -> None:
    """An index whose writer named bytes that its list doesn't have, and sealed it, leads to no path."""
    source = sp.FileList(write(tmp_path / "list.txt", CONTENT), index=tmp_path / "own.index")
    sp.build_index(source)
    change_section(
        tmp_path / "own.index", "places", lambda held: held.__setitem__(slice(-8, None), b"\xff" * 8)
    )
    with pytest.raises(StandpipeError, match=r"own\.index is damaged: the place of record 399 is outside"):
        source.open().name(399)


def test_an_index_that_is_cut_while_it_is_in_use(cache: Path, tmp_path: Path) -> None:
    opened = sp.FileList(write(tmp_path / "list.txt", b"a 1\nb 2\n")).open()
    os.truncate(only_file(cache), 70)
    for ask in (lambda: opened.locate(np.array([1])), lambda: opened.column("label", 0, 2)):
        with pytest.raises(StandpipeError, match="is damaged: it ends too soon; delete it"):
            ask()


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"standpipe" + bytes(200), os.urandom(5000), index_of_facts(b"[" * 100_000)],
    ids=["empty", "short", "name", "noise", "deep"],
)
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
