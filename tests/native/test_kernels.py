"""Every set of kernels gives the scalar ones' bytes, here and, where a cross compiler and qemu are, on aarch64."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import standpipe._native as native

ROOT = Path(__file__).parents[2]
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
SETS = ["scalar", "neon"] if platform.machine() == "aarch64" else ["scalar", "avx2", "avx512"]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("make") or not shutil.which("g++"),
    reason="needs make and g++",
)


def build(target: str) -> None:
    # One at a time: the fuzz targets are built of the same objects.
    command = [
        "flock",
        "native/Makefile",
        "make",
        "--no-print-directory",
        "-s",
        "-j2",
        "-f",
        "native/Makefile",
        target,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def names_checked(*command: str) -> list[str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def checked() -> list[str]:
    """The sets of kernels that were compared."""
    build("kernels")
    return names_checked("build/native/asan/kernels_check")


# The module's list is private: nobody but tests and explain() asks for instruction sets by name.
@pytest.mark.parametrize("name", SETS)
def test_kernels_of_this_machine_agree(name: str, checked: list[str]) -> None:
    if name not in native.simd_paths():
        pytest.skip(f"this CPU doesn't run {name}: those kernels were not tested")
    assert name in checked


@pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine runs them itself")
@pytest.mark.skipif(
    not QEMU or not shutil.which("aarch64-linux-gnu-g++"),
    reason="needs aarch64-linux-gnu-g++ and qemu-aarch64",
)
def test_neon_kernels_agree() -> None:
    build("neon")
    assert QEMU
    assert names_checked(QEMU, "build/native/neon/kernels_check") == ["scalar", "neon"]
