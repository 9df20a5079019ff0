"""Say what an order of records costs on storage where each read of another place takes long."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from standpipe.contracts import OpenSource
from standpipe.errors import StandpipeError
from standpipe.system.filesystem import file_system
from standpipe.system.paths import path_text

SPINNING = "a spinning disk"
DEVICES = Path("/sys/dev/block")
VIRTUAL = ("0x", "QEMU", "VMware", "VBOX", "Msft", "Google", "Xen")  # vendors of disks of virtual machines


def storage_costs(source: OpenSource, *, scattered: bool, devices: Path = DEVICES) -> list[str]:
    """Return lines for ``explain()`` on an order's cost; none for storage that is quick to read anywhere.

    scattered  True if neighbours in the order are anywhere in the source
    devices    the folder in which the kernel describes block devices
    """
    try:
        files = next(iter(source.locate(np.zeros(1, np.int64)).files.values()), None)
        if files is None:
            return []
        folder = os.path.dirname(path_text(files.paths[0])) or "/"  # noqa: PTH120
        found = file_system(folder)
        kind = found.kind if found.elsewhere else SPINNING if is_spinning(folder, devices) else None
    except (StandpipeError, OSError):  # reading the records says so
        return []
    lines = []
    if kind is not None and scattered:
        each = "a seek, about 10 ms" if kind == SPINNING else "a request to the server, often 1 ms or more"
        lines.append(
            f"files are on {kind}: in this order each record costs {each}; reading threads wait for it. "
            "shuffle(block=1024) stays within 64 ranges of the files"
        )
    if kind is not None and files.length[0] < 0:
        lines.append(f"every record is a file on {kind}, which is opened anew; shards need one open each")
    return lines


def is_spinning(path: str, devices: Path = DEVICES) -> bool:
    """Return True if a file's disk is a spinning one. Disks of virtual machines count as none, whatever they say."""
    device = os.stat(path).st_dev  # noqa: PTH116
    place = (devices / f"{os.major(device)}:{os.minor(device)}").resolve()
    disk = place if (place / "queue").exists() else place.parent  # a partition has the disk's queue
    try:
        vendor = (disk / "device" / "vendor").read_text().strip()
        rotational = (disk / "queue" / "rotational").read_text().strip()
    except OSError:
        return False
    return rotational == "1" and not vendor.startswith(VIRTUAL)
