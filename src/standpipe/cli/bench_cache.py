"""``standpipe bench --cache``: measure a pass without a cache, a pass that fills a cache, and passes from it."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import standpipe as sp
from standpipe.cli.task import Measured, standard_task

LATER = 5  # passes from the cache


@dataclass(frozen=True, slots=True)
class Pass:
    """The times of one pass over all images, or of the median of several, in seconds.

    cpu_s  CPU time of this process
    """

    images: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Return the rate in images per second."""
        return self.images / self.seconds


@dataclass(frozen=True, slots=True)
class CacheResult(Measured):
    """The result of measuring a cache.

    without      a loader's first pass without a cache, after another one's
    first        the pass that fills it
    later        the median of passes from it
    stored       fraction of the images that had room
    bytes        bytes of their rows
    """

    without: Pass
    first: Pass
    later: Pass
    stored: float
    bytes: int

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON."""
        return {
            "without_images_per_s": round(self.without.rate, 1),
            "first_images_per_s": round(self.first.rate, 1),
            "later_images_per_s": round(self.later.rate, 1),
            "first_cpu_ratio": round(self.first.cpu_s / self.without.cpu_s, 4),
            "first_wall_ratio": round(self.first.seconds / self.without.seconds, 4),
            "later_speedup": round(self.later.rate / self.without.rate, 3),
            "stored_share": round(self.stored, 4),
            "stored_bytes": self.bytes,
            "kept": self._kept,
            **self.facts(),
        }

    def as_text(self) -> str:
        """Return the text for people, within 80 columns."""
        each = self.bytes / max(self.stored * self.plan.source.num_records, 1)
        return self.headline(self.plan.num_workers) + (
            f"  without       [bold]{self.without.rate:,.0f}[/bold] images/s\n"
            f"  first pass    [bold]{self.first.rate:,.0f}[/bold] images/s, "
            f"{self.first.seconds / self.without.seconds:.2f} of the time, "
            f"{self.first.cpu_s / self.without.cpu_s:.2f} of the CPU time\n"
            f"  later passes  [bold]{self.later.rate:,.0f}[/bold] images/s, "
            f"{self.later.rate / self.without.rate:.1f} times as fast\n"
            f"  kept          {self.stored:.0%} of the {self._kept}, {self.bytes / 1e6:,.1f} MB, "
            f"{each / 1e3:,.1f} kB each"
        )

    @property
    def _kept(self) -> str:
        return "images" if self.task == "eval" else "files"


def measure_cache(args: argparse.Namespace) -> CacheResult:
    """Run the task that ``args`` describe without a cache, with an empty cache, and from the filled cache."""
    cache = sp.Cache(f"bench-{os.getpid()}", memory=args.cache_memory, validate="loader")
    plain = standard_task(args)
    kept = _cached(plain, cache, args.task)
    try:
        for _ in range(2):  # the first one warms the files
            with sp.Loader(plain.plan(memory=args.memory, num_workers=args.workers)) as loader:
                without = _pass(loader)  # with the loader's start, as the pass that fills the cache has it
        plan = kept.plan(memory=args.memory, num_workers=args.workers)
        with sp.Loader(plan) as loader:
            first = _pass(loader)
        with sp.Loader(kept.plan(memory=args.memory, num_workers=args.workers)) as loader:
            passes = [_pass(loader) for _ in range(LATER)]
        (session,) = [found for found in sp.list_caches() if found.name == cache.name]
    finally:
        with contextlib.suppress(sp.CacheError):  # it never came to be
            sp.destroy_cache(cache)
    later = Pass(
        first.images,
        statistics.median(each.seconds for each in passes),
        statistics.median(each.cpu_s for each in passes),
    )
    stored = sum(each.rows for each in session.sets) / plan.source.num_records
    return CacheResult(plan, args.task, args.dtype, without, first, later, stored, session.bytes)


def _cached(plain: sp.Pipeline, cache: sp.Cache, task: str) -> sp.Pipeline:
    """Add a cache where the task isn't random before: after the whole of an evaluation, else right after the
    source.
    """
    assert task in ("train", "eval")
    if task == "eval":
        return plain.cache(cache)
    return replace(replace(plain, transforms=()).cache(cache), transforms=plain.transforms)


def _pass(loader: sp.Loader) -> Pass:
    """Run one epoch and return its times. Batches that the previous epoch prefetched exist at its start."""
    cpu, begin, images = time.process_time(), time.perf_counter(), 0
    for batch in loader:
        images += len(batch["index"])
    return Pass(images, time.perf_counter() - begin, time.process_time() - cpu)
