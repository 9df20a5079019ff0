"""Watchdog: log work that takes longer than ``slow_sample_s``, and end it after ``stall_timeout_s``.

A thread compares all work in progress with these limits. It sleeps until the earliest work can have reached a limit,
and without a time limit while no work is in progress.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeVar

from standpipe import _native
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.watchdog.where import import_in, newest_frame, stack_of_thread
from standpipe.errors import StalledError, StandpipeError
from standpipe.stats.counters import SlowSample
from standpipe.system.logs import logger

Result = TypeVar("Result")

MOST_S = 1e6  # longest sleep of the thread, in seconds: clocks can't count much more
KEPT_WORKS = 1000  # newest slow works that are kept for ``slow_samples``


class Party(Protocol):
    """Workers whose current work the watchdog checks, such as all workers of a run."""

    @property
    def in_flight(self) -> bool:
        """True if the workers have work that isn't done, begun or not."""

    def at_work(self) -> Sequence[Work]:
        """Return the current work of each worker that has any."""


class Owner(Protocol):
    """The object that the watchdog asks for a work's stack, and to end the work."""

    def where(self, work: Work) -> str:
        """Return the Python stack of the thread or process at this work, or its kernel state; empty if unknown."""

    def give_up(self, work: Work, error: StalledError) -> bool:
        """End the work with ``error``, and return True. Return False if the work has ended, or can't be ended."""


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work in progress, such as a sample that a worker makes.

    hand     equal only for the same piece of work of the same worker
    what     the work, for messages: ``"record 37"``
    doing    the step, for messages: ``"the dataset"``, ``"reading its file"``
    worker   the thread or process, for messages: ``"worker 3 (process 4711)"``
    begin_s  begin of the work, in seconds of ``time.monotonic()``, later by the time that it waited for other work
    owner    knows the work's stack, and can end it
    index    the record's number; None if the work isn't a single sample
    path     the record's file; None without a file
    waits    True if the work waits now for other work
    least_s  seconds that the work may take even if ``stall_timeout_s`` is shorter
    advice   text that the log has in place of the stack, for work that is often slow; None: the log has the stack
    """

    hand: Hashable
    what: str
    doing: str
    worker: str
    begin_s: float
    owner: Owner = field(repr=False)
    index: int | None = None
    path: str | None = None
    waits: bool = False
    least_s: float = 0.0
    advice: str | None = None


class Watch:
    """The watchdog of one run, with a thread from ``start`` to ``close``.

    run_bell   the bell of the run, which rings when ``ended`` is set
    own_tasks  work of the run's own threads
    ended      the error because of which the run can't go on: a thread of it or all workers ended; None: it goes on
    slow       number of works that were logged as slow
    stalled    number of works that were ended after their timeout
    """

    def __init__(self, slow_sample_s: float, stall_timeout_s: float | None, run_bell: _native.Bell) -> None:
        self._slow_sample_s, self._stall_timeout_s = slow_sample_s, stall_timeout_s
        self._run_bell = run_bell
        self._bell = _native.Bell()
        self.ended: StandpipeError | None = None
        self._reported: dict[object, str] = {}  # text of the last error in checking each work
        self.own_tasks = OwnTasks()
        self._parties: list[Party] = [self.own_tasks]
        self._named: dict[Hashable, int] = {}  # each work that is slow now, with its number in ``_slow``
        self._slow: dict[int, SlowSample] = {}
        self._elsewhere: deque[SlowSample] = deque(maxlen=KEPT_WORKS)
        self._given_up: set[Hashable] = set()
        self._idle = self._closed = False
        self._nobody_works_since_s: float | None = None  # since when all work waits for other work
        self.slow = self.stalled = 0
        self._thread = guarded("standpipe-watch", self._watch, self.end)

    def start(self) -> None:
        """Start the watchdog's thread, if it isn't started."""
        if self._thread.ident is None:
            self._thread.start()

    def add(self, party: Party) -> None:
        """Check the work of these workers too."""
        self._parties.append(party)

    @property
    def slow_samples(self) -> list[SlowSample]:
        """The newest 1,000 works that were logged as slow, oldest first; after those of other processes."""
        return [*self._elsewhere, *self._slow.values()]

    def note(self, slow: SlowSample) -> None:
        """Log a slow sample that another process has found, and keep it for ``slow_samples``."""
        self._elsewhere.append(slow)
        logger().warning(
            "%s took %.1f s or more: %s, in %s", slow.what, slow.seconds, slow.doing, slow.worker
        )

    def end(self, error: StandpipeError) -> None:
        """Record that the run can't go on because of ``error``, and ring its bell; an earlier error stays."""
        self.ended = self.ended or error
        self._run_bell.ring()

    def wake(self) -> None:
        """Wake the watchdog's thread, because work has begun; do nothing if the thread isn't idle."""
        if self._idle:
            self._bell.ring()

    def close(self, patience_s: float) -> None:
        """End the watchdog's thread, wait at most ``patience_s`` for that, and drop all references to workers."""
        self._closed = True
        self._parties = []  # they know the watch: without this only garbage collection would end them
        self._bell.ring()
        if self._thread.ident is not None:
            self._thread.join(patience_s)
        self._parties = []  # they refer to this watch: memory shall end with the last of them, not with a collection

    def _watch(self) -> None:
        seen = 0
        while not self._closed:
            self._idle = True  # before it looks: what begins afterwards wakes it
            nothing: Sequence[Work] = ()
            works = [work for party in self._parties for work in self._tried(party, party.at_work, nothing)]
            self._idle = not works and not any(party.in_flight for party in self._parties)
            if self._idle:
                seen = self._bell.wait(seen)
                continue
            pause_s = self._tried(self, partial(self._look, works), self._slow_sample_s)
            seen = self._bell.wait_for(seen, min(pause_s, MOST_S))

    def _tried(self, at: object, look: Callable[[], Result], otherwise: Result) -> Result:
        """Return ``look()``; if it raises, log the error and return ``otherwise``.

        at  the work or workers that ``look`` checks. While the same error goes on, it is logged once
        """
        try:
            return look()
        except Exception as error:
            known = repr(error) in self._reported.values()
            self._reported[at] = repr(error)
            if not known:
                logger().error("the watch met an error, and goes on: %r", error, exc_info=error)
            return otherwise

    def _look(self, works: Sequence[Work]) -> float:
        """Log slow works, end works after their timeout, and return the seconds until the next check."""
        hands = {work.hand for work in works}
        self._named = {hand: number for hand, number in self._named.items() if hand in hands}
        self._given_up &= hands
        now = time.monotonic()
        if not works or not all(work.waits for work in works):
            self._nobody_works_since_s = None
        elif self._nobody_works_since_s is None:
            self._nobody_works_since_s = now
        # Work that begins until the next look may reach its timeout before it is slow.
        again = now + min(self._slow_sample_s, self._stall_timeout_s or self._slow_sample_s)
        looks = [self._tried(work.hand, partial(self._look_at, work, now), again) for work in works]
        # Not before that: an error that goes on is known from those who had it before.
        alive: set[object] = {self, *self._parties, *hands}
        self._reported = {at: error for at, error in self._reported.items() if at in alive}
        return max(min([again, *looks]) - time.monotonic(), 0)

    def _look_at(self, work: Work, now: float) -> float:
        """Log one work if it is slow, end it if its timeout is over, and return when to check it again.

        now  current time, like the result in seconds of ``time.monotonic()``
        """
        begin_s, again = work.begin_s, now + self._slow_sample_s
        if work.waits:
            if self._nobody_works_since_s is None:
                return again  # some worker does the work that this one waits for, and is checked too
            begin_s = max(begin_s, self._nobody_works_since_s)  # or was until just now
        if work.hand in self._named:
            self._see_again(work, now)
        elif begin_s + self._slow_sample_s <= now:
            self._name(work)
        else:
            again = begin_s + self._slow_sample_s
        if self._stall_timeout_s is None or work.hand in self._given_up:
            return again
        ends_s = begin_s + max(self._stall_timeout_s, work.least_s)
        if ends_s > now:
            return min(again, ends_s)
        self._give_up(work)
        return again

    def _see_again(self, work: Work, now: float) -> None:
        """Update the seconds in ``slow_samples`` of slow work that isn't done."""
        number = self._named[work.hand]
        if number in self._slow:  # else many have been named since
            self._slow[number] = replace(self._slow[number], seconds=now - work.begin_s)

    def _name(self, work: Work) -> None:
        where, seconds = _where(work), time.monotonic() - work.begin_s
        doing = import_in(where) or work.doing
        self.slow += 1
        self._named[work.hand] = self.slow
        self._slow[self.slow] = SlowSample(work.what, work.index, work.path, doing, work.worker, seconds)
        self._slow.pop(self.slow - KEPT_WORKS, None)
        text = f"{work.what} has taken {seconds:.1f} s so far: {doing}, in {work.worker}"
        if work.advice is not None:
            place = newest_frame(where) if doing == work.doing else ""
            text = f"{text}: {place}" if place else text
            text, where = f"{text}. {work.advice}" if work.advice else text, ""
        logger().warning("%s%s", text, f"\n{where}" if where else "")

    def _give_up(self, work: Work) -> None:
        self._given_up.add(work.hand)
        where, seconds = _where(work), time.monotonic() - work.begin_s
        doing = import_in(where) or work.doing
        text = f"{work.what} was not done after {seconds:.1f} s: {doing}, in {work.worker}"
        setting = "start_timeout_s" if work.least_s else "stall_timeout_s"
        error = StalledError(
            f"{text}; {setting}= says how long is too long",
            index=work.index,
            path=work.path,
            doing=doing,
            worker=work.worker,
            seconds=seconds,
            where=where,
        )
        if where:
            error.add_note(f"There it was:\n{where}")
        self.stalled += 1  # before anybody has the error, and looks
        if not work.owner.give_up(work, error):
            self.stalled -= 1
            return
        logger().warning("%s", text)


@dataclass(eq=False)
class OwnTask:
    """Work of a run's own thread that isn't making samples, as a context in which the watchdog times it.

    what     the work, for messages; ``doing`` and ``worker`` are its step and thread, as in ``Work``
    stack    returns the stack of the work; None: the stack of the calling thread
    end      ends the work; an exception that the block raises after that becomes the ``StalledError``
    least_s  seconds that the work may take even if ``stall_timeout_s`` is shorter
    advice   text that the log has in place of the stack, as in ``Work``
    """

    watch: Watch
    what: str
    doing: str
    worker: str
    stack: Callable[[], str] | None = None
    end: Callable[[StalledError], object] | None = None
    least_s: float = 0.0
    advice: str | None = None
    _stalled: StalledError | None = None
    _begin_s: float = 0.0
    _thread: int = 0

    def __enter__(self) -> Self:
        self._begin_s, self._thread = time.monotonic(), threading.get_ident()
        self.watch.own_tasks.now[self] = None
        self.watch.wake()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self.watch.own_tasks.now[self]
        if self._stalled is not None and isinstance(error, Exception):
            raise self._stalled from error

    def work(self) -> Work:
        """Return this task in the form that the watchdog checks."""
        return Work(
            self,
            self.what,
            self.doing,
            self.worker,
            self._begin_s,
            self,
            least_s=self.least_s,
            advice=self.advice,
        )

    def where(self, work: Work) -> str:
        """Return the thread's stack."""
        return stack_of_thread(self._thread) if self.stack is None else self.stack()

    def give_up(self, work: Work, error: StalledError) -> bool:
        """End the task. Return False if that is impossible, or if the task has ended."""
        if self.end is None or self not in self.watch.own_tasks.now:
            return False
        self._stalled = error
        self.end(error)
        return True


class OwnTasks:
    """The work that a run's own threads do now, as the watchdog checks it.

    now  the tasks in progress, as keys
    """

    def __init__(self) -> None:
        self.now: dict[OwnTask, None] = {}

    @property
    def in_flight(self) -> bool:
        """True if a thread of the run does such a task."""
        return bool(self.now)

    def at_work(self) -> Sequence[Work]:
        """Return all tasks in progress."""
        return [own_task.work() for own_task in list(self.now)]


class Overdue:
    """A queue of works that threads didn't finish in time, from the watchdog to the filling thread.

    The watchdog adds works. The filling thread takes them and fails their rows.

    bell  rings when a work is added
    """

    def __init__(self, bell: _native.Bell) -> None:
        self._bell = bell
        self._works: deque[tuple[Work, StalledError]] = deque()

    def add(self, work: Work, error: StalledError) -> bool:
        """Add a work with its error, ring the bell, and return True, as ``Owner.give_up`` does."""
        self._works.append((work, error))
        self._bell.ring()
        return True

    def take(self) -> Iterator[tuple[Work, StalledError]]:
        """Remove and yield each work with its error."""
        while self._works:
            yield self._works.popleft()


def _where(work: Work) -> str:
    """Return the stack of a work, as its owner knows it; if that raises an error, return text about the error."""
    try:
        return work.owner.where(work)
    except Exception as error:
        return f"where that is can't be said: {error!r}"
