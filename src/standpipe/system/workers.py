"""Worker processes: which one code runs in, and where they come from."""

from __future__ import annotations

from typing import Literal

_number: int | None = None


def worker_id() -> int | None:
    """The number of the worker process that this code runs in, from 0 to ``workers`` − 1; None anywhere else.

    One that takes the place of a worker that died has its number.
    """
    return _number


def be_worker(number: int) -> None:
    """This process is a worker from now on."""
    global _number
    _number = number


class WorkerOrigin:
    """A process that worker processes are forked from, instead of a new interpreter: see ``ForkServer``."""


WorkerContext = WorkerOrigin | Literal["spawn", "forkserver", "fork"]
