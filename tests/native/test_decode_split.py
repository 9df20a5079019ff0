"""The benchmark of the parts of a row builds and measures, as make bench runs it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from photos import encoded, picture

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("make") or not shutil.which("g++"),
    reason="needs make and g++",
)
def test_it_measures_every_part(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(encoded(picture(1, 400, 500)))
    done = subprocess.run(
        [sys.executable, "benchmarks/decode_split.py", tmp_path, "--rounds", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = re.findall(r"the whole row\W+(\d+)\W+(\d+)\W", done.stdout)
    assert all(int(microseconds) > 0 for microseconds in row)
