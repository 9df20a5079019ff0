"""A batch that is held when the process is forked keeps its bytes in the child, and starves nobody."""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S
from programs import open_files, run

SIZE = 400
SLOT_BYTES = 16 << 10  # of two rows of 1000 numbers
MEMORY = "64MiB"
FORK = multiprocessing.get_context("fork")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking beside threads


def pipeline() -> sp.Pipeline:
    return sp.Pipeline(sp.Arrays(x=np.repeat(np.arange(SIZE), 1000).reshape(SIZE, 1000))).batch(2)


def held(loader: sp.Loader) -> int:
    """Slots that children hold. A private name: nothing public counts them alone."""
    run = loader._run
    assert run is not None
    run._ring.reclaim()
    return int(run._ring.count("held"))


def slots_bytes(loader: sp.Loader) -> int:
    """Bytes of slots that ``memory()`` reports."""
    return sum(owner.now for owner in loader.memory().owners if owner.name == "slots")


@contextmanager
def child(act: Callable[[Connection], object]) -> Iterator[Connection]:
    """A forked process that does something over a connection."""
    ours, theirs = FORK.Pipe()

    def run() -> None:
        ours.close()
        act(theirs)

    process = FORK.Process(target=run)
    process.start()
    theirs.close()
    try:
        yield ours
        ours.close()
        process.join(WAIT_S)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()


def tells(kept: list[Any], *, closes: bool = False) -> Callable[[Connection], object]:
    """A child that has a batch, in a list: it says what is in it whenever it is asked."""

    def act(connection: Connection) -> None:
        if closes:  # as those do that become a daemon
            os.closerange(connection.fileno() + 1, 1000)
            os.closerange(3, connection.fileno())
        while True:
            try:
                connection.recv()
            except EOFError:
                return
            connection.send(kept[0]["x"][:, 0].tolist())

    return act


def asked(connection: Connection) -> Any:
    connection.send("say")
    return connection.recv()


@pytest.mark.parametrize("closes", [False, True], ids=["", "closes all descriptors"])
def test_a_batch_in_a_forked_child_keeps_its_bytes(closes: bool) -> None:
    with pipeline().loader(memory=MEMORY, num_workers=1, prefetch=1) as loader:
        iterator = iter(loader)
        kept = [next(iterator)]
        with child(tells(kept, closes=closes)) as connection:
            assert asked(connection) == [0, 1]
            kept.clear()
            for other in iterator:
                assert other["x"][:, 0].tolist() == other["index"].tolist()
            del other
            assert asked(connection) == [0, 1]
            assert held(loader) == 1
            assert slots_bytes(loader) >= 3 * SLOT_BYTES  # its own, and `depth` others
        assert held(loader) == 0


def test_the_slot_comes_back_when_the_child_drops_the_batch() -> None:
    def act(connection: Connection) -> None:
        kept.clear()
        connection.send("dropped")
        connection.recv()

    with pipeline().loader(memory=MEMORY, num_workers=1, prefetch=1) as loader:
        kept = [next(iter(loader))]
        with child(act) as connection:
            assert connection.recv() == "dropped"
            kept.clear()
            assert held(loader) == 0
            connection.send("end")


def test_a_child_of_the_child_has_it_too() -> None:
    def act(connection: Connection) -> None:
        process = FORK.Process(target=tells([*kept]), args=(connection,))
        process.start()
        connection.close()
        kept.clear()
        process.join()

    with pipeline().loader(memory=MEMORY, num_workers=1, prefetch=1) as loader:
        iterator = iter(loader)
        kept = [next(iterator)]
        with child(act) as connection:
            assert asked(connection) == [0, 1]
            kept.clear()
            assert sum(1 for _ in iterator) == SIZE // 2 - 1
            assert asked(connection) == [0, 1]


def test_the_slot_comes_back_when_the_child_starts_another_program() -> None:
    started, open_until_then = os.pipe()
    theirs, ours = os.pipe()
    with pipeline().loader(memory=MEMORY, num_workers=1, prefetch=1) as loader:
        kept = [next(iter(loader))]
        child = os.fork()
        if child == 0:
            os.dup2(theirs, 0)
            os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"])
        os.close(open_until_then)
        os.close(theirs)
        try:
            assert os.read(started, 1) == b""
            kept.clear()
            assert held(loader) == 0
        finally:
            os.close(ours)
            os.waitpid(child, 0)
            os.close(started)


def test_batches_held_at_a_fork_take_no_descriptors() -> None:
    number = 40
    with pipeline().loader(memory=MEMORY, num_workers=1, prefetch=1) as loader:
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(number)]
        before = open_files()
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        try:
            assert open_files() == before
            kept.clear()
            assert held(loader) == number
            assert open_files() == before
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert held(loader) == 0


def test_children_that_outlive_epochs_starve_nobody() -> None:
    """More of them than there are slots."""
    with pytest.raises(sp.BudgetError) as caught:
        pipeline().plan(memory=1, num_workers=1, prefetch=1)
    smallest = caught.value.smallest_bytes
    assert smallest is not None
    children: list[int] = []
    with pipeline().loader(memory=smallest + (64 << 10), num_workers=1, prefetch=1) as loader:
        most = loader.plan.most_slots
        assert 3 <= most <= 10
        try:
            for _ in range(2):
                for number, batch in enumerate(loader):
                    if number % 20 == 0:
                        children.append(os.fork())
                        if children[-1] == 0:
                            signal.pause()
                            os._exit(0)
                    assert batch["x"][:, 0].tolist() == batch["index"].tolist()
                del batch
            assert len(children) > most
            assert 0 < held(loader) <= most - 2
        finally:
            for process in filter(None, children):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        assert held(loader) == 0


TIGHT = """
source = sp.Arrays(x=np.repeat(np.arange(64), 1000).reshape(64, 1000))
pipeline = sp.Pipeline(source).batch(1)
try:
    pipeline.plan(memory=1, num_workers=1, prefetch=1)
except sp.BudgetError as error:
    smallest = error.smallest_bytes
loader = pipeline.loader(memory=smallest, num_workers=1, prefetch=1)
assert loader.plan.most_slots == 2
iterator = iter(loader)
batch = next(iterator)
child = os.fork()
if child == 0:
    print(batch["x"][0, 0], flush=True)
    os._exit(0)
print(batch["x"][0, 0])
del batch
print(len(list(batch["x"].sum() for batch in iterator)), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_without_room_the_child_gets_an_error_that_says_so() -> None:
    done = run(TIGHT)
    assert (done.returncode, done.stdout) == (0, f"0\n63 {-signal.SIGSEGV}\n")
    assert "forked while its parent held a batch" in done.stderr
    assert "raise memory=" in done.stderr


REFUSED = """
import ctypes, platform, struct

libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 29, "aarch64": 194}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(filters)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
loader = make()
iterator = iter(loader)
batch = next(iterator)
first = batch["x"].copy()
child = os.fork()
if child == 0:
    batch["x"].sum()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), np.array_equal(batch["x"], first))
del batch
print(len(list(iterator)))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="needs the number of shmget")
def test_where_the_system_refuses_shared_memory_the_child_gets_an_error_that_says_so() -> None:
    """As a container's seccomp profile may."""
    done = run(REFUSED)
    if "no filter" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, f"{-signal.SIGSEGV} True\n31\n"), done.stderr
    assert "the system refused the System V shared memory" in done.stderr
    assert "(Operation not permitted)" in done.stderr
    assert "allow shmget" in done.stderr
    assert "raise memory=" not in done.stderr


class Remembers:
    """Record i is what a batch of ours holds, and the batch's sum."""

    def __init__(self, kept: Any) -> None:
        self._kept = kept

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return self._kept[index % 2, 0]


def test_torchs_own_workers() -> None:
    """Forked while the trainer holds a batch, which it then drops."""
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    with pipeline().loader(memory=MEMORY, num_workers=1, prefetch=1) as loader:
        iterator = iter(loader)
        next(iterator)
        batch = next(iterator)
        theirs = DataLoader(
            Remembers(torch.from_numpy(batch["x"])),
            num_workers=2,
            batch_size=4,
            multiprocessing_context="fork",
        )
        values = iter(theirs)
        first = next(values)
        theirs.dataset._kept = None
        del batch
        for other in iterator:
            assert other["x"][:, 0].tolist() == other["index"].tolist()
        assert {value for values in [first, *values] for value in values.tolist()} == {2, 3}
        del values, theirs
    assert sum(1 for _ in pipeline().loader(memory=MEMORY, num_workers=1)) == SIZE // 2
