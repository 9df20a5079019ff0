"""How many workers work at once changes while they do, and nothing of a batch does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import encoded, picture, write_list, write_photos
from standpipe._native import latency_bucket
from standpipe.engine.tuner.adjusting import Headroom, is_odd, seen_in
from standpipe.stats.latency import BUCKETS
from standpipe.stats.memory import GROWTH

MEMORY = "512MiB"


def drawn(x: Any, rng: np.random.Generator) -> Any:
    return x + rng.random()


def in_python(executor: Any) -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(x=np.arange(2000.0))).shuffle(seed=1).map(drawn, field="x").batch(7)


def photos(folder: Path) -> sp.Pipeline:
    return sp.Pipeline(write_photos(folder, 96)).shuffle(seed=1).map(sp.RandomResizedCrop(16)).batch(5)


def workers_of(loader: sp.Loader) -> Any:
    run = loader._run
    assert run is not None
    return run._workers


def left_alone(loader: sp.Loader) -> Any:
    """Its workers, after a first batch; nobody tunes them."""
    next(iter(loader))
    loader._run.monitor._adjuster.look = lambda *_: None  # type: ignore[union-attr,method-assign]
    return workers_of(loader)


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Something that happens every millisecond."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.001):
            act()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def restless(loader: sp.Loader, most: int) -> Iterator[list[int]]:
    """Another number of workers every millisecond."""
    numbers: list[int] = []
    chance = np.random.default_rng(0)

    def change() -> None:
        number = int(chance.integers(1, most + 1))
        workers_of(loader).employ(number)
        numbers.append(number)

    with meanwhile(change):
        yield numbers


@pytest.mark.parametrize("executor", ["native", "thread", "process"])
def test_batches_are_the_same_while_the_number_changes(tmp_path: Path, executor: Any) -> None:
    pipeline = photos(tmp_path) if executor == "native" else in_python(executor)
    settings: Any = {"memory": MEMORY} | ({} if executor == "native" else {"executor": executor})
    field = "image" if executor == "native" else "x"
    with pipeline.loader(**settings, num_workers=1) as loader:
        expected = [batch[field].tolist() for _ in range(2) for batch in loader]
    with pipeline.loader(**settings, num_workers=4) as loader:
        batches = iter(loader)
        found = [next(batches)[field].tolist()]
        with restless(loader, 4) as numbers:
            found += [batch[field].tolist() for batch in batches]
            found += [batch[field].tolist() for batch in loader]
        assert numbers
    assert found == expected


def at_pillow(workers: Any) -> int:
    """How many images Pillow decodes now."""
    return sum(work.worker.startswith("Pillow") for work in workers.at_work())


@contextmanager
def seen_at_once(workers: Any) -> Iterator[list[int]]:
    """How many those were whenever one looked."""
    seen: list[int] = []
    with meanwhile(lambda: seen.append(at_pillow(workers))):
        yield seen


def test_pillow_decodes_no_more_images_at_once_than_there_are_workers(tmp_path: Path) -> None:
    files = {f"{number}.png": encoded(picture(number, 300, 400), "PNG") for number in range(48)}
    pipeline = sp.Pipeline(write_list(tmp_path, files)).map(sp.CenterCrop(16)).batch(12)
    with pipeline.loader(memory=MEMORY, num_workers=3) as loader:
        expected = [batch["image"].tolist() for batch in loader]
        workers = left_alone(loader)
        with seen_at_once(workers) as seen:
            list(loader)
        assert max(seen) > 1
        workers.employ(1)
        again = threading.Event()
        while at_pillow(workers) > 1:  # what they had begun
            again.wait(0.001)
        with seen_at_once(workers) as seen:
            loader.set_epoch(0)
            assert [batch["image"].tolist() for batch in loader] == expected
        assert max(seen) == 1


def test_threads_are_started_when_more_are_wanted() -> None:
    with in_python("thread").loader(memory=MEMORY, executor="thread") as loader:
        expected = [batch["x"].tolist() for batch in loader]
        begin, workers = loader.plan.num_workers, left_alone(loader)
        assert begin + 2 <= loader.plan.pool.most_workers
        for number in (begin + 2, 1):
            workers.employ(number)
            assert workers.employed == number
            loader.set_epoch(0)
            assert [batch["x"].tolist() for batch in loader] == expected
            assert loader.stats().transform.threads == number
        assert len(loader.stats().workers) == begin + 2


def test_processes_are_never_more_than_at_first() -> None:
    with in_python("process").loader(memory=MEMORY, executor="process") as loader:
        workers = left_alone(loader)
        workers.employ(loader.plan.num_workers + 2)
        assert workers.employed == loader.plan.num_workers == loader.plan.pool.most_workers


def ledger(grown: int, now: int = 100) -> sp.MemoryLedger:
    owner = sp.MemoryOwner("slots", 0, now << 20, now << 20, None)
    growth = sp.MemoryOwner(GROWTH, 0, grown << 20, grown << 20, None)
    return sp.MemoryLedger(1000 << 20, (owner,), (), (growth,), now << 20)


def test_threads_may_be_as_many_as_the_memory_has_room_for() -> None:
    room = Headroom()
    assert room.most(2, ledger(grown=400), 0) == 2 + 500 // 200  # all that it has grown by may be theirs
    assert room.most(4, ledger(grown=440), 0) == 4 + 460 // 20  # no: it is 20 MiB each
    assert room.most(2, ledger(grown=440), 0) == 2 + 460 // 20
    assert room.most(27, ledger(grown=950), 0) == 27  # no more
    assert room.most(27, ledger(grown=2000), 1000 << 20) > 27  # memory= doesn't count what functions take
    assert Headroom().most(2, ledger(grown=0), 0) > 1000


def test_workers_are_measured_in_the_same_seconds_as_their_work() -> None:
    """In a second, two workers work 0.97 s each, while the loop's counters grow by whole batches of 0.4 s."""
    for ended in (2, 3):
        step = sp.StepStats(steps=ended, rows=ended * 8, step_s=0.1 * ended, wait_s=0.3 * ended)
        worked = sp.PlaceStats(busy_s=1.94, cpu_s=0.97)
        seen = seen_in(sp.Stats(time_s=1.0, step=step, transform=worked), 2, 5.0)
        assert seen.busy == pytest.approx(0.97)
        assert seen.wait_share == pytest.approx(0.75)
        assert seen.rows_per_s == pytest.approx(20)
        assert seen.on_cpu == pytest.approx(0.5)


def window(*steps_s: float) -> sp.Stats:
    counts = [0] * BUCKETS
    for step_s in steps_s:
        counts[latency_bucket(int(step_s * 1e9))] += 1
    return sp.Stats(
        step=sp.StepStats(steps=len(steps_s), step_s=sum(steps_s), step=sp.Latency(tuple(counts)))
    )


def test_a_window_with_one_long_step_is_odd() -> None:
    assert is_odd(window(0.01, 0.01, 0.01, 0.01, 5.0))
    assert not is_odd(window(0.01, 0.02, 0.03, 0.01, 0.04))
    assert not is_odd(window(*[0.01] * 100, 0.5))  # of half the time or more it would be
    assert not is_odd(window())
