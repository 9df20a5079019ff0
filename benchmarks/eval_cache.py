"""Measure the cost of a cache in the first pass of an evaluation, and its gain in later ones.

The photos are repeated to --rows records; Resize(256), CenterCrop(224); batches of 100. The parts are:

first   The cost of storing rows: passes with and without a cache, each in its own process. The cache has room for
        all rows in memory, or for a quarter in memory and the rest on disk. CPU seconds and seconds run from the
        plan to the end of all threads. "4 at once" are four processes: each with its own quarter of the rows and
        its own cache set, or all with the same quarter in one set.
later   The rate of later passes, in turns in one process: passes from the cache; two threads that copy as many rows
        from a buffer larger than the last-level cache; the same evaluation without a cache. With --mindspore, also
        MindSpore with its cache server.
memory  Bytes on storage ÷ bytes of the rows, and the memory and mapped files of a process that reads them.
jobs    Four processes that fill one cache set, one of them slow; then processes that start when half of the rows,
        or all, are stored.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _cached import ROWS, SIDE_PX, Keep, Passes, Photos, at_once, scratch, stored_bytes
from _measure import Figure, Interval, Turns, column, last_json, parser, progress, ratio, report

PARTS = ("first", "later", "memory", "jobs")
JOBS = 4
SMALL_SIDES = (SIDE_PX, 64, 32)  # rows of 150,528, 12,288 and 3,072 bytes
AHEAD = 4  # batches at the end of a first pass that aren't measured, since loaders prefetch the next epoch
UNCACHED_BATCHES = 10  # in a turn
MINDSPORE = Path(__file__).with_name("_mindspore_cache.py")


def main() -> None:
    args = arguments().parse_args()
    if args.child is not None:
        print(json.dumps(turns(args, Passes(**json.loads(args.child)))))
        return
    with tempfile.TemporaryDirectory() as folder:
        photos = Photos.make(args.path, folder, args.rows)
        for part in args.part or PARTS:
            RUNS[part](args, photos)


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, rounds=6)
    made.add_argument("--part", nargs="+", choices=PARTS, help="run only these parts")
    made.add_argument("--rows", type=int, default=10_000, metavar="N", help="rows per pass (default: 10,000)")
    made.add_argument("--workers", type=int, default=2, metavar="N", help="workers per process (default: 2)")
    made.add_argument(
        "--passes", type=int, default=20, metavar="N", help="number of later passes (default: 20)"
    )
    made.add_argument(
        "--folder", default="/dev/shm", help="folder in memory for the cache (default: /dev/shm)"
    )
    made.add_argument("--spill", default=tempfile.gettempdir(), help="folder on disk for the cache")
    made.add_argument(
        "--mindspore", metavar="PYTHON", help="a Python interpreter that has MindSpore, to measure it too"
    )
    made.add_argument("--child", help=argparse.SUPPRESS)
    return made


@dataclass(frozen=True, slots=True)
class First:
    """A kind of first pass.

    keep     what the cache stores of a photo
    spills   if True, only a quarter of the rows' bytes fits into memory
    jobs     number of processes at the same time; each makes 1/jobs of the rows
    one_set  if True, all processes read the same records and store them in one cache set
    """

    keep: Keep
    spills: bool = False
    jobs: int = 1
    one_set: bool = False

    def __str__(self) -> str:
        words = [f"keeps {self.keep}"]
        words += ["with spill"] * self.spills + [f"{self.jobs} at once"] * (self.jobs > 1)
        return ", ".join(words + ["one set"] * self.one_set)

    def without(self) -> First:
        """Return the same pass without a cache."""
        return replace(self, keep="nothing", spills=False, one_set=False)

    def run(self, args: argparse.Namespace, photos: Photos) -> dict[str, float]:
        """Run the pass; return seconds and CPU seconds of all processes, and the fraction of rows stored."""
        rows = photos.rows // self.jobs
        with scratch(args.folder) as folder, scratch(args.spill) as disk:
            room = photos.room(self.keep)
            one = Passes(
                list=photos.list,
                keep=self.keep,
                memory=photos.row_bytes(self.keep) // 4 if self.spills else room,
                spill=disk if self.spills else None,
                workers=args.workers,
                rows=rows,
                batches=max(rows // ROWS - AHEAD, 1),
            )
            folders = [folder if self.one_set else f"{folder}/{job}" for job in range(self.jobs)]
            for each in folders:
                Path(each).mkdir(exist_ok=True)
            done = at_once([replace(one, folder=each) for each in folders])
        stored = sum(each["stored"] for each in done)
        left_out = one.batches * ROWS - stored if self.one_set else sum(each["left_out"] for each in done)
        return {
            "cpu_s": sum(each["cpu_s"] for each in done),
            "wall_s": max(each["wall_s"] for each in done),
            "stored": stored / max(stored + max(left_out, 0), 1),  # 0 without a cache
        }


# Both passes of a pair are compared with the same pass without a cache, which runs between them.
FIRST = (
    (First("images"), First("files")),
    (First("images", spills=True), First("files", spills=True)),
    (First("images", jobs=JOBS), First("files", jobs=JOBS)),
    (First("images", jobs=JOBS, one_set=True), First("files", jobs=JOBS, one_set=True)),
)


def first(args: argparse.Namespace, photos: Photos) -> None:
    """Measure first passes with and without a cache, and print the table."""
    found: dict[First, list[tuple[dict[str, float], dict[str, float]]]] = {}
    for number in range(-1, args.rounds):  # the first round warms up files and memory, and isn't counted
        for before, after in FIRST:
            results = {}
            for one in (before, before.without(), after)[:: -1 if number % 2 else 1]:
                progress(f"round {number + 1} of {args.rounds}: {one}")
                results[one] = one.run(args, photos)
            if number >= 0:
                for one in (before, after):
                    found.setdefault(one, []).append((results[one], results[before.without()]))
    progress("")
    rows: list[list[Any]] = []
    for one, pairs in found.items():
        cached, plain = ([pair[side] for pair in pairs] for side in (0, 1))
        row: list[Any] = [str(one)]
        for key in ("cpu_s", "wall_s"):
            beside = ratio(column(cached, key), column(plain, key))
            row += [f"{beside.median:.3f}", Interval.of_median(beside.values)]
        per_row = [1e3 * seconds / photos.rows for seconds in column(plain, "cpu_s")]
        rows.append([*row, Figure(per_row, ".3f"), f"{Figure(column(cached, 'stored')).median:.1%}"])
    interval = "95% interval" if args.rounds > 5 else "range"
    header = [
        "first pass that",
        "CPU ÷ without",
        interval,
        "seconds ÷ without",
        interval + " ",
        "CPU ms without",
    ]
    note = f"{photos.rows:,} rows per pass, {args.rounds} pairs, {args.workers} workers per process"
    report(args, [*header, "rows stored"], rows, note)


def later(args: argparse.Namespace, photos: Photos) -> None:
    """Compare later passes with copies, with no cache, and with MindSpore, and print the table."""
    results: dict[str, dict[str, list[float]]] = {}
    with scratch(args.folder) as folder:
        one = Passes(
            list=photos.list,
            keep="images",
            folder=folder,
            memory=photos.room("images"),
            workers=args.workers,
        )
        one.run()
        for output in ("uint8", "float32"):
            progress(f"later passes, {output}")
            given = json.dumps({**as_json(one), "output": output})
            command = [sys.executable, __file__, args.path, "--child", given, "--passes", args.passes]
            results[output] = last_json(command)
    rows: list[list[Any]] = []
    for output, seconds in results.items():
        rates = {name: [1 / each for each in per_row] for name, per_row in seconds.items()}
        rows += [[f"{output}: {name}", Figure(each), ""] for name, each in rates.items()]
        for name in ("two threads' copies", "without a cache"):
            rows.append([f"{output}: later pass ÷ {name}", "", ratio(rates["later pass"], rates[name])])
    notes = [f"{photos.rows:,} rows per pass, {args.passes} passes, {args.workers} workers"]
    if args.mindspore:
        progress("MindSpore")
        theirs = mindspore(args, photos)
        rate = Figure(theirs["later pass"])
        ours = Figure([1 / each for each in results["float32"]["later pass"]])
        rows += [[f"float32: MindSpore, {name}", Figure(each), ""] for name, each in theirs.items()]
        rows.append(
            ["float32: later pass ÷ MindSpore's, both medians", "", f"{ours.median / rate.median:.1f}"]
        )
        notes.append(f"MindSpore: {args.workers} workers, cache server, cache after the last operation")
    progress("")
    report(args, ["", "images/s", "ratio"], rows, *notes)


def as_json(passes: Passes) -> dict[str, Any]:
    """Return the fields of ``passes`` as a dict."""
    return {name: getattr(passes, name) for name in Passes.__slots__}


def turns(args: argparse.Namespace, passes: Passes) -> dict[str, list[float]]:
    """Measure seconds per row in turns in this process: from the cache, by copying, and without a cache."""
    cached = Turns(passes.pipeline().loader(num_workers=passes.workers))
    plain = Turns(replace(passes, keep="nothing").pipeline().loader(num_workers=passes.workers))
    rows = len(Path(passes.list).read_bytes().splitlines())
    source = np.random.default_rng(0).integers(0, 256, (rows, SIDE_PX * SIDE_PX * 3), np.uint8)
    seconds: dict[str, list[float]] = {"later pass": [], "two threads' copies": [], "without a cache": []}
    for _ in range(args.passes):
        seconds["later pass"].append(cached.turn(rows // ROWS)[0] / (rows // ROWS * ROWS))
        seconds["two threads' copies"].append(copy_s(source) / rows)
        seconds["without a cache"].append(plain.turn(UNCACHED_BATCHES)[0] / (UNCACHED_BATCHES * ROWS))
    cached.close()
    plain.close()
    return seconds


def copy_s(source: Any) -> float:
    """Return the seconds in which two threads copy all rows into slots, half of them each."""
    slots = np.zeros((2, ROWS, source.shape[1]), np.uint8)

    def copy(number: int) -> None:
        for row in range(number, len(source), 2):
            np.copyto(slots[number, row // 2 % ROWS], source[row])

    with ThreadPoolExecutor(2) as threads:
        begin = time.perf_counter()
        list(threads.map(copy, range(2)))
        return time.perf_counter() - begin


def mindspore(args: argparse.Namespace, photos: Photos) -> dict[str, list[float]]:
    """Return MindSpore's images per second without a cache, in the first pass with one, and in later passes."""
    admin = str(Path(args.mindspore).with_name("dataset-cache"))
    env = os.environ | {
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")
    }  # its script fails without the variable
    port = str(free_port())

    def ask(*words: str) -> str:
        done = subprocess.run(
            [admin, *words, "-p", port], env=env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(
                f"dataset-cache {' '.join(words)} ended with exit status {done.returncode}: {done.stderr}"
            )
        return done.stdout

    def seconds(folder: str, passes: int, *session: str) -> list[float]:
        command = [args.mindspore, MINDSPORE, folder, "float32", args.workers, passes, *session]
        result = last_json(command, env={"LD_LIBRARY_PATH": ""})
        return [result["rows"] / each for each in result["seconds"]]

    with tempfile.TemporaryDirectory() as folder:
        link(photos, Path(folder, "class"))
        plain = seconds(folder, 1)
        ask("--start")
        try:
            found = re.search(r"(\d+)\s*$", ask("-g").strip())
            assert found is not None
            cached = seconds(folder, 1 + args.passes, found[1], port)
        finally:
            ask("--stop")
    return {"without a cache": plain, "first pass": cached[:1], "later pass": cached[1:]}


def link(photos: Photos, folder: Path) -> None:
    """Fill a class folder with a link for each record."""
    folder.mkdir()
    for number, line in enumerate(Path(photos.list).read_text().splitlines()):
        (folder / f"{number:06d}.jpg").symlink_to(line.rpartition("\t")[0])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def memory(args: argparse.Namespace, photos: Photos) -> None:
    """Measure bytes on storage, and a reader's memory with and without a cache; print the table."""
    rows: list[list[Any]] = []
    kept: Sequence[tuple[Keep, int]] = [*(("images", side) for side in SMALL_SIDES), ("files", SIDE_PX)]
    for keep, side in kept:
        progress(f"memory: {keep}, {side}")
        one = Passes(list=photos.list, keep=keep, side=side, workers=args.workers, memory=photos.room(keep))
        with scratch(args.folder) as folder:
            filled = replace(one, folder=folder)
            stored = filled.run()
            share = stored_bytes(folder) / photos.row_bytes(keep, side)
            reader = replace(filled, passes=3).run()
        plain = replace(one, keep="nothing", passes=3, rows=photos.rows // 10).run()
        mean = photos.row_bytes(keep, side) // photos.rows
        peaks = [f"{each['peak_pss_mib']:.0f}" for each in (reader, plain)]
        counts = [
            f"{stored['stored'] / photos.rows:.1%}",
            f"{reader['hits'] / (reader['hits'] + reader['misses']):.1%}",
        ]
        rows.append([keep, f"{mean:,}", f"{share:.4f}", *counts, *peaks, str(reader["mapped"])])
    progress("")
    header = ["stored", "bytes per row", "on storage ÷ of rows", "rows stored", "hits of a reader"]
    header += ["its peak PSS MiB", "without a cache", "cache files that it maps"]
    report(args, header, rows, f"{photos.rows:,} rows; PSS: of the whole process")


def jobs(args: argparse.Namespace, photos: Photos) -> None:
    """Measure four jobs that share one cache set, then jobs that start later; print the table."""
    one = Passes(list=photos.list, keep="images", memory=photos.room("images"), workers=1, output="uint8")
    rows: list[list[Any]] = []
    copy_bytes = photos.row_bytes("images")

    def add(name: str, done: list[dict[str, Any]], folder: str) -> None:
        share = f"{stored_bytes(folder) / copy_bytes:.3f}"
        for number, each in enumerate(done):
            hits = f"{each['hits'] / (each['hits'] + each['misses']):.1%}"
            rows.append([f"{name}, job {number + 1}", each["wall_s"], each["cpu_s"], hits, share])

    with scratch(args.folder) as folder:
        several = [replace(one, folder=folder)] * (JOBS - 1)
        slow = replace(one, folder=folder, pause_s=0.2)
        progress("four jobs at once")
        add(f"{JOBS} at once, the last one slow", at_once([*several, slow]), folder)
        progress("jobs that start later")
        add("all rows stored", at_once([replace(one, folder=folder)] * JOBS), folder)
    with scratch(args.folder) as folder:
        replace(one, folder=folder, rows=photos.rows // 2).run()
        add("half of the rows stored", [replace(one, folder=folder).run()], folder)
    progress("")
    header = ["", "seconds", "CPU seconds", "hits", "on storage ÷ one copy of all rows"]
    report(
        args,
        header,
        rows,
        f"{photos.rows:,} rows, one worker per job; slow: a pause of 0.2 s after each batch",
    )


RUNS: dict[str, Callable[[argparse.Namespace, Photos], None]] = {
    "first": first,
    "later": later,
    "memory": memory,
    "jobs": jobs,
}

if __name__ == "__main__":
    main()
