"""Count lost and different rows while many faults happen at the same time.

The benchmark reads epochs of the standard task in worker processes, under a memory limit. 1% of the files are bad, 1%
of the reads take a quarter of a second, 1% of the opens fail at the first try, and a worker is killed every few
seconds. Each row is compared with the same epochs in one thread, where the files are bad and nothing else goes wrong.
Runs over undamaged files without faults show the cost.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _faults import Killer, Row, faults, identity, rows_of, spoil
from _measure import MIB, Figure, parser, progress, report

import standpipe as sp
from standpipe.cli.bench import PeakMemory

FAULTS = "read.pread=delay:0.25s@0.01;read.open=eio@0.01*1;seed=3"


@dataclass(frozen=True)
class Epoch:
    """The rows, bad samples and figures of a run."""

    rows: list[Row]
    seconds: float
    bad: list[sp.BadSample]
    kills: int
    peak_mib: float


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument("--memory", default="512MiB", help="memory budget of the loader (default: 512MiB)")
    arguments.add_argument(
        "--kill-every", type=float, default=2.0, metavar="S", help="seconds between kills (default: 2)"
    )
    arguments.add_argument("--epochs", type=int, default=3, metavar="N", help="epochs per run (default: 3)")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clean, spoilt = Path(folder, "clean"), Path(folder, "spoilt")
        for copy in (clean, spoilt):
            shutil.copytree(args.path, copy)
        spoil(spoilt, 0.01)
        wanted = run(spoilt, args, chaos=False, inline=True)
        calm = [run(clean, args, chaos=False) for _ in range(args.rounds)]
        wild = [run(spoilt, args, chaos=True) for _ in range(args.rounds)]
    progress("")
    rows: list[list[Any]] = [
        ["rows delivered", *both(calm, wild, lambda epoch: len(epoch.rows))],
        ["rows lost", "—", Figure([len(wanted.rows) - len(epoch.rows) for epoch in wild])],
        ["rows that differ", "—", Figure([differing(epoch.rows, wanted.rows) for epoch in wild])],
        ["rows replaced", *both(calm, wild, lambda epoch: len({(b.epoch, b.position) for b in epoch.bad}))],
        ["bad samples logged", "—", "all" if all(epoch.bad == wanted.bad for epoch in wild) else "NOT ALL"],
        ["workers killed", *both(calm, wild, lambda epoch: epoch.kills)],
        ["seconds", *both(calm, wild, lambda epoch: epoch.seconds, ".1f")],
        ["peak memory, MiB", *both(calm, wild, lambda epoch: epoch.peak_mib)],
    ]
    slower = Figure([w.seconds / c.seconds for w, c in zip(wild, calm, strict=True)], ".2f")
    report(args, ["", "calm", "chaos"], rows, f"{slower} × the seconds; STANDPIPE_FAULTS={FAULTS!r}")


def run(folder: Path, args: argparse.Namespace, *, chaos: bool, inline: bool = False) -> Epoch:
    """Read the epochs in worker processes, or in this thread (``inline``), with or without faults (``chaos``)."""
    task = (
        sp.Pipeline(sp.ImageFolder(folder))
        .shuffle(seed=0)
        .on_error(sp.Replace(at_most=0.02))
        .map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip())
        .map(identity, field="image")
        .map(sp.Normalize())
        .batch(64, last_batch="partial")
    )
    progress("in one thread" if inline else "chaos" if chaos else "calm")
    settings: dict[str, Any] = {"executor": "inline" if inline else "process", "memory": args.memory}
    peak = PeakMemory()
    begin = time.perf_counter()
    with (
        faults(FAULTS if chaos else ""),
        Killer(args.kill_every) if chaos else nullcontext() as killer,
        task.loader(**settings) as loader,
    ):
        rows = [row for _ in range(args.epochs) for row in rows_of(loader)]
        seconds, bad = time.perf_counter() - begin, loader.bad_samples
    return Epoch(rows, seconds, bad, 0 if killer is None else killer.kills, peak.stop() / MIB)


def both(
    calm: list[Epoch], wild: list[Epoch], value: Callable[[Epoch], float], form: str = ".0f"
) -> tuple[Figure, Figure]:
    """Return a figure of the runs without faults, and of those with faults."""
    return Figure(map(value, calm), form), Figure(map(value, wild), form)


def differing(rows: list[Row], wanted: list[Row]) -> int:
    """Return the number of rows that differ from the wanted row at the same position."""
    return sum(one != other for one, other in zip(rows, wanted, strict=False))


if __name__ == "__main__":
    main()
