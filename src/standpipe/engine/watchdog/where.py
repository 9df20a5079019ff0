"""Find where a thread or process is: by Python's stack, or the kernel's word for it."""

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

STACK_SIGNAL = signal.SIGRTMIN + 9  # that a worker process answers with its stacks
ANSWER_S = 1.0  # for a process to say where it is
PAUSE_S = 0.05  # after which nothing more comes: it writes line by line
MOST_BYTES = 1 << 16  # of stacks; a pipe holds no more
OURS = str(Path(__file__).parents[2]) + os.sep
IMPORTS = "<frozen importlib"  # the files of Python's own import system
THREADS = re.compile(r"^(?=(?:Current t|T)hread )", re.MULTILINE)  # where each of a process's stacks begins
FRAME = re.compile(r'^  File "(.+)", line \d+,? in (.+)$', re.MULTILINE)
NEWEST_FIRST = "most recent call first"

_STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "Z": "dead", "X": "dead"}


def stack_of_thread(thread: int) -> str:
    """The user's part of a thread's Python stack, by its identifier; empty when it has none."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    frames = traceback.extract_stack(frame)
    users = _users([each.filename for each in frames]) or range(len(frames))
    return "".join(traceback.format_list([frames[number] for number in users])).rstrip()


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame on that isn't standpipe's; all of it where there is none."""
    user = trace
    while user is not None and user.tb_frame.f_code.co_filename.startswith(OURS):
        user = user.tb_next
    return user or trace


def import_in(stack: str) -> str:
    """Return what a stack imports, such as ``"importing timm, which imports torch"``; empty for no import."""
    frames = FRAME.findall(stack)
    if NEWEST_FIRST in stack:
        frames.reverse()
    if any(file.startswith(OURS) for file, _ in frames):  # nothing in it is the user's
        return ""
    files = [file for file, function in frames if function == "<module>" and not file.startswith("<")]
    names = list(dict.fromkeys(map(_package, files)))[:2]
    return "importing " + ", which imports ".join(names) if names else ""


def _package(name: str) -> str:
    """The package or module at the top that a file belongs to."""
    file = Path(name)
    folders = [folder for each in sys.path if file.is_relative_to(folder := Path(each).absolute())]
    folder = max(folders, key=lambda each: len(each.parts), default=file.parent)
    return file.relative_to(folder).parts[0].removesuffix(".py")


def _users(files: Sequence[str]) -> list[int]:
    """Places of the user's frames in a stack, by their files, the outermost first: those that standpipe has called."""
    first = next((place for place, file in enumerate(files) if file.startswith(OURS)), 0)
    return [place for place in range(first, len(files)) if not files[place].startswith((OURS, IMPORTS))]


def _users_stacks(text: str) -> str:
    """The user's part of what a process writes of its stacks; all of it where nothing is the user's."""
    cut = []
    for stack in THREADS.split(text):
        head, *lines = stack.rstrip().split("\n")
        files = [match[1] if (match := FRAME.match(line)) else "" for line in reversed(lines)]
        users = [lines[len(lines) - 1 - place] for place in reversed(_users(files))]
        if users and any(file.startswith(OURS) for file in files):
            cut.append("\n".join([head, *users]))
    return "\n\n".join(cut) or text


def state_of(task: str) -> str:
    """Describe why a process or thread doesn't run, by the kernel; empty if nothing keeps it from running.

    task  ``"PROCESS"``, or ``"self/task/THREAD"``
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
    """Return True if a process handles the signal, which would end it otherwise."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (STACK_SIGNAL - 1) & 1)


def show_stacks_on_signal(pipe: int) -> None:
    """Let this process write its stacks into ``pipe`` whenever it is sent ``STACK_SIGNAL``, whatever it is doing."""
    faulthandler.register(STACK_SIGNAL, pipe, all_threads=True)


class Stacks:
    """Asks worker processes for their stacks; they all answer into one pipe.

    descriptor  its end for writing, which workers inherit
    """

    def __init__(self) -> None:
        self._read_end, self.descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ends = FileIO(self._read_end), FileIO(self.descriptor, "w")
        self._lock = threading.Lock()

    def of(self, process: int) -> str:
        """The user's part of a process's, or what the kernel says of one that hangs; empty without an answer."""
        with self._lock:
            if state := state_of(str(process)):
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
        """Close both ends. Closed again, it does nothing."""
        for end in self._ends:
            end.close()

    def _received(self, patience_s: float) -> str:
        """Receive text until none comes for ``patience_s``."""
        data = b""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while len(data) < MOST_BYTES and poll.poll((PAUSE_S if data else patience_s) * 1000):
            data += os.read(self._read_end, MOST_BYTES)
        return data.decode(errors="replace").rstrip()
