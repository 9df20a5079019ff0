"""PyTorch's own tests of its DataLoader, written anew where users would meet what they ask for.

``scripts/torch_tests`` runs PyTorch's whole file; docs/guide/drop-in.md lists those that fail, and why.
"""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data

import standpipe as sp
import standpipe.torch
from torchs import MEMORY, THREADS, Count, Of, Table, same


@pytest.fixture(scope="module", autouse=True)
def shared() -> Any:
    """A loader that keeps the process from which workers come, so that only one test waits for imports."""
    return standpipe.torch.DataLoader(Count())


class Missing(data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise FileNotFoundError("shard 3")


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"odd {one} {two}")


def fails(error: Callable[[], Exception]) -> Callable[[int], Any]:
    def sample(index: int) -> Any:
        raise error()

    return sample


def fails_in_init(worker: int) -> None:
    raise RuntimeError("Error in worker_init_fn")


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_are_of_the_type_that_the_dataset_raised(workers: int) -> None:
    """TestDataLoader.test_error, test_error_workers, test_error_in_init."""
    for dataset, kind in (
        (data.Dataset[Any](), NotImplementedError),
        (Missing(), FileNotFoundError),
        (Of(fails(lambda: KeyError("label"))), KeyError),
    ):
        sampler = None if isinstance(dataset, Missing) else [0, 1]
        made = standpipe.torch.DataLoader(dataset, sampler=sampler, num_workers=min(workers, 1), **MEMORY)
        with pytest.raises(kind, match=r"\(source, record 0\)$") as error:
            next(iter(made))
        assert isinstance(error.value, sp.SampleError)
        assert isinstance(error.value.__cause__, kind)
        told = "".join(getattr(error.value.__cause__, "__notes__", []))
        assert ("In the worker" in told) == (workers > 0)
        assert str(Path(sp.__file__).parent) not in told  # the traceback begins with the user's code
        assert error.value.index == 0


def test_a_type_of_error_that_cant_be_a_sample_error_too_is_the_cause() -> None:
    for made in (lambda: Odd(1, 2), StopIteration):
        loader = standpipe.torch.DataLoader(Of(fails(made)), 2)
        with pytest.raises(sp.SampleError) as error:
            next(iter(loader))
        assert isinstance(error.value.__cause__, type(made()))


def test_an_error_of_worker_init_fn_is_of_its_type() -> None:
    """TestDataLoader.test_error_in_init."""
    loader = standpipe.torch.DataLoader(Table(), num_workers=1, worker_init_fn=fails_in_init, **MEMORY)
    with pytest.raises(RuntimeError, match="Error in worker_init_fn"):
        list(loader)


def test_a_sample_that_hangs_is_a_runtime_error() -> None:
    """TestDataLoader.test_timeout."""
    never = threading.Event()
    loader = standpipe.torch.DataLoader(
        Of(lambda index: never.wait()), 2, num_workers=1, timeout=1, **THREADS
    )
    try:
        with pytest.raises(
            RuntimeError, match=r"DataLoader timed out after \d+ seconds: record 0 "
        ) as caught:
            list(loader)
        assert str(caught.value).endswith("; timeout= says how long is too long")
    finally:
        never.set()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_without_records_fails_when_it_comes_and_no_other_does(workers: int) -> None:
    for kind in (data.DataLoader, standpipe.torch.DataLoader):
        more = THREADS if workers and kind is not data.DataLoader else {}
        batches = iter(kind(Table(), batch_sampler=[[1], [], [2]], num_workers=workers, **more))
        assert next(batches)[1].tolist() == [1]
        with pytest.raises(IndexError, match="list index out of range") as error:
            next(batches)
        assert next(batches)[1].tolist() == [2]
        assert next(batches, None) is None
    assert error.value.__notes__ == [
        "the sampler named a batch without records, for which collate_fn got an empty list"
    ]


@pytest.mark.parametrize("settings", [THREADS, MEMORY], ids=["threads", "processes"])
def test_a_key_that_is_no_integer_is_named_alone(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caught: list[str] = []
    never = threading.Event()
    samples = functools.partial(make_or_fail, never.wait if settings is THREADS else wait_for_ever)
    for key in ("bad", "hang", *(["die"] if settings is MEMORY else [])):
        loader = standpipe.torch.DataLoader(
            Of(samples), 2, sampler=["good", key], num_workers=1, timeout=1, slow_sample_s=0.5, **settings
        )
        with pytest.raises((sp.SampleError, sp.StalledError, sp.WorkerDiedError)) as error:
            list(loader)
        assert (error.value.index, error.value.path) == (key, None)
        caught.append(str(error.value))
    never.set()
    assert caught[0].endswith("(source, key 'bad')")
    assert "seconds: key 'hang' was not done after" in caught[1]
    assert caught[2:] == [] or "while it made key 'die'" in caught[2]
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if text.startswith("key 'hang' has taken")]
    assert re.findall(r"\d{13}", "".join([*caught, *told])) == []


@pytest.mark.parametrize("key", ["bad", ("bad", 1), ["bad"]], ids=repr)
@pytest.mark.parametrize("workers", [0, 1])
def test_an_errors_index_is_the_key_that_the_sampler_named(key: Any, workers: int) -> None:
    more = THREADS if workers else {}
    dataset = Of(fails(lambda: KeyError("label")))
    loader = standpipe.torch.DataLoader(dataset, 1, sampler=[key], num_workers=workers, **more)
    with pytest.raises(KeyError, match=re.escape(f"(source, key {key!r})")) as error:
        next(iter(loader))
    assert isinstance(error.value, sp.SampleError)
    assert (error.value.index, error.value.path) == (key, None)


def wait_for_ever() -> None:
    threading.Event().wait()


def make_or_fail(hang: Callable[[], object], key: str) -> torch.Tensor:
    if key == "bad":
        raise ValueError(key)
    if key == "hang":
        hang()
    if key == "die":
        os._exit(3)
    return torch.zeros(3)


class Late:
    """Takes longer than a second to be rebuilt in another process."""

    def __getitem__(self, index: int) -> int:
        return index

    def __reduce__(self) -> Any:
        return late, ()


def late() -> Late:
    begin = time.process_time()
    while time.process_time() < begin + 1.5:
        pass
    return Late()


def test_the_start_of_workers_is_no_sample_that_takes_too_long() -> None:
    """TestIndividualWorkerQueue.test_ind_worker_queue."""
    dataset: Any = Late()
    loader = standpipe.torch.DataLoader(dataset, sampler=[4], num_workers=1, timeout=1, **MEMORY)
    assert [batch.tolist() for batch in loader] == [[4]]


def test_a_worker_that_dies_is_a_runtime_error() -> None:
    """TestDataLoader.test_segfault."""
    loader = standpipe.torch.DataLoader(
        Of(lambda index: os.kill(os.getpid(), signal.SIGKILL)), 2, num_workers=1, **MEMORY
    )
    with pytest.raises(RuntimeError, match="was killed by SIGKILL"):
        list(loader)


class Drawing(data.Dataset[Any]):
    """Samples of random numbers: of global generators, and of one that ``worker_init_fn`` makes."""

    rng: Any = None

    def __init__(self, kind: Callable[[torch.Tensor], Any] = lambda numbers: numbers) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 17

    def __getitem__(self, index: int) -> Any:
        drawn = (np.random.random(), random.random(), self.rng.random())  # noqa: NPY002
        return index, drawn, self.kind(torch.rand(2))


def seed_worker(worker: int) -> None:
    """As torch's notes on reproducibility have it, and a generator of the dataset's own."""
    info: Any = data.get_worker_info()
    info.dataset.rng = np.random.default_rng(worker)
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


def seed_all_alike(worker: int) -> None:
    torch.manual_seed(12345)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    "kind", [lambda numbers: numbers, lambda numbers: {1: numbers}], ids=["rows", "batches"]
)
def test_generators_that_worker_init_fn_seeds_give_what_they_give_with_torchs(
    kind: Any, persistent: bool
) -> None:
    """TestDataLoader.test_worker_init_fn, TestIndividualWorkerQueue.test_ind_worker_queue."""

    def made(loader: Any) -> Any:
        return loader(
            Drawing(kind),
            3,
            num_workers=2,
            worker_init_fn=seed_worker,
            persistent_workers=persistent,
            shuffle=True,
        )

    same(made, **MEMORY)


def test_worker_init_fn_seeds_what_samples_see() -> None:
    """TestDataLoader.test_worker_init_fn."""
    dataset = Of(lambda index: torch.initial_seed())
    loader = standpipe.torch.DataLoader(dataset, 2, num_workers=2, worker_init_fn=seed_all_alike, **MEMORY)
    assert {seed for batch in loader for seed in batch.tolist()} == {12345}


def test_a_state_has_the_turns() -> None:
    """A worker of its own makes each batch, also of an epoch that goes on in the middle."""

    def made() -> standpipe.torch.DataLoader[Any]:
        return standpipe.torch.DataLoader(
            Of(lambda index: sp.worker_id()), 2, num_workers=2, worker_init_fn=seed_all_alike, **MEMORY
        )

    whole, again = made(), made()
    batches = iter(whole)
    before = [next(batches).tolist() for _ in range(3)]
    again.load_state_dict(whole.state_dict())
    assert [*before, *(batch.tolist() for batch in again)] == [[k % 2] * 2 for k in range(11)] + [[1]]
