"""Native threads that hang over a file or a row: named, given up, and nothing that they do late reaches a batch."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from forked import output
from gates import Gate
from photos import encoded, picture, write_list
from standpipe import _native

FILES, ROWS = 24, 4
STUCK = 9  # the record over which a thread hangs
STALLED_S = 2.0
HANGS_S = 10  # of a thread that no gate lets go on: longer than it takes to go on without it

PROGRAM = """
import hashlib, json, logging
lines = []
class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("standpipe").addHandler(Lines())
def digests(batch):
    return [hashlib.blake2b(image.tobytes()).hexdigest() for image in batch["image"]]
def threads():
    return len(os.listdir("/proc/self/task"))
pipeline = sp.Pipeline(sp.FileList({path!r})).map(sp.Resize((40, 56))).on_error({policy}).batch({rows})
told = {{"images": [], "index": [], "error": None, "lines": lines}}
kept = []
def open_gate():
    os.open({gate!r}, os.O_RDWR)
def open_when_named():
    while not any(line.startswith("record {stuck}, ") for line in lines):
        os.sched_yield()
    open_gate()
if {once_named}:
    threading.Thread(target=open_when_named).start()
def take(batches):
    for batch in batches:
        kept.append(batch)
        told["images"].append(digests(batch))
        told["index"].append(batch["index"].tolist())
settings = {{"memory": "256MiB", "num_workers": 1, "slow_sample_s": 0.3, **{settings!r}}}
with pipeline.loader(**settings) as loader:
    try:
        take(loader)
    except sp.StalledError as error:
        fields = ("index", "path", "doing", "worker", "seconds", "where")
        told["error"] = {{name: getattr(error, name) for name in fields}} | {{"text": str(error)}}
        begin = time.monotonic()
        loader.skip_steps(1)
        take(loader.steps({files} // {rows} - len(told["index"]) - 1))
        told["went_on_s"] = time.monotonic() - begin
    before = threads()
    told["bad"] = [[bad.index, bad.replacement, bad.place, bad.kind] for bad in loader.bad_samples]
    if {gate!r}:
        open_gate()
    ends = time.monotonic() + 20
    while {waits} and threads() == before and time.monotonic() < ends:
        os.sched_yield()  # until the thread that hung has come back, and ended
    told["unchanged"] = [digests(batch) for batch in kept] == told["images"]
    stats = loader.stats()
    told |= {{"slow": stats.slow, "stalled": stats.stalled, "bad_rows": stats.bad, "ahead": stats.reading_ahead}}
    told["slow_samples"] = [[slow.index, slow.path, slow.doing] for slow in loader.slow_samples]
    kept.clear()
    if {waits}:
        told["again"] = sum(len(batch["index"]) for batch in loader.steps(2))  # before the record comes again
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Told:
    """What a program saw."""

    images: list[list[str]]
    index: list[list[int]]
    error: dict[str, Any] | None
    lines: list[str]
    bad: list[list[Any]]
    unchanged: bool
    slow: int
    stalled: int
    bad_rows: int
    slow_samples: list[list[Any]]
    ahead: bool
    again: int = 0
    went_on_s: float = 0.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    write_list(folder, [encoded(picture(seed), quality=90) for seed in range(FILES)])
    return folder


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return Gate.closed(tmp_path / "gate").path


def held_up(gate: Path, folder: Path, point: str) -> str:
    """Faults: whoever comes to a point with the record waits at a gate, a log that nobody reads."""
    where = at_file(folder) if point == "read.pread" else f"@#{STUCK}"
    return f"{point}=delay:0s{where}*1;log={gate}"


def run(
    folder: Path,
    faults: str,
    *,
    gate: Path | None = None,
    once_named: bool = False,
    replace: bool = False,
    waits: bool = False,
    **settings: Any,
) -> Told:
    """What such a program sees.

    gate        that it opens when it has all other batches
    once_named  it opens the gate when who waits there is named
    waits       for the end of a thread that was given up
    """
    text = PROGRAM.format(
        path=str(folder / "list.txt"),
        policy="sp.Replace(at_most=2)" if replace else "sp.Raise()",
        rows=ROWS,
        files=FILES,
        settings=settings,
        waits=waits,
        stuck=STUCK,
        gate=str(gate or ""),
        once_named=once_named,
    )
    return Told(**json.loads(output(text, environment={"STANDPIPE_FAULTS": faults})))


def at_file(folder: Path, record: int = STUCK) -> str:
    return f"@#{_native.fault_key(os.fsencode(folder / f'{record:03d}.jpg'))}"


def without_faults(folder: Path) -> list[list[str]]:
    return run(folder, "").images


@pytest.mark.parametrize(
    ("point", "doing"), [("read.pread", "reading its file"), ("decode.row", "decoding and transforming it")]
)
def test_slow_sample_is_named(folder: Path, point: str, doing: str, gate: Path) -> None:
    """Once: the two slots hold none of its next epoch."""
    told = run(folder, held_up(gate, folder, point), gate=gate, once_named=True, prefetch=1)
    assert told.images == without_faults(folder)
    (line,) = (line for line in told.lines if line.startswith(f"record {STUCK}, "))
    assert re.fullmatch(
        rf"record {STUCK}, {folder}/009.jpg, has taken \d+\.\d s so far: {doing}, in decoding thread \d", line
    )
    assert (told.slow >= 1, told.stalled) == (True, 0)
    named = [each for each in told.slow_samples if each[0] == STUCK]
    assert named == [[STUCK, str(folder / "009.jpg"), doing]]


@pytest.mark.parametrize("point", ["read.pread", "decode.row"])
def test_thread_that_hangs_is_an_error(folder: Path, point: str, gate: Path) -> None:
    """There is one decoding thread: another one goes on in its place. The two slots hold none of its next epoch."""
    settings = {"stall_timeout_s": STALLED_S, "prefetch": 1}
    told = run(folder, held_up(gate, folder, point), gate=gate, waits=True, **settings)
    assert told.error is not None
    assert (told.error["index"], told.error["path"]) == (STUCK, str(folder / "009.jpg"))
    assert told.error["seconds"] >= STALLED_S
    assert re.fullmatch(r"decoding thread \d", told.error["worker"])
    assert f"record {STUCK}, {folder}/009.jpg, was not done after" in told.error["text"]
    expected = without_faults(folder)
    assert told.images == expected[:2] + expected[3:]
    assert (told.unchanged, told.stalled, told.bad_rows, told.again) == (True, 1, 1, 2 * ROWS)


@pytest.mark.parametrize("point", ["read.pread", "decode.row"])
def test_what_a_thread_writes_late_reaches_no_batch(folder: Path, point: str, gate: Path) -> None:
    """Its sample is replaced as one that can't be read; all batches are held until it has come back."""
    expected = run(folder, f"read.pread=enoent{at_file(folder)}", replace=True)
    faults = held_up(gate, folder, point)
    told = run(folder, faults, gate=gate, stall_timeout_s=STALLED_S, replace=True, waits=True)
    assert (told.images, told.index) == (expected.images, expected.index)
    assert told.unchanged
    ((index, replacement, place, kind),) = told.bad
    assert [index, replacement] == expected.bad[0][:2]
    assert (place, kind) == ("stalled", "took too long")
    assert told.again == 2 * ROWS


def test_reading_thread_that_hangs(folder: Path) -> None:
    """Others read ahead of it all the time."""
    faults = f"read.open=delay:5ms;read.pread=delay:{HANGS_S}s{at_file(folder)}*1"
    told = run(folder, faults, stall_timeout_s=STALLED_S, prefetch=1, waits=True)
    expected = without_faults(folder)
    assert told.error is not None
    assert told.error["index"] == STUCK
    assert told.images == expected[:2] + expected[3:]
    assert told.went_on_s < HANGS_S - 2 * STALLED_S, "it waited for the thread"
    assert (told.unchanged, told.again) == (True, 2 * ROWS)


PILLOW = """
import logging
from PIL import Image
Image.init()  # takes long on a machine that has much to do, and would be part of what a sample takes
opened = Image.open
gate = threading.Event()
def waits(file, *more, **other):
    image = opened(file, *more, **other)
    if image.size == (57, 41):
        gate.wait()
    return image
Image.open = waits
logging.basicConfig(stream=sys.stdout, format="%(message)s")
pipeline = sp.Pipeline(sp.FileList({path!r})).map(sp.Resize((40, 56))).on_error(sp.Replace(at_most=1)).batch(4)
with pipeline.loader(memory="256MiB", num_workers=2, slow_sample_s=0.3, stall_timeout_s=5.0) as loader:
    kept = list(loader)
    print([bad.index for bad in loader.bad_samples], [batch["image"].shape for batch in kept])
    before = [batch["image"].tobytes() for batch in kept]
    threads = threading.active_count()
    gate.set()
    ends = time.monotonic() + 10
    while threading.active_count() == threads and time.monotonic() < ends:
        os.sched_yield()
    print(before == [batch["image"].tobytes() for batch in kept])
"""


def test_pillow_that_hangs(tmp_path: Path) -> None:
    files = [encoded(picture(seed), "PNG") for seed in range(8)]
    files[5] = encoded(picture(5, 41, 57), "PNG")
    write_list(tmp_path, files)
    told = output(PILLOW.format(path=str(tmp_path / "list.txt")))
    assert re.search(
        r"record 5, .*, has taken .* decoding and transforming it, in Pillow thread \d\n(.*\n)*.*in waits",
        told,
    )
    hung = re.findall(r"record 5, .*, was not done after \d+\.\d s", told)
    # 24 epochs are begun at once, and each hangs: their threads aren't waited for before the first is made again.
    assert 1 <= len(hung) <= 8
    assert "\n[5] [(4, 40, 56, 3), (4, 40, 56, 3)]\n" in told  # more threads may be named afterwards
    assert told.endswith("\nTrue\n")
