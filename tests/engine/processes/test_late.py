"""Datasets whose import or unpickling starts threads: each worker loads them by itself."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S
from programs import at_call, census, check_nothing_is_left, interrupt, started_since, wait_for_end
from standpipe.engine.processes import late
from standpipe.engine.processes.forking import own_threads

# ``loaded()`` counts by files, in whichever process, how often the module or a dataset was loaded.
MODULE = """
import _thread, ctypes, os, signal
from pathlib import Path
import numpy as np

FOLDER, TRAINER = Path({folder!r}), {trainer}
IS_TRAINER = os.getpid() == TRAINER

def loaded():
    number = 0
    while True:
        try:
            (FOLDER / f"load {{number}}").touch(exist_ok=False)
            return number
        except FileExistsError:
            number += 1

def start_thread():
    lock = _thread.allocate_lock()
    lock.acquire()
    _thread.start_new_thread(lock.acquire, ())

class Rows:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return {{"x": np.full(3, index * index), "process": os.getpid()}}
"""
STARTS = "if not IS_TRAINER:\n    loaded()\n    start_thread()\n"

Module = Callable[..., Any]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Write a module, and import it here; no other test has one of its name."""
    monkeypatch.syspath_prepend(tmp_path)
    numbers = itertools.count()

    def made(more: str = STARTS) -> Any:
        name = f"late_{tmp_path.name}_{next(numbers)}".replace("-", "_")
        text = MODULE.format(folder=str(tmp_path), trainer=os.getpid()) + textwrap.dedent(more)
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return made


def loads(folder: Path) -> int:
    return len(list(folder.glob("load *")))


def loader(dataset: Any, **settings: Any) -> sp.Loader:
    settings = {"executor": "process", "num_workers": 2, "memory": "1GiB", "slow_sample_s": 600, **settings}
    return sp.Pipeline(sp.MapSource(dataset)).shuffle(seed=3).batch(8).loader(**settings)


def rows(batches: Any) -> list[Any]:
    return [row for batch in batches for row in batch["x"].tolist()]


def is_late(batches: sp.Loader) -> bool:
    return "dataset: loaded by each worker" in batches.explain()


@pytest.mark.parametrize("context", ["spawn", "own", "forkserver"])
def test_rows_are_those_of_other_executors(
    module: Module, tmp_path: Path, caplog: pytest.LogCaptureFixture, context: str
) -> None:
    """The second loader starts no server that imports the module first."""
    of_users = module()
    server: Any = sp.ForkServer() if context == "own" else context
    with loader(of_users.Rows(), executor="thread") as batches:
        expected = rows(batches)
    assert not caplog.messages
    with loader(of_users.Rows(), mp_context=server) as batches:
        assert rows(batches) == expected
        assert is_late(batches)
    assert loads(tmp_path) == 3  # the first server, and two workers
    (told,) = caplog.messages
    name = of_users.__name__
    assert told.startswith(f"importing {name} starts a thread, with which no process can be forked")
    with loader(of_users.Rows(), mp_context=server) as batches:
        assert rows(batches) == expected
        assert f"importing {name} starts a thread" in " ".join(batches.explain().split())
    assert loads(tmp_path) == 5
    assert len(caplog.messages) == 1
    sp.ForkServer.shared().close()


THREAD = """
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
static void *waits(void *none) { for (;;) pause(); }
void begin(void) {
    pthread_t thread;
    pthread_create(&thread, 0, waits, 0);
    pthread_setname_np(thread, "pool-7");
}
"""


def test_threads_that_python_does_not_know_are_named(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "pool.c").write_text(THREAD)
    library = tmp_path / "pool.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-pthread", "-o", library, tmp_path / "pool.c"], check=True)
    inner = "pool_" + tmp_path.name
    (tmp_path / f"{inner}.py").write_text(
        f"import ctypes, os\nif os.getpid() != {os.getpid()}: ctypes.CDLL({str(library)!r}).begin()\nimport json\n"
    )
    of_users = module(f"import fractions, {inner}, calendar\n")
    with loader(of_users.Rows()) as batches:
        assert sorted(rows(batches)) == [[index * index] * 3 for index in range(64)]
    (told,) = caplog.messages
    assert told.startswith(f"importing {of_users.__name__} starts a thread (pool-7), with")


def test_a_thread_of_unpickling(module: Module, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    of_users = module("""
        class Starts(Rows):
            def __init__(self):
                self.size = 64
            def __setstate__(self, state):
                self.__dict__ = state
                loaded()
                start_thread()
        """)
    for done in (3, 5):
        with loader(of_users.Starts()) as batches:
            assert len(rows(batches)) == 64
        assert loads(tmp_path) == done
    (told,) = caplog.messages
    assert told.startswith("rebuilding the dataset and its functions starts a thread, with")


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_first_worker_that_is_killed_while_it_loads_is_tried_once_more(module: Module, deaths: int) -> None:
    of_users = module(f"""
        import signal
        if not IS_TRAINER:
            if 0 < loaded() <= {deaths}:  # the server is number 0
                os.kill(os.getpid(), signal.SIGKILL)
            start_thread()
        """)
    with loader(of_users.Rows()) as batches:
        if deaths == 1:
            assert len(rows(batches)) == 64
        else:
            with pytest.raises(sp.WorkerDiedError, match=r"killed by SIGKILL.* while it loaded the dataset"):
                iter(batches)


def test_a_thread_of_the_initializer_is_none_of_the_import(module: Module) -> None:
    of_users = module("")
    with loader(of_users.Rows(), initializer=of_users.start_thread) as batches:
        assert len(rows(batches)) == 64
        assert not is_late(batches)


def test_large_arrays_stay_shared(module: Module) -> None:
    """Each worker maps the same anonymous file, and has written to none of its pages."""
    of_users = module(
        STARTS
        + """
class Large(Rows):
    def __init__(self):
        self.array = np.arange(1 << 20)
        self.names = [f"name {number}" for number in range(5000)]
    def __getitem__(self, index):
        row = super().__getitem__(index)
        total, address, found = self.array.sum(), self.array.ctypes.data, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            first, *rest = line.split()
            if "-" in first:
                begin, end = (int(each, 16) for each in first.split("-"))
                if found := begin <= address < end:
                    file = int(rest[3])
            elif found and first == "Anonymous:":
                copied = int(rest[0])
        return {**row, "total": total, "copied": copied, "file": file, "packed": type(self.names).__name__}
"""
    )
    with loader(of_users.Large(), num_workers=2) as batches:
        taken = list(batches)
        assert is_late(batches)

    def values(name: str) -> set[Any]:
        return {value for batch in taken for value in np.asarray(batch[name]).tolist()}

    assert len(values("process")) == 2
    assert values("total") == {(1 << 20) * ((1 << 20) - 1) // 2}
    (file,) = values("file")
    assert file > 0
    assert values("copied") == {0}
    assert values("packed") == {"SharedList"}


def test_imports_count_for_each_worker(module: Module) -> None:
    size = 48 << 20
    plain = module(f"held = b'x' * {size}")
    with loader(plain.Rows()) as batches:
        next(iter(batches))
        shared = batches.plan.pool.cost
    starts = module(f"{STARTS}\nheld = b'x' * {size}")
    with loader(starts.Rows()) as batches:
        next(iter(batches))
        own = batches.plan.pool.cost
        workers = batches.plan.forecast.workers
    assert shared.each < size <= own.each
    assert own.shared < size <= shared.shared
    assert workers >= own.shared + 2 * size


def test_dead_workers_and_servers_are_replaced(module: Module, tmp_path: Path) -> None:
    of_users = module(
        STARTS
        + """
class Dies(Rows):
    def __getitem__(self, index):
        if index % 20 == 0:
            try:
                (FOLDER / f"died {index}").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid() if index else os.getppid(), signal.SIGKILL)
                if not index:
                    os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)
"""
    )
    before = census()
    with loader(of_users.Dies()) as batches:
        assert sorted(rows(batches)) == [[index * index] * 3 for index in range(64)]
        assert len(list(tmp_path.glob("died *"))) == 4
        processes = started_since(before)
    assert wait_for_end(processes, WAIT_S) == []


RAISES_AT = """
class Raises(Rows):
    def __init__(self):
        self.size = 64
    def __setstate__(self, state):
        self.__dict__ = state
        if loaded() == {number}:
            raise ValueError("not once more")
        start_thread()
"""


@pytest.mark.parametrize("number", [0, 1, 2], ids=["the server", "the first worker", "the second worker"])
def test_an_error_of_loading_is_the_users(module: Module, number: int) -> None:
    of_users = module(RAISES_AT.format(number=number))
    before = census()
    with (
        pytest.raises(sp.PlanError, match=r"can't rebuild the dataset .*ValueError: not once more") as raised,
        loader(of_users.Raises()) as batches,
    ):
        rows(batches)
    assert isinstance(raised.value.__cause__, ValueError)
    assert wait_for_end(started_since(before), WAIT_S) == []


def test_an_import_that_fails_after_it_has_started_a_thread(module: Module, tmp_path: Path) -> None:
    of_users = module(f"{STARTS}    raise KeyError('elsewhere')")
    with pytest.raises(sp.PlanError, match="KeyError: 'elsewhere'"), loader(of_users.Rows()) as batches:
        rows(batches)
    assert loads(tmp_path) == 2  # once for the module, and once as the recipe was unpacked


HANGS = """
if not IS_TRAINER:
    while loaded():
        {before}
        signal.pause()
    start_thread()
"""


def test_an_import_that_hangs_in_a_worker_is_ended(module: Module) -> None:
    of_users = module(HANGS.format(before="pass"))
    before = census()
    with (
        pytest.raises(sp.StalledError, match=r"the start of worker processes .*importing .*in worker 0"),
        loader(of_users.Rows(), stall_timeout_s=4.0) as batches,
    ):
        rows(batches)
    assert wait_for_end(started_since(before), WAIT_S) == []


def test_an_interrupt_while_a_worker_loads_leaves_no_process(module: Module) -> None:
    of_users = module(HANGS.format(before="os.kill(TRAINER, signal.SIGINT)"))
    before = census()
    with pytest.raises(KeyboardInterrupt), loader(of_users.Rows()) as batches:
        rows(batches)
    assert wait_for_end(started_since(before), WAIT_S) == []
    check_nothing_is_left(before)


def test_an_interrupt_at_any_moment_of_the_second_start(module: Module) -> None:
    """One comes while its process starts, with SIGINT blocked."""
    rows = module().Rows()
    batches = loader(rows)

    def start(at: int) -> list[str]:
        late._late.clear()
        with at_call(at, interrupt) as entered:
            iter(batches)
        return entered

    for _ in range(2):  # the first one is longer: it loads modules
        entered = start(-1)
        batches.close()
        batches = loader(rows)
    before = census()
    begin, end = entered.index("WorkerServer._start_again"), entered.index("EpochIterator.__init__")
    blocked = entered.index("_environment", begin)
    for moment in (begin, blocked, blocked + (end - blocked) // 3, blocked + (end - blocked) // 3 * 2):
        with pytest.raises(KeyboardInterrupt):
            start(moment)
        check_nothing_is_left(before)
    batches.close()


def test_a_fork_server_that_has_threads_already_is_started_again(module: Module, tmp_path: Path) -> None:
    """Only those datasets that need the module are loaded by each worker."""
    starts, other = module(), module("")
    server = sp.ForkServer()
    server.preload(starts.Rows())
    with loader(other.Rows(), mp_context=server) as batches:
        assert len(rows(batches)) == 64
        assert not is_late(batches)
    server.preload(starts.Rows())  # which doesn't import it any more
    assert loads(tmp_path) == 1
    with loader(starts.Rows(), mp_context=server) as batches:
        assert len(rows(batches)) == 64
        assert is_late(batches)
    assert loads(tmp_path) == 3
    server.close()


def test_a_late_loader_whose_fork_server_got_threads_from_another_dataset(module: Module) -> None:
    starts, other = module(), module()
    server = sp.ForkServer()
    for _ in range(2):
        with loader(starts.Rows(), mp_context=server) as batches:
            assert len(rows(batches)) == 64
            assert is_late(batches)
        server.preload(other.Rows())
    server.close()


def test_what_cant_travel_says_that_a_fork_has_it(module: Module, no_garbage: None) -> None:
    of_users = module("")
    held = of_users.Rows()
    held.lock = of_users._thread.allocate_lock()
    remedy = "mp_context='fork' (of a DataLoader: multiprocessing_context='fork')"
    with pytest.raises(sp.PlanError) as raised, loader(held) as batches:
        rows(batches)
    forkable = not own_threads()  # of loaders that other tests have left, say
    assert str(raised.value).endswith(remedy) == forkable
    if forkable:
        with loader(held, mp_context="fork") as batches:
            assert len(rows(batches)) == 64
    with loader(of_users.Rows()) as running:
        next(iter(running))
        with pytest.raises(sp.PlanError) as raised, loader(held) as batches:
            rows(batches)
        assert "mp_context" not in str(raised.value)


def test_a_thread_that_starts_with_python(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_users = module("")
    (tmp_path / "sitecustomize.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        pytest.raises(sp.PlanError, match="a new Python process has a thread before it loads anything"),
        loader(of_users.Rows()) as batches,
    ):
        rows(batches)
