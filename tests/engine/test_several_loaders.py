"""Loaders with Python code side by side, left and entered again, and interrupted."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S
from preloaded import SERVER
from programs import census, check_nothing_is_left, children, is_alive, started, wait_for_end

SETTINGS = [
    pytest.param({"executor": "thread", "num_workers": 2}, id="threads"),
    pytest.param({"executor": "process", "num_workers": 2, "mp_context": SERVER}, id="processes"),
]
MEMORY = "512MiB"
PROMPT_S = 8  # from an interrupt to the end of the program, also on a busy machine


class Numbers:
    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(3, index)


def draws(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    numbers = [rng.random() for _ in range(50)]  # long enough for another thread to come in between
    return x + numbers[-1]


def pipeline(seed: int) -> sp.Pipeline:
    return (
        sp.Pipeline(sp.MapSource(Numbers(), fields="x"), seed=seed)
        .shuffle(seed=seed)
        .map(draws, field="x")
        .batch(10)
    )


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads come in between at every chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.usefixtures("restless")
def test_two_loaders_at_once_give_what_each_gives_alone(settings: dict[str, Any]) -> None:
    train, val = pipeline(seed=1), pipeline(seed=2)
    alone = []
    for each in (train, val):
        with each.loader(executor="inline", memory=MEMORY) as loader:
            alone.append([batch["x"].copy() for batch in loader])
    for _ in range(3):
        with train.loader(memory=MEMORY, **settings) as one, val.loader(memory=MEMORY, **settings) as other:
            for row, (a, b) in enumerate(zip(one, other, strict=True)):
                np.testing.assert_array_equal(a["x"], alone[0][row])
                np.testing.assert_array_equal(b["x"], alone[1][row])


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_loader_inside_the_loop_of_another(settings: dict[str, Any]) -> None:
    train, val = pipeline(seed=1), pipeline(seed=2)
    passes = []
    with train.loader(memory=MEMORY, **settings) as outer, val.loader(memory=MEMORY, **settings) as inner:
        for number, _ in enumerate(outer):
            if number % 7 == 0:
                passes.append(sorted(int(index) for batch in inner for index in batch["index"]))
    assert passes == [list(range(200))] * 3


class Lazily(Numbers):
    """Reads through a loader of its own, made at first use."""

    def __init__(self) -> None:
        self.loaders = threading.local()

    def __getitem__(self, index: int) -> np.ndarray:
        if not hasattr(self.loaders, "one"):
            self.loaders.one = pipeline(seed=3).loader(memory=MEMORY, executor="thread", num_workers=1)
        first = next(iter(self.loaders.one))["x"].max()
        return super().__getitem__(index) + 0 * first


def test_a_dataset_that_reads_through_a_loader() -> None:
    with (
        sp.Pipeline(sp.MapSource(Lazily(), fields="x"))
        .map(draws, field="x")
        .batch(50)
        .loader(memory=MEMORY, executor="thread") as loader
    ):
        assert sum(len(batch["x"]) for batch in loader) == 200


PROGRAM = """
    import os, threading
    import standpipe as sp

    class Stops:
        def __len__(self):
            return 100
        def __getitem__(self, index):
            if index >= 20:
                os.write(1, b"stuck\\n")  # in one piece, whoever writes beside it
                threading.Event().wait()
            return index

    pipeline = sp.Pipeline(sp.MapSource(Stops())).batch(10)
    for batch in pipeline.loader(executor="process", num_workers=2, memory="512MiB"):
        os.write(1, b"batch\\n")
"""


def test_ctrl_c_while_workers_are_stuck(tmp_path: Path) -> None:
    """As from a terminal: everything in the foreground is told."""
    before = census()
    with started(PROGRAM, folder=tmp_path) as (trainer, output, errors):
        lines = [output.readline() for _ in range(4)]
        assert sorted(lines) == ["batch\n"] * 2 + ["stuck\n"] * 2  # so it waits for the third, or soon does
        processes = children(trainer.pid)
        assert len(processes) == 3
        begin = time.monotonic()
        os.killpg(trainer.pid, signal.SIGINT)
        trainer.wait(WAIT_S)
        assert time.monotonic() - begin < PROMPT_S
        assert wait_for_end(processes, WAIT_S) == []
        said = errors.read()
    assert trainer.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1, said
    assert said.rstrip().endswith("KeyboardInterrupt")
    check_nothing_is_left(before)
    assert not list(tmp_path.iterdir())
    assert not [process for process in processes if is_alive(process)]
