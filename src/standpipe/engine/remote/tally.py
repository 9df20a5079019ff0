"""Add up what makers outside the trainer have counted."""

from __future__ import annotations

from dataclasses import replace

from standpipe.stats.counters import Counts, Stats, WorkerStats, added_up, counts_of, with_counts


class Tally:
    """The counters of all makers, from their answers to this loader.

    deaths  number of makers that have ended
    """

    def __init__(self) -> None:
        self.deaths = 0
        self._all: Counts = {}
        self._makers: dict[str, WorkerStats] = {}

    def add(self, name: str, counts: Counts) -> None:
        """Add the counters of an answer of the maker ``name``."""
        self._all = added_up(self._all, counts)
        before = self._makers.get(name, WorkerStats(name))
        rows, busy_s = int(counts.get("rows", 0)), counts.get("transform.busy_s", 0.0)
        self._makers[name] = WorkerStats(name, before.rows + rows, before.busy_s + busy_s)

    def stats(self, local: Stats) -> Stats:
        """Return these counters, together with those of local workers."""
        total = added_up(counts_of(local), self._all) | {"deaths": local.deaths + self.deaths}
        return replace(with_counts(local, total), workers=(*local.workers, *self._makers.values()))
