"""The numbers of worker processes, and the processes from which workers are forked."""

from __future__ import annotations

from typing import Literal

_number: int | None = None
_is_helper = False


def worker_id() -> int | None:
    """Return the number of the worker process that this code runs in; None outside of worker processes.

    A worker that replaces a dead worker gets the dead worker's number.

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
    ...     print(loader.peek()["worker"])
    [0 0]
    """
    return _number


def be_worker(number: int) -> None:
    """Set the number that ``worker_id()`` returns in this process, which is a worker process."""
    global _number
    _number = number


def be_helper() -> None:
    """Record that standpipe has started this process: a server that forks worker processes, or a worker process."""
    global _is_helper
    _is_helper = True


def is_helper() -> bool:
    """Return True if standpipe has started this process, which may be importing the module that made a loader."""
    return _is_helper


class WorkerOrigin:
    """The base class of ``ForkServer``: a process from which worker processes are forked."""


StartMethod = Literal["spawn", "forkserver", "fork"]
WorkerContext = WorkerOrigin | StartMethod
