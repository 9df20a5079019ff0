"""Worker processes: they die with the trainer, and take what people hand them."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S
from programs import census, check_nothing_is_left, children, is_alive, started_since, wait_for_end


class Numbers:
    """100 numbers, and what a test wants to happen at one of them."""

    def __init__(self, **more: Any) -> None:
        self.__dict__.update(more)

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(3, index)


def loader(dataset: Any, **settings: Any) -> sp.Loader:
    settings = {"executor": "process", "num_workers": 2, "memory": "512MiB", **settings}
    return sp.Pipeline(sp.MapSource(dataset, fields="x")).batch(10).loader(**settings)


def test_nothing_is_left_when_a_loader_is_closed() -> None:
    before, threads = census(), threading.active_count()
    files = []
    for _ in range(3):
        with loader(Numbers()) as batches:
            next(iter(batches))
            assert len(started_since(before)) == 3
        del batches
        assert [child for child in started_since(before) if is_alive(child)] == []
        gc.collect()
        files.append(
            sorted(path.readlink().name for path in Path("/proc/self/fd").iterdir() if path.exists())
        )
    assert threading.active_count() <= threads  # those of other tests may end meanwhile
    assert len(files[0]) == len(files[2])


class Sleeps(Numbers):
    def __getitem__(self, index: int) -> np.ndarray:
        if index >= 50:
            threading.Event().wait()
        return super().__getitem__(index)


def test_a_worker_inside_a_function_is_ended_too() -> None:
    before = census()
    with loader(Sleeps()) as batches:
        next(iter(batches))
        running = started_since(before)
    assert not [process for process in running if is_alive(process)]


PROGRAM = """
    import os, sys
    import numpy as np
    import standpipe as sp

    class Squares:
        def __init__(self):
            self.names = [f"{number}" for number in range(2000)]
        def __len__(self):
            return 40
        def __getitem__(self, index):
            return np.full(4, index * index), self.names[index]

    offset = 3
    pipeline = sp.Pipeline(sp.MapSource(Squares(), fields=("x", "name"))).map(lambda x: x + offset, field="x").batch(8)
    loader = pipeline.loader(executor="process", num_workers=2, memory="512MiB")
"""


def run(program: str, folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(PROGRAM) + textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=WAIT_S * 3, check=False, **options
    )


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    """With a lambda that uses a global, a class of the main module, and a list of names."""
    done = run(
        """
        for batch in loader:
            print(batch["x"][0, 0], batch["name"][0])
        """,
        tmp_path,
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[:3] == ["3 0", "67 8", "259 16"]


def test_kill_9_of_the_trainer_leaves_nothing(tmp_path: Path) -> None:
    before = census()
    script = tmp_path / "script.py"
    more = """
        next(iter(loader))
        print("running", flush=True)
        sys.stdin.read()
    """
    script.write_text(textwrap.dedent(PROGRAM) + textwrap.dedent(more))
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"running\n"
        workers = children(trainer.pid)
        assert len(workers) == 3
        trainer.kill()
        assert wait_for_end(workers, WAIT_S) == []
    check_nothing_is_left(before)
    assert not list((tmp_path / "tmp").iterdir())


def test_kill_9_while_a_forked_child_of_the_trainer_lives_on(tmp_path: Path) -> None:
    """Such a child holds copies of every descriptor, so no end of a pipe tells."""
    script = tmp_path / "script.py"
    more = """
        next(iter(loader))
        child = os.fork()
        if child == 0:
            sys.stdin.read()
            os._exit(0)
        print(child, flush=True)
        sys.stdin.read()
    """
    script.write_text(textwrap.dedent(PROGRAM) + textwrap.dedent(more))
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        child = int(trainer.stdout.readline())
        workers = [process for process in children(trainer.pid) if process != child]
        trainer.kill()
        assert wait_for_end(workers, WAIT_S) == []
        assert is_alive(child)


class HoldsFile(Numbers):
    pass


@pytest.fixture
def open_file() -> Iterator[Any]:
    with Path(os.devnull).open("rb") as file:
        yield file


def test_a_dataset_that_holds_an_open_file_says_what_to_change(open_file: Any) -> None:
    text = r"the dataset\.inner\['file'\], a BufferedReader, can't be sent .*__getstate__"
    with loader(HoldsFile(inner={"file": open_file})) as batches, pytest.raises(sp.PlanError, match=text):
        next(iter(batches))


def test_a_lambda_that_uses_a_lock_says_what_to_change() -> None:
    lock = threading.Lock()

    def locked(x: np.ndarray) -> np.ndarray:
        with lock:
            return x

    pipeline = sp.Pipeline(sp.MapSource(Numbers(), fields="x")).map(locked, field="x").batch(4)
    with (
        pipeline.loader(executor="process") as batches,
        pytest.raises(sp.PlanError, match=r"lock, which .*locked uses"),
    ):
        next(iter(batches))


class SaysWhere(Numbers):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"process": os.getpid(), "kind": type(self.names).__name__, "name": self.names[index]}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("pack", "kind"), [(True, "SharedList"), (False, "list")])
def test_samples_are_made_elsewhere_and_long_lists_are_packed(pack: bool, kind: str) -> None:
    names = [f"näme {number}" for number in range(5000)]
    pipeline = sp.Pipeline(sp.MapSource(SaysWhere(names=names), share_lists=pack)).batch(50)
    with pipeline.loader(executor="process", num_workers=2) as batches:
        batch = next(iter(batches))
    assert os.getpid() not in batch["process"]
    assert set(batch["kind"]) == {kind}
    assert batch["name"] == names[:50]


def test_processes_that_do_not_fit_are_refused() -> None:
    large = Numbers(ballast=np.ones(30 << 20, np.uint8))
    with (
        pytest.raises(
            sp.BudgetError, match=r"worker processes of .* that they share .* need memory="
        ) as caught,
        loader(large, memory="85MiB") as batches,
    ):
        next(iter(batches))
    assert caught.value.smallest_bytes is not None
    with loader(large, memory=caught.value.smallest_bytes + (32 << 20)) as batches:
        next(iter(batches))


def test_rows_of_arrays_and_files_go_to_workers(tmp_path: Path) -> None:
    arrays = sp.Pipeline(
        sp.Arrays(x=np.arange(60.0).reshape(20, 3), y=np.arange(20, dtype=np.int16))
    ).shuffle(seed=1)
    pipeline = arrays.map(lambda sample: {**sample, "z": sample["x"].sum() + sample["y"]}).batch(5)
    with pipeline.loader(executor="process", num_workers=2) as batches:
        for batch in batches:
            np.testing.assert_array_equal(batch["x"][:, 0], 3.0 * batch["index"])
            np.testing.assert_array_equal(batch["z"], batch["x"].sum(1) + batch["y"])
