"""The file system of a folder: its kind, its size and its free bytes."""

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
# Numbers from statfs(2) and the kernel's headers. Other hosts may change files there unnoticed, and most of these file
# systems have neither locks nor file sizes that all hosts agree on at once.
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
RESERVE = 64  # 1/64 of a file system is left to others


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system, at the time of the call that returned it.

    kind         a word for messages: ``"tmpfs"``, ``"NFS"``; ``"disk"`` for a local one that isn't memory
    in_memory    True if its files take the machine's memory
    elsewhere    True if other machines may write to it too, or a program provides it, as with FUSE
    total_bytes  its size; 0 if it has no limit of its own
    free_bytes   bytes that this user may still write, less 1/64 of the size, which is left to other programs
    """

    kind: str
    in_memory: bool
    elsewhere: bool
    total_bytes: int
    free_bytes: int


def file_system(folder: int | str) -> FileSystem:
    """Return the file system of a folder, given by file descriptor or path. Raises ``OSError``."""
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

    what   parameter of ``Cache`` that named the folder: ``"directory"`` or ``"spill"``
    path   path of the folder
    found  the folder's file system
    """
    if found.elsewhere:
        raise PlanError(
            f"Cache({what}={path!r}) is on {found.kind}, but a cache belongs to one machine: on shared file systems "
            "locks and file sizes come late or not at all, and rows would come from shared storage again. Give each "
            "machine a folder on its own disk or in /dev/shm, and choose with scope= which part of the data it keeps"
        )


def _magic(folder: int) -> int:
    """Return the type number of a folder's file system, the first word of ``fstatfs``; 0 outside Linux.

    folder  file descriptor

    ``os.statvfs`` doesn't return this number. /proc/self/mountinfo can't replace it: a container may hide that
    file, and it lacks the device numbers of btrfs.
    """
    if sys.platform != "linux":
        return 0
    import ctypes

    words = (ctypes.c_long * 32)()  # twice the size of any struct statfs
    if _libc().fstatfs(folder, words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(words[0]) & 0xFFFFFFFF


@cache
def _libc() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
