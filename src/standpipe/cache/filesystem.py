"""The file system that a folder lies on: what kind it is, how much it holds and has free."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from standpipe.errors import PlanError

if TYPE_CHECKING:
    import ctypes

IN_MEMORY = {0x01021994: "tmpfs", 0x858458F6: "ramfs"}
# As statfs(2) and the kernel's headers have them. Other hosts may change what lies there behind this one's back, and
# most of them give neither locks nor file sizes that all hosts agree on at once.
ELSEWHERE = {
    0x00006969: "NFS",
    0x0000517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB",
    0x65735546: "FUSE",
    0x01021997: "9P",
    0x0BD00BD0: "Lustre",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x47504653: "GPFS",
    0x73757245: "Coda",
    0x7461636F: "OCFS2",
    0x01161970: "GFS2",
    0x19830326: "BeeGFS",
    0x20030528: "OrangeFS",
    0x013661AB: "Quobyte",
    0xAAD7AAEA: "PanFS",
}
RESERVE = 64  # one part in so many of a file system is left to others


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system, as it was when it was asked.

    kind         a word for people: ``"tmpfs"``, ``"NFS"``; ``"disk"`` for what lies on this machine and isn't memory
    in_memory    whether what lies there takes the machine's memory
    elsewhere    whether other machines may write there too, or a program stands in between
    total_bytes  what it holds at most; 0 where it has no limit of its own
    free_bytes   what this user may still write, less a reserve that is left to others
    """

    kind: str
    in_memory: bool
    elsewhere: bool
    total_bytes: int
    free_bytes: int


def file_system(folder: int | str) -> FileSystem:
    """Return the file system of a folder, given by descriptor or path. Raises ``OSError``."""
    if isinstance(folder, str):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return file_system(opened)
        finally:
            os.close(opened)
    magic = _magic(folder)
    facts = os.statvfs(folder)
    total = facts.f_blocks * facts.f_frsize
    unlimited = total == 0  # a tmpfs with size=0
    free = sys.maxsize if unlimited else facts.f_bavail * facts.f_frsize - total // RESERVE
    kind = IN_MEMORY.get(magic) or ELSEWHERE.get(magic) or "disk"
    return FileSystem(kind, magic in IN_MEMORY, magic in ELSEWHERE, total, max(free, 0))


def check_local(what: str, path: str, found: FileSystem) -> None:
    """Raise ``PlanError`` for a file system that several machines may share.

    what  whose path it is, such as ``"directory"``
    """
    if found.elsewhere:
        raise PlanError(
            f"Cache({what}={path!r}) lies on {found.kind}: a cache is one machine's own, since locks and file sizes on "
            "shared file systems come late or not at all, and rows would come from where the data comes from; give "
            "each machine a folder on its own disk or in /dev/shm, and choose by scope= which part of the data it keeps"
        )


def _magic(folder: int) -> int:
    """Return the type number in the first word of ``fstatfs``, which ``os.statvfs`` leaves out; 0 outside
    Linux.

    /proc/self/mountinfo doesn't serve: a container may hide it, and btrfs has device numbers that it lacks.
    """
    if sys.platform != "linux":
        return 0
    import ctypes

    words = (ctypes.c_long * 32)()  # twice of what any struct statfs takes
    if _libc().fstatfs(folder, words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(words[0]) & 0xFFFFFFFF


@cache
def _libc() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
