"""What loaders of one machine say of themselves, and that it is gone when they are."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from standpipe.system import sharing
from standpipe.system.sharing import Claim

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def claims() -> Iterator[tuple[Claim, Claim]]:
    both = Claim(), Claim()
    yield both
    for claim in both:
        claim.close()


def test_memory_that_others_may_take(claims: tuple[Claim, Claim]) -> None:
    one, other = claims
    one.promise(5 * GIB)
    assert sharing.promised() == 5 * GIB
    one.promise(1 * GIB)
    assert sharing.promised() == 1 * GIB
    one.promise(3 * GIB)
    other.promise(2 * GIB)
    assert sharing.promised() == 5 * GIB
    one.promise(-1)
    one.close()
    assert sharing.promised() == 2 * GIB


def test_who_is_hungry(claims: tuple[Claim, Claim]) -> None:
    one, other = claims
    one.hungry(True)
    assert (one.hungry_others(), other.hungry_others()) == (0, 1)
    one.hungry(False)
    assert other.hungry_others() == 0


@pytest.mark.parametrize(
    ("cpus", "others"), [({0, 1}, 2), ({2, 3}, 0), ({5}, 1), (range(4096), 2), ({7, 8, 9}, 1)]
)
def test_who_runs_on_other_processors_takes_nothing(cpus: set[int], others: int) -> None:
    hungry = Claim({1}), Claim({0, 5, 8, 9})
    for each in hungry:
        each.hungry(True)
    looks = Claim(cpus)
    assert looks.hungry_others() == others
    hungry[1].hungry(False)
    assert looks.hungry_others() == len({1} & set(cpus))
    for each in (*hungry, looks):
        each.close()


def test_memory_is_promised_in_each_pool_that_it_comes_from() -> None:
    most = (1 << 16) - 1
    one, sibling, outside = Claim(pools=(0, 3, most)), Claim(pools=(0, 3)), Claim()
    one.promise(2 * GIB)
    sibling.promise(4 * GIB)
    outside.promise(8 * GIB)
    assert [sharing.promised(pool) for pool in (0, 1, 3, most)] == [14 * GIB, 0, 6 * GIB, 2 * GIB]
    one.promise(GIB)
    assert [sharing.promised(pool) for pool in (0, 3, most)] == [13 * GIB, 5 * GIB, GIB]
    for each in (one, sibling, outside):
        each.close()


def test_a_claim_that_nobody_has_any_more_is_gone(claims: tuple[Claim, Claim]) -> None:
    third = Claim()
    third.promise(GIB)
    assert sharing.promised() == GIB
    del third
    assert sharing.promised() == 0


PROGRAM = """
import sys
from standpipe.system import sharing
claim = sharing.Claim()
claim.promise(1 << 30)
claim.hungry(True)
print("there", flush=True)
sys.stdin.read()
"""


CHILD = """
import os
here, there = os.pipe()
if os.fork() == 0:
    os.write(there, b"x")
    os._exit(len(os.read(0, 1)))
os.read(here, 1)
"""


def test_what_a_killed_process_said_is_gone(claims: tuple[Claim, Claim]) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        claim = claims[0]
        assert (sharing.promised(), claim.hungry_others()) == (GIB, 1)
        process.kill()
        process.wait()
    assert (sharing.promised(), claim.hungry_others()) == (0, 0)


def test_a_forked_child_keeps_nothing_of_a_killed_parent(claims: tuple[Claim, Claim]) -> None:
    """The child lives on, and has the parent's files."""
    program = PROGRAM.replace("print(", CHILD + "print(", 1)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        assert sharing.promised() == GIB
        process.kill()
        os.waitpid(process.pid, 0)
        assert sharing.promised() == 0


def test_a_forked_child_says_nothing(claims: tuple[Claim, Claim]) -> None:
    one, _ = claims
    one.promise(GIB)
    child = os.fork()
    if child == 0:
        one.promise(2 * GIB)
        one.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert sharing.promised() == GIB


def test_without_a_folder_everybody_is_alone_and_explain_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "this loader sees no other loader"
    assert said not in pipeline().plan().explain()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    one, other = Claim(), Claim()
    one.promise(GIB)
    one.hungry(True)
    assert (sharing.promised(), other.hungry_others()) == (0, 0)
    assert said in pipeline().plan().explain()


def pipeline() -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4)


def test_the_default_budget_leaves_out_what_others_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    from standpipe.plan import build

    monkeypatch.setattr(build.machine, "memory_left", lambda *_: {0: 64 * GIB})
    first = pipeline().loader()
    assert first.plan.memory_bytes == 32 * GIB
    second = pipeline().loader()
    assert second.plan.memory_bytes == 16 * GIB
    first.close()
    assert pipeline().plan().memory_bytes == 24 * GIB
    second.close()
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert pipeline().plan().memory_bytes == 8 * GIB


def test_what_others_outside_of_a_container_may_take_is_none_of_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from standpipe.plan import build

    left = {0: 64 * GIB, 7: 8 * GIB}
    monkeypatch.setattr(build.machine, "memory_left", lambda *_: left)
    outside, inside = Claim(), Claim(pools=(0, 7))
    outside.promise(32 * GIB)
    assert pipeline().plan().memory_bytes == 4 * GIB
    inside.promise(6 * GIB)
    assert pipeline().plan().memory_bytes == 1 * GIB
    outside.promise(57 * GIB)
    assert pipeline().plan().memory_bytes == GIB // 2
    outside.close()
    inside.close()


def test_however_much_others_may_take_some_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from standpipe.plan import build

    monkeypatch.setattr(build.machine, "memory_left", lambda *_: {0: 64 * GIB})
    greedy = pipeline().loader(memory=100 * GIB)
    assert pipeline().plan().memory_bytes == 4 * GIB
    greedy.close()


def test_a_running_loader_promises_what_it_does_not_have_yet(claims: tuple[Claim, Claim]) -> None:
    with pipeline().loader(memory=GIB) as loader:
        assert sharing.promised() == GIB
        next(iter(loader))
        has = loader.memory().now
        assert GIB - 2 * has - (1 << 20) <= sharing.promised() <= GIB
    assert sharing.promised() == 0


@pytest.mark.parametrize("kind", ["thread", "inline", "given"])
def test_a_loader_whose_loop_pauses_leaves_its_part_to_others(kind: Any, claims: tuple[Claim, Claim]) -> None:
    again = threading.Event()
    given = kind == "given"
    numbers = sp.Pipeline(sp.Arrays(x=np.arange(64))).map(lambda x: x, field="x")
    executor = "thread" if given else kind
    with numbers.batch(4, batch_sampler=given).loader(memory=GIB, executor=executor) as loader:
        batches = iter(loader.from_batches(([number] for number in range(64)), ahead=1) if given else loader)
        batch = next(batches)
        loader._claim.hungry(True)
        assert claims[0].hungry_others() == 1
        batch = next(batches)
        while claims[0].hungry_others():  # until all its slots are full, or nothing is asked for
            again.wait(0.001)
        del batch


def test_a_loader_whose_start_failed_has_its_part_all_the_same(claims: tuple[Claim, Claim]) -> None:
    def fails(x: float) -> float:
        raise ValueError("no")

    with (
        sp.Pipeline(sp.Arrays(x=np.arange(64.0)))
        .map(fails, field="x")
        .batch(4)
        .loader(memory=GIB, executor="thread") as loader
    ):
        for _ in range(2):
            with pytest.raises(sp.SampleError):
                next(iter(loader))
            assert sharing.promised() == GIB
