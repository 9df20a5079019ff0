"""Measure a run's memory by owner, and warn of owners above their forecast."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

from standpipe import _native
from standpipe.engine.fetching import Fetches
from standpipe.engine.workers import Use, Workers, WorkersMemory
from standpipe.plan.plan import Plan
from standpipe.stats.memory import (
    CACHE,
    ENGINE,
    FETCH,
    FRAMES,
    GROWTH,
    INDEX,
    PROCESSES,
    READ_AHEAD,
    SIDE,
    SLOTS,
    START,
    WAITING,
    MemoryLedger,
    MemoryOwner,
    planned_memory,
    worker_owner,
)
from standpipe.system import machine
from standpipe.system.logs import logger
from standpipe.system.sharing import Claim
from standpipe.units import show_bytes

EVERY_S = 1.0  # seconds between two measurements
WARNED_SHARE = 0.8  # warn above this fraction of ``memory=``, or of the machine's or container's memory
LEAST_GROWTH = 0.1  # report this process's own growth above this fraction of that memory
TAKEN = ("lent", "filling", "ready", "quarantined", "held")  # states of slots that aren't free


class Meter:
    """Measures a run's memory by owner, once a second in the filling thread, and on request.

    Native code counts its own memory and its peak. The thread that drives worker processes measures their
    memory. Other growth of this process since ``start`` counts as memory of its threads and the engine, up to
    their forecast. Growth above that counts as memory of other causes.

    claim  gets the number of bytes that the run may still take, for other loaders of the machine
    due_s  time of the next measurement, in seconds of ``time.monotonic()``
    start  heaps and stacks of this process before the run began, in bytes
    fetches  gets the bytes of records behind URLs; None for files
    """

    def __init__(
        self,
        plan: Plan,
        ring: _native.SlotRing,
        workers: Workers,
        claim: Claim,
        start: int,
        fetches: Fetches | None,
    ) -> None:
        self._fetches = fetches
        self._plan, self._ring, self._workers, self._claim, self._start = plan, ring, workers, claim, start
        self._planned = planned_memory(plan)
        self._lock = threading.Lock()  # guards the peaks
        self._peaks: dict[str, int] = {}
        self._warned: set[str] = set()
        self.due_s = 0.0
        self._closed = False

    def close(self) -> None:
        """Record that the run's threads have ended, so that no memory is attributed to them any more."""
        self._closed = True

    def look(self) -> None:
        """Measure if it is due, and warn about owners that use too much memory."""
        now = time.monotonic()
        if now < self.due_s:
            return
        self.due_s = now + EVERY_S
        ledger = self.ledger()
        self._claim.promise(ledger.limit - ledger.now)
        for name, text in self._excesses(ledger):
            if name not in self._warned:
                self._warned.add(name)
                logger().warning("memory runs short: %s", text)

    def ledger(self) -> MemoryLedger:
        """Return the memory of each owner, now and at its peak."""
        memory, stride = self._workers.memory(), self._ring.stride_bytes
        threads, engine, growth = self._own(memory)
        processes = sum(use.now for use in memory.processes.values())
        planned = self._planned
        uses = {
            INDEX: Use(planned[INDEX].now),
            SLOTS: Use(self._ring.used * stride, self._ring.peak * stride),
            WAITING: memory.waiting,
            worker_owner(self._plan): Use(processes + threads),
            READ_AHEAD: memory.read_ahead if self._fetches is None else Use(self._fetches.lent_bytes),
            FETCH: Use(self._fetch_bytes()),
            CACHE: memory.cache,
            FRAMES: memory.frames,
            SIDE: memory.side,
            ENGINE: Use(engine),
            GROWTH: Use(growth),
            START: Use(planned[START].now),
        }
        with self._lock:
            owners = tuple(self._seen(owner, uses[owner.name]) for owner in planned.owners)
            outside = tuple(self._seen(owner, uses[owner.name]) for owner in planned.outside)
            together = sum(owner.now for owner in owners)
            peak = self._peak("", max(together, *(owner.peak for owner in owners)))
        parts = tuple(MemoryOwner(name, 0, use.now, use.peak) for name, use in memory.processes.items())
        return replace(planned, owners=owners, parts=parts, outside=outside, peak=peak)

    def _fetch_bytes(self) -> int:
        if self._fetches is None:
            return 0
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            return machine.anonymous_bytes(self._fetches.process)
        return 0

    def _own(self, memory: WorkersMemory) -> tuple[int, int, int]:
        """Return this process's growth that isn't counted elsewhere, in bytes: of threads, the engine, other causes."""
        in_threads = memory.in_heap + memory.read_ahead.now + memory.cache.now + memory.frames.now
        in_threads += 0 if memory.processes else memory.side.now
        left = max(machine.anonymous_bytes() - self._start - in_threads, 0)
        forecast = self._plan.memory.forecast
        threads = (
            0
            if memory.processes or self._closed
            else min(left, self._plan.pool.cost.of(self._workers.employed))
        )
        engine = 0 if self._closed else min(left - threads, forecast.engine)
        return threads, engine, left - threads - engine

    def _seen(self, owner: MemoryOwner, use: Use) -> MemoryOwner:
        """Return an owner with its current use, and its peak raised if needed. The caller holds the lock."""
        note = ""
        if owner.name == SLOTS:
            counts = {state: self._ring.count(state) for state in TAKEN}
            note = (
                f"{', '.join(f'{count} {state}' for state, count in counts.items() if count)} {note}".strip()
            )
        peak = self._peak(owner.name, max(use.now, use.peak))
        return MemoryOwner(
            owner.name, owner.forecast, use.now, peak, owner.most, note
        )  # replace() takes three times as long

    def _peak(self, name: str, now: int) -> int:
        """Return the most bytes that the owner ``name`` has used, ``now`` included. The caller holds the lock."""
        self._peaks[name] = max(self._peaks.get(name, 0), now)
        return self._peaks[name]

    def _excesses(self, ledger: MemoryLedger) -> Iterator[tuple[str, str]]:
        """Yield owners that use more than their forecast while memory runs short, each with a warning's text."""
        worst = max(ledger.owners, key=_above)
        short = ledger.now >= WARNED_SHARE * ledger.limit
        for owner in ledger.owners:
            full = owner.most is not None and owner.now >= WARNED_SHARE * owner.most
            if self._may_be_above(owner) and _above(owner) > 0 and (full or (short and owner is worst)):
                yield (
                    owner.name,
                    f"{owner.name}: {show_bytes(owner.now)}, {show_bytes(_above(owner))} more than forecast. All "
                    f"owners together use {show_bytes(ledger.now)} of memory={show_bytes(ledger.limit)!r}. "
                    f"{self._remedy(owner)}",
                )
        grown = ledger[GROWTH].now
        used, size = machine.memory_in_use()
        if used >= WARNED_SHARE * size and grown > max(_above(worst), LEAST_GROWTH * size):
            yield (
                GROWTH,
                f"this process has grown by {show_bytes(grown)} since the loader started, besides the loader's own "
                f"memory, and {show_bytes(used)} of the machine's or container's {show_bytes(size)} are in use",
            )

    def _may_be_above(self, owner: MemoryOwner) -> bool:
        """Return True if a warning is useful when this owner uses more than its forecast."""
        # These limit themselves: a file larger than all buffers is read alone, and a thread that needs more of the side
        # arena waits.
        return owner.name == PROCESSES or owner.name not in (READ_AHEAD, SIDE, worker_owner(self._plan))

    def _remedy(self, owner: MemoryOwner) -> str:
        if owner.name == SLOTS:
            held, most = self._ring.count("lent"), self._plan.memory.most_slots
            return f"Your code holds {held} batches, and {most} fit: drop them sooner, or raise memory="
        if owner.name == PROCESSES:
            share = show_bytes(self._plan.pool.worker_bytes)
            return (
                f"A worker with more than {share} of its own is replaced by a new one. The cause of the growth is in "
                "your dataset or functions"
            )
        return "Make batches smaller, or raise memory="


def _above(owner: MemoryOwner) -> int:
    return owner.now - owner.forecast
