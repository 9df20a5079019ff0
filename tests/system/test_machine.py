"""CPUs and memory as the kernel and the container's limits allow, on made-up trees and on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from standpipe.system import machine

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


def test_what_a_container_suffered_v2(root: Path) -> None:
    put(root, "proc/77/cgroup", "0::/job/task")
    put(root, "sys/fs/cgroup/job/cpu.stat", "usage_usec 9000000\nnr_throttled 3\nthrottled_usec 2500000")
    put(root, "sys/fs/cgroup/job/task/cpu.stat", "usage_usec 9000000\nnr_throttled 1\nthrottled_usec 500000")
    put(root, "sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2")
    assert (machine.throttled_s(77, root), machine.memory_kills(77, root)) == (2.5, 2)


def test_what_a_container_suffered_v1(root: Path) -> None:
    put(root, "proc/77/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n0::/")
    put(
        root,
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat",
        "nr_periods 9\nnr_throttled 3\nthrottled_time 2500000000",
    )
    put(root, "sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1")
    assert (machine.throttled_s(77, root), machine.memory_kills(77, root)) == (2.5, 1)
    assert (machine.throttled_s(78, root), machine.memory_kills(78, root)) == (0.0, 0)


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
    put(
        root,
        "sys/fs/cgroup/job/memory.stat",
        f"anon 1\ninactive_file {30 * MIB}\nactive_file {12 * MIB}\nslab_reclaimable {8 * MIB}",
    )
    assert machine.free_memory_bytes(root) == 240 * MIB
    put(root, "sys/fs/cgroup/job/memory.max", "max")
    assert machine.free_memory_bytes(root) == 1000 * MIB


def test_memory_limit_v1(root: Path) -> None:
    v1(root, "/job")
    folder = "sys/fs/cgroup/memory/job"
    put(root, f"{folder}/memory.limit_in_bytes", 500 * MIB)
    put(root, f"{folder}/memory.usage_in_bytes", 300 * MIB)
    # The group's usage has that of the groups below in it, and so has only the total of its page cache.
    put(
        root,
        f"{folder}/memory.stat",
        f"inactive_file 1\ntotal_inactive_file {30 * MIB}\nactive_file 7\ntotal_active_file {20 * MIB}",
    )
    assert machine.free_memory_bytes(root) == 240 * MIB
    put(root, f"{folder}/memory.limit_in_bytes", UNLIMITED_V1)
    assert machine.free_memory_bytes(root) == 1000 * MIB


def test_a_group_is_slowed_down_before_its_limit_v2(root: Path) -> None:
    v2(root, "/job")
    put(root, "sys/fs/cgroup/job/memory.max", 500 * MIB)
    put(root, "sys/fs/cgroup/job/memory.high", 400 * MIB)
    put(root, "sys/fs/cgroup/job/memory.current", 100 * MIB)
    assert machine.free_memory_bytes(root) == 300 * MIB
    put(root, "sys/fs/cgroup/job/memory.high", "max")
    assert machine.free_memory_bytes(root) == 400 * MIB


def test_a_limit_above_what_a_container_sees_v1(root: Path) -> None:
    v1(root, "/kubepods/pod1/0123")
    folder = "sys/fs/cgroup/memory"
    put(root, f"{folder}/memory.limit_in_bytes", UNLIMITED_V1)
    put(root, f"{folder}/memory.usage_in_bytes", 50 * MIB)
    put(root, f"{folder}/memory.stat", f"hierarchical_memory_limit {200 * MIB}\ntotal_inactive_file 0")
    assert machine.free_memory_bytes(root) == 150 * MIB
    put(root, f"{folder}/memory.stat", f"hierarchical_memory_limit {UNLIMITED_V1}")
    assert machine.free_memory_bytes(root) == 1000 * MIB


def test_memory_comes_from_the_machine_and_each_container_around(root: Path) -> None:
    assert (machine.memory_left(root), machine.memory_pools(root)) == ({0: 1000 * MIB}, (0,))
    v2(root, "/slice/job/step")
    outer, job, step = (root / "sys/fs/cgroup" / path for path in ("slice", "slice/job", "slice/job/step"))
    for group, limit, used in ((outer, 900 * MIB, 800), (job, "max", 300), (step, 500 * MIB, 100)):
        put(root, f"{group.relative_to(root)}/memory.max", limit)
        put(root, f"{group.relative_to(root)}/memory.current", used * MIB)
    pools = {group: 1 + group.stat().st_ino % machine.MOST_POOLS for group in (outer, step)}
    left = {0: 1000 * MIB, pools[outer]: 100 * MIB, pools[step]: 400 * MIB}
    assert machine.memory_left(root) == left
    assert set(machine.memory_pools(root)) == set(left)
    assert machine.free_memory_bytes(root) == 100 * MIB


def test_swap_is_no_memory(root: Path) -> None:
    """What is available is told without it, and a group's swap isn't looked at."""
    with (root / "proc/meminfo").open("a") as meminfo:
        meminfo.write(f"SwapTotal: {9000 << 10} kB\nSwapFree: {9000 << 10} kB\n")
    assert machine.free_memory_bytes(root) == 1000 * MIB
    v2(root, "/job")
    for name, limit in (("memory.max", 300 * MIB), ("memory.current", 0), ("memory.swap.max", 5000 * MIB)):
        put(root, f"sys/fs/cgroup/job/{name}", limit)
    assert machine.free_memory_bytes(root) == 300 * MIB
    v1(root, "/job")
    put(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", 200 * MIB)
    put(root, "sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", 900 * MIB)
    assert machine.free_memory_bytes(root) == 200 * MIB


MOUNTED = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 {root} /cgroups/cpu rw,relatime shared:4 master:1 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {root} /cgroups/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 {root} /cgroups/two rw,relatime - cgroup2 cgroup2 rw,nsdelegate
"""


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.parametrize(
    ("inner", "path", "folder"),
    [
        ("/", "/job", "job"),
        ("/docker/0123", "/docker/0123", "."),
        ("/docker/0123", "/docker/0123/step", "step"),
        ("/docker/0123", "/docker/01234", "."),
        ("/..", "/", "."),
    ],
)
def test_groups_are_where_the_kernel_mounted_them(root: Path, inner: str, path: str, folder: str) -> None:
    put(root, "proc/self/mountinfo", MOUNTED.format(root=inner).rstrip())
    v1(root, path)
    put(root, f"cgroups/memory/{folder}/memory.limit_in_bytes", 90 * MIB)
    put(root, f"cgroups/cpu/{folder}/cpu.cfs_quota_us", 300000)
    put(root, f"cgroups/cpu/{folder}/cpu.cfs_period_us", 100000)
    assert (machine.free_memory_bytes(root), machine.cpu_count(root)) == (90 * MIB, 3)
    v2(root, path)
    put(root, f"cgroups/two/{folder}/memory.max", 80 * MIB)
    put(root, f"cgroups/two/{folder}/cpu.max", "200000 100000")
    assert (machine.free_memory_bytes(root), machine.cpu_count(root)) == (80 * MIB, 2)


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
    assert machine.memory_pools(root) == (0,)


def test_affinity_is_obeyed() -> None:
    begin = "import os; os.sched_setaffinity(0, {0}); "
    program = begin + "from standpipe.system import machine; print(machine.cpu_count())"
    cpu = min(os.sched_getaffinity(0))
    assert printed(program.replace("{0}", f"{{{cpu}}}")) == 1


def test_this_machine() -> None:
    assert 1 <= machine.cpu_count() <= CPUS
    assert 0 < machine.free_memory_bytes() < 1 << 50
    # In a process of its own: a part of what it shares with others is its too, and others come and go.
    took = printed(
        "import os; from standpipe.system.machine import process_memory_bytes; before = process_memory_bytes(); "
        "ballast = bytearray(os.urandom(1)) * (64 << 20); print(process_memory_bytes() - before)"
    )
    assert 60 * MIB < took < 70 * MIB


def printed(program: str) -> int:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return int(done.stdout)


@pytest.fixture
def new_group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A new cgroup of this machine: of version 1 with a controller, or of version 2; skipped where none can be made."""
    kind = request.param
    base = Path("/sys/fs/cgroup") if kind == "v2" else Path("/sys/fs/cgroup") / kind
    if not (base / ("cgroup.controllers" if kind == "v2" else "cgroup.procs")).exists():
        pytest.skip(f"cgroup {kind} isn't mounted here")
    folder = base / f"standpipe-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup {kind} can be made here: {error}")
    yield folder
    for inner in [*folder.glob("*/"), folder]:
        inner.rmdir()


def limit(folder: Path, **limits: object) -> None:
    """Write a group's limits; ``memory_max`` is the file ``memory.max``."""
    for name, value in limits.items():
        path = folder / name.replace("_", ".", 1)
        if not path.exists():
            pytest.skip(f"this kernel's groups have no {path.name}")
        path.write_text(str(value))


def printed_in(folder: Path, expression: str) -> int:
    """What an expression about ``machine`` gives in a process of that group."""
    return printed(
        f"import os; open({str(folder / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
        f"from standpipe.system import machine; print({expression})"
    )


@pytest.mark.parametrize("new_group", ["memory"], indirect=True)
def test_real_memory_groups_of_version_1(new_group: Path) -> None:
    limit(new_group, memory_limit_in_bytes="400M")
    assert 200 * MIB < printed_in(new_group, "machine.free_memory_bytes()") <= 400 * MIB
    inner = new_group / "inner"
    inner.mkdir()
    assert 200 * MIB < printed_in(inner, "machine.free_memory_bytes()") <= 400 * MIB
    limit(inner, memory_limit_in_bytes="300M")
    assert 150 * MIB < printed_in(inner, "machine.free_memory_bytes()") <= 300 * MIB


@pytest.mark.parametrize("new_group", ["memory"], indirect=True)
def test_page_cache_is_free_memory(new_group: Path, tmp_path: Path) -> None:
    """Also what was read more than once, as a data set is."""
    limit(new_group, memory_limit_in_bytes="400M")
    (tmp_path / "data").write_bytes(bytes(200 * MIB))
    os.sync()  # what is yet to be written can't be dropped
    os.posix_fadvise(fd := os.open(tmp_path / "data", os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    read = f"os.system('cat {tmp_path / 'data'} > /dev/null') or "
    used = f"int(open({str(new_group / 'memory.usage_in_bytes')!r}).read())"
    assert printed_in(new_group, 3 * read + used) > 200 * MIB, "the cache isn't counted at all"
    assert printed_in(new_group, 3 * read + "machine.free_memory_bytes()") > 250 * MIB


@pytest.mark.parametrize("new_group", ["cpu"], indirect=True)
def test_real_cpu_quotas_of_version_1(new_group: Path) -> None:
    many = "setattr(os, 'sched_getaffinity', lambda _: set(range(64))) or machine.cpu_count()"
    limit(new_group, cpu_cfs_quota_us=150000, cpu_cfs_period_us=100000)
    assert printed_in(new_group, many) == 2
    inner = new_group / "inner"
    inner.mkdir()
    assert printed_in(inner, many) == 2
    limit(inner, cpu_cfs_quota_us=50000)
    assert printed_in(inner, many) == 1


@pytest.mark.parametrize("new_group", ["cpuset"], indirect=True)
def test_a_real_cpuset_is_obeyed(new_group: Path) -> None:
    memory = (new_group.parent / "cpuset.mems").read_text().strip()
    limit(new_group, cpuset_mems=memory, cpuset_cpus=min(os.sched_getaffinity(0)))
    assert printed_in(new_group, "machine.cpu_count()") == 1


@pytest.mark.parametrize("new_group", ["v2"], indirect=True)
def test_real_groups_of_version_2(new_group: Path) -> None:
    limit(new_group, memory_max="400M", cpu_max="150000 100000")
    many = "setattr(os, 'sched_getaffinity', lambda _: set(range(64))) or machine.cpu_count()"
    assert printed_in(new_group, many) == 2
    assert 200 * MIB < printed_in(new_group, "machine.free_memory_bytes()") <= 400 * MIB
    limit(new_group, memory_high="300M")
    assert 150 * MIB < printed_in(new_group, "machine.free_memory_bytes()") <= 300 * MIB
