"""What the drop-in DataLoader makes of samples, beside torch's."""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data

import standpipe as sp
import standpipe.torch
from standpipe.torch.samples import Packed
from torchs import MEMORY, ROWS, THREADS, Of, Pair, same, told

SAMPLES: dict[str, Any] = {
    "number": lambda index: index,
    "float": lambda index: index / 3,
    "bool": lambda index: index % 2 == 0,
    "text": lambda index: f"{index}",
    "bytes": lambda index: (b"a", bytes([index])),
    "bfloat16": lambda index: torch.full((2,), index, dtype=torch.bfloat16),
    "float16": lambda index: {"a (b)": torch.full((), index, dtype=torch.float16)},
    "complex": lambda index: torch.full((2,), 1j * index),
    "uint8": lambda index: np.full((2, 2), index, np.uint8),
    "numpy's numbers": lambda index: (
        np.float32(index),
        np.int32(index),
        np.bool_(index % 2),
        np.float64(index),
    ),
    "named tuple": lambda index: Pair(torch.ones(2), index),
    "ordered dict": lambda index: OrderedDict(b=index, a=torch.zeros(1)),
    "order of keys": lambda index: {"name": "n", "image": torch.zeros(2), "also": "m", "label": index},
    "keys of any kind": lambda index: {1: index, ("a", 2): torch.ones(1)},
    "quotes in keys": lambda index: {'it\'s "so"': index, "[0]": [1.0]},
    "lists in lists": lambda index: [[index, [f"{index}"]], (1.0, (index,))],
    "empty list": lambda index: {"a": [], "n": index},
    "not contiguous": lambda index: torch.arange(6).reshape(2, 3).T + index,
    "wider in a later sample": lambda index: np.full(2, index, np.float64 if index < 9 else np.float32),
    "shapes by batch": lambda index: torch.ones(index // 4 + 1),
    "numbers of another kind by batch": lambda index: index if index < 8 else float(index),
    "narrower numbers by batch": lambda index: float(index) if index < 8 else index,
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_batches_are_those_of_default_collate(kind: str) -> None:
    same(lambda loader: loader(Of(SAMPLES[kind]), 4, num_workers=2), epochs=1, **THREADS)


class Kelvin(torch.Tensor):
    """A tensor of another class, and so is what is made of several."""


class Untyped(torch.Tensor):
    """A tensor of another class, of which torch makes plain ones, as of torchvision's images."""

    __torch_function__ = torch._C._disabled_torch_function_impl


@pytest.mark.parametrize("kind", [Kelvin, Untyped])
@pytest.mark.parametrize("settings", [MEMORY, THREADS])
def test_a_subclass_of_tensor_stays_where_torch_keeps_it(kind: Any, settings: dict[str, Any]) -> None:
    dataset = Of([{"t": torch.full((2,), float(number)).as_subclass(kind)} for number in range(4)])
    theirs = data.DataLoader(dataset, 2)
    ours = standpipe.torch.DataLoader(dataset, 2, num_workers=2, **settings)
    for one, other in zip(ours, theirs, strict=True):
        assert type(one["t"]) is type(other["t"])
        assert one["t"].tolist() == other["t"].tolist()
    assert (type(one["t"]) is kind) == (kind is Kelvin)


@pytest.mark.parametrize(
    "sample",
    [
        lambda index: None,
        lambda index: {"a": object()},
        lambda index: np.array("text"),
        lambda index: torch.ones(index + 1),
        lambda index: [0] * (index + 1),
        lambda index: {"a": 1} if index else {"b": 1},
    ],
    ids=["None", "an object", "an array of text", "shapes", "lengths", "keys"],
)
def test_samples_that_torch_refuses_are_an_error_that_names_one(sample: Any) -> None:
    with pytest.raises((TypeError, RuntimeError, KeyError)) as theirs:
        list(data.DataLoader(Of(sample), 4))
    with pytest.raises(sp.SampleError, match="record 0") as ours:
        list(standpipe.torch.DataLoader(Of(sample), 4, **MEMORY))
    assert type(ours.value.__cause__) is theirs.type
    assert str(theirs.value).split("\n")[0] in str(ours.value)
    assert "on_error" not in "".join(getattr(ours.value, "__notes__", []))


def test_slots_hold_what_is_made_row_by_row() -> None:
    loader = standpipe.torch.DataLoader(
        Of(lambda index: torch.full((1000,), index)), 4, num_workers=2, **THREADS
    )
    batches = iter(loader)
    first = next(batches)
    engine: Any = batches._engine  # type: ignore[attr-defined]  # that nothing was copied is seen only there
    assert engine.plan.fields["sample (int64)"].shape == (1000,)
    assert loader._course.collates is False
    kept = [first, *batches]
    assert torch.cat(kept)[:, 0].tolist() == list(range(ROWS))


def test_tensors_travel_as_they_are() -> None:
    image = torch.arange(48).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last)
    every_other = torch.arange(10)[::2]
    half = torch.ones(3, dtype=torch.bfloat16)
    value = {"image": image, "pair": Pair(half, [every_other, None, "text"]), "number": torch.tensor(3)}
    packed = Packed(value)
    buffers: list[pickle.PickleBuffer] = []
    for made in (
        pickle.loads(pickle.dumps(packed, 5)).value,
        pickle.loads(pickle.dumps(packed, 5, buffer_callback=buffers.append), buffers=buffers).value,
    ):
        assert told(made) == told(value)
        assert made["image"].stride() == image.stride()
        made["image"][0, 0, 0, 0] = 7  # nobody else's
    assert image[0, 0, 0, 0] in (0, 7)


def test_a_collate_fn_leaves_out_samples_and_makes_anything() -> None:
    def collate(samples: list[Any]) -> Any:
        good = [sample for sample in samples if sample is not None]
        return Pair(torch.stack(good), {"many": len(good), "odd": {1, 2}})

    dataset = Of(lambda index: None if index % 3 == 0 else torch.full((2,), index))
    same(lambda loader: loader(dataset, 4, collate_fn=collate, num_workers=2), epochs=1, **THREADS)
    loader = standpipe.torch.DataLoader(dataset, 4, collate_fn=collate, num_workers=2, **MEMORY)
    assert [told(batch) for batch in loader] == [
        told(batch) for batch in data.DataLoader(dataset, 4, collate_fn=collate)
    ]


class AtOnce(Of):
    """Samples that can be had at once; each call is counted in the samples."""

    calls = 0

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("asked for one sample")

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.calls += 1
        return [(self.samples(index), self.calls) for index in indices]


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_are_taken_at_once_where_the_dataset_offers_that(workers: int) -> None:
    dataset = AtOnce(lambda index: f"{index}")
    made = list(standpipe.torch.DataLoader(dataset, ROWS, num_workers=workers, **MEMORY))
    ((texts, calls),) = made
    assert list(texts) == [f"{index}" for index in range(ROWS)]
    assert workers or set(calls.tolist()) == {1}


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_are_not_collated_are_taken_one_by_one(workers: int) -> None:
    dataset = data.Subset(data.TensorDataset(torch.arange(6) * 10), list(range(6)))
    lists = data.BatchSampler(data.SequentialSampler(dataset), 4, False)
    for sampler in (lists, None):
        settings = {"batch_size": None, "sampler": sampler, "num_workers": workers}
        ours = standpipe.torch.DataLoader(dataset, **settings, **MEMORY)
        assert str(list(ours)) == str(list(data.DataLoader(dataset, **settings)))


@pytest.mark.parametrize("times", [0, 2])
def test_as_many_samples_as_records_are_needed(times: int) -> None:
    class Other(AtOnce):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return times * indices

    loader = standpipe.torch.DataLoader(Other(str), ROWS, num_workers=1, **MEMORY)
    with pytest.raises(
        ValueError, match=rf"__getitems__ returned {times} samples for 1 records, but workers need one"
    ):
        next(iter(loader))


def test_sparse_tensors_have_torchs_error() -> None:
    loader = standpipe.torch.DataLoader(Of(lambda _: torch.eye(2).to_sparse()), ROWS, num_workers=1, **MEMORY)
    with pytest.raises(
        RuntimeError, match="sparse tensors are not currently supported by the default collate_fn"
    ):
        next(iter(loader))


def test_without_workers_the_caller_makes_a_batch_and_no_thread_is_started() -> None:
    threads: set[int] = set()

    def sample(index: int) -> int:
        threads.add(threading.get_ident())
        threads.update(thread.ident or 0 for thread in threading.enumerate())
        return index

    before = {thread.ident for thread in threading.enumerate()}
    (batch,) = standpipe.torch.DataLoader(Of(sample), ROWS)
    assert batch.tolist() == list(range(ROWS))
    assert threads == before


def test_without_workers_a_bad_sample_is_named() -> None:
    def sample(index: int) -> int:
        if index == 6:
            raise KeyError("six")
        return index

    batches = iter(standpipe.torch.DataLoader(Of(sample), 4))
    assert next(batches).tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="six") as failed:
        next(batches)
    assert isinstance(failed.value, sp.SampleError)
    assert failed.value.index == 6
    assert next(batches).tolist() == [8, 9, 10, 11]
