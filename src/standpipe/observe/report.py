"""``loader.report()``: write the facts of a run as JSON for programs, or as an HTML page for people."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import standpipe as sp
from standpipe.observe.charts import bucket_ends
from standpipe.observe.history import Moment
from standpipe.observe.page import latencies, page
from standpipe.observe.snapshot import Snapshot, facts
from standpipe.system.files import whole_file

PAGES = (".html", ".htm")


def write_report(loader: sp.Loader, now: Snapshot, *paths: str | Path) -> None:
    """Write a report to each path: HTML for ``.html``, JSON for ``.json``. Raises ``PlanError`` for other names.

    now  the loader's snapshot, which has the figures
    """
    as_page = {path: is_page(path) for path in paths}
    known, moments = known_of(loader, now), loader.history.moments
    with ExitStack() as files:  # whose end gives all of them their names
        for path, for_people in as_page.items():
            file = files.enter_context(whole_file(path))
            file.write(page(known, now, moments) if for_people else json.dumps(known, indent=1))
            file.flush()


def is_page(path: str | Path) -> bool:
    """Return True if a report of that name is a page, False if it is JSON. Raises ``PlanError`` for other
    names.
    """
    ending = Path(path).suffix.lower()
    if ending not in (*PAGES, ".json"):
        raise sp.PlanError(
            f"the name of a report must end in .html for a page, or in .json, got {str(path)!r}"
        )
    return ending in PAGES


def known_of(loader: sp.Loader, now: Snapshot) -> dict[str, Any]:
    """Return the contents of a report, as plain values."""
    bad = loader.bad_samples
    return {
        "standpipe": sp.__version__,
        "written": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "host": platform.node(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "now": facts(now),
        "plan": loader.plan.facts(),
        "explain": loader.explain(),
        "tuning": asdict(loader.tuning()),
        "memory": [facts(owner) for owner in loader.memory().owners],
        "latencies": {
            name: [
                [end, count]
                for end, count in zip(bucket_ends(len(latency.counts)), latency.counts, strict=True)
                if count
            ]
            for name, latency in latencies(now.stats).items()
        },
        "history": by_column(loader.history.moments),
        "bad_kinds": dict(Counter(sample.kind for sample in bad).most_common()),
        "bad_samples": [asdict(sample) for sample in bad],
        "slow_samples": [asdict(sample) for sample in loader.slow_samples],
        "edits": loader.edits,
    }


def by_column(moments: list[Moment]) -> dict[str, Any]:
    """A history as a list for each number of its moments, rounded to what can be seen."""
    plain = [facts(moment) for moment in moments]
    loads = [moment.pop("load") for moment in plain]
    names = plain[0] if plain else ()
    return {
        **{name: [_rounded(moment[name]) for moment in plain] for name in names},
        "load": {name: [_rounded(load[name]) for load in loads] for name in (loads[0] if loads else ())},
    }


def _rounded(number: float) -> float:
    return number if isinstance(number, int) else round(number, 4)
