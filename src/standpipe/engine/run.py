"""A running loader: keeps slots filling, in order, and hands them over.

Life of a slot: ``_submit`` takes it (FREE → FILLING) and gives its rows to the workers; ``_collect`` sees
the oldest job done (FILLING → READY); ``take`` lends it (READY → LENT); dropping the last view frees it. One
thread submits and collects, woken by a native bell that finished jobs and freed slots ring; nothing polls.

The consumer says which batch it wants, by cursor. When the next one is another, because of a ``break``, an
error or an interrupt between two steps of handing over, filling starts again at the wanted one.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from standpipe import _native
from standpipe.engine.deliver import Delivered, Delivery
from standpipe.engine.fill import Filled, Filler, Filling
from standpipe.engine.meter import Meter
from standpipe.engine.room import Room
from standpipe.engine.start import started
from standpipe.engine.start_common import refusals
from standpipe.engine.timing import RunTimes
from standpipe.engine.tuner.adjusting import Adjuster
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.watchdog.watch import Unattended, Watch, Work
from standpipe.engine.workers import INTERRUPTED_S, Job, Workers, has_ended
from standpipe.errors import PlanError, StandpipeError
from standpipe.order import AnyOrder, Cursor
from standpipe.plan.plan import Plan
from standpipe.plan.tuning import Tuning
from standpipe.spec import Tail
from standpipe.stats.bad_samples import Ledger
from standpipe.stats.counters import SlotStats, SlowSample, Stats
from standpipe.stats.memory import MemoryLedger
from standpipe.system.machine import anonymous_bytes, on_cpus
from standpipe.system.sharing import Claim
from standpipe.system.user_warnings import warn

if TYPE_CHECKING:
    import logging

    from standpipe.engine.probe import Probe

PATIENCE_S = 1.0  # for threads inside a system call or a large image, when a loader is closed
HASTE_S = 0.5  # likewise, when whoever closes it is interrupted
RESTS_S = 1.0  # without anything to do, after which a loader leaves its part of the machine to others
LOOKS_S = 0.002  # between two looks at what a device reads yet

# Runs with threads that were still busy when they were closed: these may use the run's arrays yet.
_abandoned: list[Run] = []


class Run:
    """Workers and slots of one plan, from ``start`` to ``close``. One consumer at a time.

    plan    what is run; what was measured at the start is in it
    ledger  takes down the bad samples of what is delivered
    claim   the loader's part of the machine
    """

    _workers: Workers  # these are there once it has started
    _ring: _native.SlotRing
    _meter: Meter
    _filler: Filler
    _delivery: Delivery
    _adjuster: Adjuster

    def __init__(self, plan: Plan, ledger: Ledger, claim: Claim) -> None:
        self.plan = plan
        self._claim = claim
        self._pid = os.getpid()
        self._ledger = ledger
        self._bell = _native.Bell()
        self._watch = Watch(plan.options.slow_after_s, plan.options.stall_timeout_s, self._bell)
        self._unattended = Unattended(self._watch.end)
        # What follows is shared by the consumer and the threads, under the lock. The lock is entered itself,
        # not through a condition, whose methods are Python: an interrupt inside them would leave it locked.
        self._lock = threading.RLock()
        self._news = threading.Lock()  # free once something happened that a waiting consumer has to see
        self._news.acquire()
        self._filling: deque[Filling | Filled] = deque()
        self._quarantined: list[tuple[int, Job]] = []  # slots into which a stuck thread may write yet
        self._ready: deque[Filled] = deque()
        self._next = Cursor()
        self._sought: Cursor | None = None
        self._torn = False  # whether a batch may have left the queue and not reached the consumer
        self._waiting = self._starved = self._closed = False
        self._lacks_slot = False  # whether the next batch has none, as the thread that fills batches last saw
        self._lends = plan.device.lends  # else a slot comes back by itself, soon
        self._starts = self._ended = False
        self._times = RunTimes()
        self._probe: Probe | None = None
        self._thread = guarded("standpipe-fill", self._keep_filling, self._break)

    def start(self, at: Cursor) -> None:
        """Begin to fill batches, from ``at`` on. When it raises, for whatever reason, nothing is left running.

        Raises what ``started`` does, and ``StandpipeError`` when another thread has closed it meanwhile.
        """
        with self._lock:
            self._check_open()
            self._starts = True
        try:
            with on_cpus(self.plan.device.cpus()):
                self._start(at)
        except BaseException:
            self._closed = True
            self._end()
            raise
        steps = self.plan.steps
        _logger().info("rank %d of %d data ranks, %d workers", steps.rank, steps.world, self.plan.workers)

    def _start(self, at: Cursor) -> None:
        with refusals(self.plan):
            before = anonymous_bytes()
        if self.plan.probes:
            from standpipe.engine.probe import Probe  # which takes as long to import as what else a run needs

            self._probe = Probe(self.plan, at)
        self.plan, self._workers, self._ring = started(self.plan, at, self._bell, self._watch)
        self._next = self.plan.steps.settled(at)
        self._delivery = Delivery(self.plan, self._ring)
        self._meter = Meter(self.plan, self._ring, self._workers, self._claim, before)
        self._adjuster = Adjuster(self.plan, self._workers, self._ring, self._claim)
        self._room = Room(self.plan, self._ring, self._workers)
        self._filler = Filler(
            self.plan,
            self._workers,
            self._ring,
            self._ledger,
            self._watch,
            times=self._times,
            hangs=self._tell_of_hang,
        )
        with refusals(self.plan):
            self._workers.start()
            self._watch.add(self)
            with self._lock:
                self._check_open()
                self._thread.start()
                self._starts = False

    def seek(self, at: Cursor) -> None:
        """Fill from ``at`` on: what was filled ahead is dropped, unless it is what comes there."""
        self._check_process()
        with self._lock:
            self._aim(self.plan.steps.settled(at))

    def follow(self, order: AnyOrder, at: Cursor) -> None:
        """Fill from ``at`` on by another order: what was filled ahead by the old one is dropped."""
        self._check_process()
        with self._lock:
            self.plan = self._filler.plan = replace(self.plan, order=order)
            self._torn = True
            self._aim(self.plan.steps.settled(at))

    def leave(self) -> None:
        """Nobody asks for more of the epoch that the last batch was of."""
        if os.getpid() != self._pid:
            return  # of a forked child: a thread that isn't there may hold the lock for ever
        with self._lock:
            self._times.steps.leaves()
            if not self._ended:
                self._delivery.rest()

    def look(self) -> None:
        """More batches were given."""
        self._bell.ring()

    def take(self, at: Cursor, *, counts: bool = True) -> Delivered:
        """The batch that starts at ``at``; waits for it.

        counts  whether it is a step of the training loop, and its bad samples are taken down; else it comes again

        Raises what made it impossible. Asked for the same batch again, it tries again.
        """
        self._check_process()
        self._tell_of_draws()
        steps = self._times.steps
        begin, ready = time.perf_counter(), len(self._ready)
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
            self._waiting = False
        if delivered.batch is not None and counts:
            steps.gets(delivered.rows, ready)
        if self._probe is not None:
            self._probe.start()  # not before the first batch, which it would delay
        return delivered

    def _tell_of_draws(self) -> None:
        """Warn once of code that draws from the trainer's generators, when that is known."""
        probe = self._probe
        if probe is None or probe.drawing is None:
            return
        self._probe = None
        if probe.drawing:
            self.plan = replace(self.plan, drawing=probe.drawing)
            warn(str(self.plan.not_reproducible))

    def stats(self) -> Stats:
        """All counters."""
        self._check_process()
        ring = self._ring
        slots = SlotStats(
            self.plan.most_slots, ring.count("lent"), ring.count("filling"), ring.count("ready")
        )
        counted = self._times.stats(self._workers.stats(), slots, self._delivery.copying_s)
        return replace(counted, slow=self._watch.slow, stalled=self._watch.stalled)

    def tuning(self) -> Tuning:
        """How many workers and slots there are now, and how that came."""
        return self._adjuster.tuning()

    @property
    def since(self) -> Stats:
        """Counters of when there were first as many workers and slots as now."""
        return self._adjuster.since

    @property
    def slow_samples(self) -> list[SlowSample]:
        """What took long, the newest of it."""
        return self._watch.slow_samples

    @property
    def in_flight(self) -> bool:
        """Whether a slot is being filled."""
        return bool(self._filling)

    def at_work(self) -> Sequence[Work]:
        """What the workers have in hand, for the watch; when that is nothing, what waits for them."""
        works = self._workers.at_work()
        waits = next((each for each in tuple(self._filling) if not self._is_over(each)), None)
        if works or self._workers.helps or waits is None:
            self._unattended.forget()
            return works
        return [
            self._unattended.seen(
                waits, f"the batch at position {waits.at.consumed} of epoch {waits.at.epoch}"
            )
        ]

    def memory(self) -> MemoryLedger:
        """Who takes how much memory."""
        self._check_process()
        return self._meter.ledger()

    def close(self) -> None:
        """End all threads. Batches that were lent stay valid; calling it again does nothing.

        A start that is under way in another thread notices when it is through, and ends itself.
        """
        if os.getpid() != self._pid:
            return  # a forked child has none of the threads
        with self._lock:
            self._closed = True
            self._tell()
            if self._starts:
                return
        self._end()

    def _end(self) -> None:
        """End what there is; of a start that was interrupted that may be anything."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        try:
            self._end_all(PATIENCE_S)
        except BaseException:  # an interrupt: everything ends all the same
            self._end_all(HASTE_S)
            raise

    def _end_all(self, patience_s: float) -> None:
        self._watch.close(patience_s)
        ends = time.monotonic() + patience_s
        self._bell.ring()
        all_ended = True
        if self._probe is not None:  # before the workers, who may take all of the time
            all_ended = self._probe.close(patience_s)
        if hasattr(self, "_thread") and self._thread is not threading.current_thread():
            has_ended(self._thread, patience_s)  # it takes what workers owe
        if hasattr(self, "_workers"):
            all_ended &= self._workers.close(max(ends - time.monotonic(), 0))
        if hasattr(self, "_thread") and self._thread is not threading.current_thread():
            # Without workers it ends soon; an interpreter that ends while it runs may abort.
            all_ended &= has_ended(self._thread, max(ends - time.monotonic(), HASTE_S))
        if hasattr(self, "_meter"):
            self._meter.close()
        if hasattr(self, "_delivery"):
            with self._lock:
                self._delivery.close()
        if all_ended:
            if hasattr(self, "_adjuster"):
                self._adjuster.close()
            self._ready.clear()
            self._filling.clear()
            vars(self).pop(
                "_filler", None
            )  # it refers to this run, which shall end by itself, not by a collection
            if hasattr(self, "_ring"):
                self._ring.retire()
        else:
            _abandoned.append(self)
            _logger().warning("some threads were still busy after %.1f s; they end by themselves", patience_s)

    # The consumer's side.

    def _hand_over(self, at: Cursor, counts: bool) -> Delivered | None:
        """The batch that starts at ``at``, or None while it isn't ready."""
        with self._lock:
            self._check_open()
            if self._watch.ended is not None:
                raise self._watch.ended
            self._aim(at)
            self._delivery.enter(at.epoch)
            if not self._ready:
                if self._filler.stuck is not None:
                    raise self._filler.stuck
                if not self._waiting:
                    self._waiting, self._starved = True, False
                    self._bell.ring()  # only a waiting consumer makes the ring grow
                return None
            self._torn = True
            filled = self._ready.popleft()
            if filled.error is not None:
                raise filled.error
            if counts and filled.origins is not None and filled.origins.bad:
                assert filled.origins.error is not None
                self._ledger.add(at, filled.origins.bad, filled.origins.error)
            if filled.ended and filled.rows == 0:
                return Delivered(None, 0, self._after_end(at))
            self._times.device.begin()
            batch = self._delivery.take(filled)
            self._times.device.end(filled.rows)
            self._torn = False
            if not self._delivery.settle():
                self._bell.ring()  # the filling thread looks when the slot is free
            after = self._after_end(at) if filled.ended else self.plan.steps.after(at)
            if after.epoch == at.epoch:
                self._delivery.send(self._ready)
            else:
                self._delivery.rest()
            return Delivered(batch, filled.rows, after)

    def _after_end(self, at: Cursor) -> Cursor:
        """The next epoch, now that a stream has ended in this one."""
        if at.consumed == 0 and self.plan.steps.tail is Tail.DROP:
            raise PlanError(
                f"the stream has fewer samples than a batch of {self.plan.steps.batch}: use a smaller batch or "
                'tail="short"'
            )
        return Cursor(at.epoch + 1)

    def _aim(self, at: Cursor) -> None:
        """See to it that the next batch starts at ``at``. The lock is held."""
        queue = self._ready or self._filling
        coming = self._sought or (queue[0].at if queue else self._next)
        if coming == at and not self._torn:
            return
        self._torn = True
        self._sought = at
        self._drop_ready()
        self._bell.ring()
        self._torn = False

    def _help(self) -> bool:
        """Do a piece of work in this thread, where there are no others: of the batch that is waited for.

        A piece of a later batch would run the user's code between steps, or not, as it happens: what that code draws
        from the process's own generators would differ from run to run.
        """
        if not self._workers.helps:
            return False
        with self._lock:
            first = next(iter(self._filling), None)
            if self._ready or (first is not None and self._is_over(first)):
                return False
        return self._workers.help()

    def _settled(self) -> bool:
        """Whether no device reads slots of batches that were taken."""
        with self._lock:
            return self._delivery.settle()

    def _await_news(self, begin: float) -> None:
        if self._starved:
            self._ring.reclaim()
            patience = begin + self.plan.options.lend_wait_s - time.perf_counter()
            if patience > 0:
                self._news.acquire(timeout=min(patience, INTERRUPTED_S))
                return
            gc.collect()  # garbage may hold batches: an exception's frames refer to themselves
            if self._room.no_slot():
                raise self._room.all_lent()
        self._news.acquire(timeout=INTERRUPTED_S)

    def _drop_ready(self) -> None:
        """Free all ready slots, also those whose hand-over was interrupted. The lock is held."""
        self._ready.clear()
        self._delivery.rest()
        self._ring.release_ready()

    def _tell(self) -> None:
        """Wake the consumer if it waits. The lock is held."""
        if self._news.locked():
            self._news.release()

    # The filling thread.

    def _keep_filling(self) -> None:
        seen = 0
        while self._goes_on:
            self._obey_seek()
            self._isolate()
            self._collect()
            self._ring.trim()
            self._submit()
            with suppress(OSError):  # they read /proc: without a descriptor that is free, another time
                self._meter.look()
                self._adjuster.look(self)
            try:
                settled = self._settled()
            except RuntimeError:  # of a device that has failed: whoever asks for a batch is told
                settled = True
            if self._filling and not self._workers.helps:
                seen = self._await_bell(seen, settled=settled)
            else:
                lacks = self._lacks_slot and not self._filling
                with self._times.without_slot() if lacks else nullcontext():
                    seen = self._await_consumer(seen, settled=settled)
        with self._lock:
            self._tell()
        self._workers.settle()

    @property
    def _goes_on(self) -> bool:
        return not self._closed and self._watch.ended is None

    def _break(self, error: StandpipeError) -> None:
        """The filling thread has ended by an error."""
        self._watch.end(error)
        with self._lock:
            self._tell()

    def _await_bell(self, seen: int, *, settled: bool) -> int:
        # It doesn't ring when a device has read a slot.
        return self._workers.wait(seen, None if settled else LOOKS_S)

    def _await_consumer(self, seen: int, *, settled: bool) -> int:
        """Nothing is made before it takes a batch, or names records: when that takes long, this loader rests."""
        if settled:
            rung = self._workers.wait(seen, RESTS_S)
            if rung != seen:
                return rung
            if not self._waiting:
                self._claim.rest()
        return self._await_bell(seen, settled=settled)

    def _obey_seek(self) -> None:
        if self._sought is None:
            return
        for filling in self._filling:
            if isinstance(filling, Filling):
                self._workers.cancel(filling.job)
        seen = 0
        while self._filling and self._goes_on:
            self._isolate(again=False)
            first = self._filling[0]
            if not self._is_over(first):
                seen = self._workers.wait(seen)
                continue
            self._filling.popleft()
            if first.slot is not None:
                self._ring.release(first.slot)
        with self._lock:
            self._drop_ready()
            self._next, self._sought = self._sought, None

    def _isolate(self, *, again: bool = True) -> None:
        """See that nobody uses a slot into which a thread that hangs may write.

        again  whether its batch is made in another one
        """
        over = [(slot, job) for slot, job in self._quarantined if job.done]
        for each in over:
            self._quarantined.remove(each)
            self._ring.release(each[0])
        for job, failure in self._workers.take_lost():
            for place, filling in enumerate(self._filling):
                if isinstance(filling, Filling) and filling.job is job:
                    self._ring.quarantine(filling.slot)
                    self._quarantined.append((filling.slot, job))
                    other = self._filler.again(filling, failure) if again else Filled(None, filling.at)
                    self._filling[place] = other
                    self._start_on(other)

    def _collect(self) -> None:
        """Hand over finished slots, oldest first."""
        while self._filling:
            self._times.batch.begin()
            filled = self._filler.outcome(self._filling[0])
            if filled is None:
                self._wake_helper()  # rows may be made again
                return
            self._times.batch.end(filled.rows)
            with self._lock:
                if self._sought is not None:
                    return
                self._filling.popleft()
                if filled.slot is not None:
                    self._ring.mark_ready(filled.slot)
                self._ready.append(filled)
                self._delivery.send(self._ready)
                self._tell()

    @staticmethod
    def _is_over(filling: Filling | Filled) -> bool:
        """Whether nobody writes into the slot any more."""
        return isinstance(filling, Filled) or filling.job.done

    def _submit(self) -> None:
        """Fill every slot that can be had. The ring grows only for a consumer that waits while nothing comes."""
        self._lacks_slot = False
        while not self._closed and self._sought is None and self._is_known(self._next):
            with self._lock:
                needed = self._lends and self._waiting and not self._ready and not self._filling
            has_room = self._room.has_room()
            slot = self._ring.take(grow=needed and has_room) if needed or has_room else -1
            if slot < 0:
                self._lacks_slot = True
                with self._lock:
                    # A slot that came back meanwhile isn't lent any more, and has rung the bell.
                    self._starved = needed and self._room.no_slot()
                    if self._starved:
                        self._tell()
                return
            self._times.order.begin()
            filling = self._filler.begin(slot, self._next)
            self._times.order.end(filling.rows)
            with self._lock:
                self._starved = False
                self._filling.append(filling)
                self._next = self.plan.steps.after(filling.at)
            self._start_on(filling)

    def _is_known(self, at: Cursor) -> bool:
        """Whether somebody has said which records a batch has."""
        return self.plan.steps.is_known(self.plan.order, at)

    def _start_on(self, filling: Filling | Filled) -> None:
        """Give it to the workers, if there is anything to do."""
        if isinstance(filling, Filling):
            self._workers.submit(filling.job)
            self._watch.wake()
            self._wake_helper()
        else:
            self._bell.ring()  # it is done

    def _wake_helper(self) -> None:
        """There is work for a consumer that does it."""
        if self._workers.helps:
            with self._lock:
                self._tell()

    def _tell_of_hang(self) -> None:
        """The filling thread hangs: whoever waits for a batch gets an error meanwhile."""
        with self._lock:
            self._tell()

    def _check_open(self) -> None:
        if self._closed:
            raise StandpipeError("the loader is closed")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StandpipeError(
                "this loader was started in another process; threads don't survive a fork: make a loader here"
            )


def _logger() -> logging.Logger:
    import logging  # a tenth of what importing standpipe costs beside NumPy

    return logging.getLogger("standpipe")
