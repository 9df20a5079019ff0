"""A short run of the fuzzer: the same builds and checks as a long one, from the same seeds."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = 4000  # of each target; not seconds, in which a busy machine would do too few

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("make") or not shutil.which("g++"),
    reason="needs make and g++",
)


@pytest.mark.long
def test_no_bytes_break_a_row() -> None:
    done = subprocess.run(
        [ROOT / "scripts/fuzz", "--native", f"{RUNS}x"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [int(count) for count in re.findall(r"driver: \w+_fuzz, (\d+) runs", done.stdout)]
    assert runs == [RUNS] * 7, done.stdout
