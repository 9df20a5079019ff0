"""Where a thread or a process is: Python's stack, or what the kernel says of it."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import threading
import traceback
from io import FileIO
from pathlib import Path

STACK_SIGNAL = signal.SIGRTMIN + 9  # that a worker process answers with its stacks
ANSWER_S = 1.0  # for a process to say where it is
PAUSE_S = 0.05  # after which nothing more comes: it writes line by line
MOST_BYTES = 1 << 16  # of stacks; a pipe holds no more

_STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "Z": "dead", "X": "dead"}


def stack_of_thread(thread: int) -> str:
    """The Python stack of a thread, by its identifier; empty when it has none."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()


def state_of(task: str) -> str:
    """What the kernel says of a process or thread that doesn't get on; empty when nothing keeps it from running.

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
    """Whether a process has a handler for the signal, which would end it else."""
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
        """Those of a process's threads; or what the kernel says of one that doesn't get on; empty without an answer."""
        with self._lock:
            if state := state_of(str(process)):
                return f"  the process is {state}"
            if not is_listening(process):
                return ""
            self._received(0)  # what came too late for whoever asked before
            try:
                os.kill(process, STACK_SIGNAL)
            except OSError:
                return ""
            return self._received(ANSWER_S)

    def close(self) -> None:
        """Close both ends. Closed again, it does nothing."""
        for end in self._ends:
            end.close()

    def _received(self, patience_s: float) -> str:
        """What comes within that time, and goes on coming."""
        data = b""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while len(data) < MOST_BYTES and poll.poll((PAUSE_S if data else patience_s) * 1000):
            data += os.read(self._read_end, MOST_BYTES)
        return data.decode(errors="replace").rstrip()
