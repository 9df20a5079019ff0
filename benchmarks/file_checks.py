"""Measure the speed and memory of checking all files of a data set.

Each method checks all photos in a new process with an empty cache folder: ``check_files`` with and without a search
for copies, the loader decoding whole photos, and Pillow decoding them in as many threads. CPU time per photo can be
compared on a busy machine too. A second check, when no file has changed, is measured as well. With ``--records``, a
list with that many lines, which all name one small photo, is compared with a list of 10,000 lines: time per record and
growth of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from _measure import MIB, Figure, column, in_turn, last_json, parser, report
from PIL import Image

import standpipe as sp
from standpipe.system.machine import cpu_count

FEW = 10_000


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument(
        "--records", type=int, default=0, metavar="N", help="lines of the long list (default: no such list)"
    )
    arguments.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.child:
        print(json.dumps(WAYS[args.child](args.path)))
        return
    photos = [way for way in WAYS if way != "a list"]
    results = in_turn(args.rounds, {way: partial(child, args.path, way) for way in photos})
    wall = Figure(column(results["Pillow"], "cpu_ms")).median
    rows: list[list[Any]] = []
    for way, measured in results.items():
        cpu = Figure(column(measured, "cpu_ms"), ".3f")
        rate = Figure(column(measured, "rate"), ".0f")
        peak = Figure(column(measured, "peak_mib"), ".0f")
        rows.append([way, rate, cpu, f"{cpu.median / wall:.2f}", peak])
    if args.records:
        rows += [long_list(records) for records in (FEW, args.records)]
    report(args, ["", "files/s", "CPU ms/file", "÷ Pillow", "peak MiB"], rows, packages=["pillow"])


def child(path: str, way: str, *, cache: str | None = None) -> dict[str, Any]:
    """Measure one method in a new process with its own cache folder."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = cache or folder
        return last_json([sys.executable, __file__, path, "--child", way])


def measured(files: int, look: Callable[[], object]) -> dict[str, float]:
    """Call ``look`` once; return files per second, CPU time per file and peak memory."""
    begin, cpu = time.perf_counter(), time.process_time()
    look()
    seconds = time.perf_counter() - begin
    cpu_ms = (time.process_time() - cpu) * 1e3 / files
    return {"rate": files / seconds, "cpu_ms": cpu_ms, "peak_mib": peak_mib()}


def peak_mib() -> float:
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) * 1024 / MIB for line in file if line.startswith("VmHWM"))


def checked(path: str, **options: Any) -> dict[str, float]:
    source = sp.ImageFolder(path)
    return measured(source.open().num_records, lambda: sp.check_files(source, **options))


def checked_again(path: str) -> dict[str, float]:
    source = sp.ImageFolder(path)
    sp.check_files(source)
    return measured(source.open().num_records, lambda: sp.check_files(source))


def loaded(path: str) -> dict[str, float]:
    """Decode every photo completely with the loader, at an output size whose resize costs almost no time."""
    pipeline = sp.Pipeline(sp.ImageFolder(path)).map(sp.Resize((8, 8))).batch(64, last_batch="partial")
    with pipeline.loader() as loader:
        return measured(loader.plan.source.num_records, lambda: sum(1 for _ in loader))


def by_pillow(path: str) -> dict[str, float]:
    source = sp.ImageFolder(path).open()
    paths = [source.name(record) or "" for record in range(source.num_records)]

    def load(path: str) -> None:
        with Image.open(path) as image:
            image.load()

    def look() -> None:
        with ThreadPoolExecutor(cpu_count()) as threads:
            list(threads.map(load, paths))

    return measured(len(paths), look)


def long_list(records: int) -> list[Any]:
    """Return the table's row for a list with ``records`` lines."""
    with tempfile.TemporaryDirectory() as folder:
        Image.new("RGB", (8, 8)).save(Path(folder, "a.jpg"))
        with Path(folder, "list.txt").open("w") as file:
            file.writelines("a.jpg\n" for _ in range(records))
        found = child(str(Path(folder, "list.txt")), "a list", cache=folder)
    return [
        f"{records:,} × one small photo",
        found["rate"],
        f"{found['cpu_ms']:.3f}",
        "—",
        f"{found['peak_mib']:.0f}",
    ]


def listed(path: str) -> dict[str, float]:
    source = sp.FileList(path, labels=False)
    return measured(source.open().num_records, lambda: sp.check_files(source))


WAYS: dict[str, Callable[[str], dict[str, float]]] = {
    "check_files": checked,
    "check_files(duplicates=False)": lambda path: checked(path, duplicates=False),
    "check_files again": checked_again,
    "loader": loaded,
    "Pillow": by_pillow,
    "a list": listed,
}


if __name__ == "__main__":
    main()
