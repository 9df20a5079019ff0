"""Programs as in programs.py, forked from an interpreter that has imported standpipe: half a second less for each.

They have its seed of hashes and its state of NumPy's global generator, the same in all of them, and an environment that
the import didn't see; they run one after the other. What depends on any of this, or on how an interpreter starts or
ends, runs by programs.py.
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

# At each request forks itself; what comes out of the loop is the program, whose end is that of an interpreter.
SERVER = """
import json, os, socket, sys
import numpy, PIL.Image
import standpipe, standpipe._native
connection = socket.socket(fileno=int(sys.argv.pop()))
while True:
    message, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    if not message:
        os._exit(0)
    process = os.fork()
    if not process:
        break
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(b"%d\\n" % process)
    connection.sendall(b"%d\\n" % os.waitpid(process, 0)[1])
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
    standpipe._native.install_faults(asked["environment"]["STANDPIPE_FAULTS"])
text = asked["text"]
del json, os, socket, sys, numpy, PIL, standpipe, connection, message, descriptors, descriptor, process, file, asked
exec(compile(text, "<string>", "exec"))
"""


class _Server:
    """An interpreter that forks programs, one after the other."""

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
        self._answers = self._connection.makefile("rb")
        self._lock = threading.Lock()
        atexit.register(self._end)

    def run(self, text: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        with self._lock:
            return self._run(text, environment)

    def _run(self, text: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as file:
            json.dump({"text": text, "environment": environment, "folder": str(Path.cwd())}, file)
            file.seek(0)
            pipes = [os.pipe(), os.pipe()]
            socket.send_fds(self._connection, [b"f"], [file.fileno(), *(pipe[1] for pipe in pipes)])
        for pipe in pipes:
            os.close(pipe[1])
        process = int(self._answers.readline())
        # What a program has left and still has its output open keeps us waiting, as it does subprocess.run().
        printed = ["", ""]
        readers = [
            threading.Thread(target=_read, args=(os.fdopen(pipe[0]), printed, number))
            for number, pipe in enumerate(pipes)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(LIMIT_S)
        if is_late := any(reader.is_alive() for reader in readers):
            os.kill(process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(int(self._answers.readline()))
        if is_late:
            raise subprocess.TimeoutExpired(["a forked program"], LIMIT_S, *printed)
        return subprocess.CompletedProcess(["a forked program"], status, *printed)

    def _end(self) -> None:
        self._answers.close()
        self._connection.close()
        self._process.wait()


def _read(file: IO[str], printed: list[str], number: int) -> None:
    with file:
        printed[number] = file.read()


# From the start, so that no test finds one more process than before.
_SERVERS = {False: _Server(""), True: _Server("seed=1")}


def run(
    program: str, *, environment: dict[str, str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``programs.run()`` does."""
    too_late = [name for name in environment or {} if name.startswith(("LD_", "PYTHON"))]
    assert not too_late, f"an interpreter that is there doesn't see {too_late}: see programs.run()"
    text = first + BEGIN.format(path=[path for path in sys.path if path]) + textwrap.dedent(program)
    whole = os.environ | (environment or {})
    return _SERVERS[bool(whole.get("STANDPIPE_FAULTS"))].run(text, dict(whole))


def output(program: str, *, environment: dict[str, str] | None = None, first: str = "") -> str:
    """What a program prints that should end well and in silence otherwise."""
    done = run(program, environment=environment, first=first)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
