"""Files of records and arrays, read by position, that change while a loader reads them."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import age
from programs import BEGIN, LIMIT_S

RECORDS, RECORD_BYTES = 24, 8192  # more than one read takes
OLD, NEW = 1, 2  # the value of all bytes
CHANGED = "{path} has changed since the loader was planned; plan again"


def content(value: int) -> bytes:
    return bytes([value]) * (RECORDS * RECORD_BYTES)


def npy(path: Path) -> sp.Arrays:
    np.save(path, np.full((RECORDS, RECORD_BYTES), OLD, np.uint8))
    return sp.Arrays(x=path)


def idx(path: Path) -> sp.IdxFiles:
    path.write_bytes(struct.pack(">HBBII", 0, 8, 2, RECORDS, RECORD_BYTES) + content(OLD))
    return sp.IdxFiles(x=path)


def fixed(path: Path) -> sp.FixedRecords:
    path.write_bytes(content(OLD))
    return sp.FixedRecords(path, fields=[("x", "u1", (RECORD_BYTES,))])


SOURCES: dict[str, Callable[[Path], Any]] = {"npy": npy, "idx": idx, "fixed": fixed}
WAYS: dict[str, dict[str, Any]] = {
    "native": {},
    "threads": {"executor": "thread"},
    "inline": {"executor": "inline"},
    "processes": {"executor": "process"},
}


def rewritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-len(content(NEW)), os.SEEK_END)
        file.write(content(NEW))


def rewritten_with_its_time(path: Path) -> None:
    before = path.stat().st_mtime_ns
    rewritten(path)
    age(path, at_ns=before)


def truncated(path: Path) -> None:
    os.truncate(path, 5000)


def renamed_over(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    age(other, at_ns=path.stat().st_mtime_ns)
    other.rename(path)


def mode_changed(path: Path) -> None:
    path.chmod(0o600)


def told(path: Path, kind: str, change: Callable[[Path], None]) -> str:
    """What a program tells of a batch that takes several reads, if the file changes before the second one."""
    text = f"""
from test_storage_records import *
with sp.Pipeline({kind}(Path({str(path)!r}))).batch(RECORDS).loader(memory="256MiB", num_workers=1) as loader:
    try:
        print(*sorted({{*next(iter(loader))["x"].ravel().tolist()}}))
    except sp.StandpipeError as error:
        print(error)
"""
    begin = BEGIN.format(path=[str(Path(__file__).parent), *(each for each in sys.path if each)])
    environment = os.environ | {"STANDPIPE_FAULTS": "index.read=stop@2"}
    with subprocess.Popen(
        [sys.executable, "-c", begin + text], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            now = os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert now is not None
            assert now.si_code == os.CLD_STOPPED
            change(path)
            running.send_signal(signal.SIGCONT)
            return running.communicate(timeout=LIMIT_S)[0].strip()
        finally:
            running.kill()


CHANGES = [
    (rewritten, CHANGED),
    (rewritten_with_its_time, str(NEW)),  # all of it is read again
    (truncated, "can't read records of {path}: it ends too soon"),
    (renamed_over, str(OLD)),  # it was open before
    (mode_changed, str(OLD)),
]


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        # The files of all kinds are read by the same code.
        pytest.param(
            kind, *each, marks=pytest.mark.long if kind == "idx" and each[0] is not truncated else ()
        )
        for kind in SOURCES
        for each in CHANGES
    ],
)
def test_a_file_of_records_changes_while_it_is_read(
    tmp_path: Path, kind: str, change: Callable[[Path], None], says: str
) -> None:
    """No batch has old and new bytes, and a file that is cut doesn't end the process."""
    path = tmp_path / "records.npy"
    assert told(path, kind, change) == says.format(path=path)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("change", [rewritten, truncated, renamed_over])
def test_a_file_of_records_changes_between_batches(
    tmp_path: Path, kind: str, way: str, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "records.npy"
    pipeline = sp.Pipeline(SOURCES[kind](path))
    if way != "native":
        pipeline = pipeline.map(np.negative, field="x")
    with pipeline.batch(2).loader(memory="256MiB", num_workers=1, prefetch=1, **WAYS[way]) as loader:
        batches = iter(loader)
        next(batches)
        change(path)
        with pytest.raises(sp.StandpipeError, match=CHANGED.format(path=path)):
            list(batches)
