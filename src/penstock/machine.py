"""What this process may use: CPUs and memory, as the kernel and the container's limits allow.

cgroup limits count as the machine's size: version 1 and 2, of this process's group and all above it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned number


def cpu_count(root: Path = Path("/")) -> int:
    """CPUs that this process may use: its affinity, cut by cgroup CPU quotas, rounded up; at least 1."""
    cpus: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups(root, "cpu"):
        cpus = min(cpus, _quota(group))
    return max(1, math.ceil(cpus))


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Memory that can still be had: the machine's available memory, or less where a cgroup says so."""
    free = _meminfo(root, "MemAvailable")
    for group in _groups(root, "memory"):
        limit = _number(group, "memory.max", "memory.limit_in_bytes")
        if limit is None or limit >= UNLIMITED_BYTES:
            continue
        used = _number(group, "memory.current", "memory.usage_in_bytes") or 0
        free = min(free, max(limit - used + _reclaimable(group), 0))
    return free


def process_memory_bytes(process: int | str = "self") -> int:
    """Proportional set size of a process; resident set size where the kernel doesn't tell the former."""
    return _memory_bytes(process, "Pss:")


def own_memory_bytes(process: int) -> int:
    """What a process shares with no other; all it has where the kernel doesn't tell."""
    return _memory_bytes(process, "Private_Clean:", "Private_Dirty:")


def _memory_bytes(process: int | str, *counts: str) -> int:
    try:
        text = (PROC / str(process) / "smaps_rollup").read_text()
        sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in text.splitlines()[1:]}
        return sum(sizes[count] for count in counts)
    except (OSError, KeyError):
        pages = int((PROC / str(process) / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup for a controller and of all above it."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    base = root / "sys" / "fs" / "cgroup"
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            mount = base
        elif controller in controllers.split(","):
            mount = base / controllers if (base / controllers).exists() else base / controller
        else:
            continue
        # Inside a container the path may be the host's, which isn't visible: then the mount's root is ours.
        folder = mount / path.lstrip("/")
        if not folder.exists():
            folder = mount
        while True:
            yield folder
            if folder == mount:
                break
            folder = folder.parent


def _quota(group: Path) -> float:
    """CPUs that a group may use; infinite without a quota."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    quota_us = _number(group, "cpu.cfs_quota_us")
    period_us = _number(group, "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else math.inf


def _reclaimable(group: Path) -> int:
    """Bytes of page cache that the kernel gives up under pressure, which count as used."""
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    stats = dict(line.split() for line in lines)
    # Version 1 has both, and only the total covers the groups below, as the usage does.
    return int(stats.get("total_inactive_file", stats.get("inactive_file", 0)))


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
