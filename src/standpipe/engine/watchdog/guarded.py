"""Make threads that report an unexpected error to their run. Without the report the run would wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

from standpipe.errors import WorkerDiedError

Ends = Callable[[WorkerDiedError], object]  # called with the error if a thread ends because of one


def guarded(name: str, target: Callable[[], object], ends: Ends) -> threading.Thread:
    """Return a thread that runs ``target``; the caller starts it.

    ends  called with a ``WorkerDiedError`` that names the thread, if ``target`` raises an exception
    """

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
