"""The watch sees what is at work now, and no error of its own ends it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, cast

import numpy as np
import pytest

import standpipe as sp
from gates import Log
from photos import WAIT_S
from standpipe import _native
from standpipe.engine.processes.asked import Asked
from standpipe.engine.processes.drivers import Driver
from standpipe.engine.python.slot_job import Piece

# Private names: what the watch sees in a window of microseconds shows in no public one.
from standpipe.engine.watchdog.board import PIECE, READING, ROW, SINCE, STEP, WORDS
from standpipe.engine.watchdog.watch import Watch, Work
from standpipe.errors import StalledError

MEMORY = "64MiB"


@contextlib.contextmanager
def traced(function: str, look: Callable[[], object]) -> Iterator[None]:
    """Call ``look`` whenever a thread that starts meanwhile enters a function of that name."""

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == function:
            look()

    threading.settrace(trace)
    try:
        yield
    finally:
        threading.settrace(cast("Any", None))


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "functions"])
def test_a_thread_that_was_idle_is_at_new_work_since_now(whole: bool) -> None:
    """Also before it has written down the first row: the last piece, of a larger batch, is no part of it."""
    seen: list[tuple[int, float, Sequence[Work]]] = []
    begins_s = [0.0]
    pipeline = sp.Pipeline(sp.MapSource(np.arange(64), fields="x")).batch(16, batch_sampler=True)
    if whole:
        pipeline = pipeline.map_batch(lambda batch: batch)
    loader = pipeline.loader(memory=MEMORY, num_workers=1, executor="thread", stall_timeout_s=None)

    def look() -> None:
        run = loader._run
        if run is not None and begins_s[0]:
            seen.append((threading.get_ident(), begins_s[0], run.at_work()))

    with traced("piece_begins", look), loader:
        for records in ([*range(16)], [20], [21]):
            begins_s[0] = 0.0 if len(records) > 1 else time.monotonic()
            (batch,) = (batch for batch in loader.from_batches([records]))
            assert batch["x"].tolist() == records
    assert len({thread for thread, _, _ in seen} - {threading.get_ident()}) == 1
    for _, since_s, works in seen:
        for work in works:
            assert work.begin_s >= since_s, "what it did before it was idle counts"
            assert whole or work.index in (20, 21)
    assert any(works for _, _, works in seen)


class Changing:
    """The heartbeat of a worker that goes on to its next piece while somebody reads: at the ``after``-th word."""

    def __init__(self, words: Sequence[int], after: int, then: Sequence[int]) -> None:
        self._words, self._after, self._then = words, after, then

    def __getitem__(self, place: int) -> int:
        self._after -= 1
        return (self._words if self._after >= 0 else self._then)[place]


@pytest.mark.parametrize("after", range(7))
def test_a_worker_that_goes_on_to_the_next_piece_meanwhile(after: int) -> None:
    """Its row there, of a larger piece, is none of this one's; and the piece has begun now."""

    class Job:
        def named(self, row: int) -> tuple[str, int | None, str | None]:
            return f"record {range(4)[row]}", row, None  # raises as a list of four does

    ours, theirs = socket.socketpair()

    class Worker:
        process = 7
        channel = ours
        heartbeat: Any

    def heartbeat(number: int, row: int, since_s: float) -> list[int]:
        words = [0] * WORDS
        words[PIECE], words[ROW], words[STEP], words[SINCE] = number, row, READING, int(since_s * 1e9)
        return words

    worker, now = Worker(), time.monotonic()
    worker.heartbeat = Changing(heartbeat(5, 1, now - 100), after, heartbeat(6, 30, now))
    driver = cast("Any", object.__new__(Driver))
    driver.worker, driver._front_since_s = worker, now
    driver._plan = None  # which has the names of other steps
    driver._asked = [Asked(5, Piece(cast("Any", Job()), 0, 4))]
    with ours, theirs:
        work = driver.at_work()
    known = after > 4  # it went on once all was read
    assert (work.index, work.doing) == ((1, "reading its file") if known else (0, "not begun"))
    assert work.begin_s == pytest.approx(now - 100 * known)


def test_an_error_inside_the_watch_is_reported_and_it_goes_on() -> None:
    """Of who works, of where that is, and of who gives it up."""
    told = threading.Event()

    class Party:
        in_flight = True
        looks = 0

        def at_work(self) -> Sequence[Work]:
            self.looks += 1
            if self.looks == 1:
                raise IndexError("no such row")
            begin_s = time.monotonic() - 100
            return [Work(name, name, "waiting", "somebody", begin_s, self) for name in ("one", "two")]

        def where(self, work: Work) -> str:
            raise OSError("nowhere")

        def give_up(self, work: Work, error: StalledError) -> bool:
            if work.what == "one":
                raise KeyError("nobody")
            told.set()
            return True

    watch = Watch(0.01, 1.0, _native.Bell())
    with Log() as log:
        watch.add(Party())
        watch.start()
        try:
            assert told.wait(WAIT_S)
            log.wait_for("the watch met an error, and goes on", "no such row")
            log.wait_for("the watch met an error, and goes on", "nobody")
        finally:
            watch.close(WAIT_S)
    assert sum("no such row" in line for line in log.lines) == 1
    assert watch.ended is None


def test_errors_are_kept_only_of_work_that_is_there() -> None:
    """An error of its own for each work, and one that is the same for all."""
    looks = 50
    told = threading.Event()

    class Party:
        in_flight = True
        looks = 0

        def at_work(self) -> Sequence[Work]:
            self.looks += 1
            if self.looks > looks:
                told.set()
            begin_s = time.monotonic() - 100
            return [
                Work((name, self.looks), name, "waiting", "me", begin_s, self) for name in ("own", "same")
            ]

        def where(self, work: Work) -> str:
            return ""

        def give_up(self, work: Work, error: StalledError) -> bool:
            raise KeyError(self.looks if work.what == "own" else "same")

    watch = Watch(1e-4, 1.0, _native.Bell())
    with Log() as log:
        watch.add(Party())
        watch.start()
        try:
            assert told.wait(WAIT_S)
        finally:
            watch.close(WAIT_S)
    errors = [line for line in log.lines if "the watch met an error" in line]
    assert len([line for line in errors if "'same'" in line]) == 1
    assert len(errors) >= looks
    assert len(watch._reported) == 2


def test_work_that_nobody_does_is_a_stall() -> None:
    """As when the only thread has gone without a word."""

    def gone(*_: object) -> None:
        """Take no work, and end."""

    with (
        sp.Pipeline(sp.MapSource(np.arange(8), fields="x"))
        .batch(2)
        .loader(
            memory=MEMORY, num_workers=1, executor="thread", slow_sample_s=0.05, stall_timeout_s=0.2
        ) as loader,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("standpipe.engine.python.threads.ThreadWorkers._work", gone)
        with pytest.raises(
            sp.StalledError, match=r"the batch at position 0 of epoch 0 .*waiting for a worker"
        ):
            next(iter(loader))
