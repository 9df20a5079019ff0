"""Samples that Python code makes, with a cache: the same batches from every executor, and no draw that is frozen."""

import functools
import logging
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import standpipe as sp
from photos import LONG_AGO_NS, age, encoded, picture, write_list
from preloaded import TORCH
from programs import LIMIT_S
from samples import Samples
from standpipe.cache.sets.sets import open_set

MEMORY = "512MiB"
ROWS = 12
EXECUTORS = ("thread", "process", "inline")

Build = Callable[[Path, sp.Cache | None], sp.Pipeline]


@pytest.fixture
def cache(tmp_path: Path) -> sp.Cache:
    (tmp_path / "rows").mkdir()
    return sp.Cache("test", memory="32MiB", directory=tmp_path / "rows", strict=True)


def photos(folder: Path) -> sp.Pipeline:
    if not (folder / "list.txt").exists():
        write_list(folder, [encoded(picture(seed, 40 + seed, 64)) for seed in range(ROWS)])
        age(*folder.glob("*.jpg"))
    return sp.Pipeline(sp.FileList(folder / "list.txt"), seed=3).shuffle(seed=3)


def given(index: int) -> dict[str, Any]:
    return {"image": picture(index, 20, 24), "label": index, "weight": np.float32(index / 7)}


def pair(index: int) -> tuple[Any, int]:
    return torch.arange(6) * index, index


def dataset(sample: Callable[[int], Any]) -> sp.Pipeline:
    return sp.Pipeline(sp.MapSource(Samples(sample, ROWS)), seed=3).shuffle(seed=3)


def darker(image: Any) -> Any:
    return image // 2


def jittered(image: Any, rng: np.random.Generator) -> Any:
    return image + rng.integers(0, 9, image.shape, np.uint8)


def drawn(image: Any) -> Any:
    return image + np.uint8(random.randrange(9)) + np.uint8(np.random.randint(9))  # noqa: NPY002


def stacked(samples: list[tuple[Any, int]]) -> dict[str, Any]:
    assert all(type(sample) is tuple and type(sample[0]) is torch.Tensor for sample in samples)
    return {"x": torch.stack([x for x, _ in samples]), "y": np.array([y for _, y in samples])}


def kept(pipeline: sp.Pipeline, cache: sp.Cache | None) -> sp.Pipeline:
    return pipeline if cache is None else pipeline.cache(cache)


EVAL = (sp.Resize((32, 36)), sp.CenterCrop(28))
IMAGE = functools.partial(sp.Pipeline.map, field="image")
GLOBALLY = "what draws globally behind it"
PLACES: dict[str, Build] = {
    "a dataset": lambda _, cache: IMAGE(kept(dataset(given), cache), jittered),
    "a dataset and a function": lambda _, cache: IMAGE(
        kept(IMAGE(dataset(given), darker), cache), jittered
    ).map(sp.RandomHorizontalFlip(), sp.Normalize()),
    "a dataset, and native steps around": lambda _, cache: kept(
        dataset(given).map(sp.Resize((16, 16))), cache
    ).map(sp.RandomResizedCrop(8), sp.ToLayout("NCHW")),
    "tuples for a collate_fn": lambda _, cache: kept(dataset(pair), cache).batch(3, collate_fn=stacked),
    GLOBALLY: lambda _, cache: IMAGE(kept(dataset(given), cache), drawn),
    "files": lambda folder, cache: IMAGE(kept(photos(folder), cache).map(*EVAL), jittered),
    "files, random from the start": lambda folder, cache: IMAGE(
        kept(photos(folder), cache).map(sp.RandomResizedCrop(24), sp.RandomHorizontalFlip()), jittered
    ),
    "images": lambda folder, cache: IMAGE(kept(photos(folder).map(*EVAL), cache), jittered),
    "images of any size": lambda folder, cache: IMAGE(
        kept(photos(folder).map(sp.Resize(30)), cache).map(sp.RandomResizedCrop(24)), jittered
    ),
    "decoded images": lambda folder, cache: kept(IMAGE(photos(folder), darker), cache).map(*EVAL),
    "images and a function": lambda folder, cache: kept(IMAGE(photos(folder).map(*EVAL), darker), cache).map(
        sp.RandomHorizontalFlip(), sp.Normalize()
    ),
    "behind Normalize": lambda folder, cache: IMAGE(
        kept(photos(folder).map(*EVAL, sp.Normalize()), cache), np.negative
    ),
    "behind everything": lambda folder, cache: kept(IMAGE(photos(folder).map(*EVAL), darker), cache),
}


def epochs(
    pipeline: sp.Pipeline, executor: Any, many: int = 2, num_workers: int = 2
) -> tuple[list[dict[str, Any]], sp.Stats]:
    """Batches of so many epochs, and the counters after them."""
    with pipeline.batch(4).loader(
        memory=MEMORY, num_workers=num_workers, executor=executor, mp_context=TORCH
    ) as loader:
        found = [
            {name: np.array(value) for name, value in batch.items()} for _ in range(many) for batch in loader
        ]
        return found, loader.stats()


def assert_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert list(left) == list(right)
        for name, value in left.items():
            assert value.dtype == right[name].dtype
            assert value.tobytes() == right[name].tobytes(), name


@pytest.mark.parametrize(
    ("place", "executor"),
    [
        *(
            # A thread of ours makes samples as the caller's thread does.
            pytest.param(place, executor, marks=pytest.mark.long if executor == "inline" else ())
            for place in PLACES
            for executor in EXECUTORS
            if place != GLOBALLY
        ),
        (GLOBALLY, "process"),  # elsewhere such draws are the trainer's own
    ],
)
def test_batches_are_the_same_with_and_without(
    tmp_path: Path, cache: sp.Cache, place: str, executor: str
) -> None:
    build = PLACES[place]
    expected, _ = epochs(build(tmp_path, None), executor)
    found, stats = epochs(build(tmp_path, cache), executor)
    assert_same(found, expected)
    assert stats.cache_stored == ROWS
    assert stats.cache_hits > ROWS / 2  # a row may be asked for again while it is being made
    found, stats = epochs(build(tmp_path, cache), executor, num_workers=1)
    assert_same(found, expected)
    assert (stats.cache_stored, stats.cache_misses, stats.cache_errors) == (0, 0, 0)
    assert stats.cache_hits >= 2 * ROWS


@pytest.mark.parametrize("executor", EXECUTORS)
def test_files_are_shared_with_native_threads(tmp_path: Path, cache: sp.Cache, executor: str) -> None:
    source = photos(tmp_path).cache(cache)
    with source.map(*EVAL).batch(4).loader(memory=MEMORY) as loader:
        list(loader)
        assert loader.stats().cache_stored == ROWS
    _, stats = epochs(IMAGE(source.map(*EVAL), darker), executor)
    assert (stats.cache_misses, stats.cache_stored) == (0, 0)


def from_python(sample: Any) -> Any:
    return {**sample, "extra": random.random()}


def from_numpy(sample: Any) -> Any:
    return {**sample, "extra": np.random.random()}  # noqa: NPY002


def from_torch(sample: Any) -> Any:
    return {**sample, "extra": float(torch.rand(()))}


def from_torch_like(sample: Any) -> Any:
    return {**sample, "extra": float(torch.rand_like(torch.zeros(())))}


def from_the_system(sample: Any) -> Any:
    return {**sample, "extra": np.random.default_rng().random()}


def random_sample(index: int) -> Any:
    return {"label": index, "x": random.random()}


@pytest.mark.parametrize("fn", [from_python, from_numpy, from_torch, from_torch_like])
def test_a_function_that_draws_before_the_cache_is_named(cache: sp.Cache, fn: Any) -> None:
    pipeline = dataset(given).map(fn).cache(cache).on_error(sp.Replace(at_most=1.0))
    with pytest.raises(sp.PlanError, match=rf"{fn.__name__} uses random numbers.*\.cache\(…\) before it"):
        epochs(pipeline, "process")
    assert rows_there(pipeline) == 0


@pytest.mark.parametrize("executor", ["thread", "inline"])
@pytest.mark.parametrize("fn", [from_python, from_numpy, from_torch, from_torch_like])
def test_what_draws_in_this_process_before_the_cache_is_refused(
    cache: sp.Cache, executor: str, fn: Any
) -> None:
    """Nobody looks at its generators, but the first sample is made twice."""
    pipeline = dataset(given).map(fn).cache(cache).on_error(sp.Replace(at_most=1.0))
    with pytest.raises(sp.PlanError, match="makes something else of a record each time"):
        epochs(pipeline, executor)
    assert rows_there(pipeline) == 0


def test_a_dataset_that_draws_is_named(cache: sp.Cache) -> None:
    with pytest.raises(sp.PlanError, match="the dataset uses random numbers"):
        epochs(dataset(random_sample).cache(cache), "process")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_is_never_the_same_twice_is_refused(cache: sp.Cache, executor: str) -> None:
    with pytest.raises(sp.PlanError, match="makes something else of a record each time"):
        epochs(dataset(given).map(from_the_system).cache(cache), executor)


def draws_late(sample: Any) -> Any:
    return {**sample, "x": random.random() if sample["label"] == 7 else 0.5}


def test_a_row_that_draws_isnt_kept_wherever_it_comes(cache: sp.Cache) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Samples(given, ROWS))).map(draws_late).cache(cache)
    pipeline = pipeline.on_error(sp.Replace(at_most=1.0))  # no other sample helps
    with pytest.raises(sp.PlanError, match="draws_late uses random numbers"):
        epochs(pipeline, "process")
    assert not is_there(pipeline, 7)
    assert is_there(pipeline, 0)


def row_of(pipeline: sp.Pipeline, record: int) -> Any:
    """What is kept of a record, or None."""
    plan = pipeline.batch(4).plan(memory=MEMORY).cache
    assert plan is not None
    with open_set(plan.cache, plan.identity, records=ROWS, kind="samples", row_bytes=None) as found:
        return found.store.get(record)


def is_there(pipeline: sp.Pipeline, record: int) -> bool:
    return row_of(pipeline, record) is not None


def test_images_are_kept_as_bytes_wherever_normalize_stands(tmp_path: Path, cache: sp.Cache) -> None:
    pipeline = PLACES["behind Normalize"](tmp_path, cache)
    epochs(pipeline, "inline", many=1)
    assert 0 < len(row_of(pipeline, 0)) - 28 * 28 * 3 < 64


@pytest.mark.parametrize("place", ["files", "images and a function"])
def test_rows_that_are_damaged_are_made_again(tmp_path: Path, cache: sp.Cache, place: str) -> None:
    build = PLACES[place]
    expected, _ = epochs(build(tmp_path, cache), "thread", many=1)
    for extent in (tmp_path / "rows").rglob("rows-*"):
        data = np.fromfile(extent, np.uint8)
        extent.write_bytes((data ^ 1).tobytes())
    for wrong in (True, False):
        found, stats = epochs(build(tmp_path, cache), "thread", many=1)
        assert_same(found, expected)
        assert (stats.cache_errors > 0) == (stats.cache_stored > 0) == wrong


def rows_there(pipeline: sp.Pipeline) -> int:
    return sum(is_there(pipeline, record) for record in range(ROWS))


def with_a_set(index: int) -> Any:
    return {"label": index, "words": {"a", "b"}}


def sometimes_with_a_set(index: int) -> Any:
    return {"label": index, "words": {"a"} if index == 5 else ["a"]}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_field_that_cant_be_kept_is_named_at_the_start(cache: sp.Cache, executor: str) -> None:
    with pytest.raises(sp.PlanError, match="the field 'words' is a set, which no cache keeps"):
        epochs(dataset(with_a_set).cache(cache), executor)


def test_a_sample_that_cant_be_kept_later_on_is_made_each_time(cache: sp.Cache) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Samples(sometimes_with_a_set, ROWS))).cache(cache)
    with pipeline.batch(4).loader(memory=MEMORY, executor="inline") as loader:
        for _ in range(2):
            words = [value for batch in loader for value in batch["words"]]
            assert words == [sometimes_with_a_set(index)["words"] for index in range(ROWS)]
        assert loader.stats().cache_stored == ROWS - 1


def times(by: int) -> Callable[[Any], Any]:
    def multiplied(sample: Any) -> Any:
        return {**sample, "label": sample["label"] * by}

    return multiplied


def plus(by: int) -> Callable[[Any], Any]:
    def multiplied(sample: Any) -> Any:
        return {**sample, "label": sample["label"] + by}

    return multiplied


def test_other_code_and_other_values_are_other_rows(cache: sp.Cache) -> None:
    for fn in (times(2), times(3), plus(2)):
        found, stats = epochs(dataset(given).map(fn).cache(cache), "thread", many=1)
        assert_same(found, epochs(dataset(given).map(fn), "thread", many=1)[0])
        assert stats.cache_stored == ROWS
    _, stats = epochs(dataset(given).map(times(3)).cache(cache), "thread", many=1)
    assert stats.cache_misses == 0


def write(path: Path, seed: int, at_ns: int) -> None:
    path.write_bytes(encoded(picture(seed, 50, 64)))
    age(path, at_ns=at_ns)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("place", ["files", "images", "images and a function"])
def test_a_changed_file_is_found_at_the_next_start(
    tmp_path: Path, cache: sp.Cache, place: str, executor: str
) -> None:
    build = PLACES[place]
    before, _ = epochs(build(tmp_path, cache), executor, many=1)
    write(tmp_path / "003.jpg", 99, LONG_AGO_NS + 1)
    found, stats = epochs(build(tmp_path, cache), executor, many=1)
    assert (stats.cache_stale, stats.cache_stored) == (1, 1)
    assert_same(found, epochs(build(tmp_path, None), executor, many=1)[0])
    assert any(
        one["image"].tobytes() != other["image"].tobytes() for one, other in zip(found, before, strict=True)
    )
    _, stats = epochs(build(tmp_path, cache), executor, many=1)
    assert (stats.cache_stale, stats.cache_misses) == (0, 0)


@pytest.mark.parametrize(("validate", "stale"), [("loader", 0), ("epoch", 1), ("never", 0)])
def test_a_file_that_changes_during_the_run(
    tmp_path: Path, cache: sp.Cache, validate: Any, stale: int
) -> None:
    pipeline = PLACES["images and a function"](tmp_path, replace(cache, validate=validate))
    with pipeline.batch(4).loader(memory=MEMORY, executor="inline") as loader:
        list(loader)
        write(tmp_path / "003.jpg", 99, LONG_AGO_NS + 1)
        list(loader)
        assert loader.stats().cache_stale == stale
    _, stats = epochs(pipeline, "inline", many=1)
    assert stats.cache_stale == (validate == "loader")


@pytest.mark.parametrize("place", ["files", "images and a function"])
def test_a_file_that_may_change_within_its_clocks_tick_is_made_again(
    tmp_path: Path, cache: sp.Cache, place: str
) -> None:
    build = PLACES[place]
    build(tmp_path, cache)
    os.utime(tmp_path / "003.jpg", ns=(2**62, 2**62))  # as new as can be
    for stale in (0, 1, 1):
        _, stats = epochs(build(tmp_path, cache), "thread", many=1)
        assert stats.cache_stale == stale
        assert stats.cache_stored == (stale or ROWS)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_large_file_that_is_kept_takes_its_turn_for_memory(
    tmp_path: Path, cache: sp.Cache, executor: str
) -> None:
    """As one that is read: more than a worker has room for comes out of the side arena."""
    large = encoded(picture(1, 64, 64)) + bytes(5 << 20)
    source = sp.Pipeline(write_list(tmp_path, [large]))
    age(*tmp_path.glob("*.jpg"))
    pipeline = IMAGE(source.cache(cache).map(*EVAL), darker).batch(1)
    for kept in (False, True):
        with pipeline.loader(memory=MEMORY, executor=executor, num_workers=1, mp_context=TORCH) as loader:
            until = time.monotonic() + LIMIT_S
            while (
                not (stats := loader.stats()).cache_stored and not stats.cache_hits
            ):  # room for such a row comes
                assert time.monotonic() < until
                list(loader)
        assert (stats.cache_misses == 0) == kept
        assert len(large) <= stats.side_peak_bytes < 2 * len(large)


def test_truncated_files_are_counted_when_they_are_found_too(tmp_path: Path, cache: sp.Cache) -> None:
    whole = encoded(picture(1, 64, 64), quality=95)
    source = sp.Pipeline(write_list(tmp_path, [whole, whole[: len(whole) * 2 // 3]])).decode(
        allow_truncated=True
    )
    age(*tmp_path.glob("*.jpg"))
    pipeline = IMAGE(source.map(*EVAL), darker).cache(cache)
    for misses in (2, 0):
        with pipeline.batch(2).loader(memory=MEMORY, executor="inline") as loader:
            next(iter(loader))
            stats = loader.stats()
        assert stats.truncated >= 1
        assert stats.cache_misses == misses


class Counting(Samples):
    """Writes down that it was asked."""

    def __getitem__(self, index: int) -> Any:
        asked.append(index)
        return super().__getitem__(index)


asked: list[int] = []


@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_a_dataset_isnt_asked_for_what_is_kept(cache: sp.Cache, executor: str) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Counting(given, ROWS))).cache(cache)
    epochs(pipeline, executor, many=1)
    assert set(asked) == set(range(ROWS))
    asked.clear()
    epochs(pipeline, executor)
    assert not asked


class DiesOnce(Samples):
    """The process that makes sample 5 first is killed over it."""

    def __init__(self, mark: Path) -> None:
        super().__init__(given, ROWS)
        object.__setattr__(self, "mark", mark)

    def __getitem__(self, index: int) -> Any:
        if index == 5 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_killed_worker_leaves_whole_rows(tmp_path: Path, cache: sp.Cache) -> None:
    pipeline = sp.Pipeline(sp.MapSource(DiesOnce(tmp_path / "mark"))).cache(cache)
    expected, _ = epochs(sp.Pipeline(sp.MapSource(Samples(given, ROWS))), "thread")
    found, stats = epochs(pipeline, "process")
    assert_same(found, expected)
    assert stats.deaths == 1
    found, stats = epochs(pipeline, "process")
    assert_same(found, expected)
    assert (stats.cache_misses, stats.cache_errors) == (0, 0)


def test_two_loaders_share_rows_while_they_run(tmp_path: Path, cache: sp.Cache) -> None:
    build = PLACES["images and a function"]
    expected, _ = epochs(build(tmp_path, None), "thread", many=1)
    settings: Any = {"memory": MEMORY, "num_workers": 1}
    with (
        build(tmp_path, cache).batch(4).loader(executor="thread", **settings) as one,
        build(tmp_path, cache).batch(4).loader(executor="process", **settings) as other,
    ):
        for left, right, batch in zip(one, other, expected, strict=True):
            assert left["image"].tobytes() == right["image"].tobytes() == batch["image"].tobytes()
        assert one.stats().cache_stored + other.stats().cache_stored == ROWS


def writes(image: Any) -> Any:
    image[0] = 0
    return image


def test_a_function_that_writes_into_a_kept_array_is_an_error_from_the_first_epoch_on(
    cache: sp.Cache,
) -> None:
    pipeline = IMAGE(dataset(given).cache(cache), writes)
    for _ in range(2):
        with pytest.raises(sp.TransformError, match="read-only"):
            epochs(pipeline, "thread", many=1)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_full_cache_is_said_once_and_training_goes_on(
    tmp_path: Path, cache: sp.Cache, executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    small = replace(cache, memory="24KiB")
    expected, _ = epochs(PLACES["a dataset"](tmp_path, None), executor)
    with caplog.at_level(logging.WARNING, "standpipe"):
        found, stats = epochs(PLACES["a dataset"](tmp_path, small), executor)
    assert_same(found, expected)
    assert stats.cache_skipped > 0
    assert [record.message for record in caplog.records if "keeps no more rows" in record.message][1:] == []
    assert "keeps no more rows" in caplog.text


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_mix_and_a_row_of_the_same_sources_share_nothing(
    tmp_path: Path, cache: sp.Cache, executor: str
) -> None:
    """Samples of a mix say which source they are of."""
    parts = [sp.Arrays(x=np.arange(8) + begin) for begin in (0, 100)]
    row, mix = sp.Concat(*parts), sp.Mixture({sp.Pipeline(part): 1 for part in parts})
    for source in (row, mix):
        plain = sp.Pipeline(source).map(_as_it_is)
        expected, _ = epochs(plain.batch(4), executor)
        assert_same(epochs(plain.cache(cache).batch(4), executor)[0], expected)


def _as_it_is(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_cache_that_cant_be_had(
    tmp_path: Path, cache: sp.Cache, executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rows" / f"standpipe-{os.geteuid()}").write_text("in the way")
    with pytest.raises(sp.CacheError):
        epochs(PLACES["a dataset"](tmp_path, cache), executor)
    with caplog.at_level(logging.WARNING, "standpipe"):
        found, stats = epochs(PLACES["a dataset"](tmp_path, replace(cache, strict=False)), executor)
    assert_same(found, epochs(PLACES["a dataset"](tmp_path, None), executor)[0])
    assert stats.cache_hits == 0
    assert caplog.text.count("goes on without a cache") == 1
