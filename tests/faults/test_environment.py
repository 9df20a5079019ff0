"""Environment and security: little shared memory, no network, data that would be code or lead elsewhere."""

from __future__ import annotations

import io
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from indexes import change_section
from jpegs import scan_bomb
from photos import WAIT_S, encoded, numbers, picture, write_list, write_photos
from programs import BEGIN, LIMIT_S, children, open_files
from reference import decoded

GOOD = encoded(picture(0), quality=90)
SMALL: dict[str, Any] = {"memory": "512MiB", "num_workers": 1}
LONG_AGO_NS = 1_600_000_000_123_456_789


def can_unshare(*what: str) -> bool:
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, *what, "true"], check=False).returncode == 0


def run_in(namespaces: list[str], before: str, program: str) -> str:
    """What a program prints in namespaces of its own, after a command of the shell."""
    text = BEGIN.format(path=[path for path in sys.path if path]) + program
    command = f'{before} && exec "$0" -W error -c "$1"'
    done = subprocess.run(
        ["unshare", *namespaces, "bash", "-c", command, sys.executable, text],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


LARGE_ANSWERS = """
class Large:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return {"x": np.full((1 << 20,), index, np.uint8), "name": np.full((1 << 20,), index, np.uint8)}

pipeline = sp.Pipeline(sp.MapSource(Large())).batch(16, collate={"name": list})
for executor in ("thread", "process", "inline"):
    with pipeline.loader(memory="2GiB", num_workers=2, executor=executor) as loader:
        held = list(loader)
        print(len(held), all((batch["x"][:, 0] == batch["index"]).all() for batch in held))
        print(all((name == index).all() for b in held for name, index in zip(b["name"], b["index"])))
photos = sp.Pipeline(sp.FileList({path!r})).map(sp.CenterCrop(224), sp.Normalize()).batch(64)
with photos.loader(memory="1GiB", num_workers=2) as loader:
    print(loader.plan.samples.program is None, sum(len(batch["index"]) for batch in loader))
print(sorted(os.listdir("/dev/shm")))
"""


@pytest.mark.skipif(not can_unshare("-m"), reason="needs a mount namespace")
@pytest.mark.parametrize("free", [pytest.param("64 MiB", marks=pytest.mark.long), "8 MiB", "nothing"])
def test_dev_shm_of_64_mib(free: str, tmp_path: Path) -> None:
    """Docker's default of /dev/shm, a smaller or a full one make no difference to native threads, Python threads,
    processes and the caller's thread: nothing lies there, and no option is needed.
    """
    mount = f"mount -t tmpfs -o size={'64m' if free == '64 MiB' else '8m'} none /dev/shm"
    if free == "nothing":
        mount += " && head -c 8388608 /dev/zero > /dev/shm/full"
    write_photos(tmp_path, 128)
    text = run_in(["-m"], mount, LARGE_ANSWERS.replace("{path!r}", repr(str(tmp_path / "list.txt"))))
    left = ["full"] if free == "nothing" else []
    assert text == "4 True\nTrue\n" * 3 + f"True 128\n{left}\n"


@pytest.mark.skipif(not can_unshare("-n"), reason="needs a network namespace")
def test_no_network_is_needed(tmp_path: Path) -> None:
    """Without any network, not even the machine's own address, all works: nothing connects or listens."""
    write_photos(tmp_path, 6)
    text = run_in(
        ["-n"],
        "true",
        f"""
source = sp.FileList({str(tmp_path / "list.txt")!r})
for settings in ({{}}, {{"executor": "process"}}):
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8))
    pipeline = pipeline.map(np.asarray, field="image") if settings else pipeline
    with pipeline.batch(2).loader(memory="512MiB", num_workers=1, **settings) as loader:
        print(sum(len(batch["index"]) for batch in loader))
""",
    )
    assert text == "6\n6\n"


def test_sockets_have_no_names() -> None:
    """Trainer and workers talk over a pair of sockets that were made connected: nobody else can find or reach them."""

    def sockets() -> set[str]:
        return {
            link.removeprefix("socket:[").removesuffix("]")
            for process in (os.getpid(), *children())
            for link in open_files(process)
            if link.startswith("socket:")
        }

    others = sockets()  # torch's own may have names
    source = sp.MapSource(list(range(8)), fields="x")
    with sp.Pipeline(source).batch(2).loader(executor="process", **SMALL) as loader:
        next(iter(loader))
        inodes = sockets() - others
        unix = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    ours = [fields for fields in unix if fields[6] in inodes]
    assert len(ours) >= 2
    assert {len(fields) for fields in ours} == {7}, "one has a name"
    for table in ("tcp", "tcp6", "udp", "udp6", "raw"):
        path = Path("/proc/net") / table
        if path.exists():
            found = {
                fields[9] for line in path.read_text().splitlines()[1:] if len(fields := line.split()) > 9
            }
            assert not found & inodes


class Canary:
    """Whoever unpickles it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def pickle_bearing(canary: Canary) -> dict[str, bytes]:
    """Files of every form in which pickles hide."""
    array, archive, checkpoint = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(array, np.array([canary]), allow_pickle=True)
    np.savez(archive, a=np.array([canary]))
    with zipfile.ZipFile(checkpoint, "w") as parts:  # as torch.save writes it
        parts.writestr("archive/data.pkl", pickle.dumps(canary))
        parts.writestr("archive/version", "3\n")
    return {
        "objects.npy": array.getvalue(),
        "objects.npz": archive.getvalue(),
        "checkpoint.pt": checkpoint.getvalue(),
        "protocol 0.pkl": pickle.dumps(canary, protocol=0),
        "protocol 5.pkl": pickle.dumps(canary, protocol=5),
        "behind an image.jpg": GOOD + pickle.dumps(canary),
        "npy that is a pickle.npy": pickle.dumps(canary),
    }


def test_no_code_runs_from_data(tmp_path: Path) -> None:
    """Files that bear pickles are refused wherever data are taken, and the canary inside them never sings."""
    files = pickle_bearing(Canary(tmp_path / "sang"))
    pickle.loads(files["protocol 5.pkl"])  # it can
    (tmp_path / "sang").unlink()
    for name, content in files.items():
        listed = write_list(tmp_path, {name: content})
        for functions in ((), (np.asarray,)):
            pipeline = sp.Pipeline(listed)
            pipeline = pipeline.map(*functions, field="image") if functions else pipeline
            with pipeline.map(sp.CenterCrop(8)).batch(1).loader(executor="inline", **SMALL) as loader:
                if name.endswith(".jpg"):
                    next(iter(loader))
                    continue
                with pytest.raises(sp.DecodeError, match="not an image"):
                    next(iter(loader))
        with pytest.raises(sp.PlanError, match=re.escape(name)):
            sp.Arrays(a=tmp_path / name).open()
        with pytest.raises(sp.PlanError, match=re.escape(name)):
            sp.build_index(listed, columns={"a": tmp_path / name})
        with pytest.raises(sp.PlanError, match="isn't an index"):
            sp.FileList(listed.path, index=tmp_path / name).open()
    assert not (tmp_path / "sang").exists()


@pytest.mark.parametrize(
    "line",
    [
        "pipe:touch sang",
        "pipe:touch sang |",
        "| touch sang",
        "`touch sang`.jpg",
        "$(touch sang).jpg",
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "s3::http://bucket/key",
        "zip://inside.jpg::http://host/archive.zip",
    ],
)
def test_url_list(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no addresses: whatever a line looks like is the name of a file, and that there is none is the error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text(f"{line}\n")
    source = sp.FileList(tmp_path / "list.txt", labels=False)
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(1)
    with pipeline.loader(**SMALL) as loader, pytest.raises(sp.ReadError, match="No such file") as caught:
        next(iter(loader))
    assert caught.value.path == f"{tmp_path}/{line}"
    assert not (tmp_path / "sang").exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.jpg", "a/../../outside.jpg", "a/..", ".."])
def test_no_path_of_a_list_leads_out_of_its_root(tmp_path: Path, path: str) -> None:
    """With ``root=`` a line that is absolute or goes up is an error with its number; without, it may lead anywhere."""
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "list.txt").write_text(f"a/..b.jpg\nc..\n...\n{path}\n")
    with pytest.raises(sp.PlanError, match=r"list\.txt:4: the path is absolute or has a '\.\.'"):
        sp.FileList(tmp_path / "list.txt", root=tmp_path / "root", labels=False).open()
    assert sp.FileList(tmp_path / "list.txt", labels=False).open().num_records == 4
    (tmp_path / "list.txt").write_text("a/..b.jpg\nc..\n...\n")
    assert sp.FileList(tmp_path / "list.txt", root=tmp_path / "root", labels=False).open().num_records == 3


@pytest.mark.parametrize("path", [b"/etc/passwd.jpg", b"c/../../out.jpg", b"../outside0.jpg"])
def test_no_path_of_a_folders_index_leads_out_of_it(tmp_path: Path, path: bytes) -> None:
    """An index beside a folder is data, and may be anybody's: what it names lies in that folder, or it is an error."""
    (tmp_path / "photos/class").mkdir(parents=True)
    (tmp_path / "photos/class/photo000.jpg").write_bytes(GOOD)
    for folder in ("photos", "photos/class"):
        os.utime(tmp_path / folder, ns=(LONG_AGO_NS, LONG_AGO_NS))
    source = sp.ImageFolder(tmp_path / "photos")
    built = sp.build_index(source)
    begin = len(b"class/photo000.jpg") - len(path)

    def change_text(text: bytearray) -> None:
        text[begin:-1] = path
        if begin:
            text[begin - 1] = 0

    def change_place(places: bytearray) -> None:
        places[:] = (begin | len(path) << 48).to_bytes(8, "little")

    change_section(built.path, "text", change_text)
    change_section(built.path, "places", change_place)
    with sp.Pipeline(source).map(sp.CenterCrop(8)).batch(1).loader(**SMALL) as loader:
        assert f"{built.path}" in loader.plan.explain()
        with pytest.raises(sp.StandpipeError, match="the path of record 0 leads out of its folder"):
            next(iter(loader))


def change_facts(index: Path, old: bytes, new: bytes) -> None:
    """An index whose facts say something else, as whoever can write it can make it: its checksum is right again."""
    from standpipe.source.index.file import PREAMBLE, preamble  # only a program writes such a file

    content = index.read_bytes()
    assert content.count(old) == 1
    assert len(old) == len(new)
    content = content.replace(old, new)
    facts_at = PREAMBLE.unpack(content[: PREAMBLE.size])[4]
    index.write_bytes(preamble(len(content), facts_at, content[facts_at:]) + content[PREAMBLE.size :])


def test_an_index_cant_say_that_a_list_stays_in_its_root(tmp_path: Path) -> None:
    """What an index says of its list is believed only as far as the list's own lines show it."""
    write_list(tmp_path, [GOOD])
    (tmp_path / "list.txt").write_text("../outside.jpg 0\n")
    os.utime(tmp_path / "list.txt", ns=(LONG_AGO_NS, LONG_AGO_NS))
    built = sp.build_index(sp.FileList(tmp_path / "list.txt"))
    change_facts(built.path, b'"outside": 1', b'"outside": 0')
    opened = sp.FileList(tmp_path / "list.txt", root=tmp_path).open()
    with pytest.raises(sp.StandpipeError, match="the path of record 0 leads out of its folder"):
        opened.name(0)


def test_symlinks_are_followed(tmp_path: Path) -> None:
    """Links lead where they lead, also out of a root: whoever may make one there decides what is read."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "image.jpg").write_bytes(GOOD)
    (tmp_path / "root/class").mkdir(parents=True)
    (tmp_path / "root/class/link.jpg").symlink_to(outside / "image.jpg")
    (tmp_path / "root/linked").symlink_to(outside)
    (tmp_path / "list.txt").write_text("class/link.jpg\nlinked/image.jpg\n")
    expected = np.asarray(decoded(GOOD))
    for source in (
        sp.ImageFolder(tmp_path / "root"),
        sp.FileList(tmp_path / "list.txt", root=tmp_path / "root"),
    ):
        with sp.Pipeline(source).map(sp.CenterCrop((40, 56))).batch(2).loader(**SMALL) as loader:
            assert all(np.array_equal(image, expected) for image in next(iter(loader))["image"])


def special(path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as unix:
                unix.bind(str(path))
        case "device":
            path.symlink_to("/dev/zero")
        case "terminal":
            path.symlink_to("/dev/tty")
        case "folder":
            path.mkdir()


def in_time(use: Callable[[], Any]) -> BaseException | None:
    """What it raises; in a thread, since waiting for ever is what it must not do."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            use()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it waits"
    return raised[0] if raised else None


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "terminal", "folder"])
def test_special_files_are_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    """A pipe, socket, device or folder in a file's place is an error at once, wherever a path is taken."""
    source = write_list(tmp_path, {"good.jpg": GOOD, "bad.jpg": None})
    special(tmp_path / "bad.jpg", kind)
    bad = tmp_path / "bad.jpg"

    def epoch(**settings: Any) -> None:
        with sp.Pipeline(source).map(sp.CenterCrop(8)).batch(2).loader(**SMALL, **settings) as loader:
            list(loader)

    assert isinstance(in_time(epoch), sp.ReadError)
    assert isinstance(in_time(lambda: epoch(executor="inline")), sp.ReadError)
    assert isinstance(in_time(lambda: sp.FileList(bad).open()), sp.PlanError)
    assert isinstance(in_time(lambda: sp.Arrays(a=bad).open()), sp.PlanError)
    assert isinstance(in_time(lambda: sp.build_index(source, columns={"a": bad})), sp.PlanError)
    excluding = sp.Pipeline(source).exclude(bad).map(sp.CenterCrop(8)).batch(1)
    assert isinstance(in_time(excluding.plan), sp.PlanError)
    if kind != "device":  # /dev/zero can be written
        assert isinstance(
            in_time(lambda: epoch(error_log=bad)), sp.PlanError if kind != "terminal" else Exception
        )
    if kind != "folder":
        os.replace(bad, tmp_path / "list.txt.standpipe-index")  # noqa: PTH105
        assert in_time(lambda: sp.FileList(tmp_path / "list.txt").open()) is None  # it isn't used


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/standpipe"


def everybody_writes(folder: Path) -> None:
    folder.chmod(0o777)


def somebody_elses(folder: Path) -> None:
    os.chown(folder, 12345, 12345)


UNTRUSTED = [
    everybody_writes,
    pytest.param(somebody_elses, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")),
]


def labels(source: sp.FileList) -> list[int]:
    opened = source.open()
    return opened.locate(np.arange(opened.num_records)).plain["label"].tolist()


@pytest.mark.parametrize("untrusted", UNTRUSTED)
def test_index_files_where_others_can_write_are_not_believed(
    cache: Path,
    tmp_path: Path,
    untrusted: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An index in a cache folder that isn't the user's alone is left, none is made there, and a warning says why."""
    monkeypatch.setattr(
        "standpipe.source.index.writer.SMALL_BYTES", 0
    )  # else a list must have a million lines
    (tmp_path / "list.txt").write_text("a.jpg 1\nb.jpg 2\n")
    os.utime(tmp_path / "list.txt", ns=(LONG_AGO_NS, LONG_AGO_NS))
    source = sp.FileList(tmp_path / "list.txt")
    assert labels(source) == [1, 2]
    (index,) = (cache / "index").iterdir()
    assert (cache / "index").stat().st_mode & 0o777 == 0o700
    change_section(index, "labels", lambda held: held.__setitem__(0, 9))
    forged = index.read_bytes()
    assert labels(source) == [9, 2], "believed, where only the user can have written it"
    untrusted(cache / "index")
    assert labels(source) == [1, 2]
    assert "others can write to its folder, so its files aren't trusted" in caplog.text
    assert list((cache / "index").iterdir()) == [index]
    assert index.read_bytes() == forged


def is_odd(sample: dict[str, Any]) -> bool:
    return bool(sample["x"][0] % 2)


@pytest.mark.parametrize("untrusted", UNTRUSTED)
def test_answers_where_others_can_write_are_not_believed(
    cache: Path, untrusted: Callable[[Path], None]
) -> None:
    """The same for what is kept of a filter's answers: they are asked for anew, elsewhere."""
    kept = sp.Pipeline(numbers(64)).filter(is_odd)
    kept.run_filters(**SMALL)
    assert kept.batch(2).plan(**SMALL).order.num_positions == 32
    untrusted(cache / "filters")
    with pytest.raises(sp.PlanError, match="the function wasn't run"):
        kept.batch(2).plan(**SMALL)
    with pytest.raises(sp.PlanError, match=r"its results can't be stored: .*others can write to its folder"):
        kept.batch(2).loader(**SMALL)


def test_progressive_scan_bombs_are_bounded(tmp_path: Path) -> None:
    """Scans of a few bytes over millions of blocks: refused by their number, and by what they take in time."""
    bomb = scan_bomb(11_400, 100)
    assert len(bomb) < 300_000
    source = write_list(
        tmp_path, {"bomb.jpg": bomb, "many.jpg": scan_bomb(800, 100), "more.jpg": scan_bomb(8, 101)}
    )
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(1)
    begin_s = time.thread_time()
    with pipeline.loader(memory="1GiB", executor="inline", large_image_memory="256MiB") as loader:
        with pytest.raises(sp.DecodeError, match="unsupported JPEG: 17 scans of so large a picture"):
            next(iter(loader))
        assert (
            time.thread_time() - begin_s < 15
        )  # some 2 s on the machine it was made on, where 100 scans take 15
        loader.skip_steps(1)
        next(loader.steps(1))
        with pytest.raises(sp.DecodeError, match="more scans than max_scans=100"):
            next(loader.steps(1))
    few = pipeline.decode(limits=sp.DecodeLimits(max_scans=99))
    with few.loader(**SMALL) as loader:
        loader.skip_steps(1)
        with pytest.raises(sp.DecodeError, match="more scans than max_scans=99"):
            next(iter(loader))


def test_an_error_shows_no_more_than_eight_bytes_of_a_file(tmp_path: Path) -> None:
    """Where a path leads to what is no image, the error says how it begins, and nothing else of it."""
    secret = "root:x:0:0:a very secret line:/root:/bin/sh"
    source = write_list(tmp_path, {"secret.jpg": secret.encode()})
    pipeline = sp.Pipeline(source).map(sp.CenterCrop(8)).batch(1)
    with pipeline.loader(**SMALL) as loader, pytest.raises(sp.DecodeError) as caught:
        next(iter(loader))
    assert "root:x:0" in caught.value.reason
    assert "secret line" not in str(caught.value)


def test_conditions_are_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter's condition is text that is compared, not Python that is evaluated."""
    monkeypatch.chdir(tmp_path)
    for text in (
        "__import__('os').mkdir('sang')",
        "(lambda: open('sang', 'w'))() == 1",
        "label.__class__ == 1",
    ):
        with pytest.raises(sp.PlanError, match="isn't allowed in a filter"):
            sp.Pipeline(sp.Arrays(label=np.arange(4))).filter(text).batch(1).plan()
    assert not (tmp_path / "sang").exists()
