"""Iterable datasets that divide themselves among workers by ``get_worker_info()``, as torch documents it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Self

import numpy as np
import torch
from torch.utils import data

import standpipe as sp

ASKED = "get_worker_info"  # the function that such a dataset calls


def shares_itself_out(dataset: Any, init_fn: Callable[[int], None] | None) -> bool:
    """Return True if the code of the dataset's methods or of ``worker_init_fn`` names ``get_worker_info``."""
    kinds = [kind for kind in type(dataset).__mro__ if kind not in (object, *data.IterableDataset.__mro__)]
    found = [value for kind in kinds for value in vars(kind).values()]
    return any(_names(code) for value in (*found, init_fn) if (code := getattr(value, "__code__", None)))


def _names(code: CodeType) -> bool:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return ASKED in code.co_names or any(map(_names, inner))


def begun(loader: sp.Loader) -> Iterator[dict[str, Any]]:
    """Return an iterator over the next epoch of a stream. An empty stream gives an empty epoch, not an error."""
    try:
        return iter(loader)
    except sp.EmptyStreamError:
        loader.set_epoch(loader.epoch + 1)
        return iter(())


class InTurn:
    """The loaders of several workers, each with its own stream: one batch from each in turn, until all end.

    rows       rows of a full batch
    drop_last  True: leave out a worker's last batch if it is short
    certain    True: the streams are known to differ; False: compare their first batches
    """

    def __init__(self, loaders: list[sp.Loader], *, rows: int, drop_last: bool, certain: bool) -> None:
        self._loaders, self._rows, self._drop_last = loaders, rows, drop_last
        self._certain, self._skip = certain, 0

    @property
    def plan(self) -> sp.Plan:
        """The plan, which all loaders share."""
        return self._loaders[0].plan

    @property
    def bad_samples(self) -> list[sp.BadSample]:
        """An empty list: a stream's samples can't be replaced."""
        return []

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch."""
        for loader in self._loaders:
            loader.set_epoch(epoch)

    def skip_steps(self, number: int) -> None:
        """Skip the first ``number`` batches of the next epoch. Workers make them all the same, to find their ends."""
        self._skip = number

    def close(self) -> None:
        """End all workers."""
        for loader in self._loaders:
            loader.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Start the next epoch. Raises ``PlanError`` if all workers begin with the same batch."""
        skip, self._skip = self._skip, 0
        turns = _Turns([begun(loader) for loader in self._loaders], self._rows, self._drop_last)
        if not self._certain:
            turns.compare()
            self._certain = True
        for _ in range(skip):
            next(turns, None)
        return turns


class _Turns:
    """An iterator over the batches of several workers.

    An interrupt at any moment loses no batch: each stays in ``_fetched`` until it is delivered.
    """

    def __init__(self, epochs: list[Iterator[dict[str, Any]]], rows: int, drop_last: bool) -> None:
        self._epochs, self._rows, self._drop_last = epochs, rows, drop_last
        self._turn = tuple(range(len(epochs)))  # workers that haven't ended, the next one first
        self._fetched: dict[int, dict[str, Any] | None] = {}  # by worker; None at the end of its epoch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Any]:
        while self._turn:
            worker, *others = self._turn
            rest = tuple(others)
            try:
                batch = self._next_of(worker)
            except (
                sp.SampleError,
                sp.StalledError,
                sp.WorkerDiedError,
            ):  # as a generator, it has ended by that
                self._turn = rest
                raise
            if batch is not None and self._drop_last and len(batch["index"]) < self._rows:
                batch = None
            # From here on nothing is called, so that an interrupt comes before this, or after the return.
            self._turn = rest if batch is None else (*rest, worker)
            del self._fetched[worker]
            if batch is not None:
                return batch
        raise StopIteration

    def _next_of(self, worker: int) -> dict[str, Any] | None:
        """Return a worker's next batch; None at the end of its epoch."""
        if worker not in self._fetched:
            try:
                self._fetched[worker] = self._epochs[worker].__next__()
            except StopIteration:
                self._fetched[worker] = None
        return self._fetched[worker]

    def compare(self) -> None:
        """Take each worker's first batch. Raise ``PlanError`` if all of these are equal."""
        one, *others = [self._next_of(worker) for worker in self._turn]
        if one is not None and others and all(_equal(one, other) for other in others):
            raise sp.PlanError(
                f"all {1 + len(others)} workers begin with the same batch: the dataset calls {ASKED}(), but "
                "doesn't seem to "
                "divide itself by the result, so every sample would come once from each worker. Use num_workers=1. If "
                "it does divide itself, and the batches only look the same, use split_by_worker=True"
            )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    if hasattr(one, "value") and hasattr(other, "value"):  # ``Packed``: a batch that collate_fn made
        return _equal(one.value, other.value)
    return type(one) is type(other) and repr(one) == repr(other)
