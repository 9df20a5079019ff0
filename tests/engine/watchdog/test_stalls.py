"""What takes long is named: which sample, what is done to it, who does it and where; in the end it is given up."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from gates import Gate, Log
from photos import WAIT_S, Watched, numbers
from programs import census, children, started_since
from standpipe.engine.processes.forking import own_threads

ROWS = 4  # of a batch
SLOW_S = 0.3  # before something is named, here
STALLED_S = 3.0  # and before it is given up: a dataset must be loaded in that time
SHORT_S = 2.0  # the same in threads
WAYS = ["inline", "thread", "process"]
IN_A_THREAD = r"test_stalls.py\", line \d+,? in __getitem__\n(.*\n)*.*gates.py"
# Where a sample waits at a gate. A process that waits for the disk of a busy machine, say for its code, has no stack to
# show yet: that of one that hangs comes with an error below.
SHOWN = {
    "inline": IN_A_THREAD,
    "thread": IN_A_THREAD,
    "process": r"test_stalls.py\", line \d+ in __getitem__|the process is waiting inside the kernel",
}


@dataclass(frozen=True)
class Numbers:
    """Records that hold their number, of which one waits at a gate."""

    gate: Gate
    at: int = 9
    size: int = 32

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index == self.at:
            self.gate.wait()
        return index


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate.closed(tmp_path / "gate")
    yield gate
    gate.abolish()  # the sample of the next epoch may be on its way here


@pytest.fixture(autouse=True)
def _undrawn(_preloaded: None) -> None:
    """Calls show that they don't draw from global generators, as other tests' did: these are made one at a time."""
    with loader(of(range(64)), "inline") as batches:
        list(batches)


@pytest.fixture(scope="module")
def _preloaded() -> Iterator[None]:
    """Worker processes come from one that has imported all they need: a dataset is there within milliseconds."""
    global server
    server = sp.ForkServer()
    with loader(of(Numbers(Gate(Path("none")), at=-1)), "process") as batches:
        next(iter(batches))
    yield
    server.close()


server: sp.ForkServer | None = None


def loader(pipeline: sp.Pipeline, executor: str = "thread", **settings: Any) -> sp.Loader:
    given = {
        "num_workers": 2,
        "memory": "512MiB",
        "slow_sample_s": SLOW_S,
        "stall_timeout_s": None,
        **settings,
    }
    return pipeline.loader(**{"executor": executor, "mp_context": server, **given})


@contextlib.contextmanager
def consuming(gate: Gate, take: Callable[[], Any]) -> Iterator[None]:
    """Take in a thread, which is through when the block ends, whatever becomes of the test: the gate opens then."""
    consumer = threading.Thread(target=take)
    consumer.start()
    try:
        yield
    finally:
        with gate.opened():
            consumer.join(WAIT_S)


def of(dataset: Any) -> sp.Pipeline:
    return sp.Pipeline(sp.MapSource(dataset, fields="x")).batch(ROWS)


def all_of(size: int = 32) -> list[list[int]]:
    return [list(range(first, first + ROWS)) for first in range(0, size, ROWS)]


@pytest.mark.parametrize("executor", WAYS)
def test_slow_sample_is_named(executor: str, gate: Gate) -> None:
    """And where it is, once; nothing else happens to it."""
    with Log() as log, loader(of(Numbers(gate, size=4000)), executor) as batches:
        delivered: list[list[int]] = []
        with consuming(gate, lambda: delivered.extend(batch["x"].tolist() for batch in batches.steps(8))):
            line = log.wait_for("record 9")
        assert delivered == all_of()
        stats = batches.stats()
    who = {
        "inline": "the thread that asks for a batch",
        "thread": r"thread \d",
        "process": r"worker \d \(process \d+\)",
    }
    assert re.match(rf"record 9 has taken \d+\.\d s so far: the dataset, in {who[executor]}\n", line)
    assert re.search(SHOWN[executor], line)
    assert [each for each in log.lines if each.startswith("record 9 ")] == [line]
    assert (stats.slow >= 1, stats.stalled, stats.deaths) == (True, 0, 0)
    (told,) = (slow for slow in batches.slow_samples if slow.index == 9)
    assert (told.what, told.path, told.doing) == ("record 9", None, "the dataset")
    assert re.fullmatch(who[executor], told.worker)
    assert told.seconds >= SLOW_S


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_others_go_on_beside_a_slow_sample(executor: str, gate: Gate, tmp_path: Path) -> None:
    """All other rows of all slots are made meanwhile, but for those of one batch, which may wait for who hangs."""
    done = Gate.closed(tmp_path / "done")

    class Marks(Numbers):
        def __getitem__(self, index: int) -> int:
            if index >= 12:
                (tmp_path / f"{index}").touch()
            if index >= 30:  # the last two, of which the first opens it
                with contextlib.suppress(FileExistsError):
                    (tmp_path / "last").touch(exist_ok=False)
                    done.path.open("wb").close()
            return super().__getitem__(index)

    with (
        loader(of(Marks(gate, at=1)), executor, prefetch=8) as batches,
        consuming(gate, lambda: next(iter(batches))),
        done.path.open("rb"),
    ):  # which waits until a record of the last two is made
        missing = [index for index in range(12, 24) if not (tmp_path / f"{index}").exists()]
        assert len(missing) <= ROWS


@pytest.mark.parametrize("executor", WAYS)
def test_the_step_is_named(executor: str, gate: Gate) -> None:
    def waits(x: int) -> int:
        if x == 9:
            gate.wait()
        return x

    pipeline = sp.Pipeline(sp.MapSource(range(32), fields="x")).map(waits, field="x").batch(ROWS)
    with (
        Log() as log,
        loader(pipeline, executor, num_workers=1) as batches,
        consuming(gate, lambda: list(batches)),
    ):
        log.wait_for("record 9", "waits")


@pytest.mark.parametrize("executor", WAYS)
def test_the_step_with_the_whole_batch_is_named(executor: str, gate: Gate) -> None:
    def together(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["index"][0] == 16:
            gate.wait()
        return batch

    pipeline = sp.Pipeline(sp.MapSource(range(32), fields="x")).batch(ROWS).map_batch(together)
    with Log() as log, loader(pipeline, executor, num_workers=1) as batches:
        batches.skip_steps(4)
        with consuming(gate, lambda: next(iter(batches))):
            log.wait_for("the batch of the records 16, 17, 18, 19 has taken", "together")


@pytest.mark.parametrize("executor", WAYS)
def test_a_slow_first_sample_is_named(executor: str, gate: Gate) -> None:
    """The one that is measured before there are slots."""
    with (
        Log() as log,
        loader(of(Numbers(gate, at=0)), executor) as batches,
        consuming(gate, lambda: next(iter(batches))),
    ):
        line = log.wait_for("record 0 has taken", "measuring the fields of a sample")
        assert re.search(SHOWN[executor], line)


def test_slow_source_is_named(gate: Gate) -> None:
    """The thread that fills batches waits there, and no worker has anything in hand."""
    source = Watched(numbers(16), lambda _: gate.wait())
    with (
        Log() as log,
        loader(sp.Pipeline(source).batch(ROWS)) as batches,
        consuming(gate, lambda: next(iter(batches))),
    ):
        line = log.wait_for("the batch at position 0 of epoch 0", "looking up its records")
        assert re.search(r"in the thread that fills batches\n(.*\n)*.*in locate", line)


@pytest.mark.parametrize("executor", WAYS)
def test_slow_source_is_named_at_the_start(executor: str, gate: Gate) -> None:
    """The fields of a sample are measured there, before any thread fills batches."""
    source = Watched(numbers(16), lambda _: gate.wait())
    pipeline = sp.Pipeline(source).map(np.sqrt, field="x").batch(ROWS)
    with Log() as log, loader(pipeline, executor) as batches, consuming(gate, lambda: next(iter(batches))):
        line = log.wait_for("the first sample has taken", "looking up its record")
        assert re.search(r"in the thread that asks for a batch\n(.*\n)*.*in locate", line)


def test_source_that_hangs_is_an_error(gate: Gate) -> None:
    """As long as it hangs; nobody waits for it any more."""
    source = Watched(numbers(16), lambda _: gate.wait())
    with loader(sp.Pipeline(source).batch(ROWS), stall_timeout_s=STALLED_S) as batches:
        iterator = iter(batches)
        for _ in range(2):
            with pytest.raises(
                sp.StalledError, match="looking up its records, in the thread that fills"
            ) as caught:
                next(iterator)
            assert caught.value.seconds >= STALLED_S
            assert "in locate" in caught.value.where
        with gate.opened():
            assert when_it_goes_on(lambda: next(iterator))["index"].tolist() == [0, 1, 2, 3]


def test_workers_are_not_blamed_for_a_source_that_hangs(gate: Gate, tmp_path: Path) -> None:
    """The thread that hangs there is the one that takes their answers."""
    other = Gate.closed(tmp_path / "other")

    def wait(indices: Any) -> None:
        if 2 * ROWS in indices:
            gate.wait()

    def held_up(x: Any) -> Any:
        if x == 3 * ROWS:  # of record 4
            other.wait()
        return x

    pipeline = sp.Pipeline(Watched(numbers(16), wait)).map(held_up, field="x").batch(ROWS)
    with Log() as log, loader(pipeline, "process", stall_timeout_s=STALLED_S, prefetch=1) as batches:
        iterator = iter(batches)
        next(iterator)
        log.wait_for("the batch at position 8 of epoch 0", "looking up its records")
        with other.opened():
            log.wait_for("was not done after", "looking up its records")
        works = batches._run.at_work()  # type: ignore[union-attr]  # nobody is to be given up a second time
        assert [work.waits for work in works] == [True]
        assert works[0].worker.startswith("worker")
        with gate.opened():
            second = when_it_goes_on(lambda: next(iterator))
            assert [batch["index"].tolist() for batch in (second, *iterator)] == all_of(16)[1:]
        stats = batches.stats()
    assert (stats.stalled, stats.deaths) == (1, 0)


def stop(_: int = 0) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def test_stopped_worker_is_named_and_replaced(gate: Gate) -> None:
    """It never ends, and it can't show its stack."""
    before = census()
    with (
        Log() as log,
        loader(of(Numbers(gate, at=-1, size=4000)), "process", stall_timeout_s=STALLED_S) as batches,
    ):
        iterator = iter(batches)
        delivered = [next(iterator)["x"].tolist()]
        workers = [process for process in started_since(before) if not children(process)]
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        delivered += [batch["x"].tolist() for batch in iterator]
        stats = batches.stats()
    assert delivered == all_of(4000)
    log.wait_for("has taken", "worker", "the process is stopped by a signal")
    assert stats.stalled == 2
    assert stats.deaths == 0


@pytest.mark.parametrize("how", ["loop", "stop"])
def test_sample_that_hangs_twice_is_given_up_in_a_process(how: str, tmp_path: Path) -> None:
    """The worker is killed each time; other samples aren't touched."""

    def loops(x: int) -> int:
        while x == 9:
            if how == "stop":
                stop()
        return x

    pipeline = sp.Pipeline(sp.MapSource(range(32), fields="x")).map(loops, field="x").batch(ROWS)
    with Log() as log, loader(pipeline, "process", stall_timeout_s=STALLED_S) as batches:
        iterator = iter(batches)
        assert [next(iterator)["x"].tolist() for _ in range(2)] == all_of()[:2]
        with pytest.raises(
            sp.StalledError, match=r"record 9 was not done after .*loops.*; stall_timeout_s= says"
        ) as caught:
            next(iterator)
        stats = batches.stats()
        batches.skip_steps(1)
        assert [batch["x"].tolist() for batch in batches.steps(5)] == all_of()[3:]
    error = caught.value
    assert (error.index, error.path) == (9, None)
    assert error.seconds >= STALLED_S
    assert re.fullmatch(r"worker \d \(process \d+\)", error.worker)
    assert ("stopped by a signal" if how == "stop" else "in loops") in error.where
    assert error.where in "\n".join(error.__notes__)
    log.wait_for("record 9 was not done after")
    assert (stats.slow >= 2, stats.stalled, stats.deaths, stats.bad) == (True, 2, 0, 1)
    assert [slow.seconds >= STALLED_S for slow in batches.slow_samples if slow.index == 9] == [True, True]


def test_sample_that_hangs_twice_is_replaced_in_a_process() -> None:
    def loops(x: int) -> int:
        while x == 9:
            pass
        return x

    def raises(x: int) -> int:
        if x == 9:
            raise ValueError("bad")
        return x

    def delivered(
        function: Callable[[int], int], executor: str
    ) -> tuple[list[list[int]], list[sp.BadSample]]:
        source = sp.Pipeline(sp.MapSource(range(32), fields="x")).map(function, field="x")
        pipeline = source.on_error(sp.Replace(at_most=1)).batch(ROWS)
        with loader(pipeline, executor, stall_timeout_s=STALLED_S) as batches:
            return [batch["x"].tolist() for batch in batches], batches.bad_samples

    looped, (bad,) = delivered(loops, "process")
    assert looped == delivered(raises, "inline")[0]
    assert (bad.index, bad.place, bad.kind) == (9, "stalled", "took too long")


def test_sample_that_hangs_once_is_delivered(gate: Gate, tmp_path: Path) -> None:
    def waits_once(x: int) -> int:
        if x == 9:
            try:
                (tmp_path / "seen").touch(exist_ok=False)
            except FileExistsError:
                return x
            gate.wait()
        return x

    pipeline = sp.Pipeline(sp.MapSource(range(32), fields="x")).map(waits_once, field="x").batch(ROWS)
    with loader(pipeline, "process", stall_timeout_s=STALLED_S) as batches:
        assert [batch["x"].tolist() for batch in batches] == all_of()


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_first_sample_that_hangs_is_an_error(executor: str, gate: Gate) -> None:
    with (
        loader(of(Numbers(gate, at=0)), executor, stall_timeout_s=STALLED_S) as batches,
        pytest.raises(sp.StalledError, match=r"record 0 was not done after .*measuring") as caught,
    ):
        next(iter(batches))
    assert "in __getitem__" in caught.value.where


def test_first_sample_that_hangs_in_a_thread_is_replaced(gate: Gate) -> None:
    pipeline = of(Numbers(gate, at=0)).on_error(sp.Replace(at_most=1))
    with loader(pipeline, stall_timeout_s=SHORT_S) as batches:
        delivered = [batch["x"].tolist() for batch in batches]
        (bad,) = batches.bad_samples
    assert (bad.index, bad.place) == (0, "stalled")
    assert [delivered[0][1:], *delivered[1:]] == [all_of()[0][1:], *all_of()[1:]]


class Loads:
    """A dataset that takes long to be rebuilt."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index

    def __reduce__(self) -> Any:
        return slow_to_load, ()


def slow_to_load() -> Loads:
    while True:
        pass


def test_dataset_that_hangs_when_it_is_loaded_is_an_error() -> None:
    forkable = not own_threads()  # of loaders that other tests have left, say
    with (
        Log() as log,
        loader(of(Loads()), "process", stall_timeout_s=STALLED_S) as batches,
        pytest.raises(
            sp.StalledError, match=r"the start of worker processes was not done after .*loading the dataset"
        ) as caught,
    ):
        next(iter(batches))
    assert "in slow_to_load" in caught.value.where
    line = log.wait_for("the start of worker processes has taken", "the worker server")
    assert "in slow_to_load" in line
    assert ("in slow_to_load. To start workers as forks" in line) == forkable
    assert "\n" not in line  # the stack comes with the error


@pytest.mark.parametrize(
    "settings",
    [
        {"slow_sample_s": 0},
        {"slow_sample_s": "5"},
        {"slow_sample_s": float("nan")},
        {"stall_timeout_s": 0},
        {"stall_timeout_s": -1},
        {"stall_timeout_s": True},
    ],
    ids=str,
)
def test_deadlines_that_are_none_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(sp.PlanError, match=f"{next(iter(settings))} must be a number of seconds above 0"):
        sp.Pipeline(sp.MapSource(np.arange(8), fields="x")).batch(2).plan(**settings)


def replaced(dataset: Any, **settings: Any) -> tuple[list[dict[str, Any]], list[sp.BadSample]]:
    """What comes where the dataset raises in place of hanging."""
    pipeline = (
        sp.Pipeline(sp.MapSource(dataset, fields="x"))
        .shuffle(seed=5)
        .on_error(sp.Replace(at_most=3))
        .batch(ROWS)
    )
    with loader(pipeline, **settings) as batches:
        return list(batches), batches.bad_samples


class Raises(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == self.at:
            raise ValueError("bad")
        return index


def test_thread_that_hangs_is_an_error(gate: Gate) -> None:
    """Another one takes its place, and its slot is left alone until it comes back."""
    before = set(threading.enumerate())
    with loader(of(Numbers(gate)), stall_timeout_s=SHORT_S) as batches:
        iterator = iter(batches)
        assert [next(iterator)["x"].tolist() for _ in range(2)] == all_of()[:2]
        with pytest.raises(
            sp.StalledError, match=r"record 9 was not done after .*the dataset, in thread \d"
        ) as caught:
            next(iterator)
        batches.skip_steps(1)
        assert [batch["x"].tolist() for batch in batches.steps(5)] == all_of()[3:]
        stats = batches.stats()
        with gate.opened():
            wait_until(lambda: since(before) == 5)  # two workers, the filler, the watch, the sampler
    assert caught.value.index == 9
    assert "gates.py" in caught.value.where
    assert stats.stalled == 1


def test_what_a_thread_writes_late_reaches_no_batch(gate: Gate) -> None:
    """Its sample is replaced as if it had raised. All batches are held, so that no slot is used twice."""
    expected, (bad,) = replaced(Raises(gate), executor="inline")
    before = set(threading.enumerate())
    pipeline = sp.Pipeline(sp.MapSource(Numbers(gate), fields="x")).shuffle(seed=5)
    with loader(pipeline.on_error(sp.Replace(at_most=3)).batch(ROWS), stall_timeout_s=SHORT_S) as batches:
        delivered = list(batches)
        with gate.opened():
            wait_until(lambda: since(before) == 5)
            assert [batch["x"].tolist() for batch in delivered] == [batch["x"].tolist() for batch in expected]
            assert [batch["index"].tolist() for batch in delivered] == [
                batch["index"].tolist() for batch in expected
            ]
            (stalled,) = batches.bad_samples
            assert len(list(batches)) == 8  # its slot is used again
    assert (stalled.index, stalled.replacement, stalled.place) == (9, bad.replacement, "stalled")


def test_replacement_that_hangs_in_a_thread(gate: Gate) -> None:
    """The row had given way before; its batch is made again without asking for the first one."""

    class Both(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == self.at:
                asked.append(index)
                raise ValueError("bad")
            if index == second:
                gate.wait()
            return index

    class BothRaise(Both):
        def __getitem__(self, index: int) -> int:
            if index in (self.at, second):
                raise ValueError("bad")
            return index

    second = replaced(Raises(gate), executor="inline")[1][0].replacement
    asked: list[int] = []
    expected, expected_bad = replaced(BothRaise(gate), executor="inline")
    pipeline = sp.Pipeline(sp.MapSource(Both(gate), fields="x")).shuffle(seed=5)
    with loader(pipeline.on_error(sp.Replace(at_most=3)).batch(ROWS), stall_timeout_s=SHORT_S) as batches:
        delivered = list(batches)
        bad = batches.bad_samples
        with gate.opened():
            pass
    assert [batch["x"].tolist() for batch in delivered] == [batch["x"].tolist() for batch in expected]
    assert [(each.index, each.replacement) for each in bad] == [
        (each.index, each.replacement) for each in expected_bad
    ]
    assert asked == [9]


@pytest.mark.parametrize("samples", [False, True], ids=["batch", "samples"])
def test_function_of_the_batch_that_hangs_in_a_thread(samples: bool, gate: Gate) -> None:
    def together(batch: Any) -> dict[str, Any]:
        x = np.array(list(batch)) if samples else batch["x"]
        if x[0] == 8:
            gate.wait()
        return {"y": x + 1}

    pipeline = sp.Pipeline(sp.MapSource(range(32), fields="x")).batch(
        ROWS, collate_fn=together if samples else None
    )
    if not samples:
        pipeline = pipeline.map_batch(together)
    with loader(pipeline, stall_timeout_s=SHORT_S) as batches:
        iterator = iter(batches)
        assert [next(iterator)["y"].tolist() for _ in range(2)] == [[1, 2, 3, 4], [5, 6, 7, 8]]
        with pytest.raises(
            sp.StalledError, match=r"the batch of the records 8, 9, 10, 11 was not done after .*together"
        ):
            next(iterator)
        batches.skip_steps(1)
        assert next(iter(batches.steps(1)))["y"].tolist() == [13, 14, 15, 16]
        with gate.opened():
            pass


def test_thread_that_hangs_over_a_stream_ends_the_run(gate: Gate) -> None:
    def stream() -> Any:
        for index in range(32):
            if index == 9:
                gate.wait()
            yield {"x": index}

    with loader(sp.Pipeline(sp.IterableSource(stream)).batch(ROWS), stall_timeout_s=SHORT_S) as batches:
        iterator = iter(batches)
        assert [next(iterator)["x"].tolist() for _ in range(2)] == all_of()[:2]
        for _ in range(3):
            with pytest.raises(sp.StalledError, match="record 9 was not done after"):
                next(iterator)
        with gate.opened():
            pass


def test_no_slot_is_left_for_threads_that_hang(gate: Gate) -> None:
    """Each holds one; the caller holds the others. That is said at once, and over when one comes back."""

    class All(Numbers):
        def __getitem__(self, index: int) -> Any:
            if index >= 32:
                gate.wait()
            return np.full(1 << 18, index)

    pipeline = sp.Pipeline(sp.MapSource(All(gate, size=200), fields="x")).batch(ROWS)
    settings = {"memory": "60MiB", "large_image_memory": "8MiB", "prefetch": 1, "num_workers": 2}
    with loader(pipeline, stall_timeout_s=SHORT_S, **settings) as batches:

        def take() -> Any:
            return next(batches.steps(1))

        for _ in range(8):
            held = take()
        most = batches.plan.most_slots
        told: list[str] = []
        while len(told) <= most and "slots" not in "".join(told):
            batches.skip_steps(1)
            with pytest.raises(sp.StalledError) as caught:
                take()
            told.append(str(caught.value))
        assert all("was not done after" in each for each in told[:-1])
        assert f"of the {most} slots that fit the memory, {most - 1} wait for threads that hang" in told[-1]
        with gate.opened():
            batch = when_it_goes_on(take)
            assert batch["x"][:, 0].tolist() == batch["index"].tolist()
    assert held["x"][0, 0] == 28


def when_it_goes_on(take: Callable[[], Any]) -> Any:
    """A batch, once the threads that hung have noticed that they don't any more."""
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        with contextlib.suppress(sp.StalledError):
            return take()
        os.sched_yield()
    return take()


def since(before: set[threading.Thread]) -> int:
    """Threads that have begun since then: those of other tests may end meanwhile."""
    return len(set(threading.enumerate()) - before)


def wait_until(holds: Callable[[], bool]) -> None:
    """As for the end of a thread, that tells nobody."""
    ends = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends
        os.sched_yield()
