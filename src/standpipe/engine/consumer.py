"""The loop's side of a run: it takes batches, in order, and says where it wants to go on.

``take`` lends a ready batch (READY → LENT); dropping its last view frees the slot. When the batch that is wanted
isn't the one that comes, because of a ``break``, an error or an interrupt between two steps of handing over, filling
starts again at the wanted one: no batch is lost or delivered twice.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from standpipe.engine.deliver import LOOKS_S, Delivered, Delivery
from standpipe.engine.queue import BatchQueue
from standpipe.engine.room import Room
from standpipe.engine.timing import RunTimes
from standpipe.engine.watchdog.watch import Watch
from standpipe.engine.workers import INTERRUPTED_S, Workers
from standpipe.errors import PlanError
from standpipe.order import AnyOrder, Cursor
from standpipe.spec import LastBatch
from standpipe.stats.bad_samples import Ledger
from standpipe.system.user_warnings import warn

if TYPE_CHECKING:
    from standpipe.engine.probe import Probe


class Consumer:
    """Take the batches of one run, in one thread at a time.

    probe    looks for code that uses this process's global generators; None where there is nothing to look
    for
    drawing  functions that were found to use them
    """

    def __init__(
        self,
        queue: BatchQueue,
        delivery: Delivery,
        workers: Workers,
        room: Room,
        *,
        ledger: Ledger,
        watch: Watch,
        times: RunTimes,
        probe: Probe | None,
    ) -> None:
        self._queue, self._delivery, self._workers, self._room = queue, delivery, workers, room
        self._ledger, self._watch, self._times, self._probe = ledger, watch, times, probe
        self._steps = queue.plan.steps
        self._torn = False  # whether a batch may have left the queue and not reached the caller
        self.drawing = queue.plan.drawing

    def take(self, at: Cursor, *, counts: bool = True) -> Delivered:
        """Wait for the batch that starts at ``at``, and return it.

        counts  whether it is a step of the training loop, and its bad samples are taken down; else it comes again

        Raises what made it impossible. Asked for the same batch again, it tries again.
        """
        queue, steps = self._queue, self._times.steps
        queue.check_process()
        if self._probe is not None:
            self._tell_of_draws(self._probe)
        begin, ready = time.perf_counter(), len(queue.ready)
        steps.asks()
        try:
            while (delivered := self._hand_over(at, counts)) is None:
                if not self._help():
                    if self._settled():
                        self._await_news(begin)
                    else:
                        time.sleep(LOOKS_S)  # not inside CUDA, where nobody hears Ctrl-C
        except BaseException:
            self._torn |= self._workers.helps  # an interrupt may have left a row half made
            raise
        finally:
            queue.waiting = False
        if delivered.batch is not None and counts:
            steps.gets(delivered.rows, ready)
        if self._probe is not None:
            self._probe.start()  # not before the first batch, which it would delay
        return delivered

    def seek(self, at: Cursor) -> None:
        """Fill from ``at`` on: what was filled ahead is dropped, unless it is what comes there."""
        self._queue.check_process()
        with self._queue.lock:
            self._aim(self._steps.settled(at))

    def follow(self, order: AnyOrder, at: Cursor) -> None:
        """Fill from ``at`` on by another order: what was filled ahead by the old one is dropped."""
        self._queue.check_process()
        with self._queue.lock:
            self._queue.plan = replace(self._queue.plan, order=order)
            self._torn = True
            self._aim(self._steps.settled(at))

    def leave(self) -> None:
        """Leave the epoch of the last batch: nobody asks for more of it."""
        if not self._queue.is_here:
            return  # of a forked child: a thread that isn't there may hold the lock for ever
        with self._queue.lock:
            self._times.steps.leaves()
            if not self._queue.closed:
                self._delivery.rest()

    def look(self) -> None:
        """Wake the filling thread: more batches were given."""
        self._queue.bell.ring()

    def _hand_over(self, at: Cursor, counts: bool) -> Delivered | None:
        """Return the batch that starts at ``at``, or None while it isn't ready."""
        queue, delivery = self._queue, self._delivery
        with queue.lock:
            queue.check_open()
            if self._watch.ended is not None:
                raise self._watch.ended
            self._aim(at)
            delivery.enter(at.epoch)
            if not queue.ready:
                if queue.stuck is not None:
                    raise queue.stuck
                if not queue.waiting:
                    queue.waiting, queue.starved = True, False
                    queue.bell.ring()  # only a waiting loop makes the ring grow
                return None
            self._torn = True
            filled = queue.ready.popleft()
            if filled.error is not None:
                raise filled.error
            if counts and filled.origins is not None and filled.origins.bad:
                assert filled.origins.error is not None
                self._ledger.add(at, filled.origins.bad, filled.origins.error)
            if filled.ended and filled.rows == 0:
                return Delivered(None, 0, self._after_end(at))
            self._times.device.begin()
            batch = delivery.take(filled)
            self._times.device.end(filled.rows)
            self._torn = False
            if not delivery.settle():
                queue.bell.ring()  # the filling thread looks when the slot is free
            after = self._after_end(at) if filled.ended else self._steps.after(at)
            if after.epoch == at.epoch:
                delivery.send(queue.ready)
            else:
                delivery.rest()
            return Delivered(batch, filled.rows, after)

    def _after_end(self, at: Cursor) -> Cursor:
        """Return the next epoch's cursor, now that a stream has ended in this one."""
        if at.consumed == 0 and self._steps.last_batch is LastBatch.DROP:
            raise PlanError(
                f"the stream has fewer samples than a batch of {self._steps.batch}: use a smaller batch or "
                'last_batch="partial"'
            )
        return Cursor(at.epoch + 1)

    def _aim(self, at: Cursor) -> None:
        """See to it that the next batch starts at ``at``. The lock is held."""
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
        """Do a task of the awaited batch in this thread, where there are no other workers.

        A task of a later batch would run the user's code between training steps, or not, as timing has it.
        Random numbers that this code takes from the process's global generators would then differ from run to
        run.
        """
        if not self._workers.helps:
            return False
        queue = self._queue
        with queue.lock:
            if queue.ready or (queue.filling and queue.filling[0].is_over):
                return False
        return self._workers.help()

    def _settled(self) -> bool:
        """Return whether no device reads slots of batches that were taken."""
        with self._queue.lock:
            return self._delivery.settle()

    def _await_news(self, begin: float) -> None:
        queue = self._queue
        if queue.starved:
            self._room.reclaim()
            patience = begin + queue.plan.options.batch_release_timeout_s - time.perf_counter()
            if patience > 0:
                queue.news.acquire(timeout=min(patience, INTERRUPTED_S))
                return
            gc.collect()  # garbage may hold batches: an exception's frames refer to themselves
            if self._room.no_slot():
                raise self._room.all_lent()
        queue.news.acquire(timeout=INTERRUPTED_S)

    def _tell_of_draws(self, probe: Probe) -> None:
        """Warn once of code that uses this process's global generators, when that is known."""
        if probe.drawing is None:
            return
        self._probe = None
        if probe.drawing:
            queue, self.drawing = self._queue, probe.drawing
            with queue.lock:
                queue.plan = replace(queue.plan, drawing=probe.drawing)
            warn(str(queue.plan.not_reproducible))
