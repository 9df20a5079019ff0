"""Threads that tell their run when they end by an error that nobody expected: else the run would wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

from standpipe.errors import WorkerDiedError

Ends = Callable[[WorkerDiedError], object]  # is given the error of a thread that has ended


def guarded(name: str, target: Callable[[], object], ends: Ends) -> threading.Thread:
    """Return a thread, not started yet, that gives ``ends`` an error with its name when ``target`` raises."""

    def run() -> None:
        try:
            target()
        except BaseException as error:
            died = WorkerDiedError(
                f"the loader's thread {name} ended by an error that nobody expected: {error!r}. Make a new loader, and "
                "please report this with its traceback"
            )
            died.__cause__ = error
            ends(died)

    return threading.Thread(target=run, name=name, daemon=True)
