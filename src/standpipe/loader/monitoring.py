"""``Observable``: the methods of a loader that report about the run, such as ``stats()`` and ``report()``."""

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
    """The base class of ``Loader`` with the methods that report about the run.

    history  measurements of the run over time: all ``moments``, and ``recent()``, a sum over the newest seconds
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
        """Return a diagnosis: what limits this run, the step or the input, and what to do.

        It names the place that limits the input, advice, and the speed that the advice would bring. ``str()``
        of it is text for people.

        Parameters
        ----------
        since : Stats, optional
            Earlier counters: the diagnosis covers the time from then on. Default: the time since the loader
            has had its present number of workers.

        Returns
        -------
        standpipe.observe.Diagnosis

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4).loader() as loader:
        ...     for batch in loader:
        ...         total = batch["x"].sum()
        ...     diagnosis = loader.diagnose()
        >>> diagnosis.bound in ("input", "step", "unknown")
        True
        """
        done = self.stats() - (self.since if since is None else since)
        return observe.diagnose(
            done, self.plan, self.tuning(), cores=cpu_count(), step_rows_per_s=self._step_rows_per_s
        )

    @property
    def since(self) -> Stats:
        """The counters when the run began with its present number of workers.

        They are all 0 while no run has started. ``stats() - since`` is the time that ``diagnose()`` covers.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4).loader() as loader:
        ...     for batch in loader:
        ...         pass
        ...     recent = loader.stats() - loader.since
        """
        return Stats() if self._run is None else self._run.monitor.since

    @property
    def slow_samples(self) -> list[SlowSample]:
        """The newest 1,000 samples and other tasks that took longer than ``slow_sample_s``.

        The log names them too. ``stats().slow`` counts all of them.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).loader(slow_sample_s=30) as loader:
        ...     for batch in loader:
        ...         pass
        ...     print(loader.slow_samples)
        []
        """
        return [] if self._run is None else self._run.monitor.slow_samples

    def stats(self) -> Stats:
        """Return counters since the loader started; all are 0 before that.

        The difference of two, ``after - before``, describes the time between them. Counting is always on, and
        a call is cheap enough for every step.

        Returns
        -------
        Stats

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(12))).batch(4).loader() as loader:
        ...     for batch in loader:
        ...         pass
        ...     print(loader.stats().step.rows)
        12
        """
        return Stats() if self._run is None else replace(self._run.monitor.stats(), epoch=self._cursor.epoch)

    def tuning(self) -> Tuning:
        """Return the present number of workers, and what was tried to find them.

        ``num_workers="auto"``, the default, is tuned while the loader runs, within ``memory=`` and the CPUs
        that this process may use. ``autotune=False`` keeps the plan's number.

        Returns
        -------
        Tuning

        Examples
        --------
        >>> pipeline = sp.Pipeline(sp.ImageFolder("photos")).map(sp.CenterCrop(32)).batch(8)
        >>> with pipeline.loader(num_workers=1, prefetch=2) as loader:
        ...     tuning = loader.tuning()
        >>> tuning.num_workers, tuning.prefetch
        (1, 2)
        """
        return untried(self.plan) if self._run is None else self._run.monitor.tuning()

    def explain(self) -> str:
        """Return the text of ``plan.explain()``, with the number of workers found since.

        Returns
        -------
        str

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).loader() as loader:
        ...     text = loader.explain()
        >>> "batch" in text
        True
        """
        return f"{self.plan.explain()}\n{tuning_text(self.tuning())}"

    def memory(self) -> MemoryLedger:
        """Return the memory of each purpose: forecast, present and largest since the start.

        ``str()`` of it is a table. Before the first batch it has the forecast only. A call is cheap enough
        for every step: native code counts its bytes, and worker processes are measured once a second.

        Returns
        -------
        MemoryLedger

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).loader(memory="64MiB") as loader:
        ...     batch = next(iter(loader))
        ...     ledger = loader.memory()
        >>> ledger.limit
        67108864
        """
        return planned_memory(self.plan) if self._run is None else self._run.monitor.memory()

    def snapshot(self, *, whole: bool = False) -> Snapshot:
        """Return a view of the run at this moment; ``str()`` of it is one line.

        Parameters
        ----------
        whole : bool, default False
            True: its figures cover the time since the run has had its present number of workers,
            like those of ``diagnose()`` and of a report. False: they cover the newest ten seconds of it.

        Returns
        -------
        standpipe.observe.Snapshot

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).loader() as loader:
        ...     batch = next(iter(loader))
        ...     snapshot = loader.snapshot()
        >>> snapshot.epoch, snapshot.batch
        (0, 4)
        """
        return self._sampler.look(self, self._where, whole=whole)

    def progress(self) -> AbstractContextManager[None]:
        """Show the run's progress on stderr while a ``with`` block runs.

        A terminal with rich gets live lines below other output, a notebook with tqdm gets a bar, and any
        other output gets a line every ten seconds.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(8))).batch(4).loader() as loader:
        ...     with loader.progress():
        ...         for batch in loader:
        ...             pass
        """
        return observe.show_progress(cast("Loader", self))

    def report(self, path: str | Path, *more: str | Path) -> None:
        """Write a report of the run so far: an HTML page, the same facts as JSON, or both.

        The page needs no network and no other file. After ``close()`` the report covers the whole run. All
        files have the same figures, and either all of them are written or none.

        Parameters
        ----------
        path : path
            A file that ends in ``.html`` or ``.json``, which determines its format.
        *more : path
            Further files.

        Raises
        ------
        PlanError
            For a path with another ending.
        StandpipeError
            If a file can't be written.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4).loader() as loader:
        ...     for batch in loader:
        ...         pass
        >>> loader.report("report.html", "report.json")
        """
        observe.write_report(cast("Loader", self), self.snapshot(whole=True), path, *more)

    def trace(self, path: str | Path) -> None:
        """Write the run over time as JSON for Perfetto and Chrome's ``about:tracing``.

        Parameters
        ----------
        path : path
            The file. Raises ``StandpipeError`` if it can't be written.

        Examples
        --------
        >>> with sp.Pipeline(sp.Arrays(x=np.arange(64))).batch(4).loader() as loader:
        ...     for batch in loader:
        ...         pass
        ...     loader.trace("trace.json")
        """
        observe.write_trace(cast("Loader", self), path)

    def _observe(self, run: Run) -> None:
        """Take snapshots of a run that has started, without a reference to the loader, which would keep it alive."""
        me = weakref.proxy(self)
        self._sampler = self._new_sampler()
        weakref.finalize(self, self._sampler.close)
        self._sampler.begin(run.monitor, lambda: me._where())

    def _new_sampler(self) -> Sampler:
        return observe.Sampler(cpu_count(), self.history)

    def _where(self) -> Where:
        return observe.Where(self._cursor.epoch, self._cursor.consumed, self._step_rows_per_s)
