"""Helpers for the benchmarks of the cache: a list of photos, passes over it in a new process, and their cache.

    python benchmarks/_cached.py '{"list": "list.txt", …}'

runs the passes that ``Passes`` describes and prints their measurements as one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal

from _measure import MIB, last_json
from beside_torch import listed

import standpipe as sp
from standpipe.cli.bench import PeakMemory

ROWS = 100  # in a batch
SIDE_PX = 224
ROOM = 1.25  # cache size ÷ bytes of rows: enough for all rows and the session's own tables

Keep = Literal["nothing", "files", "images"]
Output = Literal["uint8", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """A task that reads a list of photos several times: evaluation, or training on random crops.

    keep       what the cache stores of a photo: nothing, its file, or its transformed image
    folder     the cache's folder; None with ``keep="nothing"``
    memory     most bytes that the cache may store there
    spill      folder on disk for rows that don't fit into ``memory``; None: no such folder
    rows       number of records from the beginning of the list; 0: all
    passes     number of passes
    batches    number of batches in the last pass; 0: all. A loader prefetches from the next epoch. A comparison of a
               pass that stores rows with one that doesn't stops both early, so that both make the same rows.
    pause_s    seconds to wait after each batch, like a training step
    side       side of an image in pixels
    """

    list: str
    keep: Keep = "nothing"
    folder: str | None = None
    memory: int = 0
    spill: str | None = None
    output: Output = "uint8"
    train: bool = False
    workers: int = 2
    rows: int = 0
    passes: int = 1
    batches: int = 0
    pause_s: float = 0.0
    side: int = SIDE_PX

    def pipeline(self) -> sp.Pipeline:
        """Return the pipeline of each pass."""
        made = sp.Pipeline(sp.FileList(self.list))
        made = made.take(self.rows) if self.rows else made
        made = made.shuffle(seed=0) if self.train else made
        made = made.cache(self._cache()) if self.keep == "files" else made
        made = made.map(*self._geometry())
        made = made.cache(self._cache()) if self.keep == "images" else made
        made = made.map(sp.Normalize()) if self.output == "float32" else made
        return made.batch(ROWS, last_batch="pad")

    def _geometry(self) -> Sequence[Any]:
        if self.train:
            return sp.RandomResizedCrop(self.side), sp.RandomHorizontalFlip()
        return sp.Resize(self.side * 256 // 224), sp.CenterCrop(self.side)

    def _cache(self) -> sp.Cache:
        return sp.Cache("benchmark", self.memory, directory=self.folder, spill=self.spill, strict=True)

    def run(self, env: dict[str, str] | None = None) -> dict[str, Any]:
        """Run ``made`` in a new process, and return its result."""
        return last_json([sys.executable, __file__, json.dumps(asdict(self))], env=env)

    def made(self) -> dict[str, Any]:
        """Run the passes in this process; return times, row counts, cache counters and peak memory.

        ``wall_s`` and ``cpu_s`` run from the plan to the end of all threads; ``seconds`` has one value per pass.
        """
        memory = PeakMemory()
        cpu, begin = time.process_time(), time.perf_counter()
        seconds: list[float] = []
        with self.pipeline().loader(num_workers=self.workers) as loader:
            for number in range(self.passes):
                start = time.perf_counter()
                last = number == self.passes - 1
                for batch in islice(loader, self.batches if last and self.batches else None):
                    del batch
                    if self.pause_s:
                        time.sleep(self.pause_s)
                seconds.append(time.perf_counter() - start)
            maps = Path("/proc/self/maps").read_text()
            stats = loader.stats()  # before close(), which drops the rows that are still being made
        took = {"wall_s": time.perf_counter() - begin, "cpu_s": time.process_time() - cpu}
        return {
            **took,
            "seconds": seconds,
            "rows": stats.rows,
            "hits": stats.cache_hits,
            "misses": stats.cache_misses,
            "stored": stats.cache_stored,
            "left_out": stats.cache_skipped + stats.cache_errors,
            "peak_pss_mib": memory.stop() / MIB,
            "mapped": maps.count(self.folder) if self.folder else 0,
        }


def at_once(several: Sequence[Passes]) -> list[dict[str, Any]]:
    """Run several tasks at the same time, each in its own process; return their results."""
    with ThreadPoolExecutor(len(several)) as threads:
        return list(threads.map(Passes.run, several))


@contextmanager
def scratch(parent: str, prefix: str = "standpipe-cached-") -> Iterator[str]:
    """Make a folder for a cache inside ``parent``, and remove it at the end of the ``with`` block."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stored_bytes(*folders: str) -> int:
    """Return the number of bytes that the files below ``folders`` occupy."""
    files = (Path(parent, name) for top in folders for parent, _, names in os.walk(top) for name in names)
    return sum(file.lstat().st_blocks * 512 for file in files)


@dataclass(frozen=True, slots=True)
class Photos:
    """A file list that repeats the photos of a folder; each repetition is a record of its own.

    list        path of the list
    rows        number of records
    file_bytes  sum of the records' file sizes
    """

    list: str
    rows: int
    file_bytes: int

    def row_bytes(self, keep: Keep, side: int = SIDE_PX) -> int:
        """Return the number of bytes of all rows that a cache with this ``keep`` stores."""
        return self.file_bytes if keep == "files" else self.rows * side * side * 3

    def room(self, keep: Keep) -> int:
        """Return a cache size in bytes that is large enough for every row."""
        return int(ROOM * self.row_bytes(keep)) + 64 * MIB

    @classmethod
    def make(cls, path: str, folder: str, rows: int) -> Photos:
        """Write ``list.txt`` into ``folder``: ``rows`` lines that repeat the photos of ``path``."""
        files = [Path(file).resolve() for file, _ in listed(path)]
        if not files:
            raise SystemExit(f"{path} has no class folders with JPEGs. Make some: standpipe synth {path}")
        chosen = list(islice(cycle(files), rows))
        made = Path(folder, "list.txt")
        made.write_text("".join(f"{file}\t0\n" for file in chosen))
        sizes = {file: file.stat().st_size for file in files}
        return cls(str(made), rows, sum(sizes[file] for file in chosen))


if __name__ == "__main__":
    print(json.dumps(Passes(**json.loads(sys.argv[1])).made()))
