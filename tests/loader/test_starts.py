"""Starts that are interrupted, closed from elsewhere or fail: nothing stays behind, and errors stay whose they are."""

from __future__ import annotations

import gc
import itertools
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from interrupts import STEPS
from photos import WAIT_S, Watched, numbers, write_photos
from preloaded import SERVER
from programs import at_call, census, check_nothing_is_left, interrupt
from standpipe.engine.run import _abandoned


class Squares:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full(3, index * index)}


def loader(kind: str, folder: Path, server: Any = "spawn") -> sp.Loader:
    if kind == "photos":
        listed = (
            sp.FileList(folder / "list.txt") if (folder / "list.txt").exists() else write_photos(folder, 6)
        )
        pipeline = sp.Pipeline(listed).shuffle(seed=1)
        return pipeline.map(sp.CenterCrop(16)).batch(2).loader(memory="128MiB", num_workers=2)
    pipeline = sp.Pipeline(sp.MapSource(Squares())).shuffle(seed=1)
    return pipeline.batch(4).loader(executor=kind, memory="512MiB", num_workers=2, mp_context=server)  # type: ignore[arg-type]


KINDS = pytest.mark.parametrize(
    ("kind", "tries"), [("photos", 20), ("thread", 20), ("inline", 20), ("process", 4)]
)


def moments(kind: str, tries: int, folder: Path) -> list[int]:
    """At most so many of a start, evenly, until it is through; and where something is open that nothing has yet.

    That is as a process starts, with SIGINT blocked, and as the packed dataset is handed over.
    """
    for _ in range(2):  # the first one is longer: it loads modules
        with loader(kind, folder) as first, at_call(-1, interrupt) as entered:
            iter(first)
    count = entered.index("EpochIterator.__init__")
    held = [at for at, name in enumerate(entered) if name in ("_environment", "pack.<locals>.<listcomp>")]
    return sorted({*held, *(count * number // tries for number in range(tries))})


@KINDS
def test_an_interrupt_at_any_moment_of_a_start(kind: str, tries: int, tmp_path: Path) -> None:
    batches = loader(kind, tmp_path)
    gc.collect()
    before = census()
    for moment in moments(kind, tries, tmp_path):
        check_nothing_is_left(before)
        with at_call(moment, interrupt):
            try:
                iter(batches)
            except KeyboardInterrupt:
                continue
        pytest.fail("the interrupt was lost")
    check_nothing_is_left(before)
    assert len(list(batches)) == len(batches)
    batches.close()


@KINDS
def test_a_close_at_any_moment_of_a_start(kind: str, tries: int, tmp_path: Path) -> None:
    """By another thread, which doesn't wait for it."""
    kept = loader(kind, tmp_path)
    gc.collect()
    before = census()
    for moment in moments(kind, tries, tmp_path):
        check_nothing_is_left(before)
        batches = loader(kind, tmp_path)

        def close(batches: sp.Loader = batches) -> None:
            closer = threading.Thread(target=batches.close)
            closer.start()
            while not batches._closed:
                os.sched_yield()
            closer.join(0.05)  # at some moments it has to wait for the start

        with at_call(moment, close), pytest.raises(sp.StandpipeError, match="the loader is closed"):
            next(iter(batches))
        del batches, close
    check_nothing_is_left(before)
    kept.close()


@STEPS
@pytest.mark.parametrize("kind", ["photos", "thread", "inline", "process"])
def test_an_interrupt_at_any_moment_of_a_close(kind: str, step: int, tmp_path: Path) -> None:
    """Everything ends, at the latest when it is closed again."""
    for moment in itertools.count(0, step):
        with loader(kind, tmp_path, SERVER) as first:  # modules are loaded, and the fork server is there
            next(iter(first))
        del first
        before = census()
        batches = loader(kind, tmp_path, SERVER)
        next(iter(batches))
        with at_call(moment, interrupt) as entered:
            try:
                batches.close()
            except KeyboardInterrupt:
                batches.close()
        del batches
        check_nothing_is_left(before)
        if len(entered) <= moment:
            break


def closed_while_busy(pipeline: sp.Pipeline) -> threading.Event:
    """Close a loader while a thread of it is in a function. It ends when the event that this returns is set."""
    reached, goes_on = threading.Event(), threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        if x[0] >= 64:
            reached.set()
            goes_on.wait()
        return x

    batches = pipeline.map(wait, field="x").loader(executor="thread", memory="512MiB", num_workers=1)
    next(iter(batches))
    reached.wait()
    batches.close()
    return goes_on


def test_the_memory_of_a_thread_that_was_busy_at_the_close(caplog: pytest.LogCaptureFixture) -> None:
    """The next loader gives it back, once the thread has ended."""
    pipeline = sp.Pipeline(sp.MapSource(Squares())).batch(4)
    before = census()
    goes_on = closed_while_busy(pipeline)
    assert "still busy" in caplog.text
    goes_on.set()
    while census().threads > before.threads:
        os.sched_yield()
    with pipeline.loader(executor="thread", memory="512MiB", num_workers=1) as others:
        next(iter(others))
    del others
    check_nothing_is_left(before)


def test_a_source_that_hung_while_its_loader_was_closed() -> None:
    """The filling thread ends when the source goes on, though nobody took the answers of workers that were killed."""
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(indices: Any) -> None:
        if 4 in indices:
            hangs.set()
            goes_on.wait()

    pipeline = sp.Pipeline(Watched(numbers(16), hang)).map(np.sqrt, field="x").batch(4)
    batches = pipeline.loader(executor="process", memory="512MiB", num_workers=1, mp_context=SERVER)
    iter(batches)
    hangs.wait()
    batches.close()
    (run,) = [each for each in _abandoned if each._pid == os.getpid()]
    goes_on.set()
    run._filling.thread.join(WAIT_S)
    assert not run._filling.thread.is_alive()
    with sp.Pipeline(numbers(4)).batch(4).loader(memory="512MiB", num_workers=1) as others:
        next(iter(others))
    assert run not in _abandoned


def test_a_forked_child_leaves_the_runs_of_its_parent_alone() -> None:
    """Also those whose threads were busy when they were closed. The child has none of these threads."""
    pipeline = sp.Pipeline(sp.MapSource(Squares())).batch(4)
    goes_on = closed_while_busy(pipeline)
    (run,) = [each for each in _abandoned if each._pid == os.getpid()]
    child = os.fork()
    if child == 0:
        with pipeline.loader(executor="inline", memory="512MiB") as own:
            next(iter(own))
        os._exit(0 if run in _abandoned else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    goes_on.set()


class Refuses(Squares):
    """Fails where a start asks something of it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, index: int) -> dict[str, Any]:
        raise self.error


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_what_a_dataset_raises_at_the_start_stays_its_own(executor: Any) -> None:
    """Also where it is an error that the system might have raised."""
    for error in (RuntimeError("CUDA is out of memory"), OSError("the server is gone")):
        pipeline = sp.Pipeline(sp.MapSource(Refuses(error))).batch(4)
        with (
            pipeline.loader(executor=executor, num_workers=1, memory="512MiB") as batches,
            pytest.raises(sp.SampleError) as caught,
        ):
            iter(batches)
        assert isinstance(caught.value.__cause__, type(error))
        assert str(error) in caught.value.reason
        assert "the system refused" not in str(caught.value)


@pytest.mark.parametrize("error", [RuntimeError, OSError])
def test_what_a_source_raises_at_the_start_stays_its_own(error: type[Exception]) -> None:
    def fail(indices: Any) -> None:
        raise error("no such shelf")

    def add(x: np.ndarray) -> np.ndarray:
        return x + 1

    pipeline = sp.Pipeline(Watched(numbers(40), fail)).map(add, field="x").batch(4)
    with (
        pipeline.loader(memory="512MiB", num_workers=1, executor="thread") as batches,
        pytest.raises(error, match=r"^no such shelf$"),
    ):
        iter(batches)


class Unbuildable(Exception):
    """Can be pickled, and not be made again in the trainer."""

    def __reduce__(self) -> Any:
        return only_in, (os.getpid(),)


def only_in(process: int) -> Exception:
    if process != os.getpid():
        raise LookupError("only in the process that raised it")
    return Unbuildable()


class Raises(Squares):
    def __getitem__(self, index: int) -> dict[str, Any]:
        raise Unbuildable


def test_an_error_that_cannot_be_rebuilt_here() -> None:
    """It was raised when the first sample was measured."""
    pipeline = sp.Pipeline(sp.MapSource(Raises())).batch(4)
    with (
        pipeline.loader(executor="process", num_workers=1, memory="512MiB") as batches,
        pytest.raises(
            sp.SampleError, match="can't be rebuilt here: LookupError: only in the process that raised it"
        ),
    ):
        iter(batches)
