"""Log work that takes long, and give it up after ``stall_timeout_s``.

A thread checks all work in progress at the time when the earliest of it may have become slow. It sleeps in between,
and without a time limit while there is no work.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from standpipe import _native
from standpipe.engine.watchdog.guarded import guarded
from standpipe.engine.watchdog.where import import_in, stack_of_thread
from standpipe.errors import StalledError, StandpipeError
from standpipe.stats.counters import SlowSample

if TYPE_CHECKING:
    import logging

Result = TypeVar("Result")

MOST_S = 1e6  # that it sleeps at once: what clocks can count
KEPT = 1000  # of what was slow, the newest


class Party(Protocol):
    """Some who work, and can say at what."""

    @property
    def in_flight(self) -> bool:
        """True if any work was asked for and isn't done."""

    def at_work(self) -> Sequence[Work]:
        """Return the current work of each worker."""


class Owner(Protocol):
    """Knows where some work is, and can end it."""

    def where(self, work: Work) -> str:
        """The Python stacks of who does it, or what the kernel says of it; empty when nobody knows."""

    def give_up(self, work: Work, error: StalledError) -> bool:
        """End the work if that is possible. Return False if it has ended, or can't be ended."""


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work in progress.

    hand     distinguishes it from earlier and later work of the same worker
    what     for messages: ``"record 37"``
    doing    for messages: ``"the dataset"``, ``"reading its file"``
    worker   for messages: ``"worker 3 (process 4711)"``
    begin_s  since when, as ``time.monotonic()`` counts; later by the time that it waited for others
    index    the record's number, or None if it is no single sample
    path     the record's file, if it has one
    waits    True if it waits for other work
    least_s  seconds that it may always take
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


class Watch:
    """The watchdog of one run, from ``start`` to ``close``.

    run_bell  rings when the run can't go on
    own_tasks   work of the run's own threads
    ended     why the run can't go on: one of its threads ended, or all workers did
    slow      number of slow works that were logged
    stalled   number of those that were given up
    """

    def __init__(self, slow_sample_s: float, stall_timeout_s: float | None, run_bell: _native.Bell) -> None:
        self._slow_sample_s, self._stall_timeout_s = slow_sample_s, stall_timeout_s
        self._run_bell = run_bell
        self._bell = _native.Bell()
        self.ended: StandpipeError | None = None
        self._reported: dict[object, str] = {}  # the last error of each who is alive
        self.own_tasks = OwnTasks()
        self._parties: list[Party] = [self.own_tasks]
        self._named: dict[Hashable, int] = {}  # what is slow now, by its number among all
        self._slow: dict[int, SlowSample] = {}
        self._given_up: set[Hashable] = set()
        self._idle = self._closed = False
        self._nobody_works_since_s: float | None = None  # since when everybody waits for others
        self.slow = self.stalled = 0
        self._thread = guarded("standpipe-watch", self._watch, self.end)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def add(self, party: Party) -> None:
        """Look at these too."""
        self._parties.append(party)

    @property
    def slow_samples(self) -> list[SlowSample]:
        """The newest 1,000 works that were logged as slow, oldest first."""
        return list(self._slow.values())

    def end(self, error: StandpipeError) -> None:
        """The run can't go on. The first error counts."""
        self.ended = self.ended or error
        self._run_bell.ring()

    def wake(self) -> None:
        """Something is in flight now."""
        if self._idle:
            self._bell.ring()

    def own_task(
        self,
        what: str,
        doing: str,
        worker: str,
        *,
        where: Callable[[], str] | None = None,
        give_up: Callable[[StalledError], object] | None = None,
        least_s: float = 0.0,
    ) -> OwnTask:
        """Something beside making samples that this thread does or waits for, for the length of a ``with`` block.

        where    says where it is; default: the stack of this thread
        give_up  ends it; an error that the block raises after that becomes the ``StalledError``
        least_s  seconds that it has, where that is more than others have
        """
        return OwnTask(self, (what, doing, worker), where, give_up, least_s)

    def close(self, patience_s: float) -> None:
        """End the thread, and forget the workers."""
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
        """Return what ``look`` does. An error in it is logged, once for all who are alive, and the watch goes on."""
        try:
            return look()
        except Exception as error:
            known = repr(error) in self._reported.values()
            self._reported[at] = repr(error)
            if not known:
                _logger().error("the watch met an error, and goes on: %r", error, exc_info=error)
            return otherwise

    def _look(self, works: Sequence[Work]) -> float:
        """Name and give up what it is time for; seconds until the next look."""
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
        """Name or give up one of them, if it is time to; when to look again."""
        begin_s, again = work.begin_s, now + self._slow_sample_s
        if work.waits:
            if self._nobody_works_since_s is None:
                return again  # what it waits for is in somebody's hands, which are looked at too
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
        """Update the seconds of slow work that isn't done."""
        number = self._named[work.hand]
        if number in self._slow:  # else many have been named since
            self._slow[number] = replace(self._slow[number], seconds=now - work.begin_s)

    def _name(self, work: Work) -> None:
        where, seconds = _where(work), time.monotonic() - work.begin_s
        doing = import_in(where) or work.doing
        self.slow += 1
        self._named[work.hand] = self.slow
        self._slow[self.slow] = SlowSample(work.what, work.index, work.path, doing, work.worker, seconds)
        self._slow.pop(self.slow - KEPT, None)
        text = f"{work.what} has taken {seconds:.1f} s so far: {doing}, in {work.worker}"
        _logger().warning("%s%s", text, f"\n{where}" if where else "")

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
        _logger().warning("%s", text)


class OwnTask:
    """Work of a run's own thread, made by ``Watch.own_task``."""

    def __init__(
        self,
        watch: Watch,
        texts: tuple[str, str, str],
        where: Callable[[], str] | None,
        give_up: Callable[[StalledError], object] | None,
        least_s: float,
    ) -> None:
        self._watch, self._texts, self._least_s = watch, texts, least_s
        self._where, self._give_up = where, give_up
        self._stalled: StalledError | None = None
        self._begin_s, self._thread = 0.0, 0

    def __enter__(self) -> Self:
        self._begin_s, self._thread = time.monotonic(), threading.get_ident()
        self._watch.own_tasks.now[self] = None
        self._watch.wake()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._watch.own_tasks.now[self]
        if self._stalled is not None and isinstance(error, Exception):
            raise self._stalled from error

    def work(self) -> Work:
        """Return it as the watchdog sees it."""
        what, doing, worker = self._texts
        return Work(self, what, doing, worker, self._begin_s, self, least_s=self._least_s)

    def where(self, work: Work) -> str:
        """Return the thread's stack."""
        return stack_of_thread(self._thread) if self._where is None else self._where()

    def give_up(self, work: Work, error: StalledError) -> bool:
        """End it. False when that is impossible, or it has ended."""
        if self._give_up is None or self not in self._watch.own_tasks.now:
            return False
        self._stalled = error
        self._give_up(error)
        return True


class OwnTasks:
    """The work of a run's own threads."""

    def __init__(self) -> None:
        self.now: dict[OwnTask, None] = {}

    @property
    def in_flight(self) -> bool:
        """True if there is any."""
        return bool(self.now)

    def at_work(self) -> Sequence[Work]:
        """Return all of it."""
        return [own_task.work() for own_task in list(self.now)]


class Unattended:
    """Work that waits while nobody has any in hand, as when every thread that could do it is gone.

    ends  is given the error once that has lasted for too long
    """

    def __init__(self, ends: Callable[[StandpipeError], object]) -> None:
        self._ends = ends
        self._waits: object = None
        self._since_s = 0.0

    def seen(self, waits: object, what: str) -> Work:
        """The work that comes next, while nobody has any in hand: ``waits`` tells it from the next one."""
        if waits is not self._waits:
            self._waits, self._since_s = waits, time.monotonic()
        hand = (self, self._since_s)
        return Work(hand, what, "waiting for a worker", "no thread", self._since_s, self, waits=True)

    def forget(self) -> None:
        """Forget that no worker has the work: a worker works again."""
        self._waits = None

    def where(self, work: Work) -> str:
        """Nowhere."""
        return ""

    def give_up(self, work: Work, error: StalledError) -> bool:
        """End the run."""
        self._ends(error)
        return True


class Overdue:
    """Work of threads that the watchdog gave up, until the thread that owns the slots fails it.

    bell  rings when there is some
    """

    def __init__(self, bell: _native.Bell) -> None:
        self._bell = bell
        self._works: deque[tuple[Work, StalledError]] = deque()

    def add(self, work: Work, error: StalledError) -> bool:
        """Add work; an owner's ``give_up``."""
        self._works.append((work, error))
        self._bell.ring()
        return True

    def take(self) -> Iterator[tuple[Work, StalledError]]:
        """Yield each work once."""
        while self._works:
            yield self._works.popleft()


def _where(work: Work) -> str:
    """Return where work is. An error in finding that out becomes the text."""
    try:
        return work.owner.where(work)
    except Exception as error:
        return f"where that is can't be said: {error!r}"


def _logger() -> logging.Logger:
    import logging  # a tenth of what importing standpipe costs beside NumPy

    return logging.getLogger("standpipe")
