"""Iterable datasets in several workers: one that shares itself out, as torch's documentation has it, or an error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import data

import standpipe as sp
import standpipe.torch
from torchs import MEMORY, THREADS, Count, told


@pytest.fixture(scope="module", autouse=True)
def shared() -> Any:
    """A loader that keeps the process from which workers come, so that only one test waits for imports."""
    return standpipe.torch.DataLoader(Count())


class Range(data.IterableDataset[Any]):
    """The example of torch's documentation: shares itself out in ``__iter__``."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[Any]:
        info = data.get_worker_info()
        first, last = self.start, self.end
        if info is not None:
            per_worker = math.ceil((last - first) / info.num_workers)
            first += info.id * per_worker
            last = min(first + per_worker, last)
        return iter(range(first, last))


class Whole(data.IterableDataset[Any]):
    """Likewise, shared out by ``worker_init_fn``."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[Any]:
        yield from ((torch.rand(1), number) for number in range(self.start, self.end))


def share_out(worker: int) -> None:
    info: Any = data.get_worker_info()
    assert worker == info.id
    dataset = info.dataset
    per_worker = math.ceil((dataset.end - dataset.start) / info.num_workers)
    dataset.start += worker * per_worker
    dataset.end = min(dataset.start + per_worker, dataset.end)


class Asks(data.IterableDataset[Any]):
    """Asks, and gives all of it to each."""

    def __iter__(self) -> Iterator[Any]:
        assert data.get_worker_info() is not None
        return iter(range(6))


def test_one_that_shares_itself_out_is_read_by_all_workers_in_turn() -> None:
    for rows, drop_last in ((3, False), (4, True), (None, False)):
        made = [
            kind(Range(3, 25), rows, num_workers=2, drop_last=drop_last, **more)
            for kind, more in ((data.DataLoader, {}), (standpipe.torch.DataLoader, MEMORY))
        ]
        theirs, ours = ([told(batch) for batch in loader] for loader in made)
        assert ours == theirs


def test_worker_init_fn_may_share_it_out() -> None:
    loader = standpipe.torch.DataLoader(
        Whole(0, 10), 2, num_workers=2, worker_init_fn=share_out, persistent_workers=True, **MEMORY
    )
    epochs = [list(loader) for _ in range(2)]
    for batches in epochs:
        assert [batch[1].tolist() for batch in batches] == [[0, 1], [5, 6], [2, 3], [7, 8], [4], [9]]
    drawn = [number for epoch in epochs for batch in epoch for number in batch[0].flatten().tolist()]
    assert len(set(drawn)) == 20  # every worker's samples have random numbers of their own, in every epoch


def test_workers_that_end_early_leave_the_turn() -> None:
    class Uneven(Range):
        def __iter__(self) -> Iterator[Any]:
            info: Any = data.get_worker_info()
            return iter([info.id] * (1 + 4 * info.id))

    loader = standpipe.torch.DataLoader(Uneven(0, 0), 2, num_workers=2, **MEMORY)
    assert [batch.tolist() for batch in loader] == [[0], [1, 1], [1, 1], [1]]


def test_a_worker_without_a_part_leaves_the_others_their_turns() -> None:
    """A folder of fewer shards than workers; and a stream of nothing, in one worker and without any."""
    made = [
        kind(Range(0, 1), 2, num_workers=2, persistent_workers=True, **more)
        for kind, more in ((data.DataLoader, {}), (standpipe.torch.DataLoader, MEMORY))
    ]
    for _ in range(2):
        theirs, ours = ([told(batch) for batch in loader] for loader in made)
        assert ours == theirs
        assert len(ours) == 1
    for workers in (0, 1, 2):
        empty = standpipe.torch.DataLoader(Range(0, 0), 2, num_workers=workers, **MEMORY)
        assert list(empty) == list(empty) == []


def test_it_goes_on_where_a_state_was_saved() -> None:
    def make() -> standpipe.torch.DataLoader:
        return standpipe.torch.DataLoader(Whole(0, 9), 2, num_workers=2, worker_init_fn=share_out, **MEMORY)

    loader = make()
    batches = iter(loader)
    for _ in itertools.islice(batches, 3):
        pass
    again = make()
    again.load_state_dict(loader.state_dict())
    assert [told(batch) for batch in again] == [told(batch) for batch in batches]


def test_one_that_each_worker_would_read_is_refused() -> None:
    with pytest.raises(sp.PlanError, match=r"come 2 times\. Use num_workers=1, .*split_by_worker=True"):
        standpipe.torch.DataLoader(Count(), num_workers=2)
    with pytest.raises(sp.PlanError, match="come 2 times"):
        standpipe.torch.DataLoader(Range(0, 5), num_workers=2, split_by_worker=False)
    with pytest.raises(sp.PlanError, match="needs processes from a worker server"):
        standpipe.torch.DataLoader(Range(0, 5), num_workers=2, **THREADS)
    loader = standpipe.torch.DataLoader(Asks(), 2, num_workers=2, **MEMORY)
    with pytest.raises(sp.PlanError, match=r"all 2 workers begin with the same batch.*split_by_worker=True"):
        next(iter(loader))
    loader = standpipe.torch.DataLoader(Asks(), 3, num_workers=2, split_by_worker=True, **MEMORY)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]


def test_an_error_of_one_worker_is_named_and_no_batch_of_others_is_lost() -> None:
    class Fails(Range):
        def __iter__(self) -> Iterator[Any]:
            for number in super().__iter__():
                if number == 5:
                    raise ValueError("five")
                yield number

    batches = iter(standpipe.torch.DataLoader(Fails(0, 12), 2, num_workers=2, **MEMORY))
    assert [next(batches).tolist() for _ in range(4)] == [[0, 1], [6, 7], [2, 3], [8, 9]]
    with pytest.raises(sp.SampleError, match="five"):
        next(batches)
    assert next(batches).tolist() == [10, 11]
