"""Streams: their own order and resume, and what they refuse."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from preloaded import SERVER

EXECUTORS = [
    pytest.param({"executor": "inline"}, id="inline"),
    pytest.param({"executor": "thread", "num_workers": 3}, id="threads"),
    pytest.param({"executor": "process", "num_workers": 2, "mp_context": SERVER}, id="processes"),
]
COUNT = 22


def numbers() -> Iterator[int]:
    yield from range(COUNT)


def of_epoch(epoch: int, skip: int) -> Iterator[int]:
    yield from range(1000 * epoch + skip, 1000 * epoch + COUNT)


def of_rank(rank: int, world_size: int) -> Iterator[int]:
    yield from range(rank, 24, world_size)


def stream(factory: Any = numbers, **options: Any) -> sp.Pipeline:
    return sp.Pipeline(sp.IterableSource(factory, fields="x", **options))


def seen(loader: sp.Loader, epochs: int = 1) -> list[list[list[int]]]:
    return [[batch["x"].tolist() for batch in loader] for _ in range(epochs)]


WHOLE = [list(range(start, min(start + 5, COUNT))) for start in range(0, COUNT, 5)]


@pytest.mark.parametrize("settings", EXECUTORS)
@pytest.mark.parametrize("length", [None, COUNT])
def test_every_epoch_is_the_stream(settings: dict[str, Any], length: int | None) -> None:
    with stream(length=length).batch(5).loader(**settings) as loader:
        assert seen(loader, 3) == [WHOLE] * 3
    with stream(length=length).batch(5, last_batch="drop").loader(**settings) as loader:
        assert seen(loader, 2) == [WHOLE[:-1]] * 2


@pytest.mark.parametrize("settings", EXECUTORS)
def test_a_whole_last_batch(settings: dict[str, Any]) -> None:
    with stream().batch(11).loader(**settings) as loader:
        assert [len(batches) for batches in seen(loader, 3)] == [2, 2, 2]


@pytest.mark.parametrize("settings", EXECUTORS)
def test_epoch_and_skip_reach_the_factory(settings: dict[str, Any]) -> None:
    with stream(of_epoch).batch(5).loader(**settings) as loader:
        first, second = seen(loader, 2)
    assert first == WHOLE
    assert second == [[1000 + number for number in batch] for batch in WHOLE]


@pytest.mark.parametrize("settings", EXECUTORS)
@pytest.mark.parametrize("factory", [numbers, of_epoch])
@pytest.mark.parametrize("steps", [0, 1, 3, 4, 5, 7])
def test_resumes_at_the_same_sample(factory: Any, steps: int, settings: dict[str, Any]) -> None:
    pipeline = stream(factory).map(lambda x, rng: 100 * x + rng.integers(100), field="x").batch(5)
    with pipeline.loader(executor="inline") as loader:
        expected = [batch["x"].tolist() for batch in loader.steps(10)]
    with pipeline.loader(executor="thread") as loader:
        taken = [batch["x"].tolist() for batch in loader.steps(steps)]
        state = loader.state_dict()
    with pipeline.loader(**settings) as loader:
        loader.load_state_dict(state)
        rest = [batch["x"].tolist() for batch in loader.steps(10 - steps)]
    assert taken + rest == expected


@pytest.mark.parametrize("settings", EXECUTORS)
@pytest.mark.parametrize("last_batch", ["partial", "drop"])
@pytest.mark.parametrize("factory", [numbers, of_epoch])
def test_resumes_where_the_stream_ends(factory: Any, last_batch: Any, settings: dict[str, Any]) -> None:
    """A last batch that is full doesn't say that it is the last one."""
    pipeline = stream(factory).batch(11, last_batch=last_batch)
    with pipeline.loader(executor="inline") as loader:
        expected = [batch["x"].tolist() for batch in loader.steps(4)]
    with pipeline.loader(executor="inline") as loader:
        taken = [batch["x"].tolist() for batch in loader.steps(2)]
        state = loader.state_dict()
    with pipeline.loader(**settings) as loader:
        loader.load_state_dict(state)
        assert taken + [batch["x"].tolist() for batch in loader.steps(2)] == expected
    with pipeline.loader(**settings) as loader:
        loader.load_state_dict(state)
        assert seen(loader, 2) == [[], expected[2:]]


def test_ranks_have_parts_of_their_own() -> None:
    found = []
    for rank in range(2):
        pipeline = stream(of_rank, length=12).shard(rank, 2).batch(4)
        with pipeline.loader(executor="thread") as loader:
            assert len(loader) == 3
            (batches,) = seen(loader)
        found += [number for batch in batches for number in batch]
    assert sorted(found) == list(range(24))


@pytest.mark.parametrize("settings", EXECUTORS)
def test_functions_see_the_shorter_last_batch(settings: dict[str, Any]) -> None:
    pipeline = stream().batch(5).map_batch(lambda batch: {**batch, "n": len(batch["x"])})
    with pipeline.loader(**settings) as loader:
        assert [batch["n"] for batch in loader] == [5, 5, 5, 5, 2]
    gathered = stream().batch(5, collate_fn=lambda samples: {"x": np.array(samples)})
    with gathered.loader(**settings) as loader:
        assert seen(loader, 2) == [WHOLE] * 2


def test_texts_and_lengths() -> None:
    pipeline = sp.Pipeline(sp.IterableSource(lambda: iter(["a", "bb", "ccc"]), fields="text")).batch(2)
    with pipeline.loader(executor="thread") as loader:
        assert [batch["text"] for batch in loader] == [["a", "bb"], ["ccc"]]
        with pytest.raises(TypeError, match=r"IterableSource\(length=…\)"):
            len(loader)
    text = pipeline.plan().explain()
    assert "how many samples shows at its end" in text
    assert "until the stream ends" in text


@pytest.mark.parametrize("settings", EXECUTORS)
def test_streams_that_end_too_soon(settings: dict[str, Any]) -> None:
    with (
        stream(length=COUNT + 3).batch(5).loader(**settings) as loader,
        pytest.raises(sp.SampleError, match=f"ends after {COUNT} of length={COUNT + 3} samples"),
    ):
        seen(loader)
    with (
        stream(lambda: iter(())).batch(5).loader(**settings) as loader,
        pytest.raises(sp.SampleError, match="the stream ends after 0 samples"),
    ):
        seen(loader)
    with (
        stream().batch(50, last_batch="drop").loader(**settings) as loader,
        pytest.raises(
            sp.PlanError,
            match=r'fewer samples than a batch of 50\. Use a smaller batch or last_batch="partial"',
        ),
    ):
        seen(loader)


def test_a_stream_that_fails_names_the_sample() -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise OSError("the tape is torn")

    with (
        stream(fails).batch(5).loader(executor="thread") as loader,
        pytest.raises(sp.SampleError, match="OSError: the tape is torn") as caught,
    ):
        seen(loader)
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: stream().shuffle(seed=1), r"combined with shuffle\(\). Do that inside the factory"),
        (lambda: stream().take(3), "combined with selections"),
        (lambda: stream().repeat_each(2), r"combined with repeat_each\(\)"),
        (lambda: stream().shard(0, 2), r"a stream for 2 ranks needs IterableSource\(factory, length=…\)"),
        (lambda: stream(of_rank).shard(0, 2), "needs Iterable"),
        (lambda: stream([1, 2]), "give a function that returns it"),
        (lambda: stream(3), "give a function"),
        (lambda: stream(length=0), "length=0"),
    ],
)
def test_what_cannot_work(make: Any, text: str) -> None:
    with pytest.raises(sp.PlanError, match=text):
        make().batch(5).plan()
    with pytest.raises(sp.PlanError, match="last_batch"):
        stream().batch(5, last_batch="pad").plan()
    with pytest.raises(sp.PlanError, match="can't count the records of a stream"):
        stream().batch(5).audit()
