"""Ctrl-C at any moment of handing a batch over: the batch comes again, and its bad samples count once."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import standpipe as sp

SIZE = 12
AT = 2  # the batch of each epoch that is interrupted
MEMORY = "64MiB"
UNHEARD = {
    "<lambda>",
    "<genexpr>",
}  # callbacks of the collector, generators that are dropped: errors there reach nobody


class Numbers:
    """Record i is i; every other one is bad."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        if index % 2:
            raise ValueError("bad")
        return index


def names_from(frame: FrameType | None) -> Iterator[str]:
    """Names of a function that runs, and of those that wait for it, up to the test."""
    while frame is not None and not frame.f_code.co_name.startswith("test_"):
        yield frame.f_code.co_name
        frame = frame.f_back


@contextmanager
def interrupted(after: int) -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` where Python looks for signals, for the ``after``-th time: as a function begins, or
    a call into C has ended.
    """
    left = after

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event not in ("call", "c_return") or UNHEARD.intersection(names_from(frame)):
            return
        left -= 1
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_bad_samples_of_an_interrupted_batch_count_once(executor: Any, tmp_path: Path) -> None:
    log = tmp_path / "bad.jsonl"
    pipeline = sp.Pipeline(sp.MapSource(Numbers(), fields="x")).on_error(sp.Replace(at_most=100)).batch(2)

    def loader(**settings: Any) -> sp.Loader:
        return pipeline.loader(
            memory=MEMORY, num_workers=1, executor=executor, stall_timeout_s=None, **settings
        )

    with loader() as whole, loader(error_log=log) as batches:
        for moment in itertools.count(1):
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
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            assert [each["index"] for each in lines if each["epoch"] == epoch] == in_epoch(whole, epoch)
            if not was_interrupted:
                break
    assert moment > 50


@pytest.mark.parametrize("executor", ["thread", "inline"])
def test_an_interrupted_look_loses_nothing(executor: Any) -> None:
    pipeline = sp.Pipeline(sp.MapSource(Numbers(), fields="x")).on_error(sp.Replace(at_most=100)).batch(2)
    settings: Any = {"memory": MEMORY, "num_workers": 1, "executor": executor, "stall_timeout_s": None}
    with pipeline.loader(**settings) as whole, pipeline.loader(**settings) as batches:
        for moment in itertools.count(1):
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


def in_epoch(loader: sp.Loader, epoch: int) -> list[int]:
    """Records that were bad in it, in the order in which they were taken down."""
    return [each.index for each in loader.bad_samples if each.epoch == epoch]
