"""The thread that fills slots, in the order of the batches.

Life of a slot: ``_submit`` takes it (FREE → FILLING) and gives its rows to the workers. ``_collect`` marks it ready
when its job is the oldest one and done (FILLING → READY). The thread waits for a native bell. Finished jobs, freed
slots and the training loop ring it. Only the end of a device's reading is polled.
"""

from __future__ import annotations

import time

from standpipe.engine.deliver import LOOKS_S, Delivery
from standpipe.engine.fill import Filler
from standpipe.engine.queue import Fetching, Filled, Filling, RunParts
from standpipe.engine.room import SlotBudget
from standpipe.engine.run_monitor import RunMonitor
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.workers import Job
from standpipe.errors import StandpipeError

RESTS_S = 1.0  # seconds of idleness after which a loader leaves its part of the machine to other loaders


class FillingThread:
    """The filling thread of one run. It ends when the run is closed or the watchdog ends the run.

    thread  the thread, which the run starts
    """

    def __init__(self, run: RunParts, delivery: Delivery, room: SlotBudget, monitor: RunMonitor) -> None:
        self._queue, self._workers, self._watch, self._times = run.queue, run.workers, run.watch, run.times
        self._delivery, self._room, self._monitor = delivery, room, monitor
        self._filler, self._fetches = Filler(run), run.fetches
        self._ring = run.queue.ring
        # Otherwise a slot is free again once the device has read it.
        self._lends = run.queue.plan.device.lends
        self._lacks_slot = False  # True if there is no slot for the next batch
        self._quarantined: list[tuple[int, Job]] = []  # slots that a hanging thread may still write to
        self.thread = guarded("standpipe-fill", self._keep_filling, self._break)

    def _keep_filling(self) -> None:
        seen = 0
        while self._goes_on:
            self._obey_seek()
            self._isolate()
            self._collect()
            self._ring.trim()
            self._submit()
            if time.monotonic() >= self._monitor.due_s:
                self._monitor.look()
            seen = self._wait(seen)
        self._queue.tell()
        self._workers.settle()

    @property
    def _goes_on(self) -> bool:
        return not self._queue.closed and self._watch.ended is None

    def _break(self, error: StandpipeError) -> None:
        """End the run after an error that ended this thread."""
        self._watch.end(error)
        self._queue.tell()

    # Waiting.

    def _wait(self, seen: int) -> int:
        """Wait until the bell has rung more than ``seen`` times; return how many times it has rung."""
        try:
            with self._queue.lock:
                settled = self._delivery.settle()
        except RuntimeError:  # the device has failed; the next batch that the loop asks for raises the error
            settled = True
        if self._queue.filling:
            if self._workers.helps:
                return self._await_consumer(seen, settled=settled)
            return self._await_bell(seen, settled=settled)
        if not self._lacks_slot:
            return self._await_consumer(seen, settled=settled)
        before_s, begin = self._times.no_slot[0], time.perf_counter()
        self._times.no_slot = before_s, begin
        try:
            return self._await_consumer(seen, settled=settled)
        finally:
            self._times.no_slot = before_s + time.perf_counter() - begin, None

    def _await_bell(self, seen: int, *, settled: bool) -> int:
        # The bell doesn't ring when a device has read a slot, so the wait is short while one reads.
        return self._workers.wait(seen, None if settled else LOOKS_S)

    def _await_consumer(self, seen: int, *, settled: bool) -> int:
        """Wait until the loop takes a batch or names records. After ``RESTS_S``, mark the loader as idle."""
        if settled:
            rung = self._workers.wait(seen, RESTS_S)
            if rung != seen:
                return rung
            if not self._queue.waiting:
                self._monitor.rest()
        return self._await_bell(seen, settled=settled)

    # Batches whose slots are being filled.

    def _obey_seek(self) -> None:
        """Drop all batches and start again at ``queue.sought``, if the training loop has set that cursor.

        Wait first until no worker writes to a slot any more.
        """
        queue = self._queue
        if queue.sought is None:
            return
        for place, filling in enumerate(queue.filling):
            if isinstance(filling, Filling):
                for job in filling.jobs:
                    self._workers.cancel(job)
            elif isinstance(filling, Fetching):
                queue.filling[place] = Filled(filling.slot, filling.at)
        seen = 0
        while queue.filling and self._goes_on:
            self._isolate(again=False)
            first = queue.filling[0]
            if not first.is_over:
                seen = self._workers.wait(seen)
                continue
            queue.filling.popleft()
            if first.slot is not None:
                self._ring.release(first.slot)
        self._filler.forget()
        with queue.lock:
            queue.ready.clear()
            self._delivery.drop_ready()
            queue.next, queue.sought = queue.sought, None

    def _isolate(self, *, again: bool = True) -> None:
        """Quarantine slots that a hanging thread may still write to; free slots whose thread has finished.

        again  True: make the batches of quarantined slots again in other slots; False: drop them
        """
        over = [(slot, job) for slot, job in self._quarantined if job.done]
        for each in over:
            self._quarantined.remove(each)
            self._ring.release(each[0])
        for job, failure in self._workers.take_lost():
            for place, filling in enumerate(self._queue.filling):
                if isinstance(filling, Filling) and filling.job is job:
                    self._ring.quarantine(filling.slot)
                    self._quarantined.append((filling.slot, job))
                    other = self._filler.again(filling, failure) if again else Filled(None, filling.at)
                    self._queue.filling[place] = other
                    self._start_on(other, first=True)

    def _collect(self) -> None:
        """Move finished batches from ``queue.filling`` to ``queue.ready``, oldest first, up to an unfinished one."""
        queue = self._queue
        self._take_fetched()
        while queue.filling:
            filled = self._filler.outcome(queue.filling[0])
            if isinstance(filled, Fetching):
                queue.filling[0] = filled
                return
            if filled is None:
                self._wake_helper()  # replacement rows may have to be made
                return
            with queue.lock:
                if queue.sought is not None:
                    return
                queue.filling.popleft()
                if filled.slot is not None:
                    self._ring.mark_ready(filled.slot)
                queue.ready.append(filled)
                self._delivery.send(queue.ready)
                queue.tell()

    def _take_fetched(self) -> None:
        """Begin batches whose bytes have arrived, in their order; batches that wait for replacement rows go first."""
        if self._fetches is None:
            return
        queue = self._queue
        for place, filling in enumerate(tuple(queue.filling)):
            if not isinstance(filling, Fetching):
                continue
            if filling.fetched.is_here:
                queue.filling[place] = goes_on = self._filler.go_on(filling)
                self._start_on(goes_on, begun=filling.fetched.first)
            elif not filling.fetched.first:
                break
        self._fetches.look_ahead(queue.plan, queue.next)

    def _submit(self) -> None:
        """Begin a batch in every free slot.

        The ring of slots grows only while the training loop waits and no batch is ready or being filled.
        """
        queue = self._queue
        self._lacks_slot = False
        while not queue.closed and queue.sought is None:
            if not queue.plan.steps.is_known(queue.plan.order, queue.next):
                return  # the caller names its records later
            if self._fetches is not None and not self._fetches.has(queue.next):
                return  # there is no place for its bytes yet
            with queue.lock:
                needed = self._lends and queue.waiting and not queue.ready and not queue.filling
            has_room = not self._room.varies or self._room.has_room()
            slot = self._ring.take(grow=needed and has_room) if needed or has_room else -1
            if slot < 0:
                self._lacks_slot = True
                with queue.lock:
                    # Check again: a slot that was freed since isn't lent any more, and has rung the bell.
                    queue.starved = needed and self._room.no_slot()
                    if queue.starved:
                        queue.tell()
                return
            filling = self._filler.begin(slot, queue.next)
            with queue.lock:
                queue.starved = False
                queue.filling.append(filling)
                queue.next = queue.plan.steps.after(filling.at)
            self._start_on(filling)

    def _start_on(
        self, filling: Filling | Filled | Fetching, *, first: bool = False, begun: bool = False
    ) -> None:
        """Give a batch to the workers; if it is finished already, ring the bell so that it is collected.

        first  True: before the batches that workers already have
        begun  True: workers have its job
        """
        if isinstance(filling, Filling):
            if not begun:
                self._workers.submit(filling.job, first=first)
            self._watch.wake()
            self._wake_helper()
        else:
            self._queue.bell.ring()  # so that it is collected

    def _wake_helper(self) -> None:
        """Wake the training loop if it makes rows itself (``executor="inline"``)."""
        if self._workers.helps:
            self._queue.tell()
