"""Storage that fails, is slow, or changes under a reader: nothing is lost, and whoever reads the error knows why."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest

import standpipe as sp
from forked import output, run
from photos import age, encoded, picture, write_list
from programs import BEGIN, LIMIT_S, wait_until_stopped
from standpipe import _native

HEIGHT, WIDTH, FILES = 40, 56, 6
BAD = (
    5  # the record to which something happens: the last, so that two slots never hold it and the next epoch's
)
JPEGS = [encoded(picture(seed, HEIGHT, WIDTH), quality=90) for seed in range(FILES)]

# Who reads: the native pool, or Python workers of every kind.
WAYS: dict[str, dict[str, Any]] = {
    "native": {},
    "threads": {"executor": "thread"},
    "inline": {"executor": "inline"},
    "processes": {"executor": "process"},
}

PROGRAM = """
import hashlib, json
import standpipe.engine.run
standpipe.engine.run.PATIENCE_S = 60  # nothing hangs here: on a busy machine rows take long
def same(image):
    return image
pipeline = sp.Pipeline(sp.FileList({path!r})).map(sp.Resize(({height}, {width}))).on_error({bad})
if "executor" in {settings!r}:
    pipeline = pipeline.map(same, field="image")
told = {{"images": [], "error": "", "kind": "", "path": "", "index": -1, "replaced": []}}
begin = time.monotonic()
settings = {{"memory": "256MiB", "num_workers": 2, "prefetch": 1, "reads": sp.ReadOptions(**{reads!r}), **{settings!r}}}
with pipeline.batch(2).loader(**settings) as loader:
    try:
        for batch in loader:
            told["images"] += [hashlib.blake2b(image.tobytes()).hexdigest() for image in batch["image"]]
    except sp.SampleError as error:
        told |= {{"error": error.reason, "kind": type(error).__name__, "path": error.path, "index": error.index}}
    except sp.StandpipeError as error:
        told |= {{"error": str(error), "kind": type(error).__name__}}
    stats = loader.stats()
    told |= {{name: getattr(stats, name) for name in ("retries", "hedged", "slowest_read_s", "reading_ahead")}}
    told["took_s"] = time.monotonic() - begin
    told["replaced"] = [[bad.index, bad.reason, bad.replacement] for bad in loader.bad_samples]
    if not {closes}:
        print(json.dumps(told), flush=True)
        os._exit(0)
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Told:
    """What a program delivered, and the error that ended it."""

    images: list[str]
    error: str
    kind: str
    path: str
    index: int
    retries: int
    hedged: int
    slowest_read_s: float
    reading_ahead: bool
    took_s: float
    replaced: list[tuple[int, str, int]]


def program(
    folder: Path,
    reads: dict[str, Any] | None,
    settings: dict[str, Any],
    bad: str = "sp.Raise()",
    *,
    closes: bool = True,
) -> str:
    return PROGRAM.format(
        path=str(folder / "list.txt"),
        height=HEIGHT,
        width=WIDTH,
        reads={"backoff_s": 0.001} if reads is None else reads,
        settings=settings,
        bad=bad,
        closes=closes,
    )


def epoch(
    folder: Path,
    faults: str,
    *,
    reads: dict[str, Any] | None = None,
    way: str = "native",
    bad: str = "sp.Raise()",
    closes: bool = True,
    **settings: Any,
) -> Told:
    """One epoch over the list in ``folder``, with faults.

    closes  False: the process ends without waiting for reads that hang
    """
    text = program(folder, reads, WAYS[way] | settings, bad, closes=closes)
    return Told(**json.loads(output(text, environment={"STANDPIPE_FAULTS": faults})))


def digests(contents: list[bytes]) -> list[str]:
    """What an epoch over these files delivers."""
    return [hashlib.blake2b(pixels(content)).hexdigest() for content in contents]


def pixels(content: bytes) -> bytes:
    import io

    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)).tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Written a minute ago: an index of a list that has just changed isn't believed.
    write_list(tmp_path, JPEGS)
    before_s = (tmp_path / "list.txt").stat().st_mtime - 60
    os.utime(tmp_path / "list.txt", (before_s, before_s))
    return tmp_path


def bad_file(folder: Path) -> Path:
    return folder / f"{BAD:03d}.jpg"


def at_file(path: Path) -> str:
    """``@#KEY`` of a file."""
    return f"@#{_native.fault_key(os.fsencode(path))}"


def at_bad_file(folder: Path) -> str:
    """Likewise, of the one to which something happens."""
    return at_file(bad_file(folder))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["read.open", "read.stat", "read.pread"])
def test_eio_that_passes_is_read_again(folder: Path, point: str, way: str) -> None:
    told = epoch(folder, f"{point}=eio{at_bad_file(folder)}*2", way=way)
    assert (told.error, told.images) == ("", digests(JPEGS))
    assert told.retries == 2


@pytest.mark.parametrize("way", WAYS)
def test_eio_on_one_file_is_a_bad_sample_after_k_tries(folder: Path, way: str) -> None:
    told = epoch(
        folder, f"read.pread=eio{at_bad_file(folder)}", way=way, reads={"retries": 2, "backoff_s": 0.05}
    )
    assert told.images == digests(JPEGS)[:4]
    assert (told.kind, told.path, told.index) == ("ReadError", str(bad_file(folder)), BAD)
    assert told.error.startswith("can't be read: Input/output error (3 tries in ")
    assert told.retries == 2
    assert told.took_s > 0.05 * 0.5 + 0.1 * 0.5


@pytest.mark.parametrize("way", WAYS)
def test_what_still_fails_gives_way_to_another_sample_where_that_is_asked_for(folder: Path, way: str) -> None:
    told = epoch(folder, f"read.pread=eio{at_bad_file(folder)}", way=way, bad="sp.Replace(at_most=1)")
    ((index, reason, replacement),) = told.replaced
    assert (told.error, index) == ("", BAD)
    assert reason.startswith("can't be read: Input/output error (4 tries in ")
    assert told.images == digests([*JPEGS[:BAD], JPEGS[replacement]])


def test_without_retries_an_error_is_at_once_one(folder: Path) -> None:
    told = epoch(folder, f"read.open=eio{at_bad_file(folder)}*1", reads={"retries": 0})
    assert (told.error, told.retries) == ("can't be opened: Input/output error", 0)


@pytest.mark.parametrize(
    "error", ["estale", "etimedout", "eagain", "enetdown", "econnreset", "enomem", "enfile"]
)
def test_errors_of_network_file_systems_that_pass(folder: Path, error: str) -> None:
    told = epoch(folder, f"read.pread={error}{at_bad_file(folder)}*1")
    assert (told.error, told.images, told.retries) == ("", digests(JPEGS), 1)


@pytest.mark.parametrize("way", WAYS)
def test_estale_after_a_servers_restart_opens_the_file_again(folder: Path, way: str, tmp_path: Path) -> None:
    log = tmp_path / "faults.log"
    at = at_bad_file(folder)
    told = epoch(folder, f"read.open=delay:0s{at};read.pread=estale{at}*1;log={log}", way=way)
    assert (told.error, told.images) == ("", digests(JPEGS))
    assert [line.split()[0] for line in log.read_text().splitlines()] == [
        "read.open",
        "read.pread",
        "read.open",
    ]


@pytest.mark.parametrize("error", ["enoent", "eacces", "eperm"])
def test_what_is_not_there_is_not_tried_again(folder: Path, error: str) -> None:
    told = epoch(folder, f"read.open={error}{at_bad_file(folder)}")
    assert told.kind == "ReadError"
    assert "tries" not in told.error
    assert told.retries == 0


def test_emfile_names_the_limit(folder: Path) -> None:
    told = epoch(folder, f"read.open=emfile{at_bad_file(folder)}")
    assert told.error.startswith("can't be opened: Too many open files, of at most ")
    assert "(ulimit -n): raise the limit, or use fewer workers (4 tries in " in told.error


def test_enoent_of_a_listed_file_mid_epoch(folder: Path) -> None:
    pipeline = sp.Pipeline(sp.FileList(folder / "list.txt")).map(sp.Resize((HEIGHT, WIDTH))).batch(1)
    with pipeline.loader(memory="64MiB", num_workers=1, prefetch=1) as loader:
        batches = iter(loader)
        next(batches)
        bad_file(folder).unlink()
        assert [next(batches)["index"].item() for _ in range(4)] == [1, 2, 3, 4]
        with pytest.raises(sp.ReadError, match="can't be opened: No such file") as caught:
            next(batches)
        assert (caught.value.path, caught.value.index) == (str(bad_file(folder)), BAD)
        assert "tries" not in str(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_a_short_read_is_a_bad_sample_and_never_padded(folder: Path, way: str) -> None:
    told = epoch(folder, f"read.pread=short{at_bad_file(folder)}", way=way)
    assert told.images == digests(JPEGS)[:4]
    assert told.kind == "ReadError"
    assert told.error.startswith(f"truncated: file ends after 0 of {len(JPEGS[BAD])} bytes (4 tries in ")


def test_a_short_read_that_passes(folder: Path) -> None:
    told = epoch(folder, f"read.pread=short{at_bad_file(folder)}*1")
    assert (told.error, told.images, told.retries) == ("", digests(JPEGS), 1)


def test_what_was_read_damaged_is_a_bad_sample(folder: Path) -> None:
    told = epoch(folder, f"read.bytes=corrupt{at_bad_file(folder)}")
    assert (told.kind, told.index) == ("DecodeError", BAD)
    assert told.error.startswith("not an image: starts with 00 27 00")


INDEXED = """
with sp.Pipeline(sp.FileList({list!r}, index={index!r})).map(sp.CenterCrop(8)).batch(2).loader() as loader:
    print(*[index for batch in loader for index in batch["index"]])
"""


def indexed(folder: Path, faults: str) -> subprocess.CompletedProcess[str]:
    """A program over the list, with an index file of its own."""
    text = INDEXED.format(list=str(folder / "list.txt"), index=str(folder / "list.index"))
    return run(text, environment={"STANDPIPE_FAULTS": faults})


@pytest.mark.parametrize("error", ["enospc", "edquot", "erofs"])
def test_disk_full_or_read_only_where_the_index_goes(folder: Path, error: str) -> None:
    done = indexed(folder, f"index.publish.before={error}")
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1", "2", "3", "4", "5"])
    assert done.stderr.count("can't write") == 1
    assert f"({os.strerror(getattr(errno, error.upper()))})" in done.stderr
    assert sorted(path.name for path in folder.glob("list*")) == ["list.txt"]


def test_what_a_killed_builder_of_an_index_left_is_never_adopted(folder: Path) -> None:
    killed = indexed(folder, "index.publish.before=kill")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    assert not (folder / "list.index").exists()
    assert (folder / "list.index.building").exists()
    done = indexed(folder, "")
    assert (done.stdout.split(), done.stderr) == (["0", "1", "2", "3", "4", "5"], "")
    assert sorted(path.name for path in folder.glob("list*")) == ["list.index", "list.txt"]


def test_an_index_whose_builder_was_killed_once_it_was_there_is_whole(folder: Path) -> None:
    assert indexed(folder, "index.publish.after=kill").returncode == -signal.SIGKILL
    assert sp.verify_index(sp.FileList(folder / "list.txt", index=folder / "list.index")).ok
    done = indexed(folder, "index.publish.before=kill")
    assert (done.stdout.split(), done.stderr) == (["0", "1", "2", "3", "4", "5"], "")


def test_eio_on_the_index_is_fatal(folder: Path) -> None:
    source = sp.FileList(folder / "list.txt", index=folder / "list.index")
    sp.build_index(source)
    text = f"""
source = sp.FileList({str(folder / "list.txt")!r}, index={str(folder / "list.index")!r})
pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).on_error(sp.Replace(at_most=1.0)).batch(2)
with pipeline.loader() as loader:
    for _ in range(2):
        try:
            next(iter(loader))
        except sp.StandpipeError as error:
            print(type(error).__name__, error)
"""
    told = output(text, environment={"STANDPIPE_FAULTS": "index.read=eio"}).splitlines()
    assert told == 2 * [f"StandpipeError can't read {folder / 'list.index'}: Input/output error"]


@contextmanager
def started(
    folder: Path, faults: str, *, reads: dict[str, Any] | None = None, **settings: Any
) -> Iterator[tuple[subprocess.Popen[str], TextIO]]:
    """A program over the list, and lines as faults happen: each is there before its fault does anything."""
    pipe = folder / "faults.pipe"
    os.mkfifo(pipe)
    text = BEGIN.format(path=[path for path in sys.path if path]) + program(folder, reads, settings)
    environment = os.environ | {"STANDPIPE_FAULTS": f"{faults};log={pipe}"}
    with subprocess.Popen(
        [sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            # Open for writing too, or it would end whenever no fault happens.
            with os.fdopen(os.open(pipe, os.O_RDWR)) as lines:
                yield running, lines
        finally:
            running.kill()


@contextmanager
def stopped(lines: TextIO) -> Iterator[None]:
    """The next read that a fault stops, with its process: both go on behind the block."""
    point, action, process, _ = lines.readline().split()
    assert (point, action) == ("read.pread", "stop")
    wait_until_stopped(int(process))
    yield
    os.kill(int(process), signal.SIGCONT)


def told_by(running: subprocess.Popen[str], lines: TextIO) -> Told:
    """What it tells in the end. Reads that a fault stops until then go on."""

    def go_on() -> None:
        while (line := lines.readline()) != "\n":
            process = int(line.split()[2])
            wait_until_stopped(process)
            os.kill(process, signal.SIGCONT)

    others = threading.Thread(target=go_on)
    others.start()
    try:
        out, _ = running.communicate(timeout=LIMIT_S)
    finally:
        os.write(lines.fileno(), b"\n")
        others.join()
    return Told(**json.loads(out))


def truncated(path: Path) -> None:
    os.truncate(path, 300)


def rewritten(path: Path) -> None:
    path.write_bytes(JPEGS[0])


def rewritten_as_long(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff")


def renamed_over(path: Path) -> None:
    new = path.with_name("new.jpg")
    new.write_bytes(JPEGS[0])
    new.rename(path)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (truncated, "truncated: JPEG ends after 300 bytes"),
        (rewritten, JPEGS[0]),
        (rewritten_as_long, JPEGS[BAD]),
    ],
)
def test_a_file_that_changes_while_it_is_read_is_read_again(
    folder: Path, change: Any, expected: str | bytes
) -> None:
    with started(folder, f"read.pread=stop{at_bad_file(folder)}*1") as (running, lines):
        with stopped(lines):
            change(bad_file(folder))
        told = told_by(running, lines)
    assert told.retries == 1
    if isinstance(expected, bytes):
        assert told.images == digests([*JPEGS[:BAD], expected, *JPEGS[BAD + 1 :]])
    else:
        assert (told.kind, told.index) == ("DecodeError", BAD)
        assert told.error.startswith(expected)


def test_a_file_that_never_stops_changing(folder: Path) -> None:
    faults, reads = f"read.pread=stop{at_bad_file(folder)}", {"backoff_s": 0.5}
    with started(folder, faults, reads=reads) as (running, lines):
        for _ in range(4):
            with stopped(lines):
                rewritten_as_long(bad_file(folder))
        told = told_by(running, lines)
    assert (told.kind, told.index) == ("ReadError", BAD)
    what = r"changes while it is read; write another .* and rename that instead \(4 tries in (\S+) s\)"
    said = re.match(what, told.error)
    assert said is not None, told.error
    assert float(said[1]) > 0.5 * (0.5 + 1 + 2)


def test_a_file_replaced_by_rename_is_the_old_or_the_new_one(folder: Path) -> None:
    with started(folder, f"read.pread=stop{at_bad_file(folder)}*1") as (running, lines):
        with stopped(lines):
            renamed_over(bad_file(folder))
        told = told_by(running, lines)
    assert told.images == digests(JPEGS), "it was open before"
    assert epoch(folder, "").images == digests([*JPEGS[:BAD], JPEGS[0], *JPEGS[BAD + 1 :]])


@pytest.mark.parametrize("way", [*WAYS, "foreign"])
def test_a_file_whose_time_is_set_back_is_read_again(folder: Path, way: str) -> None:
    """Other bytes, as many, under the old time of modification: the time of the inode says so."""
    old, new = [
        encoded(picture(seed, HEIGHT, WIDTH), **({"kind": "BMP"} if way == "foreign" else {"quality": 90}))
        for seed in (BAD, 77)
    ]
    size = max(len(old), len(new))
    age(write(bad_file(folder), old.ljust(size, b"\0")))
    time_ns = bad_file(folder).stat().st_mtime_ns
    settings = WAYS.get(way, {})
    with started(folder, f"read.pread=stop{at_bad_file(folder)}*1", **settings) as (running, lines):
        for half in (slice(size // 2), slice(size // 2, size)):
            with stopped(lines):
                with bad_file(folder).open("r+b") as file:
                    file.seek(half.start or 0)
                    file.write(new.ljust(size, b"\0")[half])
                os.utime(bad_file(folder), ns=(time_ns, time_ns))
        told = told_by(running, lines)
    assert told.retries == 1
    assert told.images == digests([*JPEGS[:BAD], new, *JPEGS[BAD + 1 :]])


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def linked(path: Path) -> None:
    path.with_name("linked.jpg").hardlink_to(path)


def renamed(path: Path) -> None:
    path.rename(path.with_name("renamed.jpg"))


def access_changed(path: Path) -> None:
    for each in path.parent.glob("*.jpg"):
        each.chmod(0o600)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", [linked, renamed, access_changed])
def test_what_changes_no_bytes_of_a_file_that_is_read_is_no_error(
    folder: Path, change: Callable[[Path], None], way: str
) -> None:
    """Another name or mode changes the time of an inode, even without another try."""
    age(bad_file(folder))
    faults, reads = f"read.pread=stop{at_bad_file(folder)}*1", {"retries": 0}
    with started(folder, faults, reads=reads, **WAYS[way]) as (running, lines):
        with stopped(lines):
            change(bad_file(folder))
        told = told_by(running, lines)
    assert (told.error, told.images) == ("", digests(JPEGS))


def test_files_whose_modes_change_all_the_time_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "file", bytes(range(256)) * 1600)
    with over_and_over(lambda: path.chmod(0o600)):
        for _ in range(20):
            data, wrong = read_once(path)
            assert (wrong, data) == ("", path.read_bytes())


def test_a_file_that_is_rewritten_all_the_time_is_whole_or_an_error(tmp_path: Path) -> None:
    """A thread writes other bytes of the same number over a file, again and again."""
    contents = [bytes([letter]) * 400_000 for letter in b"ab"]
    path = write(tmp_path / "file", contents[0])
    with path.open("r+b", buffering=0) as file:

        def rewrite() -> None:
            for content in contents:
                os.pwrite(file.fileno(), content, 0)

        with over_and_over(rewrite):
            for _ in range(100):
                data, wrong = read_once(path)
                assert wrong.startswith("changes while it is read") or data in contents
    assert read_once(path) == (contents[1], "")


@contextmanager
def over_and_over(change: Callable[[], None]) -> Iterator[None]:
    """Inside, another thread does it again and again."""
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            change()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def read_once(path: Path) -> tuple[bytes, str]:
    """A file's bytes as one try has them, or what is wrong."""
    maker = _native.RowMaker(_native.SideArena(1 << 20), 1 << 20, np.zeros(4, np.int64), print)
    reader = _native.Reader(_native.ReadPolicy(0, 0, 0), 1 << 20, 1 << 20)
    data, wrong, _ = maker.read(reader, os.fsencode(path), 0, -1)
    return bytes(data), wrong


@pytest.mark.parametrize("way", ["native", "threads", "processes"])
def test_closing_ends_the_pause_before_another_try(folder: Path, way: str) -> None:
    text = f"""
import standpipe.engine.run
if {way != "processes"}:  # workers are killed after a second; threads that don't end would be left alone
    standpipe.engine.run.PATIENCE_S = 60
pipeline = sp.Pipeline(sp.FileList({str(folder / "list.txt")!r})).map(sp.CenterCrop(8))
if {way != "native"}:
    pipeline = pipeline.map(lambda image: image, field="image")
loader = pipeline.batch(6).loader(memory="256MiB", num_workers=1, reads=sp.ReadOptions(backoff_s=20), **{WAYS[way]!r})
taker = threading.Thread(target=lambda: next(iter(loader), None), daemon=True)
def took():
    with open({str(folder / "faults.pipe")!r}) as lines:
        lines.readline()
    begin = time.monotonic()
    loader.close()
    return time.monotonic() - begin
threading.excepthook = lambda args: None
os.mkfifo({str(folder / "faults.pipe")!r})
taker.start()
print(took() < 8)  # the pause takes 10
"""
    faults = f"read.open=eio{at_bad_file(folder)};log={folder / 'faults.pipe'}"
    assert output(text, environment={"STANDPIPE_FAULTS": faults}) == "True\n"


def in_place_of(path: Path, kind: str) -> None:
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind(str(path))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_a_special_file_in_the_place_of_a_listed_one_is_an_error(folder: Path, kind: str, way: str) -> None:
    """Nobody writes into the pipe: opening it mustn't wait for that."""
    in_place_of(bad_file(folder), kind)
    told = epoch(folder, "", way=way)
    reason = "can't be opened: No such device or address" if kind == "socket" else "is not a regular file"
    assert (told.kind, told.index, told.error) == ("ReadError", BAD, reason)


HANGS_S = 25  # a read that hangs: longer than a test may take in which nobody waits for it
HEDGED = {"hedge_after_s": 0.1}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["read.open", "read.stat", "read.pread"])
def test_a_read_that_blocks_gets_a_second_one(folder: Path, point: str, way: str) -> None:
    told = epoch(
        folder, f"{point}=delay:{HANGS_S}s{at_bad_file(folder)}*1", reads=HEDGED, way=way, closes=False
    )
    assert (told.error, told.images) == ("", digests(JPEGS))
    assert told.hedged >= 1
    assert told.took_s < 10


def test_when_both_reads_block_the_first_to_end_counts(folder: Path) -> None:
    told = epoch(folder, f"read.pread=delay:2s{at_bad_file(folder)}", reads=HEDGED)
    assert (told.error, told.images) == ("", digests(JPEGS))
    assert told.hedged >= 1
    assert told.took_s > 2
    assert told.slowest_read_s > 2


def test_a_second_read_stands_in_for_a_first_one_that_fails(folder: Path) -> None:
    at = f"{at_bad_file(folder)}*1"
    reads = HEDGED | {"retries": 0}
    told = epoch(folder, f"read.pread=delay:2s{at};read.pread=eio{at}", reads=reads)
    assert (told.error, told.images) == ("", digests(JPEGS))
    assert told.hedged >= 1


def test_a_hedged_read_that_fails_at_once_is_an_error_at_once(folder: Path) -> None:
    told = epoch(folder, f"read.open=enoent{at_bad_file(folder)}", reads={"hedge_after_s": HANGS_S})
    assert (told.error, told.hedged) == ("can't be opened: No such file or directory", 0)
    assert told.took_s < 10
    told = epoch(
        folder, f"read.open=eio{at_bad_file(folder)}", reads={"hedge_after_s": HANGS_S, "backoff_s": 0}
    )
    assert told.error.startswith("can't be opened: Input/output error (4 tries in ")


def large_files(folder: Path, files: int) -> list[bytes]:
    """Many files of 300 kB, of which few fit the least that is read ahead, and the list of them."""
    contents = [JPEGS[number % FILES] + bytes(300_000) for number in range(files)]
    write_list(folder, contents)
    return contents


def tight(folder: Path, prefetch: int) -> dict[str, Any]:
    """Settings with which least is read ahead, 4 MiB, for one decoding thread."""
    pipeline = sp.Pipeline(sp.FileList(folder / "list.txt")).map(sp.Resize((HEIGHT, WIDTH))).batch(2)
    with pytest.raises(sp.BudgetError) as caught:
        pipeline.plan(memory=1, num_workers=1, prefetch=prefetch)
    return {"memory": caught.value.smallest_bytes, "num_workers": 1, "prefetch": prefetch}


def test_reads_that_hang_hold_buffers_and_the_others_go_on(tmp_path: Path) -> None:
    contents = large_files(tmp_path, 60)
    hanging = range(3, 60, 8)  # 8 of the 12 buffers that there are
    faults = [f"read.pread=delay:{HANGS_S}s{at_file(tmp_path / f'{number:03d}.jpg')}*1" for number in hanging]
    told = epoch(tmp_path, ";".join(faults), reads=HEDGED, closes=False, **tight(tmp_path, 2))
    assert (told.error, told.images) == ("", digests(contents))
    assert told.hedged >= len(hanging)
    assert told.took_s < HANGS_S


@pytest.mark.parametrize("way", WAYS)
def test_a_file_too_large_to_be_read_twice_is_read_once(tmp_path: Path, way: str) -> None:
    contents = [JPEGS[0], JPEGS[1] + bytes(5 << 20), JPEGS[2], JPEGS[3]]
    write_list(tmp_path, contents)
    told = epoch(
        tmp_path, "", reads={"hedge_after_s": HANGS_S}, way=way, num_workers=1, large_image_memory="16MiB"
    )
    assert (told.error, told.images) == ("", digests(contents))


def test_waiting_for_a_buffer_is_no_slow_read(tmp_path: Path) -> None:
    contents = large_files(tmp_path, 20)
    # Slow enough to be read ahead, by more threads than there are buffers; and then they wait for decoding.
    faults = "read.open=delay:5ms;decode.row=delay:450ms"
    told = epoch(tmp_path, faults, reads={"hedge_after_s": 2.5}, **tight(tmp_path, 10))
    assert (told.error, told.images, told.hedged) == ("", digests(contents), 0)


def test_closing_while_reads_hang_ends_at_once_and_leaves_nothing(folder: Path) -> None:
    text = f"""
pipeline = sp.Pipeline(sp.FileList({str(folder / "list.txt")!r})).map(sp.CenterCrop(8)).batch(6)
loader = pipeline.loader(memory="256MiB", num_workers=2, reads=sp.ReadOptions(hedge_after_s=0.01))
taker = threading.Thread(target=lambda: next(iter(loader), None), daemon=True)
threading.excepthook = lambda args: None
os.mkfifo({str(folder / "faults.pipe")!r})
taker.start()
with open({str(folder / "faults.pipe")!r}) as lines:
    lines.readline()
begin = time.monotonic()
loader.close()
taker.join()
print(time.monotonic() - begin < 8)  # that threads inside a read get a second is part of it
"""
    faults = f"read.pread=delay:{HANGS_S}s{at_bad_file(folder)};log={folder / 'faults.pipe'}"
    begin = time.monotonic()
    assert output(text, environment={"STANDPIPE_FAULTS": faults}) == "True\n"
    assert time.monotonic() - begin < HANGS_S


def test_threads_of_hedged_reads_end_with_their_loader(folder: Path) -> None:
    text = f"""
pipeline = sp.Pipeline(sp.FileList({str(folder / "list.txt")!r})).map(sp.CenterCrop(8)).batch(2)
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
for settings in ({{}}, {{"executor": "thread"}}, {{"executor": "inline"}}):
    used = pipeline.map(lambda image: image, field="image") if settings else pipeline
    with used.loader(memory="256MiB", num_workers=2, reads=sp.ReadOptions(hedge_after_s=1), **settings) as loader:
        assert sum(1 for batch in loader) == 3
        assert threads() > before + 1
    ends = time.monotonic() + 5
    while threads() > before and time.monotonic() < ends:
        os.sched_yield()  # native threads say that they are done just before they are gone
    print(threads() - before)
"""
    assert output(text).split() == ["0", "0", "0"]


def test_one_read_in_a_hundred_that_takes_long_is_read_ahead(tmp_path: Path) -> None:
    contents = [JPEGS[number % FILES] for number in range(300)]
    write_list(tmp_path, contents)
    slow = range(10, 300, 20)
    # Less than a loader waits for its threads at the end: one may have begun to read for the next epoch.
    faults = ";".join(f"read.pread=delay:500ms{at_file(tmp_path / f'{number:03d}.jpg')}" for number in slow)
    told = epoch(tmp_path, faults, num_workers=1, prefetch=39)
    assert (told.error, told.images) == ("", digests(contents))
    assert told.reading_ahead
    assert told.slowest_read_s > 0.5
    assert told.took_s < len(slow) * 0.5, "one after another they take longer"
