"""A dataset of torch's in standpipe's workers: who they are to it, and what becomes of its samples and batches there."""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch.utils.data import _utils

import standpipe as sp

MANY = 1 << 40  # records: how many there are only the sampler knows
SAMPLE, BATCH = "sample", "batch"


_numpy_seed: Any = _utils.worker._generate_state  # type: ignore[attr-defined,unused-ignore]  # as torch's workers have it


@dataclass(slots=True)
class Seat:
    """What a worker process tells code of the dataset, as torch's workers do.

    base_seed  what it is seeded by, with its number
    workers    how many there are
    init_fn    ``worker_init_fn``
    number     which one it is, where each worker has a loader of its own; None: the process's
    """

    base_seed: int
    workers: int
    init_fn: Callable[[int], None] | None
    number: int | None = None
    _taken: bool = False

    def take(self, dataset: Any) -> None:
        """Before the first sample of a worker process; anywhere else nothing happens."""
        number = sp.worker_number()
        if self._taken or number is None:
            return
        if self.number is not None:
            number = self.number
        torch.set_num_threads(1)
        seed = self.base_seed + number
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(_numpy_seed(self.base_seed, number))  # noqa: NPY002 (what datasets draw from)
        # What torch.utils.data.get_worker_info() gives; there is no public way to say it.
        _utils.worker._worker_info = _utils.worker.WorkerInfo(number, self.workers, seed, dataset)
        if self.init_fn is not None:
            self.init_fn(number)
        self._taken = True


@dataclass(slots=True)
class Samples:
    """A map-style dataset for ``standpipe.Indexed``.

    form  makes fields of a sample
    """

    dataset: Any
    form: Callable[[Any], dict[str, Any]]
    seat: Seat

    def __len__(self) -> int:
        return MANY

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.seat.take(self.dataset)
        return self.form(self.dataset[index])


@dataclass(slots=True)
class Stream:
    """An iterable dataset for ``standpipe.Iterable``."""

    dataset: Any
    form: Callable[[Any], dict[str, Any]]
    seat: Seat

    def __call__(self) -> Iterator[dict[str, Any]]:
        """Fields of its samples, from the first one on."""
        self.seat.take(self.dataset)
        return map(self.form, self.dataset)


def as_it_is(sample: Any) -> dict[str, Any]:
    """The form in which a ``collate_fn`` gets samples."""
    return {SAMPLE: sample}


@dataclass(slots=True)
class Collate:
    """A ``collate_fn`` for ``Pipeline.map_batch``.

    alone  whether it takes one sample, not a list of them
    """

    collate_fn: Callable[[Any], Any]
    alone: bool

    def __call__(self, samples: list[dict[str, Any]]) -> dict[str, Packed]:
        """What it makes of samples ``as_it_is``."""
        values = [sample[SAMPLE] for sample in samples]
        return {BATCH: Packed(self.collate_fn(values[0] if self.alone else values))}


@dataclass(slots=True)
class Packed:
    """Any object, in which tensors travel between processes as arrays do: beside the message, without a copy there."""

    value: Any = field(repr=False)

    def __reduce_ex__(self, protocol: Any) -> Any:
        out, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        _Packing(out, protocol=5, buffer_callback=buffers.append).dump(self.value)
        return _unpacked, (out.getvalue(), buffers)


class _Packing(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and is_dense(value):
            # Axes from the largest stride to the smallest: memory without gaps goes as it lies.
            axes = sorted(range(value.ndim), key=value.stride, reverse=True)
            array = as_numpy(value.permute(axes)) if value.permute(axes).is_contiguous() else None
            if array is not None:
                return _tensor, (array, axes, value.dtype)
            return _tensor, (as_numpy(value.contiguous()), list(range(value.ndim)), value.dtype)
        return super().reducer_override(value)


def _unpacked(data: bytes, buffers: list[Any]) -> Packed:
    return Packed(pickle.loads(data, buffers=buffers))


def _tensor(array: Any, axes: list[int], dtype: torch.dtype) -> torch.Tensor:
    places = sorted(range(len(axes)), key=axes.__getitem__)
    return as_tensor(array, dtype).permute(places)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether it is nothing but numbers in the host's memory."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_nested or tensor.is_quantized)
        and not (tensor.is_conj() or tensor.is_neg())
    )


def as_numpy(tensor: torch.Tensor) -> Any:
    """The array over a dense tensor's memory; of a dtype that NumPy lacks, its bits as whole numbers."""
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.view(_bits(tensor.dtype)).numpy()


def as_tensor(array: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The tensor over an array's memory, of the dtype that it had."""
    tensor = torch.from_numpy(array)
    return tensor if dtype is None or tensor.dtype == dtype else tensor.view(dtype)


def _bits(dtype: torch.dtype) -> torch.dtype:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
