"""Threads that other libraries have in this process, which then mustn't be forked, and interrupts of our processes."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

TASKS = Path("/proc/self/task")
OWN = "standpipe-end"  # the name of the thread that ``_native.end_with`` starts
MOST_NAMES = 4  # names in a message


def import_all(modules: Iterable[str]) -> list[str]:
    """Import modules; return those whose import started threads. Errors are left to the first use of a module."""
    starting = []
    before = _count()
    for name in modules:
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
        count = _count()
        if count > before:
            starting.append(name)
        before = count
    return starting


def other_threads() -> list[str]:
    """Return the names of this process's threads that aren't standpipe's.

    A thread without a name of its own has an empty one. Threads that Python doesn't know count too.
    """
    names, ours = [], _name(os.getpid())
    for task in sorted(map(int, os.listdir(TASKS))):  # noqa: PTH208 (names, which are faster)
        with contextlib.suppress(OSError):  # it has just ended
            if task != os.getpid() and (name := _name(task)) != OWN:
                names.append("" if name == ours else name)
    return names


def count_text(names: Sequence[str]) -> str:
    """Return text such as ``"a thread"`` or ``"2 threads (polars-0, polars-1)"``; ``names`` is of ``other_threads``."""
    threads = "a thread" if len(names) == 1 else f"{len(names)} threads"
    known = list(dict.fromkeys(filter(None, names)))
    more = ", …" if len(known) > MOST_NAMES else ""
    return f"{threads} ({', '.join(known[:MOST_NAMES])}{more})" if known else threads


def ignore_interrupts() -> None:
    """Ignore and unblock SIGINT in this process. The trainer handles Ctrl-C, and ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _name(task: int) -> str:
    return (TASKS / f"{task}" / "comm").read_text().strip()


def _count() -> int:
    return len(os.listdir(TASKS))  # noqa: PTH208 (names are counted, not used)
