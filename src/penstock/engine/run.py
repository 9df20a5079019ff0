"""A running loader: keeps slots filling, in order, and hands them over.

Life of a slot: ``_submit`` takes it (FREE → FILLING) and gives its rows to the native pool; ``_collect`` sees
the oldest job done (FILLING → READY); ``take`` lends it (READY → LENT); dropping the last view frees it. One
thread submits and collects, woken by a native bell that finished jobs and freed slots ring; nothing polls.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from penstock import _native
from penstock.contracts import Records
from penstock.device import lend_to_host
from penstock.engine.failures import first_error
from penstock.errors import BudgetError, PenstockError
from penstock.order import Cursor, Step
from penstock.plan import Plan, show_bytes
from penstock.read import ReadAhead
from penstock.spec import AnyArray
from penstock.transform.foreign import finish_foreign

PATIENCE_S = 1.5  # for threads inside a system call, when a loader is closed

logger = logging.getLogger("penstock")

# Jobs whose threads were stuck in a system call when their loader was closed, and may still read their arrays.
_abandoned: list[_native.Job] = []


@dataclass(frozen=True, slots=True)
class Delivered:
    """One batch, and the cursor once it is delivered.

    after  where the run stands then; another epoch than the batch's when it was the epoch's last
    """

    batch: dict[str, AnyArray]
    after: Cursor


@dataclass(frozen=True, slots=True)
class _Filling:
    job: _native.Job
    slot: int
    step: Step
    at: Cursor
    records: Records


@dataclass(frozen=True, slots=True)
class _Ready:
    slot: int
    rows: int
    at: Cursor


class Run:
    """Native threads and slots of one plan, from ``start`` to ``close``. One consumer at a time.

    wait_s  seconds that the consumer has waited for batches
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pid = os.getpid()
        self._bell = _native.Bell()
        layout = plan.layout
        self._ring = _native.SlotRing(layout.slot_bytes, plan.depth, plan.most_slots, self._bell)
        limits = plan.pipeline.limits
        kernel, mode = plan.kernel, plan.pipeline.decode_mode
        self._program = None if kernel is None else kernel.compile(mode, limits, plan.simd)
        ahead = ReadAhead.for_workers(plan.workers, plan.forecast.read_ahead)
        self._pool = _native.Pool(
            plan.workers, ahead.threads, ahead.limit_bytes, plan.forecast.side, self._bell
        )
        self._changed = threading.Condition()
        self._ready: deque[_Ready | PenstockError | Exception] = deque()
        self._filling: deque[_Filling] = deque()
        self._next = Cursor()
        self._sought: Cursor | None = None
        self._waiting = self._starved = self._closed = False
        self.wait_s = 0.0
        self._threads = [threading.Thread(target=self._keep_filling, name="penstock-fill", daemon=True)]
        if plan.kernel is not None:
            self._add_foreign_thread()

    def start(self, at: Cursor) -> None:
        """Begin to fill batches from ``at`` on."""
        self._next = self._plan.steps.settled(at)
        for thread in self._threads:
            thread.start()
        logger.info(
            "rank %d of %d data ranks, %d workers",
            self._plan.steps.rank,
            self._plan.steps.world,
            self._plan.workers,
        )

    def seek(self, at: Cursor) -> None:
        """Continue from ``at``: what was filled ahead is dropped, unless it is what comes there."""
        with self._changed:
            at = self._plan.steps.settled(at)
            if self._sought is None and self._head() == at:
                return
            self._sought = at
            self._drop_ready()
        self._bell.ring()

    def take(self) -> Delivered:
        """The next batch in order; waits for it. Raises what made it impossible."""
        self._check_process()
        begin = time.perf_counter()
        with self._changed:
            try:
                self._wait_for_ready()
            finally:
                self._waiting = False
            item = self._ready.popleft()
        self.wait_s += time.perf_counter() - begin
        if isinstance(item, Exception):
            raise item
        batch = self._plan.layout.views(lend_to_host(self._ring, item.slot), item.rows)
        return Delivered(batch, self._plan.steps.after(item.at))

    def stats(self) -> _native.PoolStats:
        """Counters of the native threads."""
        return self._pool.stats()

    def close(self) -> None:
        """End all threads. Batches that were lent stay valid; calling it again does nothing."""
        if os.getpid() != self._pid:
            return  # a forked child has none of the threads
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._drop_ready()
            self._changed.notify_all()
        in_time = self._pool.close(int(PATIENCE_S * 1000))
        self._bell.ring()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(PATIENCE_S)
        if not in_time:
            _abandoned.extend(filling.job for filling in self._filling)
            logger.warning("some threads were still reading after %.1f s; they end by themselves", PATIENCE_S)

    # The consumer's side. `_changed` is held.

    def _wait_for_ready(self) -> None:
        patience_ends: float | None = None
        while not self._ready or self._sought is not None:
            if self._closed:
                raise PenstockError("the loader is closed")
            if not self._waiting:
                self._waiting = True
                self._bell.ring()  # only a waiting consumer makes the ring grow
            if not self._starved:
                self._changed.wait()
                continue
            now = time.monotonic()
            patience_ends = patience_ends or now + self._plan.lend_wait_s
            if now >= patience_ends:
                raise self._all_lent()
            self._changed.wait(patience_ends - now)

    def _all_lent(self) -> BudgetError:
        lent = self._ring.count("lent")
        slot = self._plan.layout.stride_bytes
        budget = self._plan.memory_bytes
        return BudgetError(
            f"all {lent} batches of {show_bytes(slot)} that fit memory={show_bytes(budget)!r} are held by the "
            "caller; drop some, raise memory=, or set lend_wait_s= when another thread will drop them",
            asked_bytes=(lent + 1) * slot,
            budget_bytes=budget,
            smallest_bytes=budget + slot,
        )

    def _head(self) -> Cursor | None:
        """Where the batch that ``take`` would return starts; None when that isn't known."""
        if self._ready:
            first = self._ready[0]
            return first.at if isinstance(first, _Ready) else None
        return self._filling[0].at if self._filling else self._next

    def _drop_ready(self) -> None:
        for item in self._ready:
            if isinstance(item, _Ready):
                self._ring.release(item.slot)
        self._ready.clear()

    # The filling thread.

    def _keep_filling(self) -> None:
        seen = 0
        while not self._closed:
            try:
                self._obey_seek()
                self._collect()
                self._ring.trim()
                self._submit()
            except Exception as error:
                self._fail(error)
            seen = self._bell.wait(seen)

    def _obey_seek(self) -> None:
        if self._sought is None:
            return
        for filling in self._filling:
            self._pool.cancel(filling.job)
        seen = 0
        while self._filling and not self._closed:
            if self._filling[0].job.done:
                self._ring.release(self._filling.popleft().slot)
            else:
                seen = self._bell.wait(seen)
        with self._changed:
            self._drop_ready()
            self._next, self._sought = self._sought, None

    def _collect(self) -> None:
        """Hand over finished jobs, oldest first."""
        while self._filling and self._filling[0].job.done:
            filling = self._filling.popleft()
            error = first_error(filling.job, filling.records, self._plan.source)
            with self._changed:
                if error is not None or self._sought is not None:
                    self._ring.release(filling.slot)
                if self._sought is not None:
                    continue
                if error is None:
                    self._ring.mark_ready(filling.slot)
                    self._ready.append(_Ready(filling.slot, filling.step.rows, filling.at))
                else:
                    self._ready.append(error)
                self._changed.notify_all()

    def _submit(self) -> None:
        """Fill every slot that can be had. The ring grows only for a consumer that waits while nothing comes."""
        while not self._closed and self._sought is None:
            with self._changed:
                needed = self._waiting and not self._ready and not self._filling
            slot = self._ring.take(grow=needed)
            if slot < 0:
                with self._changed:
                    self._starved = needed and self._ring.count("free") == 0
                    self._changed.notify_all()
                return
            with self._changed:
                self._starved = False
            try:
                filling = self._begin(slot)
            except BaseException:
                self._ring.release(slot)
                raise
            with self._changed:
                self._filling.append(filling)
                self._next = self._plan.steps.after(filling.at)
            self._pool.submit(filling.job)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._ready.append(error)
            self._changed.notify_all()

    def _begin(self, slot: int) -> _Filling:
        plan, at = self._plan, self._next
        step = plan.steps.step(0, at.consumed)
        indices = step.indices(plan.order, at.epoch)
        records = plan.source.locate(indices)
        layout = plan.layout
        job = _native.Job(
            ring=self._ring,
            slot=slot,
            positions=step.positions(),
            program=self._program,
            image_offset=layout.offsets["image"] if self._program is not None else 0,
            seed=plan.pipeline.seed,
            epoch=at.epoch,
        )
        views = layout.views(self._ring.view(slot), step.rows)
        views["index"][...] = indices
        if "valid" in views:
            views["valid"][...] = step.valid()
        for name, values in records.plain.items():
            views[name][...] = values
        for name, files in records.files.items():
            if name == "image":
                job.files(files.paths.blob, files.paths.ends, files.offset, files.length)
        for name, rows in records.rows.items():
            if name == "image" and self._program is not None:
                job.pixels(rows.array.view(np.uint8), rows.rows)
            else:
                job.copy(
                    self._ring,
                    slot,
                    rows.array,
                    rows.rows,
                    layout.offsets[name],
                    layout.fields[name].row_bytes,
                )
        return _Filling(job, slot, step, at, records)

    # Rows that are no JPEG.

    def _add_foreign_thread(self) -> None:
        number = len(self._threads)
        thread = threading.Thread(target=self._decode_foreign, name=f"penstock-pillow-{number}", daemon=True)
        self._threads.append(thread)

    def _decode_foreign(self) -> None:
        while (row := self._pool.take_foreign()) is not None:
            with self._changed:
                more = (
                    self._pool.foreign_waiting > 0
                    and len(self._threads) <= self._plan.workers
                    and not self._closed
                )
                if more:
                    self._add_foreign_thread()
                    self._threads[-1].start()
            finish_foreign(row)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise PenstockError(
                "this loader was started in another process; threads don't survive a fork: make a loader here"
            )
