"""Small programs that tests run as processes of their own, and what those start."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import pytest

from standpipe.system.machine import process_memory_bytes

# Folders of caches and of what loaders tell ``standpipe top``: other tests and programs make them at the same time.
OF_OTHERS = (f"standpipe-{os.geteuid()}", "standpipe-group-")
PLACES = ("standpipe/engine/", "standpipe/loader/")  # of ``at_call``
LIMIT_S = 120  # for a program that should take seconds, on a machine that has much to do: more is a hang

BEGIN = """
import gc, logging, os, signal, sys, threading, time
sys.path[:0] = {path!r}
import numpy as np
import standpipe as sp
from photos import Watched, numbers

def make(source=None, rows=2, **settings):
    pipeline = sp.Pipeline(source or numbers(64)).shuffle(seed=1).batch(rows)
    return pipeline.loader(**{{"memory": "64MiB", "num_workers": 2, **settings}})

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def is_about_the_program(record):  # on a busy machine imports of worker processes are slow
    return "the start of worker processes has taken" not in record.getMessage()
logging.getLogger("standpipe").addFilter(is_about_the_program)
"""


def run(
    program: str, *, environment: dict[str, str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program that begins with the names of ``BEGIN``. Warnings are errors. ``first``: text before them."""
    text = first + BEGIN.format(path=[path for path in sys.path if path]) + textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | (environment or {}),
    )


def output(program: str, *, environment: dict[str, str] | None = None, first: str = "") -> str:
    """Return a program's output. Assert that it exits with 0 and prints no errors."""
    done = run(program, environment=environment, first=first)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@contextmanager
def started(
    program: str, *arguments: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """Start a program that can be interrupted as at a terminal. Yield it, its output and its errors; then kill it.

    folder  for its temporary files
    """
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(folder)},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            yield process, process.stdout, process.stderr
        finally:
            process.kill()  # nothing that fails shall wait for it


def children(process: int | str = "self") -> list[int]:
    """Return the processes that a process has started, and those that they have started.

    They are found by each process's parent: a thread's list of children loses those that pass to another thread.
    """
    of_parent: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            of_parent.setdefault(parent, []).append(int(path.parent.name))

    def of(parent: int) -> list[int]:
        return [each for child in sorted(of_parent.get(parent, [])) for each in (child, *of(child))]

    return of(os.getpid() if process == "self" else int(process))


@dataclass(frozen=True)
class Census:
    """The resources of this process: processes it started, threads, kinds of open files, and shared files."""

    processes: list[int]
    threads: int
    files: list[str]
    shared: list[Path]


def census() -> Census:
    """Return the present resources, after collecting garbage, such as loaders in the frames of a traceback."""
    gc.collect()
    files = [Path(link).name.partition(":[")[0] for link in open_files()]  # without the number of a pipe
    folders = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    shared = [path for folder in folders for path in folder.glob("*standpipe*")]
    shared = [path for path in shared if not path.name.startswith(OF_OTHERS)]
    return Census(children(), len(list(Path("/proc/self/task").iterdir())), sorted(files), sorted(shared))


def open_files(process: int | str = "self") -> list[str]:
    """Return the links of /proc to the files that a process has open; none if it has ended."""
    links = []
    with suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):  # just closed, like the folder's own
                links.append(os.readlink(entry))  # noqa: PTH115 (Path makes other text of some)
    return links


def open_below(folder: Path) -> list[str]:
    """Return the files in a folder that this process has open, sorted, including removed ones."""
    return sorted(link for link in open_files() if link.startswith(f"{folder}/"))


def started_since(before: Census) -> list[int]:
    """Return the processes that this one and its children have started since, without the servers that tests share."""
    return [process for process in children() if process not in before.processes]


def check_nothing_is_left(before: Census) -> None:
    """Assert that there is soon no more than ``before``. A thread may report its end just before it is gone."""
    ends = time.monotonic() + LIMIT_S
    while (extra := what_is_more(census(), before)) and time.monotonic() < ends:
        pass
    assert not extra, extra


def what_is_more(now: Census, before: Census) -> list[object]:
    """Return the resources that are new. Those of other tests may have ended since."""
    threads = max(now.threads - before.threads, 0) * ["thread"]
    files = Counter(now.files) - Counter(before.files)
    return [
        *threads,
        *files.elements(),
        *({*now.processes, *now.shared} - {*before.processes, *before.shared}),
    ]


@contextmanager
def at_call(number: int, act: Callable[[], object]) -> Iterator[list[str]]:
    """Call ``act`` when this thread enters a function of the engine for the ``number``-th time, from 0.

    Python looks for signals there. Yields the names of the functions that were entered, in order.
    """
    entered: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and any(place in frame.f_code.co_filename for place in PLACES):
            entered.append(frame.f_code.co_qualname)
            if len(entered) == number + 1:
                sys.setprofile(None)
                act()

    sys.setprofile(look)
    try:
        yield entered
    finally:
        sys.setprofile(None)


def interrupt() -> None:
    """Raise KeyboardInterrupt at once, or when this thread unblocks SIGINT."""
    signal.raise_signal(signal.SIGINT)


def is_alive(process: int) -> bool:
    """Return whether a process runs. A zombie doesn't."""
    try:
        return _state(process) not in "ZX"
    except OSError:
        return False


def wait_until_asleep(process: int) -> None:
    """Wait until its main thread sleeps: just before that, Python code of a sample may miss a signal."""
    _wait_for_state(process, "S")


def wait_until_stopped(process: int) -> None:
    """Wait until a signal has stopped it: a signal that continues it would be lost before."""
    _wait_for_state(process, "T")


def _wait_for_state(process: int, state: str) -> None:
    ends = time.monotonic() + LIMIT_S
    while _state(process) != state:
        assert time.monotonic() < ends, f"its state is {_state(process)}"
        os.sched_yield()


def _state(process: int) -> str:
    """Return the letter of /proc for the state of its main thread."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for_end(processes: list[int], seconds: float) -> list[int]:
    """Wait at most ``seconds`` for processes to end, and return those that are alive then."""
    ends = time.monotonic() + seconds
    left = processes
    for process in processes:
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        select.select([handle], [], [], max(ends - time.monotonic(), 0))
        os.close(handle)
    return [process for process in left if is_alive(process)]


def peak_memory(program: str, *, first: str = "") -> tuple[str, int]:
    """Return a program's output, and the peak memory of it and its children together, in bytes.

    Samples every few milliseconds, so a shorter peak is missed. ``first``: text before the program.
    """
    text = first + BEGIN.format(path=[path for path in sys.path if path]) + textwrap.dedent(program)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(_memory, [process.pid, *children(process.pid)])))
        assert process.stdout is not None
        assert process.returncode == 0
        return process.stdout.read(), peak


def peaks() -> dict[str, int]:
    """Return the peaks of this process's memory and address space so far, in MiB, by their names in /proc."""
    facts = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(facts[name].split()[0]) >> 10 for name in ("VmHWM", "VmPeak")}


def _memory(process: int) -> int:
    """Proportional set size in bytes; 0 for a process that has ended."""
    try:
        return process_memory_bytes(process)
    except OSError:
        return 0


@dataclass(frozen=True)
class Container:
    """A cgroup.

    join  what a program has to begin with to be in it
    """

    folder: Path
    join: str

    @property
    def kills(self) -> int:
        """Processes in it that were killed for want of memory."""
        events = self.folder / "memory.events"
        text = (events if events.exists() else self.folder / "memory.oom_control").read_text()
        return int(text.split()[text.split().index("oom_kill") + 1])


@contextmanager
def small_container(mebibytes: int) -> Iterator[Container]:
    """A cgroup with so much memory. Skips where none can be made."""
    version_1, version_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    base = version_1 if (version_1 / "cgroup.procs").exists() else version_2
    folder = base / f"standpipe-small-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        limit = folder / ("memory.max" if base == version_2 else "memory.limit_in_bytes")
        if not limit.exists():
            pytest.skip("this machine's cgroups have no limit of memory")
        limit.write_text(str(mebibytes << 20))
        procs = str(folder / "cgroup.procs")
        yield Container(folder, f"import os, pathlib; pathlib.Path({procs!r}).write_text(str(os.getpid()))\n")
    finally:
        folder.rmdir()
