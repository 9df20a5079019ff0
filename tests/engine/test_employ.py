"""How many workers work at once changes while they do, and nothing of a batch does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.engine.adjusting import Headroom
from penstock.memory import GROWTH
from photos import write_photos

MEMORY = "512MiB"


def drawn(x: Any, rng: np.random.Generator) -> Any:
    return x + rng.random()


def in_python(executor: Any) -> ps.Pipeline:
    return ps.Pipeline(ps.Arrays(x=np.arange(2000.0))).shuffle(seed=1).map(drawn, field="x").batch(7)


def photos(folder: Path) -> ps.Pipeline:
    return ps.Pipeline(write_photos(folder, 96)).shuffle(seed=1).map(ps.RandomResizedCrop(16)).batch(5)


def workers_of(loader: ps.Loader) -> Any:
    run = loader._run
    assert run is not None
    return run._workers


def left_alone(loader: ps.Loader) -> Any:
    """Its workers, after a first batch; nobody tunes them."""
    next(iter(loader))
    loader._run._adjuster.look = lambda: None  # type: ignore[union-attr,method-assign]
    return workers_of(loader)


@contextmanager
def restless(loader: ps.Loader, most: int) -> Iterator[list[int]]:
    """Another number of workers, and of slots, every millisecond."""
    numbers: list[int] = []
    over = threading.Event()
    ring = loader._run._ring  # type: ignore[union-attr]

    def change() -> None:
        chance = np.random.default_rng(0)
        while not over.wait(0.001):
            number = int(chance.integers(1, most + 1))
            workers_of(loader).employ(number)
            ring.set_base(int(chance.integers(1, 5)))
            numbers.append(number)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield numbers
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("executor", ["native", "thread", "process"])
def test_batches_are_the_same_while_the_number_changes(tmp_path: Path, executor: Any) -> None:
    pipeline = photos(tmp_path) if executor == "native" else in_python(executor)
    settings: Any = {"memory": MEMORY} | ({} if executor == "native" else {"executor": executor})
    field = "image" if executor == "native" else "x"
    with pipeline.loader(**settings, workers=1) as loader:
        expected = [batch[field].tolist() for _ in range(2) for batch in loader]
    with pipeline.loader(**settings, workers=4) as loader:
        batches = iter(loader)
        found = [next(batches)[field].tolist()]
        with restless(loader, 4) as numbers:
            found += [batch[field].tolist() for batch in batches]
            found += [batch[field].tolist() for batch in loader]
        assert numbers
    assert found == expected


def employed(workers: Any, number: int) -> None:
    again = threading.Event()
    workers.employ(number)
    while workers.employed != number:
        again.wait(0.001)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_workers_are_started_when_more_are_wanted(executor: Any) -> None:
    with in_python(executor).loader(memory=MEMORY, executor=executor) as loader:
        expected = [batch["x"].tolist() for batch in loader]
        begin, workers = loader.plan.workers, left_alone(loader)
        assert begin + 2 <= loader.plan.most_workers
        for number in (begin + 2, 1):
            employed(workers, number)
            loader.set_epoch(0)
            assert [batch["x"].tolist() for batch in loader] == expected
            assert loader.stats().transform.threads == number
        assert len(loader.stats().workers) == begin + 2


def test_processes_share_the_memory_that_the_plan_gave_them() -> None:
    with in_python("process").loader(memory=MEMORY, executor="process") as loader:
        workers, plan = left_alone(loader), loader.plan
        employed(workers, plan.workers + 2)
        shares = [driver.memory.share for driver in workers._drivers]
        assert len(shares) == plan.workers + 2
        assert sum(shares) <= plan.workers * plan.worker_bytes


def test_a_loader_that_is_closed_while_workers_are_started_leaves_none() -> None:
    for _ in range(3):
        loader = in_python("process").loader(memory=MEMORY, executor="process")
        workers = left_alone(loader)
        workers.employ(loader.plan.workers + 4)
        loader.close()
        assert not workers._starter.is_alive()
        assert all(driver.has_ended for driver in workers._drivers)


def ledger(grown: int, now: int = 100) -> ps.MemoryLedger:
    owner = ps.MemoryOwner("slots", 0, now << 20, now << 20, None)
    growth = ps.MemoryOwner(GROWTH, 0, grown << 20, grown << 20, None)
    return ps.MemoryLedger(1000 << 20, (owner,), (), (growth,), now << 20)


def test_threads_may_be_as_many_as_the_memory_has_room_for() -> None:
    room = Headroom()
    assert room.most(2, ledger(grown=400)) == 2 + 500 // 200  # all that it has grown by may be theirs
    assert room.most(4, ledger(grown=440)) == 4 + 460 // 20  # no: it is 20 MiB each
    assert room.most(2, ledger(grown=440)) == 2 + 460 // 20
    assert room.most(27, ledger(grown=950)) < 27
    assert Headroom().most(2, ledger(grown=0)) > 1000
