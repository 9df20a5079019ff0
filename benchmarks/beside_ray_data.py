"""Compare ``standpipe.ray`` with Ray Data: rate, memory, first batch, and what kills do.

A trainer takes an epoch, from two actors of standpipe, or from ``iter_torch_batches`` of Ray Data, with the same
transforms. The cluster has three raylets on this machine: one without CPUs, where the trainer runs, and two with a CPU
each. It starts anew for each run. Then the same epoch is taken while processes are killed after a third of it: a
worker, all workers, a raylet with its worker, and the trainer, which is then started again. standpipe's trainer saves
its state with each batch. Ray Data has no state to save.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from _measure import MIB, Figure, parser, progress, report
from _ray import Peaks, cluster, workers

TRAINERS = Path(__file__).with_name("_ray_trainers.py")
KINDS = {"standpipe.ray": "standpipe", "Ray Data": "data"}
MAKERS = {"standpipe": ("Maker",), "data": ("Map", "map", "RandomShuffle", "shuffle", "reduce")}
KILLS = {"a worker": 1, "all workers": 2, "a raylet": 3, "the trainer": 4}


@dataclass(slots=True)
class Epoch:
    """An epoch as its trainers printed it.

    numbers  numbers of the photos in the batches
    times    time of each batch since the trainer was connected to the cluster
    waited   longest time between two batches from the kill on
    error    last line of the trainer's error; empty if it ended well
    """

    numbers: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    waited: float = 0.0
    error: str = ""
    peaks: Any = None

    @property
    def rate(self) -> float:
        """Photos per second, from the first batch on."""
        rows = len(self.numbers) * (1 - 1 / len(self.times))
        return rows / (self.times[-1] - self.times[0])


def main() -> None:
    arguments = parser(__doc__, rounds=2)
    arguments.add_argument(
        "--patience", type=float, default=60, metavar="S", help="longest wait for a batch (default: 60)"
    )
    args = arguments.parse_args()
    photos = len(list(Path(args.path).glob("*/*")))
    runs: dict[str, list[Epoch]] = {kind: [] for kind in KINDS}
    for number in range(args.rounds):
        for kind in KINDS:
            progress(f"round {number + 1} of {args.rounds}: {kind}")
            runs[kind].append(epoch(args, KINDS[kind], ""))
    rows = [
        ["photos per second", *(Figure([each.rate for each in made]) for made in runs.values())],
        [
            "first batch after, s",
            *(Figure([each.times[0] for each in made], ".1f") for made in runs.values()),
        ],
    ]
    for title, name in {
        "trainer's memory, MiB": "trainer",
        "workers' memory, MiB": "workers",
        "object store, MiB": "store",
    }.items():
        peaks = ([getattr(each.peaks, name) / MIB for each in made] for made in runs.values())
        rows.append([title, *map(Figure, peaks)])
    for kill in KILLS:
        cells = []
        for kind in KINDS:
            progress(f"kill -9 of {kill}: {kind}")
            cells.append(outcome(epoch(args, KINDS[kind], kill), photos))
        rows.append([f"kill -9 of {kill}", *cells])
    progress("")
    notes = "memory: peaks of PSS; workers: all of the cluster's worker processes; object store: all nodes"
    report(args, ["", *KINDS], rows, notes, packages=["ray", "torch", "pillow"])


def outcome(made: Epoch, photos: int) -> str:
    """Return what a kill did, in a cell of the table."""
    often = Counter(made.numbers)
    lost, repeated = photos - len(often), sum(often.values()) - len(often)
    text = f"{lost} lost, {repeated} repeated, longest wait {made.waited:.1f} s"
    return f"{text}; {made.error}" if made.error else text


def epoch(args: argparse.Namespace, kind: str, kill: str) -> Epoch:
    """Take an epoch with a new cluster. ``kill`` names the processes to kill after a third of it; empty: none."""
    made = Epoch()
    photos = len(list(Path(args.path).glob("*/*")))
    with tempfile.TemporaryDirectory() as folder, cluster(0, 1, 1) as nodes:
        trainer = Trainer(
            kind, nodes.address, args.path, Path(folder, "state"), stateful=kill == "the trainer"
        )
        with Peaks(trainer.process.pid) as made.peaks:
            killed = not kill
            begin = time.monotonic()
            while True:
                line = trainer.line(args.patience)
                if killed and kill:
                    made.waited = max(made.waited, time.monotonic() - begin)
                begin = time.monotonic()
                if line[:1] != ["batch"]:
                    break
                made.times.append(float(line[1]))
                made.numbers += map(int, line[2:])
                if not killed and len(made.numbers) >= photos / 3:
                    killed = True
                    if kill == "the trainer":
                        trainer.close()
                        trainer = Trainer(
                            kind, nodes.address, args.path, Path(folder, "state"), stateful=True
                        )
                    else:
                        destroy(kill, kind, nodes)
                    begin = time.monotonic()
        made.error = "" if line == ["end"] else trainer.close() or f"no batch for {args.patience:g} s"
        trainer.close()
    return made


def destroy(kill: str, kind: str, nodes: Any) -> None:
    if kill == "a raylet":
        nodes.remove_node(removable(nodes), allow_graceful=False)
        return
    makers = workers(*MAKERS[kind])
    for process in makers[:1] if kill == "a worker" else makers:
        os.kill(process, signal.SIGKILL)


def removable(nodes: Any) -> Any:
    """Return a raylet with a CPU to which no process is connected that isn't its worker.

    Processes that connect to a cluster on this machine all find the same one of its raylets.
    """
    own = ray.get_runtime_context().get_node_id()
    names = {
        each["RayletSocketName"]
        for each in ray.nodes()
        if each["NodeID"] != own and "CPU" in each["Resources"]
    }
    return next(node for node in nodes.list_all_nodes() if node.raylet_socket_name in names)


class Trainer:
    """A trainer process, whose lines a thread reads."""

    def __init__(self, kind: str, address: str, path: str, state: Path, *, stateful: bool) -> None:
        words = [sys.executable, str(TRAINERS), kind, address, path, str(state) if stateful else "-"]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with this object)
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        self._lines: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self._lines.put(text.split())
        self._lines.put(["closed"])

    def line(self, patience_s: float) -> list[str]:
        """Return the words of the next line of a batch or the end; none if the process has ended, or too late."""
        try:
            while True:
                words = self._lines.get(timeout=patience_s)
                if words and words[0] in ("batch", "end", "closed"):  # else what Ray prints
                    return words
        except queue.Empty:
            return []

    def close(self) -> str:
        """Kill the process, and return the last line of its errors if it had ended by one."""
        failed = self.process.poll() not in (None, 0)
        self.process.kill()
        self.process.wait()
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        self._errors.close()
        return lines[-1][:80] if failed and lines else ""


if __name__ == "__main__":
    main()
