"""``.ci/run`` forgives at most five tests that pass alone, and tests share themselves out however few there are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAIL_ONCE = """
import pathlib, signal
import pytest

def fails_once(name):
    first = not pathlib.Path(name).exists()
    pathlib.Path(name).touch()
    assert not first

@pytest.mark.parametrize("name", NAMES)
def test_that_fails_once(name):
    fails_once(name)
"""
INTERRUPTED = (
    FAIL_ONCE
    + """
def test_that_is_interrupted():
    signal.raise_signal(signal.SIGINT)

def test_that_never_ran():
    assert False
"""
)


def run_of(folder: Path, program: str, flaky: int) -> tuple[int, list[str]]:
    """Return the exit code and lines of ``.ci/run`` in a project with these tests, ``flaky`` of which fail once."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "Makefile").write_text("test:\n\t@.venv/bin/python -m pytest -q test_some.py\n")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_some.py").write_text(
        program.replace("NAMES", repr([f"t{each}" for each in range(flaky)]))
    )
    alone = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))
    }
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=folder, env=alone, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def test_tests_that_pass_alone_are_listed_in_the_last_lines(tmp_path: Path) -> None:
    code, lines = run_of(tmp_path, FAIL_ONCE, 2)
    assert code == 0, lines
    assert lines[-3:-1] == [
        f"flaky: test_some.py::test_that_fails_once[t{each}] failed beside others and passed alone"
        for each in range(2)
    ]
    assert lines[-1].startswith("2 failed in ")


@pytest.mark.parametrize(("program", "flaky"), [(FAIL_ONCE, 6), (INTERRUPTED, 1)], ids=["six", "interrupted"])
def test_more_of_them_or_tests_that_never_ran_are_a_failure(tmp_path: Path, program: str, flaky: int) -> None:
    code, lines = run_of(tmp_path, program, flaky)
    assert code == 2
    assert "make test exited with 2" in lines
    assert not [line for line in lines if line.startswith("flaky")]


def test_a_few_slow_tests_run_at_the_same_time_too() -> None:
    """Several processes list the same tests, also where there are no quick ones to share out."""
    several = os.environ | {"PYTEST_XDIST_WORKER_COUNT": "4"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "tests/docs/test_howto.py",
    ]
    done = subprocess.run(command, cwd=ROOT, env=several, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("test_howto.py::") >= 10
