"""Helpers for the benchmarks of faults: bad files, a thread that kills workers, and checksums of rows."""

from __future__ import annotations

import os
import signal
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

Row = tuple[int, int]  # a record's number, and a checksum of what was delivered for it


def spoil(folder: Path, share: float) -> set[str]:
    """Damage a fraction ``share`` of a folder's files, and return their paths.

    A file is cut short, emptied, or replaced by text, in turn.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    chosen = np.random.default_rng(1).choice(len(files), max(round(share * len(files)), 1), replace=False)
    for number, place in enumerate(chosen.tolist()):
        data = files[place].read_bytes()
        files[place].write_bytes((data[: len(data) * 9 // 10], b"", b"no image at all")[number % 3])
    return {str(files[place]) for place in chosen.tolist()}


def identity(image: Any) -> Any:
    """Return the image unchanged. As Python code, it makes the loader use Python workers."""
    return image


def rows_of(batches: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """Yield the record number and a checksum for each row of ``batches``."""
    for batch in batches:
        images, indices = batch["image"], batch["index"].tolist()
        for number, index in enumerate(indices):
            yield index, zlib.crc32(images[number])


def worker_processes() -> list[int]:
    """Return the IDs of the worker processes: children of the worker server, which is a child of this process."""
    return [worker for server in _children(os.getpid()) for worker in _children(server)]


class Killer:
    """A thread that kills one worker process every ``every_s`` seconds, inside a ``with`` block.

    kills  number of processes killed so far
    """

    def __init__(self, every_s: float, seed: int = 0) -> None:
        self._every_s, self._random = every_s, np.random.default_rng(seed)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._kill, daemon=True)
        self.kills = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _kill(self) -> None:
        while not self._ended.wait(self._every_s):
            workers = worker_processes()
            if workers:
                try:
                    os.kill(int(self._random.choice(workers)), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.kills += 1


@contextmanager
def faults(text: str) -> Iterator[None]:
    """Set STANDPIPE_FAULTS for worker processes that start inside the ``with`` block."""
    before = os.environ.pop("STANDPIPE_FAULTS", None)
    if text:
        os.environ["STANDPIPE_FAULTS"] = text
    try:
        yield
    finally:
        os.environ.pop("STANDPIPE_FAULTS", None)
        if before is not None:
            os.environ["STANDPIPE_FAULTS"] = before


def _children(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # it has ended
            continue
    return found
