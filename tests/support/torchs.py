"""Datasets, samplers and a comparison for tests that hold standpipe's DataLoader beside torch's."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import data

import standpipe.torch

ROWS = 23
MEMORY: dict[str, Any] = {"memory": "512MiB"}
THREADS: dict[str, Any] = {**MEMORY, "executor": "thread"}
Pair = namedtuple("Pair", "image label")


class Table(data.Dataset[Any]):
    """A sample of every kind that batches are made of row by row."""

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        image = torch.full((2, 3), float(index))
        return image, index, {"name": f"n{index}", "x": [index / 2, np.full(2, index, np.int16)]}


class Of(data.Dataset[Any]):
    """Samples of a list, or made by a function of the index."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return ROWS if callable(self.samples) else len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples(index) if callable(self.samples) else self.samples[index]


class Count(data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from ({"x": torch.full((2,), number), "n": number} for number in range(10))

    def __repr__(self) -> str:
        """Without an address: tests that are named after it are the same in every process."""
        return "Count()"


class Tensors(data.Sampler[Any]):
    """A sampler that gets random numbers from torch's own generator, one at a time, and gives tensors."""

    def __iter__(self) -> Iterator[Any]:
        for _ in range(10):
            yield torch.randint(ROWS, ())

    def __len__(self) -> int:
        return 10


class Eager(data.Sampler[int]):
    """Draws everything when it is asked for an iterator."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(ROWS).tolist())

    def __len__(self) -> int:
        return ROWS


def told(value: Any) -> Any:
    """Everything that can be told of a batch, for comparisons."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape), value.tolist())
    if isinstance(value, dict):
        return (type(value), [(key, told(part)) for key, part in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [told(part) for part in value])
    return (type(value), repr(value))


def same(make: Callable[[Any], Any], *, epochs: int = 2, leave: bool = False, **ours: Any) -> None:
    """Check that it is what torch's gives: length, batches of some epochs, and what is drawn after.

    leave  also of an epoch that is left by ``break``, and of two at once
    """

    def seen(kind: Any) -> Any:
        torch.manual_seed(3)
        loader = make(kind)
        try:
            length: Any = len(loader)
        except TypeError:
            length = "unknown"
        batches = [told(batch) for _ in range(epochs) for batch in loader]
        if leave:
            batches += [told(batch) for batch in itertools.islice(loader, 2)]
            batches += [told(both) for both in zip(loader, loader, strict=True)]
        return length, batches, torch.rand(1).item()

    def theirs(*args: Any, **named: Any) -> Any:
        return data.DataLoader(*args, **named)

    def standpipes(*args: Any, **named: Any) -> Any:
        return standpipe.torch.DataLoader(*args, **{**named, **ours})

    assert seen(standpipes) == seen(theirs)
