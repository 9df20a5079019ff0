"""A short run of every fuzz target of Python code: what ``scripts/fuzz`` runs for as long as one likes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import TARGETS
from programs import LIMIT_S

RUNS = 500  # not seconds, in which a busy machine would do too few
DRIVER = Path(__file__).parent / "driver.py"


@pytest.mark.parametrize("target", TARGETS)
def test_no_bytes_break_a_parser(target: str, tmp_path: Path) -> None:
    check_runs(target, RUNS, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("target", ["annotations", "instances"])
def test_ten_thousand_annotation_files(target: str, tmp_path: Path) -> None:
    check_runs(target, 10_000, tmp_path)


def check_runs(target: str, runs: int, tmp_path: Path) -> None:
    options = [f"-runs={runs}", "-seed=1", f"-artifact_prefix={tmp_path}/crash-"]
    done = subprocess.run(
        [sys.executable, DRIVER, *options, target],
        capture_output=True,
        text=True,
        timeout=LIMIT_S * max(1, runs // 1000),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(rf"driver: {target}, (\d+) runs .* (\d+) of them taken for good", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) == runs, done.stdout
    assert int(found[2]) > 0, "the parser takes nothing: " + done.stdout
