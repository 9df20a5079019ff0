"""Diagnoses, reports, metrics and live views of running loaders. It uses standpipe's public names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from standpipe.observe.diagnosis import Diagnosis
    from standpipe.observe.history import History, Moment
    from standpipe.observe.judge import diagnose as diagnose
    from standpipe.observe.metrics import PrometheusCollector, write_scalars
    from standpipe.observe.posted import Found, loaders
    from standpipe.observe.progress import show_progress as show_progress
    from standpipe.observe.report import write_report as write_report
    from standpipe.observe.sampler import Sampler as Sampler, Where as Where
    from standpipe.observe.snapshot import Snapshot
    from standpipe.observe.trace import write_trace as write_trace

__all__ = [
    "Diagnosis",
    "Found",
    "History",
    "Moment",
    "PrometheusCollector",
    "Snapshot",
    "loaders",
    "write_scalars",
]

WHERE = {
    "History": "history",
    "Moment": "history",
    "PrometheusCollector": "metrics",
    "write_scalars": "metrics",
    "Found": "posted",
    "loaders": "posted",
    "Snapshot": "snapshot",
    "Diagnosis": "diagnosis",
    # For loaders alone:
    "Sampler": "sampler",
    "Where": "sampler",
    "diagnose": "judge",
    "show_progress": "progress",
    "write_report": "report",
    "write_trace": "trace",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use. This keeps the import of the package cheap for every loader."""
    from importlib import import_module

    if name in WHERE:
        return getattr(import_module(f"standpipe.observe.{WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
