"""The drop-in DataLoader, beside torch's: the same arguments give the same order, or a clear error."""

from __future__ import annotations

import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data

import standpipe as sp
import standpipe.torch
from torchs import MEMORY, ROWS, THREADS, Count, Eager, Of, Table, Tensors, same, told

ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda loader: loader(Table()),
    "batch_size": lambda loader: loader(Table(), 4),
    "drop_last": lambda loader: loader(Table(), 4, drop_last=True),
    "shuffle": lambda loader: loader(Table(), 4, True),
    "shuffle and generator": lambda loader: loader(
        Table(), 5, shuffle=True, generator=torch.Generator().manual_seed(5)
    ),
    "no batches": lambda loader: loader(Of(np.arange(ROWS)), batch_size=None),
    "sampler": lambda loader: loader(Table(), 4, sampler=data.SubsetRandomSampler([5, 2, 9, 11, 3, 20])),
    "sampler with replacement": lambda loader: loader(
        Table(), 4, sampler=data.RandomSampler(Table(), replacement=True, num_samples=70)
    ),
    "weights": lambda loader: loader(
        Table(), 4, sampler=data.WeightedRandomSampler([1.0, 5.0, 2.0] + [1.0] * 20, 9)
    ),
    "sampler that draws late": lambda loader: loader(Of(list(range(ROWS))), 3, sampler=Tensors()),
    "sampler that draws at once": lambda loader: loader(Table(), 3, sampler=Eager()),
    "sampler that draws at once, no batches": lambda loader: loader(Table(), None, sampler=Eager()),
    "distributed": lambda loader: loader(
        Table(), 3, sampler=data.DistributedSampler(Table(), num_replicas=2, rank=1, seed=1)
    ),
    "negative numbers": lambda loader: loader(Of(list(range(ROWS))), 2, sampler=[-1, 0, -ROWS]),
    "batch_sampler": lambda loader: loader(
        Table(), batch_sampler=[[1, 2, 3], [7], [4, 4, 4, 4, 4, 9], [0] * 19]
    ),
    "batch_sampler with batches without records": lambda loader: loader(
        Table(), batch_sampler=[[], [1, 2], [], [], [3, 4, 5, 6, 7], []], collate_fn=list
    ),
    "batch_sampler without length": lambda loader: loader(Table(), batch_sampler=iter([[1], [2, 3]])),
    "collate_fn": lambda loader: loader(
        Table(), 4, collate_fn=lambda samples: (samples[0], {"n": len(samples)})
    ),
    "collate_fn alone": lambda loader: loader(Table(), batch_size=None, collate_fn=lambda sample: sample[1:]),
    "subset": lambda loader: loader(data.Subset(Table(), [4, 2, 8]), 2),
    "concat": lambda loader: loader(data.ConcatDataset([Table(3), Table(2)]), 2),
    "tensors": lambda loader: loader(data.TensorDataset(torch.eye(5), torch.arange(5)), 2),
    "stream": lambda loader: loader(Count(), 4),
    "stream, drop_last": lambda loader: loader(Count(), 4, drop_last=True),
    "stream of batches": lambda loader: loader(Count(), None),
    "stream, drop_last of everything": lambda loader: loader(Count(), 40, drop_last=True),
}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_inline_it_gives_what_torchs_gives(argument: str) -> None:
    same(ARGUMENTS[argument], **MEMORY)


@pytest.mark.parametrize("argument", [name for name in ARGUMENTS if not name.startswith("stream")])
def test_with_workers_it_gives_what_torchs_gives(argument: str) -> None:
    def make(loader: Any) -> Any:
        return ARGUMENTS[argument](lambda *args, **named: loader(*args, num_workers=2, **named))

    same(make, **THREADS)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("argument", ["shuffle", "shuffle and generator", "sampler that draws late"])
def test_iterators_are_on_their_own_as_torchs_are(argument: str, workers: int) -> None:
    def make(loader: Any) -> Any:
        return ARGUMENTS[argument](lambda *args, **named: loader(*args, num_workers=workers, **named))

    same(make, epochs=1, leave=True, **(THREADS if workers else MEMORY))


class Told(Table):
    """Samples that say where they were made."""

    def __getitem__(self, index: int) -> Any:
        info = data.get_worker_info()
        facts = (info.id, info.num_workers, info.seed - info.id, info.dataset is self) if info else None
        return {"process": os.getpid(), "index": index, "facts": str((facts, vars(self).get("init")))}


def set_up(number: int) -> None:
    info: Any = data.get_worker_info()
    assert info.id == number
    assert torch.initial_seed() == info.seed
    info.dataset.init = f"init {number}"


def test_processes_are_workers_as_torchs_are() -> None:
    torch.manual_seed(1)
    base_seed = int(torch.empty((), dtype=torch.int64).random_().item())
    torch.manual_seed(1)
    loader = standpipe.torch.DataLoader(
        Told(), 4, num_workers=2, worker_init_fn=set_up, persistent_workers=True, **MEMORY
    )
    epochs = [list(loader) for _ in range(2)]
    for batches in epochs:
        assert torch.cat([batch["index"] for batch in batches]).tolist() == list(range(ROWS))
    processes = {int(process) for batch in epochs[0] + epochs[1] for process in batch["process"]}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 2  # that stay
    facts = {fact for batch in epochs[0] + epochs[1] for fact in batch["facts"]}
    assert facts <= {str(((number, 2, base_seed, True), f"init {number}")) for number in range(2)}
    assert data.get_worker_info() is None


def test_each_epoch_has_the_dataset_as_it_is_then() -> None:
    dataset = Table(4)
    loader = standpipe.torch.DataLoader(dataset, 2, num_workers=1, **MEMORY)
    assert [told(batch) for batch in loader] == [told(batch) for batch in data.DataLoader(dataset, 2)]
    dataset.rows = 2
    assert [batch[1].tolist() for batch in loader] == [[0, 1]]


def test_a_stream_is_read_by_one_worker() -> None:
    class Shared(Count):
        def __iter__(self) -> Iterator[Any]:
            info: Any = data.get_worker_info()
            yield from range(info.id, 10, info.num_workers)

    loader = standpipe.torch.DataLoader(Shared(), 4, num_workers=1, **MEMORY)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


DRAWN = Of(lambda index: (index, random.random(), np.random.rand(), torch.rand(1)))  # noqa: NPY002


def test_random_numbers_are_the_samples_whichever_worker_makes_them() -> None:
    def drawn(workers: int, seed: int = 1) -> list[Any]:
        torch.manual_seed(seed)
        loader = standpipe.torch.DataLoader(DRAWN, 4, shuffle=True, num_workers=workers, **MEMORY)
        return [told(batch) for _ in range(2) for batch in loader]

    once = drawn(2)
    assert drawn(1) == once
    assert drawn(1, seed=2) != once
    numbers = [number for batch in once for number in batch[1][1][3]]
    assert len(set(numbers)) == 2 * ROWS


def test_inline_samples_draw_what_they_draw_with_torchs() -> None:
    """And the trainer's streams are as after torch's."""

    def drawn(kind: Any, **named: Any) -> list[Any]:
        random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
        batches = [told(batch) for _ in range(2) for batch in kind(DRAWN, 4, shuffle=True, **named)]
        return [*batches, random.random(), np.random.rand(), torch.rand(1).tolist()]  # noqa: NPY002

    assert drawn(standpipe.torch.DataLoader, **MEMORY) == drawn(data.DataLoader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_sample_is_named_and_the_next_batch_follows(workers: int) -> None:
    def sample(index: int) -> int:
        if index == 5:
            raise FileNotFoundError("photo5.jpg")
        return index

    settings = THREADS if workers else MEMORY
    batches = iter(standpipe.torch.DataLoader(Of(sample), 2, num_workers=workers, **settings))
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(sp.SampleError, match=r"FileNotFoundError: photo5\.jpg .*record 5") as bad:
        next(batches)
    assert isinstance(bad.value.__cause__, FileNotFoundError)
    assert [batch.tolist() for batch in batches][:2] == [[6, 7], [8, 9]]


def test_the_first_batch_may_be_bad_too() -> None:
    def sample(index: int) -> int:
        return 1 // index

    batches = iter(standpipe.torch.DataLoader(Of(sample), 2, num_workers=2, **THREADS))
    with pytest.raises(sp.SampleError, match="ZeroDivisionError"):
        next(batches)
    assert next(batches).tolist() == [0, 0]


def test_timeout_ends_a_sample_that_hangs() -> None:
    never = threading.Event()

    def sample(index: int) -> int:
        if index == 5:
            never.wait()
        return index

    loader = standpipe.torch.DataLoader(Of(sample), 2, num_workers=2, timeout=5, **THREADS)
    try:
        with pytest.raises(sp.StalledError, match="record 5"):
            list(loader)
    finally:
        never.set()


@pytest.mark.parametrize(
    "named",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"num_workers": 1, "prefetch_factor": -1},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": [1]},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_sampler": [[1]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"drop_last": 3},
        {"multiprocessing_context": "spawn"},
        {"num_workers": 1, "multiprocessing_context": "threads"},
        {"num_workers": 1, "multiprocessing_context": 3},
        {"dataset": Count(), "shuffle": True},
        {"dataset": Count(), "sampler": [1]},
        {"dataset": Count(), "batch_sampler": [[1]]},
    ],
    ids=repr,
)
def test_what_torch_refuses_is_refused(named: dict[str, Any]) -> None:
    named = {"dataset": Table(), **named}
    with pytest.raises((ValueError, TypeError)) as theirs:
        data.DataLoader(**named)
    with pytest.raises(theirs.type) as ours:
        standpipe.torch.DataLoader(**named)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"dataset": Count(), "num_workers": 2}, "come 2 times.*num_workers=1"),
        (
            {"num_workers": 1, "executor": "thread", "worker_init_fn": print},
            "needs processes: with executor='thread'",
        ),
        ({"num_workers": 1, "executor": "inline"}, "'process' or 'thread'"),
        ({"dataset": data.datapipes.map.SequenceWrapper([1])}, "datapipe"),
    ],
    ids=repr,
)
def test_what_cant_be_honoured_is_an_error_with_the_fix(named: dict[str, Any], said: str) -> None:
    with pytest.raises(sp.PlanError, match=said):
        standpipe.torch.DataLoader(**{"dataset": Table(), **named})


def test_settings_are_standpipes() -> None:
    with pytest.raises(TypeError, match=r"takes no workers=: write num_workers="):
        standpipe.torch.DataLoader(Table(), workers=3)  # type: ignore[call-arg]
    for context in ("spawn", "forkserver"):
        standpipe.torch.DataLoader(Table(), num_workers=1, multiprocessing_context=context, in_order=False)


def test_prefetch_factor_is_how_many_are_asked_for_ahead() -> None:
    asked: list[int] = []

    def sampler() -> Iterator[int]:
        for index in range(ROWS):
            asked.append(index)
            yield index

    loader = standpipe.torch.DataLoader(
        Table(), 1, sampler=sampler(), num_workers=2, prefetch_factor=3, **THREADS
    )
    batches = iter(loader)
    assert len(asked) == 6
    next(batches)
    assert len(asked) == 7
    assert batches._engine.plan.slots == 7  # type: ignore[attr-defined]  # slots of it show nowhere else


def test_pin_memory_is_torchs() -> None:
    loader = standpipe.torch.DataLoader(Table(), 4, pin_memory=True, **MEMORY)
    if torch.accelerator.is_available():
        assert next(iter(loader))[0].is_pinned()
        return
    with pytest.warns(UserWarning, match="no accelerator"):
        batch = next(iter(loader))
    assert told(batch) == told(next(iter(data.DataLoader(Table(), 4))))


def test_iterators_end_when_they_are_dropped() -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("standpipe")}

    before = threads()
    batches = iter(standpipe.torch.DataLoader(Table(), 4, num_workers=2, **THREADS))
    assert sum(1 for _ in batches) == 6
    assert not threads() - before
    loader = standpipe.torch.DataLoader(Table(), 4, num_workers=2, persistent_workers=True, **THREADS)
    for _ in loader:
        break
    assert threads() - before
    del loader, _
    assert not threads() - before
    for batch in standpipe.torch.DataLoader(Table(), 4, num_workers=2, **THREADS):
        del batch
        break
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not threads() - before


class DrawingStream(data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        for index in range(40):
            yield torch.tensor([index, random.random()])


def test_without_workers_a_stream_draws_between_the_steps_as_torchs() -> None:
    """No sample of a later batch is made before its batch is asked for."""

    def drawn(loader: Any) -> list[Any]:
        random.seed(1)
        return [(batch.tolist(), random.random()) for batch in loader(DrawingStream(), batch_size=4)]

    expected = drawn(data.DataLoader)
    for _ in range(5):
        assert drawn(standpipe.torch.DataLoader) == expected
