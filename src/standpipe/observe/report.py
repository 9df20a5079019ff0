"""``loader.report()``: what is known of a run, as facts for programs and as a page for people."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import standpipe as sp
from standpipe.observe.charts import bucket_ends
from standpipe.observe.history import Moment
from standpipe.observe.page import latencies, page
from standpipe.observe.snapshot import Snapshot, facts

MOST_BAD = 1000  # samples with all that is known of them, of the newest


def write_report(loader: sp.Loader, path: str | Path) -> None:
    """Write ``report.html``, and ``report.json`` beside it. Raises ``PlanError`` for a name with another ending."""
    path = checked_name(path)
    now = replace(loader.snapshot(), verdict=loader.verdict())
    known = known_of(loader, now)
    text = page(known, now, loader.history.moments)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    path.with_suffix(".json").write_text(json.dumps(known, indent=1), encoding="ascii")


def checked_name(path: str | Path) -> Path:
    """The name of a page. Raises ``PlanError`` where it doesn't end as one."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise sp.PlanError(
            f"report {str(path)!r}: a page's name ends in .html; its facts go into .json beside it"
        )
    return path


def known_of(loader: sp.Loader, now: Snapshot) -> dict[str, Any]:
    """All that a report says, as plain values."""
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
        "bad_samples": [asdict(sample) for sample in bad[-MOST_BAD:]],
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
