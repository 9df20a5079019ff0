"""``standpipe bench --io``: measure the rates of storage alone, of decoding alone, and of both together."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import standpipe as sp
from standpipe.cli.task import Measured, endless
from standpipe.reports import ReadReport

MEMORY_BYTES = 64 << 20  # of files that are copied into memory, at most
MEMORY_SHARE = 0.5  # of what is free there
MOST_FILES = 4096
MEMORY_FOLDER = Path("/dev/shm")
WARM_UP_BATCHES = 2
NEAR = 1.25  # rates closer than that are called equal


@dataclass(frozen=True, slots=True)
class IoResult(Measured):
    """Rates in images per second.

    reads      of storage alone
    decode     of decoding alone, from files in memory
    both       of the loader
    in_memory  whether these files were in memory, or on a disk and in the page cache
    """

    reads: ReadReport
    decode: float
    both: float
    in_memory: bool

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON."""
        reads = self.reads
        return {
            "read_images_per_s": round(reads.files_per_s, 1),
            "read_mb_per_s": round(reads.bytes_per_s / 1e6, 1),
            "read_p50_ms": round(1e3 * reads.p50_s, 4),
            "read_p99_ms": round(1e3 * reads.p99_s, 4),
            "read_slowest_ms": round(1e3 * reads.slowest_s, 4),
            "read_waited_share": round(reads.waited, 4),
            "read_failed": reads.failed,
            "read_threads": reads.threads,
            "decode_images_per_s": round(self.decode, 1),
            "images_per_s": round(self.both, 1),
            "limit": self.limit,
            **self.facts(),
        }

    def as_text(self) -> str:
        """Return the text for people, within 80 columns."""
        reads = self.reads
        place = "memory" if self.in_memory else "the page cache"
        failed = f"; {reads.failed:,} failed" if reads.failed else ""
        return self.headline(self.plan.num_workers) + (
            f"  reads alone     [bold]{reads.files_per_s:,.0f}[/bold] images/s, "
            f"{reads.bytes_per_s / 1e6:,.0f} MB/s, {reads.threads} at once{failed}\n"
            f"    a read takes  {_ms(reads.p50_s)}, 1 in 100 {_ms(reads.p99_s)}, the slowest {_ms(reads.slowest_s)}\n"
            f"    storage       {self._warmth}\n"
            f"  decode alone    [bold]{self.decode:,.0f}[/bold] images/s, from {place}\n"
            f"  both together   [bold]{self.both:,.0f}[/bold] images/s\n"
            f"  limit           {self.limit}"
        )

    @property
    def limit(self) -> str:
        """The resource that limits the other side."""
        storage, decode = self.reads.files_per_s, self.decode
        if self.both * NEAR < min(storage, decode) and self.reads.waited > 0.5:
            return "storage: too few reads at once for it; try a larger --batch"
        if storage * NEAR < decode:
            return f"storage: decoding alone is {decode / storage:.1f} times as fast"
        if decode * NEAR < storage:
            return f"decoding: storage alone is {storage / decode:.1f} times as fast"
        return "both: storage alone and decoding alone are about as fast"

    @property
    def _warmth(self) -> str:
        waited = self.reads.waited
        if waited < 0.01:
            return "warm: nearly all came from the page cache"
        return f"{'cold' if waited > 0.5 else 'partly cold'}: {waited:.0%} of the reads waited for it"


def measure_io(args: argparse.Namespace, pipeline: sp.Pipeline) -> IoResult:
    """Measure the three rates of ``IoResult``, each for the time in ``args``.

    pipeline  of the task that ``args`` name
    """
    plan = pipeline.plan(memory=args.memory, num_workers=args.workers)
    reads = sp.measure_reads(plan, seconds=args.seconds)
    folder, in_memory = _memory_folder()
    with tempfile.TemporaryDirectory(prefix="standpipe-bench-", dir=folder) as copies:
        listed = _copied(plan, Path(copies), in_memory)
        again = replace(pipeline, source=sp.FileList(listed))
        decode = _rate(again.plan(memory=args.memory, num_workers=args.workers), args.seconds)
    # Behind what was just read, where there is more of it.
    both = _rate(plan, args.seconds, skip=reads.files // plan.steps.global_batch)
    # What decodes so fast while it reads can do so alone: something else had the CPUs where it seemed slower.
    return IoResult(plan, args.task, args.dtype, reads, max(decode, both), both, in_memory)


def _memory_folder() -> tuple[Path, bool]:
    """Return a folder in memory for files, or else a temporary one; and True if it is in memory."""
    try:
        if shutil.disk_usage(MEMORY_FOLDER).free >= MEMORY_BYTES / 8 and os.access(MEMORY_FOLDER, os.W_OK):
            return MEMORY_FOLDER, True
    except OSError:
        pass
    return Path(tempfile.gettempdir()), False


def _copied(plan: sp.Plan, folder: Path, in_memory: bool) -> Path:
    """Copy the first files of the plan's order to ``folder``, as many as fit; return the list of copies."""
    room = float(MEMORY_BYTES)
    if in_memory:
        room = min(room, MEMORY_SHARE * shutil.disk_usage(folder).free)
    names: list[str] = []
    for number in range(min(plan.steps.per_epoch, MOST_FILES // plan.steps.batch + 1)):
        files, *others = plan.source.locate(
            plan.steps.step(number).draw(plan.order, 0).indices
        ).files.values()
        if others:
            raise sp.PlanError("bench --io needs records of one image: its copies are a list of images")
        places = zip(files.offset.tolist(), files.length.tolist(), strict=True)
        for row, (offset, length) in enumerate(places):
            with contextlib.suppress(OSError):  # what can't be read is no part of this
                data = _read(files.paths[row], offset, length)
                room -= len(data)
                if room < 0 and names:
                    break
                names.append(f"{len(names)}.jpg")
                (folder / names[-1]).write_bytes(data)
        if room < 0:
            break
    (folder / "list.txt").write_text("\n".join(names))
    return folder / "list.txt"


def _read(path: bytes, offset: int, length: int) -> bytes:
    """Return a part of a file; a length of -1 means to its end."""
    with Path(os.fsdecode(path)).open("rb", buffering=0) as file:
        file.seek(offset)
        return file.read(length)


def _rate(plan: sp.Plan, seconds: float, *, skip: int = 0) -> float:
    """Return the images per second of a loader for the plan, measured for ``seconds`` after a few batches.

    skip  batches of the epoch that the loader skips first
    """
    with sp.Loader(plan) as loader:
        if skip:
            loader.skip_steps(skip)
        batches = endless(loader)
        for _ in range(WARM_UP_BATCHES):
            next(batches)
        begin, images = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - begin) < seconds:
            images += len(next(batches)["index"])
    return images / elapsed


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.1 else f"{1e3 * seconds:,.0f} ms"
