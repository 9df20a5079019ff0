"""Looks at loaders, ours and others', from outside: it stands where a user stands, and sees public names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.observe.history import History, Moment
    from penstock.observe.metrics import PrometheusCollector, write_scalars
    from penstock.observe.posted import Found, loaders
    from penstock.observe.snapshot import Snapshot
    from penstock.observe.verdict import Verdict

__all__ = [
    "Found",
    "History",
    "Moment",
    "PrometheusCollector",
    "Snapshot",
    "Verdict",
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
    "Verdict": "verdict",
}


def __getattr__(name: str) -> object:
    """The public names, each imported when it is asked for: every loader imports this package."""
    from importlib import import_module

    if name in WHERE:
        return getattr(import_module(f"penstock.observe.{WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
