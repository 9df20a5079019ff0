"""Find the CPUs near a device, on machines with several memory nodes."""

from __future__ import annotations

from pathlib import Path


def cpus_near(pci: str | None, root: Path = Path("/")) -> frozenset[int] | None:
    """Return the CPUs of a PCI device's NUMA node; None with a single node, or if the node isn't known.

    pci   the device's address, such as ``"0000:3b:00.0"``; None: not known
    root  the folder in which ``sys`` is
    """
    nodes = root / "sys" / "devices" / "system" / "node"
    try:
        if pci is None or len(list(nodes.glob("node[0-9]*"))) < 2:
            return None
        node = int((root / "sys" / "bus" / "pci" / "devices" / pci / "numa_node").read_text())
        return None if node < 0 else cpu_list((nodes / f"node{node}" / "cpulist").read_text())
    except (OSError, ValueError):
        return None


def cpu_list(text: str) -> frozenset[int]:
    """Return the CPU numbers in a list of the kernel's, such as ``"0-3,8,10-11"``. Raises ``ValueError``."""
    ranges = [part.split("-") for part in text.strip().split(",") if part]
    return frozenset(cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1))
