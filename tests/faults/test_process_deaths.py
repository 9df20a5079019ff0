"""Workers that die, hang or raise: the stream stays what it is, or an error says which sample it was."""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S
from programs import census, started_since, wait_for_end
from standpipe.engine.processes.server_handle import WorkerServer
from standpipe.engine.start_common import worker_setup_of

ROWS = 4  # of a batch
NOTICED_S = 8.0  # from a worker's death to its work done by another one, also on a busy machine
WAYS = ["inline", "thread", "process"]


def nothing(index: int) -> None:
    """What happens at most samples."""


@dataclass(frozen=True)
class Numbers:
    """Records that hold their number and a random one, and at which something may happen."""

    size: int = 48
    happens: Callable[[int], object] = nothing

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.happens(index)
        return {"x": np.full(3, index), "drawn": np.random.random(), "text": f"{index}"}  # noqa: NPY002


def loader(dataset: Any, executor: str = "process", **settings: Any) -> sp.Loader:
    pipeline = sp.Pipeline(sp.MapSource(dataset)).shuffle(seed=3).batch(ROWS)
    return pipeline.loader(**{"executor": executor, "num_workers": 2, "memory": "512MiB", **settings})


def content(batches: Any) -> list[bytes]:
    """All bytes of each batch."""
    return [pickle.dumps({name: batch[name] for name in sorted(batch)}) for batch in batches]


def expected(size: int = 48) -> list[bytes]:
    with loader(Numbers(size), num_workers=1) as batches:
        return content(batches)


def steps(batches: sp.Loader) -> list[list[int]]:
    """The records of each batch of an epoch."""
    indices = batches.plan.order.indices(0, 0, batches.plan.order.num_positions)  # type: ignore[union-attr]
    return indices.reshape(-1, ROWS).tolist()


@dataclass(frozen=True)
class Once:
    """Does something the first time that a record comes, in whichever process."""

    folder: Path
    at: frozenset[int]
    act: Callable[[], object]

    def __call__(self, index: int) -> None:
        if index in self.at:
            try:
                (self.folder / f"{index}").touch(exist_ok=False)
            except FileExistsError:
                return
            self.act()


@dataclass(frozen=True)
class Always:
    """Does something whenever a record comes."""

    at: frozenset[int]
    act: Callable[[], object]

    def __call__(self, index: int) -> None:
        if index in self.at:
            self.act()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(0)


def hang_up() -> None:
    os.closerange(3, 64)


ENDS = {
    kill: "was killed by SIGKILL, perhaps because memory ran out",
    crash: "was killed by SIGSEGV",
    leave: "exited with 0",
    hang_up: "exited with 0",
}
ends = pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)


class OwnError(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}")
        self.number = number


def refuse(index: int) -> None:
    if index == 12:
        raise OwnError(index)


def wrong(x: np.ndarray) -> np.ndarray:
    refuse(int(x[0]))
    return x


@pytest.mark.parametrize("executor", WAYS)
@pytest.mark.parametrize("place", ["dataset", "function"])
def test_worker_raises(executor: str, place: str) -> None:
    source = sp.MapSource(Numbers(happens=refuse if place == "dataset" else nothing))
    pipeline = sp.Pipeline(source).map(
        *([wrong] if place == "function" else []), field=None if place == "dataset" else "x"
    )
    with (
        pipeline.batch(ROWS).loader(executor=executor, num_workers=2, memory="512MiB") as batches,  # type: ignore[arg-type]
        pytest.raises(sp.SampleError, match=r"OwnError: number 12.*record 12") as caught,
    ):
        list(batches)
    assert caught.value.index == 12
    assert ("the dataset" if place == "dataset" else "wrong") in caught.value.reason
    cause = caught.value.__cause__
    assert isinstance(cause, OwnError)
    assert cause.number == 12
    trace = "\n".join([*getattr(cause, "__notes__", []), *map(str, _functions(cause))])
    assert re.search(r"\brefuse\b", trace)


def _functions(error: BaseException) -> list[str]:
    """Those that the error came through."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return frames


@ends
def test_worker_dies_and_the_same_batch_is_delivered_once(end: Callable[[], None], tmp_path: Path) -> None:
    """At every fifth record, the first time that it comes."""
    dataset = Numbers(happens=Once(tmp_path, frozenset(range(4, 48, 5)), end))
    with loader(dataset) as batches:
        assert content(batches) == expected()
        deaths = batches.stats().deaths
    # One that only hangs up goes on with its piece of work, and may meet another such record there.
    assert 0 < deaths <= 9 if end is hang_up else deaths == 9


@pytest.mark.parametrize("samples", [False, True], ids=["batch", "samples"])
def test_worker_dies_in_a_function_of_the_batch(samples: bool, tmp_path: Path) -> None:
    """And once more at a row that is made for it, where one worker makes all of them."""
    once = Once(tmp_path, frozenset([7]), kill)

    def together(batch: Any) -> dict[str, Any]:
        x = np.stack([sample["x"] for sample in batch]) if samples else batch["x"]
        once(int(x[0, 0]))
        return {"sum": x.sum(axis=1)}

    rows = Once(tmp_path, frozenset([5]) if samples else frozenset(), kill)
    pipeline = (
        sp.Pipeline(sp.MapSource(Numbers(happens=rows)))
        .skip(3)
        .batch(ROWS, collate_fn=together if samples else None)
    )
    if not samples:
        pipeline = pipeline.map_batch(together)
    with pipeline.loader(executor="process", num_workers=2, memory="512MiB") as batches:
        sums = [batch["sum"].tolist() for batch in batches]
        stats = batches.stats()
    assert sums[:2] == [[9, 12, 15, 18], [21, 24, 27, 30]]
    assert len(sums) == 12
    assert stats.deaths == 1 + samples


def test_worker_dies_while_it_answers(tmp_path: Path) -> None:
    """A value that kills who pickles it: all rows of the piece are suspects, and each is made alone."""

    @dataclass(frozen=True)
    class Fatal:
        index: int

        def __reduce__(self) -> Any:
            once(self.index)
            return str, (self.index,)

    once = Once(tmp_path, frozenset([9]), kill)

    class Texts(Numbers):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"text": Fatal(index)}

    pipeline = sp.Pipeline(sp.MapSource(Texts(24))).batch(ROWS)
    with pipeline.loader(executor="process", num_workers=2, memory="512MiB") as batches:
        texts = [text for batch in batches for text in batch["text"]]
        stats = batches.stats()
    assert texts == [f"{index}" for index in range(24)]
    assert stats.deaths == 1


@ends
def test_poison_sample_is_named_after_its_second_death(end: Callable[[], None]) -> None:
    with loader(Numbers(happens=Always(frozenset([17]), end))) as batches:
        before = next(step for step, indices in enumerate(steps(batches)) if 17 in indices)
        iterator = iter(batches)
        assert content([next(iterator) for _ in range(before)]) == expected()[:before]
        with pytest.raises(sp.WorkerDiedError) as caught:
            next(iterator)
        assert caught.value.index == 17
        assert re.search(
            rf"worker \d \(process \d+\) {ENDS[end]} while it made record 17 \(.+\), as another one had before",
            str(caught.value),
        )
        batches.skip_steps(1)  # the batch that holds it
        assert content(batches.steps(12 - before - 1)) == expected()[before + 1 :]


def test_poison_sample_is_replaced() -> None:
    """By the same sample that would take its place if it raised."""
    pipeline = sp.Pipeline(sp.MapSource(Numbers(happens=Always(frozenset([17, 30]), kill)))).shuffle(seed=3)
    raises = sp.Pipeline(sp.MapSource(Numbers(happens=Always(frozenset([17, 30]), fail)))).shuffle(seed=3)
    policy = sp.Replace(at_most=2)
    with (
        pipeline.on_error(policy)
        .batch(ROWS)
        .loader(executor="process", num_workers=2, memory="512MiB") as batches
    ):
        delivered = content(batches)
        bad = batches.bad_samples
    with (
        raises.on_error(policy)
        .batch(ROWS)
        .loader(executor="process", num_workers=1, memory="512MiB") as batches
    ):
        assert content(batches) == delivered
        assert [each.replacement for each in batches.bad_samples] == [each.replacement for each in bad]
    assert {(each.index, each.place, each.kind) for each in bad} == {
        (17, "died", "two workers died while they made it"),
        (30, "died", "two workers died while they made it"),
    }


def fail() -> None:
    raise ValueError("bad")


def test_poison_sample_that_comes_first_is_named() -> None:
    """The one that is measured when a loader starts."""
    pipeline = sp.Pipeline(sp.MapSource(Numbers(happens=Always(frozenset([0]), kill)))).batch(ROWS)
    with (
        pipeline.loader(executor="process", num_workers=1, memory="512MiB") as batches,
        pytest.raises(sp.WorkerDiedError, match=r"was killed by SIGKILL.*while it made record 0"),
    ):
        next(iter(batches))
    replaced = pipeline.on_error(sp.Replace(at_most=2))
    with replaced.loader(executor="process", num_workers=1, memory="512MiB") as batches:
        assert len(list(batches)) == 12


def test_workers_that_only_die_end_the_run() -> None:
    dataset = Numbers(happens=Always(frozenset(range(1, 48)), kill))
    pipeline = sp.Pipeline(sp.MapSource(dataset)).on_error(sp.Replace(at_most=1.0)).batch(ROWS)
    with (
        pipeline.loader(executor="process", num_workers=1, memory="512MiB") as batches,
        pytest.raises(
            sp.WorkerDiedError, match=r"3 workers in a row have died without a finished task in between"
        ),
    ):
        list(batches)


def test_worker_killed_again_and_again_changes_no_byte() -> None:
    """By somebody else, at any moment; each time the next batches are there soon."""
    size = 2000
    before = census()
    with loader(Numbers(size), num_workers=2) as batches:
        iterator = iter(batches)
        delivered = content([next(iterator)])
        killed, took = 0, []
        while len(delivered) < size // ROWS:
            if len(delivered) % 20 == 0:
                _, *workers = started_since(before)
                os.kill(workers[killed % len(workers)], signal.SIGKILL)
                killed += 1
                begin = time.monotonic()
                delivered += content([next(iterator) for _ in range(3)])
                took.append(time.monotonic() - begin)
                continue
            delivered += content([next(iterator)])
        stats = batches.stats()
    assert delivered == expected(size)
    assert sorted(took)[len(took) // 2] < NOTICED_S  # the machine that runs this may have pauses of its own
    assert 0 < stats.deaths <= killed  # the last ones may die when all is done


def test_all_workers_killed_at_once() -> None:
    before = census()
    with loader(Numbers(400), num_workers=4) as batches:
        iterator = iter(batches)
        delivered = content([next(iterator)])
        _, *workers = started_since(before)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        delivered += content(iterator)
    assert delivered == expected(400)


def test_server_killed(tmp_path: Path) -> None:
    """Its workers go on, and when one dies another server forks the next."""
    before = census()
    with loader(Numbers(400)) as batches:
        iterator = iter(batches)
        delivered = content([next(iterator)])
        server, *workers = started_since(before)
        os.kill(server, signal.SIGKILL)
        assert wait_for_end([server], WAIT_S) == []
        delivered += content([next(iterator) for _ in range(20)])
        os.kill(workers[0], signal.SIGKILL)
        delivered += content(iterator)
        assert wait_for_end([workers[0]], WAIT_S) == []
    assert delivered == expected(400)
    assert wait_for_end(workers, WAIT_S) == []


def test_a_server_that_answers_late_is_not_taken_at_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says too late of one worker isn't the process number of the next."""
    monkeypatch.setattr("standpipe.engine.processes.server_handle.ANSWER_S", 0.3)
    with loader(Numbers(), num_workers=1) as batches:
        server = WorkerServer(worker_setup_of(batches.plan), share_lists=False, workers=1)
        try:
            server.wait_until_ready()
            channel, worker = server.fork(0)
            channel.close()
            os.kill(server.process, signal.SIGSTOP)
            assert server.status(worker) is None
            os.kill(server.process, signal.SIGCONT)
            monkeypatch.undo()
            channel, another = server.fork(0)
            channel.close()
            assert another > 0
            assert another != worker
        finally:
            server.close(WAIT_S)
