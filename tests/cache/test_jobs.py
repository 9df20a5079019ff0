"""Several jobs on one set: one copy of each row, the same batches for all, whoever dies."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

import standpipe as sp
from forked import Program, start
from photos import WAIT_S, encoded, picture, write_list
from programs import wait_until_stopped

ROWS, JOBS = 48, 4
SIDE_PX = 64
JOB = """
import hashlib, json
import standpipe as sp

def job(folder, seed, epochs):
    cache = sp.Cache("jobs", memory="64MiB", directory=folder + "/rows", validate="never")
    source = sp.Pipeline(sp.FileList(folder + "/list.txt")).shuffle(seed=seed)
    with source.map(sp.Resize((64, 64))).cache(cache).batch(8).loader(num_workers=2, memory="64MiB") as loader:
        found = {}
        for epoch in range(epochs):
            for batch in loader:
                for index, image in zip(batch["index"].tolist(), batch["image"]):
                    found[index] = hashlib.sha256(image.tobytes()).hexdigest()
        counted = loader.stats()
    print(json.dumps([found, counted.cache_stored, counted.cache_misses]))

job({arguments})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_list(tmp_path, [encoded(picture(seed)) for seed in range(ROWS)])
    (tmp_path / "rows").mkdir()
    return tmp_path


def started(folder: Path, seed: int, epochs: int = 2, faults: str = "") -> Program:
    text = JOB.replace("{arguments}", repr((str(folder), seed, epochs))[1:-1])
    return start(text, environment={"STANDPIPE_FAULTS": faults})


def ended(job: Program) -> tuple[dict[str, str], int, int]:
    out, _ = job.communicate(timeout=6 * WAIT_S)
    assert job.returncode == 0
    found, stored, missed = json.loads(out)
    return found, stored, missed


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What a job without a cache gets, by record."""
    folder = tmp_path_factory.mktemp("plain")
    source = write_list(folder, [encoded(picture(seed)) for seed in range(ROWS)])
    with sp.Pipeline(source).map(sp.Resize((SIDE_PX, SIDE_PX))).batch(ROWS).loader(num_workers=1) as loader:
        (batch,) = loader
        return {
            str(index): hashlib.sha256(image.tobytes()).hexdigest()
            for index, image in zip(batch["index"].tolist(), batch["image"], strict=True)
        }


def held_bytes(folder: Path) -> int:
    """Of all rows' files."""
    return sum(path.stat().st_blocks * 512 for path in (folder / "rows").rglob("rows-*"))


def test_jobs_at_once_keep_one_copy_of_each_row(folder: Path, expected: Mapping[str, str]) -> None:
    jobs = [started(folder, seed) for seed in range(JOBS)]
    results = [ended(job) for job in jobs]
    assert all(found == expected for found, _, _ in results)
    assert sum(stored for _, stored, _ in results) == ROWS
    pages = JOBS * 4096  # of each job's last row
    assert held_bytes(folder) <= ROWS * SIDE_PX * SIDE_PX * 3 + pages
    assert ended(started(folder, 9))[1:] == (0, 0)  # who comes late finds all of them


@pytest.mark.parametrize("point", ["cache.row", "cache.entry", "cache.entry.after", "cache.read"])
@pytest.mark.parametrize("pass_", [1, 20])
def test_a_job_that_is_killed_leaves_no_wrong_byte_and_nothing_locked(
    folder: Path, expected: Mapping[str, str], point: str, pass_: int
) -> None:
    other = started(folder, 1, epochs=4)
    victim = started(folder, 2, epochs=4, faults=f"{point}=kill@{pass_}")
    victim.communicate(timeout=6 * WAIT_S)
    assert ended(other)[0] == expected
    found, stored, _ = ended(started(folder, 3))
    assert found == expected
    assert ended(started(folder, 4))[1:] == (0, 0)
    assert stored <= 2  # what the dead one had in hand
    assert victim.returncode in (0, -signal.SIGKILL)  # the other one may have stored all before it


def test_a_job_that_is_stopped_keeps_nobody_waiting(folder: Path, expected: Mapping[str, str]) -> None:
    stopped = started(folder, 1, epochs=4, faults="cache.entry=stop@5")
    try:
        wait_until_stopped(stopped.pid)
        assert ended(started(folder, 2))[0] == expected
    finally:
        stopped.send_signal(signal.SIGCONT)
        assert ended(stopped)[0] == expected
