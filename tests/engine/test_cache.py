"""A cache in every process that makes rows: storage holds nobody up, room comes soon, and what goes wrong is told."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from caches import base
from forked import output
from programs import LIMIT_S
from samples import Samples
from standpipe.engine import cache

EXECUTORS = ("thread", "process", "inline")
ROWS = 12
PYTHON = "sp.Pipeline(sp.MapSource(Samples(lambda index: {'x': np.full(1000, index)}, 12)))"
PASSES = """
import logging
from samples import Samples
logging.basicConfig(format="%(message)s", stream=sys.stdout)
cache = sp.Cache("eval", {memory!r}, directory={directory!r}, spill={spill!r}, version=1)
pipeline = {pipeline}.cache(cache).batch(4)
with pipeline.loader(memory="512MiB", num_workers={num_workers}, executor={executor!r}) as loader:
    rows = sum(len(batch["index"]) for _ in range({epochs}) for batch in loader)
    counted = loader.stats()
print(rows, "rows")
"""


def given(index: int) -> dict[str, int]:
    return {"x": index}


def blank(index: int) -> dict[str, Any]:
    return {"image": np.zeros((8, 8, 3), np.uint8)}


def passes(
    folder: Path,
    executor: str,
    *,
    faults: str,
    memory: int | str = "32MiB",
    spill: str | None = None,
    epochs: int = 2,
    num_workers: int = 2,
) -> list[str]:
    """What a program says and prints that reads some epochs with a cache."""
    program = PASSES.format(
        memory=memory,
        directory=str(folder),
        spill=spill,
        pipeline=PYTHON,
        executor=executor,
        epochs=epochs,
        num_workers=num_workers,
    )
    return output(program, environment={"STANDPIPE_FAULTS": faults}).splitlines()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("what", ["cache.extent", "cache.spill"])
def test_storage_that_blocks_keeps_no_batch_waiting(tmp_path: Path, executor: str, what: str) -> None:
    """Room that isn't given for ten minutes, or a folder on a disk: rows aren't kept, all come, and the loader ends."""
    told = passes(tmp_path, executor, faults=f"{what}=delay:600s", spill=str(tmp_path))
    assert told[-1] == f"{2 * ROWS} rows"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_is_known_at_the_end_only_is_told(tmp_path: Path, executor: str) -> None:
    """The disk takes its time over one row and fails at the next, when all batches are there."""
    faults = "cache.row=delay:200ms@#9;cache.row=eio@#10;cache.row=eio@#11"
    told = passes(tmp_path, executor, faults=faults, memory=1, spill=str(tmp_path), epochs=1, num_workers=1)
    assert told[-1] == f"{ROWS} rows"
    assert [line for line in told if "the spill can't be written: Input/output error" in line]


def test_room_that_another_process_kept_is_asked_for_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would wake the thread for it: it looks after the set once in a day here."""
    monkeypatch.setattr(cache, "STAMPS_S", 86400.0)  # private: no loader waits so long
    pipeline = sp.Pipeline(sp.MapSource(Samples(given, ROWS)))
    pipeline = pipeline.cache(sp.Cache("eval", "32MiB", directory=tmp_path)).batch(4)
    sp.create_cache(sp.Cache("eval", "32MiB", directory=tmp_path))
    session = os.open(base(tmp_path) / "sessions" / "eval", os.O_RDONLY)
    try:
        fcntl.flock(session, fcntl.LOCK_EX)  # as who gives room
        with pipeline.loader(memory="512MiB", executor="inline") as loader:
            list(loader)
            assert loader.stats().cache_stored == 0
            fcntl.flock(session, fcntl.LOCK_UN)
            until = time.monotonic() + LIMIT_S
            while not loader.stats().cache_stored:
                assert time.monotonic() < until
                list(loader)
    finally:
        os.close(session)


def test_a_system_without_a_thread_for_it_keeps_no_new_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that are there are used, which is said."""
    pipeline = sp.Pipeline(sp.MapSource(Samples(given, ROWS)))
    pipeline = pipeline.cache(sp.Cache("eval", "32MiB", directory=tmp_path)).batch(4)
    with pipeline.loader(memory="512MiB", executor="inline") as loader:
        next(iter(loader))
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "standpipe-cache":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with (
        caplog.at_level(logging.WARNING, "standpipe"),
        pipeline.loader(memory="512MiB", executor="inline") as loader,
    ):
        assert len(list(loader)) == ROWS / 4
        assert loader.stats().cache_hits >= 4
        assert loader.stats().cache_stored == 0
    assert (
        caplog.text.count("stores no new rows: can't start new thread. Rows that it has already are used")
        == 1
    )
    (session,) = sp.list_caches(tmp_path)
    assert [each.users for each in session.sets] == [0]


def pictures(step: sp.Resize) -> sp.Pipeline:
    """What native threads make."""
    return sp.Pipeline(sp.Arrays(image=np.zeros((ROWS, 8, 8, 3), np.uint8))).map(step)


def arrays(step: sp.Resize) -> sp.Pipeline:
    """What Python code makes."""
    return sp.Pipeline(sp.MapSource(Samples(blank, ROWS))).map(step)


@pytest.mark.parametrize("made", [pictures, arrays])
def test_room_that_comes_later_is_used_in_a_later_epoch(
    tmp_path: Path, made: Callable[[sp.Resize], sp.Pipeline], caplog: pytest.LogCaptureFixture
) -> None:
    """Another set has it all, and goes when nobody uses it any more."""
    cache = sp.Cache("eval", "64KiB", directory=tmp_path, idle_after=1e-3)
    other, pipeline = (made(sp.Resize((64, 64 + width))).cache(cache).batch(4) for width in range(2))
    with (
        pipeline.loader(memory="512MiB", num_workers=1, executor="thread") as loader,
        caplog.at_level(logging.WARNING, "standpipe"),
    ):
        with other.loader(memory="512MiB", num_workers=1, executor="thread") as first:
            list(first)
            list(loader)
        assert loader.stats().cache_stored == 0
        until = time.monotonic() + LIMIT_S
        while not loader.stats().cache_stored:
            assert time.monotonic() < until
            list(loader)
    assert len([record for record in caplog.records if "keeps no more rows" in record.message]) == 2
