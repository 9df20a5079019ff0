"""Starts of the drop-in DataLoader: what is imported when, how long it stays, and what ends it."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import standpipe as sp
import standpipe.torch
from gates import Gate, Log
from photos import WAIT_S
from programs import LIMIT_S, children, is_alive, output, wait_for_end
from standpipe.engine.processes.fork_server import SHARED
from standpipe.system.machine import process_memory_bytes
from torchs import MEMORY, THREADS

MODULE = """
import os
from pathlib import Path

with Path({log!r}).open("a") as log:
    print(os.getpid(), file=log)

class Numbers:
    def __len__(self): return 8
    def __getitem__(self, index): return index * {scale}
"""


class Home:
    """A module of the user's, and the processes that have imported it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.file = folder, folder / "log", folder / "numbers_of_the_user.py"
        self.write(1)
        self.dataset = importlib.import_module("numbers_of_the_user").Numbers()

    def write(self, scale: int) -> None:
        self.file.write_text(MODULE.format(log=str(self.log), scale=scale))

    @property
    def imports(self) -> int:
        """Beside that of this process."""
        return len(self.log.read_text().split()) - 1

    def taken(self) -> list[int]:
        """All samples, of a loader that is made for that and dropped."""
        loader = standpipe.torch.DataLoader(self.dataset, 4, num_workers=1, **MEMORY)
        samples = [number for batch in loader for number in batch.tolist()]
        del loader
        gc.collect()
        return samples


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numbers_of_the_user", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    SHARED.close()
    return Home(tmp_path)


def server() -> int:
    """The process that loaders' workers come from."""
    return int(SHARED._process.pid)  # nobody else can tell which process it is


def test_a_loader_after_the_last_one_imports_nothing(home: Home) -> None:
    assert home.taken() == home.taken() == list(range(8))
    assert home.imports == 1


def test_a_module_that_was_edited_is_imported_again(home: Home) -> None:
    """Also where another loader lives yet, as in a notebook whose cell is run again."""
    before = standpipe.torch.DataLoader(home.dataset, 4, num_workers=1, **MEMORY)
    assert home.taken() == list(range(8))
    home.write(3)
    assert home.taken() == list(range(0, 24, 3))
    assert home.imports == 2
    assert [number for batch in before for number in batch.tolist()] == list(range(0, 24, 3))


def test_other_surroundings_import_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.taken()
    servers = [server()]
    for change in (
        lambda: monkeypatch.setenv("STANDPIPE_TEST", "set"),
        lambda: monkeypatch.chdir(home.folder),
        lambda: monkeypatch.setattr(sys, "path", [*sys.path, "/nowhere"]),
    ):
        change()
        home.taken()
        servers.append(server())
    assert len(set(servers)) == 4
    assert home.imports == 4


def test_imports_begin_with_the_loader(home: Home) -> None:
    loader = standpipe.torch.DataLoader(home.dataset, 4, num_workers=1, **MEMORY)
    while home.imports == 0:
        assert is_alive(server())
    for other in ({"num_workers": 0}, {"num_workers": 1, "multiprocessing_context": "fork"}):
        SHARED.close()
        standpipe.torch.DataLoader(home.dataset, 4, **other, **MEMORY)
        assert SHARED._process is None
    del loader


def test_loaders_that_were_never_used_leave_no_process(home: Home) -> None:
    """The last one that is collected ends it; one from which workers were forked stays for the next loader."""
    loaders = [standpipe.torch.DataLoader(home.dataset, 4, num_workers=1, **MEMORY) for _ in "12"]
    first = server()
    del loaders[0]
    gc.collect()
    assert SHARED._process is not None
    assert server() == first
    loaders.clear()
    gc.collect()
    assert SHARED._process is None
    assert wait_for_end([first], WAIT_S) == []
    assert home.taken() == list(range(8))
    used = server()
    standpipe.torch.DataLoader(home.dataset, 4, num_workers=1, **MEMORY)
    gc.collect()
    assert server() == used
    assert is_alive(used)


def test_loaders_for_training_and_validation_import_once(home: Home) -> None:
    loaders = [standpipe.torch.DataLoader(home.dataset, 4, num_workers=1, **MEMORY) for _ in "12"]
    iterators = [iter(loader) for loader in loaders]
    assert [next(each).tolist() for each in iterators] == [[0, 1, 2, 3]] * 2
    assert home.imports == 1


ELSEWHERE = """
import os
if os.getpid() != {trainer}: {does}
class Numbers:
    def __len__(self): return 8
    def __getitem__(self, index): return index
"""


def elsewhere(home: Home, name: str, does: str) -> Any:
    """A dataset whose module does something when another process imports it."""
    (home.folder / f"{name}.py").write_text(ELSEWHERE.format(trainer=os.getpid(), does=does))
    return importlib.import_module(name).Numbers()


def test_an_error_of_imports_is_raised_by_iter(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    dataset = elsewhere(home, "fails_elsewhere", "raise LookupError('only here')")
    loader = standpipe.torch.DataLoader(dataset, 4, num_workers=1, **MEMORY)
    for _ in "12":
        with pytest.raises(sp.PlanError, match="LookupError: only here"):
            iter(loader)
    assert capfd.readouterr().err == ""


def test_a_slow_start_is_logged_in_one_line(home: Home, tmp_path: Path) -> None:
    """It names what is imported, and how to do without; not where standpipe's threads would forbid that."""
    gate, begun = Gate.closed(tmp_path / "gate"), tmp_path / "begun"
    waits = f"open({str(begun)!r}, 'w').close(); open({str(gate.path)!r}).close()"
    dataset = elsewhere(home, "waits_elsewhere", waits)
    fork = "multiprocessing_context='fork'"
    for beside in (False, True):
        loader = standpipe.torch.DataLoader(dataset, 4, num_workers=1, slow_sample_s=0.01, **MEMORY)
        while not begun.exists():
            assert is_alive(server())
        other = iter(standpipe.torch.DataLoader(range(8), 4, num_workers=1, **THREADS)) if beside else None
        with Log() as log, ThreadPoolExecutor(1) as thread:
            first = thread.submit(lambda loader=loader: next(iter(loader)).tolist())
            log.wait_for("the start of worker processes", "importing waits_elsewhere")
            with gate.opened():
                assert first.result() == [0, 1, 2, 3]
        (line,) = [line for line in log.lines if "the start of worker" in line]
        assert "\n" not in line
        assert (fork in line) != beside
        del other
        begun.unlink()
        SHARED.close()


def test_imports_of_a_script_s_own_classes_begin_with_the_loader(home: Home) -> None:
    """What they use is named by their code."""
    program = f"""
    from pathlib import Path
    import standpipe.torch
    import numbers_of_the_user as numbers

    class Own:
        def __len__(self): return 8
        def __getitem__(self, index): return [numbers.Numbers()[index] for _ in "1"][0]

    loader = standpipe.torch.DataLoader(Own(), 4, num_workers=1, memory="512MiB")
    ends = time.monotonic() + {LIMIT_S}
    while time.monotonic() < ends and len(Path({str(home.log)!r}).read_text().split()) < 3:
        pass
    print(len(Path({str(home.log)!r}).read_text().split()))
    """
    assert output(program) == "3\n"


def test_it_ends_when_it_is_idle_for_long(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SHARED, "idle_s", 0.01)
    running = iter(standpipe.torch.DataLoader(home.dataset, 4, num_workers=1, **MEMORY))
    next(running)
    first = server()
    assert home.taken() == list(range(8))
    assert server() == first  # for one loader runs
    del running
    gc.collect()
    assert wait_for_end([first], WAIT_S) == []
    assert Path(f"/proc/{first}/comm").read_text() == "standpipe-forks\n"  # by which the doctor knows it
    assert home.taken() == list(range(8))
    assert server() != first


def test_a_forked_child_has_its_own(home: Home) -> None:
    assert home.taken() == list(range(8))
    first = server()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert home.taken() == list(range(8))
            assert server() != first
            SHARED.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert home.taken() == list(range(8))
    assert server() == first
    assert home.imports == 2


@pytest.mark.parametrize(
    "ends",
    [subprocess.Popen.kill, pytest.param(subprocess.Popen.communicate, marks=pytest.mark.long)],
    ids=["killed", "at its end"],
)
def test_the_end_of_the_trainer_ends_it(ends: Callable[[Any], Any], tmp_path: Path) -> None:
    program = """
        import sys
        import standpipe.torch
        class Numbers:
            def __len__(self): return 9
            def __getitem__(self, index): return index
        list(standpipe.torch.DataLoader(Numbers(), 3, num_workers=1, memory="512MiB"))
        print("idle", flush=True)
        sys.stdin.readline()
        """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(program))
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"idle\n"
        processes = children(trainer.pid)
        assert len(processes) == 1
        ends(trainer)
        assert wait_for_end(processes, WAIT_S) == []


def test_its_memory_is_counted(home: Home) -> None:
    """A third of what was imported is the server's share of it, and a third the worker's."""
    made: Any = standpipe.torch.DataLoader(home.dataset, 4, num_workers=1, memory="1GiB")
    batches = iter(made)
    next(batches)
    loader = batches._engine
    processes = [server(), *children(server())]
    assert len(processes) == 3
    counted = loader.memory()["worker processes"].forecast
    assert counted > 0.9 * sum(map(process_memory_bytes, processes))
