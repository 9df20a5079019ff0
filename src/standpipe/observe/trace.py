"""``loader.trace()``: a run's history for Perfetto and Chrome's ``about:tracing``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import standpipe as sp
from standpipe.observe.history import Moment
from standpipe.observe.snapshot import Snapshot
from standpipe.system.files import whole_file

MIB = 1 << 20
MICRO = 1e6


def write_trace(loader: sp.Loader, path: str | Path) -> None:
    """Write a trace: counters over time, and epochs as spans, as sharp as the history's moments are."""
    now = loader.snapshot()
    with whole_file(path) as file:
        file.write(json.dumps({"traceEvents": list(events(now, loader.history.moments))}))


def events(now: Snapshot, moments: Sequence[Moment]) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace as dicts. Times are microseconds since the loader's start."""
    process = {"pid": now.pid, "tid": now.rank}
    yield {"ph": "M", "name": "process_name", "args": {"name": f"{now.script}, standpipe"}, **process}
    yield {"ph": "M", "name": "thread_name", "args": {"name": f"loader of rank {now.rank}"}, **process}
    for moment in moments:
        for name, values in _counters(moment).items():
            yield {"ph": "C", "name": name, "ts": round(MICRO * moment.begin_s), "args": values, **process}
    for epoch, begin_s, end_s in _epochs(moments):
        span = {"ts": round(MICRO * begin_s), "dur": round(MICRO * (end_s - begin_s))}
        yield {"ph": "X", "name": f"epoch {epoch}", "cat": "epoch", "args": {}, **span, **process}


def _counters(moment: Moment) -> dict[str, dict[str, float]]:
    return {
        "rows per second": {"rows": round(moment.rows_per_s, 1)},
        "loop": {"waits, %": round(100 * moment.wait_share, 1)},
        "memory": {"MiB": round(moment.memory / MIB, 1)},
        "batches ready": {"batches": round(moment.ready, 1)},
        **{f"load of {place}": {"%": round(100 * load, 1)} for place, load in moment.load.items()},
    }


def _epochs(moments: Sequence[Moment]) -> Iterator[tuple[int, float, float]]:
    """Yield (epoch, begin, end) in order, in seconds since the loader's start."""
    first = 0
    for number, moment in enumerate(moments):
        last = number + 1 == len(moments)
        if last or moments[number + 1].epoch != moment.epoch:
            yield moment.epoch, moments[first].begin_s, moment.begin_s + moment.seconds
            first = number + 1
