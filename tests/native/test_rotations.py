"""The matrix of a rotation is that of Pillow's ``Image.rotate``, to the last bit."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (
    "tests/native/rotation_check.cpp",
    *(
        f"native/{each}.cpp"
        for each in ("pixels/warp", "pixels/affine", "pixels/canvas", "pixels/pixels", "simd/scalar")
    ),
)
X, Y = 12, 16.5


def pillows(degrees: float) -> list[float]:
    """The six numbers that ``Image.rotate`` gives to ``Image.transform``."""
    angle = -math.radians(degrees % 360.0)
    return about_centre(round(math.sin(angle), 15), round(math.cos(angle), 15))


def about_centre(sine: float, cosine: float) -> list[float]:
    return [cosine, sine, cosine * -X + sine * -Y + X, -sine, cosine, -sine * -X + cosine * -Y + Y]


# A test of pixels sees few angles, and pixels of few angles show that the last digit is wrong.
@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_matrices_are_pillows(tmp_path: Path) -> None:
    program = tmp_path / "rotation_check"
    flags = ("-std=c++20", "-O2", "-ffp-contract=off", "-Inative")
    without_others = ("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")  # which need other files
    subprocess.run(["g++", *flags, *without_others, *SOURCES, "-o", program], cwd=ROOT, check=True)
    whole = np.arange(0, 360.0)
    angles = np.concatenate([whole, np.random.default_rng(0).uniform(0, 360, 100_000)])
    done = subprocess.run([program], input=angles.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.float64).reshape(-1, 8)
    rounded = [about_centre(round(sine, 15), round(cosine, 15)) for sine, cosine in found[:, :2].tolist()]
    assert np.array_equal(found[:, 2:], rounded)
    equal = (found[:, 2:] == [pillows(angle) for angle in angles.tolist()]).all(axis=1)
    assert equal[: len(whole)].all(), whole[~equal[: len(whole)]]
    assert equal.mean() > 0.99  # neither a C library nor we round every sine correctly
