"""Late mode: each worker loads the setup by itself, after its fork, since loading it starts threads.

A process with threads must not be forked. So a worker server in late mode loads nothing. The trainer remembers for
which modules servers start in this mode.
"""

from __future__ import annotations

from collections.abc import Collection

from standpipe.carried import Report

_late: dict[frozenset[str], Report] = {}  # reports by modules: a server that needs all of them starts late


def remember(report: Report, modules: Collection[str]) -> None:
    """Remember in the trainer that worker servers must start in late mode.

    report   of the worker server or fork server that had threads
    modules  modules that the server's setup needs; all of them together are the reason if no import started a thread
    """
    reasons = [frozenset((name,)) for name in report.starting] or [frozenset(modules)]
    _late.update(dict.fromkeys(reasons, report))


def reason_for(modules: Collection[str]) -> Report | None:
    """Return the report because of which a server with these modules starts in late mode; None: it doesn't."""
    return next((report for late, report in _late.copy().items() if late.issubset(modules)), None)
