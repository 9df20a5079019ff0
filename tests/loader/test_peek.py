"""``peek()``: a copy of the next batch, and a run that goes on as if nobody had looked."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S, Watched, numbers, write_photos
from preloaded import SERVER
from standpipe.spec import AnyArray

MEMORY = "64MiB"
SETTINGS: dict[str, Any] = {"memory": MEMORY, "num_workers": 1}
GROWING: Any = sp.Schedule({0: 8, 1: 16})


def plain(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def epochs(loader: sp.Loader, number: int = 2) -> list[dict[str, Any]]:
    return [plain(batch) for _ in range(number) for batch in loader]


def with_text(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "text": ["no", int(sample["x"][0])]}


def double(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "more": 2 * batch["x"]}


def pipelines(folder: Path) -> dict[str, sp.Pipeline]:
    photos = sp.Pipeline(write_photos(folder, 10)).shuffle(seed=3)
    return {
        "native": photos.map(sp.RandomResizedCrop(8), sp.Normalize()).batch(4),
        "growing": photos.map(sp.CenterCrop(GROWING)).batch(4),
        "padded": sp.Pipeline(numbers(10)).batch(4),
        "lists": sp.Pipeline(numbers(10)).map(with_text).batch(4, last_batch="partial"),
        "functions": sp.Pipeline(numbers(10)).batch(4, last_batch="partial").map_batch(double),
        "stream": sp.Pipeline(sp.IterableSource(lambda: iter({"x": x} for x in range(10)))).batch(4),
    }


NAMES = ["native", "growing", "padded", "lists", "functions", "stream"]  # the first three need no Python


@pytest.mark.parametrize(
    ("name", "executor"),
    [(name, "thread") for name in NAMES]
    + [(name, executor) for name in NAMES[3:] for executor in ("inline", "process")],
)
def test_a_look_changes_no_batch_no_state_and_no_count(name: str, executor: Any, tmp_path: Path) -> None:
    pipeline = pipelines(tmp_path)[name]
    settings = {**SETTINGS, "memory": "512MiB", "executor": executor, "mp_context": SERVER}
    with pipeline.loader(**settings) as whole, pipeline.loader(**settings) as loader:
        expected, seen = epochs(whole), []
        for _ in range(2):
            iterator = iter(loader) if seen else None
            while True:
                before = loader.state_dict(), loader.stats().step, loader.stats().slots.lent, loader.epoch
                shown: Any = None
                with contextlib.suppress(sp.StandpipeError):  # the end of a stream, which next() finds too
                    shown = loader.peek()
                    assert plain(shown) == plain(loader.peek())
                if iterator is not None:
                    stats = loader.stats()
                    assert before == (loader.state_dict(), stats.step, stats.slots.lent, loader.epoch)
                iterator = iter(loader) if iterator is None else iterator
                batch = next(iterator, None)
                if batch is None:
                    assert shown is None or loader.state_dict()["consumed"] == 0
                    break
                assert plain(batch) == plain(shown)
                seen.append(plain(batch))
        assert seen == expected


def test_a_look_before_training_leaves_a_schedule_its_epochs(tmp_path: Path) -> None:
    pipeline = pipelines(tmp_path)["growing"]
    with pipeline.loader(**SETTINGS) as loader:
        assert loader.peek()["image"].shape == (4, 8, 8, 3)
        assert [{batch["image"].shape[1] for batch in loader} for _ in range(2)] == [{8}, {16}]


def test_the_copy_is_the_callers(tmp_path: Path) -> None:
    pipeline = pipelines(tmp_path)["lists"]
    with pipeline.loader(**SETTINGS, executor="thread") as loader, pipeline.loader(**SETTINGS) as whole:
        copies = [loader.peek() for _ in range(50)]  # more than there are slots
        assert loader.stats().slots.lent == 0
        for copy in copies:
            copy["x"][:] = -1
            copy["text"].clear()
        assert epochs(loader) == epochs(whole)
    assert (copies[0]["x"] == -1).all()


def at(loader: sp.Loader) -> int:
    """The first record of the batch that ``peek`` shows."""
    return int(loader.peek()["index"][0])


def test_the_next_batch_is_that_of_the_iterator_or_else_of_the_next_one() -> None:
    source = sp.Pipeline(sp.Arrays(x=np.arange(6))).shuffle(seed=1).batch(2)
    first, second, third = ([batch["index"][0] for batch in epoch] for epoch in planned(source, 3))
    with source.loader(**SETTINGS) as loader:
        iterator = iter(loader)
        assert at(loader) == first[0]
        next(iterator)
        assert at(loader) == first[1]
        state = loader.state_dict()
        del iterator
        assert at(loader) == second[0]  # the epoch was left
        assert loader.state_dict() == state
        assert [batch["index"][0] for batch in loader] == second
        assert at(loader) == third[0]
        loader.set_epoch(1)
        assert at(loader) == second[0]
        loader.load_state_dict(state)
        assert at(loader) == first[1]
        assert [batch["index"][0] for batch in loader] == first[1:]
        assert at(loader) == second[0]
    with source.loader(**SETTINGS) as loader:
        found = [batch["index"][0] for batch in loader.steps(1)]
        assert at(loader) == first[1]
        found += [batch["index"][0] for batch in loader.steps(3)]
        assert found == [*first, second[0]]
        assert at(loader) == second[1]
        loader.skip_steps(1)
        assert at(loader) == second[2]


def planned(pipeline: sp.Pipeline, number: int) -> Iterator[list[dict[str, Any]]]:
    with pipeline.loader(**SETTINGS) as loader:
        for _ in range(number):
            yield [plain(batch) for batch in loader]


def test_what_was_made_ahead_is_kept() -> None:
    asked: list[int] = []

    def watch(rows: AnyArray) -> None:
        asked.extend(rows.tolist())

    with sp.Pipeline(Watched(numbers(12), watch)).batch(2).loader(**SETTINGS, prefetch=2) as loader:
        loader.peek()
        iterator = iter(loader)
        for number in range(6):
            for _ in range(2):
                loader.peek()
            assert next(iterator)["index"].tolist() == [2 * number, 2 * number + 1]
        assert asked[:12] == list(range(12))


def test_a_bad_sample_counts_when_it_is_delivered() -> None:
    def odd(x: Any) -> Any:
        if x[0] == 3:
            raise ValueError("no")
        return x

    pipeline = sp.Pipeline(numbers(8)).map(odd, field="x").batch(4)
    with pipeline.on_error(sp.Replace(at_most=1)).loader(**SETTINGS, executor="thread") as loader:
        assert loader.peek()["index"].tolist() != [0, 1, 2, 3]
        assert (loader.bad_samples, loader.state_dict()["bad_rows"]) == ([], 0)
        next(iter(loader))
        assert [bad.index for bad in loader.bad_samples] == [1]


@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_a_batch_that_cannot_be_made_is_the_same_error_and_tried_again(executor: Any) -> None:
    fails = [True]

    def sometimes(x: Any) -> Any:
        if fails[0]:
            raise ValueError("not now")
        return x

    pipeline = sp.Pipeline(numbers(4)).map(sometimes, field="x").batch(2)
    with pipeline.loader(**SETTINGS, executor=executor) as loader:
        for _ in range(2):
            with pytest.raises(sp.TransformError, match="not now"):
                loader.peek()
        fails[0] = False
        assert loader.peek()["index"].tolist() == [0, 1]
        assert [batch["index"].tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_where_there_is_nothing_to_see() -> None:
    stream = sp.Pipeline(sp.IterableSource(lambda: iter({"x": x} for x in range(4)))).batch(2)
    with stream.loader(**SETTINGS, executor="thread") as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        with pytest.raises(sp.StandpipeError, match="epoch 0 has no next batch: the stream has ended"):
            loader.peek()
        assert list(iterator) == []
        assert loader.peek()["x"].tolist() == [0, 1]  # of epoch 1
        assert loader.epoch == 1
    with pytest.raises(sp.StandpipeError, match="the loader is closed"):
        loader.peek()
    named = sp.Pipeline(numbers(4)).batch(2, batch_sampler=True)
    with named.loader(**SETTINGS) as loader, pytest.raises(sp.PlanError, match="from_batches"):
        loader.peek()


def test_a_look_beside_a_thread_inside_next_is_an_error() -> None:
    waits, go_on = threading.Event(), threading.Event()

    def block(_: AnyArray) -> None:
        waits.set()
        assert go_on.wait(WAIT_S)

    with sp.Pipeline(Watched(numbers(8), block)).batch(2).loader(**SETTINGS) as loader:
        iterator = iter(loader)
        taker = threading.Thread(target=next, args=(iterator,))
        taker.start()
        assert waits.wait(WAIT_S)
        while not loader._turn:  # private: that the other thread is inside next(), which nothing else tells
            threading.Event().wait(0)
        with pytest.raises(sp.StandpipeError, match="another thread is inside next"):
            loader.peek()
        go_on.set()
        taker.join()
        assert loader.peek()["index"].tolist() == [2, 3]


def test_the_log_says_once_what_iter_does(caplog: pytest.LogCaptureFixture) -> None:
    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    with sp.Pipeline(numbers(8)).batch(2).loader(**SETTINGS) as loader:
        loader.peek()
        list(loader)
        for _, _ in zip(range(3), loader, strict=False):  # left after three
            pass
        loader.steps(2)
        state = loader.state_dict()
        loader.set_epoch(5)
        next(iter(loader))
        loader.set_epoch(7)
        next(iter(loader))
        loader.load_state_dict(state)
        list(loader)
        assert said() == []
        next(iter(loader))
        assert said() == []  # only the next iter() leaves anything out
        next(iter(loader))
        (line,) = said()
        assert "this iter() begins epoch 3, and epoch 2 was left after its first batch" in line
        assert "use peek()" in line
        next(iter(loader))
        assert len(said()) == 1
    with sp.Pipeline(numbers(2)).batch(2).loader(**SETTINGS) as loader:  # an epoch is one batch
        for _ in range(3):
            next(iter(loader))
    with sp.Pipeline(numbers(8)).batch(2, batch_sampler=True).loader(**SETTINGS) as loader:
        for _ in range(3):
            next(loader.from_batches([[1], [2]]))
    assert len(said()) == 1
