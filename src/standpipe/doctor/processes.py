"""Read the state of a process and its descendants from /proc, twice, some seconds apart."""

from __future__ import annotations

import json
import os
import platform
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PROC = Path("/proc")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STACK_LIMIT_S = 20.0
CALLS = {  # numbers of the system calls in which processes wait: on x86-64, and on 64-bit ARM
    "read": ((0, 17, 19), (63, 65, 67)),
    "write": ((1, 20), (64, 66)),
    "poll": ((7, 232, 271, 281), (22, 73)),
    "select": ((23, 270), (72,)),
    "sleep": ((34, 35, 230), (101, 115)),
    "send": ((44, 46), (206, 211)),
    "receive": ((45, 47), (207, 212)),
    "connect": ((42,), (203,)),
    "accept": ((43, 288), (202, 242)),
    "wait": ((61, 247), (95, 260)),
    "flock": ((72, 73), (25, 32)),
    "futex": ((202,), (98,)),
    "open": ((2, 257), (56,)),
}
ARCHITECTURES = ("x86_64", "aarch64")
WITH_FILE = ("read", "write", "send", "receive", "flock", "connect", "accept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A thread.

    state  as /proc has it: R runs, S sleeps, D waits for storage, T is stopped, Z is dead
    call   its current system call, ``""`` if unknown; ``at``: the file or pipe of that call
    where  the kernel function in which it sleeps
    cpu_s  CPU seconds between the two readings
    stack  Python's functions, the innermost first, as far as py-spy tells them
    """

    number: int
    name: str
    state: str
    call: str = ""
    at: str = ""
    where: str = ""
    cpu_s: float = 0.0
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process.

    threads   the main thread first
    faults    pages that were read from storage between the two readings
    files     number of open files, at most ``most_files``
    status    the signal that ended a zombie process; None: no signal, or it runs
    """

    number: int
    parent: int
    command: str
    threads: tuple[Thread, ...]
    memory: int = 0
    swapped: int = 0
    faults: int = 0
    files: int = 0
    most_files: int = 1 << 20
    status: int | None = None

    @property
    def main(self) -> Thread:
        """The thread that runs the script, or makes a worker's samples."""
        return self.threads[0]

    @property
    def dead(self) -> bool:
        """True if it has ended."""
        return self.main.state in "ZX"

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all threads between the two readings."""
        return sum(thread.cpu_s for thread in self.threads)


def look_twice(number: int, seconds: float) -> list[Process]:
    """Return the process and all that it has started, seen twice, ``seconds`` apart.

    Raises ProcessLookupError if there is no such process.
    """
    handle = os.pidfd_open(number)
    try:
        before = {each.number: each for each in _family(number)}
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    return [_since(before.get(each.number), each) for each in _family(number)]


def py_spy() -> str | None:
    """Return the path of py-spy; None if it isn't installed."""
    return shutil.which("py-spy") or shutil.which("py-spy", path=Path(sys.executable).parent)


def stacks(program: str, number: int) -> dict[int, tuple[str, ...]]:
    """Return Python's call stack by thread ID, from py-spy; empty if it isn't allowed to look."""
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(number)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=STACK_LIMIT_S, check=True)
        return dict(_threads(json.loads(done.stdout)))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}


def _threads(dumped: list[dict[str, Any]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for thread in dumped:
        frames = thread["frames"]
        named = (
            f"{each['name']} ({each['short_filename'] or each['filename']}:{each['line']})" for each in frames
        )
        yield thread["os_thread_id"], tuple(named)


def peers(number: int) -> dict[int, int]:
    """Return process IDs by rank of this machine's processes in the same distributed run."""
    own = environment_of(number)
    meeting = {name: own[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in own}
    found: dict[int, int] = {}
    if len(meeting) < 2:
        return found
    for path in PROC.glob("[0-9]*"):
        other = environment_of(int(path.name))
        if meeting.items() <= other.items() and other.get("RANK", "").isdigit():
            rank = int(other["RANK"])
            found[rank] = min(found.get(rank, int(path.name)), int(path.name))
    return found


def environment_of(number: int) -> dict[str, str]:
    """Return a process's initial environment variables; empty if they can't be read."""
    try:
        entries = (PROC / str(number) / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name}


def _family(number: int) -> list[Process]:
    """Return a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended by now
            parents.setdefault(int(_stat(path)[1]), []).append(int(path.parent.name))
    found = []
    waiting = [number]
    while waiting:
        each = waiting.pop(0)
        with suppress(OSError):
            found.append(_process(each))
        waiting += sorted(parents.get(each, []))
    return found


def _process(number: int) -> Process:
    folder = PROC / str(number)
    stat = _stat(folder / "stat")
    tasks = sorted((int(path.name) for path in (folder / "task").iterdir()), key=lambda task: task != number)
    threads = []
    for task in tasks:
        with suppress(OSError):  # it has ended by now
            threads.append(_thread(folder, task))
    status = dict(
        line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line
    )
    code = int(stat[49]) if len(stat) > 49 and stat[0] == "Z" else 0
    with suppress(OSError):
        return Process(
            number=number,
            parent=int(stat[1]),
            command=os.fsdecode((folder / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")),
            threads=tuple(threads),
            memory=_kibibytes(status, "VmRSS"),
            swapped=_kibibytes(status, "VmSwap"),
            faults=int(stat[9]),
            status=(code & 0x7F) or None,
            **_files(folder),
        )
    raise ProcessLookupError


def _files(folder: Path) -> dict[str, int]:
    try:
        files = len(os.listdir(folder / "fd"))  # noqa: PTH208 (names are counted)
        limits = (folder / "limits").read_text().splitlines()
        most = next(line.split()[3] for line in limits if line.startswith("Max open files"))
    except OSError:  # another user's
        return {}
    return {"files": files, "most_files": int(most) if most.isdigit() else 1 << 20}


def _thread(folder: Path, task: int) -> Thread:
    own = folder / "task" / str(task)
    stat = _stat(own / "stat")
    call, at = _call(folder, _text(own / "syscall"))
    return Thread(
        number=task,
        name=_text(own / "comm").strip(),
        state=stat[0],
        call=call,
        at=at,
        where=_text(own / "wchan").strip("0 \n"),
        cpu_s=TICK_S * (int(stat[11]) + int(stat[12])),
    )


def _call(folder: Path, line: str) -> tuple[str, str]:
    """Return (name of a thread's system call, its file), each empty if unknown.

    line  the content of /proc/…/syscall
    """
    number, *arguments = line.split() or [""]
    if not number.isdigit():
        return "", ""
    which = ARCHITECTURES.index(platform.machine()) if platform.machine() in ARCHITECTURES else None
    names = (name for name, numbers in CALLS.items() if which is not None and int(number) in numbers[which])
    name = next(names, "")
    if name in WITH_FILE and arguments:
        with suppress(OSError):
            return name, os.readlink(folder / "fd" / str(int(arguments[0], 16)))  # noqa: PTH115 (as text)
    return name, ""


def _since(before: Process | None, now: Process) -> Process:
    """Return the second reading of a process, with CPU seconds and faults counted since the first."""
    if before is None:
        return replace(now, faults=0, threads=tuple(replace(thread, cpu_s=0.0) for thread in now.threads))
    used = {thread.number: thread.cpu_s for thread in before.threads}
    threads = tuple(replace(each, cpu_s=each.cpu_s - used.get(each.number, 0.0)) for each in now.threads)
    return replace(now, faults=now.faults - before.faults, threads=threads)


def _stat(path: Path) -> list[str]:
    """Return the fields of a ``stat`` file after the process name; the first one is the state."""
    return path.read_text().rpartition(")")[2].split()


def _kibibytes(status: dict[str, str], name: str) -> int:
    return 1024 * int(status[name].split()[0]) if name in status else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
