"""Add up what makers outside the trainer have counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from standpipe.engine.remote.maker import PLACES, additive_counters
from standpipe.stats.counters import Stats, WorkerStats


class Tally:
    """The counters of all makers, from their answers to this loader.

    deaths  number of makers that have ended
    """

    def __init__(self) -> None:
        self.deaths = 0
        self._all: dict[str, float] = {}
        self._makers: dict[str, WorkerStats] = {}

    def add(self, name: str, counts: Mapping[str, float]) -> None:
        """Add the counters of an answer of the maker ``name``."""
        for each, number in counts.items():
            self._all[each] = self._all.get(each, 0) + number
        before = self._makers.get(name, WorkerStats(name))
        rows, busy_s = int(counts.get("rows", 0)), counts.get("transform.busy_s", 0.0)
        self._makers[name] = WorkerStats(name, before.rows + rows, before.busy_s + busy_s)

    def stats(self, local: Stats) -> Stats:
        """Return these counters, together with those of local workers."""
        total: dict[str, Any] = additive_counters(local)
        for name, number in list(self._all.items()):
            total[name] = total.get(name, 0) + number
        places: dict[str, Any] = {
            place: replace(
                getattr(local, place),
                **{name.partition(".")[2]: total[name] for name in total if name.startswith(f"{place}.")},
            )
            for place in PLACES
        }
        own: dict[str, Any] = {name: number for name, number in total.items() if "." not in name}
        own["deaths"] = local.deaths + self.deaths
        return replace(local, **places, **own, workers=(*local.workers, *self._makers.values()))
