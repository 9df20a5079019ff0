"""Count the CPUs, memory and open files that this process may use, by the limits of machine and container.

cgroup limits count like the machine's size: version 1 and 2, of this process's group and all groups above it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROC = Path("/proc")
MOST_POOLS = (1 << 16) - 1  # numbers for containers: more than a machine has containers
UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned number


def cpu_count(root: Path = Path("/"), *, near: frozenset[int] | None = None) -> int:
    """Return the number of CPUs that this process may use, at least 1.

    It is the number in its affinity, limited by cgroup CPU quotas, which are rounded up.

    root  folder with proc/ and sys/, "/" except in tests
    near  numbers of CPUs: count only these, if this process may use at least one of them
    """
    cpus: float = len(usable_cpus(near))
    for group in _groups(root, "cpu"):
        cpus = min(cpus, _quota(group))
    return max(1, math.ceil(cpus))


def usable_cpus(near: frozenset[int] | None = None) -> frozenset[int]:
    """Return the numbers of the CPUs that this process's affinity allows.

    near  numbers of CPUs: return only these, if the affinity allows at least one of them
    """
    if not hasattr(os, "sched_getaffinity"):
        return frozenset(range(os.cpu_count() or 1))
    usable = frozenset(os.sched_getaffinity(0))
    return usable.intersection(near or ()) or usable


@contextlib.contextmanager
def on_cpus(cpus: frozenset[int] | None) -> Iterator[None]:
    """Limit this thread to ``cpus`` during the ``with`` block, so that threads and processes started there run on them.

    It has no effect if ``cpus`` is None or this thread may use none of them.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    near = usable.intersection(cpus or ())
    if not near or near == usable:
        yield
        return
    os.sched_setaffinity(0, near)
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of free memory: the least of the machine's and of each container's around this process."""
    return min(memory_left(root).values())


def memory_left(root: Path = Path("/")) -> dict[int, int]:
    """Return the free bytes per memory pool: the machine is pool 0, and each container with a memory limit is one."""
    left: dict[int, int] = {}
    for pool, used, size in _pools(root):
        left[pool] = min(left.get(pool, size), max(size - used, 0))
    return left


def memory_pools(root: Path = Path("/")) -> tuple[int, ...]:
    """Return the numbers of the pools that this process's memory comes from, as in ``memory_left``; (0,) if unknown."""
    try:
        return tuple(memory_left(root))
    except OSError:
        return (0,)


def memory_in_use(root: Path = Path("/")) -> tuple[int, int]:
    """Return (bytes in use, size in bytes) of the memory pool with the least free memory.

    The pools are the machine, and the containers around this process that have a memory limit.
    """
    _, used, size = min(_pools(root), key=lambda pool: pool[2] - pool[1])
    return used, size


def _pools(root: Path) -> Iterator[tuple[int, int, int]]:
    """Yield the number, the bytes in use and the size of each memory pool.

    The machine is first; the containers around this process follow, the innermost first.
    """
    total = _meminfo(root, "MemTotal")
    yield 0, total - _meminfo(root, "MemAvailable"), total
    for group in _groups(root, "memory"):
        if (limit := _memory_limit(group)) is not None:
            used = _number(group, "memory.current", "memory.usage_in_bytes") or 0
            yield 1 + group.stat().st_ino % MOST_POOLS, used - _reclaimable(group), limit


def throttled_s(process: int | str = "self", root: Path = Path("/")) -> float:
    """Return the seconds for which the CPU quota of a process's container stopped its threads so far, over all CPUs.

    process  process id, or ``"self"``
    """
    held = [0.0]
    for group in _groups(root, "cpu", process):
        stats = _stats(group, "cpu.stat")  # of version 2, or 1
        held.append(stats.get("throttled_usec", 0) / 1e6 + stats.get("throttled_time", 0) / 1e9)
    return max(held)


def memory_kills(process: int | str = "self", root: Path = Path("/")) -> int:
    """Return the number of processes that the kernel has killed for lack of memory in a process's container.

    process  process id, or ``"self"``
    """
    kills = [0]
    for group in _groups(root, "memory", process):
        kills += [_stats(group, name).get("oom_kill", 0) for name in ("memory.events", "memory.oom_control")]
    return max(kills)


def raise_file_limit() -> None:
    """Raise this process's limit of open files to the highest value that the system allows it (``ulimit -Hn``)."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def too_many_files() -> str:
    """Return the text of the error that this process can't open another file."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"too many open files: this process may have {limit} (ulimit -n), and workers, reads, caches and the program "
        "itself need more. Raise the limit, or use fewer workers"
    )


def is_short_of_files(error: BaseException) -> bool:
    """Return True if an error says that too many files are open: an ``OSError``, or native code's RuntimeError."""
    if isinstance(error, OSError):
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return isinstance(error, RuntimeError) and os.strerror(errno.EMFILE) in str(error)


def process_memory_bytes(process: int | str = "self") -> int:
    """Return a process's proportional set size in bytes, or the resident set size if the kernel reports only that."""
    counts = _rollup(process)
    return counts["Pss:"] if counts else _resident(process)[0]


def anonymous_bytes(process: int | str = "self") -> int:
    """Return the bytes of a process's heaps and stacks, also those shared with forked processes, in about 20 µs."""
    resident, shared = _resident(process)
    return resident - shared


def own_memory_bytes(process: int, sharers: int) -> int:
    """Return roughly the bytes of memory that a process shares with no other process, in some milliseconds.

    It returns all resident bytes if the kernel doesn't report shared memory.

    sharers  number of processes forked from the same process, this one included
    """
    counts = _rollup(process)
    if not counts:
        return _resident(process)[0]
    private = counts["Private_Clean:"] + counts["Private_Dirty:"]
    if sharers < 2 or "Pss_Anon:" not in counts:
        return private
    # Slots that no other process has touched yet are private too, and must not count. The kernel reports the heap's
    # size, own + shared, and its proportional size, own + shared / sharers. Both together give ``own``.
    own = (sharers * counts["Pss_Anon:"] - counts["Anonymous:"]) // (sharers - 1)
    return max(min(private, own), 0)


def _resident(process: int | str) -> tuple[int, int]:
    """Return a process's resident bytes, and the part of them that belongs to files or named shared memory."""
    _, resident, shared, *_ = map(int, (PROC / str(process) / "statm").read_text().split())
    page = os.sysconf("SC_PAGE_SIZE")
    return resident * page, shared * page


def _rollup(process: int | str) -> dict[str, int]:
    """Return the bytes of a process's memory by kind; empty if the kernel doesn't report them."""
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {name: int(number) * 1024 for name, number, _ in map(str.split, lines)}


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted cgroup hierarchy.

    folder  folder at which the hierarchy is mounted
    root    path of the cgroup that ``folder`` shows; inside a container often not the hierarchy's top
    """

    folder: Path
    root: str

    def groups(self, path: str) -> Iterator[Path]:
        """Yield the folders of the cgroup ``path`` and of its ancestors, innermost first, as far as visible."""
        group = PurePosixPath(path)
        inside = group.relative_to(self.root if group.is_relative_to(self.root) else "/")
        # The path may be the host's, which isn't visible: then the mount's own group is ours.
        folder = self.folder / inside
        if ".." in inside.parts or not folder.exists():
            folder = self.folder
        while True:
            yield folder
            if folder == self.folder:
                return
            folder = folder.parent


def _groups(root: Path, controller: str, process: int | str = "self") -> Iterator[Path]:
    """Yield the folders of a process's cgroup and its ancestors, in which a controller's limits are.

    controller  ``"cpu"`` or ``"memory"``
    """
    try:
        lines = (root / "proc" / str(process) / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            kind = "cgroup2"
        elif controller in controllers.split(","):
            kind = controller
        else:
            continue
        yield from (_mount(root, kind) or _usual_mount(root, kind, controllers)).groups(path)


@functools.cache
def _mount(root: Path, kind: str) -> _Mount | None:
    """Return the mount of cgroup version 2 (``"cgroup2"``), or of a controller of version 1; None if unknown."""
    try:
        lines = (root / "proc" / "self" / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, _, _, inner, folder, *_, system, _, options = line.split()
        if system == kind or (system == "cgroup" and kind in options.split(",")):
            return _Mount(root / folder.lstrip("/"), inner)
    return None


def _usual_mount(root: Path, kind: str, controllers: str) -> _Mount:
    base = root / "sys" / "fs" / "cgroup"
    if kind != "cgroup2":
        base = base / controllers if (base / controllers).exists() else base / kind
    return _Mount(base, "/")


def _quota(group: Path) -> float:
    """Return the number of CPUs that a cgroup's quota allows, which may be a fraction; infinity without a quota."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    quota_us = _number(group, "cpu.cfs_quota_us")
    period_us = _number(group, "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else math.inf


def _memory_limit(group: Path) -> int | None:
    """Return the bytes that a cgroup may use before the kernel kills or slows its processes; None without limit."""
    limits = [
        _number(group, "memory.max", "memory.limit_in_bytes"),
        _number(group, "memory.high"),
        # Version 1 also reports the lowest limit of all groups above, even of those that a container can't see.
        _stats(group).get("hierarchical_memory_limit"),
    ]
    return min((limit for limit in limits if limit is not None and limit < UNLIMITED_BYTES), default=None)


def _reclaimable(group: Path) -> int:
    """Return the bytes of a cgroup that the kernel can free when memory is short.

    These are inactive page cache, and half of active page cache and reclaimable kernel tables.
    """
    stats = _stats(group)

    def total(name: str) -> int:
        # Version 1 has both values, and only the total covers the groups below, as the usage does.
        return stats.get(f"total_{name}", stats.get(name, 0))

    return total("inactive_file") + (total("active_file") + total("slab_reclaimable")) // 2


def _stats(group: Path, name: str = "memory.stat") -> dict[str, int]:
    try:
        lines = (group / name).read_text().splitlines()
    except OSError:
        return {}
    return {name: int(number) for name, number in map(str.split, lines)}


def _number(group: Path, *names: str) -> int | None:
    for name in names:
        try:
            text = (group / name).read_text().strip()
        except OSError:
            continue
        return UNLIMITED_BYTES if text == "max" else int(text)
    return None


def _meminfo(root: Path, name: str) -> int:
    for line in (root / "proc" / "meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/meminfo has no {name}")
