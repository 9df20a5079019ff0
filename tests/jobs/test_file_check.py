"""``check_files``: what it says of a file is what a loader says, and what is known once needn't be found out again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import standpipe as sp
from forked import output
from interrupts import hears_ctrl_c
from jpegs import kinds, marked, saved, with_precision, with_size
from painted import painted
from photos import deep_png, encoded, numbers, picture, write_list
from programs import BEGIN
from standpipe import _native
from standpipe.jobs.file_check.store import ResultStore
from standpipe.reports import FileCheckReport
from tars import shard

GOOD = encoded(picture(0), quality=90)
PROGRESSIVE = encoded(picture(1), quality=90, progressive=True)
LARGE_PROGRESSIVE = encoded(picture(2, 800, 800), progressive=True)
LONG_AGO_S = 1_600_000_000.123456
BAD: Mapping[str, list[bytes | None]] = {
    "unreadable": [None],
    "empty": [b""],
    "truncated": [
        GOOD[:30],
        GOOD[: len(GOOD) // 2],
        PROGRESSIVE[: len(PROGRESSIVE) * 9 // 10],
        encoded(picture(2), "PNG")[:900],
        encoded(picture(2), "BMP")[:900],
        encoded(picture(2), "TIFF")[:-1],
        b"P6 4",
    ],
    "damaged": [
        with_size(GOOD, 40, 0),
        b"\xff\xd8\xff\xd9",
        encoded(picture(2), "PNG")[:60] + bytes(900),
        encoded(picture(2), "WEBP")[:-1],
        encoded(picture(2), "GIF")[:20],
    ],
    "not-an-image": [b"\xff", b"<html>404 Not Found</html>", bytes(999), b"RIFF\x24\0\0\0WAVEfmt "],
    "unsupported": [
        marked(with_precision(GOOD, 12), 0xC1),
        marked(GOOD, 0xC5),
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        deep_png(np.zeros((9, 9, 1), np.uint16)),
    ],
    "oversized": [with_size(GOOD, 65500, 65500), saved(np.zeros((1, 65500, 3), np.uint8), "PNG")],
}
LIMITS = sp.DecodeLimits(max_pixels=65_000, max_scans=20)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of each test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "standpipe/checks"


def settled(source: sp.FileList) -> sp.FileList:
    """The list, with files so old that nobody can have changed them since without a trace."""
    for path in Path(os.fsdecode(os.fspath(source.path))).parent.iterdir():
        os.utime(path, (LONG_AGO_S, LONG_AGO_S), follow_symlinks=False)
    return source


def bad_list(folder: Path) -> tuple[sp.FileList, list[str]]:
    """Bad files of every kind, each behind a good one, and the kinds of all, "" for good ones."""
    contents = [(kind, content) for kind, some in BAD.items() for content in some]
    files: dict[str, bytes | None] = {}
    for number, (_, content) in enumerate(contents):
        files |= {f"{number:02d} good.jpg": GOOD, f"{number:02d} bad.jpg": content}
    return settled(write_list(folder, files)), [each for kind, _ in contents for each in ("", kind)]


def as_loaded(source: sp.FileList, decoded: Any = None, **settings: Any) -> dict[int, str]:
    """The reasons of the records that a loader refuses."""
    pipeline = sp.Pipeline(source).map(sp.Resize((8, 8)))
    pipeline = pipeline.decode(**(decoded or {})).batch(1)
    settings = {"memory": "1GiB", "num_workers": 1, "large_image_memory": "256MiB", **settings}
    reasons = {}
    with pipeline.loader(**settings) as loader:
        for number in range(source.open().num_records):
            loader.load_state_dict({**loader.state_dict(), "epoch": 0, "consumed": number})
            try:
                next(iter(loader))
            except sp.SampleError as error:
                reasons[error.index] = error.reason
    return reasons


def as_found(found: FileCheckReport) -> dict[int, str]:
    return {finding.index: finding.text for finding in found.findings() if finding.level == "bad"}


@pytest.mark.filterwarnings("ignore:(?s).*(Corrupt EXIF data|Truncated File Read):UserWarning")
def test_every_kind_of_bad_file_is_told_apart_and_is_what_a_loader_says(tmp_path: Path) -> None:
    source, expected = bad_list(tmp_path)
    found = sp.check_files(source, limits=LIMITS, duplicates=False)
    bad = {finding.index: finding.kind for finding in found.findings()}
    assert [bad.get(number, "") for number in range(len(expected))] == expected
    assert as_found(found) == as_loaded(source, {"limits": LIMITS})
    assert dict(found.counts) == {kind: len(contents) for kind, contents in BAD.items()}
    assert (found.records, found.looked, found.bad, found.ok) == (
        len(expected),
        len(expected),
        len(bad),
        False,
    )
    paths = {finding.path for finding in found.findings("empty")}
    assert paths == {str(tmp_path / "01 bad.jpg")}


def hurt(data: bytes, draw: random.Random) -> bytes:
    """The file with some of its bytes changed, left out or put in."""
    out = bytearray(data)
    at = draw.randrange(2, len(out))
    match draw.randrange(5):
        case 0:
            del out[at : at + draw.randrange(1, 60)]
        case 1:
            del out[at:]
        case 2:
            out[at:at] = draw.randbytes(9)
        case _:
            for _ in range(draw.randrange(1, 5)):
                out[draw.randrange(2, len(out))] = draw.randrange(256)
    return bytes(out)


@pytest.mark.parametrize("allow_truncated", [False, True])
def test_hurt_jpegs_are_judged_as_a_loader_does(tmp_path: Path, allow_truncated: bool) -> None:
    """It looks at every bit, at 1/8 of the size; a loader that decodes all of an image comes to the same."""
    draw = random.Random(7)
    files = [hurt(draw.choice(list(kinds(40, 53).values())), draw) for _ in range(200)]
    source = write_list(tmp_path, files)
    found = sp.check_files(source, allow_truncated=allow_truncated, duplicates=False)
    assert as_found(found) == as_loaded(source, {"allow_truncated": allow_truncated})
    flaws = Counter(finding.kind for finding in found.findings() if finding.level == "warning")
    pipeline = sp.Pipeline(source).decode(allow_truncated=allow_truncated)
    with (
        pipeline.map(sp.Resize((8, 8)))
        .batch(1, batch_sampler=True)
        .loader(memory="64MiB", num_workers=1) as loader
    ):
        for _ in loader.from_batches(
            [record] for record in range(len(files)) if record not in as_found(found)
        ):
            pass
    stats = loader.stats()
    assert (stats.damaged, stats.truncated) == (flaws["flawed"], flaws["cut"])
    assert flaws["flawed"] > 50
    assert (flaws["cut"] > 10) == allow_truncated


def test_every_kind_of_good_file_is_good(tmp_path: Path) -> None:
    files = {f"{number}.jpg": data for number, data in enumerate(kinds(40, 53).values())}
    files |= {f"a.{kind}": encoded(picture(3), kind) for kind in ("PNG", "GIF", "BMP", "TIFF", "WEBP")}
    found = sp.check_files(write_list(tmp_path, files))
    assert found.ok
    assert dict(found.counts) == {}


def test_memory_for_frames_has_the_same_cap_as_a_loaders(tmp_path: Path) -> None:
    png = encoded(picture(2, 500, 500), "PNG")
    source = write_list(tmp_path, [LARGE_PROGRESSIVE, png, GOOD, b"\xff\xd8\xff" + bytes(2 << 20)])
    found = sp.check_files(source, large_image_memory="1MiB")
    texts = as_found(found)
    assert texts[0].startswith("too large: needs ")
    assert texts[0].endswith("more than large_image_memory=1048576")
    assert texts[1].startswith("too large: needs ")
    assert {finding.kind for finding in found.findings()} >= {"oversized"}
    assert 2 not in texts
    found = sp.check_files(source, large_image_memory="16MiB", num_workers=8)
    assert list(as_found(found)) == [3]


def test_names_that_say_another_format_are_noted(tmp_path: Path) -> None:
    files = {"a.jpg": encoded(picture(1), "PNG"), "b.PNG": GOOD, "c.jpeg": GOOD, "d": GOOD, "e.txt": GOOD}
    found = sp.check_files(write_list(tmp_path, files), duplicates=False)
    assert found.ok
    notes = [(finding.index, finding.level, finding.text) for finding in found.findings()]
    assert notes == [
        (0, "note", "is a PNG, which its name doesn't say"),
        (1, "note", "is a JPEG, which its name doesn't say"),
    ]


def folder(root: Path, classes: Mapping[str, list[bytes]]) -> sp.ImageFolder:
    for name, contents in classes.items():
        (root / name).mkdir(parents=True)
        for number, content in enumerate(contents):
            (root / name / f"{number}.jpg").write_bytes(content)
    return sp.ImageFolder(root)


def test_copies_and_conflicts_of_labels(tmp_path: Path) -> None:
    one, two, three = (encoded(picture(seed)) for seed in (1, 2, 3))
    source = folder(tmp_path, {"cat": [one, two, one], "dog": [three, two, b"", three], "eel": [b"", two]})
    found = sp.check_files(source)
    seen = [
        (f.index, f.kind, f.like, f.text.partition(";")[0]) for f in found.findings() if f.level == "warning"
    ]
    assert seen == [
        (1, "label-conflict", 1, "labelled cat"),
        (2, "copy", 0, f"the same bytes as record 0, {tmp_path}/cat/0.jpg"),
        (4, "label-conflict", 1, "labelled dog"),
        (6, "copy", 3, f"the same bytes as record 3, {tmp_path}/dog/0.jpg"),
        (8, "label-conflict", 1, "labelled eel"),
    ]
    assert dict(found.counts) == {"empty": 2, "copy": 2, "label-conflict": 3}


def test_odd_labels_of_classes(tmp_path: Path) -> None:
    source = folder(tmp_path, {"cat": [GOOD, GOOD], "dog": [], "eel": [GOOD], "fox": []})
    found = sp.check_files(source)
    assert [label.facts() for label in found.labels] == [
        {"kind": "no-file", "label": 1, "name": "dog", "files": 0},
        {"kind": "one-file", "label": 2, "name": "eel", "files": 1},
        {"kind": "no-file", "label": 3, "name": "fox", "files": 0},
    ]


@pytest.mark.parametrize(
    ("labels", "odd"),
    [
        ([0, 1, 2], []),
        ([0, 3, 3, 4, 1], [("missing", 2)]),
        ([1, 2], [("missing", 0)]),
        ([0, -1, 1], [("negative", -1)]),
        ([5, 900, 17], []),  # numbers of something else
    ],
)
def test_odd_labels_that_are_numbers(tmp_path: Path, labels: list[int], odd: list[tuple[str, int]]) -> None:
    (tmp_path / "a.jpg").write_bytes(GOOD)
    (tmp_path / "list.txt").write_text("".join(f"a.jpg {label}\n" for label in labels))
    found = sp.check_files(sp.FileList(tmp_path / "list.txt"), duplicates=False)
    assert [(label.kind, label.label) for label in found.labels] == odd


def test_what_is_known_is_not_looked_at_again(tmp_path: Path) -> None:
    source = settled(write_list(tmp_path, [GOOD, b"", None, GOOD[:300], PROGRESSIVE]))
    first = sp.check_files(source)
    assert first.looked == 5
    again = sp.check_files(source)
    assert again.looked == 1  # who couldn't be read may be readable now
    assert (as_found(again), again.counts, again.size) == (as_found(first), first.counts, first.size)
    (tmp_path / "001.jpg").write_bytes(GOOD)
    (tmp_path / "002.jpg").write_bytes(PROGRESSIVE[:-9])
    os.utime(tmp_path / "003.jpg")
    changed = sp.check_files(source)
    assert changed.looked == 3
    assert [finding.index for finding in changed.findings() if finding.level == "bad"] == [2, 3]
    assert sp.check_files(source, fresh=True).looked == 5


def test_a_file_changed_within_a_tick_is_looked_at_again(tmp_path: Path) -> None:
    source = write_list(tmp_path, [GOOD])
    now_s = 4_000_000_000  # later than any clock: nobody knows what happens to it yet
    os.utime(tmp_path / "000.jpg", (now_s, now_s))
    assert [sp.check_files(source).looked for _ in range(2)] == [1, 1]


def test_other_questions_have_other_answers(tmp_path: Path) -> None:
    source = settled(write_list(tmp_path, [GOOD, GOOD, GOOD[:-300]]))
    assert sp.check_files(source, duplicates=False).looked == 3
    with_copies = sp.check_files(source)
    assert with_copies.looked == 2  # bad files are no copies
    assert with_copies.counts["label-conflict"] == 2
    assert sp.check_files(source).looked == 0
    assert sp.check_files(source, allow_truncated=True).counts == {"cut": 1, "label-conflict": 2}
    assert sp.check_files(source, limits=sp.DecodeLimits(max_pixels=9)).counts["oversized"] == 3
    assert sp.check_files(source, large_image_memory=1 << 20).looked == 3
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("000.jpg", "001.jpg", "002.jpg", "list.txt"):
        (moved / name).write_bytes((tmp_path / name).read_bytes())
    assert sp.check_files(settled(sp.FileList(moved / "list.txt"))).looked == 3


def test_several_lists_in_one(tmp_path: Path) -> None:
    parts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        parts.append(write_list(tmp_path / name, [GOOD, b""]))
    found = sp.check_files(sp.Concat(*parts))
    assert [(finding.index, finding.path) for finding in found.findings("empty")] == [
        (1, str(tmp_path / "a/001.jpg")),
        (3, str(tmp_path / "b/001.jpg")),
    ]


def test_the_list_it_writes_is_one_to_exclude(tmp_path: Path) -> None:
    source, expected = bad_list(tmp_path)
    found = sp.check_files(source, limits=LIMITS)
    pipeline = sp.Pipeline(source).map(sp.Resize((8, 8))).decode(limits=LIMITS)
    assert found.write(tmp_path / "bad.jsonl") == found.bad
    with pipeline.exclude(tmp_path / "bad.jsonl").batch(3).loader(memory="64MiB") as loader:
        delivered = [int(index) for batch in loader for index in batch["index"][batch["valid"]]]
    assert delivered == [number for number, kind in enumerate(expected) if not kind]
    assert found.write(tmp_path / "copies.jsonl", kinds=["label-conflict"]) == len(delivered)
    lines = [json.loads(line) for line in (tmp_path / "copies.jsonl").read_text().splitlines()]
    assert lines[0] == {"source": source.open().digest, "records": len(expected)}
    assert {line["like"] for line in lines[1:]} == {0}
    assert found.write(tmp_path / "none.jsonl", kinds=[]) == 0
    assert pipeline.exclude(tmp_path / "none.jsonl").batch(1).plan().order.num_positions == len(expected)
    with pytest.raises(sp.StandpipeError, match=r"can't write .*gone/bad.jsonl: No such file"):
        found.write(tmp_path / "gone/bad.jsonl")
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"source": numbers(3)}, "it has no image files"),
        ({"source": sp.ImageFolder}, r"check_files\(ImageFolder\) got a class. Write ImageFolder"),
        ({"source": "photos"}, "a source such as ImageFolder"),
        ({"source": sp.FileList("gone.txt")}, "can't read"),
        ({"num_workers": 0}, "num_workers=0: num_workers must be a positive integer or 'auto'"),
        ({"limits": 3}, "DecodeLimits"),
        ({"reads": 3}, "ReadOptions"),
        ({"large_image_memory": "much"}, "large_image_memory"),
    ],
)
def test_what_can_not_be_checked(tmp_path: Path, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        sp.check_files(**{"source": write_list(tmp_path, [GOOD]), **arguments})
    found = sp.check_files(write_list(tmp_path, [GOOD]))
    with pytest.raises(sp.PlanError, match=r"findings\('odd'\): unknown kind. The kinds are unreadable, "):
        list(found.findings("odd"))


def test_what_version_2_found_out_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It judged some files otherwise."""
    source = settled(write_list(tmp_path, [GOOD, b""]))
    with monkeypatch.context() as before:
        before.setattr("standpipe.jobs.file_check.store.VERSION", 2)
        before.setattr("standpipe.jobs.file_check.run.VERSION", 2)
        assert [sp.check_files(source).looked for _ in range(2)] == [2, 0]
    assert [sp.check_files(source).looked for _ in range(2)] == [2, 0]


def test_a_damaged_store_is_made_anew(tmp_path: Path, cache: Path) -> None:
    source = settled(write_list(tmp_path, [GOOD, b""]))
    sp.check_files(source)
    (store,) = cache.iterdir()
    for content in (b"no store at all" * 1000, store.read_bytes()[:5000], b""):
        store.write_bytes(content)
        found = sp.check_files(source)
        assert (found.looked, found.counts) == (2, {"empty": 1})
        assert sp.check_files(source).looked == 0


def test_without_a_cache_folder_nobody_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    source = settled(write_list(tmp_path, [GOOD, b""]))
    for _ in range(2):
        found = sp.check_files(source)
        assert (found.looked, found.counts) == (2, {"empty": 1})
        assert [finding.index for finding in found.findings()] == [1]
    assert "a later check can't continue from them. Set XDG_CACHE_HOME" in caplog.text


def program(source: sp.FileList, body: str) -> list[str]:
    """A program that checks files in ``source``, as a command."""
    text = (
        BEGIN.format(path=[path for path in sys.path if path])
        + f"source = sp.FileList({str(source.path)!r})\n"
    )
    return [sys.executable, "-W", "error", "-c", text + textwrap.dedent(body)]


SLOW = """
def told(what, done, total):
    print(done, flush=True)
sp.check_files(source, num_workers=2, on_progress=told)
"""


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    yield from process.stdout


def test_one_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """What a process told of is known, also when it is killed in the middle of a file."""
    source = settled(write_list(tmp_path, [encoded(picture(seed)) for seed in range(99)] + [b""]))
    faults = os.environ | {"STANDPIPE_FAULTS": "read.open=delay:600s@40"}
    with subprocess.Popen(program(source, SLOW), stdout=subprocess.PIPE, text=True, env=faults) as process:
        done = next(number for number in map(int, lines_of(process)) if number > 20)
        process.kill()
    assert process.returncode == -9
    found = sp.check_files(source)
    assert found.looked <= 100 - done < 80
    assert dict(found.counts) == {"empty": 1}
    assert sp.check_files(source).looked == 0


def test_an_interrupt_keeps_what_is_known(tmp_path: Path) -> None:
    source = settled(write_list(tmp_path, [encoded(picture(seed)) for seed in range(64)]))
    text = output(
        f"""
source = sp.FileList({str(source.path)!r})
def told(what, done, total):
    raise KeyboardInterrupt
try:
    sp.check_files(source, num_workers=1, on_progress=told)
except KeyboardInterrupt:
    print("interrupted")
print(sum(thread.name.startswith("standpipe") for thread in threading.enumerate()))
print(sp.check_files(source).looked)
"""
    )
    assert text == "interrupted\n0\n0\n"


ENDLESS = """CREATE TEMP VIEW files AS
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS record, 0 AS label, i AS digest FROM n"""


def test_ctrl_c_ends_the_search_for_copies() -> None:
    """Private parts, as no search in a test takes long enough: here it goes through numbers without an end."""
    store = ResultStore.open("endless", fresh=True)
    store._connection.execute(ENDLESS)

    def press(statement: str) -> None:
        if "CREATE TABLE copies" in statement:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    store._connection.set_trace_callback(press)
    with pytest.raises(KeyboardInterrupt):
        store.finish(1)


def test_ctrl_c_ends_the_examination_of_files() -> None:
    """A private function: on slow storage 4,096 files, as many as are asked for at once, take seconds."""
    assert hears_ctrl_c(partial(_native.file_marks, np.frombuffer(b"/", np.uint8), np.ones(1, np.int64)))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    source = settled(write_list(tmp_path, [encoded(picture(seed)) for seed in range(99)]))
    faults = os.environ | {"STANDPIPE_FAULTS": "read.open=delay:600s@40"}
    with subprocess.Popen(program(source, SLOW), stdout=subprocess.PIPE, text=True, env=faults) as process:
        next(lines_of(process))
        with pytest.raises(sp.StandpipeError, match="another process is checking these files"):
            sp.check_files(source)
        process.kill()
    held = sp.check_files(source)
    again = output(f"print(sp.check_files(sp.FileList({str(source.path)!r})).looked)")
    assert again == "0\n"
    assert list(held.findings()) == []


def test_a_file_that_takes_long_is_named(tmp_path: Path) -> None:
    source = write_list(tmp_path, [GOOD, GOOD])
    text = """
        import logging
        from standpipe.jobs.file_check import checking
        checking.SLOW_S = 0.5
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        sp.check_files(source)
        """
    faults = os.environ | {"STANDPIPE_FAULTS": "read.open=delay:600s"}
    check = program(source, text)
    with subprocess.Popen(check, stdout=subprocess.PIPE, text=True, env=faults) as process:
        assert next(lines_of(process)).startswith(f"still reading or decoding {tmp_path}/00")
        process.kill()


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    """40,000 more records, for which paths alone would be 4 MB, and findings far more."""
    (tmp_path / "a.jpg").write_bytes(encoded(picture(0, 8, 8)))
    text = output(
        f"""
        def peak():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) >> 10 for line in file if line.startswith("VmHWM"))
        def checked(records):
            path = {str(tmp_path)!r} + "/" + str(records)
            with open(path, "w") as file:
                file.writelines(["a.jpg\\n", "gone.jpg\\n"] * (records // 2))
            found = sp.check_files(sp.FileList(path, labels=False), num_workers=2)
            return sum(1 for _ in found.findings())
        assert checked(10_000) == 10_000 - 1
        before = peak()
        assert checked(50_000) == 50_000 - 1
        print(peak() - before)
        """
    )
    assert int(text) < 6


def paired(folder: Path) -> sp.FileList:
    """Four records, each with a left and a right image and a mask; some are bad, copies or misnamed."""
    mask = encoded(np.zeros((40, 56), np.uint8), "PNG")
    columns: dict[str, list[bytes]] = {
        "left": [GOOD, PROGRESSIVE, GOOD[:30], LARGE_PROGRESSIVE],
        "right": [encoded(picture(3), "PNG"), GOOD, b"", GOOD],
        "mask": [mask, GOOD, mask, mask[:45]],
    }
    lists = {}
    for field, contents in columns.items():
        for number, content in enumerate(contents):
            (folder / f"{field}{number}.jpg").write_bytes(content)
        lists[field] = folder / f"{field}.txt"
        lists[field].write_text("".join(f"{field}{number}.jpg\n" for number in range(len(contents))))
    return settled(sp.FileList(lists.pop("left"), **lists))


def test_every_image_of_a_record_is_checked(tmp_path: Path) -> None:
    source = paired(tmp_path)
    found = sp.check_files(source, num_workers=2)
    assert (found.records, found.fields, found.looked) == (4, ("image", "mask", "right"), 12)
    findings = {
        (each.index, each.field, each.kind): each for each in found.findings() if each.kind != "suffix"
    }
    assert {key: each.path for key, each in findings.items()} == {
        (1, "mask", "damaged"): str(tmp_path / "mask1.jpg"),
        (2, "image", "truncated"): str(tmp_path / "left2.jpg"),
        (2, "right", "empty"): str(tmp_path / "right2.jpg"),
        (3, "mask", "truncated"): str(tmp_path / "mask3.jpg"),
        (2, "mask", "copy"): str(tmp_path / "mask2.jpg"),
        (3, "right", "copy"): str(tmp_path / "right3.jpg"),
    }
    assert findings[2, "right", "empty"].text == "right: empty file"
    assert findings[1, "mask", "damaged"].text.startswith("mask: a mask can't be a JPEG")
    copy = findings[3, "right", "copy"]
    assert (copy.text, copy.like) == (f"right: the same bytes as record 1, {tmp_path}/right1.jpg", 1)
    assert {(each.index, each.field) for each in found.findings("suffix")} == {
        (0, "right"),
        (0, "mask"),
        (2, "mask"),
    }
    assert "field" not in findings[2, "image", "truncated"].facts()
    assert findings[2, "right", "empty"].facts()["field"] == "right"
    again = sp.check_files(source, num_workers=1)
    assert (again.looked, list(again.findings())) == (0, list(found.findings()))


def test_a_bad_mask_is_what_a_loader_says(tmp_path: Path) -> None:
    source = paired(tmp_path)
    masks = sp.FileList(source.path, mask=dict(source.others)["mask"])
    found = sp.check_files(masks, duplicates=False)
    assert as_found(found) == as_loaded(masks, num_workers=1)
    assert found.write(tmp_path / "bad.jsonl") == 3
    left = sp.Pipeline(masks).exclude(tmp_path / "bad.jsonl").map(sp.CenterCrop(8))
    assert left.batch(1).plan().rows_per_epoch == 1


def test_images_of_shards_are_checked_by_field(tmp_path: Path) -> None:
    contents = {
        "0.left.jpg": GOOD,
        "0.right.jpg": GOOD,
        "0.txt": b"a",
        "1.left.jpg": GOOD,
        "1.right.jpg": GOOD[:40],
    }
    path = shard(tmp_path / "a.tar", [*contents.items(), ("1.txt", b"")])
    found = sp.check_files(
        sp.TarShards(path, fields={"left": "left.jpg", "right": "right.jpg", "text": "txt"})
    )
    copy, bad = sorted(found.findings(), key=lambda finding: finding.level, reverse=True)
    assert (copy.kind, copy.field, copy.text) == (
        "copy",
        "left",
        f"left: the same bytes as record 0, {path}: 0.left.jpg",
    )
    assert (bad.kind, bad.field, bad.path) == ("truncated", "right", f"{path}: 1.left.jpg")
    assert bad.text.startswith("right: truncated: ")


def test_images_have_the_size_that_annotations_say(tmp_path: Path) -> None:
    source = painted(tmp_path, 8, most=1)
    sizes = source.open().locate(np.arange(8)).sizes
    assert sizes is not None
    for number, kind in ((2, "PNG"), (4, "JPEG")):
        turned = np.zeros((sizes[number, 1], sizes[number, 0], 3), np.uint8)
        Image.fromarray(turned).save(tmp_path / f"images/{number:04d}.jpg", kind)
    found = sp.check_files(source)
    assert found.counts["other-size"] == 2
    assert as_found(found) == as_loaded(source)  # type: ignore[arg-type]
    height, width = sizes[4].tolist()
    said = (
        f"it has {height} × {width} pixels, but its annotations say {width} × {height}; decode(orientation="
    )
    assert as_found(found)[4].startswith(said)
    content = json.loads(Path(source.annotations).read_text())
    for number in (2, 4):  # which have no boxes
        entry = content["images"][number]
        entry["width"], entry["height"] = entry["height"], entry["width"]
    Path(source.annotations).write_text(json.dumps(content))
    corrected = sp.check_files(source)
    assert corrected.ok


def test_faults_of_annotations_are_named(tmp_path: Path) -> None:
    source = painted(tmp_path, 4, most=1)
    content = json.loads(Path(source.annotations).read_text())
    content["annotations"][0]["bbox"][2] = 0
    Path(source.annotations).write_text(json.dumps(content))
    found = sp.check_files(source)
    assert found.ok
    (fault,) = found.skipped_files()
    assert fault.startswith("empty box: annotation 1: ")
    assert found.skipped == 1
