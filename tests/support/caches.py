"""Small caches for tests, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import standpipe as sp
from standpipe.cache.sets.opened import OpenSet
from standpipe.cache.sets.sets import open_set
from standpipe.identity.cached_set import Identity

RECORDS = 64
ROW = 10_000  # bytes
PATIENCE_MS = 10_000


def identity(**parts: str | int) -> Identity:
    """Of a small set."""
    return Identity({"source": "photos", **parts}, "photos")


def base(directory: Path) -> Path:
    """Standpipe's folder in a directory."""
    return directory / f"standpipe-{os.geteuid()}" / "v1"


def opened(cache: sp.Cache, named: Identity | None = None, **facts: Any) -> OpenSet:
    """A set of ``RECORDS`` rows of ``ROW`` bytes, open; the caller closes it."""
    found = open_set(
        cache, named or identity(), **{"records": RECORDS, "kind": "images", "row_bytes": ROW, **facts}
    )
    found.look_for_spill()
    return found


def row(record: int, length: int = ROW) -> bytes:
    """Return the bytes of a record's row, ``length`` of them."""
    return np.random.default_rng(record).integers(0, 256, length, np.uint8).tobytes()


def fill(found: OpenSet, records: range = range(RECORDS), length: int = ROW) -> int:
    """Store rows, as a loader and its keeper do. Return how many the set has then."""
    for record in records:
        found.supply()
        found.store.put(record, row(record, length))
    return int(found.store.have(0, records.stop).sum())


def right(found: OpenSet, length: int = ROW) -> int:
    """Return how many rows the set has. Assert that each has the bytes that were stored."""
    number = 0
    for record in range(RECORDS):
        got = found.store.get(record)
        if got is not None:
            assert got.tobytes() == row(record, length)
            number += 1
    return number


def tmpfs(folder: Path, size: str) -> None:
    """Mount a tmpfs of this size. The caller needs the right to do so, and unmounts it."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
