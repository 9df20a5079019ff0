"""Packed shards: plain tar files with everything in them, the same bytes after any death, and the way back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from forked import run
from photos import encoded, picture
from standpipe import _native
from standpipe.jobs.packing.layout import OpenShard, end_early, in_parts, packed_facts
from standpipe.source.index.file import read_index

PHOTOS = 24


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of two classes."""
    for number in range(PHOTOS):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.v2 copy.JPG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(number), quality=90))
    return tmp_path / "photos"


def contents(folder: Path) -> dict[str, str]:
    """SHA-256 of each file below a folder that isn't an index, by its path."""
    return {
        os.fspath(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".standpipe-index"
    }


def members(folder: Path) -> list[tuple[str, bytes]]:
    """Name and content of all members of all shards, by Python's tarfile."""
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as shard:
            for member in shard:
                file = shard.extractfile(member)
                assert file is not None
                found.append((member.name, file.read()))
    return found


def test_shards_are_plain_tar_files(photos: Path, tmp_path: Path) -> None:
    report = sp.pack_shards(sp.ImageFolder(photos), tmp_path / "out", shard_size="32KiB", order="source")
    assert (report.records, report.written) == (PHOTOS, report.shards)
    assert report.shards > 2
    shards = sorted((tmp_path / "out").glob("*.tar"))
    assert report.size_bytes == sum(path.stat().st_size for path in shards)
    assert max(path.stat().st_size for path in shards) <= 42 << 10  # with what ends a tar file
    paths = [f"{name}/{path.name}" for name in ("cat", "dog") for path in sorted((photos / name).iterdir())]
    expected: list[tuple[str, bytes]] = []
    for number, path in enumerate(paths):
        name = path.partition("/")[0]
        text = json.dumps({"path": path, "class": name}).encode()
        expected += [(f"{number:09d}.json", text), (f"{number:09d}.cls", b"0" if name == "cat" else b"1")]
        expected.append((f"{number:09d}.jpg", (photos / path).read_bytes()))
    assert members(tmp_path / "out") == expected


def test_shuffled_shards_have_all_records_in_another_order(photos: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        sp.pack_shards(sp.ImageFolder(photos), tmp_path / f"{seed}", seed=seed, num_workers=1)
    found = [
        [json.loads(text)["path"] for name, text in members(tmp_path / each) if name.endswith(".json")]
        for each in "01"
    ]
    assert found[0] != found[1]
    assert sorted(found[0]) == sorted(found[1]) == sorted(contents(photos))
    labels = [text for name, text in members(tmp_path / "0") if name.endswith(".cls")]
    assert labels != sorted(labels)


def test_the_epoch_is_that_of_the_files(photos: Path, tmp_path: Path) -> None:
    sp.pack_shards(sp.ImageFolder(photos), tmp_path / "out", shard_size="32KiB", order="source")
    shards = sp.TarShards(tmp_path / "out" / "shard-{000000..000003}.tar")
    digests = {
        sp.digest_epoch(
            sp.Pipeline(source).shuffle(seed=1).map(sp.RandomResizedCrop(16)).batch(5), num_workers=workers
        ).sha256
        for source in (sp.ImageFolder(photos), shards)
        for workers in (1, 2)
    }
    assert len(digests) == 1
    plan = sp.Pipeline(sp.TarShards(tmp_path / "out" / "*.tar")).map(sp.CenterCrop(16)).batch(5).plan()
    assert f"{tmp_path}/out/shard-000000.tar+" in plan.source.index_note  # pack built it


def test_labels_and_columns_of_lists_are_kept(photos: Path, tmp_path: Path) -> None:
    names = sorted(contents(photos))[:3]
    (tmp_path / "list.txt").write_text(
        "".join(f"{name}\t{number + 7}\n" for number, name in enumerate(names))
    )
    source = sp.FileList(tmp_path / "list.txt", root=photos)
    sp.build_index(source, columns={"width": np.array([3, 1, 2]), "box": np.ones((3, 2), np.float32)})
    sp.pack_shards(source, tmp_path / "out", order="source")
    texts = dict(members(tmp_path / "out"))
    assert [texts[f"{number:09d}.cls"] for number in range(3)] == [b"7", b"8", b"9"]
    assert json.loads(texts["000000001.json"]) == {"path": names[1], "width": 1, "box": [1.0, 1.0]}
    (tmp_path / "bare.txt").write_text("\n".join(names))
    sp.pack_shards(
        sp.FileList(tmp_path / "bare.txt", root=photos, labels=False), tmp_path / "bare", order="source"
    )
    assert [name for name, _ in members(tmp_path / "bare")][:3] == [
        "000000000.json",
        "000000000.jpg",
        "000000001.json",
    ]


ODD = (
    b"\xff\xfe.jpg",
    b"two\nlines.png",
    b" spaces at both ends .jpg ".strip() + b"",
    b"n" * 251 + b".jpg",
    b".hidden.jpg",
    b"a.b.c.JPEG",
    "ä ü 猫.webp".encode(),
    b'quote"\\back.jpg',
)


def test_files_come_back_whatever_their_names(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for folder in (b"class one", b"\xe9t\xe9", b"deep/er"):
        (tmp_path / "files" / os.fsdecode(folder)).mkdir(parents=True)
        for name in ODD:
            size = int(draw.integers(0, 3000))
            (tmp_path / "files" / os.fsdecode(folder + b"/" + name)).write_bytes(draw.bytes(size))
    (tmp_path / "files" / "deep" / "large.jpg").write_bytes(draw.bytes((5 << 20) + 7))
    sp.pack_shards(sp.ImageFolder(tmp_path / "files"), tmp_path / "out", shard_size="1MiB")
    report = sp.unpack_shards(tmp_path / "out", tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(tmp_path / "files")
    assert report.files == 3 * len(ODD) + 1
    assert sp.verify_shards(tmp_path / "out").ok


PACK = "sp.pack_shards(sp.ImageFolder({photos!r}), {out!r}, shard_size='32KiB', num_workers=2)"
KILLS = ["pack.write=kill@1", "pack.write=kill@4", "pack.publish.before=kill@2", "pack.publish.after=kill@2"]


def index_of(folder: Path) -> dict[str, Any]:
    """What an index says, without what differs from file to file: times, and the keys of checksums."""
    (path,) = folder.glob("*.standpipe-index")
    facts = asdict(read_index(os.fsencode(path)).facts)
    del facts["began_ns"], facts["sections"]["shards"]["digest"]  # the shards' sizes and modification times
    for section in facts["sections"].values():
        del section["key"]
    return facts


@pytest.mark.parametrize("kill", KILLS)
def test_it_goes_on_after_a_kill_with_the_same_bytes(photos: Path, tmp_path: Path, kill: str) -> None:
    whole = sp.pack_shards(sp.ImageFolder(photos), tmp_path / "whole", shard_size="32KiB")
    out = tmp_path / "out"
    died = run(PACK.format(photos=str(photos), out=str(out)), environment={"STANDPIPE_FAULTS": kill})
    assert died.returncode == -signal.SIGKILL, died.stderr
    complete = len(list(out.glob("*.tar")))
    with pytest.raises(sp.PlanError, match="isn't complete yet"):
        sp.verify_shards(out)
    report = sp.pack_shards(sp.ImageFolder(photos), out, shard_size="32KiB")
    assert report.written == whole.shards - complete
    assert contents(out) == contents(tmp_path / "whole")
    assert index_of(out) == index_of(tmp_path / "whole")
    assert sp.pack_shards(sp.ImageFolder(photos), out, shard_size="32KiB").written == 0


def test_a_kill_before_the_first_shard_leaves_nothing_that_stops_the_next_call(
    photos: Path, tmp_path: Path
) -> None:
    """A draft of pack.json, as a packer leaves it that is killed before the draft gets its name."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "pack.json.7.part").write_text('{"source"')
    assert sp.pack_shards(sp.ImageFolder(photos), out).records == PHOTOS
    assert not list(out.glob("*.part"))
    (out / "pack.json.8.part").touch()
    sp.pack_shards(sp.ImageFolder(photos), out)
    assert not list(out.glob("*.part"))


def test_a_shard_without_its_checksums_is_packed_again(photos: Path, packed: Path) -> None:
    sums = packed / "shard-000001.crc32c"
    whole = contents(packed)
    for damage, said in ((sums.unlink, "is missing"), (lambda: os.truncate(sums, 20), "is damaged")):
        damage()
        with pytest.raises(
            sp.StandpipeError, match=rf"{sums.name} {said}; delete .*shard-000001.tar, and run"
        ):
            sp.pack_shards(sp.ImageFolder(photos), packed, shard_size="32KiB")
        (packed / "shard-000001.tar").unlink()
        assert sp.pack_shards(sp.ImageFolder(photos), packed, shard_size="32KiB").written == 1
        assert contents(packed) == whole


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"shards": "x"}, "is damaged"),
        ({"shards": 10**30}, "is damaged"),
        (
            {"records": 10**17, "shards": 10**17},
            "says that there are 100,000,000,000,000,000 shards, and the folder lacks",
        ),
        ({"records": None}, "is damaged"),
        ({"more": 1}, "isn't a file of standpipe pack$"),
        (None, "is damaged"),
    ],
    ids=str,
)
def test_facts_that_cant_be_used(packed: Path, changed: dict[str, object] | None, said: str) -> None:
    facts = json.loads((packed / "pack.json").read_text())
    (packed / "pack.json").write_text("[" * 100_000 if changed is None else json.dumps(facts | changed))
    with pytest.raises(sp.StandpipeError, match=rf"pack\.json {said}"):
        sp.verify_shards(packed)


@pytest.mark.parametrize("name", ["pack.json", "shard-000000.crc32c", "shard-000000.tar"])
def test_a_pipe_in_place_of_a_file(packed: Path, tmp_path: Path, name: str) -> None:
    """Nobody writes into it, so a call that opened it as a file would wait for ever."""
    (packed / name).unlink()
    os.mkfifo(packed / name)
    said = f"can't read {packed / name}: it is a pipe"
    with pytest.raises(sp.StandpipeError, match=said):
        sp.unpack_shards(packed, tmp_path / "restored")
    if name == "pack.json":
        with pytest.raises(sp.StandpipeError, match=said):
            sp.verify_shards(packed)
    else:
        assert said in sp.verify_shards(packed).differences[0]


def test_a_full_disk_is_an_error_and_no_end(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = PACK.format(photos=str(photos), out=str(out))
    full = run(program, environment={"STANDPIPE_FAULTS": "pack.write=enospc@3"})
    assert "No space left on device; afterwards run the same command again" in full.stderr
    assert sp.pack_shards(sp.ImageFolder(photos), out, shard_size="32KiB").records == PHOTOS
    assert sp.verify_shards(out).ok


@pytest.fixture
def packed(photos: Path, tmp_path: Path) -> Path:
    sp.pack_shards(sp.ImageFolder(photos), tmp_path / "out", shard_size="32KiB")
    return tmp_path / "out"


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_damage_is_found(packed: Path) -> None:
    found = sp.verify_shards(packed, num_workers=2)
    assert (found.ok, found.members) == (True, 3 * PHOTOS)
    overwrite(packed / "shard-000000.tar", 513, b"?")
    overwrite(packed / "shard-000000.tar", 1024 + 3, b"x")
    os.truncate(packed / "shard-000001.tar", 4096)
    (packed / "shard-000002.tar").unlink()
    (packed / "shard-000003.crc32c").write_text("# standpipe pack 1: records 3 to 4\n# end\n")
    found = sp.verify_shards(packed)
    assert not found.ok
    assert found.differences[:2] == (
        "shard-000000.tar: the content of 000000000.json has changed",
        "shard-000000.tar: the header of 000000000.cls has changed",
    )
    assert "shard-000001.tar has 4,096 bytes, and should have" in found.differences[2]
    assert found.differences[3] == f"{packed}/shard-000002.tar is missing"
    assert found.differences[4] == f"{packed}/shard-000003.crc32c is damaged"


def test_damage_of_the_end_is_found(packed: Path) -> None:
    shard = packed / "shard-000000.tar"
    with tarfile.open(shard) as members:
        last = members.getmembers()[-1]
    end = last.offset_data + -(-last.size // 512) * 512
    for place in (end, shard.stat().st_size - 1):
        overwrite(shard, place, b"x")
        assert sp.verify_shards(packed).differences == (
            f"{shard.name}: the zeros after its last member have changed",
        )
        overwrite(shard, place, b"\0")
    assert sp.verify_shards(packed).ok


def test_lists_of_checksums_that_dont_follow_one_another_are_damaged(packed: Path, tmp_path: Path) -> None:
    sums = packed / "shard-000001.crc32c"
    text = sums.read_text()
    head = text.split("\n", 1)[0]
    _, start, stop = map(int, re.findall(r"\d+", head))
    for wrong in (f"{start + 1} to {stop + 1}", f"{start} to {start + 1}"):
        sums.write_text(text.replace(head, f"# standpipe pack 1: records {wrong}"))
        assert any("records don't follow" in each for each in sp.verify_shards(packed).differences)
        with pytest.raises(sp.StandpipeError, match="records don't follow"):
            sp.unpack_shards(packed, tmp_path / wrong)


def test_names_of_members_are_those_of_the_list(packed: Path) -> None:
    sums = packed / "shard-000000.crc32c"
    sums.write_text(sums.read_text().replace(" 000000000.cls", " 000000009.cls"))
    assert sp.verify_shards(packed).differences == (
        "shard-000000.tar: the header of 000000009.cls has changed",
    )


def test_damaged_shards_arent_unpacked(packed: Path, tmp_path: Path) -> None:
    overwrite(packed / "shard-000001.tar", 3000, b"damage")
    with pytest.raises(sp.StandpipeError, match=r"shard-000001.tar is damaged: \d+.jpg has changed"):
        sp.unpack_shards(packed, tmp_path / "restored")


def test_work_on_a_shard_ends_with_its_caller(packed: Path) -> None:
    """Private functions, as here work on the second shard never ends by itself; Ctrl-C closes the generator."""
    began, ended = threading.Event(), threading.Event()

    def work(shard: OpenShard, _: slice) -> None:
        while shard.path.name != "shard-000000.tar":
            began.set()
            if not os.pread(shard.file, 1, 0):
                ended.set()
                return

    with closing(in_parts(packed, packed_facts(packed), 2, work)) as parts:
        next(parts)
        began.wait()
        assert not ended.is_set()
    assert ended.is_set()


def test_writing_to_a_shard_ends_early(tmp_path: Path) -> None:
    began = threading.Event()
    with (tmp_path / "shard").open("wb") as file, ThreadPoolExecutor(1) as pool:

        def write_for_ever() -> None:
            while True:
                os.pwrite(file.fileno(), b"x", 0)
                began.set()

        running, waiting = pool.submit(write_for_ever), pool.submit(write_for_ever)
        began.wait()
        end_early(file.fileno(), [running, waiting])
        assert isinstance(running.exception(), OSError)
        assert waiting.cancelled()


def test_an_interrupted_unpack_starts_again(packed: Path, photos: Path, tmp_path: Path) -> None:
    restored = tmp_path / "restored"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sp.unpack_shards(packed, restored, on_progress=interrupt)
    assert any(restored.glob("*/*.JPG"))
    with pytest.raises(sp.PlanError, match="has files in it"):
        sp.unpack_shards(pack_again(photos, tmp_path), restored)
    sp.unpack_shards(packed, restored)
    assert sp.ImageFolder(restored).open().digest == sp.ImageFolder(photos).open().digest
    assert not list(restored.glob(".*"))
    with pytest.raises(sp.PlanError, match="has files in it"):
        sp.unpack_shards(packed, restored)


def pack_again(photos: Path, tmp_path: Path) -> Path:
    sp.pack_shards(sp.ImageFolder(photos), tmp_path / "others", seed=5)
    return tmp_path / "others"


def give_path(packed: Path, path: str) -> None:
    """Give the first record of a pack another path."""
    shard, sums = packed / "shard-000000.tar", packed / "shard-000000.crc32c"
    text = json.dumps({"path": path}).encode().ljust(512, b" ")
    lines = sums.read_text().splitlines(keepends=True)
    size = int(lines[1].split()[2])
    overwrite(shard, 512, text[:size])
    crc = _native.crc32c(np.frombuffer(text[:size], np.uint8))
    lines[1] = f"{crc:08x} {lines[1].split(' ', 1)[1]}"
    sums.write_text("".join(lines))


def test_only_a_whole_mark_is_believed(packed: Path, photos: Path, tmp_path: Path) -> None:
    """A folder is one to go on with if it has the shards' facts, not because a file has the mark's name."""
    mark = ".standpipe-unpacking"
    before = contents(photos)
    for made in (Path.touch, os.mkfifo):
        made(photos / mark)
        with pytest.raises(sp.StandpipeError, match=r"has files in it|it is a pipe"):
            sp.unpack_shards(packed, photos)
        (photos / mark).unlink()
        assert contents(photos) == before


def test_no_link_in_an_interrupted_unpack_is_followed(packed: Path, photos: Path, tmp_path: Path) -> None:
    restored, outside = tmp_path / "restored", tmp_path / "outside"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sp.unpack_shards(packed, restored, on_progress=interrupt)
    (restored / "cat").rename(outside)
    before = contents(outside)
    (restored / "cat").symlink_to(outside)
    with pytest.raises(sp.StandpipeError, match=r"can't write .*/cat/.*: Not a directory"):
        sp.unpack_shards(packed, restored)
    (restored / "cat").unlink()
    (restored / "cat").mkdir()
    changed = next(outside.iterdir())
    (restored / "cat" / changed.name).symlink_to(changed)
    with pytest.raises(sp.StandpipeError, match=r"can't write .*/cat/.*: Too many levels of symbolic links"):
        sp.unpack_shards(packed, restored)
    assert contents(outside) == before


def test_two_records_of_one_path(packed: Path, photos: Path, tmp_path: Path) -> None:
    """The same file twice is restored once; two files of one path are an error, in a folder to go on with too."""
    twice = tmp_path / "twice.txt"
    twice.write_text("cat/0.v2 copy.JPG\ncat/0.v2 copy.JPG\n")
    sp.pack_shards(sp.FileList(twice, root=photos, labels=False), tmp_path / "same")
    assert sp.unpack_shards(tmp_path / "same", tmp_path / "once").files == 2
    assert list(contents(tmp_path / "once")) == ["cat/0.v2 copy.JPG"]

    paths = [json.loads(content)["path"] for name, content in members(packed) if name.endswith(".json")]
    give_path(packed, paths[-1])
    for _ in range(2):
        with pytest.raises(sp.StandpipeError, match=f"{paths[-1]} exists with other bytes: another record"):
            sp.unpack_shards(packed, tmp_path / "restored")


@pytest.mark.parametrize(
    "path",
    [
        ".standpipe-unpacking",
        ".standpipe-unpacking-1",
        "../outside.jpg",
        "/outside.jpg",
        "cat/../../outside.jpg",
        "a\0b",
    ],
)
def test_no_file_is_restored_outside(packed: Path, tmp_path: Path, path: str) -> None:
    """Shards may come from others: a record's path there is no reason to write elsewhere."""
    give_path(packed, path)
    with pytest.raises(sp.StandpipeError, match="leads out of its folder"):
        sp.unpack_shards(packed, tmp_path / "restored")
    assert not (tmp_path / "outside.jpg").exists()


def test_what_cant_be_packed(photos: Path, packed: Path, tmp_path: Path) -> None:
    source = sp.ImageFolder(photos)
    for options in ({"order": "source"}, {"seed": 1}, {"shard_size": "64KiB"}):
        with pytest.raises(sp.PlanError, match="has shards of another source"):
            sp.pack_shards(source, packed, **{"shard_size": "32KiB", **options})
    with pytest.raises(sp.PlanError, match="has other files in it"):
        sp.pack_shards(source, photos)
    for inside in (photos / "shards", photos / "cat" / ".." / "shards"):
        with pytest.raises(sp.PlanError, match=r"is inside of .*, the folder to pack; use a folder outside"):
            sp.pack_shards(source, inside)
    assert not (photos / "shards").exists()
    with pytest.raises(sp.PlanError, match="only records of one image in a file"):
        sp.pack_shards(sp.Arrays(x=np.arange(3)), tmp_path / "none")
    with pytest.raises(sp.PlanError, match="num_workers must be"):
        sp.pack_shards(source, tmp_path / "none", num_workers=0)
    with pytest.raises(sp.PlanError, match="order must be"):
        sp.pack_shards(source, tmp_path / "none", order="random")  # type: ignore[arg-type]
    (tmp_path / "list.txt").write_text("../outside.jpg 1\n")
    with pytest.raises(sp.PlanError, match="root="):
        sp.pack_shards(sp.FileList(tmp_path / "list.txt"), tmp_path / "list")
    for folder in (photos, tmp_path / "nothing"):
        with pytest.raises(sp.PlanError, match=r"no pack\.json"):
            sp.unpack_shards(folder, tmp_path / "restored")
    with pytest.raises(sp.PlanError, match=rf"is a file; name the folder of the shards, {packed}$"):
        sp.verify_shards(packed / "shard-000000.tar")
    with pytest.raises(sp.PlanError, match="has files in it"):
        sp.unpack_shards(packed, photos)


def test_files_that_cant_be_read(photos: Path, tmp_path: Path) -> None:
    source, out = sp.ImageFolder(photos), tmp_path / "out"
    gone = next((photos / "cat").iterdir())
    content = gone.read_bytes()
    gone.unlink()
    gone.symlink_to("nowhere")
    with pytest.raises(sp.ReadError, match="can't be examined: No such file") as error:
        sp.pack_shards(source, out)
    assert error.value.path == str(gone)
    gone.unlink()
    gone.write_bytes(content)
    assert sp.pack_shards(source, out).records == PHOTOS


def test_two_packers_dont_share_a_folder(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked: list[str] = []

    def ask(what: str, done: int, total: int | None) -> None:
        with contextlib.suppress(sp.PlanError):
            try:
                sp.pack_shards(sp.ImageFolder(photos), out)
            except sp.StandpipeError as error:
                asked.append(str(error))

    sp.pack_shards(sp.ImageFolder(photos), out, on_progress=ask)
    assert asked[0] == f"another process packs into {out}; wait for its end"


WEBDATASET = """
import json, webdataset
shards = {shards!r}
for sample in webdataset.WebDataset(shards, shardshuffle=False):
    print(json.loads(sample["json"])["path"], sha256(sample["jpg"]).hexdigest())
decoded = webdataset.WebDataset(shards, shardshuffle=False).decode("rgb8")
for image, label, facts in decoded.to_tuple("jpg", "cls", "json"):
    assert image.shape == (40, 56, 3)
    assert ("cat", "dog")[label] == facts["class"] == facts["path"].partition("/")[0]
"""


def test_webdataset_reads_them(packed: Path, photos: Path) -> None:
    """In a process of its own, since it leaves files open."""
    program = f"from hashlib import sha256{WEBDATASET.format(shards=sorted(map(str, packed.glob('*.tar'))))}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    found = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert found == contents(photos)
