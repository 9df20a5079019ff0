"""Show what a loader does: live, as a report, over time."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from standpipe import observe
from standpipe.order import Cursor
from standpipe.plan.explain import tuning_text
from standpipe.plan.plan import Plan
from standpipe.plan.tuning import Tuning, untried
from standpipe.stats.counters import SlowSample, Stats
from standpipe.stats.memory import MemoryLedger, planned_memory
from standpipe.system.machine import cpu_count

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from standpipe.engine.run import Run
    from standpipe.loader.loader import Loader
    from standpipe.observe import Diagnosis, History, Snapshot
    from standpipe.observe.sampler import Sampler, Where


class Observable:
    """The part of a loader that shows it.

    history  what it did over time: its ``moments``, and the ``recent()`` ones as one
    """

    plan: Plan
    history: History
    _cursor: Cursor
    _step_rows_per_s: float | None
    _run: Run | None

    def __init__(self) -> None:
        self.history = observe.History()
        self._sampler = self._new_sampler()

    def diagnose(self, since: Stats | None = None) -> Diagnosis:
        """What limits this run: its steps or its input, which place of that, what to do, and what it would bring.

        since  counters of before: of what has happened from then on. Default: since it has had as many workers and
               slots as now
        """
        done = self.stats() - (self.since if since is None else since)
        return observe.diagnose(
            done, self.plan, self.tuning(), cores=cpu_count(), step_rows_per_s=self._step_rows_per_s
        )

    @property
    def since(self) -> Stats:
        """Counters of when the run had first as many workers and slots as now, and its start was over."""
        return Stats() if self._run is None else self._run.since

    @property
    def slow_samples(self) -> list[SlowSample]:
        """Samples, and other work, that took longer than ``slow_sample_s``: the newest 1,000, as the log names them.

        ``stats().slow`` counts all.
        """
        return [] if self._run is None else self._run.slow_samples

    def stats(self) -> Stats:
        """Counters since the loader started, all 0 before that; ``after - before`` is what happened in between.

        Always on, and quick enough to be asked at every step: what standpipe and the training loop did is
        counted as it happens.
        """
        return Stats() if self._run is None else replace(self._run.stats(), epoch=self._cursor.epoch)

    def tuning(self) -> Tuning:
        """How many workers and slots there are now, and what was tried to find that out.

        ``num_workers="auto"`` and ``prefetch="auto"``, both the default, are tuned while the loader runs,
        within ``memory=`` and the processors that this process may use. ``autotune=False`` keeps what
        ``plan`` begins with.
        """
        return untried(self.plan) if self._run is None else self._run.tuning()

    def explain(self) -> str:
        """``plan.explain()``, and what was found out since about how many workers and slots are best."""
        return f"{self.plan.explain()}\n{tuning_text(self.tuning())}"

    def memory(self) -> MemoryLedger:
        """Who takes how much memory: forecast, now, and at most since the loader started; ``str()`` is a table.

        Before the first batch it is the forecast alone. Quick enough to be asked at every step: what native
        code has is counted, worker processes are measured once a second.
        """
        return planned_memory(self.plan) if self._run is None else self._run.memory()

    def snapshot(self, *, whole: bool = False) -> Snapshot:
        """What it is at now, as the live views show it; ``str()`` is a line.

        whole  whether its figures are about all of the run since it has had as many workers and slots as now, as
               those of ``diagnose()`` and of a report are. Default: about the newest ten seconds of that
        """
        return self._sampler.look(self, self._where, whole=whole)

    def progress(self) -> AbstractContextManager[None]:
        """Show how the run goes while the ``with`` block runs.

        At a terminal with rich in lines that stay below what is printed, in a notebook with tqdm as a bar,
        elsewhere as a line every ten seconds; on stderr.
        """
        return observe.show_progress(cast("Loader", self))

    def report(self, path: str | Path, *more: str | Path) -> None:
        """Write a page about the run so far, ``report.html``, or the same facts as JSON, ``report.json``.

        path  of the file; what it ends in says which of the two it is
        more  paths, for both with the same figures: ``loader.report("report.html", "report.json")``

        The page needs nothing else: no network, no other file. After ``close()`` it is about the whole run.
        All files are there, or none is. Raises ``PlanError`` where a path ends in neither ``.html`` nor
        ``.json``, and ``StandpipeError`` where it can't be written.
        """
        observe.write_report(cast("Loader", self), self.snapshot(whole=True), path, *more)

    def trace(self, path: str | Path) -> None:
        """Write what it did over time as JSON for Perfetto, and Chrome's ``about:tracing``.

        Raises ``StandpipeError`` where it can't be written.
        """
        observe.write_trace(cast("Loader", self), path)

    def _observe(self, run: Run) -> None:
        """Take snapshots of a run that has started, without a reference to the loader, which would keep it alive."""
        me = weakref.proxy(self)
        self._sampler = self._new_sampler()
        weakref.finalize(self, self._sampler.close)
        self._sampler.begin(run, lambda: me._where())

    def _new_sampler(self) -> Sampler:
        return observe.Sampler(cpu_count(), self.history)

    def _where(self) -> Where:
        return observe.Where(self._cursor.epoch, self._cursor.consumed, self._step_rows_per_s)
