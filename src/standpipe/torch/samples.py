"""Run a torch dataset in standpipe's workers: set up worker info and seeds, make samples, pack batches."""

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
class TorchWorkerState:
    """The environment that torch gives a data set in a worker: ``get_worker_info()``, seeds, one thread.

    base_seed  worker k's seed is base_seed + k
    workers    number of workers
    init_fn    ``worker_init_fn``; None: there is none
    number     the worker's number, if each worker has a loader of its own; None: ``sp.worker_id()``
    round_robin    True: global generators continue where ``init_fn`` left them; False: the worker's generators
               get their earlier state back, and standpipe seeds them for each sample
    """

    base_seed: int
    workers: int
    init_fn: Callable[[int], None] | None
    number: int | None = None
    round_robin: bool = False
    _taken: bool = False

    def take(self, dataset: Any) -> None:
        """Set up the environment at the first call in a worker process. Other calls do nothing."""
        number = sp.worker_id()
        if self._taken or number is None:
            return
        if self.number is not None:
            number = self.number
        torch.set_num_threads(1)
        seed = self.base_seed + number
        # torch.utils.data.get_worker_info() returns this; torch has no public function to set it.
        _utils.worker._worker_info = _utils.worker.WorkerInfo(number, self.workers, seed, dataset)
        with contextlib.nullcontext() if self.round_robin else _put_back():
            random.seed(seed)
            torch.manual_seed(seed)
            np.random.seed(_numpy_seed(self.base_seed, number))  # noqa: NPY002 (data sets use it)
            if self.init_fn is not None:
                self.init_fn(number)
        self._taken = True


@contextlib.contextmanager
def _put_back() -> Iterator[None]:
    """Restore the state of Python's, torch's and NumPy's global generators after a ``with`` block."""
    before = random.getstate(), torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        torch.set_rng_state(before[1])
        np.random.set_state(before[2])  # noqa: NPY002


@dataclass(slots=True)
class Samples:
    """A torch map-style dataset with the interface that ``standpipe.MapSource`` reads.

    form   turns a list of samples into fields: {name: values}, one value for each sample
    seat   the worker's environment, set up before the first sample
    alone  True: samples aren't collated, and each comes from ``__getitem__``, as with torch
    """

    dataset: Any
    form: Callable[[list[Any]], dict[str, Any]]
    seat: TorchWorkerState
    alone: bool = False

    def __len__(self) -> int:
        return sp.MapSource.FIRST_KEY  # an upper limit: only the sampler knows the length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[0] for name, values in self.__getcolumns__([index]).items()}

    def __getcolumns__(self, indices: Iterable[int]) -> dict[str, Any]:
        """Return the samples of these records as fields: {name: values}, one value for each record."""
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
    """Return the samples of some records: by one call of ``__getitems__`` if the dataset has it, else singly."""
    several = getattr(dataset, "__getitems__", None)
    return [dataset[index] for index in indices] if several is None else several(list(indices))


@dataclass(slots=True)
class TorchStream:
    """A torch iterable dataset as the function that ``standpipe.IterableSource`` calls for each epoch."""

    dataset: Any
    seat: TorchWorkerState

    def __call__(self) -> Iterator[dict[str, Any]]:
        """Return an iterator over all samples, each as a dict with the one field ``SAMPLE``."""
        self.seat.take(self.dataset)
        return ({SAMPLE: sample} for sample in self.dataset)


def as_it_is(samples: list[Any]) -> dict[str, list[Any]]:
    """Return samples unchanged, as one field of Python objects, for a ``collate_fn``."""
    return {SAMPLE: samples}


@dataclass(slots=True)
class Collate:
    """A torch ``collate_fn`` as a collate function of standpipe's ``Pipeline.batch``.

    alone  True: ``collate_fn`` takes one sample; False: it takes a list of samples
    """

    collate_fn: Callable[[Any], Any]
    alone: bool

    def __call__(self, samples: list[dict[str, Any]]) -> dict[str, Packed]:
        """Return the batch that ``collate_fn`` makes of the dataset's samples, as one packed field."""
        values = [sample[SAMPLE] for sample in samples]
        return {BATCH: Packed(self.collate_fn(values[0] if self.alone else values))}


@dataclass(slots=True)
class Packed:
    """A wrapper that pickles the tensors of an object out of band, so that processes send them uncopied."""

    value: Any = field(repr=False)

    def __reduce_ex__(self, protocol: Any) -> Any:
        out, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        _Packing(out, protocol=5, buffer_callback=buffers.append).dump(self.value)
        return _unpacked, (out.getvalue(), buffers)


class _Packing(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and is_dense(value):
            # Order axes from the largest stride to the smallest: gapless memory is then sent without a copy.
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
    return as_torch(array, dtype).permute(places)


def is_dense(tensor: torch.Tensor) -> bool:
    """Return True if NumPy can view the tensor: strided, on the CPU, without gradient or lazy conjugation."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_nested or tensor.is_quantized)
        and not (tensor.is_conj() or tensor.is_neg())
    )


def as_numpy(tensor: torch.Tensor) -> Any:
    """Return a NumPy array that shares a dense tensor's memory.

    For dtypes that NumPy lacks, such as bfloat16, the array has integers with the same bits.
    """
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.view(_bits(tensor.dtype)).numpy()


def as_torch(array: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor that shares an array's memory. The inverse of ``as_numpy``.

    dtype  dtype of the tensor, of the same size as the array's; None: the array's
    """
    tensor = torch.from_numpy(array)
    return tensor if dtype is None or tensor.dtype == dtype else tensor.view(dtype)


def _bits(dtype: torch.dtype) -> torch.dtype:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
