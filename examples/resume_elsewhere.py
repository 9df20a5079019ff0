"""A job that is killed, and goes on as another one: fewer ranks, another batch size, and not a sample lost.

    standpipe synth photos --images 600
    python examples/resume_elsewhere.py photos

Four ranks with batches of 8 read an epoch. Rank 0 saves the loader's state after every step, as a trainer saves it
with its weights. In the middle of the epoch all four are killed with SIGKILL. Two ranks with batches of 24 go on
from what was saved, with other workers. What both jobs read up to and after the saved step, put together, is
exactly the stream that an undisturbed process reads.

Steps after the last saved state are read again, as their training would be done again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import standpipe as sp

STATE = "state.json"


def main() -> None:
    args = arguments()
    if args.job is not None:
        train(args)
        return
    whole = undisturbed(args.photos)
    with TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        run(args.photos, first, ranks=4, batch=8, kill_after=len(whole) // (4 * 8) // 2)
        saved = json.loads((first / STATE).read_text())
        print(f"killed; the state says {saved['consumed']} samples of epoch {saved['epoch']} were delivered")
        run(args.photos, second, ranks=2, batch=24, go_on_from=first / STATE)
        steps = saved["consumed"] // (4 * 8)
        seen = list(chain(*rows_of(first, ranks=4)[:steps], *rows_of(second, ranks=2)))
        print(f"{steps} steps of 4 × 8 rows, then {len(rows_of(second, ranks=2))} of 2 × 24")
    assert seen == whole[: len(seen)], "the streams differ"
    assert len(set(seen)) == len(seen), "a sample came twice"
    print(f"{len(seen)} samples, none lost, none twice, in the order of an undisturbed run")


def pipeline(photos: str, batch: int) -> sp.Pipeline:
    return sp.Pipeline(sp.ImageFolder(photos)).shuffle(seed=7).map(sp.RandomResizedCrop(32)).batch(batch)


def run(
    photos: str,
    job: Path,
    *,
    ranks: int,
    batch: int,
    kill_after: int | None = None,
    go_on_from: Path | None = None,
) -> None:
    """Start a process per rank, as torchrun would; kill them once rank 0 has done ``kill_after`` steps."""
    job.mkdir()
    command = [sys.executable, __file__, photos, "--job", str(job), "--batch", str(batch)]
    if go_on_from:
        command += ["--go-on-from", str(go_on_from)]
    if kill_after:
        command += ["--wait-after", str(kill_after)]
    with ExitStack() as ends:
        processes = [
            ends.enter_context(
                subprocess.Popen(
                    command,
                    env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks)},
                    stdout=subprocess.PIPE,
                )
            )
            for rank in range(ranks)
        ]
        for process in processes:
            assert process.stdout is not None
            process.stdout.read(1)  # a rank says that it has done its steps, or ends
        for process in processes:
            if kill_after:
                process.send_signal(signal.SIGKILL)
            code = process.wait()
            assert code == (-signal.SIGKILL if kill_after else 0), f"a rank ended with {code}"


def train(args: argparse.Namespace) -> None:
    """One rank: what it reads goes to a file, a line per step."""
    batches = pipeline(args.photos, args.batch).shard()  # RANK and WORLD_SIZE say which rank this is
    with batches.loader(memory="128MiB", num_workers=1) as loader:
        rank = loader.plan.steps.rank
        if args.go_on_from:  # not a file that this job's rank 0 writes: all ranks must read the same state
            loader.load_state_dict(json.loads(args.go_on_from.read_text()))
        with (args.job / f"{rank}.txt").open("w") as log:
            for step, batch in enumerate(loader, 1):
                print(*batch["index"], file=log, flush=True)
                if rank == 0:
                    save(args.job / STATE, loader.state_dict())
                if step == args.wait_after:
                    print("done", flush=True)
                    signal.pause()  # until it is killed


def save(path: Path, state: dict[str, object]) -> None:
    """Write it whole or not at all: a kill in the middle leaves the state before."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(path)


def rows_of(job: Path, ranks: int) -> list[list[int]]:
    """Return the samples of each step: rank by rank, in the global order."""
    lines = [(job / f"{rank}.txt").read_text().splitlines() for rank in range(ranks)]
    return [[int(row) for line in step for row in line.split()] for step in zip(*lines, strict=True)]


def undisturbed(photos: str) -> list[int]:
    """An epoch of one process, with one row per batch so that nothing is dropped."""
    with pipeline(photos, 1).loader(memory="128MiB") as loader:
        return [int(batch["index"][0]) for batch in loader]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", help="a folder of class folders, at least 112 images in all")
    for name in ("--job", "--go-on-from"):  # of the processes that this program starts
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    for name in ("--batch", "--wait-after"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
