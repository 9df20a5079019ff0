"""Where other processes find a loader's newest snapshot: in a memory file that is gone when its process is.

The file's name begins with ``standpipe-loader``, so that it is found among a process's descriptors in /proc. It has two
places of equal size, which are written in turn: while one is written, the other one is whole. Each begins with a
header; a reader takes the newest whose checksum is right.

    bytes   8  ``b"stndload"``
            4  version
            4  length of the snapshot behind the header
            8  number of the snapshot, from 1
            4  CRC-32 of the fields before it, and of the snapshot
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from standpipe.observe.snapshot import Foreign, Snapshot

NAME = "standpipe-loader"
MAGIC, VERSION = b"stndload", 1
PLACE = 1 << 17  # bytes
HEADER = struct.Struct("<8sIIQ")
CHECKSUM = struct.Struct("<I")
ROOM = PLACE - HEADER.size - CHECKSUM.size
STALE_S = 15.0  # a snapshot that is older is of a process that stands still


@dataclass(frozen=True, slots=True)
class Found:
    """A loader of a running process.

    pid       as this process sees it, which may be another number than the snapshot's, of a container
    age_s     seconds since its snapshot was taken
    snapshot
    """

    pid: int
    age_s: float
    snapshot: Snapshot

    @property
    def stale(self) -> bool:
        """Whether its process stands still."""
        return self.age_s > STALE_S


class Posted:
    """A loader's memory file. Raises ``OSError`` where there can't be one."""

    def __init__(self, rank: int) -> None:
        self.descriptor = os.memfd_create(f"{NAME}-{rank}", os.MFD_CLOEXEC)
        self._number = 0

    def write(self, snapshot: Snapshot) -> None:
        """Put a snapshot in the place of the last but one; without names of workers and functions if it is too long."""
        text = snapshot.as_json()
        if len(text) > ROOM:
            text = replace(snapshot, stats=replace(snapshot.stats, workers=(), functions={})).as_json()
        self._number += 1
        os.pwrite(self.descriptor, framed(text, self._number), self._number % 2 * PLACE)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)


def framed(text: bytes, number: int) -> bytes:
    """A snapshot's JSON behind its header."""
    header = HEADER.pack(MAGIC, VERSION, len(text), number)
    return header + CHECKSUM.pack(zlib.crc32(text, zlib.crc32(header))) + text


def newest(file: bytes) -> Snapshot:
    """The newest snapshot of a memory file's bytes. Raises ``Foreign`` if it holds none."""
    whole = [found for place in (0, PLACE) if (found := _unframed(file[place : place + PLACE])) is not None]
    if not whole:
        raise Foreign("no snapshot of this version")
    return Snapshot.from_json(max(whole)[1])


def _unframed(place: bytes) -> tuple[int, bytes] | None:
    """A snapshot's number and JSON; None if there is none, or only half of one."""
    begin = HEADER.size + CHECKSUM.size
    if len(place) < begin:
        return None
    magic, version, length, number = HEADER.unpack_from(place)
    text = place[begin : begin + length]
    if (magic, version) != (MAGIC, VERSION) or len(text) < length:
        return None
    (checksum,) = CHECKSUM.unpack_from(place, HEADER.size)
    return (number, text) if zlib.crc32(text, zlib.crc32(place[: HEADER.size])) == checksum else None


def loaders(proc: Path = Path("/proc")) -> list[Found]:
    """All loaders of this user's processes, by process and rank. What can't be read is left out."""
    found: list[Found] = []
    for folder in proc.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == os.geteuid():
                    found += _of_process(folder)
    return sorted(found, key=lambda each: (each.pid, each.snapshot.rank, each.snapshot.source))


def loaders_of(process: int) -> list[Found]:
    """A process's own loaders, whoever's it is; none of a process that can't be looked into."""
    with contextlib.suppress(OSError):
        return list(_of_process(Path(f"/proc/{process}")))
    return []


def delivers(before: Sequence[Found], after: Sequence[Found]) -> bool:
    """Whether one of a process's loaders delivered batches between two looks; lately, if it said nothing meanwhile."""
    then = {_key(found): found.snapshot for found in before}
    return any(_goes_on(found, then.get(_key(found))) for found in after)


def _goes_on(found: Found, then: Snapshot | None) -> bool:
    now = found.snapshot
    if then is not None and then.time_s != now.time_s:
        return now.stats.step.steps > then.stats.step.steps
    return not found.stale and now.rows_per_s > 0


def _key(found: Found) -> tuple[object, ...]:
    now = found.snapshot
    return now.pid, now.rank, now.source, now.batch, now.steps_per_epoch


def _of_process(folder: Path) -> Iterator[Found]:
    """The loaders that a process has itself: children that were forked from it hold their files too."""
    files: set[int] = set()
    for link in (folder / "fd").iterdir():
        with contextlib.suppress(OSError, Foreign):
            if not str(link.readlink()).startswith(f"/memfd:{NAME}"):
                continue
            inode, content = _content(link)
            snapshot = newest(content)
            if inode not in files and snapshot.pid == _own_pid(folder):
                files.add(inode)
                yield Found(int(folder.name), max(time.monotonic() - snapshot.time_s, 0.0), snapshot)


def _content(link: Path) -> tuple[int, bytes]:
    descriptor = os.open(link, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise Foreign("no file")
        return facts.st_ino, os.pread(descriptor, 2 * PLACE, 0)
    finally:
        os.close(descriptor)


def _own_pid(folder: Path) -> int:
    """A process's number as it sees it itself: in a container that is another one."""
    status = (folder / "status").read_text(errors="replace")
    numbers = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    return int(numbers.split()[-1]) if numbers.split()[1:] else int(folder.name)
