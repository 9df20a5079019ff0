"""Saving where a loader stands, and going on from there with other workers, ranks and batch sizes."""

from __future__ import annotations

import dataclasses
import functools
import json
import queue
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import standpipe as sp
from photos import WAIT_S, Watched, numbers, write_photos

MEMORY = "64MiB"


def saved(state: dict[str, object]) -> dict[str, object]:
    """Through a file and back."""
    return json.loads(json.dumps(state))


def test_a_state_is_small_plain_data() -> None:
    with sp.Pipeline(numbers(1000)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
        assert saved(state) == state
        assert len(json.dumps(state)) < 1000
        assert state["digest"] == loader.plan.digest
        assert state["recipe"] == loader.plan.recipe


def test_a_state_counts_delivered_batches_only() -> None:
    located: queue.Queue[list[int]] = queue.Queue()
    source = Watched(numbers(8), lambda rows: located.put(rows.tolist()))
    with sp.Pipeline(source).batch(2).loader(memory=MEMORY, num_workers=1, prefetch=3) as loader:
        iterator = iter(loader)
        assert [located.get(timeout=WAIT_S) for _ in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        for delivered in range(3):
            assert position(loader) == (0, 2 * delivered)
            next(iterator)


def position(loader: sp.Loader) -> tuple[object, object]:
    state = loader.state_dict()
    return state["epoch"], state["consumed"]


@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
def test_after_an_epochs_last_batch_the_state_is_the_next_epochs_begin(last_batch: str) -> None:
    with (
        sp.Pipeline(numbers(7)).batch(3, last_batch=last_batch).loader(memory=MEMORY, num_workers=1) as loader
    ):
        for epoch in range(3):
            for number, _ in enumerate(loader, start=1):
                expected = (epoch + 1, 0) if number == len(loader) else (epoch, 3 * number)
                assert position(loader) == expected
            assert position(loader) == (epoch + 1, 0)


def test_a_state_of_an_epochs_end_goes_on_with_the_next_epoch() -> None:
    pipeline = sp.Pipeline(numbers(6)).shuffle(seed=2).batch(2)
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        list(loader)
        state = saved(loader.state_dict())
        expected = [batch["index"].tolist() for batch in loader]
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        loader.load_state_dict(state)
        assert loader.epoch == 1
        assert [batch["index"].tolist() for batch in loader] == expected


def rows(loader: sp.Loader, steps: int) -> Iterator[list[int]]:
    """The valid rows of the next batches, batch by batch, over epochs."""
    while steps > 0:
        for batch in loader:
            valid = batch["valid"] if "valid" in batch else slice(None)
            yield batch["index"][valid].tolist()
            steps -= 1
            if steps == 0:
                return


@dataclasses.dataclass(frozen=True)
class Split:
    """How a stream is cut: rows per batch, ranks, workers."""

    batch: int
    world_size: int
    workers: int

    def loaders(self, pipeline: sp.Pipeline, last_batch: str) -> list[sp.Loader]:
        return [
            pipeline.shard(rank, self.world_size)
            .batch(self.batch, last_batch=last_batch)
            .loader(memory=MEMORY, num_workers=self.workers)
            for rank in range(self.world_size)
        ]

    def stream(
        self, pipeline: sp.Pipeline, state: dict[str, object], last_batch: str, steps: int
    ) -> list[list[int]]:
        """Valid rows of all ranks together, step by step, from ``state`` on."""
        loaders = self.loaders(pipeline, last_batch)
        for loader in loaders:
            loader.load_state_dict(state)
        ranks = [list(rows(loader, steps)) for loader in loaders]
        for loader in loaders:
            loader.close()
        return [list(chain.from_iterable(step)) for step in zip(*ranks, strict=True)]


splits = st.builds(Split, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(
    num_records=st.integers(12, 30),
    seed=st.integers(0, 5),
    last_batch=st.sampled_from(["drop", "pad"]),
    first=splits,
    second=splits,
    step=st.integers(0, 8),
)
def test_the_rest_of_the_stream_is_the_same_however_it_is_cut(
    num_records: int, seed: int, last_batch: str, first: Split, second: Split, step: int
) -> None:
    pipeline = sp.Pipeline(numbers(num_records)).shuffle(seed=seed)
    loader = first.loaders(pipeline, last_batch)[-1]
    list(rows(loader, step))
    state = saved(loader.state_dict())
    order = loader.plan.order
    loader.close()
    epoch, consumed = int(str(state["epoch"])), int(str(state["consumed"]))
    whole = second.batch * second.world_size
    left = num_records - consumed
    steps = left // whole if last_batch == "drop" else -(-left // whole)
    if steps == 0:
        epoch, consumed, steps = epoch + 1, 0, num_records // whole
    stop = min(consumed + steps * whole, num_records)
    expected = order.indices(epoch, consumed, stop).tolist()
    delivered = second.stream(pipeline, state, last_batch, steps + 1)
    assert list(chain.from_iterable(delivered[:-1])) == expected
    assert delivered[-1] == order.indices(epoch + 1, 0, whole).tolist()


def test_pixels_and_draws_are_the_same_after_a_resume_at_every_step(tmp_path: Path) -> None:
    source = write_photos(tmp_path, 12)
    crop = (sp.RandomResizedCrop(10), sp.RandomHorizontalFlip())
    pipeline = sp.Pipeline(source).shuffle(seed=4).map(*crop)
    states, images = [], []
    with pipeline.batch(2).loader(memory=MEMORY, num_workers=2) as loader:
        states.append(saved(loader.state_dict()))
        for batch in loader:
            images += [image.tobytes() for image in batch["image"]]
            states.append(saved(loader.state_dict()))
        images += [image.tobytes() for image in next(iter(loader))["image"]]
    for number, state in enumerate(states):
        with pipeline.batch(1).loader(memory=MEMORY, num_workers=1 + number % 3) as loader:
            loader.load_state_dict(state)
            rest = [batch["image"][0].tobytes() for batch in loader]
        expected = images[2 * number : 12] if number < 6 else images[12:]
        assert rest[: len(expected)] == expected
        assert len(rest) == (12 - 2 * number if number < 6 else 12)


def test_a_state_may_be_loaded_while_a_loader_runs() -> None:
    with sp.Pipeline(numbers(8)).shuffle(seed=1).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        first = next(iter(loader))["index"].tolist()
        state = loader.state_dict()
        iterator = iter(loader)
        next(iterator)
        loader.load_state_dict({**state, "consumed": 0})
        with pytest.raises(sp.StandpipeError, match="load_state_dict"):
            next(iterator)
        assert next(iter(loader))["index"].tolist() == first


def images(rows: int) -> sp.Arrays:
    return sp.Arrays(image=np.arange(rows * 48, dtype=np.uint8).reshape(rows, 4, 4, 3))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (sp.Pipeline(images(8)).shuffle(seed=8), "seed was 7 and is 8"),
        (sp.Pipeline(images(8), seed=7), "order was 'shuffled' and is 'sequential'"),
        (sp.Pipeline(images(9)).shuffle(seed=7), "rows was 8 and is 9"),
        (
            sp.Pipeline(images(8)).shuffle(seed=7).map(sp.CenterCrop(4)),
            "transforms was '' and is 'CenterCrop",
        ),
        (sp.Pipeline(images(8)).shuffle(seed=7).decode("fast"), "decode was 'exact' and is 'fast'"),
        (
            sp.Pipeline(images(8)).shuffle(seed=7).decode(limits=sp.DecodeLimits(max_scans=3)),
            "max_scans=100)' and is 'DecodeLimits(max_pixels=178956970, max_scans=3)'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_state_of_another_recipe_says_what_differs(other: sp.Pipeline, says: str) -> None:
    loader = sp.Pipeline(images(8)).shuffle(seed=7).batch(2).loader(memory=MEMORY, num_workers=1)
    other_loader = other.batch(2).loader(memory=MEMORY, num_workers=1)
    with pytest.raises(sp.StateError, match="another recipe") as caught:
        other_loader.load_state_dict(saved(loader.state_dict()))
    assert says in str(caught.value)


def test_what_is_no_part_of_the_recipe_may_change() -> None:
    pipeline = sp.Pipeline(numbers(8)).shuffle(seed=7)
    state = pipeline.batch(2).loader(memory=MEMORY, num_workers=1).state_dict()
    other = (
        pipeline.shard(1, 2)
        .batch(4, last_batch="pad")
        .loader(memory="80MiB", num_workers=2, prefetch=2, batch_release_timeout_s=1)
    )
    other.load_state_dict(state)


def test_a_state_of_the_running_epoch_goes_on_in_it() -> None:
    with sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        next(iter(loader))
        loader.load_state_dict(loader.state_dict())
        assert [batch["index"].tolist() for batch in loader] == [[2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2},
        {"version": None},
        {"version": True},
        {"digest": "00"},
        {"epoch": -1},
        {"epoch": True},
        {"epoch": "1"},
        {"epoch": 1 << 70},
        {"consumed": None},
        {"consumed": 1.0},
        {"consumed": 9},
        {"consumed": -2},
        {"recipe": None},
        {"recipe": {}},
        {"recipe": {1: 2, "source": 3}},
        {"recipe": {"source": functools.reduce(lambda inner, _: [inner], range(5000), 0)}},
        {"edits": 3},
        {"edits": [{"epoch": 0}]},
        {"edits": [{"epoch": 0, "consumed": 0, "skip_steps": "2"}]},
        {"edits": [{"epoch": 0, "consumed": 0, "skip_steps": 2}], "consumed": 9},
    ],
    ids=lambda damage: ", ".join(damage),
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage: dict[str, object]) -> None:
    with sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        with pytest.raises(sp.StateError):
            loader.load_state_dict({**state, **damage})
        assert loader.state_dict() == state
        assert next(iterator)["index"].tolist() == [2, 3]


@pytest.mark.parametrize("state", [{}, [], None, 7, "state"], ids=str)
def test_what_is_no_state_is_refused(state: object) -> None:
    loader = sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1)
    with pytest.raises(sp.StateError):
        loader.load_state_dict(state)  # type: ignore[arg-type]


def test_another_decoder_is_a_warning() -> None:
    loader = sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1)
    with pytest.warns(UserWarning, match=r"libjpeg-turbo 1\.0\.0"):
        loader.load_state_dict({**loader.state_dict(), "decoder": "1.0.0"})


def test_torch_saves_a_state(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1) as loader:
        next(iter(loader))
        torch.save(loader.state_dict(), tmp_path / "loader.pt")
        assert torch.load(tmp_path / "loader.pt", weights_only=True) == loader.state_dict()


def test_skipped_steps_are_left_out_and_on_record() -> None:
    pipeline = sp.Pipeline(numbers(12)).shuffle(seed=3).batch(2)
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        stream = [batch["index"].tolist() for batch in loader.steps(24)]
    with pipeline.loader(memory=MEMORY, num_workers=1) as loader:
        loader.skip_steps(1)
        iterator = iter(loader)
        assert next(iterator)["index"].tolist() == stream[1]
        loader.skip_steps(2)
        assert next(iterator)["index"].tolist() == stream[4]
        loader.skip_steps(8)  # the rest of this epoch, and more than the next one
        assert list(iterator) == []
        assert loader.epoch == 2
        state = loader.state_dict()
        rest = [batch["index"].tolist() for batch in loader.steps(5)]
    assert rest == stream[13:18]
    assert state["edits"] == [
        {"epoch": 0, "consumed": 0, "skip_steps": 1},
        {"epoch": 0, "consumed": 4, "skip_steps": 2},
        {"epoch": 0, "consumed": 10, "skip_steps": 8},
    ]
    with pipeline.batch(1).loader(memory=MEMORY, num_workers=1) as loader:
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert loader.edits == state["edits"]
        assert [batch["index"].item() for batch in loader.steps(10)] == [i for two in rest for i in two]


def test_any_number_of_steps_is_skipped_at_once() -> None:
    with sp.Pipeline(numbers(12)).shuffle(seed=3).batch(5).loader(memory=MEMORY, num_workers=1) as loader:
        loader.skip_steps(10**15 + 1)  # two steps an epoch
        assert (loader.epoch, loader.state_dict()["consumed"]) == (5 * 10**14, 5)


@pytest.mark.parametrize("number", [0, -1, 1.0, "2", True])
def test_what_cannot_be_skipped(number: object) -> None:
    loader = sp.Pipeline(numbers(8)).batch(2).loader(memory=MEMORY, num_workers=1)
    with pytest.raises(sp.PlanError, match="the number of batches must be an integer"):
        loader.skip_steps(number)  # type: ignore[arg-type]
    assert loader.edits == []
