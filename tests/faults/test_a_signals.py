"""A trainer that is told to end, or fails, while its workers are stuck in Python code: it ends, and so do they."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from programs import LIMIT_S, children, is_alive, run, wait_for_end, wait_until_asleep

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
pipeline = sp.Pipeline(sp.Indexed(Stuck(), fields="x")).batch(4)
for batch in pipeline.loader(executor=sys.argv[2], memory="512MiB", workers=2, stall_timeout_s=None):
    pass
"""

ENDS = [
    pytest.param(signal.SIGINT, "", -signal.SIGINT, id="ctrl-c"),
    pytest.param(signal.SIGTERM, "", -signal.SIGTERM, id="sigterm"),
    pytest.param(signal.SIGTERM, "handled", 7, id="sigterm with a handler"),
]


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
            assert len(workers) == (3 if executor == "process" else 0)
            trainer.send_signal(number)
            _, errors = trainer.communicate(timeout=LIMIT_S)
            assert (trainer.returncode, "Traceback" in errors) == (code, number == signal.SIGINT), errors
            assert wait_for_end(workers, LIMIT_S) == []
        finally:
            trainer.kill()
            os.close(begun)  # not before: whoever is slow to tell would fail at that


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_parent_raises_while_a_traceback_holds_the_iterator(executor: str) -> None:
    """The error is the program's, and its end as clean as any other."""
    done = run(f"""
from programs import children

def train():
    loader = sp.Pipeline(sp.Indexed(list(range(64)), fields="x")).batch(2).loader(
        executor="{executor}", memory="512MiB", workers=2, depth=4
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
    assert len(workers) == (3 if executor == "process" else 0)
    assert not any(map(is_alive, workers))
