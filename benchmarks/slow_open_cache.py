"""Measure training from slow storage, once a cache has the files.

A copy of the photos, where every open and stat of a file takes 5 ms longer (a library loaded before all others, as in
slow_storage.py), listed over and over as --rows records; random crops to 224 × 224, float32, batches of 100. One
process, in turns: the photos from local storage, warm; the slow copy with a cache of files, in its second epoch and
later; the first epoch of a new job with a full cache, which asks once for each file whether it has changed; the first
epoch with an empty cache; and the slow copy without a cache. Starts are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from _cached import ROWS, Passes, Photos, scratch
from _measure import Figure, Interval, Turns, last_json, parser, progress, ratio, report
from slow_storage import slowed

LOCAL = "local and warm"


def main() -> None:
    arguments = parser(__doc__, rounds=6)
    arguments.add_argument("--open-ms", type=float, default=5.0, metavar="MS", help="default: 5")
    arguments.add_argument("--rows", type=int, default=2000, metavar="N", help="of an epoch (default: 2,000)")
    arguments.add_argument("--batches", type=int, default=50, metavar="N", help="of one turn (default: 50)")
    arguments.add_argument(
        "--workers", type=int, default=2, metavar="N", help="decoding threads (default: 2)"
    )
    arguments.add_argument("--folder", default="/dev/shm", help="where files are kept (default: /dev/shm)")
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.child is not None:
        print(json.dumps(in_turns(args, Passes(**json.loads(args.child)))))
        return
    with tempfile.TemporaryDirectory() as folder, scratch(args.folder) as kept:
        (slow := Path(folder, "slow")).mkdir()
        shutil.copytree(args.path, slow / "photos")
        copies = Photos.make(str(slow / "photos"), str(slow), args.rows)
        one = Passes(
            list=copies.list,
            keep="files",
            folder=kept,
            memory=copies.room("files"),
            output="float32",
            train=True,
            workers=args.workers,
        )
        given = ("--rows", args.rows, "--batches", args.batches, "--rounds", args.rounds)
        env = slowed(Path(folder), str(slow / "photos"), open_ms=args.open_ms, stat_ms=args.open_ms)
        command = [sys.executable, __file__, args.path, *given, "--folder", args.folder]
        results = last_json([*command, "--child", json.dumps(asdict(one))], env=env)
    rows: list[list[Any]] = []
    local = results[LOCAL]
    for name, per_row in results.items():
        row: list[Any] = [name, Figure([1 / seconds for seconds in per_row["wall"]])]
        for key in ("wall", "cpu"):
            beside = ratio(per_row[key], local[key])
            row += [f"{beside.median:.3f}", Interval.of_median(beside.values)]
        rows.append(row)
    interval = "95% interval" if args.rounds > 5 else "range"
    header = ["files", "images/s", "seconds ÷ local", interval, "CPU ÷ local", f"{interval} "]
    note = f"{copies.rows:,} records, {args.open_ms:g} ms for each open and stat, {args.workers} workers"
    report(args, header, rows, note)


def in_turns(args: argparse.Namespace, cached: Passes) -> dict[str, dict[str, list[float]]]:
    """Seconds and CPU seconds a row of all of them, round by round, in this process."""
    seconds: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        photos = Photos.make(args.path, folder, args.rows)
        plain = replace(cached, keep="nothing")
        standing = {
            LOCAL: started(replace(plain, list=photos.list)),
            "slow, cached: later epochs": started(cached),
            "slow, without a cache": started(plain),
        }
        standing["slow, cached: later epochs"].turn(2 * photos.rows // ROWS)  # now all of it is there

        def note(name: str, turn: Turns, batches: int) -> None:
            wall, cpu = turn.turn(batches)
            found = seconds.setdefault(name, {"wall": [], "cpu": []})
            found["wall"].append(wall / (batches * ROWS))
            found["cpu"].append(cpu / (batches * ROWS))

        for number in range(args.rounds):
            progress(f"round {number + 1} of {args.rounds}")
            for name in list(standing)[:: -1 if number % 2 else 1]:
                note(name, standing[name], args.batches)
            with scratch(args.folder) as empty:
                once("slow, cached: a new job's first epoch", cached, note)
                once("slow: first epoch, which fills the cache", replace(cached, folder=empty), note)
        for turn in standing.values():
            turn.close()
    return seconds


def started(passes: Passes) -> Turns:
    return Turns(passes.pipeline().loader(num_workers=passes.workers))


def once(name: str, passes: Passes, note: Any) -> None:
    """Measure a loader's first epoch, from its second batch on to where it runs ahead into the next one."""
    loader = passes.pipeline().loader(num_workers=passes.workers)
    turn = Turns(loader)
    note(name, turn, len(loader) - 1 - loader.plan.slots)
    turn.close()


if __name__ == "__main__":
    main()
