"""Where a drop-in DataLoader stands, and how another one goes on from there."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

import standpipe as sp
import standpipe.torch
from torchs import MEMORY, Count, Eager, Of, Table, told

STATES: dict[str, dict[str, Any]] = {
    "torch's generator": {"shuffle": True},
    "a generator": {"shuffle": True, "generator": 5},
    "an eager sampler": {"sampler": Eager()},
    "batch_sampler": {"batch_sampler": [[1, 2, 3], [7], [4, 4, 4, 4, 4, 9], [0] * 19]},
    "batches without records": {"batch_sampler": [[1, 2], [], [4, 4, 4], [5], []], "collate_fn": list},
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_state_gives_the_rest_of_its_epoch(kind: str, workers: int, epoch: int) -> None:
    def make() -> standpipe.torch.DataLoader:
        named = dict(STATES[kind])
        if "generator" in named:
            named["generator"] = torch.Generator().manual_seed(5)
        if "batch_sampler" not in named:
            named["batch_size"] = 4
        if workers:
            named |= {"persistent_workers": True}
        # In this process draws are its own, and no state has them.
        dataset = Of(lambda index: (index, torch.rand(2) if sp.worker_id() is not None else index))
        return standpipe.torch.DataLoader(dataset, num_workers=workers, **{**MEMORY, **named})

    torch.manual_seed(7)
    whole = make()
    for _ in range(epoch):
        list(whole)
    for stop in (0, 2):
        torch.manual_seed(stop)
        batches = iter(whole)
        for _ in range(stop):
            next(batches)
        state = pickle.loads(pickle.dumps(whole.state_dict()))
        rest = [told(batch) for batch in batches]
        torch.manual_seed(8)
        before = torch.get_rng_state()
        again = make()
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert [told(batch) for batch in again] == rest
        if again.generator is None:
            assert torch.equal(torch.get_rng_state(), before)
        elif stop:  # what comes after is what would have come
            after = whole.state_dict()
            assert [told(batch) for batch in again] == [told(batch) for batch in whole]
            again.load_state_dict(after)


def test_a_state_at_an_epochs_end_begins_the_next() -> None:
    def make() -> standpipe.torch.DataLoader:
        return standpipe.torch.DataLoader(
            Table(), 4, shuffle=True, generator=torch.Generator().manual_seed(5), num_workers=0, **MEMORY
        )

    whole, again = make(), make()
    batches = iter(whole)
    for _ in range(len(whole)):
        next(batches)
    again.load_state_dict(whole.state_dict())  # after the last batch
    assert next(batches, None) is None
    third = make()
    third.load_state_dict(whole.state_dict())  # after the end
    second = [told(batch) for batch in whole]
    assert [told(batch) for batch in third] == second
    assert [told(batch) for batch in again] == second


def test_a_stream_goes_on_too() -> None:
    loader = standpipe.torch.DataLoader(Count(), 4, **MEMORY)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    again = standpipe.torch.DataLoader(Count(), 4, **MEMORY)
    again.load_state_dict(state)
    assert [batch["n"].tolist() for batch in again] == [[4, 5, 6, 7], [8, 9]]


def test_a_state_of_another_order_is_refused() -> None:
    loader = standpipe.torch.DataLoader(Table(), 4, sampler=[1, 2, 3, 4, 5, 6], **MEMORY)
    next(iter(loader))
    other = standpipe.torch.DataLoader(Table(), 4, sampler=[1, 2, 3, 5, 4, 6], **MEMORY)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(sp.StateError, match="order"):
        iter(other)
    for odd in ({}, None, {**loader.state_dict(), "version": 0}, {**loader.state_dict(), "delivered": "1"}):
        with pytest.raises(sp.StateError, match="isn't a state"):
            other.load_state_dict(odd)  # type: ignore[arg-type]
