"""Look for growth while things go wrong for an hour.

Two loaders of the standard task run side by side, one with native threads and one with worker processes. In each
epoch one of them, chosen at random, is read to its end, left in the middle, or closed and opened again from its saved
state. During that, files are bad, reads are slow or fail at first, and workers are killed. After each epoch: the
memory of the process with its workers, its threads and its open files. Both loaders must give the same rows in the
same epoch.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _faults import Killer, identity, rows_of, spoil
from _measure import MIB, parser, progress, report

import standpipe as sp
from standpipe.cli.bench import process_tree, proportional_bytes

FAULTS = "read.pread=delay:0.1s@0.005;read.open=eio@0.01*1;seed=5"
WARM_UP = 0.2  # of the time, until everything that is allocated once has been
LEFT, REOPENED = (
    0.2,
    0.15,
)  # shares of epochs that are left in the middle, and of those before which one is closed


@dataclass(frozen=True)
class Sample:
    """The measurements after an epoch."""

    seconds: float
    memory_mib: float
    threads: int
    files: int


class Member:
    """A loader that is closed and opened again now and then."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, python: bool) -> None:
        task = sp.Pipeline(sp.ImageFolder(folder)).shuffle(seed=0).on_error(sp.Replace(at_most=0.05))
        task = task.map(sp.RandomResizedCrop(160), sp.RandomHorizontalFlip())
        self._task = (task.map(identity, field="image") if python else task).batch(32, last_batch="partial")
        self._settings = settings
        self.loader = self._task.loader(**settings)
        self.epochs = 0

    def reopen(self) -> None:
        """Open it again from its state, as after a crash."""
        state = self.loader.state_dict()
        self.loader.close()
        self.loader = self._task.loader(**self._settings)
        self.loader.load_state_dict(state)

    def checksum(self, leave_after: int | None) -> tuple[int, int | None]:
        """The next epoch's number, and a checksum of its rows; None when it isn't read from begin to end."""
        batches = iter(self.loader)
        number = self.loader.epoch
        whole = self.loader.state_dict()["consumed"] == 0
        self.epochs += 1
        if leave_after is not None:
            for _, batch in zip(range(leave_after), batches, strict=False):
                del batch
            return number, None
        total = 0
        for index, checksum in rows_of(batches):
            total = zlib.crc32(f"{index} {checksum}".encode(), total)
        return number, total if whole else None


def main() -> None:
    arguments = parser(__doc__, rounds=1)
    arguments.add_argument("--minutes", type=float, default=60.0, metavar="M", help="how long (default: 60)")
    arguments.add_argument("--kill-every", type=float, default=5.0, metavar="S", help="seconds (default: 5)")
    args = arguments.parse_args()
    if os.environ.get("STANDPIPE_FAULTS") != FAULTS:  # it is read when standpipe is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"STANDPIPE_FAULTS": FAULTS})
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder, "photos")
        shutil.copytree(args.path, photos)
        spoil(photos, 0.01)
        with Killer(args.kill_every) as killer:
            samples, counts = soak(photos, args.minutes * 60)
    progress("")
    late = [sample for sample in samples if sample.seconds > WARM_UP * args.minutes * 60]
    rows = [
        [name, *quarters(values), f"{max(values):.1f}", f"{slope(late, values):+.2f}"]
        for name, values in (
            ("memory, MiB", [sample.memory_mib for sample in late]),
            ("threads", [float(sample.threads) for sample in late]),
            ("open files", [float(sample.files) for sample in late]),
        )
    ]
    note = ", ".join(f"{number:,} {name}" for name, number in {**counts, "kills": killer.kills}.items())
    report(args, ["", "first quarter", "last quarter", "most", "slope per hour"], rows, note)


def soak(photos: Path, seconds: float) -> tuple[list[Sample], dict[str, int]]:
    """Read epochs for so long."""
    random = np.random.default_rng(0)
    memory = "256MiB"
    members = [
        Member(photos, {"memory": memory}, python=False),
        Member(photos, {"memory": memory, "executor": "process", "num_workers": 2}, python=True),
    ]
    counts = {"epochs": 0, "epochs compared": 0, "epochs that differ": 0, "openings": 0, "bad samples": 0}
    known: dict[int, int] = {}
    samples = []
    begin = time.monotonic()
    while (now := time.monotonic() - begin) < seconds:
        member = members[int(random.integers(2))]
        if random.random() < REOPENED:
            counts["bad samples"] += len(member.loader.bad_samples)
            member.reopen()
            counts["openings"] += 1
        leave_after = int(random.integers(1, 10)) if random.random() < LEFT else None
        number, checksum = member.checksum(leave_after)
        counts["epochs"] += 1
        if checksum is not None:
            counts["epochs compared"] += number in known
            counts["epochs that differ"] += known.setdefault(number, checksum) != checksum
        samples.append(sample(now))
        progress(f"{now / 60:.1f} of {seconds / 60:.0f} minutes: {samples[-1]}")
    for member in members:
        counts["bad samples"] += len(member.loader.bad_samples)
        member.loader.close()
    return samples, counts


def sample(seconds: float) -> Sample:
    """Measure now: memory of all processes, and this one's threads and open files without photos."""
    memory = sum(map(proportional_bytes, process_tree()))
    threads, files = (list(Path("/proc/self", of).iterdir()) for of in ("task", "fd"))
    return Sample(seconds, memory / MIB, len(threads), sum(map(is_kept, files)))


def is_kept(descriptor: Path) -> bool:
    """Return True if an open file isn't one of the photos, some of which are just being read."""
    try:
        return not str(descriptor.readlink()).endswith(".jpg")
    except OSError:  # it is closed already
        return False


def quarters(values: list[float]) -> tuple[str, str]:
    """Medians of the first and the last quarter: single epochs differ by which worker has just been killed."""
    size = max(len(values) // 4, 1)
    return f"{statistics.median(values[:size]):.1f}", f"{statistics.median(values[-size:]):.1f}"


def slope(samples: list[Sample], values: list[float]) -> float:
    """Least-squares growth per hour."""
    hours = [sample.seconds / 3600 for sample in samples]
    return statistics.linear_regression(hours, values).slope


if __name__ == "__main__":
    main()
