"""A trainer that is told to end, or fails, while its workers are stuck in Python code: it ends, and so do they."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from programs import LIMIT_S, children, is_alive, output, run, wait_for_end, wait_until_asleep

STUCK = """
import os, signal, sys, threading
import standpipe as sp

class Stuck:
    told = sys.argv[1]
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 3:
            with open(self.told, "w") as told:
                told.write("begun")
            threading.Event().wait()
        return index

def end(number, frame):
    sys.exit(7)

if sys.argv[3] == "handled":
    signal.signal(signal.SIGTERM, end)
pipeline = sp.Pipeline(sp.MapSource(Stuck(), fields="x")).batch(4)
for batch in pipeline.loader(executor=sys.argv[2], memory="512MiB", num_workers=2, stall_timeout_s=None):
    pass
"""

ENDS = [
    pytest.param(signal.SIGINT, "", -signal.SIGINT, id="ctrl-c"),
    pytest.param(signal.SIGTERM, "", -signal.SIGTERM, id="sigterm"),
    pytest.param(signal.SIGTERM, "handled", 7, id="sigterm with a handler"),
]
# Processes of a loader of two workers: these and their server; else those that find out what draws, while they do.
COUNTS = {"process": {3}, "thread": {0, 1, 2}, "inline": {0, 1, 2}}


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
@pytest.mark.parametrize(("number", "handled", "code"), ENDS)
def test_ctrl_c_or_sigterm_in_next(
    tmp_path: Path, executor: str, number: int, handled: str, code: int
) -> None:
    """The trainer ends though a sample never comes, with the code that its end has, and no worker is left."""
    script, told = tmp_path / "script.py", tmp_path / "told"
    script.write_text(textwrap.dedent(STUCK))
    os.mkfifo(told)
    begun = os.open(told, os.O_RDONLY | os.O_NONBLOCK)
    with subprocess.Popen(
        [sys.executable, script, told, executor, handled], stderr=subprocess.PIPE, text=True
    ) as trainer:
        try:
            assert select.select([begun], [], [], LIMIT_S)[0], "no sample was begun"
            if executor == "inline":
                wait_until_asleep(trainer.pid)
            workers = children(trainer.pid)
            assert len(workers) in COUNTS[executor]
            trainer.send_signal(number)
            _, errors = trainer.communicate(timeout=LIMIT_S)
            assert (trainer.returncode, "Traceback" in errors) == (code, number == signal.SIGINT), errors
            assert wait_for_end(workers, LIMIT_S) == []
        finally:
            trainer.kill()
            os.close(begun)  # not before: whoever is slow to tell would fail at that


HELD = """
import os

if "TOLD" in os.environ:
    with open(os.environ["TOLD"], "w") as told:
        told.write(str(os.getpid()))
    with open(os.environ["ON"]) as on:
        on.read()
"""

STARTS = """
class Signals:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        return signal.getsignal(signal.SIGINT) is signal.SIG_IGN, blocked

os.environ |= {{"TOLD": {told!r}, "ON": {on!r}}}
pipeline = sp.Pipeline(sp.MapSource(Signals(), fields=("ignored", "blocked"))).batch(4)
with pipeline.loader(executor="process", mp_context={mp_context}, memory="512MiB", num_workers=1) as loader:
    for batch in loader:
        print(batch["ignored"].all(), batch["blocked"].any())
"""


@pytest.mark.parametrize("mp_context", ["'spawn'", "sp.ForkServer()"])
def test_ctrl_c_while_a_server_starts_is_the_trainers(tmp_path: Path, mp_context: str) -> None:
    """Their interpreters go on, in silence, whatever they are at; the trainer would end them."""
    (tmp_path / "sitecustomize.py").write_text(HELD)  # is run before any code of standpipe's
    told, on = tmp_path / "told", tmp_path / "on"
    os.mkfifo(told), os.mkfifo(on)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))

    def interrupt() -> None:
        os.kill(int(told.read_text()), signal.SIGINT)
        on.write_text("on")

    interrupts = threading.Thread(target=interrupt, daemon=True)
    interrupts.start()
    program = STARTS.format(told=str(told), on=str(on), mp_context=mp_context)
    assert output(program, environment={"PYTHONPATH": path}) == "True False\n"
    interrupts.join()


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_parent_raises_while_a_traceback_holds_the_iterator(executor: str) -> None:
    """The error is the program's, and its end as clean as any other."""
    done = run(f"""
from programs import children

def train():
    loader = sp.Pipeline(sp.MapSource(list(range(64)), fields="x")).batch(2).loader(
        executor="{executor}", memory="512MiB", num_workers=2, prefetch=3
    )
    iterator = iter(loader)
    next(iterator)
    print(*children(), flush=True)
    raise ValueError("the loss is not finite")

try:
    train()
except ValueError as error:
    kept = error
raise kept
""")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: the loss is not finite\n")
    assert "standpipe" not in done.stderr
    workers = [int(process) for process in done.stdout.split()]
    assert len(workers) in COUNTS[executor]
    assert not any(map(is_alive, workers))
