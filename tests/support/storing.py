"""Processes that store rows in a set. A server that does nothing else forks them, so each starts at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from standpipe import _native
from standpipe.system.faults import install_faults
from stores import Set, bytes_of


@dataclass(frozen=True)
class Work:
    """The work of each of some processes in a set: they put rows of records, one after the other."""

    records: Sequence[int]
    processes: int = 1
    length: int = 1000
    version: int = 0  # of the rows, and the time of their file
    room: int = 1 << 20  # of each process' extent
    number: int = 1000  # of the first one's extent; the next one's is the next number
    spilled: bool = False
    faults: str = ""
    replaces: bool = False  # rows that are there

    def do(self, made: Set, process: int) -> None:
        """Do the work in process number ``process``."""
        install_faults(self.faults)
        with made.opened() as store:
            made.grant(store, self.number + process, self.room, spilled=self.spilled)
            for record in self.records:
                row = bytes_of(record, self.length, self.version)
                stale = store.find(record) if self.replaces else None
                store.put(record, row, _native.Stamp(mtime_ns=self.version), stale=stale)


@dataclass(frozen=True)
class Others:
    """The server, which forks the processes."""

    server: subprocess.Popen[str]

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Others]:
        program = f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\nimport storing\nstoring.serve()"
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            yield cls(server)
            assert server.stdin is not None
            server.stdin.close()
            assert server.wait() == 0

    def do(self, made: Set, work: Work) -> list[int]:
        """Return each process's exit status, or the negative number of the signal that ended it.

        A process that was stopped gives 1000 plus its process number; ``end`` ends it.
        """
        return self._ask(
            {
                "path": str(made.path),
                "records": made.records,
                "salt": made.salt,
                "work": asdict(work) | {"records": [*work.records]},
            }
        )

    def end(self, process: int) -> None:
        assert self._ask({"end": process - 1000}) == [-signal.SIGKILL]

    def _ask(self, question: dict[str, object]) -> list[int]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(question) + "\n")
        self.server.stdin.flush()
        answer = json.loads(self.server.stdout.readline())
        assert isinstance(answer, list)
        return answer


def serve() -> None:
    """Run the server: fork processes, and print how they ended."""
    for line in sys.stdin:
        question = json.loads(line)
        if "end" in question:
            os.kill(question["end"], signal.SIGKILL)
            answer = [_outcome(question["end"])]
        else:
            made = Set(Path(question["path"]), question["records"], question["salt"])
            work = Work(**question["work"])
            answer = [_outcome(child) for child in [_forked(made, work, n) for n in range(work.processes)]]
        print(json.dumps(answer), flush=True)


def _forked(made: Set, work: Work, process: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            work.do(made, process)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def _outcome(child: int) -> int:
    _, status = os.waitpid(child, os.WUNTRACED)
    return 1000 + child if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
