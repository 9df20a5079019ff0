"""Shared by the benchmarks of the cache: a list of photos, passes over it in a process of its own, and its
store.

    python benchmarks/_cached.py '{"list": "list.txt", …}'

makes the passes that ``Passes`` describes and prints what they took as one JSON object.
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

ROWS = 100  # of a batch
SIDE_PX = 224
ROOM = 1.25  # of the bytes of rows: enough for all of them, with what a session keeps besides

Keep = Literal["nothing", "files", "images"]
Output = Literal["uint8", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Passes over a list of photos: evaluation, or training on random crops.

    keep       what the cache keeps of a photo
    folder     where; None with ``keep="nothing"``
    memory     bytes that it may keep there
    spill      where it may keep what doesn't fit
    rows       of the list, from its beginning; 0: all
    batches    of the last pass; 0: all. Loaders run ahead into the next epoch: who compares a pass that stores rows
               with one that doesn't stops before its end, so that both make the same rows
    pause_s    after each batch, as a training step would take
    side       of an image
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
        """Return what ``made`` prints, from a process of its own."""
        return last_json([sys.executable, __file__, json.dumps(asdict(self))], env=env)

    def made(self) -> dict[str, Any]:
        """Seconds and CPU seconds of this process, from the plan to the end of all threads, and of each pass."""
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
            stats = loader.stats()  # rows that are being made now are kept by nobody once it is closed
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
    """Passes of several processes, started together."""
    with ThreadPoolExecutor(len(several)) as threads:
        return list(threads.map(Passes.run, several))


@contextmanager
def scratch(parent: str, prefix: str = "standpipe-cached-") -> Iterator[str]:
    """A folder for a store, and its end."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stored_bytes(*folders: str) -> int:
    """Return the bytes that files below ``folders`` occupy."""
    files = (Path(parent, name) for top in folders for parent, _, names in os.walk(top) for name in names)
    return sum(file.lstat().st_blocks * 512 for file in files)


@dataclass(frozen=True, slots=True)
class Photos:
    """A list that names the photos of a folder over and over, so that each time is a record of its own."""

    list: str
    rows: int
    file_bytes: int

    def row_bytes(self, keep: Keep, side: int = SIDE_PX) -> int:
        """Return the bytes of all rows together."""
        return self.file_bytes if keep == "files" else self.rows * side * side * 3

    def room(self, keep: Keep) -> int:
        """Return the bytes that a cache needs to keep every row."""
        return int(ROOM * self.row_bytes(keep)) + 64 * MIB

    @classmethod
    def make(cls, path: str, folder: str, rows: int) -> Photos:
        """Write the list into ``folder``."""
        files = [Path(file).resolve() for file, _ in listed(path)]
        if not files:
            raise SystemExit(f"{path} holds no class folders of JPEGs; standpipe synth makes some")
        chosen = list(islice(cycle(files), rows))
        made = Path(folder, "list.txt")
        made.write_text("".join(f"{file}\t0\n" for file in chosen))
        sizes = {file: file.stat().st_size for file in files}
        return cls(str(made), rows, sum(sizes[file] for file in chosen))


if __name__ == "__main__":
    print(json.dumps(Passes(**json.loads(sys.argv[1])).made()))
