"""Where worker processes come from: a fork server, which several loaders share, or the trainer itself."""

from __future__ import annotations

import copy
import gc
import importlib
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S
from programs import (
    census,
    check_nothing_is_left,
    children,
    is_alive,
    output,
    run,
    started_since,
    wait_for_end,
)
from samples import Samples
from standpipe.engine.processes import forking

MODULE = """
from pathlib import Path
with Path({log!r}).open("a") as log:
    print("imported", file=log)
value = 1
def sample(index):
    return index * value
"""


def loader(dataset: Any, **settings: Any) -> sp.Loader:
    settings = {"executor": "process", "num_workers": 2, "memory": "512MiB", **settings}
    return sp.Pipeline(sp.MapSource(dataset, fields="x")).batch(4).loader(**settings)


def taken(dataset: Any, **settings: Any) -> list[Any]:
    """All of ``x``."""
    with loader(dataset, **settings) as batches:
        return [value for batch in batches for value in np.asarray(batch["x"]).tolist()]


class Home:
    """A module of the user's, and how often it was imported."""

    def __init__(self, folder: Path) -> None:
        self.log, self.file = folder / "log", folder / "of_the_user.py"
        self.file.write_text(MODULE.format(log=str(self.log)))
        self.module = importlib.import_module("of_the_user")

    @property
    def imports(self) -> int:
        """Beside that of this process."""
        return len(self.log.read_text().split()) - 1


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "of_the_user", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Home(tmp_path)


def test_only_the_first_loader_imports(home: Home) -> None:
    before = census()
    server = sp.ForkServer()
    assert started_since(before) == []  # it hasn't started
    dataset = {"scale": 1}

    def sample(index: int) -> int:
        return home.module.sample(index) * dataset["scale"]  # type: ignore[no-any-return]

    module_sample = home.module.sample
    samples = Samples(lambda index: module_sample(index) * dataset["scale"])
    assert taken(samples, mp_context=server) == list(range(8))
    dataset["scale"] = 3  # each loader has the dataset as it is when it starts
    assert taken(samples, mp_context=server) == list(range(0, 24, 3))
    with loader(samples, mp_context=server):
        assert taken(samples, mp_context=server) == list(range(0, 24, 3))
    assert home.imports == 1
    assert len(started_since(before)) == 1
    server.close()
    check_nothing_is_left(before)
    assert taken(samples, mp_context=server) == list(range(0, 24, 3))
    assert home.imports == 2
    del server
    check_nothing_is_left(before)


def test_what_is_loaded_anew_is_loaded_anew_there(home: Home) -> None:
    server = sp.ForkServer()
    assert taken(Samples(home.module.sample), mp_context=server)[1] == 1
    home.file.write_text(MODULE.format(log=str(home.log)).replace("value = 1", "value = 50"))
    importlib.reload(home.module)
    assert taken(Samples(home.module.sample), mp_context=server)[1] == 50
    server.close()


def test_it_is_where_the_trainer_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def where(index: int) -> str:
        return f"{Path.cwd()} {os.environ.get('STANDPIPE_TEST')} {sys.path[0]}"

    server = sp.ForkServer()
    before = taken(Samples(where), mp_context=server)[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STANDPIPE_TEST", "set")
    monkeypatch.setattr(sys, "path", ["/nowhere", *sys.path])
    assert taken(Samples(where), mp_context=server)[0] == f"{tmp_path} set /nowhere" != before
    server.close()


def test_one_that_was_killed_starts_again() -> None:
    before = census()
    server = sp.ForkServer()
    samples = Samples(lambda index: index)
    with loader(samples, mp_context=server) as batches:
        rows = iter(batches)
        next(rows)
        server._process.kill()  # nobody else can tell which process it is
        wait_for_end([server._process.pid], WAIT_S)
        assert next(rows)["x"].tolist() == [4, 5, 6, 7]  # those it has forked live on
    del batches, rows
    assert taken(samples, mp_context=server) == list(range(8))
    server.close()
    check_nothing_is_left(before)


def test_garbage_that_is_a_loader_may_be_collected_while_another_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end asks the fork server how its own server ended, in the middle of what is being asked there."""
    server = sp.ForkServer()
    samples = Samples(lambda index: index)
    cycle: list[Any] = [loader(samples, mp_context=server)]
    next(iter(cycle[0]))
    cycle.append(cycle)
    send = forking.send
    ended = []

    def send_late(*message: Any) -> None:
        ended.append(gc.collect())
        send(*message)

    gc.disable()
    del cycle
    monkeypatch.setattr(forking, "send", send_late)
    try:
        assert taken(samples, mp_context=server) == list(range(8))
    finally:
        gc.enable()
    assert ended[0] > 0
    server.close()


def test_imports_that_fail_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    server = sp.ForkServer()
    here = f"__import__('os').getpid() == {os.getpid()}"
    (tmp_path / "fails_in_a_server.py").write_text(
        f"assert {here}, 'elsewhere'\ndef sample(index): return index"
    )
    with pytest.raises(sp.PlanError, match="AssertionError: elsewhere"):
        taken(Samples(importlib.import_module("fails_in_a_server").sample), mp_context=server)
    assert taken(Samples(lambda index: index), mp_context=server)[1] == 1
    server.close()


def test_an_import_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    before = census()
    (tmp_path / "hangs_elsewhere.py").write_text(
        f"import os, threading\nif os.getpid() != {os.getpid()}: threading.Event().wait()\ndef sample(index): pass"
    )
    (tmp_path / "outer.py").write_text("import hangs_elsewhere\ndef sample(index): pass")
    server = sp.ForkServer()
    sample = importlib.import_module("outer").sample
    with pytest.raises(
        sp.StalledError,
        match=r"the start of worker processes .*: importing outer, which imports hangs_elsewhere, in the worker server",
    ) as stalled:
        taken(Samples(sample), mp_context=server, stall_timeout_s=5.0)
    assert "hangs_elsewhere" in "".join(stalled.value.__notes__)  # its stack
    assert str(Path(sp.__file__).parent) not in stalled.value.where
    assert taken(Samples(lambda index: index), mp_context=server)[1] == 1
    server.close()
    assert [process for process in started_since(before) if is_alive(process)] == []


def test_a_killed_one_that_has_not_ended_yet_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = sp.ForkServer()
    taken(Samples(lambda index: index), mp_context=server)
    preloaded = server._process
    assert preloaded is not None
    assert preloaded.is_usable
    with monkeypatch.context() as patch:
        patch.setattr(preloaded._process, "kill", lambda: None)  # a busy machine has yet to end it
        preloaded.kill()
        assert not preloaded.is_usable
    assert taken(Samples(lambda index: index), mp_context=server)[1] == 1
    server.close()


def test_a_copy_is_another_one() -> None:
    server = sp.ForkServer()
    taken(Samples(lambda index: index), mp_context=server)
    for other in (copy.deepcopy(server), pickle.loads(pickle.dumps(server))):
        assert other._process is None  # which shows nowhere else
    server.close()
    with pytest.raises(
        sp.PlanError,
        match=r"mp_context must be 'spawn', 'forkserver', 'fork' or a ForkServer\(\), got 'trainer'",
    ):
        loader(Samples(lambda index: index), mp_context="trainer")


def test_kill_9_of_the_trainer_ends_it(tmp_path: Path) -> None:
    program = """
        import sys
        import standpipe as sp
        class Numbers:
            def __len__(self): return 9
            def __getitem__(self, index): return index
        server = sp.ForkServer()
        for _ in range(2):
            loader = sp.Pipeline(sp.MapSource(Numbers())).batch(3).loader(
                executor="process", num_workers=1, memory="512MiB", mp_context=server)
            batches = iter(loader)
            next(batches)
            print("running", flush=True)
            sys.stdin.readline()
            loader.close()
            print("idle", flush=True)
            sys.stdin.readline()
        """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(program))
    for told in (b"running", b"idle"):
        with subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as trainer:
            assert trainer.stdout is not None
            assert trainer.stdin is not None
            while trainer.stdout.readline().strip() != told:
                trainer.stdin.write(b"\n")
                trainer.stdin.flush()
            processes = children(trainer.pid)
            assert len(processes) == {b"running": 3, b"idle": 1}[told]
            trainer.kill()
            assert wait_for_end(processes, WAIT_S) == []


FORKS = """
    class Held:
        def __init__(self): self.lock, self.made = threading.Lock(), [0]
        def __len__(self): return 8
        def __getitem__(self, index):
            with self.lock:
                self.made[0] += 1
                return index, os.getpid()

    held = Held()
    def forks(dataset=held, **settings):
        pipeline = sp.Pipeline(sp.MapSource(dataset, fields=("x", "process"))).batch(4)
        return pipeline.loader(executor="process", num_workers=2, memory="1GiB", mp_context="fork", **settings)
"""


def test_forks_of_the_trainer_have_what_cant_be_pickled() -> None:
    told = output(
        FORKS
        + """
    signal.signal(signal.SIGTERM, lambda *_: print("the trainer's own handler"))
    for epoch in range(2):
        with forks() as loader:
            batches = list(loader)
            if epoch:
                os.kill(int(batches[0]["process"][0]), signal.SIGTERM)
        print([batch["x"].tolist() for batch in batches], held.made)
        assert os.getpid() not in {process for batch in batches for process in batch["process"].tolist()}
        held.made[0] = 100 * (epoch + 1)
    """
    )
    assert told == "[[0, 1, 2, 3], [4, 5, 6, 7]] [0]\n[[0, 1, 2, 3], [4, 5, 6, 7]] [100]\n"


def test_a_fork_beside_standpipes_threads_is_refused() -> None:
    told = output(
        FORKS
        + """
    with make() as other:
        next(iter(other))
        try:
            next(iter(forks()))
        except sp.PlanError as error:
            print(error)
    print(next(iter(forks()))["x"].tolist())
    """
    )
    assert "since standpipe runs" in told
    assert told.splitlines()[-1] == "[0, 1, 2, 3]"


def test_a_worker_that_dies_is_forked_again_and_a_dead_server_is_named() -> None:
    told = output(
        FORKS
        + """
    class Kills(Held):
        def __getitem__(self, index):
            if index == 5:
                os.kill(os.getpid() if self.kind == "worker" else os.getppid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(index)

    for kind in ("worker", "server"):
        kills = Kills()
        kills.kind = kind
        try:
            with forks(kills) as loader:
                list(loader)
        except sp.WorkerDiedError as error:
            print(error)
    """
    )
    first, second = told.splitlines()
    assert "record 5" in first
    assert "can't be forked again" in second


def test_kill_9_of_a_trainer_that_was_forked_leaves_nothing() -> None:
    done = run(
        FORKS
        + """
    loader = forks()
    batches = iter(loader)
    next(batches)
    from programs import children
    print(*children(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    )
    processes = [int(process) for process in done.stdout.split()]
    assert len(processes) == 3
    assert wait_for_end(processes, WAIT_S) == []
