"""The kill matrix: who is told to end × at which stage × how. The run ends or goes on, exactly, and leaves nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standpipe as sp
from photos import WAIT_S
from programs import (
    census,
    check_nothing_is_left,
    children,
    started,
    started_since,
    wait_for_end,
    wait_until_asleep,
)

ROWS, SIZE = 4, 48
KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
SIGNALS = pytest.mark.parametrize("sent", [KILL, TERM, INT], ids=lambda sent: sent.name)


class Struck:
    """Numbers; and a signal, once, as a record is made or as the server of workers loads this.

    at      that record, or ``"loading"``
    victim  whose process number it goes to
    """

    def __init__(self, folder: Path, at: int | str, sent: signal.Signals, victim: Callable[[], int]) -> None:
        self.folder, self.at, self.sent, self.victim = folder, at, sent, victim

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.strike(index)
        return {"x": np.full(3, index * index)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.strike("loading")

    def strike(self, at: int | str) -> None:
        if at == self.at:
            with suppress(FileExistsError):
                (self.folder / "struck").touch(exist_ok=False)
                os.kill(self.victim(), self.sent)


def loader(dataset: Struck) -> sp.Loader:
    return (
        sp.Pipeline(sp.MapSource(dataset))
        .batch(ROWS)
        .loader(executor="process", num_workers=2, memory="512MiB")
    )


def check_exact(batches: Any, first: int = 0) -> None:
    """Every row from ``first`` on, once, in order."""
    delivered = [(batch["index"].tolist(), batch["x"][:, 0].tolist()) for batch in batches]
    expected = [list(range(start, start + ROWS)) for start in range(first, SIZE, ROWS)]
    assert delivered == [(rows, [row * row for row in rows]) for rows in expected]


# Whom a worker sends a signal: itself, or whoever forked it.
VICTIMS = {"worker": os.getpid, "server": os.getppid}


@SIGNALS
@pytest.mark.parametrize("stage", ["measuring", "first batch", "steady"])
@pytest.mark.parametrize("role", VICTIMS)
def test_a_worker_or_the_server_ends_and_the_run_goes_on(
    role: str, stage: str, sent: signal.Signals, tmp_path: Path
) -> None:
    """Ctrl-C, which a terminal sends to all, is the trainer's: they ignore it."""
    before = census()
    at = {"measuring": 0, "first batch": 1, "steady": 30}[stage]
    with loader(Struck(tmp_path, at, sent, VICTIMS[role])) as batches:
        check_exact(batches)
        stats = batches.stats()
    assert (tmp_path / "struck").exists()
    assert stats.deaths == (role == "worker" and stage != "measuring" and sent is not INT)
    del batches
    check_nothing_is_left(before)


@SIGNALS
def test_the_server_ends_while_it_loads_the_dataset(sent: signal.Signals, tmp_path: Path) -> None:
    before = census()
    with loader(Struck(tmp_path, "loading", sent, os.getpid)) as batches:
        if sent is INT:
            check_exact(batches)
        else:
            with pytest.raises(sp.WorkerDiedError, match=f"the worker server was killed by {sent.name}"):
                iter(batches)
            check_exact(batches)  # asked again, it starts again
    del batches
    check_nothing_is_left(before)


@SIGNALS
@pytest.mark.parametrize("role", VICTIMS)
def test_a_worker_or_the_server_ends_as_the_loader_is_closed(
    role: str, sent: signal.Signals, tmp_path: Path
) -> None:
    before = census()
    with loader(Struck(tmp_path, "never", sent, os.getpid)) as batches:
        iterator = iter(batches)
        next(iterator)
        server, *workers = started_since(before)
        for victim in workers if role == "worker" else [server]:
            os.kill(victim, sent)
    assert wait_for_end([server, *workers], WAIT_S) == []
    del batches, iterator
    check_nothing_is_left(before)


TRAINER = """
import os, signal, sys, threading

def here(stage):
    if stage == sys.argv[1]:
        os.write(1, b"here\\n")
        threading.Event().wait()

class Late:
    '''As standpipe's last module is looked for.'''
    def find_spec(self, name, path=None, target=None):
        if name == "standpipe.loader.loader":
            here("importing")
sys.meta_path.insert(0, Late())
if sys.argv[2] == "leaves":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

import numpy as np
import standpipe as sp
import standpipe.engine.run

class Patience(float):
    '''With what hangs. Says when closing begins to wait: an interrupt before that would let it wait for all of this.'''
    def __radd__(self, now):
        os.write(1, b"here\\n")
        return now + float(self)

if sys.argv[1] == "closing":
    standpipe.engine.run.PATIENCE_S = Patience(60)
BEGUN = os.path.join(os.environ["TMPDIR"], "begun")

class Numbers:
    def __init__(self):
        self.stage = None
    def __len__(self):
        here("planning")
        return 400
    def __getitem__(self, index):
        here({0: "measuring", 5: "first batch", 150: "steady"}.get(index))
        if index == 150 and sys.argv[1] == "closing":
            open(BEGUN, "x").close()
            threading.Event().wait()
        return np.full(3, index)
    def __setstate__(self, state):
        sys.argv[1:] = state
        here("loading")
    def __getstate__(self):
        return sys.argv[1:]

numbers = sp.Pipeline(sp.MapSource(Numbers())).batch(10)
with numbers.loader(executor="process", num_workers=2, memory="512MiB") as loader:
    for number, batch in enumerate(loader):
        if number == 14 and sys.argv[1] == "closing":
            while not os.path.exists(BEGUN):
                os.sched_yield()
            os.unlink(BEGUN)
            break
"""

ENDS = {  # what is sent; whether the program has a handler; how it ends then
    "SIGKILL": (KILL, "dies", -KILL),
    "SIGTERM": (TERM, "dies", -TERM),
    "SIGTERM, handled": (TERM, "leaves", 143),
    "SIGINT": (INT, "dies", -INT),
}


@pytest.mark.parametrize(
    ("stage", "end"),
    [
        pytest.param(
            stage, end, marks=() if stage in ("loading", "steady") or "TERM" not in end else pytest.mark.long
        )
        for stage in ("importing", "planning", "loading", "measuring", "first batch", "steady", "closing")
        for end in ENDS
    ],
)
def test_the_trainer_ends(stage: str, end: str, tmp_path: Path) -> None:
    """Whatever hangs in its workers, or in itself."""
    sent, way, code = ENDS[end]
    before = census()
    with started(TRAINER, stage, way, folder=tmp_path) as (trainer, output, errors):
        assert output.readline() == "here\n", errors.read()
        processes = children(trainer.pid)
        assert len(processes) == {"importing": 0, "planning": 0, "loading": 1, "measuring": 2}.get(stage, 3)
        wait_until_asleep(trainer.pid)
        if sent is INT:  # as a terminal does
            os.killpg(trainer.pid, sent)
        else:
            trainer.send_signal(sent)
        said = errors.read()  # to its end: nobody holds it open any more
        assert trainer.wait(WAIT_S) == code, said
    assert wait_for_end(processes, WAIT_S) == []
    assert said.rstrip().endswith("KeyboardInterrupt" if sent is INT else ""), said
    assert said.count("Traceback") == (sent is INT), said
    assert not list(tmp_path.iterdir())
    check_nothing_is_left(before)
