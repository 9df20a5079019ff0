"""Ctrl-C at any moment inside ``next()`` of a ``DataLoader``: no batch is left out without a word."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils import data

import standpipe as sp
import standpipe.torch
from interrupts import interrupted
from torchs import MEMORY, THREADS

SIZE = 24
AT = 2  # the batch of each epoch that is interrupted


class Parts(data.IterableDataset[Any]):
    """Numbers, of which each worker reads its part."""

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        return iter(range(SIZE)) if info is None else iter(range(info.id, SIZE, info.num_workers))


class Keys(data.Sampler[list[int]]):
    """Batches of numbers, from a generator."""

    def __iter__(self) -> Iterator[list[int]]:
        for first in range(0, SIZE, 2):
            yield [first, first + 1]


def check(loader: Any, *, step: int, errors: bool) -> int:
    """Interrupt every ``step``-th moment of a ``next()``, each in an epoch of its own; return the last moment.

    errors  True: the ``next()`` after an interrupt may be an error, after which a state gives the rest of the epoch
    """
    expected = [batch.tolist() for batch in loader]
    failed = 0
    for moment in itertools.count(1, step):
        batches, delivered, was_interrupted = iter(loader), [], False
        while len(delivered) < len(expected):
            batch = None
            try:
                with interrupted(moment if len(delivered) == AT and not was_interrupted else 0):
                    batch = batches._next_data()  # next() is torch's, and may be interrupted after this
            except KeyboardInterrupt:
                was_interrupted = True
            except sp.StandpipeError as error:
                failed += "the rest of this epoch is unknown" in str(error)
                loader.load_state_dict(loader.state_dict())
                batches = iter(loader)
            if batch is not None:
                delivered.append(batch.tolist())
        assert delivered == expected, f"interrupted at moment {moment}"
        if not was_interrupted:
            assert errors == (failed > 0)
            return moment
    raise AssertionError


@pytest.mark.parametrize(("workers", "step"), [(0, 1), (2, 7)])
def test_map_style(workers: int, step: int) -> None:
    threads = {"num_workers": workers, **THREADS} if workers else {}
    loader: Any = standpipe.torch.DataLoader(range(SIZE), batch_sampler=Keys(), **threads)
    assert check(loader, step=step, errors=True) > 30


@pytest.mark.parametrize("workers", [1, 2])
def test_streams(workers: int) -> None:
    loader: Any = standpipe.torch.DataLoader(
        Parts(), batch_size=2, num_workers=workers, persistent_workers=True, **MEMORY
    )
    assert check(loader, step=3, errors=False) > 30
