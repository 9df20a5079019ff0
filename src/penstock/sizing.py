"""How much memory a run takes, and what fits into the memory there is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock import machine
from penstock.batch import SlotLayout
from penstock.errors import BudgetError, PlanError
from penstock.pipeline import Settings

MIB = 1 << 20
WORKER_BYTES = (
    2 * MIB
)  # a decoding thread's stack, libjpeg's row buffers and kept scratch, measured at 500 × 375
ENGINE_BYTES = 6 * MIB  # Python threads, batch arrays and the allocator's slack of a running loader, measured
READ_BYTES = 4 * MIB  # of a file that a worker in Python reads without asking the side arena
READ_AHEAD_BYTES = (4 * MIB, 16 * MIB)  # least and usual
SIDE_BYTES = (8 * MIB, 256 * MIB)  # least and usual
MOST_BYTES = 1 << 60  # of a size that is given: sums of several still fit an int64
MOST_WORKERS = 4096
MOST_DEPTH = 1 << 16
MOST_RETRIES = 1000
ROWS_IN_HAND = (
    4  # per worker: with fewer rows filling than this, workers wait for each other at a batch's end
)
PROCESS_BYTES = 5 * MIB  # what a worker process has of its own, with a small dataset, measured
SERVER_BYTES = 32 * MIB  # what worker processes share: Python, NumPy, penstock, a small dataset


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """Bytes by owner.

    process     the process when the plan was made, with what it had loaded and the index
    index       of these, what the source's index takes
    slots       depth × slot
    workers     stacks and scratch of the decoding threads
    read_ahead  encoded samples, read and waiting to be decoded
    engine      the rest of a running loader, with samples that wait until their batch is collated
    side        the side arena: used only for progressive JPEGs, formats other than JPEG, very long filters
    """

    process: int
    index: int
    slots: int
    workers: int
    read_ahead: int
    engine: int
    side: int

    @property
    def expected(self) -> int:
        """The process's memory while the loader runs, on data that leave the side arena unused."""
        return self.process + self.allocated

    @property
    def allocated(self) -> int:
        """Of these, what the run allocates beyond what is there now."""
        return self.slots + self.workers + self.read_ahead + self.engine


@dataclass(frozen=True, slots=True)
class WorkerCost:
    """Memory of those who make rows.

    each    bytes of one worker
    shared  bytes that all of them share
    kind    what one is called
    reads   whether encoded samples are read ahead of them
    slots   that are filled at once. Python code takes its time, and unevenly: whoever is done with a batch goes on
            with the next one, while the caller holds a third
    """

    each: int
    shared: int
    kind: Literal["worker", "worker process"]
    reads: bool
    slots: int

    def of(self, workers: int) -> int:
        """Bytes of so many."""
        return self.shared + workers * self.each


NATIVE_WORKERS = WorkerCost(WORKER_BYTES, 0, "worker", True, 1)
THREADS = WorkerCost(WORKER_BYTES, 0, "worker", False, 2)
PROCESSES = WorkerCost(PROCESS_BYTES, SERVER_BYTES, "worker process", False, 2)


def parse_bytes(name: str, value: int | str) -> int:
    """Bytes from a number or from text such as ``"2GiB"``, ``"500 MB"``. Raises ``PlanError``."""
    units = {
        "": 1,
        "b": 1,
        "kb": 10**3,
        "mb": 10**6,
        "gb": 10**9,
        "kib": 1 << 10,
        "mib": 1 << 20,
        "gib": 1 << 30,
    }
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    unit = units.get(match[2].lower()) if match else None
    number: float = 0  # of bytes
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif match is not None and unit is not None:
        number = float(match[1]) * unit
    if number <= 0:
        raise PlanError(f"{name}={value!r}: a number of bytes, or text such as '2GiB' or '500MB'")
    if number > MOST_BYTES:
        raise PlanError(
            f"{name}={value!r}: above 2^60 bytes, which no machine has; write what this run may take"
        )
    return int(number)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What was chosen; bytes of what is read ahead and of the side arena."""

    workers: int
    depth: int
    most_slots: int
    read_ahead: int
    side: int


def fit(
    layout: SlotLayout,
    cost: WorkerCost,
    whole: bool,
    budget: int,
    workers: int | Literal["auto"],
    settings: Settings,
) -> Sizes:
    """Choose workers, slots and buffers within the budget; what the caller fixed stays.

    cost     of the workers
    whole    whether one worker makes a whole batch
    budget   bytes
    workers  as asked for
    settings  all that was asked for

    Raises ``PlanError`` for settings that are none, ``BudgetError`` when nothing fits.
    """
    depth, side_memory = settings.get("depth"), settings.get("side_memory")
    if workers != "auto" and not is_count(workers, 1, MOST_WORKERS):
        raise PlanError(
            f"workers={workers!r}: 'auto' or a number of threads, at least 1 and at most {MOST_WORKERS}"
        )
    if depth is not None and not is_count(depth, 2, MOST_DEPTH):
        raise PlanError(
            f"depth={depth!r}: a number of slots, at least 2, one lent and one filling, and at most {MOST_DEPTH}"
        )
    slot = layout.stride_bytes
    least_ahead, most_ahead = READ_AHEAD_BYTES if cost.reads else (0, 0)
    least_side = SIDE_BYTES[0] if side_memory is None else parse_bytes("side_memory", side_memory)

    def depth_for(threads: int) -> int:
        if depth is not None:
            return depth
        return 1 + (threads if whole else max(cost.slots, -(-ROWS_IN_HAND * threads // layout.rows)))

    def needed(threads: int, slots: int) -> int:
        filling = slots * (slot + layout.waiting_bytes)
        return filling + cost.of(threads) + least_ahead + least_side + ENGINE_BYTES

    threads = machine.cpu_count() if workers == "auto" else workers
    if workers == "auto":
        while threads > 1 and needed(threads, depth_for(threads)) > budget:
            threads -= 1
    slots = depth_for(threads)
    if depth is None:
        while slots > 2 and needed(threads, slots) > budget:
            slots -= 1
    smallest = needed(threads, slots)
    if smallest > budget:
        # What the caller fixed, and what each could save.
        savings = {
            "side_memory": 0 if side_memory is None else least_side - SIDE_BYTES[0],
            "depth": 0 if depth is None else (slots - 2) * (slot + layout.waiting_bytes),
            "workers": 0 if workers == "auto" else (threads - 1) * cost.each,
        }
        raise BudgetError(
            f"{slots} slots of {show_bytes(slot)}, {_many(threads, cost)} and "
            f"{show_bytes(least_side)} of side memory together need memory={show_bytes(smallest, up=True)!r}, "
            f"the budget is {show_bytes(budget)}; raise it, {_lower(savings)}or use a smaller batch or uint8",
            asked_bytes=smallest,
            budget_bytes=budget,
            smallest_bytes=smallest,
        )
    spare = budget - smallest
    read_ahead = min(most_ahead, least_ahead + spare // 4)
    spare -= read_ahead - least_ahead
    side = least_side if side_memory is not None else min(SIDE_BYTES[1], least_side + spare // 2)
    spare -= side - least_side
    return Sizes(threads, slots, slots + spare // slot, read_ahead, side)


def _many(workers: int, cost: WorkerCost) -> str:
    """So many workers, and what they share."""
    plural = "" if workers == 1 else "es" if cost.kind.endswith("s") else "s"
    shared = f" of {show_bytes(cost.each)}, {show_bytes(cost.shared)} that they share" if cost.shared else ""
    return f"{workers} {cost.kind}{plural}{shared}"


def is_count(value: object, least: int, most: int) -> bool:
    """Whether it is a whole number in [least, most]."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_seconds(value: object) -> bool:
    """Whether it is a time in seconds, from 0 on."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _lower(savings: Mapping[str, int]) -> str:
    """Advice to lower the settings that save something, most first; empty when none does."""
    names = sorted((name for name, saved in savings.items() if saved > 0), key=lambda name: -savings[name])
    return "".join(f"lower {name}=, " for name in names)


def show_bytes(number: int, *, up: bool = False) -> str:
    """A number of bytes for people, such as ``"294.0MiB"``; ``up`` rounds up, so that it suffices."""
    for unit, size in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if number >= size:
            tenths = -(-number * 10 // size) if up else number * 10 // size
            return f"{tenths // 10}.{tenths % 10}{unit}"
    return f"{number}B"
