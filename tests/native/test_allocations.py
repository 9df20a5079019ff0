"""Every allocation of a small native run fails once: an error of a row or of the run, and never the trainer's end."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from photos import encoded, picture

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("make") or not shutil.which("g++"),
    reason="needs make and g++",
)


@pytest.mark.long
def test_the_failure_of_any_allocation_is_an_error(tmp_path: Path) -> None:
    make = ["make", "--no-print-directory", "-s", "-f", "native/Makefile", "-j2", "allocations"]
    subprocess.run(["flock", "native/Makefile", *make], cwd=ROOT, check=True, timeout=600)
    files = {
        "baseline.jpg": encoded(picture(0), quality=90),
        "progressive.jpg": encoded(picture(1), progressive=True),
        "foreign.png": encoded(picture(2), "PNG"),
        "other.jpg": encoded(picture(3)),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    rows = 5 * [str(tmp_path / name) for name in files]
    program = ROOT / "build/native/fresh/allocations_check"
    (tmp_path / "set").mkdir()
    done = subprocess.run(
        [program, tmp_path / "set", *rows], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [*map(int, re.findall(r"(\d+) allocations", done.stdout))]
    assert len(counts) == 4, done.stdout
    assert min(counts) > 100, done.stdout
