"""Arrays and tensors of a dataset: in worker processes they are what they were, and in memory once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

import standpipe as sp
from preloaded import SERVER
from samples import Samples
from standpipe.engine.processes.packing import pack, unpack
from standpipe.system.machine import anonymous_bytes

MIB = 1 << 20


def there_and_back(value: Any) -> tuple[Any, int]:
    """What another process gets, and bytes of memory that stand behind it."""
    luggage = pack(value, parts={}, pack=True)
    return unpack(luggage.descriptor, os.dup(luggage.lists.descriptor)), luggage.lists.size_bytes


def test_arrays_are_what_they_were() -> None:
    base = np.random.default_rng(0).random((300, 400))
    arrays = {
        "": base,
        "fortran": np.asfortranarray(base),
        "part": base[:, ::3],
        "small": np.arange(3),
        "none": np.zeros((0, 5)),
        "objects": np.array([{}, None]),
        "records": np.zeros(9000, [("a", "i4"), ("b", "f8")]),
    }
    got, size = there_and_back(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], array)
        assert got[name].dtype == array.dtype
        assert got[name].flags.writeable
        got[name][...] = 0  # nobody else's
    assert base.all()
    assert size > 2 * base.nbytes


def test_tensors_are_what_they_were_and_share_what_they_shared() -> None:
    base = torch.rand(300, 400)
    tensors = {
        "": base,
        "view": base[7:9],
        "transposed": base.T,
        "bfloat16": torch.ones(50_000, dtype=torch.bfloat16),
        "bool": torch.ones(70_000, dtype=torch.bool),
        "parameter": torch.nn.Parameter(torch.rand(200, 200)),
        "small": torch.arange(3),
        "none": torch.zeros(0, 3),
        "sparse": torch.eye(3).to_sparse(),
    }
    got, size = there_and_back(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(got[name].to_dense(), tensor.to_dense())
        assert (got[name].dtype, type(got[name])) == (tensor.dtype, type(tensor))
        assert got[name].requires_grad == tensor.requires_grad
    assert size < 2 * base.nbytes
    got["view"][0, 0] = 7
    assert got[""][7, 0] == 7
    assert base[7, 0] != 7


def test_what_maps_a_file_maps_it_there_too(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    np.save(path, np.arange(1_000_000).reshape(1000, 1000))
    array = np.load(path, mmap_mode="r")
    copied = np.load(path, mmap_mode="c")
    copied[0, 0] = 5
    for value in (array, array[3:9], array.T):
        got, size = there_and_back(value)
        np.testing.assert_array_equal(got, value)
        assert (str(got.filename), got.flags.writeable, size) == (str(path), False, 0)
    assert there_and_back(copied)[0][0, 0] == 5  # what was written is in no file
    path.unlink()
    np.testing.assert_array_equal(there_and_back(array)[0], array)


class Large:
    """Says how much more memory of its own a process has after it has read a quarter of an array."""

    def __init__(self) -> None:
        self.array = np.ones((4, 16 * MIB), np.uint8)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, int]:
        before = anonymous_bytes()
        assert self.array[index].sum() == 16 * MIB
        return {"more": anonymous_bytes() - before}


def test_workers_read_large_arrays_without_a_copy() -> None:
    """One of 64 MiB: 2 workers, and the server that they come from, would take three of them."""
    with (
        sp.Pipeline(sp.MapSource(Large()))
        .batch(1)
        .loader(executor="process", num_workers=2, memory="1GiB", mp_context=SERVER) as loader
    ):
        assert max(batch["more"][0] for batch in loader) < 4 * MIB


def test_the_trainers_memory_is_its_own() -> None:
    array = np.zeros(100_000)

    def sample(index: int) -> float:
        array[:] += 1
        return float(array[0])

    with (
        sp.Pipeline(sp.MapSource(Samples(sample)))
        .batch(8)
        .loader(executor="process", num_workers=1, mp_context=SERVER) as loader
    ):
        assert next(iter(loader))["image"].min() >= 1
    assert not array.any()
