"""A thread that takes a snapshot of a running loader about every second, for history and other processes."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

import standpipe as sp
from standpipe.observe.history import History, moment_between
from standpipe.observe.judge import diagnose
from standpipe.observe.posted import KIND
from standpipe.observe.snapshot import Snapshot, snapshot
from standpipe.system.published import Published

EVERY_S = 1.0
SELDOM_S = 10.0
CPU_SHARE = 0.0005  # of a processor's time that it takes at most, unless that were too seldom
GRACE_S = 60.0  # of a run, whose share may be spent at its beginning
RECENT_S = 10.0  # of the run that its figures are about; at first less
PATIENCE_S = 1.0  # for a snapshot that is just being taken, when a loader is closed


class SampledRun(Protocol):
    """A run that can be measured."""

    @property
    def plan(self) -> sp.Plan:
        """The plan of the run."""

    @property
    def since(self) -> sp.Stats:
        """Counters of when it had first as many workers as now."""

    def tuning(self) -> sp.Tuning:
        """Return its present workers."""

    def stats(self) -> sp.Stats:
        """Counters since the start."""

    def memory(self) -> sp.MemoryLedger:
        """Return the memory of each owner."""


class Where(NamedTuple):
    """The place of a run.

    epoch            epoch of the next batch
    consumed         positions of it that all ranks have passed
    step_rows_per_s  measured rate of the training loop when it never waits, if known
    """

    epoch: int
    consumed: int
    step_rows_per_s: float | None


class Sampler:
    """Observes one run in a thread of its own, from ``begin`` to ``close``.

    It keeps no loader alive, and whatever goes wrong in it doesn't reach the training loop: it ends, and says
    so in the log of ``standpipe``, at the level of debugging.

    cores    that the process may use
    history  of the run, which it fills
    """

    def __init__(self, cores: int, history: History) -> None:
        self._history, self._cores = history, cores
        self._begun = sp.Stats()
        self._looks: deque[sp.Stats] = deque()  # of the recent seconds, oldest first
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._posted: Published | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def begin(self, run: SampledRun, where: Callable[[], Where]) -> None:
        """Observe a run that has started.

        where  returns the run's place; raises ``ReferenceError`` when the loader was garbage-collected
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

    def look(self, run: SampledRun, where: Callable[[], Where], *, whole: bool = False) -> Snapshot:
        """Take a snapshot of the run now, add it to the history and publish it.

        whole  whether its figures are about all of the run since it has as many workers as now; else about
               the newest ten seconds of that
        """
        if os.getpid() != self._pid:
            raise sp.StandpipeError(
                "this loader was made in another process, and a fork doesn't have its threads"
            )
        with self._lock:  # so that no older one is posted after a newer one
            here = where()
            stats, memory = replace(run.stats(), epoch=here.epoch), run.memory()
            self._history.add(stats, memory.now)
            since, begun_s = self._since(run.since, stats, whole), self._begun.time_s
            tuning = run.tuning()
            # Not those that tuning only tries: who shows them has the diagnosis's workers beside.
            transform = replace(stats.transform, threads=min(stats.transform.threads, tuning.num_workers))
            now = snapshot(
                run.plan,
                replace(stats, transform=transform),
                memory,
                consumed=here.consumed,
                run_s=stats.time_s - begun_s,
                recent=moment_between(since, stats, memory.now, since.time_s - begun_s),
                diagnosis=diagnose(
                    stats - since,
                    run.plan,
                    tuning,
                    cores=self._cores,
                    step_rows_per_s=here.step_rows_per_s,
                )
                if stats.time_s
                else None,
            )
            if self._posted is not None:
                self._posted.write(now.as_json())
        return now

    def close(self) -> None:
        """End the thread. Calling it again does nothing, and neither does a forked child's call."""
        if os.getpid() != self._pid:
            return
        self._done.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE_S)

    def _since(self, tuned: sp.Stats, now: sp.Stats, whole: bool) -> sp.Stats:
        """Return the counters at the start of the period that a snapshot covers. The caller holds the lock."""
        since = max(self._begun, tuned, key=lambda stats: stats.time_s)
        if whole:
            return since
        while len(self._looks) > 1 and now.time_s - self._looks[1].time_s >= RECENT_S:
            self._looks.popleft()
        recent = self._looks[0] if self._looks else since
        if not self._looks or now.time_s - self._looks[-1].time_s >= EVERY_S / 2:
            self._looks.append(now)
        return max(since, recent, key=lambda stats: stats.time_s)

    def _look_first(self, run: SampledRun) -> None:
        self._begun = run.stats()
        self._history.add(self._begun, run.memory().now)
        self._posted = Published(KIND)

    def _keep_looking(self, run: SampledRun, where: Callable[[], Where]) -> None:
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
        """Remove the file that other processes read."""
        with self._lock:
            posted, self._posted = self._posted, None
        if posted is not None:
            posted.close()


def pause_s(spent_s: float, after_s: float) -> float:
    """Return the seconds until the next snapshot, to keep the observer's processor time low.

    spent_s  processor seconds of all snapshots so far
    after_s  seconds since the observer began
    """
    return min(max(spent_s / CPU_SHARE - after_s - GRACE_S, EVERY_S), SELDOM_S)


def _log() -> None:
    import logging

    logging.getLogger("standpipe").debug("the observer has ended", exc_info=True)
