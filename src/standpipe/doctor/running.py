"""Run a script under the probe in its own process group, and end the whole group afterwards."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from standpipe.doctor.facts import Host, RunFacts
from standpipe.doctor.gather import gather_facts
from standpipe.system import machine

PROBE = Path(__file__).parent / "child"
BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from standpipe_probe.run import main; main(sys.argv.pop(1))"
STARTUP_S = 900.0  # until a DataLoader is iterated over
GRACE = 0.25  # of the time, for what a script does between epochs
GRACE_S = 5.0
TERMINATE_S = 5.0
SHM_FOLDER = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLimits:
    """The limits of a script's run.

    steps    batches of an epoch
    seconds  seconds from the first DataLoader's first epoch on, roughly
    """

    steps: int = 24
    seconds: float = 120.0


def host_facts(ranks: int) -> Host:
    """Return the machine's present resources."""
    shm = os.statvfs(SHM_FOLDER) if SHM_FOLDER.exists() else None
    used, memory = machine.memory_in_use()
    return Host(
        cores=machine.cpu_count(),
        memory_free=max(memory - used, 0),
        memory=memory,
        shm_free=shm.f_bavail * shm.f_frsize if shm else 0,
        shm=shm.f_blocks * shm.f_frsize if shm else 0,
        ranks=ranks,
    )


def run_script(script: str, arguments: Sequence[str], limits: ScriptLimits, ranks: int) -> RunFacts:
    """Run a script, ``ranks`` times at once as torchrun would, until its probe has seen enough or the time is over.

    What it prints goes to stderr.
    """
    begun, begins = os.pipe()
    with TemporaryDirectory(prefix="standpipe-doctor-") as folder:
        processes: list[subprocess.Popen[bytes]] = []
        given = {"folder": folder, "steps": limits.steps, "seconds": limits.seconds, "begins": begins}
        given["doctor"] = os.getpid()
        try:
            for rank, environment in enumerate(_environments(ranks)):
                settings = json.dumps({**given, "rank": rank})
                processes.append(_started([settings, script, *arguments], environment, begins))
            # Imports, and a dataset that lists its files, may take minutes.
            with _handle(processes[0].pid) as first:
                select.select([begun, first], [], [], STARTUP_S)
            in_time = _wait(processes, time.monotonic() + (1 + GRACE) * limits.seconds + GRACE_S)
            run = gather_facts(Path(folder))
        finally:
            for process in processes:
                _end(process)
            os.close(begun)
            os.close(begins)
    if run.how != "killed":
        return run
    code = min(process.returncode for process in processes)
    return replace(run, code=code) if in_time else replace(run, how="time")


def _environments(ranks: int) -> Iterator[dict[str, str]]:
    """Yield the environment variables that torchrun sets for each rank; none for a single rank."""
    if ranks == 1:
        yield {}
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for rank in range(ranks):
        yield {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
        }


def _started(arguments: Sequence[str], environment: dict[str, str], begins: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", BOOT, str(PROBE), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        env=os.environ | environment,
        start_new_session=True,
        pass_fds=(begins,),
    )


def _wait(processes: Sequence[subprocess.Popen[bytes]], ends: float) -> bool:
    """Wait for all processes until ``ends``. After the first has ended, the others get ``GRACE_S`` more.

    Return False if the first process was still running at ``ends``.
    """
    for process in processes:
        try:
            process.wait(max(ends - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return process is not processes[0]  # a rank whose peer has left may wait for it
        ends = min(ends, time.monotonic() + GRACE_S)
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a script. Its other processes get SIGTERM, and SIGKILL after ``TERMINATE_S``."""
    members = _group(process.pid)
    process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    _wait_for(members, time.monotonic() + TERMINATE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _group(group: int) -> list[int]:
    """Return the numbers of the processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):  # it has ended by now
            if os.getpgid(int(path.name)) == group:
                found.append(int(path.name))
    return found


def _wait_for(processes: Sequence[int], ends: float) -> None:
    for process in processes:
        with suppress(ProcessLookupError), _handle(process) as handle:
            select.select([handle], [], [], max(ends - time.monotonic(), 0.0))


@contextmanager
def _handle(process: int) -> Iterator[int]:
    handle = os.pidfd_open(process)
    try:
        yield handle
    finally:
        os.close(handle)
