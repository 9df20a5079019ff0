"""``standpipe doctor --pid``: real processes, stuck in each of the known ways; tables for what can't be made here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from standpipe.cli import main
from standpipe.doctor.judge_process import judge_process
from standpipe.doctor.processes import Process, Thread
from standpipe.doctor.scene import Scene, waits_for

BEGIN = """
import ctypes, os, resource, select, signal, sys, threading, time

def ready():
    os.write(1, b"ready\\n")

def forked(work):
    number = os.fork()
    if number == 0:
        signal.alarm(300)  # nothing stays
        work()
        os._exit(0)
    return number

def waits():
    os.read(os.pipe()[0], 1)

def computes():
    ready()
    while True:
        pass
"""
WORLD = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


@contextmanager
def stuck(program: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has said that it is ready. In the end it is killed, with all that it started."""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        env=os.environ | environment,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def told(process: int, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is said of a process."""
    code = main(["doctor", "--pid", str(process), "--seconds", "0.5", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("program", "codes", "evidence"),
    [
        (
            """
            lock = threading.Lock()
            lock.acquire()
            def asks_for_the_lock():
                ready()
                lock.acquire()
            forked(asks_for_the_lock)
            waits()
            """,
            ["worker-locked"],
            "waits for a lock, in asks_for_the_lock (<string>:",
        ),
        (
            """
            forked(computes)
            forked(waits)
            waits()
            """,
            ["worker-busy"],
            "runs, in computes (<string>:",
        ),
        (
            """
            os.kill(forked(waits), signal.SIGKILL)
            ready()
            waits()
            """,
            ["worker-dead"],
            "has ended, by signal 9",
        ),
        (
            """
            child = forked(waits)
            os.kill(child, signal.SIGSTOP)
            os.waitpid(child, os.WUNTRACED)
            ready()
            waits()
            """,
            ["stopped"],
            "is stopped",
        ),
        (
            """
            def never_answered():
                ready()
                if ctypes.CDLL(None).vfork() == 0:  # the parent can't be interrupted until the child is gone
                    signal.pause()
            forked(never_answered)
            waits()
            """,
            ["storage-waits"],
            "waits for storage",
        ),
        (
            """
            resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
            while True:
                try:
                    os.dup(0)
                except OSError:
                    break
            ready()
            signal.pause()
            """,
            ["files-exhausted"],
            "20 open of 20 (ulimit -n)",
        ),
        ("computes()", [], ""),
        (
            """
            forked(waits)
            computes()
            """,
            [],
            "",
        ),
        (
            """
            forked(waits)
            ready()
            signal.pause()
            """,
            ["all-wait"],
            "sleeps",
        ),
    ],
    ids=["lock", "spins", "killed", "stopped", "storage", "files", "computes", "trains", "waits"],
)
def test_a_process(program: str, codes: list[str], evidence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with stuck(program) as process:
        code, report = told(process.pid, capsys)
        assert [finding["code"] for finding in report["findings"]] == codes
        assert code == (codes not in ([], ["all-wait"]))
        assert not codes or any(evidence in line for line in report["findings"][0]["evidence"])
        assert process.poll() is None  # and it goes on


def test_ranks_that_wait(capsys: pytest.CaptureFixture[str]) -> None:
    program = """
    def all_reduce():
        ready()
        waits()
    all_reduce()
    """
    meeting = {**WORLD, "MASTER_PORT": str(os.getpid())}  # no other test's
    with stuck(program, **meeting, RANK="0") as first:
        _, report = told(first.pid, capsys)
        (missing,) = report["findings"]
        with stuck("computes()", **meeting, RANK="1") as second:
            _, report = told(first.pid, capsys)
            (waits,) = report["findings"]
    assert missing["code"] == "peer-missing"
    assert "no process of this machine has rank 1" in missing["evidence"]
    assert waits["code"] == "peer-waits"
    assert f"the others can be looked at too: rank 1 is {second.pid}" in waits["evidence"]


def test_what_a_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    with stuck("def inner():\n    ready()\n    waits()\ninner()\n") as process:
        assert main(["doctor", "--pid", str(process.pid), "--seconds", "0.2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(f"script {process.pid}  reads (pipe:[")
    assert any(line.startswith("    inner (<string>:") for line in lines)
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(
    ("refuses", "said"),
    [
        (True, "no stacks: py-spy may read those of a Python process as root, or with CAP_SYS_PTRACE"),
        (False, "no stacks: py-spy isn't installed (pip install py-spy)"),
    ],
)
def test_without_stacks_the_rest_is_answered(
    refuses: bool,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stuck("ready()\nwaits()\n") as process:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # py-spy may be beside it
        if refuses:
            (tmp_path / "py-spy").write_text("#!/bin/sh\necho Permission denied >&2\nexit 1\n")
            (tmp_path / "py-spy").chmod(0o755)
        assert main(["doctor", "--pid", str(process.pid), "--seconds", "0.2"]) == 0
        written = capsys.readouterr().out
        assert " ".join(written.split()).count(said) == 1
        assert f"script {process.pid}  reads (pipe:[" in written
        assert "all-wait" in written
        assert told(process.pid, capsys)[1]["stacks"] is False


LOADER = """
import numpy as np, standpipe as sp
from standpipe.observe.posted import loaders_of

loader = sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4).loader(memory="64MiB", num_workers=1)
batches = iter(loader)
batch = next(batches)
while not loaders_of(os.getpid()):
    time.sleep(0.01)
ready()
"""


def test_what_a_loader_of_standpipe_says_of_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with stuck(LOADER + "signal.pause()") as process:
        _, report = told(process.pid, capsys)
        assert main(["doctor", "--pid", str(process.pid), "--seconds", "0.2"]) == 0
    (line,) = report["loaders"]
    assert line.startswith("standpipe's loader of Arrays(")
    assert "epoch 0, step " in line
    assert "\n\nstandpipe's loader of Arrays(" in capsys.readouterr().out


def test_a_loader_that_goes_on_is_not_stuck(capsys: pytest.CaptureFixture[str]) -> None:
    goes_on = """
while True:
    for batch in loader:
        time.sleep(0.01)
        loader.snapshot()
"""
    with stuck(LOADER + goes_on) as process:
        assert told(process.pid, capsys)[1]["findings"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pid", "4194305"], "there is no process 4194305"),
        (["--pid", str(1 << 70)], "there is no process"),
        (["--pid", "1", "train.py"], "not both"),
        ([], "name what to examine"),
    ],
)
def test_nothing_to_look_at(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert said in capsys.readouterr().err


LOADS = """
import torch.utils.data

class Photos(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        ready()
        signal.alarm(300)
        signal.pause() if NEVER == "waits" else computes()

next(iter(torch.utils.data.DataLoader(Photos(), num_workers=1)))
"""


@pytest.mark.parametrize("never", ["waits", "computes"])
def test_a_sample_that_never_ends_is_named_with_its_line(
    never: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with stuck(LOADS.replace("NEVER", repr(never))) as process:
        code, report = told(process.pid, capsys)
    (finding,) = report["findings"]
    assert (code, finding["code"]) == (1, "worker-busy")
    line = (BEGIN + LOADS).splitlines().index(
        '        signal.pause() if NEVER == "waits" else computes()'
    ) + 1
    assert f"__getitem__ (<string>:{line})" in finding["evidence"][0]


MIB = 1 << 20
SCRIPT = Process(
    number=10,
    parent=1,
    command="python train.py",
    threads=(Thread(number=10, name="python", state="S", call="poll"),),
)
WORKER = replace(
    SCRIPT,
    number=11,
    parent=10,
    threads=(Thread(number=11, name="python", state="R", cpu_s=1.9),),
    memory=800 * MIB,
)
SCENE = Scene(seconds=2.0, processes=(SCRIPT, WORKER, replace(WORKER, number=12)))
LOCKED = replace(WORKER, threads=(Thread(number=11, name="python", state="S", where="futex_do_wait"),))
ENDED = replace(WORKER, command="", threads=(Thread(number=11, name="python", state="Z"),))
FORKS = Thread(number=11, name="standpipe-forks", state="Z")
MANAGER = replace(
    LOCKED, threads=(replace(LOCKED.main, stack=("serve_forever (multiprocessing/managers.py:171)",)),)
)

ASKS = replace(
    LOCKED,
    threads=(
        replace(
            LOCKED.main,
            where="wait_woken",
            stack=(
                "recv_into (socket.py:706)",
                "fetch_it (store.py:4)",
                "Photos.__getitem__ (train.py:12)",
                "_MapDatasetFetcher.fetch.<locals>.<listcomp> (torch/utils/data/_utils/fetch.py:54)",
                "_MapDatasetFetcher.fetch (torch/utils/data/_utils/fetch.py:54)",
                "_worker_loop (torch/utils/data/_utils/worker.py:374)",
            ),
        ),
    ),
)


def test_a_sample_that_waits_is_named_with_the_datasets_line() -> None:
    (finding,) = judge_process(replace(SCENE, processes=(SCRIPT, ASKS)))
    assert finding.title == "the script waits for a sample that 1 worker didn't finish"
    assert finding.evidence == (
        "worker 11 waits in wait_woken, in recv_into (socket.py:706), for a sample of Photos.__getitem__ (train.py:12)",
    )


OURS = replace(
    LOCKED,
    number=12,
    parent=10,
    command="python -B -c import marshal, sys",
    threads=(
        replace(
            LOCKED.main,
            call="sleep",
            stack=(
                "Photos.__getitem__ (train.py:12)",
                "Samples.__getcolumns__.<locals>.<listcomp> (standpipe/torch/samples.py:100)",
                "Samples.__getcolumns__ (standpipe/torch/samples.py:100)",
                "SampleMaker.at_once (standpipe/engine/python/samples.py:197)",
                "Worker.run (standpipe/engine/processes/server.py:228)",
            ),
        ),
    ),
)


@pytest.mark.parametrize(("call", "waits"), [("sleep", "sleeps"), ("futex", "waits for a lock")])
def test_a_sample_of_standpipes_worker_is_named_too(call: str, waits: str) -> None:
    worker = replace(OURS, threads=(replace(OURS.main, call=call),))
    (finding,) = judge_process(replace(SCENE, processes=(SCRIPT, worker)))
    assert finding.title == "the script waits for a sample that 1 worker didn't finish"
    assert finding.evidence == (f"worker 12 {waits}, in Photos.__getitem__ (train.py:12)",)


@pytest.mark.parametrize("delivers", [False, True])
def test_a_sample_of_standpipes_worker_that_computes_for_ever_is_named(delivers: bool) -> None:
    worker = replace(OURS, threads=(replace(OURS.main, state="R", call="", cpu_s=2.0),))
    found = judge_process(replace(SCENE, processes=(SCRIPT, worker), delivers=delivers))
    assert [finding.title for finding in found] == (
        [] if delivers else ["the script waits, and 1 of 1 worker computes"]
    )
    assert delivers or "Photos.__getitem__ (train.py:12)" in found[0].evidence[0]


def test_advice_on_threads_has_the_calls_that_limit_them() -> None:
    (finding,) = judge_process(replace(SCENE, throttled_s=1.0))
    for call in ("OMP_NUM_THREADS=1", "torch.set_num_threads(1)", "cv2.setNumThreads(0)"):
        assert call in finding.fix


@pytest.mark.parametrize(
    ("scene", "codes"),
    [
        ({}, []),  # all workers compute: the loader is slow, and not stuck
        ({"throttled_s": 1.0}, ["cpu-throttled"]),
        ({"throttled_s": 0.1}, []),
        ({"shm_free": 0, "shm": 64 * MIB}, ["shm-full"]),
        ({"shm_free": 40 * MIB, "shm": 64 * MIB}, []),
        (
            {"processes": (SCRIPT, replace(WORKER, swapped=400 * MIB, faults=900))},
            ["swapping", "worker-busy"],
        ),
        ({"processes": (SCRIPT, replace(WORKER, swapped=400 * MIB, faults=9))}, ["worker-busy"]),
        ({"processes": (SCRIPT, LOCKED)}, ["worker-locked"]),  # without the right to see system calls
        (
            {"processes": (SCRIPT, LOCKED, WORKER)},
            ["worker-busy"],
        ),  # somebody computes, and may hold the lock
        ({"processes": (SCRIPT, MANAGER)}, ["all-wait"]),
        ({"processes": (SCRIPT, MANAGER), "delivers": True}, []),
        ({"processes": (SCRIPT, ASKS)}, ["worker-busy"]),
        ({"processes": (SCRIPT, ASKS), "delivers": True}, []),
        ({"processes": (SCRIPT, replace(LOCKED, command="python -c ... resource_tracker"))}, ["all-wait"]),
        ({"processes": (SCRIPT, ENDED)}, ["worker-dead"]),
        ({"processes": (SCRIPT, replace(ENDED, threads=(FORKS,)))}, ["all-wait"]),  # it was idle for long
        ({"processes": (SCRIPT, replace(LOCKED, threads=(FORKS,)))}, ["all-wait"]),  # a fork of the script
    ],
)
def test_judgements(scene: dict[str, Any], codes: list[str]) -> None:
    assert [finding.code for finding in judge_process(replace(SCENE, **scene))] == codes


@pytest.mark.parametrize(
    ("thread", "said"),
    [
        ({"state": "R"}, "runs"),
        ({"state": "D", "call": "read", "at": "/mnt/x.jpg"}, "waits for storage (/mnt/x.jpg)"),
        ({"state": "S", "call": "read", "at": "/dev/pts/0"}, "reads (/dev/pts/0)"),
        ({"state": "S", "call": "receive", "at": "socket:[7]"}, "waits for the network (socket:[7])"),
        ({"state": "S", "call": "futex"}, "waits for a lock"),
        ({"state": "S", "where": "pipe_read"}, "waits in pipe_read"),
        ({"state": "S"}, "waits"),
    ],
)
def test_what_a_thread_waits_for(thread: dict[str, Any], said: str) -> None:
    assert waits_for(SCRIPT, Thread(number=10, name="python", **thread)) == said
