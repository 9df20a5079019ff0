"""Whatever thread of a loader ends by an error of its own: the run ends, with an error that names the thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import pytest

import standpipe as sp
from fleets import Makers
from forked import output
from photos import encoded, picture, write_list
from preloaded import SERVER

SIZE = 16


class Broken(BaseException):
    """Not one that somebody could expect."""


@contextmanager
def broken(thread: str, function: str) -> Iterator[None]:
    """A thread of that name that starts meanwhile fails, once, as it enters a function outside of its work."""
    left = [Broken(f"in {function}")]

    def trace(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_name == function and threading.current_thread().name.startswith(thread) and left:
            raise left.pop()

    threading.settrace(cast("Any", trace))
    try:
        yield
    finally:
        threading.settrace(cast("Any", None))
    assert not left, f"{thread} was never in {function}"


def numbers() -> sp.Pipeline:
    return sp.Pipeline(sp.MapSource(np.arange(SIZE), fields="x")).batch(2)


def foreign(folder: Path) -> sp.Pipeline:
    write_list(folder, [encoded(picture(seed), "PNG") for seed in range(SIZE)])
    return sp.Pipeline(sp.FileList(folder / "list.txt")).map(sp.Resize((8, 8))).batch(2)


def cached(folder: Path) -> sp.Pipeline:
    cache = sp.Cache("ends", "8MiB", directory=folder)
    return sp.Pipeline(sp.MapSource(np.arange(SIZE), fields="x")).cache(cache).batch(2)


@pytest.mark.parametrize(
    ("thread", "function", "executor"),
    [
        ("standpipe-fill", "_submit", "thread"),
        ("standpipe-fill", "_collect", "process"),
        ("standpipe-worker", "rows_in", "thread"),
        ("standpipe-worker", "finish", "thread"),
        ("standpipe-fill", "_has_asked", "process"),
        ("standpipe-fill", "_finish", "process"),
        ("standpipe-watch", "_look", "thread"),
        ("standpipe-watch", "_look", "process"),
        ("standpipe-pillow", "_decode_foreign", "native"),
        ("standpipe-cache", "supply", "thread"),
    ],
)
def test_a_thread_that_ends_ends_the_run(thread: str, function: str, executor: str, tmp_path: Path) -> None:
    pipeline = (
        foreign(tmp_path) if executor == "native" else cached(tmp_path) if "cache" in thread else numbers()
    )
    settings: dict[str, Any] = {} if executor == "native" else {"executor": executor}
    if executor == "process":
        settings["mp_context"] = SERVER
    with (
        broken(thread, function),
        pipeline.loader(memory="256MiB", num_workers=2, stall_timeout_s=None, **settings) as loader,
    ):
        with pytest.raises(sp.WorkerDiedError, match=rf"{thread}.* Broken\('in {function}'\)") as caught:
            for _ in loader.steps(10 * SIZE):
                pass
        assert isinstance(caught.value.__cause__, Broken)
        with pytest.raises(sp.WorkerDiedError, match=thread):
            next(loader.steps(1))


CACHED = """
cache = sp.Cache("ends", "8MiB", directory={folder!r})
loader = sp.Pipeline(sp.MapSource(range(16), fields="x")).cache(cache).batch(2).loader(
    memory="256MiB", num_workers=1, executor="process", stall_timeout_s=None)
with loader:
    for _ in range(2):
        try:
            next(iter(loader))
        except sp.WorkerDiedError as error:
            print(error)
"""


def test_a_thread_of_a_worker_process_that_ends_ends_the_run(tmp_path: Path) -> None:
    """The thread that tends a cache there."""
    program = CACHED.format(folder=str(tmp_path))
    told = output(program, environment={"STANDPIPE_FAULTS": "cache.extent=raise"})
    assert told.count("standpipe-cache ended by an error that nobody expected: RuntimeError") == 2


def test_a_thread_that_replaces_a_worker_ends_the_run() -> None:
    with (
        broken("standpipe-worker", "death"),
        numbers()
        .map(die)
        .loader(memory="256MiB", num_workers=1, executor="process", mp_context=SERVER) as loader,
        pytest.raises(sp.WorkerDiedError, match=r"standpipe-worker-0 ended .* Broken\('in death'\)"),
    ):
        list(loader)


@pytest.mark.parametrize("function", ["_begin", "_begun", "_collect", "_answer", "_give_up_lost"])
def test_a_thread_of_a_maker_that_ends_fails_its_batches(function: str) -> None:
    """Of the only one, which is started again. It answered that it is alive, and no batch ever came."""
    fleet = Makers(
        [numbers().plan(memory="256MiB", num_workers=1, executor="thread", check_generators=False)]
    )
    with broken("standpipe-make", function), numbers().loader(fleet=fleet, memory="256MiB") as loader:
        assert [batch["x"].tolist() for batch in loader] == [[n, n + 1] for n in range(0, SIZE, 2)]
    assert fleet.restarts == [0]


def die(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] > 0:  # the first one is measured
        os._exit(1)
    return sample


def test_a_thread_that_measures_ends_the_start() -> None:
    loader = numbers().loader(memory="256MiB", executor="thread", stall_timeout_s=None)
    with (
        broken("standpipe-measure", "measure"),
        loader,
        pytest.raises(sp.WorkerDiedError, match="standpipe-measure ended"),
    ):
        next(iter(loader))
