"""The training loop's side of a run: take batches in order, and set where the run continues.

``take`` lends a ready batch (READY → LENT); dropping its last view frees the slot. ``peek`` copies it, and it stays
ready. After a ``break``, an error or
an interrupt, the next batch in the queue may not be the batch that the loop wants. Then filling starts again at the
wanted batch, so that no batch is lost or delivered twice.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from standpipe.engine.deliver import LOOKS_S, Delivered, Delivery
from standpipe.engine.queue import Filled, RunParts
from standpipe.engine.room import SlotBudget
from standpipe.engine.workers import INTERRUPTED_S
from standpipe.errors import PlanError
from standpipe.order import AnyOrder, Cursor
from standpipe.spec import LastBatch
from standpipe.system.user_warnings import warn_user

if TYPE_CHECKING:
    from standpipe.engine.probe import Probe


class Consumer:
    """Takes the batches of one run for the training loop, in one thread at a time.

    probe    finds user functions that use this process's global random generators; None if no user code runs here
    drawing  names of the functions found so far that use these generators
    """

    def __init__(self, run: RunParts, delivery: Delivery, room: SlotBudget, probe: Probe | None) -> None:
        self._queue, self._workers, self._ledger = run.queue, run.workers, run.ledger
        self._watch, self._times = run.watch, run.times
        self._delivery, self._room, self._probe = delivery, room, probe
        self._steps = run.queue.plan.steps
        self._torn = False  # True if a batch may have left the queue without reaching the caller
        self.drawing = run.queue.plan.drawing

    def take(self, at: Cursor, *, counts: bool = True) -> Delivered:
        """Wait for the batch that starts at ``at``, and return it.

        counts  True: count the batch as a training step, and record its bad samples; False: don't, because the
                same batch is taken again later

        Raises the error because of which the batch can't be made. The next call for the same batch tries again.
        """
        queue, steps = self._queue, self._times.steps
        queue.check_process()
        if self._probe is not None:
            self._tell_of_draws(self._probe)
        ready = len(queue.ready)
        steps.asks()
        delivered = self._wait_for(partial(self._hand_over, at, counts))
        if delivered.batch is not None and counts:
            steps.gets(delivered.rows, ready)
        if self._probe is not None:
            self._probe.start()  # after the first batch, which it would otherwise delay
        return delivered

    def peek(self, at: Cursor) -> dict[str, Any] | None:
        """Wait for the batch that starts at ``at``, and return a copy; None if a stream has ended before it.

        The batch stays in the queue, and nothing counts. Errors are those of ``take``.
        """
        self._queue.check_process()
        shown = self._wait_for(partial(self._show, at))
        while not self._settled():  # the device still reads the slot, which isn't lent
            time.sleep(LOOKS_S)
        return shown.batch

    def seek(self, at: Cursor) -> None:
        """Set the next batch: the one that starts at ``at``. Drop prefetched batches if they start elsewhere."""
        self._queue.check_process()
        with self._queue.lock:
            self._aim(self._steps.settled(at))

    def follow(self, order: AnyOrder, at: Cursor) -> None:
        """Continue at ``at`` by another order, and drop all batches that were prefetched by the old order."""
        self._queue.check_process()
        with self._queue.lock:
            self._queue.plan = replace(self._queue.plan, order=order)
            self._torn = True
            self._aim(self._steps.settled(at))

    def leave(self) -> None:
        """Record that the training loop takes no more batches of the current epoch."""
        if self._queue.closed:
            return  # as at the interpreter's end, when modules may be gone
        if not self._queue.is_here:
            return  # in a forked child the lock may be held for ever, by a thread that exists only in the parent
        with self._queue.lock:
            self._times.steps.leaves()
            if not self._queue.closed:
                self._delivery.rest()

    def look(self) -> None:
        """Wake the filling thread, because the caller has named the records of more batches."""
        self._queue.bell.ring()

    def _wait_for(self, attempt: Callable[[], Delivered | None]) -> Delivered:
        """Return the result of ``attempt``, which returns None while the batch that it needs isn't ready."""
        begin = time.perf_counter()
        try:
            while (delivered := attempt()) is None:
                if not self._help():
                    if self._settled():
                        self._await_news(begin)
                    else:
                        time.sleep(LOOKS_S)  # instead of a wait inside CUDA, which Ctrl-C can't interrupt
        except BaseException:
            self._torn |= self._workers.helps  # an interrupt may have left a row incomplete
            raise
        finally:
            self._queue.waiting = False
        return delivered

    def _oldest(self, at: Cursor, *, enters: bool) -> Filled | None:
        """Return the batch that starts at ``at``, still in the queue, or None while it isn't ready; raise its error.

        The caller holds the lock.

        enters  True: the training loop is in the epoch of ``at`` now
        """
        queue = self._queue
        queue.check_open()
        if self._watch.ended is not None:
            raise self._watch.ended
        self._aim(at)
        if enters:
            self._delivery.enter(at.epoch)
        if not queue.ready:
            if queue.stuck is not None:
                raise queue.stuck
            if not queue.waiting:
                queue.waiting, queue.starved = True, False
                queue.bell.ring()  # the ring of slots grows only while the loop waits
            return None
        if (error := queue.ready[0].error) is not None:
            self._torn = True  # the next call tries again
            # Else the queue would keep the error, and frames of its traceback a loader that nobody uses any more.
            queue.ready[0] = replace(queue.ready[0], error=None)
            raise error
        return queue.ready[0]

    def _show(self, at: Cursor) -> Delivered | None:
        """Return a copy of the batch that starts at ``at``, or None while it isn't ready."""
        with self._queue.lock:
            filled = self._oldest(at, enters=False)
            if filled is None:
                return None
            is_end = filled.ended and filled.rows == 0
            return Delivered(None if is_end else self._delivery.peek(filled), filled.rows, at)

    def _hand_over(self, at: Cursor, counts: bool) -> Delivered | None:
        """Return the batch that starts at ``at``, or None while it isn't ready."""
        queue, delivery = self._queue, self._delivery
        with queue.lock:
            filled = self._oldest(at, enters=True)
            if filled is None:
                return None
            self._torn = True
            queue.ready.popleft()
            if counts and filled.batch_records is not None and filled.batch_records.bad:
                assert filled.batch_records.error is not None
                self._ledger.add(at, filled.batch_records.bad, filled.batch_records.error)
            if filled.ended and filled.rows == 0:
                return Delivered(None, 0, self._after_end(at))
            self._times.device.begin()
            batch = delivery.take(filled)
            self._times.device.end(filled.rows)
            self._torn = False
            if not delivery.settle():
                queue.bell.ring()  # the filling thread must check when the device has read the slot
            after = self._after_end(at) if filled.ended else self._steps.after(at)
            if after.epoch == at.epoch:
                delivery.send(queue.ready)
            else:
                delivery.rest()
            return Delivered(batch, filled.rows, after)

    def _after_end(self, at: Cursor) -> Cursor:
        """Return the next epoch's cursor after a stream ended in this epoch.

        Raises ``PlanError`` if the stream had no full batch, and a partial one is dropped.
        """
        if at.consumed == 0 and self._steps.last_batch is LastBatch.DROP:
            raise PlanError(
                f"the stream has fewer samples than a batch of {self._steps.batch}. Use a smaller batch or "
                'last_batch="partial"'
            )
        return Cursor(at.epoch + 1)

    def _aim(self, at: Cursor) -> None:
        """Make sure that the next batch starts at ``at``. The caller holds the lock."""
        queue = self._queue
        if queue.coming == at and not self._torn:
            return
        self._torn = True
        queue.sought = at
        queue.ready.clear()
        self._delivery.drop_ready()
        queue.bell.ring()
        self._torn = False

    def _help(self) -> bool:
        """Do one task of the awaited batch in the calling thread, and return True if there was one.

        Only ``executor="inline"`` works like this; with other workers, return False. The thread does no tasks of
        later batches. Otherwise timing would decide if the user's code runs between two training steps, and random
        numbers from the process's global generators would differ from run to run.
        """
        if not self._workers.helps:
            return False
        queue = self._queue
        with queue.lock:
            if queue.ready or (queue.filling and queue.filling[0].is_over):
                return False
        return self._workers.help()

    def _settled(self) -> bool:
        """Return True if the device has finished reading the slots of all batches that were taken."""
        with self._queue.lock:
            return self._delivery.settle()

    def _await_news(self, begin: float) -> None:
        queue = self._queue
        if queue.starved:
            queue.ring.reclaim()  # slots of batches that the caller has dropped
            patience = begin + queue.plan.options.batch_release_timeout_s - time.perf_counter()
            if patience > 0:
                queue.news.acquire(timeout=min(patience, INTERRUPTED_S))
                return
            gc.collect()  # reference cycles may hold batches, such as an exception with its frames
            if self._room.no_slot():
                raise self._room.all_lent()
        queue.news.acquire(timeout=INTERRUPTED_S)

    def _tell_of_draws(self, probe: Probe) -> None:
        """Warn once about functions that use this process's global generators, after the probe has found them."""
        if probe.drawing is None:
            return
        self._probe = None
        if probe.drawing:
            queue, self.drawing = self._queue, probe.drawing
            with queue.lock:
                queue.plan = replace(queue.plan, drawing=probe.drawing)
            warn_user(str(queue.plan.not_reproducible))
