"""Resume of pipelines with Python code: the same samples with the same draws, whoever makes them, however it is cut."""

from itertools import chain
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

import standpipe as sp
from preloaded import SERVER

MEMORY = "512MiB"
WHO = st.one_of(
    st.just({"executor": "inline"}),
    st.builds(lambda workers: {"executor": "thread", "num_workers": workers}, st.sampled_from([1, 3, 8])),
)
PROCESSES = st.builds(
    lambda workers: {"executor": "process", "num_workers": workers, "mp_context": SERVER},
    st.sampled_from([1, 3]),
)
Rows = list[tuple[int, int, float]]


class Numbers:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": index}


def drawn(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "own": int(rng.integers(1 << 40)), "other": float(rng.random())}


def rows_of(batch: dict[str, Any]) -> Rows:
    valid = batch.get("valid", slice(None))
    return list(zip(*(batch[name][valid].tolist() for name in ("x", "own", "other")), strict=True))


def globally(
    pipeline: sp.Pipeline, state: Any, batch: int, world_size: int, steps: int, who: list[dict[str, Any]]
) -> Rows:
    """Rows of all ranks together, from a state on; rank r is run by ``who[r]``."""
    ranks = []
    for rank in range(world_size):
        with (
            pipeline.shard(rank, world_size)
            .batch(batch, last_batch="pad")
            .loader(memory=MEMORY, **who[rank]) as loader
        ):
            if state is not None:
                loader.load_state_dict(state)
            ranks.append([rows_of(each) for each in loader.steps(steps)])
    return [*chain.from_iterable(chain.from_iterable(step) for step in zip(*ranks, strict=True))]


def check(n: int, seed: int, first: Any, then: Any, stop: int, who: list[dict[str, Any]]) -> None:
    """``first`` and ``then``: (batch, world_size) before and after the cut, which comes after ``stop`` steps."""
    pipeline = sp.Pipeline(sp.MapSource(Numbers(n))).shuffle(seed=seed).map(drawn)
    batch, world_size = first
    with (
        pipeline.shard(0, world_size).batch(batch, last_batch="pad").loader(memory=MEMORY, **who[0]) as loader
    ):
        for _ in loader.steps(min(stop, len(loader))):
            pass
        state: Any = loader.state_dict()
    with pipeline.batch(n).loader(memory=MEMORY, executor="inline") as loader:
        epochs = [rows_of(each) for each in loader.steps(2)]
    assert [sorted(x for x, _, _ in epoch) for epoch in epochs] == [list(range(n))] * 2
    epoch, consumed = state["epoch"], state["consumed"]
    left = epochs[epoch][consumed:]
    batch, world_size = then
    steps = -(-len(left) // (batch * world_size))
    assert globally(pipeline, state, batch, world_size, steps, who) == left


TOPOLOGY = st.tuples(st.integers(1, 9), st.integers(1, 3))


@settings(max_examples=40)
@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 2**63),
    first=TOPOLOGY,
    then=TOPOLOGY,
    stop=st.integers(0, 30),
    who=st.lists(WHO, min_size=3, max_size=3),
)
def test_the_rest_is_the_same_in_threads_and_inline(
    n: int, seed: int, first: Any, then: Any, stop: int, who: list[dict[str, Any]]
) -> None:
    check(n, seed, first, then, stop, who)


@settings(max_examples=6)
@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 2**63),
    first=TOPOLOGY,
    then=TOPOLOGY,
    stop=st.integers(0, 30),
    who=st.lists(st.one_of(WHO, PROCESSES), min_size=3, max_size=3),
)
def test_the_rest_is_the_same_in_processes(
    n: int, seed: int, first: Any, then: Any, stop: int, who: list[dict[str, Any]]
) -> None:
    check(n, seed, first, then, stop, who)
