"""CPUs and memory as the kernel and the container's limits allow, on made-up trees and on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import machine

MIB = 1 << 20
UNLIMITED_V1 = 9223372036854771712  # what version 1 writes for no limit
CPUS = len(os.sched_getaffinity(0))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 1000 MiB available and no cgroups."""
    put(
        tmp_path,
        "proc/meminfo",
        f"MemTotal: {2000 << 10} kB\nMemAvailable:   {1000 << 10} kB\nMemFree: 1 kB\n",
    )
    return tmp_path


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))


def put(root: Path, path: str, text: object) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")


def v1(root: Path, group: str = "/", controllers: tuple[str, str] = ("cpu,cpuacct", "memory")) -> None:
    put(
        root,
        "proc/self/cgroup",
        f"5:{controllers[1]}:{group}\n4:{controllers[0]}:{group}\n1:name=systemd:/x\n0::/",
    )


def v2(root: Path, group: str = "/") -> None:
    put(root, "proc/self/cgroup", f"0::{group}")


def test_without_cgroups(root: Path) -> None:
    assert machine.cpu_count(root) == CPUS
    assert machine.free_memory_bytes(root) == 1000 * MIB


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("max 100000", 64),
        ("200000 100000", 2),
        ("250000 100000", 3),
        ("1000 100000", 1),
        ("9900000 100000", 64),
    ],
)
def test_cpu_quota_v2(root: Path, quota: str, cpus: int) -> None:
    v2(root, "/job")
    put(root, "sys/fs/cgroup/job/cpu.max", quota)
    assert machine.cpu_count(root) == cpus


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.parametrize(("quota", "cpus"), [(-1, 64), (200000, 2), (250000, 3), (1000, 1)])
def test_cpu_quota_v1(root: Path, quota: int, cpus: int) -> None:
    v1(root, "/job")
    put(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", quota)
    put(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", 100000)
    assert machine.cpu_count(root) == cpus


@pytest.mark.usefixtures("many_cpus")
def test_the_smallest_quota_of_a_group_and_those_above_counts(root: Path) -> None:
    v2(root, "/slice/job/task")
    for group, quota in (
        ("slice", "400000 100000"),
        ("slice/job", "300000 100000"),
        ("slice/job/task", "max 1"),
    ):
        put(root, f"sys/fs/cgroup/{group}/cpu.max", quota)
    assert machine.cpu_count(root) == 3


@pytest.mark.usefixtures("many_cpus")
def test_a_controller_mounted_alone(root: Path) -> None:
    v1(root, "/job")
    put(root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", 500000)
    put(root, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", 100000)
    assert machine.cpu_count(root) == 5


def test_memory_limit_v2(root: Path) -> None:
    v2(root, "/job")
    put(root, "sys/fs/cgroup/job/memory.max", 500 * MIB)
    put(root, "sys/fs/cgroup/job/memory.current", 300 * MIB)
    put(root, "sys/fs/cgroup/job/memory.stat", f"anon 1\ninactive_file {40 * MIB}\nactive_file 7")
    assert machine.free_memory_bytes(root) == 240 * MIB
    put(root, "sys/fs/cgroup/job/memory.max", "max")
    assert machine.free_memory_bytes(root) == 1000 * MIB


def test_memory_limit_v1(root: Path) -> None:
    v1(root, "/job")
    folder = "sys/fs/cgroup/memory/job"
    put(root, f"{folder}/memory.limit_in_bytes", 500 * MIB)
    put(root, f"{folder}/memory.usage_in_bytes", 300 * MIB)
    # The group's usage has that of the groups below in it, and so has only the total of its page cache.
    put(root, f"{folder}/memory.stat", f"inactive_file 1\ntotal_inactive_file {40 * MIB}")
    assert machine.free_memory_bytes(root) == 240 * MIB
    put(root, f"{folder}/memory.limit_in_bytes", UNLIMITED_V1)
    assert machine.free_memory_bytes(root) == 1000 * MIB


def test_the_tightest_memory_limit_counts(root: Path) -> None:
    v2(root, "/slice/job")
    for group, limit in (("slice", 400), ("slice/job", 700)):
        put(root, f"sys/fs/cgroup/{group}/memory.max", limit * MIB)
        put(root, f"sys/fs/cgroup/{group}/memory.current", 100 * MIB)
    assert machine.free_memory_bytes(root) == 300 * MIB


def test_a_group_over_its_limit_has_nothing_free(root: Path) -> None:
    v2(root)
    put(root, "sys/fs/cgroup/memory.max", 100 * MIB)
    put(root, "sys/fs/cgroup/memory.current", 130 * MIB)
    assert machine.free_memory_bytes(root) == 0


@pytest.mark.parametrize("group", ["/docker/0123456789ab", "/../../other", "/"])
def test_inside_a_container_the_mount_is_the_own_group(root: Path, group: str) -> None:
    v2(root, group)
    put(root, "sys/fs/cgroup/memory.max", 100 * MIB)
    assert machine.free_memory_bytes(root) == 100 * MIB
    v1(root, group)
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", 90 * MIB)
    assert machine.free_memory_bytes(root) == 90 * MIB


def test_a_hybrid_machine_has_its_limits_in_version_1(root: Path) -> None:
    v1(root, "/job")
    put(root, "sys/fs/cgroup/unified/job/cgroup.procs", "")
    put(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", 90 * MIB)
    assert machine.free_memory_bytes(root) == 90 * MIB


def test_a_machine_that_does_not_say_what_is_available(root: Path) -> None:
    put(root, "proc/meminfo", "MemTotal: 5 kB")
    with pytest.raises(OSError, match="MemAvailable"):
        machine.free_memory_bytes(root)


def test_affinity_is_obeyed() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {0}); from penstock import machine; print(machine.cpu_count())"
    )
    cpu = min(os.sched_getaffinity(0))
    assert printed(program.replace("{0}", f"{{{cpu}}}")) == 1


def test_this_machine() -> None:
    assert 1 <= machine.cpu_count() <= CPUS
    assert 0 < machine.free_memory_bytes() < 1 << 50
    before = machine.process_memory_bytes()
    ballast = bytearray(os.urandom(1)) * (64 * MIB)
    assert 60 * MIB < machine.process_memory_bytes() - before < 70 * MIB
    del ballast


def printed(program: str) -> int:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return int(done.stdout)


@pytest.fixture(params=["v1 memory", "v1 cpu", "v2 memory", "v2 cpu"])
def group(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """A real cgroup of this machine, if one can be made."""
    version, controller = request.param.split()
    base = Path("/sys/fs/cgroup")
    marker = "cgroup.controllers" if version == "v2" else f"{controller}/cgroup.procs"
    if not (base / marker).exists():
        pytest.skip(f"no cgroup {request.param} here")
    folder = (base if version == "v2" else base / controller) / f"penstock-test-{os.getpid()}"
    try:
        folder.mkdir()
        names = {"memory": "memory.limit_in_bytes memory.max", "cpu": "cpu.cfs_quota_us cpu.max"}[controller]
        limit = next((folder / name for name in names.split() if (folder / name).exists()), None)
        if limit is None:
            pytest.skip(f"cgroup {request.param} has no limits here")
        limit.write_text(
            "150000 100000" if limit.name == "cpu.max" else "150000" if controller == "cpu" else "400M"
        )
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no cgroup {request.param} can be made here: {error}")
    yield controller, folder
    folder.rmdir()


def test_a_real_cgroup(group: tuple[str, Path], many_cpus: None) -> None:
    controller, folder = group
    join = f"import os; open({str(folder / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
    join += "os.sched_getaffinity = lambda _: range(64)\nfrom penstock import machine\n"
    if controller == "cpu":
        assert printed(join + "print(machine.cpu_count())") == 2
    else:
        assert 200 * MIB < printed(join + "print(machine.free_memory_bytes())") <= 400 * MIB
