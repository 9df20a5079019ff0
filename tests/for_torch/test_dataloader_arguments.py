"""What torch's documentation says of each argument, asked of the drop-in DataLoader and of torch's."""

from __future__ import annotations

import gc
import multiprocessing
import typing
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data

import standpipe as sp
import standpipe.torch
from torchs import MEMORY, ROWS, THREADS, Count, Of, Table, same, told


@pytest.fixture(scope="module", autouse=True)
def shared() -> Any:
    """A loader that keeps the process from which workers come, so that only one test waits for imports."""
    return standpipe.torch.DataLoader(Count())


def theirs_and_ours(**named: Any) -> tuple[Any, Any]:
    return data.DataLoader(**named), standpipe.torch.DataLoader(**named, **MEMORY)


class Sized(Count):
    """A stream that says a length, which is too small."""

    def __len__(self) -> int:
        return 7


def test_batch_size_is_1_and_none_gives_single_samples() -> None:
    dataset = Of(lambda index: (np.full(2, index), index))
    for theirs, ours in (theirs_and_ours(dataset=dataset), theirs_and_ours(dataset=dataset, batch_size=None)):
        assert [told(batch) for batch in ours] == [told(batch) for batch in theirs]
        assert (ours.batch_size, ours.drop_last) == (theirs.batch_size, theirs.drop_last)
        assert (ours.collate_fn, type(ours.sampler)) == (theirs.collate_fn, type(theirs.sampler))


def test_it_can_be_an_annotation() -> None:
    """PyTorch's TestDataLoader.test_typing."""

    def made() -> standpipe.torch.DataLoader[list[torch.Tensor]]:
        return standpipe.torch.DataLoader(Table())

    assert typing.get_type_hints(made)["return"] == standpipe.torch.DataLoader[list[torch.Tensor]]


def test_shuffle_is_anew_in_every_epoch() -> None:
    loader = standpipe.torch.DataLoader(Of(list(range(ROWS))), ROWS, shuffle=True, **MEMORY)
    first, second = ([batch.tolist() for batch in loader] for _ in range(2))
    assert sorted(first[0]) == sorted(second[0]) == list(range(ROWS))
    assert first != second


@pytest.mark.parametrize("rows", [1, 3, ROWS, ROWS + 1, None])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("dataset", [Table(), Sized()], ids=["map", "iterable"])
def test_length_is_what_torch_says(rows: int | None, drop_last: bool, dataset: Any) -> None:
    named = {"dataset": dataset, "batch_size": rows, "drop_last": drop_last and rows is not None}
    theirs, ours = theirs_and_ours(**named)
    assert len(ours) == len(theirs)


def test_a_stream_longer_than_it_says_is_warned_of() -> None:
    theirs, ours = theirs_and_ours(dataset=Sized())
    for loader in (theirs, ours):
        assert len(loader) == 7
        with pytest.warns(UserWarning, match="was reported to be 7"):
            assert len(list(loader)) == 10


def test_what_has_no_length_has_none() -> None:
    class Endless(data.Dataset[int]):
        def __getitem__(self, index: int) -> int:
            return index

    theirs, ours = theirs_and_ours(dataset=Endless())
    for loader in (theirs, ours):
        for ask in (len, list):
            with pytest.raises(TypeError, match="has no len"):
                ask(loader)
    sampled = standpipe.torch.DataLoader(Endless(), 2, sampler=[5, 6, 10**9], **MEMORY)
    assert [batch.tolist() for batch in sampled] == [[5, 6], [10**9]]
    with pytest.raises(TypeError, match="has no len"):
        len(standpipe.torch.DataLoader(Count(), **MEMORY))


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_cant_be_changed_afterwards(name: str) -> None:
    for loader in theirs_and_ours(dataset=Table()):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader"):
            setattr(loader, name, 3)


REFUSED_AT_ITER: dict[str, dict[str, Any]] = {
    "timeout without workers": {"timeout": 3},
    "prefetch_factor=0": {"num_workers": 1, "prefetch_factor": 0},
    "a sampler that is none": {"sampler": 3},
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of torch's, half made
@pytest.mark.parametrize("kind", REFUSED_AT_ITER)
def test_what_is_refused_when_it_is_iterated(kind: str) -> None:
    theirs, ours = theirs_and_ours(dataset=Table(), **REFUSED_AT_ITER[kind])
    with pytest.raises((AssertionError, TypeError)) as theirs_error:
        list(theirs)
    with pytest.raises(theirs_error.type):
        list(ours)
    del theirs_error
    gc.collect()  # here, not in another test


def test_pin_memory_device_and_in_order_are_taken() -> None:
    def told_by(kind: Any, **more: Any) -> Any:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            batches = list(kind(Of(list(range(4))), 2, pin_memory_device="cpu", in_order=False, **more))
        return [batch.tolist() for batch in batches], sorted({str(each.message) for each in warned})

    assert told_by(standpipe.torch.DataLoader, **MEMORY) == told_by(data.DataLoader)


class Counts(data.Dataset[Any]):
    """Says how often this copy of it was asked, and whether it was set up."""

    def __init__(self) -> None:
        self.asked, self.numbers = 0, [-1]

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return self.asked, self.numbers[-1]


def note(number: int) -> None:
    info: Any = data.get_worker_info()
    assert info.dataset.asked == 0  # before anything is loaded
    info.dataset.numbers.append(number)


@pytest.mark.parametrize("context", [None, "forkserver", multiprocessing.get_context("spawn")])
def test_persistent_workers_keep_their_dataset_and_others_begin_anew(context: Any) -> None:
    for persistent in (False, True):
        dataset = Counts()
        loader = standpipe.torch.DataLoader(
            dataset,
            4,
            num_workers=1,
            worker_init_fn=note,
            persistent_workers=persistent,
            multiprocessing_context=context,
            **MEMORY,
        )
        first, second = ([batch[0].tolist()[-1] for batch in loader][-1] for _ in range(2))
        assert dataset.asked == 0  # never called here
        assert second - first == 8 * persistent
        assert {number for batch in loader for number in batch[1].tolist()} == {0}


def test_worker_init_fn_that_fails_is_named() -> None:
    def fails(number: int) -> None:
        raise RuntimeError(f"no device for worker {number}")

    loader = standpipe.torch.DataLoader(Table(), 4, num_workers=1, worker_init_fn=fails, **MEMORY)
    with pytest.raises(sp.SampleError, match="RuntimeError: no device for worker 0"):
        next(iter(loader))


def test_collate_fn_gets_a_list_of_samples_and_its_error_is_named() -> None:
    class Batch:
        def __init__(self, samples: Any) -> None:
            self.kind, self.rows = type(samples).__name__, len(samples)

    theirs, ours = theirs_and_ours(dataset=Table(), batch_size=5, collate_fn=Batch)
    assert [vars(batch) for batch in ours] == [vars(batch) for batch in theirs]

    def fails(samples: Any) -> Any:
        raise KeyError("no such field")

    loader = standpipe.torch.DataLoader(Table(), 4, num_workers=2, collate_fn=fails, **THREADS)
    with pytest.raises(sp.SampleError, match="KeyError: 'no such field'") as error:
        next(iter(loader))
    assert isinstance(error.value.__cause__, KeyError)


class Asked(data.Dataset[Any]):
    """Gives what it is asked for, as text: keys of any kind."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, key: Any) -> Any:
        assert isinstance(key, list | tuple | str | int | torch.Tensor)
        return repr(key), len(key) if isinstance(key, list | tuple | str) else 0


KEYS: dict[str, dict[str, Any]] = {
    "batches": {"sampler": data.BatchSampler(data.SequentialSampler(range(7)), 3, False), "batch_size": None},
    "tensors": {"sampler": [torch.tensor([1, 2]), torch.tensor([3])], "batch_size": None},
    "tuples": {"batch_sampler": [[(True, 3, 640), (False, 1, 640)], [(True, 2, 320)], [(1, 2, 3)] * 3]},
    "text": {"sampler": ["dog", "cat", "a" * 300, "dog"], "batch_size": 2},
    "integers among them": {"sampler": ["dog", -1, 1 << 70, 3, 4], "batch_size": 2},
    "bools": {"sampler": [True, False, 3], "batch_size": 1},
}


@pytest.mark.parametrize("named", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("settings", [{}, {"num_workers": 2}, {"num_workers": 2, **THREADS}], ids=repr)
def test_keys_of_any_kind_go_to_the_dataset(named: dict[str, Any], settings: dict[str, Any]) -> None:
    """Also PyTorch's TestDataLoader.test_bulk_loading_nobatch."""
    theirs = data.DataLoader(Asked(), **named)
    ours = standpipe.torch.DataLoader(Asked(), **{**MEMORY, **settings, **named})
    for _ in range(2):
        assert [told(batch) for batch in ours] == [told(batch) for batch in theirs]


def test_a_state_has_keys_of_any_kind() -> None:
    def made(names: list[str]) -> standpipe.torch.DataLoader[Any]:
        return standpipe.torch.DataLoader(Asked(), 2, sampler=names, num_workers=2, **THREADS)

    names = ["dog", "cat", "owl", "fox", "elk"]
    whole, again, other = made(names), made(names), made(["dog", "rat", *names[2:]])
    batches = iter(whole)
    next(batches)
    state = whole.state_dict()
    again.load_state_dict(state)
    assert [told(batch) for batch in again] == [told(batch) for batch in batches]
    other.load_state_dict(state)
    with pytest.raises(sp.StateError, match="order"):
        iter(other)


def test_a_bad_key_is_named() -> None:
    loader = standpipe.torch.DataLoader(Asked(), 2, sampler=["dog", 1.5, "cat"], num_workers=2, **THREADS)
    batches = iter(loader)
    with pytest.raises(sp.SampleError, match=r"source, key 1\.5\)"):
        next(batches)
    assert next(batches)[0] == ("'cat'",)


ORDERED: dict[str, Callable[[Any], Any]] = {
    "generator": lambda loader: loader(Table(), 4, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "random_split": lambda loader: loader(
        data.random_split(Table(), [3, 20], torch.Generator().manual_seed(3))[1], 4, shuffle=True
    ),
    "chain": lambda loader: loader(data.ChainDataset([Count(), Count()]), 4),
    "stacked": lambda loader: loader(data.StackDataset(Of(list(range(5))), Of(list(range(5, 10)))), 2),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_torchs_own_datasets_and_generators(kind: str) -> None:
    same(ORDERED[kind], **MEMORY)
