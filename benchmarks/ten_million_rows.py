"""Measure what ten million rows cost: to index, to start, and in memory.

A list of --rows lines, with paths of 60 to 100 characters that reach the photos through folders of links, is made in
a scratch folder; 100,000,000 rows make one of 8 GB. Then, each in a process of its own: the index is built; the same
pipeline runs over it and over a list of 10,000 rows; and PyTorch's DataLoader over a Python list of the same paths,
where torch is installed. Memory is the proportional set size (PSS) of the process and its workers, which varies by a
tenth from run to run with what other processes share.

With --shards the rows are members of tar shards instead: names that are links to one shard with 1,000 photos and their
labels, so 10,000,000 rows are 20,000,000 members of 10,000 shards. PyTorch is left out.

With --boxes 10 the index has ten random boxes and labels of each row's image, which batches have too. It is made
beforehand, as annotation files of so many images would take hours to write and read. PyTorch is left out.

With --executor process a Python function stands in the pipeline, so that worker processes have something to
do.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from _measure import MIB, Figure, column, in_turn, last_json, parser, progress, report
from _plot import line_chart
from beside_torch import PillowImages, endless, listed

import standpipe as sp
from standpipe.cli.bench import process_tree, proportional_bytes, seconds_since_process_start
from standpipe.source.annotations.listing import AnnotationListing
from standpipe.source.annotations.paired import image_sizes
from standpipe.source.annotations.table import MOST, Faults
from standpipe.source.index.file import SIZES, Facts, IndexFile, read_index
from standpipe.source.index.instances import write_instances
from standpipe.source.index.listing import Listing
from standpipe.source.index.store import build_at
from standpipe.source.index.writer import IndexWriter
from standpipe.system.claims import claimed
from standpipe.system.machine import free_memory_bytes

FEW_ROWS = 10_000
PHOTOS = 1_000
BYTES_PER_ROW = 100  # of list and index, generously
BYTES_PER_BOX = 32
ROWS_AT_ONCE = 100_000
TORCH_BYTES_PER_ROW = 400  # of a Python list of paths, its labels and the sampler's permutation
LOOK_EVERY_S = 0.25


def main() -> None:
    args = arguments().parse_args()
    if args.child is not None:
        print(json.dumps(CHILDREN[args.child](args)))
        return
    with tempfile.TemporaryDirectory(prefix="standpipe-rows-", dir=args.scratch) as folder:
        needed, free = (
            args.rows * (BYTES_PER_ROW + args.boxes * BYTES_PER_BOX),
            shutil.disk_usage(folder).free,
        )
        if needed > free:
            print(
                f"skipped: needs {needed / 1e9:.1f} GB in {args.scratch}, which has {free / 1e9:.1f}; see --scratch"
            )
            return
        compare(args, Path(folder))


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, rounds=3)
    made.add_argument("--rows", type=int, default=10_000_000, metavar="N", help="default: 10,000,000")
    made.add_argument("--shards", action="store_true", help="rows are members of tar shards, not of a list")
    made.add_argument("--boxes", type=int, default=0, metavar="N", help="of each row of a list (default: 0)")
    made.add_argument("--workers", type=int, default=8, metavar="N", help="of each (default: 8)")
    made.add_argument("--batch", type=int, default=64, metavar="N", help="rows (default: 64)")
    made.add_argument("--batches", type=int, default=150, metavar="N", help="of each run (default: 150)")
    made.add_argument(
        "--executor",
        choices=("thread", "process"),
        default="thread",
        help="who runs Python code (default: thread)",
    )
    made.add_argument("--scratch", default=tempfile.gettempdir(), metavar="FOLDER", help="for list and index")
    made.add_argument("--plot", metavar="FOLDER", help="draw memory over time there, as PNG")
    made.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    return made


def compare(args: argparse.Namespace, folder: Path) -> None:
    """Make the lists, run everything, and report."""
    many, few = (folder / f"{name}{'-*.tar' if args.shards else '.txt'}" for name in ("many", "few"))
    print(f"making {args.rows:,} rows in {folder}", file=sys.stderr)
    make = make_shards if args.shards else make_lists
    make(args.path, folder, {many: args.rows, few: min(args.rows, FEW_ROWS)})
    for path in (many, few) if args.boxes else ():
        write_boxes(path, args.boxes, len(listed(args.path)[:PHOTOS]))
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}

    def child(kind: str, path: Path) -> dict[str, Any]:
        options = (
            "--boxes",
            args.boxes,
            "--workers",
            args.workers,
            "--batch",
            args.batch,
            "--batches",
            args.batches,
        )
        command = [sys.executable, __file__, path, *options, "--executor", args.executor, "--child", kind]
        return last_json(command, env=cache)

    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "index": lambda: child("index", many),
        f"standpipe, {args.rows:,} rows": lambda: child("standpipe", many),
        f"standpipe, {FEW_ROWS:,} rows": lambda: child("standpipe", few),
    }
    why_no_torch = "it doesn't read shards by record" if args.shards else torch_left_out(args.rows)
    if args.boxes:
        del measures["index"]
        why_no_torch = "its start would read all boxes"
    if not why_no_torch:
        measures[f"torch, {args.rows:,} rows"] = lambda: child("torch", many)
    results = in_turn(args.rounds, measures)
    index = results.pop("index", None)
    rows: list[list[Any]] = [
        [
            name,
            Figure(column(runs, "first_batch_s"), ".2f"),
            Figure(column(runs, "peak_pss_mib"), ".0f"),
            Figure(column(runs, "flatness"), ".3f"),
            Figure(column(runs, "images_per_s"), ".0f"),
        ]
        for name, runs in results.items()
    ]
    ours, small = (column(runs, "peak_pss_mib") for runs in list(results.values())[:2])
    notes = [
        index_note(args, index, many) if index else f"{args.boxes:,} boxes of each row",
        f"peak memory over {args.rows:,} rows ÷ over {FEW_ROWS:,}: "
        f"{statistics.median(ours) / statistics.median(small):.3f}",
        f"flatness: memory in the last quarter of a run ÷ in its second quarter; {args.workers} workers, "
        f"executor {args.executor}, batch {args.batch}",
        *([f"torch left out: {why_no_torch}"] if why_no_torch else []),
    ]
    header = ["", "first batch s", "peak PSS MiB", "flatness", "images/s"]
    report(args, header, rows, *notes, packages=("torch",))
    if args.plot is not None:
        curves = {name: runs[0]["memory"] for name, runs in results.items()}
        path = Path(args.plot) / "ten_million_rows.png"
        line_chart(path, "memory of a process and its workers", "seconds", "PSS, MiB", curves)
        print(f"  {path}")


def index_note(args: argparse.Namespace, index: list[dict[str, Any]], many: Path) -> str:
    """Return how fast an index was built, and how large it is."""
    rate = Figure((args.rows / seconds / 1e6 for seconds in column(index, "seconds")), ".2f")
    of = "shards" if args.shards else f"a list of {many.stat().st_size / 1e6:,.0f} MB"
    return f"index: {rate} million rows/s, {index[0]['size_bytes'] / 1e6:.1f} MB for {of}"


def torch_left_out(rows: int) -> str:
    """Return why torch can't run over so many rows here; empty if it can."""
    if find_spec("torch") is None:
        return "it isn't installed"
    needed, free = rows * TORCH_BYTES_PER_ROW, free_memory_bytes()
    return f"needs {needed / 1e9:.0f} GB of memory, {free / 1e9:.0f} are free" if needed > free else ""


def make_lists(photos: str, folder: Path, rows: dict[Path, int]) -> None:
    """Write lists whose paths reach the photos through links: another link for every 1,000 rows."""
    root = Path(photos).resolve()
    files = [(Path(file).resolve().relative_to(root), label) for file, label in listed(photos)][:PHOTOS]
    if not files:
        raise SystemExit(f"{photos} holds no class folders of JPEGs; standpipe synth makes some")
    lines = [f"{file}\t{label}" for file, label in files]
    longest = max(len(str(file)) for file, _ in files)
    for path, count in rows.items():
        with path.open("w") as out:
            for start in range(0, count, len(lines)):
                number = start // len(lines)
                width = 62 + number % 36 - longest  # so that paths have 60 to 100 characters
                prefix = f"{f'{path.stem}-{number:07d}':x<{max(width, 20)}}/"
                (folder / prefix[:-1]).symlink_to(root)
                text = f"\n{prefix}".join(lines[: count - start])
                out.write(f"{prefix}{text}\n")
                if number % 1000 == 0:
                    progress(f"{start:,} of {count:,} rows")
    progress("")


def make_shards(photos: str, folder: Path, rows: dict[Path, int]) -> None:
    """Write a shard of 1,000 photos and their labels, and links to it, one for every 1,000 rows."""
    files = listed(photos)[:PHOTOS]
    if not files:
        raise SystemExit(f"{photos} holds no class folders of JPEGs; standpipe synth makes some")
    whole = folder / "whole.tar"
    with tarfile.open(whole, "w") as tar:
        for number in range(PHOTOS):
            path, label = files[number % len(files)]
            for kind, data in (("jpg", Path(path).read_bytes()), ("cls", b"%d" % label)):
                about = tarfile.TarInfo(f"{number:06}.{kind}")
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))
    for pattern, count in rows.items():
        for number in range(count // PHOTOS):
            (folder / pattern.name.replace("*", f"{number:06}")).symlink_to(whole)


def write_boxes(path: Path, boxes: int, photos: int) -> None:
    """Write the index of a list, with ``boxes`` random boxes of each row's image, beside it."""
    random = np.random.default_rng(0)
    subject: Any = sp.FileList(path).subject()

    def finish(writer: IndexWriter, facts: Facts, draft: IndexFile) -> Facts:
        listing = Listing(subject, draft)
        paths = listing.paths(np.arange(min(photos, facts.rows)))
        known = image_sizes([paths[row] for row in range(len(paths))], Faults("photos"))
        instances = {}
        for start in range(0, facts.rows, ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, facts.rows))
            sizes = known[rows % len(known)]
            corners = np.sort(random.random((len(rows), boxes, 2, 2), np.float32), axis=2)
            corners *= sizes[:, None, None, ::-1]
            values: dict[str, Any] = {
                "boxes": corners.reshape(-1, 4),
                "labels": random.integers(0, 80, len(rows) * boxes),
            }
            instances = write_instances(writer, (rows + 1) * boxes, values)
            writer.add(SIZES, sizes.astype("<u4"))
            progress(f"boxes of {start:,} of {facts.rows:,} rows")
        optional = {"instances": 1, "sizes": 1}
        return replace(facts, seen={**facts.seen, MOST: boxes}, optional=optional, instances=instances)

    index = os.fsencode(path.with_suffix(".index"))
    with claimed(index) as file:
        build_at(subject, file, index, finish=finish)
    os.sync()  # a disk that still writes would slow down starts
    progress("")


@dataclass(frozen=True)
class Boxed:
    """The source of a list with the index that ``write_boxes`` made."""

    path: str

    def open(self) -> AnnotationListing:
        subject: Any = sp.FileList(self.path).subject()
        return AnnotationListing(subject, read_index(os.fsencode(Path(self.path).with_suffix(".index"))))

    def describe(self) -> str:
        return f"Boxed({self.path!r})"


def source_at(path: str) -> sp.FileList | sp.TarShards:
    """Return the source of rows that ``make_lists`` or ``make_shards`` made."""
    return sp.TarShards(path) if path.endswith(".tar") else sp.FileList(path)


def build(args: argparse.Namespace) -> dict[str, Any]:
    """Build the index anew."""
    begin = time.perf_counter()
    built = sp.build_index(source_at(args.path))
    return {"seconds": time.perf_counter() - begin, "size_bytes": built.size_bytes}


class MemoryOverTime:
    """The proportional set size of this process and its children, looked at by a thread of its own."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> list[tuple[float, float]]:
        """(seconds since the process started, MiB) of every look."""
        self._done.set()
        self._thread.join()
        return self._points

    def _watch(self) -> None:
        while not self._done.wait(LOOK_EVERY_S):
            size = sum(map(proportional_bytes, process_tree()))
            self._points.append((round(seconds_since_process_start(), 2), round(size / MIB, 1)))


def mirrored(image: Any) -> Any:
    """Python code for the workers: the image, right to left."""
    return np.ascontiguousarray(image[:, ::-1])


def run_ours(args: argparse.Namespace) -> dict[str, Any]:
    source = Boxed(args.path) if args.boxes else source_at(args.path)
    pipeline = sp.Pipeline(source).shuffle(seed=0).map(sp.RandomResizedCrop(224))
    if args.executor == "process":
        pipeline = pipeline.map(mirrored, field="image")
    memory = MemoryOverTime()
    with pipeline.batch(args.batch).loader(num_workers=args.workers, executor=args.executor) as loader:
        return watched(args, memory, (len(batch["index"]) for batch in endless(loader)))


def run_torch(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    memory = MemoryOverTime()
    base = Path(args.path).parent
    with Path(args.path).open() as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)
        files = [(f"{base}/{path}", int(label)) for path, label in rows]
    kind: Any = torch.utils.data.DataLoader
    loader = kind(PillowImages(files), args.batch, shuffle=True, num_workers=args.workers, drop_last=True)
    return watched(args, memory, (len(labels) for _, labels in endless(loader)))


def watched(args: argparse.Namespace, memory: MemoryOverTime, batches: Iterable[int]) -> dict[str, Any]:
    """Take batches, as many in every run: memory depends on how large the largest photo so far was."""
    counts = iter(batches)
    next(counts)
    first_batch_s = seconds_since_process_start()
    begin = time.perf_counter()
    rows = sum(islice(counts, args.batches))
    elapsed = time.perf_counter() - begin
    points = memory.stop()
    running = [size for second, size in points if second > first_batch_s] or [points[-1][1]]
    quarter = max(1, len(running) // 4)
    second, last = running[quarter : 2 * quarter] or running, running[-quarter:]
    return {
        "first_batch_s": first_batch_s,
        "images_per_s": rows / elapsed,
        "peak_pss_mib": max(size for _, size in points),
        "flatness": statistics.median(last) / statistics.median(second),
        "memory": points,
    }


CHILDREN: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "index": build,
    "standpipe": run_ours,
    "torch": run_torch,
}

if __name__ == "__main__":
    main()
