"""A loader's own observer: takes its snapshot every second or so, while it runs, for history and other processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

import standpipe as sp
from standpipe.observe.history import History
from standpipe.observe.posted import Posted
from standpipe.observe.snapshot import Snapshot, snapshot
from standpipe.observe.verdict import Verdict, verdict

EVERY_S = 1.0
SELDOM_S = 10.0
SHARE = 0.0005  # of a processor's time that it takes at most, unless that were too seldom
GRACE_S = 60.0  # of a run, whose share may be spent at its beginning
JUDGED_S = 10.0  # of the run that a verdict is about; at first less
PATIENCE_S = 1.0  # for a snapshot that is just being taken, when a loader is closed


class Observed(Protocol):
    """What runs."""

    @property
    def plan(self) -> sp.Plan:
        """What is run."""

    def stats(self) -> sp.Stats:
        """Counters since the start."""

    def memory(self) -> sp.MemoryLedger:
        """Who takes how much memory."""


class Where(NamedTuple):
    """Where a run stands.

    epoch            of the next batch
    consumed         positions of it that all ranks are past
    step_rows_per_s  that the training loop takes when it waits for nothing, where that was measured
    """

    epoch: int
    consumed: int
    step_rows_per_s: float | None


class Sampler:
    """Observes one run in a thread of its own, from ``begin`` to ``close``.

    It keeps no loader alive, and whatever goes wrong in it doesn't reach the training loop: it ends, and says so in the
    log of ``standpipe``, at the level of debugging.

    cores    that the process may use
    history  of the run, which it fills
    """

    def __init__(self, cores: int, history: History) -> None:
        self._history = history
        self._begun_s = 0.0  # by the clock of the counters
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._posted: Posted | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._judged = _Judged(cores)

    def begin(self, run: Observed, where: Callable[[], Where]) -> None:
        """Observe a run that has started.

        where  tells where it stands; a ``ReferenceError`` when nobody has the loader any more
        """
        thread = threading.Thread(
            target=self._keep_looking, args=(run, where), name="standpipe-observe", daemon=True
        )
        try:
            self._look_first(run)
            thread.start()
            self._thread = thread  # which close() may wait for
        except Exception:
            self._let_go()
            _log()

    def look(self, run: Observed, where: Callable[[], Where]) -> Snapshot:
        """The run's snapshot now, which is also its history's newest moment, and posted."""
        if os.getpid() != self._pid:
            raise sp.StandpipeError(
                "this loader was made in another process, and a fork doesn't have its threads"
            )
        with self._lock:  # so that no older one is posted after a newer one
            here = where()
            stats, memory = replace(run.stats(), epoch=here.epoch), run.memory()
            self._history.add(stats, memory.now)
            now = snapshot(
                run.plan,
                stats,
                memory,
                consumed=here.consumed,
                run_s=stats.time_s - self._begun_s,
                recent=self._history.recent(),
                verdict=self._judged.at(stats, run.plan, here.step_rows_per_s),
            )
            if self._posted is not None:
                self._posted.write(now)
        return now

    def close(self) -> None:
        """End the thread. Calling it again does nothing, and neither does a forked child's call."""
        if os.getpid() != self._pid:
            return
        self._done.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE_S)

    def _look_first(self, run: Observed) -> None:
        begun = run.stats()
        self._begun_s = begun.time_s
        self._history.add(begun, run.memory().now)
        try:
            self._posted = Posted(run.plan.steps.rank)
        except OSError:  # no more descriptors, or a system without memory files: other processes won't see it
            _log()

    def _keep_looking(self, run: Observed, where: Callable[[], Where]) -> None:
        try:
            closed, begin = False, time.monotonic()
            while not closed:
                self.look(run, where)
                closed = self._done.wait(pause_s(time.thread_time(), time.monotonic() - begin))
            self.look(run, where)  # how it ended
        except ReferenceError:  # nobody has the loader any more
            pass
        except Exception:
            _log()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Let go of the memory file."""
        with self._lock:
            posted, self._posted = self._posted, None
        if posted is not None:
            posted.close()


class _Judged:
    """The newest verdict of a run: about its first second, the next two, four, eight, and then every ten."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._verdict: Verdict | None = None
        self._since: sp.Stats | None = None
        self._next_s = EVERY_S

    def at(self, stats: sp.Stats, plan: sp.Plan, step_rows_per_s: float | None) -> Verdict | None:
        if self._since is None:
            self._since = stats if stats.time_s else None
        elif stats.time_s - self._since.time_s > self._next_s - EVERY_S / 2:
            self._verdict = verdict(
                stats - self._since, plan, cores=self._cores, step_rows_per_s=step_rows_per_s
            )
            self._since, self._next_s = stats, min(2 * self._next_s, JUDGED_S)
        return self._verdict


def pause_s(spent_s: float, after_s: float) -> float:
    """Seconds until the next snapshot, after so many in which those before took so many of a processor's."""
    return min(max(spent_s / SHARE - after_s - GRACE_S, EVERY_S), SELDOM_S)


def _log() -> None:
    import logging

    logging.getLogger("standpipe").debug("the observer has ended", exc_info=True)
