"""Find out where a thread or process is: by its Python stack, or by its state in the kernel."""

from __future__ import annotations

import faulthandler
import os
import re
import select
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType

STACK_SIGNAL = signal.SIGRTMIN + 9  # a worker process answers this signal with its stacks
ANSWER_S = 1.0  # seconds to wait for a process's stacks
PAUSE_S = 0.05  # seconds without a further line after which the stacks are complete
MOST_BYTES = 1 << 16  # most bytes of stacks; a pipe holds no more
OURS = str(Path(__file__).parents[2]) + os.sep
IMPORTS = "<frozen importlib"  # the files of Python's own import system
THREADS = re.compile(r"^(?=(?:Current t|T)hread )", re.MULTILINE)  # where each of a process's stacks begins
FRAME = re.compile(r'^  File "(.+)", line \d+,? in (.+)$', re.MULTILINE)
NEWEST_FIRST = "most recent call first"

_STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "Z": "dead", "X": "dead"}


def stack_of_thread(thread: int) -> str:
    """Return the Python stack of a thread as text, without standpipe's own frames if the user's code runs in it.

    thread  the thread's identifier; return an empty string if no such thread runs Python code
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    frames = traceback.extract_stack(frame)
    users = _users([each.filename for each in frames]) or range(len(frames))
    return "".join(traceback.format_list([frames[number] for number in users])).rstrip()


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without its first frames that are standpipe's; unchanged if all frames are standpipe's."""
    user = trace
    while user is not None and user.tb_frame.f_code.co_filename.startswith(OURS):
        user = user.tb_next
    return user or trace


def import_in(stack: str) -> str:
    """Return text about the imports in a stack: ``"importing timm, which imports torch"``; empty without an import.

    stack  a stack as text
    """
    frames = FRAME.findall(stack)
    if NEWEST_FIRST in stack:
        frames.reverse()
    if any(file.startswith(OURS) for file, _ in frames):  # nothing in it is the user's
        return ""
    files = [file for file, function in frames if function == "<module>" and not file.startswith("<")]
    names = list(dict.fromkeys(map(_package, files)))[:2]
    return "importing " + ", which imports ".join(names) if names else ""


def newest_frame(stack: str) -> str:
    """Return the newest frame of a stack as one line: ``'File "data.py", line 12 in load'``.

    stack  a stack as text; text without a frame, such as a process's state, is returned as it is
    """
    lines = [match[0].strip() for match in FRAME.finditer(stack)]
    return (lines[0] if NEWEST_FIRST in stack else lines[-1]) if lines else stack.strip()


def _package(name: str) -> str:
    """Return the name of the top-level package or module to which a file belongs."""
    file = Path(name)
    folders = [folder for each in sys.path if file.is_relative_to(folder := Path(each).absolute())]
    folder = max(folders, key=lambda each: len(each.parts), default=file.parent)
    return file.relative_to(folder).parts[0].removesuffix(".py")


def _users(files: Sequence[str]) -> list[int]:
    """Return the numbers of the user's frames in a stack: frames of other files behind standpipe's first frame.

    files  the file of each frame, the outermost first
    """
    first = next((place for place, file in enumerate(files) if file.startswith(OURS)), 0)
    return [place for place in range(first, len(files)) if not files[place].startswith((OURS, IMPORTS))]


def _users_stacks(text: str) -> str:
    """Return the user's frames in ``text``, the stacks of a process's threads; all of ``text`` if there are none."""
    cut = []
    for stack in THREADS.split(text):
        head, *lines = stack.rstrip().split("\n")
        files = [match[1] if (match := FRAME.match(line)) else "" for line in reversed(lines)]
        users = [lines[len(lines) - 1 - place] for place in reversed(_users(files))]
        if users and any(file.startswith(OURS) for file in files):
            cut.append("\n".join([head, *users]))
    return "\n\n".join(cut) or text


def describe_kernel_state(task: str) -> str:
    """Return text about why a process or thread can't run, by its state in the kernel; empty if it can run.

    task  its folder in /proc: ``"PROCESS"``, or ``"self/task/THREAD"``
    """
    try:
        state = Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "D":
            place = Path(f"/proc/{task}/wchan").read_text()
            return (
                f"waiting inside the kernel, at {place}"
                if place not in ("", "0")
                else "waiting inside the kernel"
            )
    except OSError:
        return ""
    return _STATES.get(state, "")


def is_listening(process: int) -> bool:
    """Return True if a process handles ``STACK_SIGNAL``, which would kill it otherwise.

    process  the process number
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (STACK_SIGNAL - 1) & 1)


def show_stacks_on_signal(pipe: int) -> None:
    """Make this process write its stacks to a pipe whenever it gets ``STACK_SIGNAL``.

    pipe  descriptor of the pipe's write end
    """
    faulthandler.register(STACK_SIGNAL, pipe, all_threads=True)


class Stacks:
    """Asks worker processes for their stacks, with a signal; all processes write their stacks to one pipe.

    descriptor  the pipe's write end, which workers inherit
    """

    def __init__(self) -> None:
        self._read_end, self.descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ends = FileIO(self._read_end), FileIO(self.descriptor, "w")
        self._lock = threading.Lock()

    def of(self, process: int) -> str:
        """Return the user's part of a process's stacks as text, or the process's kernel state if it can't run.

        process  the process number; return an empty string if the process doesn't answer in a second
        """
        with self._lock:
            if state := describe_kernel_state(str(process)):
                return f"  the process is {state}"
            if not is_listening(process):
                return ""
            self._received(0)  # answers that came too late for an earlier request
            try:
                os.kill(process, STACK_SIGNAL)
            except OSError:
                return ""
            return _users_stacks(self._received(ANSWER_S))

    def close(self) -> None:
        """Close both ends of the pipe. A second call does nothing."""
        for end in self._ends:
            end.close()

    def _received(self, patience_s: float) -> str:
        """Return the text in the pipe; wait at most ``patience_s`` for its beginning, and 0.05 s for each more part."""
        data = b""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while len(data) < MOST_BYTES and poll.poll((PAUSE_S if data else patience_s) * 1000):
            data += os.read(self._read_end, MOST_BYTES)
        return data.decode(errors="replace").rstrip()
