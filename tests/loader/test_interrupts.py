"""Ctrl-C at any moment of handing a batch over: the batch comes again, and its bad samples count once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from interrupts import STEPS, interrupted

SIZE = 12
AT = 2  # the batch of each epoch that is interrupted
MEMORY = "64MiB"


class Numbers:
    """Record i is i; every other one is bad."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        if index % 2:
            raise ValueError("bad")
        return index


@STEPS
@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_bad_samples_of_an_interrupted_batch_count_once(executor: Any, step: int, tmp_path: Path) -> None:
    log = tmp_path / "bad.jsonl"
    pipeline = sp.Pipeline(sp.MapSource(Numbers(), fields="x")).on_error(sp.Replace(at_most=100)).batch(2)

    def loader(**settings: Any) -> sp.Loader:
        return pipeline.loader(
            memory=MEMORY, num_workers=1, executor=executor, stall_timeout_s=None, **settings
        )

    with loader() as whole, loader(error_log=log) as batches:
        for moment in itertools.count(1, step):
            expected = list(whole)
            epoch = batches.epoch
            iterator, delivered, was_interrupted = iter(batches), [], False
            while len(delivered) < len(expected):
                at, bad = batches.state_dict(), batches.bad_samples
                try:
                    with interrupted(moment if len(delivered) == AT and not was_interrupted else 0):
                        batch = next(iterator)
                    delivered.append(batch["x"].tolist())
                except KeyboardInterrupt:
                    was_interrupted = True
                    if batches.state_dict()["consumed"] != at["consumed"]:
                        delivered.append(expected[AT]["x"].tolist())  # it came just before the interrupt
                    else:
                        assert (batches.state_dict(), batches.bad_samples) == (at, bad)
            assert delivered == [batch["x"].tolist() for batch in expected]
            assert in_epoch(batches, epoch) == in_epoch(whole, epoch), f"interrupted at moment {moment}"
            lines = [json.loads(line) for line in log.read_text().splitlines()[-10 * SIZE :]]
            assert [each["index"] for each in lines if each["epoch"] == epoch] == in_epoch(whole, epoch)
            if not was_interrupted:
                break
    assert moment > 50


@STEPS
@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_an_interrupted_look_loses_nothing(executor: Any, step: int) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Numbers(), fields="x")).on_error(sp.Replace(at_most=100)).batch(2)
    settings: Any = {"memory": MEMORY, "num_workers": 1, "executor": executor, "stall_timeout_s": None}
    with pipeline.loader(**settings) as whole, pipeline.loader(**settings) as batches:
        for moment in itertools.count(1, step):
            expected, was_interrupted = [batch["x"].tolist() for batch in whole], False
            iterator, delivered = iter(batches), []
            for number in range(len(expected)):
                if number == AT:
                    try:
                        with interrupted(moment):
                            shown = batches.peek()
                        assert shown["x"].tolist() == expected[AT]
                    except KeyboardInterrupt:
                        was_interrupted = True
                delivered.append(next(iterator)["x"].tolist())
            assert delivered == expected, f"interrupted at moment {moment}"
            if not was_interrupted:
                break
    assert moment > 30


@STEPS
@pytest.mark.parametrize("ahead", [0, 2])
def test_named_batches_come_after_an_interrupt_or_are_an_error(ahead: int, step: int) -> None:
    """One that falls into a generator of names ends it: what it would have named isn't left out in silence."""

    def names() -> Iterator[list[int]]:
        yield from ([2 * number, 2 * number + 1] for number in range(SIZE // 2))

    errors = 0
    expected = list(names())
    pipeline = sp.Pipeline(sp.Arrays(x=np.arange(SIZE))).batch(2, batch_sampler=True)
    with pipeline.loader(memory=MEMORY, num_workers=1, stall_timeout_s=None) as loader:
        for moment in itertools.count(1, step):
            batches, delivered, was_interrupted = loader.from_batches(names(), ahead=ahead), [], False
            while len(delivered) < len(expected):
                batch = None
                try:
                    with interrupted(moment if len(delivered) == AT and not was_interrupted else 0):
                        batch = batches.__next__()
                except KeyboardInterrupt:
                    was_interrupted = True
                except sp.PlanError as error:
                    errors += "the batches that are left are unknown" in str(error)
                    break
                if batch is not None:
                    delivered.append(batch["x"].tolist())
            assert delivered == expected[: len(delivered)], f"interrupted at moment {moment}"
            if not was_interrupted:
                break
    assert moment > 30
    assert errors < moment / step / 2
    assert errors or step > 1, "no interrupt came inside the generator"


@pytest.mark.parametrize("at", range(SIZE))
def test_a_stream_goes_on_after_an_interrupt_of_its_generator(at: int) -> None:
    """It ends the generator, so that the rest would seem to be over."""
    interrupts = [KeyboardInterrupt()]

    def samples() -> Iterator[dict[str, int]]:
        for number in range(SIZE):
            if number == at and interrupts:
                raise interrupts.pop()
            yield {"x": number}

    pipeline = sp.Pipeline(sp.IterableSource(samples)).batch(4)
    with pipeline.loader(memory=MEMORY, executor="inline", stall_timeout_s=None) as loader:
        delivered: list[int] = []
        if at == 0:
            with pytest.raises(KeyboardInterrupt):
                iter(loader)
        batches = iter(loader)
        while len(delivered) < SIZE:
            try:
                delivered += batches.__next__()["x"].tolist()
            except KeyboardInterrupt:
                assert len(delivered) == at // 4 * 4
    assert delivered == list(range(SIZE))
    assert not interrupts


@STEPS
def test_an_interrupt_at_any_moment_of_the_first_batch_inline(step: int) -> None:
    for moment in itertools.count(1, step):
        pipeline = sp.Pipeline(sp.MapSource(list(range(SIZE)), fields="x")).batch(2)
        with pipeline.loader(
            memory=MEMORY, executor="inline", stall_timeout_s=None, check_generators=False
        ) as loader:
            batches, was_interrupted = iter(loader), False
            taken: list[Any] = []
            try:
                with interrupted(moment):
                    taken += (batches.__next__(),)  # with no moment between the two
            except KeyboardInterrupt:
                was_interrupted = True
            delivered = [number for batch in (*taken, *batches) for number in batch["x"].tolist()]
        assert delivered == list(range(SIZE)), f"interrupted at moment {moment}"
        if not was_interrupted:
            break
    assert moment > 30


def in_epoch(loader: sp.Loader, epoch: int) -> list[int]:
    """Records that were bad in it, in the order in which they were taken down."""
    return [each.index for each in loader.bad_samples if each.epoch == epoch]
