"""The module runs on any x86-64 CPU: code for AVX is reached through the tables of kernels and nowhere else."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import standpipe._native as native
from programs import LIMIT_S

TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
CORE = next((Path(__file__).parents[2] / "build").glob(f"{TAG}-{TAG}-*/CMakeFiles/standpipe_core.dir"), None)
NO_OBJECTS = "build has no objects: rm .venv/.standpipe/package && scripts/setup test"
QEMU = shutil.which("qemu-x86_64")
TABLES = {
    "simd/avx2.cpp.o": "_ZN9standpipe12kAvx2KernelsE",
    "simd/avx512.cpp.o": "_ZN9standpipe14kAvx512KernelsE",
}
KERNELS = {"Nehalem": ["scalar"], "SandyBridge": ["scalar"], "Haswell": ["scalar", "avx2"]}

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="this is about x86-64")
needs_objdump = pytest.mark.skipif(not shutil.which("objdump"), reason="needs objdump")
needs_qemu = pytest.mark.skipif(not QEMU, reason="needs qemu-x86_64: Debian's package qemu-user")

LOAD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("standpipe._native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
print(native.simd_paths())
"""
GOLDEN = """
import sys, tempfile
from pathlib import Path
sys.path[:0] = sys.argv[1:]
import standpipe._native as native
from test_golden_pixels import GOLDEN, PIPELINES, pixels_hash
print(native.simd_paths())
for executor, names in (("thread", [*PIPELINES]), ("inline", [*PIPELINES][:3])):
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            got = pixels_hash(name, Path(folder), executor=executor)
        assert got == GOLDEN["hashes"][name], (executor, name)
"""


def binutil(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def has_avx(item: Path) -> bool:
    """Return whether an object has an instruction of AVX or later: their names begin with v."""
    lines = binutil("objdump", "-d", "--no-show-raw-insn", item).splitlines()
    return any(line.split("\t")[1].startswith("v") for line in lines if line.count("\t") == 1)


@needs_objdump
def test_only_kernels_have_instructions_of_later_cpus() -> None:
    assert CORE, NO_OBJECTS
    objects = [*CORE.parent.rglob("*.o")]
    assert {f"{item.parent.name}/{item.name}" for item in objects if has_avx(item)} == TABLES.keys()


@needs_objdump
@pytest.mark.parametrize("name", TABLES)
def test_kernels_define_their_table_alone_and_run_nothing_at_load(name: str) -> None:
    assert CORE, NO_OBJECTS
    item = CORE / "native" / name
    # Weak symbols are external, too: of inline functions the linker would keep one copy, perhaps this one.
    symbols = binutil("nm", "--extern-only", "--defined-only", "--format=posix", item).splitlines()
    assert [line.split()[0] for line in symbols] == [TABLES[name]]
    assert ".init_array" not in binutil("objdump", "-h", item)


def on(cpu: str, program: str, *arguments: str | Path) -> str:
    """Return a program's output on such a CPU."""
    environment = {name: text for name, text in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    assert QEMU
    done = subprocess.run(
        [QEMU, "-cpu", cpu, sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_qemu
def test_module_loads_on_the_first_x86_64() -> None:
    assert on("qemu64,-sse3,-cx16", LOAD, str(native.__file__)) == "['scalar']"


@needs_qemu
@pytest.mark.long
@pytest.mark.parametrize("cpu", KERNELS)
def test_older_cpus_give_the_golden_pixels(cpu: str) -> None:
    tests = Path(__file__).parents[1]
    assert on(cpu, GOLDEN, tests, tests / "support", tests / "golden") == str(KERNELS[cpu])
