"""Facts are lines of JSON, one file for each process, written at once: a process may be killed at any time."""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any, ClassVar

NOW = struct.Struct("qd")  # the sample that a process is at, and since when; -1 for none


class Record:
    """The file to which this process writes facts. A forked copy opens a file of its own when it first
    writes.
    """

    def __init__(self, folder: str, rank: int) -> None:
        self.folder = folder
        self.rank = rank
        self._process = 0
        self._file = -1
        self._now: mmap.mmap | None = None

    def write(self, event: str, **facts: Any) -> None:
        """Write one fact; what isn't plain becomes text."""
        self._open()
        line = json.dumps({"event": event, "rank": self.rank, "pid": os.getpid(), **facts}, default=str)
        os.write(self._file, line.encode("utf-8", "backslashreplace") + b"\n")

    def at(self, index: Any) -> None:
        """Say which sample is being made; None when it is done."""
        self._open()
        assert self._now is not None
        number = -1 if index is None else index if isinstance(index, int) else 0
        NOW.pack_into(self._now, 0, number, time.monotonic())

    def _open(self) -> None:
        process = os.getpid()
        if process == self._process:
            return
        base = Path(self.folder) / f"{self.rank}-{process}"
        self._file = os.open(f"{base}.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with Path(f"{base}.now").open("w+b") as file:
            file.write(NOW.pack(-1, 0.0))
            file.flush()
            self._now = mmap.mmap(file.fileno(), NOW.size)
        self._process = process


def anonymous() -> int:
    """Bytes of this process that are no file's and not shared by name: heaps and stacks. Takes some 20 µs."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def queued() -> float:
    """Seconds that this thread had something to do and no CPU, since it began; 0 where the kernel doesn't tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Memory:
    """Bytes of this process: its share of pages, and those that it alone has written.

    The kernel walks all pages to tell, so it is asked so seldom that it costs two percent at most.
    """

    NAMES: ClassVar = {"Pss": "pss", "Private_Dirty": "private"}
    RARELY = 50

    def __init__(self) -> None:
        self._again = 0.0

    def now(self) -> dict[str, int] | None:
        """Return the memory now; None if the last call was too recent, or the kernel refuses."""
        begin = time.monotonic()
        if begin < self._again:
            return None
        try:
            lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            return None
        end = time.monotonic()
        self._again = end + self.RARELY * (end - begin)
        counts = {name[:-1]: int(number) * 1024 for name, number, _ in map(str.split, lines)}
        return {ours: counts.get(name, 0) for name, ours in self.NAMES.items()}
