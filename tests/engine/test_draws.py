"""Global generators that the trainer draws from too, in its own thread, while workers make samples."""

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S

NUMBERS = [{"x": float(number)} for number in range(40)]


def loader(fn: Callable[[Any], Any], **settings: Any) -> sp.Loader:
    pipeline = sp.Pipeline(sp.Indexed(NUMBERS)).map(fn, field="x").batch(1)
    return pipeline.loader(memory="512MiB", **settings)


def drawn_alone(count: int) -> list[float]:
    """What the trainer draws first. The generator is as before that."""
    random.seed(5)
    draws = [random.random() for _ in range(count)]
    random.seed(5)
    return draws


def test_what_the_trainer_draws_meanwhile_is_its_own_and_stops_nobody() -> None:
    inside, drawn, one, other = (threading.Event() for _ in range(4))

    def waits(x: float) -> float:
        if x == 7:
            inside.set()
            assert drawn.wait(WAIT_S)
        if x == 30:  # made while 31 is
            one.set()
            assert other.wait(WAIT_S)
        if x == 31:
            other.set()
            assert one.wait(WAIT_S)
        return x

    expected = drawn_alone(4)
    with loader(waits, executor="thread", workers=2) as batches:
        got = []
        for batch in batches:
            if batch["index"][0] == 5:
                assert inside.wait(WAIT_S)
                got += [random.random(), random.random()]
                drawn.set()
            if batch["index"][0] == 10:
                got.append(random.random())
    got.append(random.random())
    assert got == expected


def test_what_the_trainer_draws_while_a_sample_is_made_again_is_its_own_too() -> None:
    """As a DataLoader that is iterated twice at once draws a seed for the workers and one for the sampler."""
    made, drawn = threading.Semaphore(0), threading.Semaphore(0)
    times = iter(range(2))

    def waits(x: float) -> float:
        if x == 7 and next(times, None) is not None:
            made.release()
            assert drawn.acquire(timeout=WAIT_S)
        return x

    expected = drawn_alone(3)
    with loader(waits, executor="thread", workers=1) as batches:
        got = []
        for batch in batches:
            if batch["index"][0] == 5:
                for _ in range(2):
                    assert made.acquire(timeout=WAIT_S)
                    got.append(random.random())
                    drawn.release()
    got.append(random.random())
    assert got == expected


@pytest.mark.parametrize("library", ["random", "numpy"])
def test_a_normal_number_that_a_generator_keeps_is_a_draw_too(library: str) -> None:
    def normal() -> float:
        return random.gauss(0, 1) if library == "random" else float(np.random.randn())  # noqa: NPY002

    def draws(x: float) -> float:
        return x + normal() if x == 30 else x

    made = []
    for seed in (1, 2):
        random.seed(seed), np.random.seed(seed)  # noqa: NPY002
        normal()  # makes two, and keeps the second
        with loader(draws, executor="inline") as batches:
            made.append([float(batch["x"][0]) for batch in batches])
    assert made[0] == made[1]
