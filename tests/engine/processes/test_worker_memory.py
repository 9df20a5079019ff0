"""Worker processes that take more memory than their share give way to new ones, and nothing of a batch changes."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import standpipe as sp
from standpipe.engine.processes import memory_per_worker
from standpipe.engine.processes.memory_per_worker import WorkerMemory

MIB = 1 << 20
ROWS = 240


class Leaks:
    """Samples of which each leaves 1 MiB behind, or as much as it is told."""

    def __init__(self, sizes: Callable[[int], int] = lambda index: MIB) -> None:
        self.sizes, self.kept = sizes, []

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.kept.append(np.ones(self.sizes(index), np.uint8))
        return {"x": np.full(50, index * 3, np.int64), "name": f"sample {index}"}


class NeedsMuch(Leaks):
    """Needs 48 MiB now and then and keeps nothing, but the C library keeps what it has freed."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index % 8 == 0:
            del (blocks := [np.ones(31 * MIB, np.uint8)])[:]
            blocks += [np.ones(4 * MIB, np.uint8) for _ in range(12)]
        return super().__getitem__(index)


class LoadsLater(Leaks):
    """Has 60 MiB once it was asked for another sample than the first one, which is measured."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.sizes = lambda index: 60 * MIB if index != FIRST and sum(map(len, self.kept)) == 0 else 0
        return super().__getitem__(index)


def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "x": sample["x"] + rng.integers(1000)}


def together(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"x": np.stack([sample["x"] for sample in samples]), "names": [each["name"] for each in samples]}


PIPELINES: dict[str, Callable[[sp.Pipeline], sp.Pipeline]] = {
    "rows": lambda pipeline: pipeline.batch(16),
    "a function of the batch": lambda pipeline: pipeline.batch(16).map_batch(
        lambda batch: batch | {"y": batch["x"] + 1}
    ),
    "collate_fn": lambda pipeline: pipeline.batch(4, collate_fn=together),
}


def pipeline_of(dataset: Any, how: str = "rows") -> sp.Pipeline:
    return PIPELINES[how](sp.Pipeline(sp.MapSource(dataset)).shuffle(seed=5).map(noisy))


FIRST = int(pipeline_of(Leaks()).plan().order.indices(0, 0, 1)[0])


def stream(loader: sp.Loader, epochs: int = 2) -> list[Any]:
    return [
        {
            name: value if isinstance(value, list) else (value.shape, value.tobytes())
            for name, value in batch.items()
        }
        for _ in range(epochs)
        for batch in loader
    ]


@pytest.mark.parametrize("how", PIPELINES)
def test_a_leak_changes_nothing_and_ends_nothing(
    how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset that leaks 1 MiB a sample: 480 MiB, over workers that may have 30 each, and are looked at all the time.

    Else those that had no CPU for a while would seem to grow slowly.
    """
    monkeypatch.setattr(memory_per_worker, "LATE_S", memory_per_worker.SOON_S)
    with pipeline_of(Leaks(lambda index: 0), how).loader(executor="inline", memory="64MiB") as loader:
        expected = stream(loader)
    with (
        caplog.at_level(logging.WARNING, "standpipe"),
        pipeline_of(Leaks(), how).loader(
            executor="process", num_workers=2, memory="1GiB", memory_per_worker="30MiB"
        ) as loader,
    ):
        got = stream(loader)
        stats, ledger = loader.stats(), loader.memory()
    assert got == expected
    assert stats.recycled >= 2 * ROWS // (2 * 30 + 8)
    assert stats.deaths == 0
    for number in range(2):
        # Of the 240 that each leaks; nobody looks while a piece of work is done.
        assert ledger[f"worker {number}"].peak < (30 + 64) * MIB
    said = [record.getMessage() for record in caplog.records if "above its limit" in record.getMessage()]
    assert len(said) == 1
    assert "above its limit of 30.0MiB, and is replaced by a new one" in said[0]


@contextmanager
def killed(function: str) -> Iterator[list[str]]:
    """Kill a worker whenever the thread that measures and replaces it enters a function; list these threads."""
    killers = []

    def trace(frame: FrameType, event: str, _: object) -> None:
        thread = threading.current_thread().name
        if frame.f_code.co_name == function and thread.startswith("standpipe-worker"):
            driver = frame
            while driver.f_code.co_name != "_recycle":
                assert driver.f_back is not None
                driver = driver.f_back
            worker = driver.f_locals["self"].worker
            os.kill(worker.process, signal.SIGKILL)
            select.select([worker.handle], [], [])  # until it has ended
            killers.append(thread)

    threading.settrace(cast("Any", trace))
    try:
        yield killers
    finally:
        threading.settrace(cast("Any", None))


@pytest.mark.parametrize("function", ["trim", "measure", "let_go", "retire"])
def test_a_worker_that_is_killed_while_it_is_measured_is_replaced(function: str, tmp_path: Path) -> None:
    with pipeline_of(Leaks(lambda index: 0)).loader(executor="inline", memory="64MiB") as loader:
        expected = stream(loader, epochs=1)
    cache = sp.Cache("killed", "64MiB", directory=tmp_path)
    pipeline = sp.Pipeline(sp.MapSource(Leaks())).shuffle(seed=5).cache(cache).map(noisy).batch(16)
    with (
        killed(function) as killers,
        pipeline.loader(
            executor="process", num_workers=1, memory="1GiB", memory_per_worker="30MiB"
        ) as loader,
    ):
        assert stream(loader, epochs=1) == expected
        stats = loader.stats()
    assert killers
    assert stats.deaths + stats.recycled > 0


@pytest.mark.parametrize(("mib_per_s", "looks"), [(0, 20), (4, 60), (40, 60)])
def test_a_worker_is_looked_at_as_often_as_it_grows(
    mib_per_s: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ten seconds of a clock that is the test's, or until it has more than its share."""
    now_ms, looked = 0, []

    def own(*_: int) -> int:
        looked.append(now_ms)
        return int(mib_per_s * MIB) * now_ms // 1000

    monkeypatch.setattr(memory_per_worker, "time", SimpleNamespace(monotonic=lambda: now_ms / 1000))
    monkeypatch.setattr(memory_per_worker, "anonymous_bytes", own)
    monkeypatch.setattr(memory_per_worker, "own_memory_bytes", own)
    memory = WorkerMemory(30 * MIB, 1, lambda: 0)
    memory.begin(0)
    while not memory.over and now_ms < 10_000:
        memory.look()
        now_ms += 1
    assert memory.over == (mib_per_s > 0)
    assert memory.use.now < 32 * MIB
    assert len(set(looked)) < looks


def test_memory_that_was_freed_is_no_reason() -> None:
    pipeline = pipeline_of(NeedsMuch(lambda index: 0))
    with pipeline.loader(
        executor="process", num_workers=1, memory="1GiB", memory_per_worker="40MiB"
    ) as loader:
        stream(loader)
        stats = loader.stats()
        assert loader.memory()["worker 0"].peak > 50 * MIB
    assert stats.recycled == 0


def test_a_new_worker_that_has_more_than_its_share_is_an_error_with_a_number() -> None:
    heavy = pipeline_of(LoadsLater())
    with (
        heavy.loader(executor="process", num_workers=1, memory="100MiB") as loader,
        pytest.raises(
            sp.BudgetError, match=r"worker 0 .* of its own after one task, .* needs memory="
        ) as caught,
    ):
        stream(loader)
    smallest = caught.value.smallest_bytes
    assert smallest is not None
    with heavy.loader(executor="process", num_workers=1, memory=smallest) as loader:
        assert len(stream(loader, epochs=1)) == ROWS // 16


def test_a_cap_of_a_worker_that_is_too_small_says_what_it_needs() -> None:
    heavy = pipeline_of(LoadsLater())
    with (
        heavy.loader(executor="process", num_workers=1, memory="1GiB", memory_per_worker="40MiB") as loader,
        pytest.raises(
            sp.BudgetError, match=r"above memory_per_worker='40.0MiB'.* needs memory_per_worker="
        ) as caught,
    ):
        stream(loader)
    smallest = caught.value.smallest_bytes
    with heavy.loader(executor="process", num_workers=1, memory="1GiB", memory_per_worker=smallest) as loader:
        stream(loader, epochs=1)
    with (
        pytest.raises(sp.BudgetError, match="after its first sample, a worker process uses") as caught,
        heavy.loader(executor="process", num_workers=1, memory="1GiB", memory_per_worker="1MiB") as loader,
    ):
        stream(loader)
    assert caught.value.smallest_bytes is not None


def test_a_cap_of_workers_is_for_processes() -> None:
    with pytest.raises(sp.PlanError, match="executor='process'"):
        pipeline_of(Leaks()).plan(memory_per_worker="30MiB", executor="thread")
    with pytest.raises(sp.PlanError, match="memory_per_worker='much'"):
        pipeline_of(Leaks()).plan(memory_per_worker="much", executor="process")


def test_workers_get_an_equal_part_of_what_is_left() -> None:
    plans = [
        pipeline_of(Leaks()).plan(executor="process", num_workers=4, memory=f"{size}MiB")
        for size in (128, 256)
    ]
    assert plans[1].pool.worker_bytes - plans[0].pool.worker_bytes == 128 * MIB // 2 // 4
    for plan in plans:
        grown = 4 * (plan.pool.worker_bytes - plan.pool.cost.each)
        assert plan.forecast.allocated + plan.forecast.side + grown <= plan.memory_bytes


def test_a_collection_of_garbage_leaves_shared_memory_shared() -> None:
    """Python's own would write into the head of each object that was loaded before the fork: 40 MB of them here."""
    lists = [[number] for number in range(400_000)]

    def measured(index: int) -> int:
        gc.collect()
        return len(lists) * 0 + index

    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(64))).map(measured, field="x").batch(4)
    with pipeline.loader(executor="process", num_workers=2, memory="512MiB") as loader:
        for _ in loader:
            pass
        ledger = loader.memory()
    assert ledger["shared by workers"].now > 40 * MIB
    for number in range(2):
        assert ledger[f"worker {number}"].peak < 15 * MIB
