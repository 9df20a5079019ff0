"""Worker processes: their numbers, and where they are forked from."""

from __future__ import annotations

from typing import Literal

_number: int | None = None


def worker_id() -> int | None:
    """Return the number of the worker process that this code runs in; None outside of worker processes.

    A worker that replaces a dead one has its number.

    Returns
    -------
    int or None
        An integer from 0 to ``num_workers`` − 1, or None.

    Examples
    --------
    >>> print(sp.worker_id())
    None
    >>> def number(sample):
    ...     return sample | {"worker": sp.worker_id()}
    >>> pipeline = sp.Pipeline(sp.MapSource([{"x": 1}, {"x": 2}])).map(number).batch(2)
    >>> with pipeline.loader(executor="process", num_workers=1) as loader:
    ...     print(next(iter(loader))["worker"])
    [0 0]
    """
    return _number


def be_worker(number: int) -> None:
    """Make this process the worker with this number."""
    global _number
    _number = number


class WorkerOrigin:
    """A process that worker processes are forked from, instead of a new interpreter: see ``ForkServer``."""


WorkerContext = WorkerOrigin | Literal["spawn", "forkserver", "fork"]
