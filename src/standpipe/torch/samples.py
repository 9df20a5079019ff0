"""A torch dataset in standpipe's workers: who they are to it, and what becomes of its samples and batches there."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch.utils.data import _utils

import standpipe as sp

SAMPLE, BATCH = "sample", "batch"


_numpy_seed: Any = _utils.worker._generate_state  # type: ignore[attr-defined,unused-ignore]  # as torch's workers have it


@dataclass(slots=True)
class Seat:
    """The environment of the data set's code in a worker process, as in torch's workers.

    base_seed  its seed, together with the worker's number
    workers    number of workers
    init_fn    ``worker_init_fn``
    number     the worker's number, where each worker has a loader of its own; None: the process's
    in_turn    True if global generators continue from where ``init_fn`` left them; False: they are set for
    each sample
    """

    base_seed: int
    workers: int
    init_fn: Callable[[int], None] | None
    number: int | None = None
    in_turn: bool = False
    _taken: bool = False

    def take(self, dataset: Any) -> None:
        """Before the first sample of a worker process; anywhere else nothing happens."""
        number = sp.worker_id()
        if self._taken or number is None:
            return
        if self.number is not None:
            number = self.number
        torch.set_num_threads(1)
        seed = self.base_seed + number
        # What torch.utils.data.get_worker_info() gives; there is no public way to say it.
        _utils.worker._worker_info = _utils.worker.WorkerInfo(number, self.workers, seed, dataset)
        with contextlib.nullcontext() if self.in_turn else _put_back():
            random.seed(seed)
            torch.manual_seed(seed)
            np.random.seed(_numpy_seed(self.base_seed, number))  # noqa: NPY002 (data sets use it)
            if self.init_fn is not None:
                self.init_fn(number)
        self._taken = True


@contextlib.contextmanager
def _put_back() -> Iterator[None]:
    """Global generators are after a ``with`` block what they were before it."""
    before = random.getstate(), torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        torch.set_rng_state(before[1])
        np.random.set_state(before[2])  # noqa: NPY002


@dataclass(slots=True)
class Samples:
    """A map-style dataset for ``standpipe.MapSource``.

    form   makes fields of samples, each a list of their values or an array
    alone  whether samples aren't collated: then ``__getitem__`` makes each, as with torch
    """

    dataset: Any
    form: Callable[[list[Any]], dict[str, Any]]
    seat: Seat
    alone: bool = False

    def __len__(self) -> int:
        return sp.MapSource.FIRST_KEY  # or less: only the sampler knows

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[0] for name, values in self.__getcolumns__([index]).items()}

    def __getcolumns__(self, indices: Iterable[int]) -> dict[str, Any]:
        """The samples of these records, field by field."""
        self.seat.take(self.dataset)
        if self.alone or not hasattr(self.dataset, "__getitems__"):
            return self.form([self.dataset[index] for index in indices])
        records = list(indices)
        samples = self.dataset.__getitems__(records)
        if len(samples) != len(records):
            raise ValueError(
                f"__getitems__ returned {len(samples)} samples for {len(records)} records, but workers need "
                "one for each. "
                "Let collate_fn leave samples out, or use num_workers=0"
            )
        return self.form(samples)


def items(dataset: Any, indices: Iterable[Any]) -> list[Any]:
    """Samples as torch's workers take them: all at once where the dataset offers that."""
    several = getattr(dataset, "__getitems__", None)
    return [dataset[index] for index in indices] if several is None else several(list(indices))


@dataclass(slots=True)
class Stream:
    """An iterable dataset for ``standpipe.IterableSource``."""

    dataset: Any
    seat: Seat

    def __call__(self) -> Iterator[dict[str, Any]]:
        """Return the stream's samples ``as_it_is``, from the first one on."""
        self.seat.take(self.dataset)
        return ({SAMPLE: sample} for sample in self.dataset)


def as_it_is(samples: list[Any]) -> dict[str, list[Any]]:
    """The form in which a ``collate_fn`` gets samples."""
    return {SAMPLE: samples}


@dataclass(slots=True)
class Collate:
    """A ``collate_fn`` for ``Pipeline.map_batch``.

    alone  whether it takes one sample, not a list of them
    """

    collate_fn: Callable[[Any], Any]
    alone: bool

    def __call__(self, samples: list[dict[str, Any]]) -> dict[str, Packed]:
        """Return the batch that ``collate_fn`` makes of the dataset's samples, as one packed field."""
        values = [sample[SAMPLE] for sample in samples]
        return {BATCH: Packed(self.collate_fn(values[0] if self.alone else values))}


@dataclass(slots=True)
class Packed:
    """An object whose tensors are sent between processes beside the message, without a copy."""

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
    """Return True if a tensor is plain numbers in the host's memory."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_nested or tensor.is_quantized)
        and not (tensor.is_conj() or tensor.is_neg())
    )


def as_numpy(tensor: torch.Tensor) -> Any:
    """Return the array over a dense tensor's memory; its bits as integers, for dtypes that NumPy lacks."""
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
