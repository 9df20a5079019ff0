"""Fixtures and settings for all tests."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import cloudpickle
import pytest
from hypothesis import settings

from object_store import ObjectStore, object_store
from standpipe.system import machine

# A shell without job control, such as a script that runs the tests in the background, has its children ignore
# Ctrl-C, and theirs in turn. Programs that tests start and interrupt shall not.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs that tests start multiply no large matrices: threads for that are started, wait in vain, and cost CPU time.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# Tests ask what comes out, not how long it took, and each time of the same examples. --hypothesis-profile=long is for a
# night, and looks for others.
settings.register_profile("standpipe", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("standpipe")


# Tests of these take seconds each. Those that run at the same time begin with them, so that none is the last. One group
# stays together: a cluster of Ray is for all of its tests.
SLOW = (
    "for_ray/",
    "examples/",
    "doctor/test_script",
    "for_torch/test_frameworks",
    "docs/test_howto",
    "docs/test_code_blocks",
    "for_torch/test_dataloader_starts",
)


@pytest.hookimpl(trylast=True)  # once those that won't run are gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests' classes and functions go to worker processes by value: by name, each would import all of their module.

    That is pytest, and where some of the tests need it torch, seconds each time.
    """
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        cloudpickle.register_pickle_by_value(module)
    at_once = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [[item for item in items if item.nodeid.startswith(f"tests/{name}")] for name in SLOW]
    first = set(chain(*slow))
    others = iter([item for item in items if item not in first])
    share = -(-len(items) // at_once)  # each takes such a part of the list, in its order
    parts = [list(chain(*slow[number::at_once])) for number in range(at_once)]
    items[:] = [each for part in parts for each in (*part, *islice(others, max(share - len(part), 0)))]


def pytest_collection() -> None:
    """Modules stay, so collections of garbage while they are imported would free little."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Tests collect garbage often: what was imported for all of them needn't be looked through each time."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter's end free what was imported: some libraries complain about what is left then."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """Take the test's name, which pytest puts there, out of the environment.

    A process that imported torch for a DataLoader of another environment isn't used again: each test would start one.
    """
    os.environ.pop("PYTEST_CURRENT_TEST", None)


@pytest.fixture
def no_garbage() -> None:
    """Loaders that tests before left in a traceback's frames, say, are gone."""
    gc.collect()


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes that tests build go to a folder of theirs, and so do temporary files: what is left there is theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("RAY_TMPDIR", "/tmp")  # paths of its sockets are long
        yield


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 server, which starts when the first test asks for it."""
    with object_store(tmp_path_factory.mktemp("seaweed")) as store:
        yield store


@pytest.fixture(scope="session", autouse=True)
def _memory_is_counted_seldom() -> Iterator[None]:
    """Count this process's memory again when it has changed by 3%, not for each plan.

    The kernel walks all pages. That takes 15 ms for a process that has imported what all tests together need, which is
    longer than most loaders of tests live.
    """
    count, known = machine._rollup, {"resident": 0}
    counts: dict[str, int] = {}

    def seldom(process: int | str) -> dict[str, int]:
        if process != "self" or Path("/proc") != machine.PROC:
            return count(process)
        resident = machine._resident(process)[0]
        if abs(resident - known["resident"]) > resident // 32:
            known["resident"] = resident
            counts.update(count(process))
        return counts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "_rollup", seldom)
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Loaders of this process share the machine with one another, not with those of tests that run beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        patch.setattr("standpipe.system.published.SHARED_MEMORY", Path("/nonexistent"))
        yield
