"""Programs as in programs.py, forked from an interpreter that has imported standpipe: half a second less for each.

They have its seed of hashes and its state of NumPy's global generator, the same in all of them, and an environment that
the import didn't see. What depends on any of this, or on how an interpreter starts or ends, runs by programs.py.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path
from typing import IO

from programs import BEGIN, LIMIT_S

# At each request it forks a process that forks the program and reports how that ends. What comes out of the loop is the
# program, whose end is that of an interpreter.
SERVER = """
import json, os, socket, sys
import numpy, PIL.Image
import standpipe, standpipe._native, standpipe.system.faults
standpipe.Pipeline  # with most of its modules
connection = socket.socket(fileno=int(sys.argv.pop()))
while True:
    message, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
    try:
        while os.waitpid(-1, os.WNOHANG if message else 0)[0]:
            pass
    except ChildProcessError:
        if not message:
            os._exit(0)
    if not os.fork():
        process = os.fork()
        if not process:
            break
        connection.close()
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        os.write(descriptors[3], b"%d\\n" % process)
        os.write(descriptors[3], b"%d\\n" % os.waitpid(process, 0)[1])
        os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)
connection.close()
os.dup2(descriptors[1], 1)
os.dup2(descriptors[2], 2)
with open(descriptors[0]) as file:
    asked = json.load(file)
for descriptor in descriptors[1:]:
    os.close(descriptor)
os.environ.clear()
os.environ.update(asked["environment"])
os.chdir(asked["folder"])
if asked["environment"].get("STANDPIPE_FAULTS"):
    standpipe.system.faults.install_faults(asked["environment"]["STANDPIPE_FAULTS"])
text = asked["text"]
del json, os, socket, sys, numpy, PIL, standpipe, connection, message, descriptors, descriptor, process, file, asked
exec(compile(text, "<string>", "exec"))
"""


class _Server:
    """An interpreter that forks programs."""

    def __init__(self, faults: str) -> None:
        self._connection, theirs = socket.socketpair()
        # Whether there are faults is seen when standpipe is imported; which ones there are, by each program.
        environment = {name: value for name, value in os.environ.items() if name != "STANDPIPE_FAULTS"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", SERVER, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment | ({"STANDPIPE_FAULTS": faults} if faults else {}),
        )
        theirs.close()
        atexit.register(self._end)

    def ask(self, descriptors: list[int]) -> None:
        socket.send_fds(self._connection, [b"f"], descriptors)

    def _end(self) -> None:
        self._connection.close()
        self._process.wait()


# From the start, so that no test finds one more process than before.
_SERVERS = {False: _Server(""), True: _Server("seed=1")}


class Program:
    """A program that runs, with as much of Popen as tests need.

    returncode  as Popen's; None until communicate() has returned
    """

    returncode: int | None = None

    def __init__(self, text: str, environment: dict[str, str]) -> None:
        pipes = [os.pipe() for _ in range(3)]
        with tempfile.TemporaryFile("w+") as file:
            json.dump({"text": text, "environment": environment, "folder": str(Path.cwd())}, file)
            file.seek(0)
            server = _SERVERS[bool(environment.get("STANDPIPE_FAULTS"))]
            server.ask([file.fileno(), *(theirs for _, theirs in pipes)])
        for _, theirs in pipes:
            os.close(theirs)
        self._printed = ["", ""]
        self._readers = [
            threading.Thread(target=self._read, args=(os.fdopen(ours), number), daemon=True)
            for number, (ours, _) in enumerate(pipes[:2])
        ]
        for reader in self._readers:
            reader.start()
        self._status = os.fdopen(pipes[2][0])
        self.pid = int(self._status.readline())

    def _read(self, file: IO[str], number: int) -> None:
        with file:
            self._printed[number] = file.read()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float = LIMIT_S) -> tuple[str, str]:
        """Return the output and errors, as Popen does, once all processes that hold them open have ended."""
        for reader in self._readers:
            reader.join(timeout)
        if is_late := any(reader.is_alive() for reader in self._readers):
            self.send_signal(signal.SIGKILL)
        with self._status as status:
            self.returncode = os.waitstatus_to_exitcode(int(status.readline()))
        if is_late:
            raise subprocess.TimeoutExpired(["a forked program"], timeout, *self._printed)
        return self._printed[0], self._printed[1]


def start(text: str, *, environment: dict[str, str] | None = None) -> Program:
    """Start a program of this text alone."""
    too_late = [name for name in environment or {} if name.startswith(("LD_", "PYTHON"))]
    assert not too_late, f"an interpreter that is there doesn't see {too_late}: see programs.run()"
    return Program(text, os.environ | (environment or {}))


def run(
    program: str, *, environment: dict[str, str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``programs.run()`` does."""
    text = first + BEGIN.format(path=[path for path in sys.path if path]) + textwrap.dedent(program)
    running = start(text, environment=environment)
    printed = running.communicate()
    assert running.returncode is not None
    return subprocess.CompletedProcess(["a forked program"], running.returncode, *printed)


def output(program: str, *, environment: dict[str, str] | None = None, first: str = "") -> str:
    """Return a program's output. Assert that it exits with 0 and prints no errors."""
    done = run(program, environment=environment, first=first)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
