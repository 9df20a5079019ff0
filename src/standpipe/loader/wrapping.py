"""The methods of ``Loader`` that a loader of another framework has too."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from standpipe.loader.loader import Loader
from standpipe.plan.plan import Plan
from standpipe.stats.bad_samples import BadSample
from standpipe.stats.counters import Stats
from standpipe.stats.memory import MemoryLedger

if TYPE_CHECKING:
    from standpipe.observe import Diagnosis


class WrapsLoader:
    """A base class for what delivers the batches of a ``Loader`` in a form of its own."""

    @property
    def _wrapped(self) -> Loader:
        raise NotImplementedError

    @property
    def plan(self) -> Plan:
        """The plan, as ``standpipe.Loader.plan``."""
        return self._wrapped.plan

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, as ``standpipe.Loader.classes``."""
        return self._wrapped.classes

    @property
    def bad_samples(self) -> list[BadSample]:
        """Bad samples in delivered batches, as ``standpipe.Loader.bad_samples``."""
        return self._wrapped.bad_samples

    def stats(self) -> Stats:
        """Return counters since the loader started, as ``standpipe.Loader.stats``."""
        return self._wrapped.stats()

    def memory(self) -> MemoryLedger:
        """Return the memory of each purpose, as ``standpipe.Loader.memory``."""
        return self._wrapped.memory()

    def diagnose(self, since: Stats | None = None) -> Diagnosis:
        """Return what limits this run and what to do, as ``standpipe.Loader.diagnose``."""
        return self._wrapped.diagnose(since)

    def explain(self) -> str:
        """Return every place, and every byte of the forecast, as text, as ``standpipe.Loader.explain``."""
        return self._wrapped.explain()

    def report(self, path: str | Path, *more: str | Path) -> None:
        """Write a report of the run so far, as ``standpipe.Loader.report``."""
        self._wrapped.report(path, *more)

    def progress(self) -> AbstractContextManager[None]:
        """Show the run's progress on stderr while a ``with`` block runs, as ``standpipe.Loader.progress``."""
        return self._wrapped.progress()

    def close(self) -> None:
        """End standpipe's threads and processes. Batches that were delivered stay valid."""
        self._wrapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._wrapped).replace("<Loader", f"<{type(self).__name__}", 1)

    def _repr_html_(self) -> str:
        return self._wrapped._repr_html_()
