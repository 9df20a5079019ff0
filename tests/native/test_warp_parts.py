"""A warp of the part of a picture that it reads gives the bytes of a warp of the whole picture."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("tests/native/warp_parts_check.cpp", "native/pixels/fixed_warp.cpp", "native/simd/scalar.cpp")


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_parts_give_the_bytes_of_the_whole(tmp_path: Path) -> None:
    program = tmp_path / "warp_parts_check"
    flags = ("-std=c++20", "-O1", "-ffp-contract=off", "-Inative", "-fsanitize=address")
    subprocess.run(["g++", *flags, *SOURCES, "-o", program], cwd=ROOT, check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 0.1 < float(done.stdout) < 0.7  # of the pictures
